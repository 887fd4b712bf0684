"""`source`: where something was read. Histories of earlier versions have it among the native extras."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.parts import Document, Image, Part, Source, Text, Thinking, ToolCallRequest, ToolCallResult
from antiphon.wire import formats
from antiphon.wire.provenance import GENERATED_IMAGE, LEGACY_FUNCTION, is_from, with_source
from antiphon.wire.request import Message, ModelRequest

PNG = "iVBORw0KGgo="
CALL = ToolCallRequest("look", "c1", "{}")
MARKED: list[tuple[dict[str, Any], Part]] = [
    (
        {"type": "thinking", "text": "hm", "native": {"openai-chat": {"field": "reasoning", "also": ["reasoning_content"]}}},
        Thinking("hm", source=Source("openai-chat", ("reasoning", "reasoning_content"))),
    ),
    (
        {"type": "thinking", "text": "hm", "native": {"openai-chat": {"field": "thinking", "part": {"closed": True}}}},
        Thinking("hm", native={"openai-chat": {"closed": True}}, source=Source("openai-chat", ("thinking",))),
    ),
    (
        {"type": "thinking", "native": {"openai-chat": {"reasoning_details": [{"text": "hm"}]}}},
        Thinking(native={"openai-chat": {"reasoning_details": [{"text": "hm"}]}}),
    ),
    (
        {"type": "image", "media_type": "image/png", "data": PNG, "native": {"openai-chat": {"images": True, "x": 1}}},
        Image("image/png", PNG, native={"openai-chat": {"x": 1}}, source=GENERATED_IMAGE),
    ),
    (
        {"type": "tool_call", "tool_name": "look", "tool_call_id": "c1", "native": {"openai-chat": {"function_call": True}}},
        ToolCallRequest("look", "c1", source=LEGACY_FUNCTION),
    ),
    (
        {"type": "tool_call", "tool_name": "look", "tool_call_id": "c1", "native": {"openai-chat": {"function_call": {}}}},
        ToolCallRequest("look", "c1", native={"openai-chat": {"function_call": {}}}),
    ),
    (
        {"type": "tool_result", "tool_name": "look", "tool_call_id": "c1", "content": [{"type": "text", "text": "a"}],
         "native": {"gemini:no-id": {}, "gemini:result": {}, "gemini": {"x": 1}}},
        ToolCallResult("look", "c1", content=(Text("a"),), native={"gemini": {"x": 1}},
                       source=Source("gemini", ("no-id", "result"))),
    ),
    (
        {"type": "document", "media_type": "application/pdf", "data": "+/+/", "name": "a",
         "native": {"gemini:displayName": {}, "gemini:urlSafe": {}}},
        Document("application/pdf", "+/+/", name="a", source=Source("gemini", ("displayName", "urlSafe"))),
    ),
    ({"type": "thinking", "text": "hm", "native": {"gemini": {}}}, Thinking("hm", native={"gemini": {}})),
    ({"type": "image", "file_id": "f", "native": {"anthropic": {}}}, Image(file_id="f", native={"anthropic": {}})),
]  # fmt: skip


@pytest.mark.parametrize(("stored", "now"), MARKED, ids=lambda value: str(value)[:60])
def test_marks_of_stored_parts_are_read_as_their_source(stored: dict[str, Any], now: Part) -> None:
    part: Any = msgspec.convert(stored, Part)
    assert msgspec.json.decode(msgspec.json.encode(part)) == stored, "a stored part stays as it is (L1)"
    assert with_source(part) == now


@pytest.mark.parametrize(("stored", "now"), MARKED, ids=lambda value: str(value)[:60])
@pytest.mark.parametrize("name", formats)
def test_a_stored_part_is_written_like_one_that_is_read_today(name: str, stored: dict[str, Any], now: Part) -> None:
    def write(part: Part) -> tuple[bytes, set[str]]:
        role = "tool" if isinstance(part, ToolCallResult) else "assistant"
        called = () if role == "assistant" else (Message("assistant", (CALL,)),)
        request = ModelRequest(messages=(Message("user", (Text("a"),)), *called, Message(role, (part,))))
        data, losses = formats[name].encode_request(request)
        return data, {loss.path for loss in losses}

    data, losses = write(now)
    before, of_marks = write(msgspec.convert(stored, Part))
    assert msgspec.json.decode(before) == msgspec.json.decode(data)
    assert losses <= of_marks


def test_the_source_of_an_empty_mark_is_its_origin() -> None:
    part = Thinking("hm", native={"gemini": {}})
    assert is_from(part, "gemini")
    assert not is_from(part, "gemini-interactions")
    assert is_from(Thinking("hm", source=Source("gemini")), "gemini")


def test_a_source_is_never_a_loss() -> None:
    for part in (
        now for _, now in MARKED if getattr(now, "source", None) is not None and not getattr(now, "native", None)
    ):
        message = Message("tool" if isinstance(part, ToolCallResult) else "assistant", (part,))
        for wire in formats.values():
            _, losses = wire.write_request(ModelRequest(messages=(message,)))
            assert not any("source" in loss.path or "specific to" in loss.why for loss in losses)
