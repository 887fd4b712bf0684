"""The offline model: real rounds in two languages, honest words, and an end to every turn."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.chat.offline import OfflineModel
from antiphon.chat.offline.arguments import filled
from antiphon.chat.offline.clauses import clauses_of, date_in, duration_in, ordinal_in
from antiphon.chat.offline.offered import offer_of
from antiphon.chat.offline.results import points_in, records_in
from antiphon.chat.offline.wording import NOTICE
from antiphon.history import ContextEntry, ModelInputEntry, ModelOutputEntry, Origin, ToolCallResultsEntry
from antiphon.parts import Image, Text, ToolCallRequest, ToolCallResult, ToolExecutionStatus, text_of
from antiphon.providers.call import ProviderCallOptions
from antiphon.tools import ToolExecutor, ToolRegistry
from antiphon.tools.builtin import builtin_tools
from antiphon.wire.delta import Assembler, Finished, ModelOutputDelta, PartDelta, Started, UsageReported
from antiphon.wire.request import ModelRequest, ToolChoice, ToolDefinition
from providers.model_calls import assembled, deltas_of
from support.history_strategies import any_text, json_values

TODAY = date(2026, 1, 1)  # a Thursday
TEXT: dict[str, Any] = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "number"}
TASK = {
    "type": "object",
    "properties": {
        "title": TEXT,
        "notes": TEXT,
        "due": {"type": "string", "format": "date"},
        "done": {"type": "boolean"},
    },
    "required": ["title"],
}
STATUS = {"type": "string", "enum": ["active", "done", "archived"]}


def tool(
    name: str, description: str = "", required: Sequence[str] = (), **properties: dict[str, Any]
) -> ToolDefinition:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return ToolDefinition(name, description, schema)


SEARCH = tool("search_web", "Search the web", ["query"], query=TEXT, max_results={"type": "integer", "default": 5})
CREATE = tool("create_plan", "Make a plan", ["title"], title=TEXT, goal=TEXT, tasks={"type": "array", "items": TASK})
LIST = tool("list_plans", "List all plans")
GET = tool("get_plan", "Show a plan", ["plan_id"], plan_id=TEXT)
UPDATE = tool(
    "update_plan",
    "Change a plan",
    ["plan_id"],
    plan_id=TEXT,
    title=TEXT,
    goal=TEXT,
    status=STATUS,
    tasks={"type": "array", "items": TASK},
)
DELETE = tool("delete_plan", "Delete a plan", ["plan_id"], plan_id=TEXT)
PLAN_TOOLS = (SEARCH, CREATE, LIST, GET, UPDATE, DELETE)
WEATHER = tool("weather", "Current weather in a city", ["city"], city={**TEXT, "description": "The city"})
ADD = tool("add", "Add two numbers", ["a", "b"], a=NUMBER, b=NUMBER)

Answer = str | Exception
Handler = Callable[[str, dict[str, Any]], Answer]


class Plans:
    """Stand-ins for the plan tools and the search, which remember what was done to them."""

    def __init__(self) -> None:
        tasks = [{"title": "Read", "done": True}, {"title": "Write", "done": False}]
        self.plans: dict[str, dict[str, Any]] = {
            "p-1": {"id": "p-1", "title": "IELTS", "goal": "7", "tasks": tasks},
            "p-2": {"id": "p-2", "title": "Run", "goal": "10 km", "tasks": []},
        }

    def __call__(self, name: str, arguments: dict[str, Any]) -> Answer:
        match name:
            case "search_web":
                query = arguments["query"]
                return f"1. **Guide to {query}**\n   Source: https://a.example/{len(query)}\n2. [More {query}](https://b.example/)"
            case "create_plan":
                self.plans["p-3"] = {"id": "p-3", **arguments}
                return 'Created.\n\n```json\n{"plan": {"id": "p-3", "title": "x"}}\n```'
            case "list_plans":
                return json.dumps({"plans": list(self.plans.values())})
            case "delete_plan":
                return f"Deleted {self.plans.pop(arguments['plan_id'])['title']}"
            case "update_plan":
                self.plans[arguments.pop("plan_id")].update(arguments)
                return "Changed."
        return json.dumps(self.plans[arguments["plan_id"]])


class Talk:
    """A conversation with the offline model, driven by the smallest of loops."""

    def __init__(self, tools: Sequence[ToolDefinition], handler: Handler, *, choice: ToolChoice | None = None) -> None:
        self.model = OfflineModel(today=lambda: TODAY)
        self.tools = tuple(tools)
        self.context: list[ContextEntry] = []
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.texts: list[str] = []
        self._handler = handler
        self._settings = ModelRequest(tool_choice=choice)

    def say(self, *message: str | Image) -> str:
        """The last words of the turn; `calls` and `texts` are those of this turn."""
        self.calls, self.texts = [], []
        self.context.append(ModelInputEntry.of(*message))
        for _ in range(9):
            output = self._asked()
            self.texts.append(text_of(output.content))
            if not output.tool_calls:
                return self.texts[-1]
            self.context.append(ToolCallResultsEntry(tuple(map(self._result, output.tool_calls))))
        raise AssertionError(f"the turn did not end: {self.calls}")

    def _asked(self) -> ModelOutputEntry:
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


SEARCH_AND_PLAN = [
    (
        "find IELTS preparation methods, then make me a 3 month study plan",
        "IELTS preparation methods",
        "3-month study plan",
    ),
    ("Please search for IELTS band 7 and then create a 3-month plan.", "IELTS band 7", "3-month plan"),
    ("搜索 IELTS 备考方法，然后帮我制定一个3个月的学习计划", "IELTS 备考方法", "3个月学习计划"),
    ("帮我查一下雅思备考方法，再做一个三个月的计划", "雅思备考方法", "三个月计划"),
]


@pytest.mark.parametrize(("message", "query", "kind"), SEARCH_AND_PLAN)
def test_search_then_plan(message: str, query: str, kind: str) -> None:
    plans = Plans()
    talk = Talk(PLAN_TOOLS, plans)
    answer = talk.say(message)
    assert [name for name, _ in talk.calls] == ["search_web", "create_plan"]
    assert talk.calls[0][1] == {"query": query}
    plan = talk.calls[1][1]
    assert query in plan["title"]
    assert kind in plan["title"]
    titles = [task["title"] for task in plan["tasks"]]
    assert f"Guide to {query}" in titles
    assert 3 <= len(titles) <= 7
    dates = [task["due"] for task in plan["tasks"]]
    assert dates == sorted(dates)
    assert dates[-1] == "2026-04-01"  # ninety days on
    assert any("a.example" in task["notes"] for task in plan["tasks"])
    for expected in (query, plan["title"], "p-3", titles[0], dates[-1]):
        assert expected in answer


@pytest.mark.parametrize(
    ("message", "queries"),
    [
        ("搜索雅思阅读技巧，再搜索写作提升方法，然后综合制定学习计划", ["雅思阅读技巧", "写作提升方法"]),
        ("search for reading tips and search for writing tips, then make a plan", ["reading tips", "writing tips"]),
    ],
)
def test_several_searches_before_a_plan(message: str, queries: list[str]) -> None:
    talk = Talk(PLAN_TOOLS, Plans())
    talk.say(message)
    assert [name for name, _ in talk.calls] == ["search_web", "search_web", "create_plan"]
    assert [arguments["query"] for _, arguments in talk.calls[:2]] == queries
    titles = {task["title"] for task in talk.calls[2][1]["tasks"]}
    assert {f"Guide to {query}" for query in queries} <= titles


CHANGES: list[tuple[str, list[str], dict[str, Any], str]] = [
    ("List my plans, then change the first one's goal to 8", ["list_plans", "update_plan"], {"goal": "8"}, "p-1"),
    (
        "先列出我所有的计划，然后帮我更新第一个计划的目标为达到8分",
        ["list_plans", "update_plan"],
        {"goal": "达到8分"},
        "p-1",
    ),
    ("把第二个计划的目标改为半程马拉松", ["list_plans", "update_plan"], {"goal": "半程马拉松"}, "p-2"),
    ("rename the plan Run to Jog", ["list_plans", "update_plan"], {"title": "Jog"}, "p-2"),
    ("set the status of the last plan to done", ["list_plans", "update_plan"], {"status": "done"}, "p-2"),
    ("归档第一个计划", ["list_plans", "update_plan"], {"status": "archived"}, "p-1"),
    ("delete the second plan", ["list_plans", "delete_plan"], {}, "p-2"),
    ("删除计划“IELTS”", ["list_plans", "delete_plan"], {}, "p-1"),
    ("delete plan p-2", ["list_plans", "delete_plan"], {}, "p-2"),
    ("show me the plan IELTS", ["list_plans", "get_plan"], {}, "p-1"),
    ("打开第一个计划", ["list_plans", "get_plan"], {}, "p-1"),
    (
        "mark task 2 of the first plan done",
        ["list_plans", "update_plan"],
        {"tasks": [{"title": "Read", "done": True}, {"title": "Write", "done": True}]},
        "p-1",
    ),
    (
        "把第一个计划的第2个任务标记为完成",
        ["list_plans", "update_plan"],
        {"tasks": [{"title": "Read", "done": True}, {"title": "Write", "done": True}]},
        "p-1",
    ),
]


@pytest.mark.parametrize(("message", "names", "arguments", "plan"), CHANGES)
def test_a_plan_is_found_before_it_is_touched(
    message: str, names: list[str], arguments: dict[str, Any], plan: str
) -> None:
    talk = Talk(PLAN_TOOLS, Plans())
    answer = talk.say(message)
    assert [name for name, _ in talk.calls] == names
    assert talk.calls[-1][1] == {"plan_id": plan, **arguments}
    assert ("IELTS" if plan == "p-1" else "Run") in answer


def test_the_built_in_tools_are_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAVILY_API_KEY", raising=False)
    registry = ToolRegistry(builtin_tools(tmp_path))
    executor = ToolExecutor(registry)

    def run(name: str, arguments: dict[str, Any]) -> Answer:
        call = ToolCallRequest(name, f"c{len(talk.calls)}", json.dumps(arguments))
        [result] = asyncio.run(executor.execute([call], conversation_id=str(len(talk.context))))
        is_good = result.status is ToolExecutionStatus.SUCCESS
        return result.result_markdown if is_good else ValueError(result.result_markdown)

    talk = Talk(registry.definitions, run)
    talk.say("搜索 IELTS 备考方法，然后帮我制定一个3个月的学习计划")
    assert [name for name, _ in talk.calls] == ["search_web", "create_plan"]
    assert all(task["due"] for task in talk.calls[1][1]["tasks"])
    assert "达到8分" in talk.say("先列出我所有的计划，然后帮我更新第一个计划的目标为达到8分")
    talk.say("mark task 2 done")
    listed = talk.say("list my plans")
    assert "达到8分" in listed
    assert "tasks done: 1 of" in listed
    talk.say("delete the first plan")
    assert "no plans" in talk.say("list my plans")


def test_a_single_task_is_ticked_by_its_id_where_the_tool_can() -> None:
    change = {"type": "object", "properties": {"id": TEXT, "done": {"type": "boolean"}}}
    updates = {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/Change"}}, {"type": "null"}]}
    schema = {
        "type": "object",
        "properties": {"plan_id": TEXT, "tasks": {"type": "array", "items": TASK}, "task_updates": updates},
        "required": ["plan_id"],
        "$defs": {"Change": change},
    }
    plan = {"id": "p-1", "title": "One", "tasks": [{"id": "t1", "title": "Read"}, {"id": "t2", "title": "Write"}]}
    talk = Talk([LIST, ToolDefinition("update_plan", "", schema)], lambda name, arguments: json.dumps([plan]))
    talk.say("mark task 2 done")
    assert talk.calls[-1] == ("update_plan", {"plan_id": "p-1", "task_updates": [{"id": "t2", "done": True}]})


@pytest.mark.parametrize(
    "message", ["delete the plan", "删除计划", "delete the fifth plan", "mark task 9 of plan 1 done"]
)
def test_an_ambiguous_request_changes_no_plan(message: str) -> None:
    talk = Talk(PLAN_TOOLS, Plans())
    answer = talk.say(message)
    assert [name for name, _ in talk.calls] == ["list_plans"]
    assert "IELTS" in answer


def test_plans_are_listed_with_how_far_they_are() -> None:
    answer = Talk(PLAN_TOOLS, Plans()).say("list my plans")
    assert "1. IELTS — 7 — tasks done: 1 of 2" in answer
    assert "2. Run — 10 km" in answer
    assert "no plans" in Talk([LIST], lambda name, arguments: '{"plans": []}').say("list my plans")


GENERIC: list[tuple[ToolDefinition, str, dict[str, Any]]] = [
    (WEATHER, "What is the weather in Oslo?", {"city": "Oslo"}),
    (WEATHER, "What's the weather like in New York today?", {"city": "New York"}),
    (WEATHER, "奥斯陆的天气怎么样？", {"city": "奥斯陆"}),
    (WEATHER, "use weather city=Oslo", {"city": "Oslo"}),
    (WEATHER, 'weather {"city": "Bergen", "nonsense": 1}', {"city": "Bergen"}),
    (ADD, "add 2 and 3.5", {"a": 2, "b": 3.5}),
    (
        tool("convert_currency", "", ["amount", "to"], amount=NUMBER, to={"type": "string", "enum": ["EUR", "USD"]}),
        "convert 20 to usd, the currency",
        {"amount": 20, "to": "USD"},
    ),
    (
        tool("set_reminder", "Remind me", ["text", "date"], text=TEXT, date={"type": "string", "format": "date"}),
        'set a reminder for tomorrow: "call mum"',
        {"text": "call mum", "date": "2026-01-02"},
    ),
    (tool("calculator", "", ["expression"], expression=TEXT), "calculator: 3 * (4 + 5)", {"expression": "3 * (4 + 5)"}),
    (tool("send_email", "", ["to"], to=TEXT), "send an email to ann@example.org", {"to": "ann@example.org"}),
    (tool("read_file", "", ["path"], path=TEXT), "read the file notes/today.md", {"path": "notes/today.md"}),
    (
        tool("translate", "", ["text", "language"], text=TEXT, language=TEXT),
        'translate "good morning" into French',
        {"text": "good morning", "language": "French"},
    ),
    (tool("switch_light", "", ["on"], on={"type": "boolean"}), "switch the light on", {"on": True}),
    (tool("current_time", "Tells the time"), "现在几点", {}),
]


@pytest.mark.parametrize(("definition", "message", "arguments"), GENERIC)
def test_any_tool_is_called_with_arguments_from_the_message(
    definition: ToolDefinition, message: str, arguments: dict[str, Any]
) -> None:
    talk = Talk([SEARCH, definition], lambda name, given: f"answer of {name}")
    answer = talk.say(message)
    assert talk.calls == [(definition.name, arguments)]
    assert f"answer of {definition.name}" in answer


def test_what_is_missing_is_asked_for_and_the_answer_is_used() -> None:
    talk = Talk([WEATHER], lambda name, arguments: f"Rain in {arguments['city']}.")
    assert "`city` (The city)" in talk.say("weather")
    assert talk.calls == []
    assert "Rain in Bergen." in talk.say("Bergen")
    assert "`city`" in talk.say("天气")
    assert "Rain in 卑尔根." in talk.say("卑尔根")


def test_a_freeform_tool_gets_the_text() -> None:
    patch = ToolDefinition("apply_patch", "Apply a patch", freeform=True)
    talk = Talk([patch], lambda name, arguments: arguments[""])
    talk.say("apply_patch to everything")
    assert talk.calls == [("apply_patch", {"": "apply_patch to everything"})]


@pytest.mark.parametrize("message", ["hello", "你好", "", "just some words that ask for nothing"])
def test_without_a_tool_for_it_the_answer_is_honest(message: str) -> None:
    talk = Talk([SEARCH, CREATE], Plans())
    answer = talk.say(message)
    assert talk.calls == []
    assert "search_web, create_plan" in answer
    bare = Talk([], Plans()).say(message, Image("image/png", "AAAA"))
    assert message in bare
    assert ("no tools" if message != "你好" else "没有工具") in bare
    assert "1" in bare


def test_a_request_without_a_matching_tool_is_reported() -> None:
    talk = Talk([WEATHER], Plans())
    assert "no tool on offer for: delete the first plan" in talk.say("delete the first plan")
    assert talk.calls == []


@pytest.mark.parametrize(("message", "language"), [("weather in Oslo", "en"), ("列出我的计划", "zh")])
def test_the_notice_is_shown_on_the_first_line_only(message: str, language: str) -> None:
    talk = Talk([*PLAN_TOOLS, WEATHER], lambda name, arguments: "[]")
    talk.say(message)
    assert talk.texts[0].splitlines()[0] == NOTICE[language]  # type: ignore[index]
    talk.say(message)
    assert not any(notice in text for text in talk.texts for notice in NOTICE.values())


def test_the_notice_is_shown_after_an_answer_of_another_model() -> None:
    talk = Talk([], Plans())
    talk.context += [ModelInputEntry.of("Hi."), ModelOutputEntry.of("Hello!")]
    assert talk.say("hello").startswith(NOTICE["en"])


ERRORS: list[tuple[str, dict[str, Any], dict[str, Any] | None]] = [
    ("temporarily unavailable, try again", {"city": "Oslo"}, {"city": "Oslo"}),
    ("missing argument `units`", {"city": "Oslo"}, {"city": "Oslo", "units": "celsius"}),
    ("no such city", {"city": "Oslo"}, None),
]


@pytest.mark.parametrize(("error", "first", "second"), ERRORS)
def test_an_error_is_read_and_the_call_corrected_once(
    error: str, first: dict[str, Any], second: dict[str, Any] | None
) -> None:
    units = {"type": "string", "enum": ["celsius", "fahrenheit"]}
    weather = tool("weather", "", ["city"], city=TEXT, units=units)
    stubborn = Talk([weather], lambda name, arguments: ValueError(error))
    answer = stubborn.say("What is the weather in Oslo?")
    assert [arguments for _, arguments in stubborn.calls] == [first, second] if second else [first]
    assert error in answer
    if second:
        answers: list[Answer] = [ValueError(error), "Rain."]
        corrected = Talk([weather], lambda name, arguments: answers.pop(0))
        assert "Rain." in corrected.say("What is the weather in Oslo?")
        assert error in corrected.texts[1]


def test_a_wrong_type_and_an_unknown_argument_are_corrected() -> None:
    answers: list[Answer] = [ValueError("`count`: expected an integer; `nonsense` is not known"), "Done."]
    talk = Talk([tool("roll_dice", "", ["count"], count={"type": "integer", "maximum": 10})], lambda *_: answers.pop(0))
    talk.context += [
        ModelInputEntry.of("roll_dice"),
        ModelOutputEntry.of(ToolCallRequest("roll_dice", "c1", '{"count": "7", "nonsense": 1}')),
        ToolCallResultsEntry(
            (ToolCallResult("roll_dice", "c1", ToolExecutionStatus.FAILED, (Text(str(answers[0])),)),)
        ),
    ]
    output = talk._asked()
    assert [call.parse_arguments() for call in output.tool_calls] == [{"count": 7}]


def test_a_failed_search_is_reported_and_the_plan_is_still_made() -> None:
    plans = Plans()
    talk = Talk(
        PLAN_TOOLS,
        lambda name, arguments: ValueError("quota used up") if name == "search_web" else plans(name, arguments),
    )
    answer = talk.say("find running tips, then make a 2 week plan")
    assert [name for name, _ in talk.calls] == ["search_web", "create_plan"]
    assert "quota used up" in answer
    assert talk.calls[1][1]["tasks"][-1]["due"] == "2026-01-15"


def test_a_deletion_is_never_aimed_at_something_else() -> None:
    plans = Plans()
    talk = Talk(
        PLAN_TOOLS,
        lambda name, arguments: (
            ValueError("no plan_id 'p-2'; did you mean 'p-1'?") if name == "delete_plan" else plans(name, arguments)
        ),
    )
    talk.say("delete the second plan")
    assert [arguments for name, arguments in talk.calls if name == "delete_plan"] == [{"plan_id": "p-2"}]


def test_without_tools_it_answers_with_the_results_so_far() -> None:
    talk = Talk(PLAN_TOOLS, Plans())
    talk.say("find running tips")
    del talk.context[-1]
    talk.tools = ()
    assert "Guide to running tips" in text_of(talk._asked().content)


@pytest.mark.parametrize(
    ("choice", "calls"),
    [
        (ToolChoice("none"), []),
        (ToolChoice("tool", ("add",)), ["add"]),
        (ToolChoice("allowed", ("add",)), []),
        (ToolChoice("required"), ["weather"]),
    ],
)
def test_the_choice_of_tools_is_kept(choice: ToolChoice, calls: list[str]) -> None:
    talk = Talk([WEATHER, ADD], lambda name, arguments: "done", choice=choice)
    talk.say("What is the weather in Oslo, 1 or 2?")
    assert [name for name, _ in talk.calls] == calls


def test_ids_differ_and_the_same_context_gives_the_same_answer() -> None:
    talk = Talk(PLAN_TOOLS, Plans())
    talk.say("find a, find b, find c")
    ids = [call.tool_call_id for entry in talk.context for call in entry.tool_calls]
    assert len(set(ids)) == len(ids) == 3
    options = ProviderCallOptions(model="plain", tools=PLAN_TOOLS)
    once, again = (deltas_of(talk.model, talk.context[:1], options) for _ in range(2))
    assert once == again
    assert options.report.origin == Origin("offline", "", "plain")


def test_a_message_of_many_wishes_has_four_of_them_done() -> None:
    talk = Talk(PLAN_TOOLS, Plans())
    assert "say again: find e; find f" in talk.say("find a, find b, find c, find d, find e, find f")
    assert [arguments["query"] for _, arguments in talk.calls] == ["a", "b", "c", "d"]


def test_text_comes_in_pieces_at_the_pace_that_was_set() -> None:
    model = OfflineModel(pace=0.001, chunk_size=4)
    began = perf_counter()
    deltas = deltas_of(model, [ModelInputEntry.of("hello")], ProviderCallOptions())
    pieces = sum(isinstance(delta, PartDelta) for delta in deltas)
    assert pieces > 10
    assert perf_counter() - began >= 0.001 * pieces


READ: list[tuple[str, list[tuple[str, str]]]] = [
    ("find out how to delete a plan", [("search", "find out how to delete a plan")]),
    ('search for "this, then that"', [("search", 'search for "this, then that"')]),
    ("find good shoes, under 100 euros", [("search", "find good shoes, under 100 euros")]),
    ("plan my trip to Rome", [("create", "plan my trip to Rome")]),
    ("我想要一个计划", [("", "一个计划")]),
]


@pytest.mark.parametrize(("message", "clauses"), READ)
def test_messages_are_read_into_wishes(message: str, clauses: list[tuple[str, str]]) -> None:
    assert [(clause.intent, clause.text) for clause in clauses_of(message)] == clauses


@pytest.mark.parametrize(
    ("text", "days", "noun"),
    [
        ("in 3 months", 90, "3 months"),
        ("a 3-month plan", 90, "3 months"),
        ("a week", 7, "1 week"),
        ("two weeks", 14, "2 weeks"),
        ("half a year", 182, "0.5 years"),
        ("3个月", 90, "3个月"),
        ("两周", 14, "两周"),
        ("十二天", 12, "十二天"),
        ("半年", 182, "半年"),
    ],
)
def test_lengths_of_time(text: str, days: int, noun: str) -> None:
    duration = duration_in(text)
    assert duration is not None
    assert (duration.days, duration.noun) == (days, noun)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("the first one", 1),
        ("the 3rd", 3),
        ("the last", -1),
        ("第二个", 2),
        ("最后一个", -1),
        ("task 4", 4),
        ("none", None),
    ],
)
def test_places(text: str, place: int | None) -> None:
    assert ordinal_in(text) == place


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("on 2026-03-04", date(2026, 3, 4)),
        ("2026年3月4日", date(2026, 3, 4)),
        ("tomorrow", date(2026, 1, 2)),
        ("后天", date(2026, 1, 3)),
        ("next Monday", date(2026, 1, 5)),
        ("on Thursday", date(2026, 1, 8)),
        ("2026-13-45", None),
        ("some day", None),
    ],
)
def test_dates(text: str, day: date | None) -> None:
    assert date_in(text, TODAY) == day


@pytest.mark.parametrize(
    ("text", "points"),
    [
        ('{"results": [{"title": "One", "url": "https://a/"}]}', [("One", "https://a/")]),
        (
            "## One\n- [Two](https://b/)\n3. Three https://c/",
            [("One", ""), ("Two", "https://b/"), ("Three", "https://c/")],
        ),
        ("1. **One**\n   Source: guide.md\n   words", [("One", "guide.md")]),
        ("A sentence that says something. Short.", [("A sentence that says something", "")]),
        ("", []),
    ],
)
def test_what_a_search_found(text: str, points: list[tuple[str, str]]) -> None:
    assert [(point.title, point.source) for point in points_in(text)] == points


@pytest.mark.parametrize(
    ("text", "records"),
    [
        ('[{"id": 7, "name": "Seven"}]', [("7", "Seven")]),
        ('Here:\n```json\n{"plans": [{"id": "a", "title": "A"}, {"id": "a"}]}\n```', [("a", "A")]),
        ("1. **Spanish** (id: sp-1)\n2. Running `run-2`", [("sp-1", "Spanish"), ("run-2", "Running")]),
        ("nothing", []),
    ],
)
def test_records_are_found_in_json_and_in_text(text: str, records: list[tuple[str, str]]) -> None:
    assert [(record.id, record.title) for record in records_in(text)] == records


wishes = st.sampled_from(
    [
        "find {}, ",
        "then make a plan, ",
        "list my plans. ",
        "delete plan {} ",
        "mark task 2 done; ",
        "搜索{}，",
        "然后制定计划",
        "删除第二个计划。",
        "更新第一个计划的目标为{}",
        "weather in {}?",
        "add 1 2",
        "“{}",
        "{}",
    ]
)
messages = st.lists(st.builds(lambda wish, word: wish.replace("{}", word), wishes, any_text), max_size=4).map("".join)
names = st.sampled_from(
    ["search_web", "create_plan", "list_plans", "update_plan", "delete_plan", "get_plan", "weather", "add"]
)
schemas = st.one_of(
    st.none(),
    st.sampled_from([definition.parameters for definition in (*PLAN_TOOLS, WEATHER, ADD)]),
    st.dictionaries(st.sampled_from(["type", "properties", "required", "$defs", "anyOf"]), json_values, max_size=3),
    st.builds(
        lambda properties, required: {"properties": properties, "required": required},
        st.dictionaries(
            st.sampled_from(["query", "city", "date", "id", "tasks", "n"]),
            json_values
            | st.sampled_from([TEXT, NUMBER, STATUS, {"type": "array"}, {"$ref": "#"}, {"type": ["null", "integer"]}]),
        ),
        st.lists(st.sampled_from(["query", "city", "date", "id", "tasks", "n", "gone"])) | json_values,
    ),
)
tool_sets = st.lists(
    st.builds(ToolDefinition, names | st.text("abc_", min_size=1, max_size=8), any_text | st.none(), schemas),
    max_size=4,
    unique_by=lambda definition: definition.name,
)
answers = (
    any_text
    | json_values.map(json.dumps)
    | st.sampled_from(["[]", '{"plans": [{"id": "1", "tasks": [1, {}]}]}', "1. a\n2. b"])
)


@given(
    st.lists(messages | any_text, min_size=1, max_size=2),
    tool_sets,
    st.lists(st.tuples(st.booleans(), answers), min_size=1),
)
def test_any_message_gives_a_legal_turn_that_ends(
    said_so_far: list[str], tools: list[ToolDefinition], results: list[tuple[bool, str]]
) -> None:
    asked = 0

    def handler(name: str, arguments: dict[str, Any]) -> Answer:
        nonlocal asked
        asked += 1
        is_good, text = results[asked % len(results)]
        return text if is_good else ValueError(text)

    talk = Talk(tools, handler)
    for message in said_so_far:
        talk.say(message)
        assert len(talk.calls) <= 8


@given(any_text, tool_sets)
def test_filling_gives_each_required_argument_or_names_it(text: str, tools: list[ToolDefinition]) -> None:
    for definition in tools:
        offer = offer_of(definition)
        result = filled(offer, text, TODAY)
        assert set(offer.required) <= set(result.arguments) | set(result.missing)
        assert set(result.arguments) <= set(offer.properties)
