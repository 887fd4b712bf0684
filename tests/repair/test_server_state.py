"""Requests whose earlier turns the server has: their first results answer calls that are not in the request."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.repair import repair
from antiphon.repair.server_state import server_history_field
from antiphon.wire import formats

RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny"}]}
WORDS = {"role": "user", "content": [*RESULT["content"], {"type": "text", "text": "And tomorrow?"}]}
CONTINUE = {"type": "continue", "previous_message_id": "msg_1"}
CACHED = {"functionResponse": {"name": "weather", "response": {"result": "sunny"}}}
CASES: list[tuple[str, dict[str, Any], str]] = [
    ("anthropic", {"max_tokens": 9, "thread": CONTINUE, "messages": [RESULT]}, "thread"),
    ("anthropic", {"max_tokens": 9, "thread": CONTINUE, "messages": [WORDS]}, "thread"),
    (
        "gemini",
        {"cachedContent": "cachedContents/1", "contents": [{"role": "user", "parts": [CACHED]}]},
        "cachedContent",
    ),
    (
        "openai-responses",
        {
            "conversation": "conv_1",
            "input": [{"type": "function_call_output", "call_id": "call_1", "output": "sunny"}],
        },
        "conversation",
    ),
]


@pytest.mark.parametrize(("name", "body", "field"), CASES)
def test_results_of_calls_that_the_server_has_are_left_alone(name: str, body: dict[str, Any], field: str) -> None:
    request = formats[name].read_request({"model": "m", **body} if name != "gemini" else body)
    assert server_history_field(request, name) == field
    repaired, actions = repair(request, name)
    assert repaired is request
    assert actions == []


@pytest.mark.parametrize("thread", [None, {"type": "create"}, "continue"])
def test_results_without_a_call_are_repaired_where_the_server_has_none(thread: object) -> None:
    body = {"model": "m", "max_tokens": 9, "messages": [RESULT], **({"thread": thread} if thread else {})}
    request = formats["anthropic"].read_request(body)
    assert server_history_field(request, "anthropic") == ""
    assert [action.kind for action in repair(request, "anthropic").actions] == ["kept_as_text"]


def test_only_the_first_message_may_answer_calls_of_the_server() -> None:
    messages = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hello."}, RESULT]
    body = {"model": "m", "max_tokens": 9, "thread": CONTINUE, "messages": messages}
    request = formats["anthropic"].read_request(body)
    assert repair(request, "anthropic").request is not request
