"""An entry as the page gets it: the stored JSON, with its place, and large media by reference as they are stored."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable
from typing import Any

import msgspec

from antiphon.conversation.turn import EntryPosition
from antiphon.history import (
    HistoryEntry,
    ModelInputEntry,
    ModelOutputEntry,
    ToolCallFinishedEntry,
    ToolCallResultsEntry,
)
from antiphon.history.attachments import INLINE_LIMIT, digest, extract_media
from antiphon.history.transcript import entry_lines
from antiphon.parts import Audio, Document, Image, ToolCallResult

_EXCERPT = 200


def entry_json(entry: HistoryEntry, place: EntryPosition, *, is_effective: bool = True) -> bytes:
    """The entry as JSON."""
    stored = extract_media(entry)[0].rstrip()
    facts = msgspec.json.encode({"turn": place.turn, "round": place.round, "effective": is_effective})
    return stored[:-1] + b"," + facts[1:]


def entry_row(entry: HistoryEntry, place: EntryPosition, *, is_effective: bool, tokens: int | None) -> dict[str, Any]:
    """The entry as a row of the timeline."""
    metadata = entry.metadata
    said = " ".join(" ".join(entry_lines(entry))[: _EXCERPT * 4].split())
    return {
        "sequence_number": entry.sequence_number,
        "kind": entry.kind,
        "timestamp": entry.timestamp,
        "turn": place.turn,
        "round": place.round,
        "effective": is_effective,
        "seconds": metadata.duration if metadata else None,
        "tokens": tokens,
        "excerpt": said if len(said) <= _EXCERPT else said[: _EXCERPT - 1] + "…",
    }


def media_in(entries: Iterable[HistoryEntry], name: str) -> tuple[str, bytes] | None:
    """The media type and the bytes of the attachment of that name, if an entry has it."""
    for entry in entries:
        for part in _parts(entry):
            if (
                isinstance(part, Image | Audio | Document)
                and len(part.data) > INLINE_LIMIT
                and digest(part.data) == name
            ):
                return part.media_type, b64decode(part.data)
    return None


def _parts(entry: HistoryEntry) -> Iterable[Any]:
    if isinstance(entry, ModelInputEntry | ModelOutputEntry):
        return entry.content
    results: tuple[ToolCallResult, ...] = ()
    if isinstance(entry, ToolCallResultsEntry):
        results = entry.results
    elif isinstance(entry, ToolCallFinishedEntry):
        results = (entry.result,)
    return (part for result in results for part in result.content)
