"""The scan of a request agrees with its reader: what it lets pass unread is only text, calls and results in a legal order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from antiphon.parts import Text, ToolCallRequest, ToolCallResult
from antiphon.repair.repairer import is_legal
from antiphon.wire import ModelRequest, formats
from support.corpus import client_requests, recorded_requests

SCANNED = ("openai-chat", "anthropic")


def bodies(name: str) -> Iterator[dict[str, Any]]:
    """Recorded bodies, each also with a message that is missing, repeated or moved, and with a field that changed its value."""
    chance = random.Random(7)
    recorded = (record["request"] for record in recorded_requests(name))
    for body in [*recorded, *client_requests(name)]:
        yield body
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            continue
        place = chance.randrange(len(messages))
        without = [*messages[:place], *messages[place + 1 :]]
        yield {**body, "messages": without}
        yield {**body, "messages": [*messages, messages[place]]}
        yield {**body, "messages": [messages[place], *without]}
        values: list[Any] = [None, 1, "x", [], {}, [{"type": "text", "text": "x"}], [{"type": "image"}]]
        for value in values:
            changed = messages[place]
            if isinstance(changed, dict):
                key = chance.choice([*changed, "reasoning", "cache_control"])
                yield {**body, "messages": [*messages[:place], {**changed, key: value}, *messages[place + 1 :]]}
            yield {
                **body,
                chance.choice([*body, "thinking", "service_tier", "reasoning_effort", "stream_options"]): value,
            }


def has_only_text(request: ModelRequest) -> bool:
    parts = [part for message in request.messages for part in message.parts]
    results = [part for part in parts if isinstance(part, ToolCallResult)]
    return all(isinstance(part, Text | ToolCallRequest | ToolCallResult) for part in parts) and all(
        isinstance(inner, Text) for result in results for inner in result.content
    )


@pytest.mark.parametrize("name", SCANNED)
def test_a_request_that_passes_unread_is_in_order_for_the_reader(name: str) -> None:
    wire, passed = formats[name], 0
    for body in bodies(name):
        data = msgspec.json.encode(body)
        outline = wire.scan_request(data)
        if outline is None:
            continue
        passed += 1
        request = wire.read_request(data)
        asked = (request.model, request.stream, request.service_tier)
        assert (outline.model, outline.stream, outline.service_tier) == asked, body
        given = body.get("stream_options") if name == "openai-chat" else None
        assert (outline.native or {}).get(name, {}).get("stream_options") == given, body
        assert (outline.reasoning is None) == (request.reasoning is None), body
        assert has_only_text(request), body
        assert is_legal(request.messages, wire.spec.sequence_rule), body
    assert passed > 500


@pytest.mark.parametrize("name", SCANNED)
def test_a_body_that_is_not_a_request_is_left_to_the_reader(name: str) -> None:
    scan = formats[name].scan_request
    for data in (b"", b"{", b"[]", b"{}", b'{"messages": 1}', b'{"messages": [1]}', b'{"messages": [], "model": 1}'):
        assert scan(data) is None, data
    assert scan(b'{"messages": [{"role": "user", "content": "a\xff"}]}') is None
