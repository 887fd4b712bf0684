"""Blocks of hosted tools and screenshots reach the models of other formats as text and images."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from antiphon.parts import Image, Native, Text, Thinking
from antiphon.wire import FORMATS, Message, ModelRequest, formats
from antiphon.wire.loss import Losses
from antiphon.wire.native_as_text import readable_parts
from support.cases import each_case

PNG = "iVBORw0KGgo="
RESPONSES_ITEMS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "web search": (
        {
            "type": "web_search_call",
            "action": {"type": "search", "query": "rain oslo", "sources": [{"url": "https://yr.no"}]},
        },
        ["rain oslo", "https://yr.no"],
    ),
    "file search": (
        {"type": "file_search_call", "queries": ["rain"], "results": [{"filename": "a.txt", "text": "It rains."}]},
        ["rain", "a.txt", "It rains."],
    ),
    "code": (
        {"type": "code_interpreter_call", "code": "print(1)", "outputs": [{"type": "logs", "logs": "one"}]},
        ["print(1)", "one"],
    ),
    "shell": ({"type": "shell_call", "call_id": "c", "action": {"commands": ["ls -l", "pwd"]}}, ["ls -l", "pwd"]),
    "local shell": ({"type": "local_shell_call", "call_id": "c", "action": {"command": ["ls", "-l"]}}, ["ls -l"]),
    "patch": (
        {"type": "apply_patch_call", "operation": {"type": "update_file", "path": "a.py", "diff": "@@ -1 +1 @@"}},
        ["a.py", "@@ -1 +1 @@"],
    ),
    "mcp": (
        {"type": "mcp_call", "server_label": "docs", "name": "find", "arguments": '{"q":1}', "output": "found it"},
        ["docs.find", '{"q":1}', "found it"],
    ),
    "computer": ({"type": "computer_call", "action": {"type": "click", "x": 12, "y": 7}}, ["click", "12"]),
}
CLIENT_ITEMS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "shell output": (
        {
            "type": "shell_call_output",
            "call_id": "c",
            "output": [{"stdout": "a.py", "stderr": "warn", "outcome": {"exit_code": 2}}],
        },
        ["a.py", "warn", "2"],
    ),
    "local shell output": ({"type": "local_shell_call_output", "id": "c", "output": "a.py"}, ["a.py"]),
    "patch output": (
        {"type": "apply_patch_call_output", "call_id": "c", "status": "failed", "output": "no such file"},
        ["failed", "no such file"],
    ),
    "screenshot": (
        {
            "type": "computer_call_output",
            "call_id": "c",
            "output": {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{PNG}"},
        },
        ["screenshot", PNG],
    ),
}
ANTHROPIC_BLOCKS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "search": (
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "rain oslo"}},
        ["rain oslo"],
    ),
    "search results": (
        {
            "type": "web_search_tool_result",
            "tool_use_id": "srvtoolu_1",
            "content": [{"type": "web_search_result", "title": "Yr", "url": "https://yr.no", "encrypted_content": "x"}],
        },
        ["Yr", "https://yr.no"],
    ),
    "page": (
        {
            "type": "web_fetch_tool_result",
            "tool_use_id": "s",
            "content": {
                "type": "web_fetch_result",
                "url": "https://yr.no",
                "content": {
                    "type": "document",
                    "source": {"type": "text", "media_type": "text/plain", "data": "It rains."},
                },
            },
        },
        ["https://yr.no", "It rains."],
    ),
    "code output": (
        {
            "type": "bash_code_execution_tool_result",
            "tool_use_id": "s",
            "content": {"type": "bash_code_execution_result", "stdout": "one", "stderr": "", "return_code": 0},
        },
        ["one", "0"],
    ),
    "mcp result": (
        {"type": "mcp_tool_result", "tool_use_id": "s", "content": [{"type": "text", "text": "found it"}]},
        ["found it"],
    ),
    "failed search": (
        {
            "type": "web_search_tool_result",
            "tool_use_id": "s",
            "content": {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"},
        },
        ["max_uses_exceeded"],
    ),
}
GEMINI_PARTS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "code": ({"executableCode": {"language": "PYTHON", "code": "print(1)"}}, ["print(1)"]),
    "output": ({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "one"}}, ["one"]),
}
INTERACTION_STEPS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "search": (
        {"type": "google_search_call", "id": "s", "arguments": {"queries": ["rain oslo"]}, "signature": "x"},
        ["rain oslo"],
    ),
    "search results": (
        {"type": "google_search_result", "call_id": "s", "result": [{"title": "Yr", "url": "https://yr.no"}]},
        ["Yr", "https://yr.no"],
    ),
    "code": ({"type": "code_execution_call", "id": "s", "arguments": {"code": "print(1)"}}, ["print(1)"]),
    "output": ({"type": "code_execution_result", "call_id": "s", "result": "one"}, ["one"]),
    "mcp": (
        {
            "type": "mcp_server_tool_call",
            "id": "s",
            "server_name": "docs",
            "name": "find",
            "arguments": {"q": "rain"},
        },
        ["docs.find", "rain"],
    ),
    "mcp result": (
        {"type": "mcp_server_tool_result", "call_id": "s", "result": [{"type": "text", "text": "found it"}]},
        ["found it"],
    ),
    "maps result": (
        {"type": "google_maps_result", "call_id": "s", "is_error": True, "result": "no such place"},
        ["Error", "no such place"],
    ),
}
CASES = [
    *(("gemini-interactions", "assistant", *case) for case in INTERACTION_STEPS.values()),
    *(("openai-responses", "assistant", *case) for case in RESPONSES_ITEMS.values()),
    *(("openai-responses", "user", *case) for case in CLIENT_ITEMS.values()),
    *(("anthropic", "assistant", *case) for case in ANTHROPIC_BLOCKS.values()),
    *(("gemini", "assistant", *case) for case in GEMINI_PARTS.values()),
]


@each_case(("origin", "role", "block", "expected"), CASES)
@each_case("target", FORMATS)
def test_a_block_of_another_format_is_sent_as_text(
    origin: str, role: str, block: dict[str, Any], expected: list[str], target: str
) -> None:
    if target == origin:
        return
    messages = (
        Message("user", (Text("Rain?"),)),
        Message(role, (Native(origin, block),)),
        Message("user", (Text("And?"),)),
    )
    request = ModelRequest(model="m", messages=messages)
    data, losses = formats[target].encode_request(request)
    text = data.decode().replace('\\"', '"')
    assert [piece for piece in expected if piece not in text] == []
    assert formats[target].check_request(data) == []
    assert [loss.path for loss in losses] == ["messages[1].parts[0]"]
    assert "sent as text" in losses[0].why


@pytest.mark.parametrize("target", ["openai-chat", "openai-responses", "gemini"])
def test_search_results_in_a_tool_result_are_sent_as_text(target: str) -> None:
    found = {
        "type": "search_result",
        "source": "https://yr.no",
        "title": "Yr",
        "content": [{"type": "text", "text": "It rains."}],
    }
    body = {
        "model": "claude-sonnet-4-5",
        "max_tokens": 10,
        "messages": [
            {"role": "user", "content": "Rain?"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [found]}]},
        ],
    }
    data = formats[target].encode_request(formats["anthropic"].read_request(body)).data.decode()
    assert "It rains." in data
    assert "https://yr.no" in data


@pytest.mark.parametrize("target", FORMATS)
def test_reasoning_of_another_format_is_labelled_text_on_request(target: str) -> None:
    other = "anthropic" if target != "anthropic" else "gemini"
    thinking = Thinking("Let me see.", native={other: {"signature": "x"}})
    messages = (
        Message("user", (Text("Rain?"),)),
        Message("assistant", (thinking, Text("Yes."))),
        Message("user", (Text("?"),)),
    )
    request = ModelRequest(model="m", messages=messages)
    assert b"Let me see." not in formats[target].encode_request(request).data
    data = formats[target].encode_request(request, reasoning_as_text=True).data
    assert b"[earlier reasoning]\\nLet me see.\\n[end of reasoning]" in data
    assert formats[target].check_request(data) == []


def test_reasoning_of_the_same_format_stays_reasoning() -> None:
    own = Thinking("Let me see.", native={"anthropic": {"signature": "proof"}})
    request = ModelRequest(
        model="m", messages=(Message("user", (Text("Rain?"),)), Message("assistant", (own, Text("Yes."))))
    )
    wire = formats["anthropic"]
    assert wire.encode_request(request, reasoning_as_text=True) == wire.encode_request(request)


ODD: list[Any] = [None, 5, 1.5, True, "x", "a\ud800", [], [5], ["x", None], {}, {"type": {}}, {"text": 5}]


def changed(value: Any) -> Iterator[Any]:
    """The value with each of its members, at any depth, replaced by odd ones."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        for inner in (*ODD, *changed(value[key])):
            copy = value.copy()
            copy[key] = inner
            yield copy


def test_malformed_blocks_of_other_formats_do_no_harm() -> None:
    for origin, role, block, _ in CASES:
        for odd in changed(block):
            losses = Losses()
            parts = readable_parts(Native(origin, odd), losses, "y")
            assert all(isinstance(part, Text | Image) for part in parts), (role, odd)
            assert len(losses) == 1
