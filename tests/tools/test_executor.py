"""The executor: a result for each call, in order, whatever the tools do to it."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from antiphon.errors import AntiphonError
from antiphon.parts import Text, ToolCallRequest, ToolCallResult, ToolExecutionStatus
from antiphon.tools import CallOutcome, ResultCache, Tool, ToolContext, ToolError, ToolExecutor, ToolRegistry, tool
from antiphon.tools.executor import INITIAL_BACKOFF

OK, FAILED = ToolExecutionStatus.SUCCESS, ToolExecutionStatus.FAILED


def call(name: str, arguments: str = "{}", call_id: str = "call_1") -> ToolCallRequest:
    return ToolCallRequest(name, call_id, arguments)


class Watcher:
    """An observer that writes everything down."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.outcomes: list[CallOutcome] = []

    def started(self, call: ToolCallRequest, tool: Tool | None, idempotency_key: str) -> None:
        self.events.append(("started", call.tool_call_id, tool.name if tool else None, idempotency_key))

    def progress(self, call: ToolCallRequest, message: str, fraction: float | None) -> None:
        self.events.append(("progress", call.tool_call_id, message, fraction))

    def finished(self, call: ToolCallRequest, result: ToolCallResult, outcome: CallOutcome) -> None:
        self.events.append(("finished", call.tool_call_id, result.status))
        self.outcomes.append(outcome)


def run(
    tools: Sequence[Tool | Callable[..., Any]], *calls: ToolCallRequest, watcher: Watcher | None = None, **settings: Any
) -> list[ToolCallResult]:
    executor = ToolExecutor(ToolRegistry(tools), **settings)
    return asyncio.run(executor.execute(calls, observer=watcher, conversation_id="talk", round=3))


def one(function: Tool | Callable[..., Any], arguments: str = "{}", **settings: Any) -> tuple[str, CallOutcome]:
    """Run a single call of a single tool."""
    made = function if isinstance(function, Tool) else tool(function)
    watcher = Watcher()
    (result,) = run([made], call(made.name, arguments), watcher=watcher, **settings)
    assert (result.tool_name, result.tool_call_id) == (made.name, "call_1")
    (outcome,) = watcher.outcomes
    assert outcome.status is result.status
    assert outcome.size == len(result.result_markdown)
    assert outcome.error == ("" if result.status is OK else result.result_markdown.partition("\n")[0][:500])
    return result.result_markdown, outcome


@tool
def echo(text: str) -> str:
    return text


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


def test_an_async_tool_that_hangs_is_stopped() -> None:
    was_stopped = []

    @tool(timeout=0.05)
    async def hang() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            was_stopped.append(True)

    answer_text, outcome = one(hang)
    assert answer_text == "hang did not finish within 0.05 s and was stopped. Part of its work may have been done."
    assert was_stopped == [True]
    assert outcome.seconds >= 0.05


def test_a_tool_that_ignores_cancellation_is_stopped_anyway() -> None:
    steps: list[str] = []

    @tool(timeout=0.05)
    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                steps.append("cancelled")
            finally:
                steps.append("woken")

    answer_text, _ = one(stubborn, grace=0.05)
    assert "did not finish within 0.05 s and was stopped" in answer_text
    assert steps == ["cancelled", "woken", "woken"]


# Python complains when it collects a coroutine that ignores being closed; so it should.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_tool_that_ignores_even_being_closed_is_never_woken_again() -> None:
    steps: list[int] = []

    @tool(timeout=0.05)
    async def immortal() -> None:
        while True:
            try:
                steps.append(1)
                await asyncio.sleep(0.01)
            except BaseException:  # the worst there is
                continue

    async def main() -> tuple[str, int]:
        executor = ToolExecutor(ToolRegistry([immortal]), grace=0.05)
        (result,) = await executor.execute([call("immortal")])
        done = len(steps)
        await asyncio.sleep(0.05)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return result.result_markdown, len(steps) - done

    answer_text, more = asyncio.run(main())
    assert "was stopped" in answer_text
    assert more == 0


def test_a_tool_that_ends_well_while_it_is_stopped_has_its_result(caplog: pytest.LogCaptureFixture) -> None:
    @tool(timeout=0.05)
    async def tidy() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "half of it"
        return "all of it"

    answer_text, outcome = one(tidy)
    assert (answer_text, outcome.status) == ("half of it", OK)
    assert "held up" not in caplog.text


def test_a_hanging_plain_function_is_answered_and_abandoned() -> None:
    release, ended = threading.Event(), threading.Event()

    @tool(timeout=0.05)
    def hang(context: ToolContext) -> None:
        release.wait(60)
        context.progress("too late for anybody")
        ended.set()

    watcher = Watcher()

    async def main() -> str:
        (result,) = await ToolExecutor(ToolRegistry([hang])).execute([call("hang")], observer=watcher)
        release.set()
        while not ended.is_set():
            await asyncio.sleep(0.001)
        await asyncio.sleep(0)
        return result.result_markdown

    assert asyncio.run(main()) == (
        "hang did not finish within 0.05 s. It could not be stopped and may still be running; "
        "what it was asked to do may yet happen."
    )
    assert [event[0] for event in watcher.events] == ["started", "finished"]


