"""Large media, kept out of the rows of the log and stored once, by the hash of their content.

In a stored entry the base64 `data` of an image, sound or document of more than `INLINE_LIMIT` characters is replaced by
`sha256:<hex>`, which no base64 text can be. `extract_media` does that and `restore_media` undoes it; in memory, entries are
always complete.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import TypeVar

from msgspec import structs

from antiphon.errors import InvalidEntry, StoreDamaged
from antiphon.history.codec import encode_entry
from antiphon.history.entries import (
    HistoryEntry,
    ModelInputEntry,
    ModelOutputEntry,
    OpaqueEntry,
    ToolCallFinishedEntry,
    ToolCallResultsEntry,
)
from antiphon.parts import Audio, Document, Image, ToolCallResult

P = TypeVar("P")
C = TypeVar("C", ModelInputEntry, ModelOutputEntry, ModelInputEntry | ModelOutputEntry, ToolCallResult)

INLINE_LIMIT = 64 * 1024
"""Media of more characters than this are stored apart."""

DIGEST_PREFIX = "sha256:"

REFERENCE = b'"data":"sha256:'
"""How a stored entry refers to an attachment."""
_NAME = re.compile(rb'"(sha256:[0-9a-f]{64})"')


def digest(data: str) -> str:
    """The name under which `data` is stored."""
    return DIGEST_PREFIX + hashlib.sha256(data.encode()).hexdigest()


def verify_attachment(name: str, data: object, place: str) -> str:
    """The data of an attachment as it was read from the store at `place`. Raises `StoreDamaged` if it is not what was stored."""
    if not isinstance(data, str) or digest(data) != name:
        raise StoreDamaged(f"{place}: the attachment {name} is damaged: its content has another digest")
    return data


def extract_media(entry: HistoryEntry, whole: bytes | None = None) -> tuple[bytes, dict[str, str]]:
    """The stored form of `entry`, and the attachments it refers to, by name. `whole` is the entry as JSON, if it is known."""
    stored = encode_entry(entry) if whole is None else whole
    if len(stored) <= INLINE_LIMIT and REFERENCE not in stored:
        return stored, {}
    attachments: dict[str, str] = {}

    def extract(data: str) -> str:
        if data.startswith(DIGEST_PREFIX):
            raise InvalidEntry(f"the data of a media part must be base64, not {data[:20]!r}…")
        if len(data) <= INLINE_LIMIT:
            return data
        name = digest(data)
        attachments[name] = data
        return name

    changed = _map_media(entry, extract)
    return (encode_entry(changed) if attachments else stored), attachments


def restore_media(entry: HistoryEntry, load: Callable[[str], str]) -> HistoryEntry:
    """The whole entry: every reference replaced by what `load` gives for it."""
    return _map_media(entry, lambda data: load(data) if data.startswith(DIGEST_PREFIX) else data)


def references(entry: HistoryEntry) -> set[str]:
    """The attachments a stored entry names. Of one this version cannot read: all it seems to name."""
    if isinstance(entry, OpaqueEntry):
        return {name.decode() for name in _NAME.findall(entry.raw)}
    names: list[str] = []

    def collect(data: str) -> str:
        names.append(data)
        return data

    _map_media(entry, collect)
    return {name for name in names if name.startswith(DIGEST_PREFIX)}


def _map_media(entry: HistoryEntry, change: Callable[[str], str]) -> HistoryEntry:
    if isinstance(entry, ModelInputEntry | ModelOutputEntry):
        return _with_content(entry, change)
    if isinstance(entry, ToolCallResultsEntry):
        return structs.replace(entry, results=tuple(_with_content(result, change) for result in entry.results))
    if isinstance(entry, ToolCallFinishedEntry):
        return structs.replace(entry, result=_with_content(entry.result, change))
    return entry


def _with_content(value: C, change: Callable[[str], str]) -> C:
    if not any(isinstance(part, Image | Audio | Document) for part in value.content):
        return value
    return structs.replace(value, content=tuple(_replace_data(part, change) for part in value.content))


def _replace_data(part: P, change: Callable[[str], str]) -> P:
    return structs.replace(part, data=change(part.data)) if isinstance(part, Image | Audio | Document) else part
