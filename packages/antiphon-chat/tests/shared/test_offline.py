"""The guided tour: what it says in two languages, what it really runs, and the calls and formats that a request demands."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from datetime import date
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs

import antiphon as ap
from antiphon.history import ContextEntry, ModelInputEntry, ModelOutputEntry, Origin, ToolCallResultsEntry
from antiphon.parts import Image, ToolCallRequest, ToolCallResult, ToolExecutionStatus, text_of
from antiphon.providers.call import ProviderCallOptions
from antiphon.tools.builtin import builtin_tools
from antiphon.tools.call_runner import UNKNOWN_OUTCOME
from antiphon.tools.compiled_schema import CompiledSchema
from antiphon.wire.delta import Assembler, Finished, ModelOutputDelta, PartDelta, Started, UsageReported
from antiphon.wire.request import ModelRequest, OutputFormat, ToolChoice, ToolDefinition
from antiphon_chat.language import say
from antiphon_chat.offline import OfflineModel
from antiphon_chat.offline.plan_request import GoalChange, PlanRequest, documents_in, read_request
from antiphon_chat.offline.schema_values import Words, fitting_value
from antiphon_chat.offline.tour import TOUR_TOOLS
from providers.model_calls import assembled, deltas_of
from support.history_strategies import any_text, json_values
from support.repository import CHAT

TODAY = date(2026, 1, 1)
TEXT: dict[str, Any] = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "number"}
FOUND = "Local documents.\n\n1. **Guide one**\n   Source: a.md\n   words\n\n2. **Guide two**\n   Source: b.md\n   words"

Answer = str | Exception
Handler = Callable[[str, dict[str, Any]], Answer]


def tool(
    name: str, description: str = "", required: Sequence[str] = (), **properties: dict[str, Any]
) -> ToolDefinition:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return ToolDefinition(name, description, schema)


SEARCH = tool("search_web", "Search the web", ["query"], query=TEXT)
CREATE = tool("create_plan", "Make a plan", ["title"], title=TEXT, tasks={"type": "array"})
LIST = tool("list_plans", "List all plans")
PLAN_TOOLS = (SEARCH, CREATE, LIST)
PAUSE = tool("pause", "Wait", [], seconds=NUMBER)
WEATHER = tool("weather", "Current weather in a city", ["city"], city=TEXT)
ADD = tool("add", "Add two numbers", ["a", "b"], a=NUMBER, b=NUMBER)


class Talk:
    """A conversation with the tour, driven by the smallest of loops."""

    def __init__(self, tools: Sequence[ToolDefinition], handler: Handler = lambda *_: "done", **settings: Any) -> None:
        self.model = OfflineModel(today=lambda: TODAY)
        self.tools = tuple(tools)
        self.context: list[ContextEntry] = []
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.texts: list[str] = []
        self._handler = handler
        self._settings = ModelRequest(**settings)

    def say(self, *message: str | Image) -> str:
        """The last text of the turn; `calls` and `texts` are those of this turn."""
        self.calls, self.texts = [], []
        self.context.append(ModelInputEntry.of(*message))
        for _ in range(9):
            output = self.next_output()
            self.texts.append(text_of(output.content))
            if not output.tool_calls:
                return self.texts[-1]
            self.context.append(ToolCallResultsEntry(tuple(map(self._result, output.tool_calls))))
        raise AssertionError(f"the turn did not end: {self.calls}")

    def next_output(self) -> ModelOutputEntry:
        options = ProviderCallOptions(tools=self.tools, settings=self._settings)
        whole = legally_assembled(deltas_of(self.model, self.context, options))
        output = ModelOutputEntry(whole.output.parts)
        self.context.append(output)
        return output

    def _result(self, call: ToolCallRequest) -> ToolCallResult:
        assert call.tool_name in {tool.name for tool in self.tools}
        arguments = {"": call.arguments} if call.freeform else call.parse_arguments()
        self.calls.append((call.tool_name, arguments))
        answer = self._handler(call.tool_name, dict(arguments))
        status = ToolExecutionStatus.FAILED if isinstance(answer, Exception) else ToolExecutionStatus.SUCCESS
        return ToolCallResult.of(call, str(answer), status=status)


def legally_assembled(deltas: list[ModelOutputDelta]) -> Assembler:
    whole = assembled(deltas)
    assert isinstance(deltas[0], Started)
    assert [delta for delta in deltas if isinstance(delta, Finished)] == deltas[-1:]
    assert any(isinstance(delta, UsageReported) for delta in deltas)
    has_calls = any(isinstance(part, ToolCallRequest) for part in whole.output.parts)
    assert whole.output.stop_reason == ("tool_calls" if has_calls else "end")
    return whole


def results_of(chat: ap.Conversation) -> list[ToolCallResult]:
    entries = (entry for entry in chat.history.entries if isinstance(entry, ToolCallResultsEntry))
    return [result for entry in entries for result in entry.results]


def plan_handler(name: str, arguments: dict[str, Any]) -> Answer:
    del arguments
    return FOUND if name == "search_web" else "Created."


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("hi", "Hello! I am the guided tour of Antiphon, not a language model"),
        ("Hello!", "Send a number"),
        ("who are you?", "not a language model"),
        ("What can you do?", "Kill me in the middle of a tool"),
        ("help", "ANTHROPIC_API_KEY"),
        ("你好", "你好！我是 Antiphon 的导览，不是语言模型"),
        ("你是谁？", "不是语言模型"),
        ("你能做什么？", "在工具运行时杀掉我"),
        ("帮助", "ANTHROPIC_API_KEY"),
        ("Why is the sky blue?", "I cannot answer that"),
        ("天空为什么是蓝色的？", "这个我答不了"),
        ("", "I cannot answer that"),
    ],
)
def test_small_talk_and_other_messages_get_an_honest_answer(message: str, words: str) -> None:
    talk = Talk(PLAN_TOOLS)
    answer = talk.say(message)
    assert words in answer
    assert talk.calls == []
    is_chinese = re.search(r"[\u3400-\u9fff]", message) is not None
    assert ("语言模型" in answer) is is_chinese
    assert ("language model" in answer) is not is_chinese


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_tour_understands_what_the_page_offers(language: str) -> None:
    texts = json.loads((CHAT / "page" / "assets" / "texts" / f"{language}.json").read_bytes())
    tools = [*PLAN_TOOLS, *(tool.definition for tool in TOUR_TOOLS)]
    for number in "1234":
        numbered, worded = Talk(tools, plan_handler), Talk(tools, plan_handler)
        numbered.say(number)
        answer = worded.say(texts[f"tour_{number}"])
        assert [name for name, _ in worded.calls] == [name for name, _ in numbered.calls]
        assert "I cannot answer that" not in answer
        assert "这个我答不了" not in answer


def test_attachments_are_mentioned() -> None:
    assert "I cannot look into attachments (1)" in Talk([]).say("what is this picture", Image("image/png", "AAAA"))


@pytest.mark.parametrize(
    ("message", "query", "title", "last_day", "task"),
    [
        (
            "find IELTS tips, then make me a 3 month study plan",
            "IELTS tips",
            "IELTS tips: 3-month plan",
            "2026-04-01",
            "Read and take notes: Guide one",
        ),
        (
            "Find out what IELTS 7 needs, then make me a plan.",
            "what IELTS 7 needs",
            "What IELTS 7",
            "2026-01-29",
            "Read",
        ),
        (
            "搜索雅思备考方法，然后帮我制定一个3个月的学习计划",
            "雅思备考方法",
            "雅思备考方法：3个月计划",
            "2026-04-01",
            "阅读并做笔记",
        ),
        ("1", "IELTS tips", "IELTS tips: 4-week plan", "2026-01-29", "Read"),
    ],
)
def test_search_then_plan(message: str, query: str, title: str, last_day: str, task: str) -> None:
    talk = Talk(PLAN_TOOLS, plan_handler)
    answer = talk.say(message)
    assert [name for name, _ in talk.calls] == ["search_web", "create_plan"]
    assert talk.calls[0][1] == {"query": query}
    plan = talk.calls[1][1]
    assert plan["title"].startswith(title)
    assert [len(plan["tasks"]), plan["tasks"][-1]["due"]] == [3, last_day]
    assert plan["tasks"][0]["title"].startswith(task)
    assert plan["title"] in answer
    assert talk.texts[0].startswith(say("zh" if "搜" in message else "en", "notice"))
    assert not answer.startswith("(")  # once


def test_an_empty_search_is_an_empty_search() -> None:
    talk = Talk(PLAN_TOOLS, lambda *_: "Nothing was found.")
    answer = talk.say("find quantum fishing, then make me a plan")
    assert [name for name, _ in talk.calls] == ["search_web"]
    assert "found nothing" in answer
    assert "made no plan" in answer


def test_failures_are_reported_as_they_are() -> None:
    talk = Talk(PLAN_TOOLS, lambda *_: ValueError("quota used up"))
    assert "`search_web` failed: quota used up" in talk.say("search for x")
    assert "no tool `search_web`" in Talk([WEATHER]).say("search for x")


def test_a_plan_without_a_search_has_general_tasks() -> None:
    talk = Talk(PLAN_TOOLS, plan_handler)
    talk.say("make me a plan to learn Spanish")
    [(name, plan)] = talk.calls
    assert (name, plan["title"], len(plan["tasks"])) == ("create_plan", "Learn Spanish: 4-week plan", 4)


@pytest.mark.parametrize(
    ("message", "is_chinese"), [("搜索 IELTS，然后制定计划", True), ("find IELTS, then make a plan", False)]
)
def test_the_built_in_tools_find_documents_in_the_language_of_the_person(
    message: str, is_chinese: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TAVILY_API_KEY", raising=False)
    chat = ap.Conversation(OfflineModel(), tools=builtin_tools())
    ap.ToolLoop(chat).run_sync(message)
    results = results_of(chat)
    assert [result.tool_name for result in results] == ["search_web", "create_plan"]
    titles = [text.title for text in documents_in(results[0].result_markdown)]
    assert len(titles) >= 3
    assert {re.search(r"[\u3400-\u9fff]", title) is not None for title in titles} == {is_chinese}


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("我想找一下旅行建议，做两周的计划", PlanRequest(("旅行建议",), True, "旅行建议", 14, "两周")),
        ("please search the web for rain. Thanks", PlanRequest(("rain",), False, "Rain", 28, "4-week")),
        (
            "look up half a thing and make a 10-day plan",
            PlanRequest(("half a thing",), True, "Half a thing", 10, "10-day"),
        ),
        ("plan my trip to Rome", PlanRequest((), True, "Trip to Rome", 28, "4-week")),
        (
            "搜索雅思阅读技巧，再搜索写作提升方法，然后综合制定学习计划",
            PlanRequest(("雅思阅读技巧", "写作提升方法"), True, "雅思阅读技巧、写作提升方法", 28, "4周"),
        ),
        (
            "先列出我所有的计划，然后帮我更新第一个计划的目标为达到8分",
            PlanRequest((), lists_plans=True, change=GoalChange("达到8分")),
        ),
        (
            "First list all my plans, then set the goal of the second plan to band 6.5.",
            PlanRequest((), lists_plans=True, change=GoalChange("band 6.5", 1)),
        ),
        ("update plan-3's goal to run 10 km", PlanRequest((), change=GoalChange("run 10 km", 0, "plan-3"))),
        ("把最后一个计划的目标改为“八月前完成”", PlanRequest((), change=GoalChange("八月前完成", -1))),
        ("列出我的计划", PlanRequest((), lists_plans=True)),
        ("show me my plans", PlanRequest((), lists_plans=True)),
        ("我有哪些计划？", PlanRequest((), lists_plans=True)),
        ("search for IELTS 7, then make a plan", PlanRequest(("IELTS 7",), True, "IELTS 7", 28, "4-week", "7")),
        ("I find this boring", None),
        ("what is a plan?", None),
    ],
)
def test_requests_for_a_search_or_a_plan(message: str, expected: PlanRequest | None) -> None:
    assert read_request(message, "zh" if "计划" in message else "en") == expected


def test_pause_survives_a_kill_and_is_reported() -> None:
    talk = Talk([PAUSE], lambda *_: ValueError(UNKNOWN_OUTCOME))
    assert "another process" in talk.say("2")
    assert talk.calls == [("pause", {"seconds": 60})]
    assert re.search(r"kill -9 \d+", talk.texts[0])
    assert "still runs" in Talk([PAUSE], lambda *_: "Waited 60 seconds.").say("kill me in the middle of a tool")
    assert "antiphon chat -m offline" in Talk([]).say("2")


def test_pause_of_the_tour_really_waits_and_must_not_run_twice() -> None:
    [pause] = TOUR_TOOLS
    assert (pause.name, pause.effect) == ("pause", "once")
    chat = ap.Conversation(ap.ScriptedModel([ToolCallRequest("pause", "c1", '{"seconds": 0}')], "ok"), tools=[pause])
    ap.ToolLoop(chat).run_sync("go")
    [result] = results_of(chat)
    assert result.result_markdown == "Waited 0 seconds."


CALL_WORDS = ['"tool_calls"', '"function_call"', '"tool_use"', '"functionCall"']


def test_the_four_bodies_are_those_the_providers_would_receive() -> None:
    talk = Talk(PLAN_TOOLS, plan_handler)
    talk.say("find a, then make me a plan")
    answer = talk.say("3")
    bodies = re.findall(
        r"\*\*([\w-]+)\*\* \(\S+\): [\d,]+ bytes, rules broken: (\d+).*?```json\n(.+?)\n```", answer, re.DOTALL
    )
    assert [(name, broken) for name, broken, _ in bodies] == [
        ("openai-chat", "0"),
        ("openai-responses", "0"),
        ("anthropic", "0"),
        ("gemini", "0"),
    ]
    assert [word in body for word, (_, _, body) in zip(CALL_WORDS, bodies, strict=True)] == [True] * 4


def test_rollback_and_fork_are_done_on_a_copy() -> None:
    talk = Talk([])
    talk.say("你好")
    answer = talk.say("4")  # in the language of the last answer
    assert "- 副本：版本 3，3 条记录，模型看到 3 条" in answer
    assert "- 回滚到版本 2：版本 4，4 条记录，模型看到 2 条" in answer
    assert "- 在版本 2 分叉：一份有 2 条记录的新历史" in answer
    assert len(talk.context) == 4


NAMED: list[tuple[ToolDefinition, str, dict[str, Any]]] = [
    (WEATHER, "What is the weather in Oslo?", {"city": "Oslo"}),
    (WEATHER, "use weather city=Oslo", {"city": "Oslo"}),
    (WEATHER, 'weather {"city": "Bergen", "nonsense": 1}', {"city": "Bergen"}),
    (WEATHER, "使用 weather 奥斯陆", {"city": "奥斯陆"}),
    (ADD, "add 2 and 3.5", {"a": 2, "b": 3.5}),
    (tool("set_light", "", ["on"], on={"type": "boolean"}, level=NUMBER), "set_light on=false", {"on": False}),
    (tool("pick", "", ["to"], to={"type": "string", "enum": ["EUR", "USD"]}), "pick USD", {"to": "EUR"}),
    (tool("pick", "", ["to"], to={"type": "string", "enum": ["EUR", "USD"]}), "pick to=USD", {"to": "USD"}),
]


@pytest.mark.parametrize(("definition", "message", "arguments"), NAMED)
def test_the_tool_that_the_message_names_is_called_once(
    definition: ToolDefinition, message: str, arguments: dict[str, Any]
) -> None:
    talk = Talk([SEARCH, definition], lambda name, given: f"answer of {name}")
    answer = talk.say(message)
    assert talk.calls == [(definition.name, arguments)]
    assert f"answer of {definition.name}" in answer


def test_several_named_tools_are_called_in_order_also_if_results_have_only_ids(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Chat Completions and Messages have no name in a result."""
    of = ToolCallResult.of
    without_name = lambda call, *given, **more: of(structs.replace(call, tool_name=""), *given, **more)  # noqa: E731
    monkeypatch.setattr(ToolCallResult, "of", without_name)
    talk = Talk([ADD, WEATHER], lambda name, given: f"answer of {name}")
    answer = talk.say("weather Oslo, then add 1 2")
    assert [name for name, _ in talk.calls] == ["weather", "add"]
    assert "answer of weather" in answer
    assert "answer of add" in answer


