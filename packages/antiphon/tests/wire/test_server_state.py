"""A request that continues turns stored at a server goes to that server untouched, and elsewhere with a clear loss."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.repair import repair
from antiphon.wire import FORMATS, formats
from antiphon.wire.request import server_state

RESULT: dict[str, dict[str, Any]] = {
    "anthropic": {
        "model": "claude-sonnet-4-5",
        "max_tokens": 100,
        "thread": {"type": "continue", "id": "thread_1"},
        "messages": [
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "rain"}]},
        ],
    },
    "gemini": {
        "cachedContent": "cachedContents/1",
        "contents": [{"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"output": "rain"}}}]}],
    },
    "gemini-interactions": {
        "model": "gemini-3.6-flash",
        "previous_interaction_id": "v1_1",
        "input": [{"type": "function_result", "call_id": "call_1", "result": "rain"}],
    },
    "openai-responses": {
        "model": "gpt-5",
        "conversation": "conv_1",
        "prompt": {"id": "pmpt_1"},
        "input": [{"type": "function_call_output", "call_id": "call_1", "output": "rain"}],
    },
}


@pytest.mark.parametrize("name", RESULT)
def test_its_own_server_gets_it_untouched(name: str) -> None:
    request = formats[name].read_request(RESULT[name])
    assert server_state(request, name) is not None
    fixed, actions = repair(request, name)
    assert fixed is request
    assert actions == []
    assert formats[name].write_request(fixed) == (RESULT[name], [])
    assert formats[name].check_request(RESULT[name]) == []


@pytest.mark.parametrize("name", RESULT)
@pytest.mark.parametrize("target", FORMATS)
def test_another_server_gets_a_clear_loss(name: str, target: str) -> None:
    if name == target:
        return
    request = formats[name].read_request(RESULT[name])
    losses = formats[target].write_request(repair(request, target).request).losses
    state = [loss for loss in losses if f"stored at {name}" in loss.why]
    assert {loss.what for loss in state} >= {server_state(request, name)}
    assert server_state(request, target) is None


def test_the_results_of_an_unknown_call_in_a_later_turn_are_still_repaired() -> None:
    body = RESULT["anthropic"]
    messages = [*body["messages"], {"role": "assistant", "content": "Yes."}, *body["messages"]]
    request = formats["anthropic"].read_request({**body, "messages": messages})
    assert repair(request, "anthropic").request is not request
    assert [found.rule for found in formats["anthropic"].check_request({**body, "messages": messages})] == ["AN-09"]


def test_a_thread_that_does_not_continue_has_no_earlier_turns() -> None:
    body = {**RESULT["anthropic"], "thread": {"type": "create"}}
    request = formats["anthropic"].read_request(body)
    assert server_state(request, "anthropic") is None
    assert repair(request, "anthropic").request is not request
