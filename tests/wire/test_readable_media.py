"""Models that take text only get a note in place of a medium; others get the medium."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.parts import Audio, Document, Image, Text, ToolCallRequest, ToolCallResult
from antiphon.wire import Message, ModelRequest, ToolDefinition, formats
from antiphon.wire.capabilities import CapabilityOverride, CapabilityTable, capabilities_for

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
IMAGE = Image("image/png", PIXEL)
CALL = ToolCallRequest("look", "call_1", "{}")
MESSAGES = (
    Message("user", (Text("see"), IMAGE, Document("application/pdf", "JVBERi0xLjQK", name="a.pdf"))),
    Message("assistant", (CALL,)),
    Message("tool", (ToolCallResult.of(CALL, "seen", IMAGE),)),
)
PATHS = ["messages[0].parts[1]", "messages[0].parts[2]", "messages[2].parts[0].content[1]"]
TEXT_ONLY = CapabilityTable([CapabilityOverride(model="*", text_only=True)])


def request_for(model: str) -> ModelRequest:
    return ModelRequest(model=model, messages=MESSAGES, tools=(ToolDefinition("look", None, {"type": "object"}),))


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("openai-chat", "gpt-3.5-turbo"),
        ("openai-chat", "gpt-4"),
        ("openai-chat", "o1-mini"),
        ("openai-responses", "o3-mini"),
        ("openai-responses", "gpt-4-0613"),
        ("anthropic", "claude-2.1"),
    ],
)
def test_a_text_only_model_gets_a_note_in_place_of_each_medium(name: str, model: str) -> None:
    body, losses = formats[name].write_request(request_for(model))
    assert [loss.path for loss in losses if "text only" in loss.why] == PATHS
    written = msgspec.json.encode(body).decode()
    assert written.count("[image omitted: the model takes text only]") == 2
    assert written.count("[document omitted: the model takes text only]") == 1
    assert PIXEL not in written
    assert formats[name].check_request(body) == []


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("openai-chat", "gpt-4-turbo"),
        ("openai-chat", "gpt-4o"),
        ("openai-chat", "gpt-4.5-preview"),
        ("openai-chat", "unknown"),
        ("openai-responses", "o3"),
        ("anthropic", "claude-3-haiku-20240307"),
        ("gemini", "gemini-2.5-flash"),
    ],
)
def test_every_other_model_gets_the_media(name: str, model: str) -> None:
    body, losses = formats[name].write_request(request_for(model))
    assert [loss for loss in losses if "text only" in loss.why] == []
    assert msgspec.json.encode(body).decode().count(PIXEL) == 2


@pytest.mark.parametrize("name", ["openai-chat", "openai-responses", "anthropic", "gemini"])
def test_a_caller_can_state_it_and_the_checkers_report_media(name: str) -> None:
    body, _ = formats[name].write_request(request_for("m"))
    reported = [
        found for found in formats[name].check_request(body, capabilities=TEXT_ONLY) if "text only" in found.message
    ]
    assert len(reported) == 3
    rewritten, _ = formats[name].write_request(request_for("m"), capabilities=TEXT_ONLY)
    assert PIXEL not in msgspec.json.encode(rewritten).decode()
    left = formats[name].check_request(rewritten, capabilities=TEXT_ONLY)
    assert [found for found in left if "text only" in found.message] == []


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (Document("text/plain", text="words", name="a.txt"), "a.txt\n\nwords"),
        (Audio("audio/wav", "UklGRg=="), "[audio omitted: the model takes text only]"),
    ],
)
def test_text_documents_stay_readable_and_audio_is_noted(part: Any, expected: str) -> None:
    request = ModelRequest(model="gpt-4", messages=(Message("user", (part,)),))
    body, losses = formats["openai-chat"].write_request(request)
    assert body["messages"] == [{"role": "user", "content": expected}]
    assert [loss.path for loss in losses] == ["messages[0].parts[0]"]


@pytest.mark.parametrize(
    "model", ["gemini-2.5-flash", "gemini-2.5-flash-lite", "gemini-2.5-pro", "gemini-3-flash-preview"]
)
def test_gemini_takes_all_kinds_of_media(model: str) -> None:
    assert capabilities_for(model, "gemini").media == ("audio", "document", "image", "video")