def test_an_abandoned_thread_blocks_neither_the_loop_nor_the_interpreter() -> None:
    code = """
import asyncio, time
from antiphon.parts import ToolCallRequest
from antiphon.tools import ToolExecutor, ToolRegistry, tool

@tool(timeout=0.05)
def hang():
    time.sleep(600)

print(asyncio.run(ToolExecutor(ToolRegistry([hang])).execute([ToolCallRequest("hang", "1")]))[0].status.value)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "failed\n"), ended.stderr


def test_a_tool_that_blocks_the_loop_is_answered_afterwards_and_named(caplog: pytest.LogCaptureFixture) -> None:
    @tool(timeout=0.02)
    async def block() -> str:
        time.sleep(0.1)
        return "done"

    assert one(block)[0] == "done"
    assert "block held up the event loop" in caplog.text


def test_an_observer_that_fails_in_several_calls_raises_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Full:
        def started(self, *_: object) -> None:
            raise OSError("the disk is full")

        def progress(self, *_: object) -> None: ...
        def finished(self, *_: object) -> None: ...

    @tool
    async def look() -> str:
        return "seen"

    calls = [ToolCallRequest("look", f"call_{number}", "{}") for number in range(3)]
    with pytest.raises(OSError, match="disk is full"):
        asyncio.run(ToolExecutor(ToolRegistry([look])).execute(calls, observer=Full()))
    gc.collect()
    assert "never retrieved" not in caplog.text


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


def counted(failures: int, error: BaseException, **settings: Any) -> tuple[Tool, list[int]]:
    attempts: list[int] = []

    async def fetch(context: ToolContext) -> str:
        attempts.append(context.attempt)
        if len(attempts) <= failures:
            raise error
        return "fetched"

    return tool(**settings)(fetch), attempts


@pytest.mark.parametrize(
    ("error", "settings", "tries"),
    [
        (OSError("down"), {"effect": "read", "retries": 2}, 3),
        (OSError("down"), {"effect": "idempotent", "retries": 1}, 2),
        (OSError("down"), {"effect": "read"}, 1),
        (OSError("down"), {}, 1),
        (ToolError("busy"), {"effect": "read", "retries": 1}, 2),
        (ToolError("never", retry=False), {"effect": "read", "retries": 2}, 1),
        (SystemExit(), {"effect": "read", "retries": 2}, 1),
    ],
)
def test_retries(error: BaseException, settings: dict[str, Any], tries: int) -> None:
    fetch, attempts = counted(99, error, **settings)
    _, outcome = one(fetch)
    assert attempts == list(range(1, tries + 1))
    assert (outcome.attempts, outcome.status) == (tries, FAILED)


def test_a_retry_may_succeed_and_waits_a_little() -> None:
    fetch, attempts = counted(1, OSError("down"), effect="read", retries=3)
    answer_text, outcome = one(fetch)
    assert (answer_text, outcome.attempts, attempts) == ("fetched", 2, [1, 2])
    assert outcome.seconds >= INITIAL_BACKOFF * 0.4


def test_what_may_still_run_is_not_tried_again() -> None:
    release = threading.Event()

    @tool(effect="idempotent", retries=3, timeout=0.05)
    def hang() -> None:
        release.wait(60)

    try:
        _, outcome = one(hang)
    finally:
        release.set()
    assert outcome.attempts == 1


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


class Crowd:
    """Counts how many are inside at once."""

    def __init__(self) -> None:
        self.inside = self.most = 0

    async def visit(self) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        await asyncio.sleep(0.005)
        self.inside -= 1


@pytest.mark.parametrize(("max_parallel", "concurrency", "most"), [(8, None, 8), (3, None, 3), (8, 2, 2), (1, 5, 1)])
def test_concurrency_limits(max_parallel: int, concurrency: int | None, most: int) -> None:
    crowd = Crowd()
    visit = tool(concurrency=concurrency)(crowd.visit)
    calls = [call("visit", call_id=f"call_{number}") for number in range(12)]
    results = run([visit], *calls, max_parallel=max_parallel)
    assert [result.status for result in results] == [OK] * 12
    assert crowd.most == most
    # The same tool again in another event loop.
    assert len(run([visit], *calls, max_parallel=max_parallel)) == 12


def test_the_concurrency_of_a_tool_holds_across_executions() -> None:
    crowd = Crowd()
    visit = tool(concurrency=1)(crowd.visit)

    async def main() -> None:
        executors = [ToolExecutor(ToolRegistry([visit])) for _ in range(4)]
        await asyncio.gather(*(executor.execute([call("visit")]) for executor in executors))

    asyncio.run(main())
    assert crowd.most == 1


def test_sync_tools_run_side_by_side_in_threads() -> None:
    together = threading.Barrier(3, timeout=30)

    @tool
    def meet() -> str:
        together.wait()
        return threading.current_thread().name

    results = run([meet], *(call("meet", call_id=f"call_{number}") for number in range(3)))
    assert len({result.result_markdown for result in results}) == 3


def test_a_thread_that_is_done_serves_again() -> None:
    @tool
    def which() -> str:
        return threading.current_thread().name

    async def main() -> set[str]:
        executor = ToolExecutor(ToolRegistry([which]))
        return {(await executor.execute([call("which")]))[0].result_markdown for _ in range(5)}

    assert len(asyncio.run(main())) == 1


def test_context_variables_reach_threads() -> None:
    user = contextvars.ContextVar("user", default="default")

    @tool
    def who() -> str:
        return user.get()

    async def main() -> str:
        user.set("mine")
        return (await ToolExecutor(ToolRegistry([who])).execute([call("who")]))[0].result_markdown

    assert asyncio.run(main()) == "mine"


async def cancelled(executor: ToolExecutor, *calls: ToolCallRequest, watcher: Watcher | None = None) -> None:
    """Begin, let everything start, cancel, and see that it ends as cancelled."""
    task = asyncio.ensure_future(executor.execute(calls, observer=watcher))
    for _ in range(20):  # turns of the loop, not time: a busy machine has as many
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_cancelling_stops_the_tools() -> None:
    ended: list[str] = []

    @tool
    async def hang(name: str) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(name)

    @tool
    async def quick() -> str:
        return "done"

    async def main() -> None:
        executor = ToolExecutor(ToolRegistry([hang, quick]))
        await cancelled(executor, call("hang", '{"name": "alone"}'))
        watcher = Watcher()
        calls = [call("hang", '{"name": "a"}', "1"), call("quick", call_id="2"), call("hang", '{"name": "b"}', "3")]
        await cancelled(executor, *calls, watcher=watcher)
        # What was finished before is known; what was cancelled is not called finished.
        assert [event[1] for event in watcher.events if event[0] == "finished"] == ["2"]

    asyncio.run(main())
    assert ended[0] == "alone"
    assert sorted(ended[1:]) == ["a", "b"]


def test_cancelling_does_not_wait_for_stubborn_tools_or_threads() -> None:
    release = threading.Event()

    @tool
    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                continue

    @tool
    def hang() -> None:
        release.wait(60)

    async def main() -> None:
        executor = ToolExecutor(ToolRegistry([stubborn, hang]), grace=0.05)
        await cancelled(executor, call("stubborn"), call("hang", call_id="call_2"))

    try:
        asyncio.run(main())
    finally:
        release.set()


@pytest.mark.parametrize("turns", range(4))
@pytest.mark.parametrize("count", [1, 2])
def test_cancelling_in_the_first_loop_turns_leaves_no_tasks(turns: int, count: int) -> None:
    @tool
    async def work() -> None:
        await asyncio.sleep(60)

    async def main() -> None:
        executor = ToolExecutor(ToolRegistry([work]))
        task = asyncio.ensure_future(executor.execute([call("work")] * count))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


@pytest.mark.parametrize("count", [1, 3])
def test_an_observer_that_cannot_write_keeps_the_tool_from_running(count: int) -> None:
    ran: list[str] = []

    @tool
    async def work() -> None:
        ran.append("ran")
        await asyncio.sleep(60)

    class Full(Watcher):
        def started(self, call: ToolCallRequest, tool: Tool | None, idempotency_key: str) -> None:
            if call.tool_call_id == "call_0":
                raise OSError("the disk is full")

    calls = [call("work", call_id=f"call_{number}") for number in range(count)]
    with pytest.raises(OSError, match="the disk is full"):
        run([work], *calls, watcher=Full())
    assert len(ran) <= count - 1


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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_threads_work_again_in_a_forked_child() -> None:
    code = """
import asyncio, os
from antiphon.parts import ToolCallRequest
from antiphon.tools import ToolExecutor, ToolRegistry, tool

@tool(timeout=20)
def plain():
    return "fine"

def run():
    return asyncio.run(ToolExecutor(ToolRegistry([plain])).execute([ToolCallRequest("plain", "1")]))[0].result_markdown

assert run() == "fine"
child = os.fork()
if child == 0:
    os._exit(0 if run() == "fine" else 1)
assert os.waitpid(child, 0)[1] == 0
"""
    ended = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("setting", ["max_parallel", "max_result_chars"])
def test_bounds_that_make_no_sense(setting: str) -> None:
    settings: dict[str, Any] = {setting: 0}
    with pytest.raises(AntiphonError, match=f"{setting}=0: must be at least 1"):
        ToolExecutor(ToolRegistry(), **settings)
