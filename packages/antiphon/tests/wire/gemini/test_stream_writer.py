"""Gemini streams, written from the deltas of any format, and read by Google's own SDK."""

from __future__ import annotations

import re
from typing import Any

import pytest

from antiphon.parts import Text
from antiphon.wire.delta import (
    Failed,
    PartStarted,
    Started,
)
from antiphon.wire.output import ProviderError
from support.wire_formats import GEMINI
from wire.gemini.bodies import streams
from wire.gemini.official_sdk import Server
from wire.gemini.stream_helpers import failure, read, rewritten
from wire.stream_grammar import FOREIGN

StreamWriter = GEMINI.stream_writer


def understood(server: Server, data: bytes) -> tuple[Any, ...]:
    """What the SDK makes of a stream: its text, its calls, its usage."""
    server.stream(data)
    parts_seen: list[tuple[bool, str]] = []
    calls, last = [], None
    for last in server.client.models.generate_content_stream(model="gemini-2.5-flash", contents="x"):
        for candidate in last.candidates or ():
            for part in (candidate.content and candidate.content.parts) or ():
                if part.text:
                    if parts_seen and parts_seen[-1][0] is bool(part.thought):
                        parts_seen[-1] = (parts_seen[-1][0], parts_seen[-1][1] + part.text)
                    else:
                        parts_seen.append((bool(part.thought), part.text))
                if part.function_call:
                    calls.append(server.plain(part.function_call))
    assert last is not None
    finish = last.candidates[0].finish_reason if last.candidates else None
    return parts_seen, calls, finish, server.plain(last.usage_metadata) if last.usage_metadata else None


def test_the_sdk_understands_every_kind_of_stream(capsys: pytest.CaptureFixture[str]) -> None:
    kinds: dict[Any, bytes] = {}
    for _name, data in streams():
        if data.startswith(b"data:") and not failure(read(data)) and b"partialArgs" not in data:
            kinds[
                frozenset(re.findall(rb'"\w+":', data)), re.findall(rb'finishReason": ?(\S)', data)[-1:] == [b'"']
            ] = data
    count = 0
    with Server() as server:
        for data in kinds.values():
            try:
                theirs = understood(server, data)
            except (
                ValueError,
                AttributeError,
            ):  # the SDK refuses what was recorded: an enum as a number, a signature made up by hand
                continue
            assert understood(server, rewritten(read(data))) == theirs
            count += 1
    assert count > len(kinds) * 0.8
    with capsys.disabled():
        print(f"\nthe SDK understood our Gemini streams as the originals, one of each of {count} kinds")


def test_the_sdk_reads_a_stream_of_another_model() -> None:
    with Server() as server:
        parts_seen, calls, finish, usage = understood(server, rewritten(FOREIGN))
    assert parts_seen == [(True, "Hm."), (False, "Let me look.Second candidate!No.")]
    assert [(call["id"], call["args"]) for call in calls[:2]] == [
        ("call:1", {"city": "Oslo"}),
        ("call_2", {"city": "Bergen"}),
    ]
    assert finish == "STOP"
    assert usage["thoughts_token_count"] == 1


def test_the_sdk_raises_a_failure() -> None:
    with Server() as server:
        server.stream(
            rewritten([Started(), PartStarted(0, Text("a")), Failed(ProviderError("busy", "overloaded", 503))])
        )
        with pytest.raises(Exception, match="busy"):
            list(server.client.models.generate_content_stream(model="gemini-2.5-flash", contents="x"))
