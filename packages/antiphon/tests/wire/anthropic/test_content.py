"""Blocks of the Messages API: each is a part and back; results, media and refusals that have no block."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.parts import (
    Audio,
    Document,
    Image,
    Native,
    Part,
    Refusal,
    Text,
    Thinking,
    ToolCallRequest,
    ToolCallResult,
)
from antiphon.wire import (
    Message,
    ToolDefinition,
)
from support.wire_formats import ANTHROPIC
from wire.anthropic.sample_requests import (
    ASK,
    CALL,
    FAILED,
    MARK,
    OWN,
    PDF,
    PNG,
    RESULT,
    SERVER_CALL,
    SIGNED,
    SKIPPED,
    TOOL,
    messages_of,
    model,
    request,
    text,
    user,
    written,
)

read_request = ANTHROPIC.read_request

# One row is read both ways: the block of a message, and the part it is.
BLOCKS: list[tuple[str, Any, Part]] = [
    ("user", text("Hello", **MARK), Text("Hello", native={"anthropic": MARK})),
    (
        "assistant",
        text("Rain.", citations=[{"type": "char_location"}]),
        Text("Rain.", native={"anthropic": {"citations": [{"type": "char_location"}]}}),
    ),
    (
        "user",
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        Image("image/png", PNG),
    ),
    (
        "user",
        {"type": "image", "source": {"type": "url", "url": "https://x.org/a.png"}},
        Image(url="https://x.org/a.png"),
    ),
    ("user", {"type": "image", "source": {"type": "file", "file_id": "f_1"}}, Image(file_id="f_1", source=OWN)),
    (
        "user",
        {"type": "document", "source": PDF, "title": "T", "context": "C", "citations": {"enabled": True}},
        Document(
            "application/pdf",
            "JVBERi0=",
            name="T",
            native={"anthropic": {"context": "C", "citations": {"enabled": True}}},
        ),
    ),
    (
        "user",
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}},
        Document("text/plain", text="words"),
    ),
    (
        "user",
        {"type": "document", "source": {"type": "url", "url": "https://x.org/a.pdf"}},
        Document(url="https://x.org/a.pdf"),
    ),
    ("user", {"type": "document", "source": {"type": "file", "file_id": "f"}}, Document(file_id="f", source=OWN)),
    (
        "user",
        {"type": "document", "source": {"type": "content", "content": [text("a"), text("b")]}},
        Document(
            "text/plain",
            text="a\n\nb",
            native={"anthropic": {"source": {"type": "content", "content": [text("a"), text("b")]}}},
        ),
    ),
    (
        "assistant",
        {
            "type": "tool_use",
            "id": "toolu_1",
            "name": "weather",
            "input": {"city": "Oslo"},
            "caller": {"type": "direct"},
        },
        ToolCallRequest("weather", "toolu_1", '{"city":"Oslo"}', native={"anthropic": {"caller": {"type": "direct"}}}),
    ),
    ("user", {"type": "tool_result", "tool_use_id": "toolu_1", "content": "rain"}, RESULT.of(CALL, "rain")),
    ("user", {"type": "tool_result", "tool_use_id": "toolu_1"}, RESULT.of(CALL)),
    (
        "user",
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": "no", "is_error": True, **MARK},
        ToolCallResult("weather", "toolu_1", FAILED, (Text("no"),), native={"anthropic": MARK}),
    ),
    (
        "user",
        {
            "type": "tool_result",
            "tool_use_id": "toolu_1",
            "content": [
                text("see"),
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
                {"type": "tool_reference", "tool_name": "weather"},
            ],
        },
        RESULT.of(
            CALL,
            "see",
            Image("image/png", PNG),
            Native("anthropic", {"type": "tool_reference", "tool_name": "weather"}),
        ),
    ),
    ("assistant", {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}, SIGNED),
    (
        "assistant",
        {"type": "thinking", "thinking": "", "signature": "c2ln"},
        Thinking("", native={"anthropic": {"signature": "c2ln"}}),
    ),
    (
        "assistant",
        {"type": "redacted_thinking", "data": "x"},
        Native("anthropic", {"type": "redacted_thinking", "data": "x"}),
    ),
    ("assistant", SERVER_CALL, Native("anthropic", SERVER_CALL)),
    (
        "user",
        {"type": "container_upload", "file_id": "f"},
        Native("anthropic", {"type": "container_upload", "file_id": "f"}),
    ),
    ("user", {"type": "of tomorrow", "x": [1]}, Native("anthropic", {"type": "of tomorrow", "x": [1]})),
    ("user", {"type": "text"}, Native("anthropic", {"type": "text"})),
    ("user", {"type": "image", "source": 5}, Native("anthropic", {"type": "image", "source": 5})),
    ("user", 5, Native("anthropic", 5)),
]


@pytest.mark.parametrize(("role", "block", "part"), BLOCKS, ids=[str(block)[:60] for _, block, _ in BLOCKS])
def test_a_block_is_a_part_and_back(role: str, block: Any, part: Part) -> None:
    before = {"role": "assistant" if role == "user" else "user", "content": "?"}
    turns = [before, {"role": role, "content": [block, block]}]
    call: dict[str, Any] = {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}],
    }
    if role == "user" and isinstance(part, ToolCallResult):
        turns[0] = call  # a result takes the name of its call
    read = read_request({"messages": turns, "max_tokens": 5})
    assert read.messages[-1] == Message(role, (part, part))
    body, losses = written(read)
    assert losses == []
    assert body["messages"][-1] == {"role": role, "content": [block, block]}


def test_freeform_tools_take_their_text_in_an_object() -> None:
    call = ToolCallRequest("patch", "toolu_1", "*** Begin", freeform=True)
    body, losses = written(request(ASK, model(call), user(RESULT), tools=(ToolDefinition("patch", freeform=True),)))
    assert body["messages"][1]["content"][0]["input"] == {"input": "*** Begin"}
    assert body["tools"][0]["input_schema"]["required"] == ["input"]
    assert losses == []


def test_failed_results_hold_text_only() -> None:
    result = ToolCallResult("weather", "toolu_1", FAILED, (Image("image/png", PNG),))
    turns, losses = messages_of(ASK, model(CALL), user(result, Text("Look.")), tools=(TOOL,))
    assert [block["type"] for block in turns[2]["content"]] == ["tool_result", "image", "text"]
    assert turns[2]["content"][0] == {
        "type": "tool_result",
        "tool_use_id": "toolu_1",
        "content": "(no output)",
        "is_error": True,
    }
    assert losses == []
    turns, _ = messages_of(ASK, model(CALL), user(ToolCallResult("weather", "toolu_1", SKIPPED)), tools=(TOOL,))
    assert turns[2]["content"][0]["is_error"] is True


@pytest.mark.parametrize(
    "part",
    [
        Audio("audio/wav", "AAAA"),
        Thinking("Hm."),
        Thinking("Hm.", native={"gemini": {"thoughtSignature": "x"}}),
        Native("openai-responses", {"type": "compaction"}),
        Image("image/bmp", "Qk0="),
        Image(url="gs://bucket/a.png"),
        Image(file_id="file-abc"),
        Image(),
        Document("application/zip", "UEsDBA=="),
        Document("text/plain", "!!!"),
    ],
)
def test_unsupported_parts_are_losses(part: Part) -> None:
    turns, losses = messages_of(ASK, model(part, Text("It is.")))
    assert turns[1] == {"role": "assistant", "content": "It is."}
    assert losses == ["messages[1].parts[0]"]


def test_media_are_translated() -> None:
    turns, losses = messages_of(
        user(
            Image(data=PNG),
            Image(url=f"data:image/png;base64,{PNG}"),
            Document("text/csv", "YSxi", name="a.csv"),
            Document("text/markdown", text="# a"),
            Document(data="JVBERi0="),
        )
    )
    sources = [block["source"] for block in turns[0]["content"]]
    assert sources[0] == sources[1] == {"type": "base64", "media_type": "image/png", "data": PNG}
    assert sources[2] == {"type": "text", "media_type": "text/plain", "data": "a,b"}
    assert sources[3]["data"] == "# a"
    assert sources[4] == PDF
    assert losses == ["messages[0].parts[2].media_type", "messages[0].parts[3].media_type"]


def test_refusals_and_names_are_losses() -> None:
    turns, losses = messages_of(Message("user", (Text("?"),), name="Ada"), model(Refusal("No.")), ASK)
    assert turns[1] == {"role": "assistant", "content": "No."}
    assert losses == ["messages[0].name", "messages[1].parts[0]"]