def test_a_freeform_tool_gets_the_text() -> None:
    talk = Talk([ToolDefinition("apply_patch", "Apply a patch", freeform=True)], lambda name, given: given[""])
    talk.say("apply_patch to everything")
    assert talk.calls == [("apply_patch", {"": "apply_patch to everything"})]


@pytest.mark.parametrize(
    ("choice", "calls"),
    [
        (ToolChoice("none"), []),
        (ToolChoice("tool", ("add",)), ["add"]),
        (ToolChoice("allowed", ("add",)), []),
        (ToolChoice("allowed", ("add",), must_call=True), ["add"]),
        (ToolChoice("required"), ["weather"]),
    ],
)
def test_the_tool_that_a_request_forces_is_called(choice: ToolChoice, calls: list[str]) -> None:
    talk = Talk([WEATHER, ADD], lambda name, arguments: f"{name} is done", tool_choice=choice)
    answer = talk.say("hi")
    assert [name for name, _ in talk.calls] == calls
    assert all(f"{name} is done" in answer for name in calls)


SCHEMAS: list[dict[str, Any]] = [
    {"type": "object", "properties": {"n": {"type": "integer", "minimum": 7}}, "required": ["n"]},
    {"type": "object", "properties": {"n": {"type": "number", "exclusiveMaximum": -3}}, "required": ["n"]},
    {"type": "array", "items": {"type": "string", "maxLength": 3}, "minItems": 2},
    {"type": "string", "pattern": "^[a-z]+-[0-9]+$"},
    {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/Point"}], "$defs": {"Point": {"type": "object", "required": ["x"]}}},
    {
        "type": "object",
        "properties": {"child": {"$ref": "#"}, "kind": {"const": "leaf"}, "day": {"type": "string", "format": "date"}},
        "required": ["kind", "day"],
        "additionalProperties": False,
    },
    {"allOf": [{"type": "object", "required": ["a"]}, {"properties": {"a": {"enum": [3]}}}]},
    {"type": ["null", "integer"], "multipleOf": 5},
]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_arguments_and_json_answers_fit_the_schema(schema: dict[str, Any]) -> None:
    value = fitting_value(schema, Words("what is 1 and some words?"))
    assert CompiledSchema(schema).is_valid(value)
    talk = Talk([], output_format=OutputFormat("json_schema", schema))
    assert CompiledSchema(schema).is_valid(json.loads(talk.say("what is 1?")))


def test_a_json_object_is_given_where_it_is_demanded() -> None:
    assert json.loads(Talk([], output_format=OutputFormat("json_object")).say("hi there")) == {"text": "hi there"}
    talk = Talk([WEATHER], output_format=OutputFormat("json_object"))
    assert json.loads(talk.say("weather in Oslo")) == {"text": "weather in Oslo"}
    assert [name for name, _ in talk.calls] == ["weather"]


def test_a_limit_of_tokens_cuts_the_text_and_is_reported() -> None:
    context = [ModelInputEntry.of("Tell me a story.")]
    whole, cut = (
        assembled(
            deltas_of(OfflineModel(), context, ProviderCallOptions(settings=ModelRequest(max_output_tokens=limit)))
        )
        for limit in (None, 16)
    )
    assert whole.output.stop_reason == "end"
    assert cut.output.stop_reason == "length"
    text, start = text_of(whole.output.parts), text_of(cut.output.parts)
    assert text.startswith(start)
    assert 0 < len(start) < len(text)
    assert cut.output.usage is not None
    assert cut.output.usage.completion_tokens == 16


def test_the_notice_is_shown_after_an_answer_of_another_model() -> None:
    talk = Talk([WEATHER])
    talk.context += [ModelInputEntry.of("Hi."), ModelOutputEntry.of("Hello!")]
    talk.say("weather Oslo")
    assert talk.texts[0].startswith(say("en", "notice"))


def test_ids_differ_and_the_same_context_gives_the_same_answer() -> None:
    talk = Talk(PLAN_TOOLS, plan_handler)
    talk.say("find a, then make a plan")
    ids = [call.tool_call_id for entry in talk.context for call in entry.tool_calls]
    assert len(set(ids)) == len(ids) == 2
    options = ProviderCallOptions(model="plain", tools=PLAN_TOOLS)
    once, again = (deltas_of(talk.model, talk.context[:1], options) for _ in range(2))
    assert once == again
    assert options.report.origin == Origin("offline", "", "plain")


def test_text_comes_in_chunks_with_a_pause_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    model = OfflineModel(pace=0.001, chunk_size=4)
    deltas = deltas_of(model, [ModelInputEntry.of("hello")], ProviderCallOptions())
    chunks = sum(isinstance(delta, PartDelta) for delta in deltas)
    assert chunks > 10
    assert pauses == [0.001] * chunks


names = st.sampled_from(["search_web", "create_plan", "list_plans", "pause", "weather", "add"])
schemas = st.one_of(
    st.none(),
    st.sampled_from([definition.parameters for definition in (*PLAN_TOOLS, WEATHER, ADD)]),
    st.sampled_from(SCHEMAS),
    st.dictionaries(
        st.sampled_from(["type", "properties", "required", "$defs", "anyOf", "$ref"]), json_values, max_size=3
    ),
)
tool_sets = st.lists(
    st.builds(ToolDefinition, names | st.text("abc_", min_size=1, max_size=8), any_text | st.none(), schemas),
    max_size=4,
    unique_by=lambda definition: definition.name,
)
messages = st.sampled_from(["1", "2", "3", "4", "hi", "find a, then make a plan", "use weather", "list_plans add 1"])


@given(
    st.lists(messages | any_text, min_size=1, max_size=2),
    tool_sets,
    st.lists(st.tuples(st.booleans(), any_text | st.just(FOUND)), min_size=1),
)
@example(
    ["list_plans add 1"],
    [ToolDefinition("list_plans", None, {"type": "array", "items": {"type": "string"}, "minItems": 2})],
    [(True, "words")],
)
def test_any_message_gives_a_legal_turn_that_ends(
    sent: list[str], tools: list[ToolDefinition], results: list[tuple[bool, str]]
) -> None:
    count = 0

    def handler(name: str, arguments: dict[str, Any]) -> Answer:
        nonlocal count
        count += 1
        is_good, text = results[count % len(results)]
        return text if is_good else ValueError(text)

    talk = Talk(tools, handler)
    for message in sent:
        talk.say(message)
        assert len(talk.calls) <= 8
