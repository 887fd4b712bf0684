"""`run(…, output=T)`: the answer as a checked value, by structured output or by a tool, requested again if it does not fit."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import Any, Literal, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

import antiphon as ap
from antiphon.conversation.events import LoopFinished, PartialOutput
from antiphon.conversation.output import partial_json
from antiphon.conversation.output.partial_json import PartialJson
from antiphon.conversation.output.typed_output import ANSWER_TOOL, OutputType
from antiphon.errors import ConversationError, InvalidOutput
from antiphon.history import ModelInputEntry
from antiphon.json_text import read_json
from antiphon.providers.http_provider import HttpProviderClient
from antiphon.providers.router import ProviderRouter
from antiphon.providers.scripted import ScriptedModel, call
from support.planned_turns import refusals


class Weather(msgspec.Struct):
    city: str
    degrees: int
    tags: list[str] = []


@dataclasses.dataclass
class Point:
    x: int
    y: int


class Movie(TypedDict):
    title: str
    year: int


class Person(pydantic.BaseModel):
    name: str
    age: int = pydantic.Field(ge=0)


CASES: list[tuple[Any, Any, Any]] = [
    (Weather, {"city": "Oslo", "degrees": 7}, Weather("Oslo", 7)),
    (Point, {"x": 1, "y": 2}, Point(1, 2)),
    (Movie, {"title": "Alien", "year": 1979}, {"title": "Alien", "year": 1979}),
    (Person, {"name": "Ada", "age": 36}, Person(name="Ada", age=36)),
    (Literal["yes", "no"], "yes", "yes"),
    (list[Point], [{"x": 1, "y": 2}], [Point(1, 2)]),
    (int | str, 5, 5),
    (bool, False, False),
    (Weather | None, None, None),
    (dict[str, int], {"a": 1}, {"a": 1}),
]


class StructuredModel(ScriptedModel):
    """A scripted model that has structured output."""

    def has_structured_output(self, model: str, *, with_tools: bool) -> bool:
        return True


@pytest.mark.parametrize(("output", "value", "wanted"), CASES, ids=lambda case: str(case)[:30])
def test_a_tool_call_gives_the_value_and_ends_the_turn(output: Any, value: Any, wanted: Any) -> None:
    chat = ap.Conversation(model := ScriptedModel(call(ANSWER_TOOL, answer=value)))
    result = ap.ToolLoop(chat).run_sync("Go.", output=output)
    assert (result.output, result.reason, result.rounds) == (wanted, "answered", 1)
    assert type(result.output) is type(wanted)
    (offered,) = model.calls[0].options.tools
    assert offered.name == ANSWER_TOOL
    assert refusals(chat.history.snapshot()) == []


@pytest.mark.parametrize(("output", "value", "wanted"), CASES, ids=lambda case: str(case)[:30])
def test_structured_output_gives_the_value(output: Any, value: Any, wanted: Any) -> None:
    wrapped = {"answer": value} if OutputType[Any](output).is_wrapped else value
    model = StructuredModel(json.dumps(wrapped))
    result = ap.ToolLoop(ap.Conversation(model)).run_sync("Go.", output=output)
    assert (result.output, result.reason) == (wanted, "answered")
    options = model.calls[0].options
    assert not options.tools
    assert options.settings.output_format is not None
    assert options.settings.output_format.kind == "json_schema"


@pytest.mark.parametrize("model_type", [ScriptedModel, StructuredModel])
def test_the_type_str_is_any_text(model_type: type[ScriptedModel]) -> None:
    model = model_type("It rains.", "It pours.")
    result = ap.ToolLoop(ap.Conversation(model)).run_sync("Go.", output=str)
    assert (result.output, result.rounds) == ("It rains.", 1)
    assert ap.Agent("guide", model=model, output=str).run_sync("Go.").output == "It pours."
    for asked in model.calls:
        assert (asked.options.tools, asked.options.settings.output_format) == ((), None)


def test_the_schema_for_structured_output_is_strict_where_it_can_be() -> None:
    point = OutputType[Any](Point).output_format
    assert (point.name, point.strict) == ("Point", True)
    assert point.schema is not None
    assert point.schema["additionalProperties"] is False
    assert OutputType[Any](Weather).output_format.strict is None, "strict formats have no optional fields"


def test_a_wrong_call_is_corrected_by_the_model() -> None:
    model = ScriptedModel(call(ANSWER_TOOL, answer={"x": "one", "y": 2}), call(ANSWER_TOOL, answer={"x": 1, "y": 2}))
    result = ap.ToolLoop(chat := ap.Conversation(model)).run_sync("Go.", output=Point)
    assert (result.output, result.rounds) == (Point(1, 2), 2)
    assert "answer.x" in str(chat.history.entries)


@pytest.mark.parametrize("model_type", [ScriptedModel, StructuredModel])
def test_text_that_does_not_fit_is_requested_again_with_the_reason(model_type: type[ScriptedModel]) -> None:
    model = model_type("It is warm.", '{"x": 1}', '```json\n{"x": 1, "y": 2}\n```')
    chat = ap.Conversation(model)
    result = ap.ToolLoop(chat).run_sync("Go.", output=Point)
    assert (result.output, result.rounds, result.reason) == (Point(1, 2), 3, "answered")
    corrections = [entry for entry in chat.history.entries if isinstance(entry, ModelInputEntry)][1:]
    assert [entry.channel for entry in corrections] == ["output", "output"]
    assert "not valid JSON" in str(corrections[0].content)
    assert "y" in str(corrections[1].content)
    assert result.usage.total == chat.usage.total, "rounds that did not fit are counted"


def test_a_model_that_never_fits_is_not_asked_for_ever() -> None:
    model = StructuredModel(*["no"] * 5)
    chat = ap.Conversation(model)
    with pytest.raises(InvalidOutput, match="not valid JSON"):
        ap.ToolLoop(chat).run_sync("Go.", output=Point, output_retries=1)
    assert model.turns_left == 3
    assert refusals(chat.history.snapshot()) == []


def test_past_a_bound_the_answer_is_still_typed() -> None:
    @ap.tool(effect="read")
    async def look() -> str:
        "Look."
        return "nothing"

    model = ScriptedModel(call("look"), call(ANSWER_TOOL, answer={"x": 1, "y": 2}))
    chat = ap.Conversation(model, tools=[look])
    result = ap.ToolLoop(chat, max_rounds=1).run_sync("Go.", output=Point)
    assert (result.output, result.reason) == (Point(1, 2), "max_rounds")
    choice = model.calls[1].options.settings.tool_choice
    assert choice is not None
    assert choice.names == (ANSWER_TOOL,)


def test_other_tools_run_before_the_answer_and_the_next_turn_is_free() -> None:
    @ap.tool(effect="read")
    async def look() -> str:
        "Look."
        return "x is 1"

    model = ScriptedModel(call("look"), call(ANSWER_TOOL, answer={"x": 1, "y": 2}), "You are welcome.")
    chat = ap.Conversation(model, tools=[look])
    assert ap.ToolLoop(chat).run_sync("Go.", output=Point).output == Point(1, 2)
    plain = ap.ToolLoop(chat).run_sync("Thanks.")
    assert plain.text == "You are welcome."
    assert plain.output == "You are welcome."
    assert [tool.name for tool in model.calls[2].options.tools] == ["look"]


def test_a_turn_that_waits_for_a_person_has_no_output_yet() -> None:
    @ap.tool(needs_approval=True)
    async def pay() -> str:
        "Pay."
        return "paid"

    model = ScriptedModel(call("pay"), call(ANSWER_TOOL, answer={"x": 1, "y": 2}))
    loop = ap.ToolLoop(ap.Conversation(model, tools=[pay]))
    waiting = loop.run_sync("Go.", output=Point)
    assert waiting.reason == "approval"
    with pytest.raises(InvalidOutput, match="approval"):
        _ = waiting.output
    loop.approve(waiting.pending[0].tool_call_id)
    assert loop.run_sync(output=Point).output == Point(1, 2)


@pytest.mark.parametrize(
    "turn", ['{"city": "Oslo", "degrees": 7}', call(ANSWER_TOOL, answer={"city": "Oslo", "degrees": 7})]
)
def test_a_stream_has_partial_objects_and_then_the_value(turn: Any) -> None:
    async def run() -> list[Any]:
        loop = ap.ToolLoop(ap.Conversation(ScriptedModel(turn, chunk_size=3)))
        return [event async for event in loop.stream("Go.", output=Weather)]

    events = asyncio.run(run())
    partial = [event.value for event in events if isinstance(event, PartialOutput)]
    assert {"city": "Os"} in partial or {"city": "O"} in partial
    assert partial[-1] == {"city": "Oslo", "degrees": 7}
    assert isinstance(events[-1], LoopFinished)
    assert events[-1].output == Weather("Oslo", 7)


@pytest.mark.parametrize(
    ("output", "message"), [(asyncio.Event, "no JSON Schema"), (lambda: 1, "no JSON Schema|annotat"), ("Nope", "Nope")]
)
def test_a_type_without_a_schema_is_a_clear_error(output: Any, message: str) -> None:
    with pytest.raises(ConversationError, match=message):
        ap.ToolLoop(ap.Conversation(ScriptedModel("x"))).run_sync("Go.", output=output)


def test_a_tool_with_the_reserved_name_is_refused() -> None:
    @ap.tool
    async def final_answer() -> str:
        "Mine."
        return ""

    with pytest.raises(ConversationError, match="rename it"):
        ap.ToolLoop(ap.Conversation(ScriptedModel("x"), tools=[final_answer])).run_sync("Go.", output=Point)


@pytest.mark.parametrize(
    ("preset", "model", "with_tools", "wanted"),
    [
        ("openai", "gpt-4o", True, True),
        ("openai-responses", "gpt-4o", True, True),
        ("gemini", "gemini-2.5-pro", False, True),
        ("gemini", "gemini-2.5-pro", True, False),
        ("anthropic", "claude-sonnet-4-5", True, True),
        ("anthropic", "claude-3-opus-20240229", True, False),
        ("deepseek", "deepseek-chat", False, False),
    ],
)
def test_the_provider_decides_whether_there_is_structured_output(
    preset: str, model: str, with_tools: bool, wanted: bool
) -> None:
    client = HttpProviderClient(preset, keys=["not-a-key"])
    router = ProviderRouter({preset: client})
    assert client.has_structured_output(model, with_tools=with_tools) is wanted
    assert router.has_structured_output(f"{preset}/{model}", with_tools=with_tools) is wanted


values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-999, 999) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


class CountedJson:
    """Counts the characters that are decoded."""

    def __init__(self) -> None:
        self.characters = 0

    def read(self, text: str) -> Any:
        self.characters += len(text)
        return read_json(text)


@pytest.mark.parametrize(
    "text", ['{"a": "' + "x" * 200_000 + '"}', "[" + "[1]," * 50_000 + "1]", "Some words. " * 15_000]
)
def test_a_long_answer_is_decoded_in_time_that_grows_as_it_does(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = CountedJson()
    monkeypatch.setattr(partial_json, "read_json", counted.read)
    partial = PartialJson()
    for start in range(0, len(text), 12):
        partial.feed(text[start : start + 12])
    assert partial.value == read_json(text)
    assert counted.characters < 200 * len(text)  # decoded with every piece, 8,000 times that


@given(values.filter(lambda value: isinstance(value, dict | list)), st.data())
def test_partial_json_of_any_cut_is_part_of_the_whole(value: Any, data: st.DataObject) -> None:
    text = json.dumps(value, ensure_ascii=data.draw(st.booleans()))
    reader = PartialJson()
    at = 0
    while at < len(text):
        size = data.draw(st.integers(1, 7))
        reader.feed(text[at : at + size])
        at += size
        assert reader.value is None or is_part(reader.value, value)
    assert reader.value == value


def is_part(part: Any, whole: Any) -> bool:
    """Whether `part` is `whole` as far as it had come."""
    if isinstance(part, str) and isinstance(whole, str):
        return whole.startswith(part) or part.encode("utf-8", "surrogatepass") == b"" or "\ufffd" in part
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(key in whole and is_part(value, whole[key]) for key, value in part.items())
    if isinstance(part, list) and isinstance(whole, list):
        return len(part) <= len(whole) and all(map(is_part, part, whole))
    if isinstance(part, int) and isinstance(whole, int):
        return str(whole).startswith(str(part)) or (part == 0 and whole < 0)
    return bool(part == whole)
