"""What is not what it says is kept as it came, read and written again; a strict translation says what it would lose."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.parts import Native, Text, Thinking
from antiphon.wire import LossyTranslation, Message, ModelOutput, ModelRequest, formats
from antiphon.wire.delta import Failed
from support.cases import each_case

PARTS: dict[str, list[Any]] = {
    "openai-chat": [
        5,
        {"type": 5},
        {"type": "text", "text": 5},
        {"type": "image_url", "image_url": 5},
        {"type": "image_url", "image_url": {"url": 5}},
        {"type": "image_url", "image_url": {"url": "nowhere"}},
        {"type": "image_url", "image_url": {"url": "https://x.y/z.png"}, "detail": "low"},
        {"type": "input_audio", "input_audio": 5},
        {"type": "input_audio", "input_audio": {"data": 5, "format": "wav"}},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "x-wav"}},
        {"type": "file", "file": 5},
        {"type": "file", "file": {"filename": "", "file_id": "file-1"}},
        {"type": "file", "file": {"file_data": "nothing"}},
        {"type": "document_url", "document_url": ""},
        {"type": "thinking", "thinking": [5]},
        {"type": "thinking", "thinking": [{"type": "text", "text": 5}]},
    ],
    "openai-responses": [
        5,
        {"type": "input_text", "text": 5},
        {"type": "output_text", "text": 5},
        {"type": "input_image", "image_url": 5},
        {"type": "input_file", "file_data": "data:application/pdf;base64,AAAA", "file_id": "file-1"},
        {"type": "input_file", "file_data": 5},
        {"type": "input_file", "file_data": "nothing"},
        {"type": "input_audio", "input_audio": 5},
        {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
    ],
    "anthropic": [
        {"type": "text", "text": 5},
        {"type": "image", "source": 5},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "data:AAAA"}},
        {"type": "document", "source": 5},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": ""}},
        {"type": "document", "source": {"type": "content", "content": [{"type": "image"}]}},
        {"type": "tool_result", "tool_use_id": 5},
        {"type": "tool_result", "tool_use_id": "a", "content": 5},
    ],
    "gemini": [
        5,
        {"text": 5},
        {"text": "a", "inlineData": {"data": "AAAA", "mimeType": "image/png"}},
        {"inlineData": 5},
        {"inlineData": {"data": 5, "mimeType": "image/png"}},
        {"inlineData": {"data": "\u00e9", "mimeType": "image/png"}},
        {"fileData": 5},
        {"fileData": {"fileUri": ""}},
        {"fileData": {"fileUri": "https://x.y/z", "mimeType": ""}},
        {"functionResponse": 5},
        {"functionResponse": {"name": "", "response": {}}},
    ],
    "gemini-interactions": [
        5,
        {"type": "text", "text": 5},
        {"type": "hologram"},
        {"type": "image"},
        {"type": "image", "data": "AAAA", "uri": "https://x.y/z.png"},
        {"type": "image", "data": "AAAA", "mime_type": "video/mp4"},
        {"type": "audio", "data": 5, "mime_type": "audio/wav"},
        {"type": "document", "uri": "", "mime_type": "application/pdf"},
        {"type": "video", "data": "\u00e9"},
    ],
}
TOOLS: dict[str, list[Any]] = {
    "openai-chat": [
        5,
        {"type": "function", "function": 5},
        {"type": "function", "function": {"name": 5}},
        {"type": "function", "function": {"name": "f", "parameters": 5}},
    ],
    "openai-responses": [5, {"type": "function", "name": "f", "parameters": 5}, {"type": "custom", "name": 5}],
    "anthropic": [{"name": 5, "input_schema": {}}, {"name": "f", "input_schema": {}, "strict": 5}],
    "gemini": [5, {"functionDeclarations": [5]}, {"functionDeclarations": [{"name": 5}]}],
    "gemini-interactions": [5, {"type": "function"}, {"type": "function", "name": "f", "parameters": 5}, {"type": 5}],
}
CHOICES: dict[str, list[Any]] = {
    "openai-chat": [
        5,
        "never",
        {"type": "function", "function": {"name": 5}},
        {"type": "allowed_tools", "allowed_tools": {"mode": "some", "tools": []}},
        {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {}}]}},
        {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [5]}},
    ],
    "openai-responses": [
        5,
        {"type": "function", "name": 5},
        {"type": "allowed_tools", "mode": "some", "tools": []},
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function"}]},
    ],
    "anthropic": [{"type": "some"}, {"type": "auto", "name": "f"}, {"type": "tool"}],
    "gemini": [5, {"mode": "SOME"}, {"mode": "AUTO", "allowedFunctionNames": ["f"]}, {"allowedFunctionNames": 5}],
    "gemini-interactions": [5, "some", {"allowed_tools": 5}, {"allowed_tools": {"mode": "any", "tools": []}}],
}


def body_of(name: str, part: Any = None, tools: Any = None, choice: Any = None) -> dict[str, Any]:
    """A request of a format with one part beside a text, these tools and this choice."""
    key, text = {
        "openai-responses": ("content", {"type": "input_text", "text": "a"}),
        "gemini": ("parts", {"text": "a"}),
    }.get(name, ("content", {"type": "text", "text": "a"}))
    parts = [text] if part is None else [text, part]
    if name == "gemini-interactions":
        config = {} if choice is None else {"generation_config": {"tool_choice": choice}}
        named = {} if tools is None else {"tools": tools}
        return {"input": [{"type": "user_input", "content": parts}], **named, **config}
    entries = {"openai-responses": "input", "gemini": "contents"}.get(name, "messages")
    body: dict[str, Any] = {entries: [{"role": "user", key: parts}]}
    if tools is not None:
        body["tools"] = tools
    if choice is not None and name == "gemini":
        body["toolConfig"] = {"functionCallingConfig": choice}
    elif choice is not None:
        body["tool_choice"] = choice
    return body


def rewritten(name: str, body: dict[str, Any]) -> Any:
    return formats[name].write_request(formats[name].read_request(body)).body


@each_case(("name", "part"), [(name, part) for name, parts in PARTS.items() for part in parts])
def test_an_invalid_part_is_kept(name: str, part: Any) -> None:
    body = body_of(name, part)
    assert formats[name].read_request(body).messages[-1].parts[-1] == Native(name, part)
    entries = next(key for key in ("messages", "input", "contents") if key in body)
    assert rewritten(name, body)[entries] == body[entries]


@pytest.mark.parametrize(("name", "tool"), [(name, tool) for name, tools in TOOLS.items() for tool in tools])
def test_an_invalid_tool_is_kept(name: str, tool: Any) -> None:
    body = body_of(name, tools=[tool])
    assert formats[name].read_request(body).tools == (Native(name, tool),)
    assert rewritten(name, body)["tools"] == [tool]


DECLARED = {
    "gemini": [{"functionDeclarations": [{"name": "f", "description": "d"}]}],
    "gemini-interactions": [{"type": "function", "name": "f"}],
}
"""Tools, without which these APIs refuse any choice (GM-13, GI-09)."""


@pytest.mark.parametrize(
    ("name", "choice"), [(name, choice) for name, choices in CHOICES.items() for choice in choices]
)
def test_an_invalid_choice_is_kept(name: str, choice: Any) -> None:
    body = body_of(name, tools=DECLARED.get(name), choice=choice)
    assert formats[name].read_request(body).tool_choice is None
    key = {"gemini": "toolConfig", "gemini-interactions": "generation_config"}.get(name, "tool_choice")
    assert rewritten(name, body)[key] == body[key]


def test_a_strict_translation_names_its_losses() -> None:
    thought = Message("assistant", (Thinking("hm"), Text("a")))
    request = ModelRequest(messages=(Message("user", (Text("a"),)), thought), model="m")
    for write in (formats["anthropic"].write_request, formats["anthropic"].encode_request):
        with pytest.raises(LossyTranslation, match=r"would drop 1 items: messages\[1\].parts\[0\]: thinking"):
            write(request, strict=True)
    with pytest.raises(LossyTranslation) as lost:
        formats["anthropic"].write_response(ModelOutput(parts=(Text("a"),), created=1), strict=True)
    assert [loss.path for loss in lost.value.losses] == ["created"]


def test_a_broken_rule_reads_as_a_sentence() -> None:
    (violation, *_) = formats["openai-chat"].check_request(msgspec.json.encode({"model": "m"}))
    assert str(violation) == "messages: OC-01 error: is required"


@pytest.mark.parametrize(
    ("name", "chunk"),
    [
        ("openai-chat", {"choices": [{"index": 10**12, "delta": {"content": "a"}}]}),
        ("gemini", {"candidates": [{"index": 10**12, "content": {"role": "model", "parts": [{"text": "a"}]}}]}),
    ],
)
def test_an_absurd_index_ends_the_stream_without_filling_memory(name: str, chunk: dict[str, Any]) -> None:
    reader, writer = formats[name].stream_reader(), formats[name].stream_writer("m")
    deltas = [*reader.feed(b"data: " + msgspec.json.encode(chunk) + b"\n\n"), *reader.close()]
    assert type(deltas[-1]) is Failed
    assert sum(map(len, map(writer.write, deltas))) < 10_000
