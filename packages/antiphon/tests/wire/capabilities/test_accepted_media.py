"""Kinds and types of media that a model does not accept: replaced by text, another type or a note, and found by the checkers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import structs

from antiphon.parts import Audio, Document, Image, Native, Text, ToolCallRequest, ToolCallResult
from antiphon.wire import Message, ModelRequest, ToolDefinition, formats
from antiphon.wire.capabilities import CapabilityOverride, CapabilityTable, capabilities_for
from antiphon.wire.capabilities.accepted_media import fit_medium
from antiphon.wire.loss import Losses
from support.corpus import in_collection, recorded

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
    assert written.count("[document a.pdf omitted: the model takes text only]") == 1
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


PDF = Document("application/pdf", "JVBERi0xLjQK", name="a.pdf")
WAV = Audio("audio/wav", "UklGRgAAAABXQVZF")
MP4 = Document("video/mp4", "AAAAGGZ0eXBpc29t")
HOMES = ("openai-chat", "openai-responses", "anthropic", "gemini")


def sent(name: str, model: str, part: Any, **options: Any) -> tuple[dict[str, Any], str, list[Any]]:
    """The body for one medium, its text, and the losses; the body is one that the checker accepts."""
    request = ModelRequest(model=model, messages=(Message("user", (Text("see"), part)),))
    body, losses = formats[name].write_request(request, **options)
    known = {**options, "model": model} if name == "gemini" else options
    assert formats[name].check_request(body, **known) == []
    return body, msgspec.json.encode(body).decode(), losses


@pytest.mark.parametrize(
    ("name", "model", "part", "note"),
    [
        ("openai-chat", "gpt-4o", WAV, "[audio omitted: the model does not accept audio input]"),
        ("openai-chat", "gpt-4o", MP4, "[video omitted: the model does not accept video input]"),
        ("openai-chat", "gpt-5", WAV, "[audio omitted: the model does not accept audio input]"),
        ("openai-responses", "gpt-5", WAV, "[audio omitted: the model does not accept audio input]"),
        ("openai-responses", "gpt-5", MP4, "[video omitted: the model does not accept video input]"),
        ("openai-chat", "gpt-audio", IMAGE, "[image omitted: the model does not accept image input]"),
        ("openai-chat", "gpt-audio", PDF, "[document a.pdf omitted: the model does not accept document input]"),
        ("openai-chat", "deepseek-chat", IMAGE, "[image omitted: the model takes text only]"),
        ("anthropic", "claude-sonnet-4-5", WAV, "[audio omitted: the model does not accept audio input]"),
        ("anthropic", "claude-sonnet-4-5", MP4, "[video omitted: the model does not accept video input]"),
        ("gemini", "gemini-2.5-flash-image", WAV, "[audio omitted: the model does not accept audio input]"),
        ("gemini", "gemini-2.5-flash-image", MP4, "[video omitted: the model does not accept video input]"),
        ("gemini", "gemini-2.5-flash-preview-tts", IMAGE, "[image omitted: the model takes text only]"),
        ("openai-chat", "gpt-4o", Image("image/bmp", "Qk0="), "[image omitted: image/bmp is not supported]"),
        ("openai-responses", "gpt-4o", Image("image/bmp", "Qk0="), "[image omitted: image/bmp is not supported]"),
        ("anthropic", "claude-sonnet-4-5", Image("image/bmp", "Qk0="), "[image omitted: image/bmp is not supported]"),
        ("gemini", "gemini-2.5-flash", Image("image/gif", "R0lGODlh"), "[image omitted: image/gif is not supported]"),
        (
            "openai-chat",
            "m",
            Document("application/zip", "UEsDBA=="),
            "[document omitted: application/zip is not supported]",
        ),
        (
            "gemini",
            "m",
            Document("application/zip", "UEsDBA=="),
            "[document omitted: application/zip is not supported]",
        ),
        (
            "anthropic",
            "m",
            Document("application/zip", "UEsDBA=="),
            "[document omitted: application/zip is not supported]",
        ),
        ("openai-chat", "gpt-audio", Audio("audio/flac", "ZkxhQw=="), "[audio omitted: audio/flac is not supported]"),
        ("gemini", "gemini-2.5-flash", Audio("audio/midi", "TVRoZA=="), "[audio omitted: audio/midi is not supported]"),
        (
            "gemini",
            "gemini-2.5-flash",
            Document("video/x-matroska", "GkXfow=="),
            "[video omitted: video/x-matroska is not supported]",
        ),
    ],
)
def test_a_kind_or_type_that_the_model_refuses_becomes_a_note(name: str, model: str, part: Any, note: str) -> None:
    _, text, losses = sent(name, model, part)
    assert note in text
    assert part.data not in text
    assert [loss.path for loss in losses] == ["messages[0].parts[1]"]


@pytest.mark.parametrize(
    ("name", "model", "part"),
    [
        ("openai-chat", "gpt-4o", PDF),
        ("openai-chat", "gpt-audio", WAV),
        ("openai-chat", "gpt-audio-mini", Audio("audio/mpeg", "SUQzBAAA")),
        ("openai-chat", "unknown", WAV),
        ("openai-responses", "gpt-5", PDF),
        ("anthropic", "claude-3-haiku-20240307", PDF),
        ("gemini", "gemini-2.5-flash", WAV),
        ("gemini", "gemini-2.5-flash", MP4),
        ("gemini", "gemini-3-pro-preview", PDF),
        ("gemini", "unknown", MP4),
    ],
)
def test_a_kind_that_the_model_accepts_is_sent(name: str, model: str, part: Any) -> None:
    _, text, losses = sent(name, model, part)
    assert part.data in text
    assert [loss for loss in losses if not loss.path.endswith(".name")] == []


@pytest.mark.parametrize("name", HOMES)
def test_a_wrong_type_is_corrected_by_its_usual_name_or_by_the_bytes(name: str) -> None:
    model = {"anthropic": "claude-sonnet-4-5", "gemini": "gemini-2.5-flash"}.get(name, "gpt-4o")
    _, text, losses = sent(name, model, Image("application/octet-stream", PIXEL))
    assert PIXEL in text
    assert "image/png" in text
    assert [(loss.path, loss.why) for loss in losses] == [("messages[0].parts[1].media_type", "sent as image/png")]
    if name in ("anthropic", "gemini"):
        _, text, losses = sent(name, model, Image("image/jpg", "/9j/4AAQ"))
        assert "image/jpeg" in text
        assert [loss.path for loss in losses] == ["messages[0].parts[1].media_type"]


def test_a_medium_in_the_wrong_part_is_sent_in_the_right_one() -> None:
    body, _, losses = sent("openai-chat", "gpt-4o", Document("image/png", PIXEL))
    assert [block["type"] for block in body["messages"][0]["content"]] == ["text", "image_url"]
    body, _, more = sent("anthropic", "claude-sonnet-4-5", Image("application/pdf", "JVBERi0xLjQK"))
    assert [block["type"] for block in body["messages"][0]["content"]] == ["text", "document"]
    assert [loss.path for loss in (*losses, *more)] == ["messages[0].parts[1]"] * 2


MARKDOWN = Document("text/markdown", "IyBIaQ==", name="a.md")
JSON = Document("application/json", "eyJhIjogMX0=")


@pytest.mark.parametrize(
    ("name", "model", "part", "expected"),
    [
        ("openai-chat", "gpt-4o", MARKDOWN, "a.md\\n\\n# Hi"),
        ("openai-chat", "gpt-4o", JSON, '{\\"a\\": 1}'),
        ("openai-chat", "gpt-audio", JSON, '{\\"a\\": 1}'),
        ("anthropic", "claude-sonnet-4-5", MARKDOWN, '"text/plain","data":"# Hi"'),
        ("gemini", "gemini-2.5-flash", JSON, '"mimeType":"text/plain","data":"eyJhIjogMX0="'),
        ("gemini", "gemini-2.5-flash-image", JSON, '{\\"a\\": 1}'),
    ],
)
def test_text_in_a_document_stays_readable(name: str, model: str, part: Any, expected: str) -> None:
    _, text, losses = sent(name, model, part)
    assert expected in text
    assert {loss.path.removesuffix(".media_type") for loss in losses} == {"messages[0].parts[1]"}


def test_cache_breakpoints_stay_on_the_note() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    body, _, _ = sent("anthropic", "claude-2.1", Image("image/png", PIXEL, native={"anthropic": mark}))
    assert body["messages"][0]["content"][1]["cache_control"] == {"type": "ephemeral"}


def test_a_block_of_the_format_itself_is_replaced_where_its_kind_is_refused() -> None:
    block = {"type": "video_url", "video_url": {"url": "https://a.b/c.mp4"}}
    content = [{"type": "text", "text": "see"}, block]
    for model, expected in (("deepseek-v4-flash", "[video omitted: the model takes text only]"), ("qwen", None)):
        body = {"model": model, "messages": [{"role": "user", "content": content}]}
        request = formats["openai-chat"].read_request(body)
        written, losses = formats["openai-chat"].write_request(request, dialect="compatible")
        if expected is None:
            assert written["messages"] == body["messages"]
            assert losses == []
        else:
            assert expected in msgspec.json.encode(written).decode()
            assert [loss.path for loss in losses] == ["messages[0].parts[1]"]


def test_types_that_only_openai_refuses_reach_other_hosts() -> None:
    word = Document("application/msword", url="https://a.b/c.doc")
    for dialect, count in (("openai", 1), ("mistral", 0)):
        request = ModelRequest(model="m", messages=(Message("user", (word,)),))
        _, losses = formats["openai-chat"].write_request(request, dialect=dialect)
        assert len(losses) == count


REFUSED_BODIES: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "openai-chat": [
        ("gpt-4o", {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}),
        ("gpt-audio", {"type": "image_url", "image_url": {"url": "https://a.b/c.png"}}),
        ("gpt-4o", {"type": "file", "file": {"filename": "a.md", "file_data": "data:text/markdown;base64,IyBIaQ=="}}),
    ],
    "openai-responses": [
        ("gpt-5", {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}),
        ("o3-mini", {"type": "input_image", "image_url": "https://a.b/c.png"}),
    ],
    "anthropic": [("claude-2.1", {"type": "image", "source": {"type": "url", "url": "https://a.b/c.png"}})],
    "gemini": [
        ("gemini-2.5-flash-image", {"inlineData": {"mimeType": "audio/wav", "data": "UklGRg=="}}),
        ("gemini-2.5-flash", {"inlineData": {"mimeType": "application/json", "data": "eyJhIjogMX0="}}),
        ("gemini-2.5-flash-preview-tts", {"fileData": {"mimeType": "image/png", "fileUri": "https://a.b/c.png"}}),
    ],
}


@pytest.mark.parametrize(
    ("name", "model", "block"), [(name, *case) for name, rows in REFUSED_BODIES.items() for case in rows]
)
def test_checkers_report_the_block_and_writers_make_the_same_body_legal(name: str, model: str, block: Any) -> None:
    options: dict[str, Any] = {"model": model} if name == "gemini" else {}
    if name == "gemini":
        body: dict[str, Any] = {"contents": [{"role": "user", "parts": [{"text": "see"}, block]}]}
        path = "contents[0].parts[1]"
    elif name == "openai-responses":
        body = {"model": model, "input": [{"role": "user", "content": [{"type": "input_text", "text": "see"}, block]}]}
        path = "input[0].content[1]"
    else:
        body = {"model": model, "messages": [{"role": "user", "content": [{"type": "text", "text": "see"}, block]}]}
        body |= {"max_tokens": 9} if name == "anthropic" else {}
        path = "messages[0].content[1]"
    found = formats[name].check_request(body, **options)
    assert [violation.path for violation in found] == [path]
    request = formats[name].read_request(body)
    written, losses = formats[name].write_request(request, **options)
    assert formats[name].check_request(written, **options) == []
    assert [loss.path.removesuffix(".media_type") for loss in losses] == ["messages[0].parts[1]"]


@pytest.mark.parametrize("name", HOMES)
def test_a_caller_can_state_the_kinds_and_types(name: str) -> None:
    table = CapabilityTable([CapabilityOverride(model="mine", media=("document",), document_types=("text/*",))])
    _, text, losses = sent(name, "mine", IMAGE, capabilities=table)
    assert PIXEL not in text
    assert [loss.path for loss in losses] == ["messages[0].parts[1]"]
    _, text, losses = sent(name, "mine", PDF, capabilities=table)
    assert PDF.data not in text
    assert [loss.path for loss in losses] == ["messages[0].parts[1]"]


def test_an_accepted_medium_is_the_same_object() -> None:
    losses = Losses()
    for part in (IMAGE, PDF):
        assert fit_medium(part, capabilities_for("gpt-4o", "openai-chat"), losses) is part
    assert fit_medium(MP4, None, losses) is MP4
    assert losses == []


@pytest.mark.parametrize("name", HOMES)
def test_no_medium_that_a_model_has_accepted_is_replaced(name: str) -> None:
    """Every recorded request with media that was accepted; the table must not know better than the API."""
    count = 0
    for record in recorded(name):
        if record["status"] != 200 or not isinstance(record["request"], dict):
            continue
        request = structs.replace(formats[name].read_request(record["request"]), model=record["model"] or "")
        losses = Losses()
        known = capabilities_for(request.model, name)
        for part in (part for message in request.messages for part in message.parts):
            if isinstance(part, Image | Audio | Document | Native):
                assert fit_medium(part, known, losses) is part, record["id"]
        assert losses == [], record["id"]
        count += any(isinstance(part, Image | Audio | Document) for m in request.messages for part in m.parts)
    assert count > in_collection(20)
