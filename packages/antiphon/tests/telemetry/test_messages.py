"""The content of spans has the form of the conventions, judged by OpenTelemetry's own classes for it."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

import antiphon as ap
from antiphon.parts import Part
from antiphon.telemetry.messages import (
    input_messages,
    output_messages,
    system_instructions,
    to_json,
    to_part,
    tool_definitions,
)
from antiphon.wire.request import ToolDefinition

PARTS: list[tuple[Part, str]] = [
    (ap.Text("Hi."), "text"),
    (ap.Thinking("Hm."), "reasoning"),
    (ap.Refusal("No."), "text"),
    (ap.ToolCallRequest("weather", "c1", '{"city": "Oslo"}'), "tool_call"),
    (ap.ToolCallRequest("weather", "c1", "not JSON"), "tool_call"),
    (ap.ToolCallResult("weather", "c1", content=(ap.Text("Rain."),)), "tool_call_response"),
    (ap.ToolCallResult("draw", "c2", content=(ap.Image("image/png", "QUJD"),)), "tool_call_response"),
    (ap.Image("image/png", "QUJDRA=="), "blob"),
    (ap.Image(url="https://example.com/cat.png"), "uri"),
    (ap.Image(url="data:image/png;base64,QUJD"), "blob"),
    (ap.Audio("audio/wav", file_id="file-1"), "file"),
    (ap.Document("text/plain", text="Long."), "text"),
    (ap.Document("application/pdf", "QUJD"), "blob"),
]
OWN_FIELDS = {"refusal", "size"}


@pytest.fixture(scope="module")
def models() -> dict[str, type]:
    """OpenTelemetry's class of each type of part."""
    types = pytest.importorskip("opentelemetry.util.genai.types")
    classes = [
        value for name, value in vars(types).items() if name.endswith("Part") and dataclasses.is_dataclass(value)
    ]
    return {field.default: one for one in classes for field in dataclasses.fields(one) if field.name == "type"}  # type: ignore[misc]


def check(part: dict[str, Any], models: dict[str, Any]) -> None:
    fields = {field.name: field for field in dataclasses.fields(models[part["type"]])}
    assert set(part) - OWN_FIELDS <= set(fields)
    required = {
        name for name, field in fields.items() if field.default is dataclasses.MISSING and "None" not in str(field.type)
    }
    assert required <= set(part)


@pytest.mark.parametrize(("part", "kind"), PARTS)
def test_a_part_has_the_fields_of_its_type(part: Part, kind: str, models: dict[str, Any]) -> None:
    written = json.loads(to_json(to_part(part)))
    assert written["type"] == kind
    check(written, models)


@pytest.mark.parametrize("depth", [990, 5_000])
def test_arguments_may_be_nested_deeply(depth: int) -> None:
    call = ap.ToolCallRequest("weather", "c1", "[" * depth + "]" * depth)
    written = output_messages([call], "end")
    assert call.arguments in written
    assert output_messages([ap.Text("\ud800")], "end") == '"(not written: UnicodeEncodeError)"'


def test_media_are_described_and_not_copied() -> None:
    assert to_part(ap.Image("image/png", "QUJDRA==" * 100)) == {
        "type": "blob",
        "modality": "image",
        "mime_type": "image/png",
        "content": "",
        "size": 600,
    }


def test_messages_have_the_fields_of_messages(models: dict[str, Any]) -> None:
    types = pytest.importorskip("opentelemetry.util.genai.types")
    chat = ap.Conversation(ap.ScriptedModel(), system="Be brief.", live_screen="It is noon.")
    chat.add("Hi.")
    context = chat.context()
    (asked,) = json.loads(input_messages(context))
    assert asked["parts"][-1] == {"type": "text", "content": "It is noon."}
    (answered,) = json.loads(output_messages((ap.Text("Hello."),), "tool_calls"))
    for message, one in ((asked, types.InputMessage), (answered, types.OutputMessage)):
        assert set(message) <= {field.name for field in dataclasses.fields(one)}
        for part in message["parts"]:
            check(part, models)
    assert answered["finish_reason"] in types.FinishReason.__args__
    for part in json.loads(system_instructions(context)):
        check(part, models)
    (offered,) = json.loads(tool_definitions([ToolDefinition("weather", "The weather.", {"type": "object"})]))
    assert set(offered) == {field.name for field in dataclasses.fields(types.FunctionToolDefinition)}
