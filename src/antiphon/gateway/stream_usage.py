"""Usage that the gateway asked for and the client did not: `include_usage` of Chat Completions.

A host of that format reports the usage of a stream only if the request asks for it, in one more chunk without choices. For a
client whose tokens are counted the gateway asks, and takes the chunk out again.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from antiphon.gateway.model_field import body_fields
from antiphon.gateway.relay import SameVoice
from antiphon.wire.delta import ModelOutputDelta
from antiphon.wire.sse import SseReader

_OPTIONS = "stream_options"
_INCLUDE = "include_usage"
_may_hold_chunk = re.compile(rb'"choices"\s*:\s*\[\s*\]').search
_ends_of_events = re.compile(rb"(?<=\n\n)|(?<=\n\r\n)|(?<=\r\r)")


def asks_for_usage(body: bytes) -> bool:
    """Whether a body of Chat Completions asks for the usage of its stream."""
    return _options(body_fields(body)).get(_INCLUDE) is True


def asking_for_usage(body: bytes) -> bytes:
    """The same body, asking for it."""
    fields = body_fields(body)
    options = {**_options(fields), _INCLUDE: True}
    fields[_OPTIONS] = msgspec.Raw(msgspec.json.encode(options))
    return msgspec.json.encode(fields)


class UsageHidingVoice(SameVoice):
    """The upstream's own events without the chunk of usage."""

    def hear(self, piece: bytes, deltas: list[ModelOutputDelta]) -> bytes:
        return without_usage(super().hear(piece, deltas))


def without_usage(events: bytes) -> bytes:
    """Whole events without chunks that say nothing but usage."""
    if not _may_hold_chunk(events):
        return events
    return b"".join(event for event in _ends_of_events.split(events) if not _is_usage_alone(event))


def _is_usage_alone(event: bytes) -> bool:
    if not _may_hold_chunk(event):
        return False
    for read in SseReader().feed(event):
        try:
            chunk = msgspec.json.decode(read.data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        if not isinstance(chunk, dict) or chunk.get("choices") or not chunk.get("usage"):
            return False
    return True


def _options(fields: dict[str, msgspec.Raw]) -> dict[str, Any]:
    options = msgspec.json.decode(fields[_OPTIONS]) if _OPTIONS in fields else None
    return options if isinstance(options, dict) else {}
