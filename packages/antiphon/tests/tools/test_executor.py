"""The executor: a result for each call, in order, whatever the tools do to it."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import msgspec
import pytest

from antiphon.errors import AntiphonError
from antiphon.parts import Text, ToolCallRequest, ToolCallResult
from antiphon.tools import CallOutcome, ResultCache, Tool, ToolContext, ToolError, ToolExecutor, ToolRegistry, tool
from tools.executor_calls import FAILED, OK, Watcher, call, echo, one, run


def test_results_keep_the_order_of_the_calls() -> None:
    @tool
    async def wait(seconds: float, name: str) -> str:
        await asyncio.sleep(seconds)
        return name

    calls = [
        call("wait", f'{{"seconds": {seconds}, "name": "{name}"}}', name)
        for seconds, name in ((0.03, "a"), (0.0, "b"), (0.01, "c"))
    ]
    watcher = Watcher()
    results = run([wait], *calls, watcher=watcher)
    assert [result.result_markdown for result in results] == ["a", "b", "c"]
    assert [result.tool_call_id for result in results] == ["a", "b", "c"]
    assert {event[1] for event in watcher.events[:3]} == {"a", "b", "c"}
    assert [event[0] for event in watcher.events] == ["started"] * 3 + ["finished"] * 3
    assert run([wait]) == []


def test_the_context_that_a_tool_receives() -> None:
    seen: list[ToolContext] = []

    @tool
    async def look(context: ToolContext) -> None:
        seen.append(context)
        context.progress("half", 0.5)

    watcher = Watcher()
    run([look], call("look"), watcher=watcher, state={"user": 1})
    (context,) = seen
    assert (context.conversation_id, context.tool_call_id, context.idempotency_key) == ("talk", "call_1", "talk:call_1")
    assert (context.round, context.attempt, context.state) == (3, 1, {"user": 1})
    assert watcher.events == [
        ("started", "call_1", "look", "talk:call_1"),
        ("progress", "call_1", "half", 0.5),
        ("finished", "call_1", OK),
    ]


def test_progress_comes_from_threads_in_order_and_on_the_loop() -> None:
    @tool
    def work(context: ToolContext) -> str:
        for step in range(3):
            context.progress(str(step))
        return "done"

    class Threads(Watcher):
        def progress(self, call: ToolCallRequest, message: str, fraction: float | None) -> None:
            assert threading.current_thread() is threading.main_thread()
            super().progress(call, message, fraction)
            raise RuntimeError("an observer that fails on progress is harmless")

    watcher = Threads()
    run([work], call("work"), watcher=watcher)
    assert [event[2] for event in watcher.events if event[0] == "progress"] == ["0", "1", "2"]
    assert watcher.events[-1] == ("finished", "call_1", OK)


def test_keys_are_the_callers_or_made_and_never_shared() -> None:
    @tool
    async def key(context: ToolContext) -> str:
        return context.idempotency_key

    async def main() -> list[list[str]]:
        executor = ToolExecutor(ToolRegistry([key]))
        calls = [call("key"), call("key"), call("key", call_id="call_2")]
        made = await executor.execute(calls, conversation_id="talk")
        given = await executor.execute(calls, keys=lambda call: f"k-{call.tool_call_id}")
        return [[result.result_markdown for result in results] for results in (made, given)]

    assert asyncio.run(main()) == [
        ["talk:call_1", "talk:call_1#2", "talk:call_2"],
        ["k-call_1", "k-call_1#2", "k-call_2"],
    ]


def test_two_calls_with_one_id_are_both_run_and_both_answered() -> None:
    results = run([echo], call("echo", '{"text": "a"}'), call("echo", '{"text": "b"}'))
    assert [result.result_markdown for result in results] == ["a", "b"]
    assert {result.tool_call_id for result in results} == {"call_1"}


def test_an_unknown_or_renamed_tool() -> None:
    watcher = Watcher()
    (result,) = run([echo], call("ecco"), watcher=watcher)
    assert result.status is FAILED
    assert result.result_markdown == 'Unknown tool "ecco". Did you mean echo? The tools are: echo.'
    assert watcher.events == [("started", "call_1", None, "talk:call_1"), ("finished", "call_1", FAILED)]
    assert watcher.outcomes[0].attempts == 0
    (result,) = run([], call("echo"))
    assert "no tools are available" in result.result_markdown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ('{"text": "a', "The text ends too early; send it again whole, or shorter."),
        ("{'text': 'a'}", "are not valid JSON"),
        ("text=a", 'You sent: "text=a"'),
        ('["a"]', "must be a JSON object, not list"),
        ("null", "must be a JSON object"),
        ('{"text": 5}', "text: expected string, got 5"),
        ("[" * 100_000, "It takes: echo(text: string)."),
    ],
)
def test_arguments_that_are_not_right(arguments: str, words: str) -> None:
    answer_text, outcome = one(echo, arguments)
    assert words in answer_text
    assert "echo(text: string)" in answer_text
    assert (outcome.status, outcome.attempts) == (FAILED, 0)
    assert len(answer_text) < 600


def test_a_validator_that_breaks_is_an_answer_too() -> None:
    class Fragile(msgspec.Struct):
        number: int

        def __post_init__(self) -> None:
            raise LookupError("no table")

    @tool
    def use(item: Fragile) -> None: ...

    answer_text, outcome = one(use, '{"item": {"number": 1}}')
    assert answer_text == "use could not check its arguments, and was not run: LookupError: no table"
    assert outcome.attempts == 0


def test_the_list_of_many_tools_is_bounded() -> None:
    tools = [Tool.from_schema(f"tool_{number}", "", None, print) for number in range(60)]
    (result,) = run(tools, call("weather"))
    assert result.result_markdown.endswith("tool_49 and 10 more.")


def test_empty_arguments_mean_none_and_freeform_means_the_one_argument() -> None:
    @tool
    def plain() -> str:
        return "ok"

    assert one(plain, "")[0] == "ok"
    (result,) = run([echo], ToolCallRequest("echo", "1", "not { json", freeform=True))
    assert result.result_markdown == "not { json"


def test_exceptions_become_results_without_traceback_and_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise ValueError("no such city")

    answer_text, outcome = one(fail)
    assert answer_text == "fail failed: ValueError: no such city"
    assert outcome.status is FAILED
    assert "Traceback" in caplog.text
    assert "call_1" in caplog.text

    async def several() -> None:
        raise ExceptionGroup("two", [ValueError("a"), OSError("b")])

    assert one(several)[0] == "several failed: ExceptionGroup: two: ValueError: a; OSError: b"


def test_a_tool_error_is_shown_to_the_model() -> None:
    def refuse() -> None:
        raise ToolError("There is no plan 7; call list_plans.")

    answer_text, outcome = one(refuse)
    assert answer_text == "There is no plan 7; call list_plans."
    assert outcome.status is FAILED


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit()])
def test_leaving_the_process_from_within_a_tool_ends_only_the_call(error: BaseException) -> None:
    def plain() -> None:
        raise error

    async def asynchronous() -> None:
        raise error

    for function in (plain, asynchronous):
        answer_text, outcome = one(function)
        assert f"broke off before it was done ({type(error).__name__})" in answer_text
        assert outcome.status is FAILED


def test_fifty_megabytes_are_cut(caplog: pytest.LogCaptureFixture) -> None:
    def flood() -> str:
        return "x" * 50_000_000

    answer_text, outcome = one(flood)
    assert len(answer_text) == outcome.size == 100_000
    assert outcome.is_truncated
    assert "characters omitted" in answer_text
    assert len(one(tool(max_result_chars=500)(flood))[0]) == 500
    assert len(one(flood, max_result_chars=700)[0]) == 700

    def complain() -> None:
        raise ValueError("y" * 50_000_000)

    answer_text, outcome = one(complain)
    assert len(answer_text) == 100_000
    assert outcome.error == "complain failed: ValueError: " + "y" * 471
    assert len(caplog.text) < 5_000


def test_bytes_and_none_results() -> None:
    def binary() -> bytes:
        return b"\x00\xff"

    def nothing() -> None: ...

    assert one(binary)[0] == "(2 bytes of binary data, beginning with 00 ff)"
    assert one(nothing)[0] == "(no output)"


def test_identical_calls_are_remembered() -> None:
    ran: list[str] = []

    @tool(effect="read", cache_seconds=60)
    def search(query: str, limit: int = 5) -> str:
        ran.append(query)
        if query == "bad":
            raise ValueError(query)
        return f"about {query}"

    watcher = Watcher()

    async def main() -> list[str]:
        executor = ToolExecutor(ToolRegistry([search]), cache=ResultCache())
        answer_text = []
        for number, arguments in enumerate(
            ['{"query": "a", "limit": 1}', '{"limit":1,"query":"a"}', '{"query": "b"}', '{"query": "bad"}', '{"query": "bad"}']
        ):  # fmt: skip
            (result,) = await executor.execute([call("search", arguments, f"call_{number}")], observer=watcher)
            assert result.tool_call_id == f"call_{number}"
            answer_text.append(result.result_markdown)
        return answer_text

    answer_text = asyncio.run(main())
    assert answer_text[:3] == ["about a", "about a", "about b"]
    assert ran == ["a", "b", "bad", "bad"]
    assert [outcome.is_cached for outcome in watcher.outcomes] == [False, True, False, False, False]
    assert [outcome.attempts for outcome in watcher.outcomes] == [1, 0, 1, 1, 1]


def test_measures_of_every_call_and_a_callback_that_fails() -> None:
    outcomes: list[CallOutcome] = []

    def measure(outcome: CallOutcome) -> None:
        outcomes.append(outcome)
        raise RuntimeError("metrics are down")

    results = run([echo], call("echo", '{"text": "abc"}'), call("none", call_id="call_2"), on_call=measure)
    assert len(results) == 2
    by_id = {outcome.tool_call_id: outcome for outcome in outcomes}
    good, bad = by_id["call_1"], by_id["call_2"]
    assert (good.status, good.size, good.attempts, good.error) == (OK, 3, 1, "")
    assert good.seconds > 0
    assert (bad.status, bad.attempts) == (FAILED, 0)
    assert bad.error.startswith('Unknown tool "none"')


def test_secrets_of_arguments_and_state_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    @tool(timeout=0.02)
    async def hang(password: str) -> None:
        await asyncio.sleep(60)

    run([hang], call("hang", '{"password": "hunter2"}'), state={"key": "sk-secret"})
    run([hang], call("hang", '{"passwort": "hunter2"}'), state={"key": "sk-secret"})
    assert "hang did not finish" in caplog.text
    assert "hunter2" not in caplog.text
    assert "sk-secret" not in caplog.text


def test_a_tool_may_return_a_result_of_its_own() -> None:
    @tool
    async def partly() -> ToolCallResult:
        return ToolCallResult("", "", FAILED, (Text("the server refused"),))

    answer_text, outcome = one(partly)
    assert answer_text == "the server refused"
    assert outcome.status is FAILED


def test_a_tool_may_execute_other_tools_of_the_same_executor() -> None:
    executors: list[ToolExecutor] = []

    @tool
    async def outer(text: str) -> str:
        (result,) = await executors[0].execute([call("echo", f'{{"text": "{text}"}}')])
        return result.result_markdown

    async def main() -> list[str]:
        executors.append(ToolExecutor(ToolRegistry([echo, outer]), max_parallel=1))
        calls = [call("outer", '{"text": "a"}', "1"), call("outer", '{"text": "b"}', "2")]
        return [result.result_markdown for result in await executors[0].execute(calls)]

    assert asyncio.run(main()) == ["a", "b"]


@pytest.mark.parametrize("setting", ["max_parallel", "max_result_chars"])
def test_bounds_that_make_no_sense(setting: str) -> None:
    settings: dict[str, Any] = {setting: 0}
    with pytest.raises(AntiphonError, match=f"{setting}=0: must be at least 1"):
        ToolExecutor(ToolRegistry(), **settings)
