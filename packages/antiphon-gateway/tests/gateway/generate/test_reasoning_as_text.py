"""`reasoning_as_text` of a provider: the reasoning of another provider reaches its model as labelled text."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.rig import rig

LABELLED = b"[earlier reasoning]\\nLet me see.\\n[end of reasoning]"
HISTORY: dict[str, Any] = {
    "max_tokens": 100,
    "messages": [
        {"role": "user", "content": "Rain?"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Let me see.", "signature": "c2ln"},
                {"type": "text", "text": "Yes."},
            ],
        },
        {"role": "user", "content": "Sure?"},
    ],
}


@pytest.mark.parametrize("is_on", [True, False])
def test_reasoning_of_another_provider(is_on: bool) -> None:
    settings: Any = {"reasoning_as_text": True} if is_on else {}
    with rig(**settings) as gateway, gateway.client() as client:
        for target in ("openai-chat", "openai-responses", "gemini"):
            assert client.ask("anthropic", f"to-{target}", HISTORY, streams=False).status == 200
            (received,) = gateway.upstreams[target].received
            assert (LABELLED in received.body) is is_on
            assert (b"Let me see." in received.body) is is_on
        assert client.ask("anthropic", "to-anthropic", HISTORY, streams=False).status == 200
        (received,) = gateway.upstreams["anthropic"].received
        assert LABELLED not in received.body
        assert b'"thinking":"Let me see."' in received.body
        assert [upstream.refused for upstream in gateway.upstreams.values() if upstream.refused] == []
