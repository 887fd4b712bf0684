"""`stream_options` of a Chat Completions client decides whether its stream has a usage chunk, whichever target answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from antiphon.wire import FORMATS
from antiphon.wire.streams.sse import SseReader
from antiphon_gateway.access.client_keys import hash_key
from antiphon_gateway.config.settings import ClientKeySettings
from gateway.rig import Rig, rig

BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "Is it raining?"}]}
BROKEN: dict[str, Any] = {
    "messages": [*BODY["messages"], {"role": "tool", "tool_call_id": "call_1", "content": "sunny"}]
}
"""A result without a call: it is repaired, so the body is written again."""
OPTIONS: list[tuple[dict[str, Any], bool]] = [
    ({}, False),
    ({"stream_options": None}, False),
    ({"stream_options": {}}, False),
    ({"stream_options": {"include_usage": False}}, False),
    ({"stream_options": {"include_usage": True}}, True),
]
KEYS = {"plain": "sk-plain", "metered": "sk-metered"}


@pytest.fixture(scope="module")
def gateway() -> Iterator[Rig]:
    keys = [
        ClientKeySettings(name="plain", key=hash_key(KEYS["plain"])),
        ClientKeySettings(name="metered", key=hash_key(KEYS["metered"]), tokens_per_minute=1_000_000),
    ]
    with rig(keys=keys) as running:
        yield running


def usage_chunks(stream: bytes) -> list[dict[str, Any]]:
    """The chunks that carry usage. As OpenAI writes them, they have no choices."""
    events = [event.data for event in SseReader().feed(stream) if event.data != b"[DONE]"]
    return [chunk for chunk in map(msgspec.json.decode, events) if chunk.get("usage")]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("body", [BODY, BROKEN], ids=["legal", "repaired"])
@pytest.mark.parametrize("target", FORMATS)
def test_a_usage_chunk_comes_if_it_was_requested(gateway: Rig, target: str, body: dict[str, Any], key: str) -> None:
    for options, is_requested in OPTIONS:
        gateway.clear()
        with gateway.client(KEYS[key]) as client:
            got = client.ask("openai-chat", f"to-{target}", {**body, **options}, streams=True)
        assert got.status == 200, got.body
        assert got.body.rstrip().endswith(b"data: [DONE]")
        chunks = usage_chunks(got.body)
        assert len(chunks) == is_requested, (options, chunks)
        if is_requested:
            assert chunks[0]["choices"] == []
            assert chunks[0]["usage"]["total_tokens"] == 18
