"""Which format a body looks like: sure, or silent."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.wire.spec import detect_format
from support.corpus import CORPUS

FILES = {
    "openai_chat": "openai-chat",
    "openai_responses": "openai-responses",
    "anthropic_messages": "anthropic",
    "gemini": "gemini",
}


@pytest.mark.parametrize(
    ("body", "guess"),
    [
        ({"messages": [{"role": "user", "content": "hi"}]}, None),
        ({"messages": [], "system": "x"}, "anthropic"),
        ({"messages": [{"role": "tool", "tool_call_id": "a", "content": ""}]}, "openai-chat"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "anthropic"),
        ({"input": "hi"}, "openai-responses"),
        ({"input": [{"role": "user", "content": "hi"}], "tools": []}, "openai-responses"),
        ({"input": "hi", "generation_config": {}}, "gemini-interactions"),
        ({"input": [{"type": "user_input", "content": []}]}, "gemini-interactions"),
        ({"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}]}, "openai-responses"),
        ({"contents": []}, "gemini"),
        ({"messages": [{"role": "tool"}], "system": "x"}, None),
        ({}, None),
        ([], None),
        ({"messages": 3, "tools": 5}, None),
        ({"messages": [1, {"content": [2, {"type": []}]}]}, None),
    ],
)
def test_signs(body: Any, guess: str | None) -> None:
    assert detect_format(body) == guess


@pytest.mark.parametrize("file", FILES)
def test_recorded_bodies_are_never_detected_as_another_format(file: str) -> None:
    path = CORPUS / "recorded" / f"{file}.jsonl"
    requests = [msgspec.json.decode(line)["request"] for line in path.read_bytes().splitlines()]
    wrong = [body for body in requests if detect_format(body) not in (None, FILES[file])]
    assert not wrong
