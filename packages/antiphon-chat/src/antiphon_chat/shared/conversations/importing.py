"""A conversation out of a file: an export of ours, or messages of a provider's format.

It becomes a new conversation with an id of its own and the tags given here; those of the file are dropped, because they say whose
a conversation is. An import never brings an approval (law L11): the store marks what was imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from antiphon.conversation.interchange import read_messages
from antiphon.errors import ImportFormatError
from antiphon.history import AgentHistory, HistoryStore
from antiphon.history.export import ExportHead, head_line, lines_of, read_export
from antiphon.history.store import ConversationInfo
from antiphon.json_text import read_json
from antiphon.repair.messages import format_of_messages
from antiphon.wire.spec import detect_format


def import_conversation(store: HistoryStore, data: bytes, name: str, tags: Sequence[str] = ()) -> ConversationInfo:
    """Store the conversation in a file of that name. Raises `ImportFormatError` or `WireError`; nothing is stored then."""
    value = read_json(data)  # None if it has several lines: an export
    if isinstance(value, list) or (isinstance(value, dict) and "antiphon" not in value):
        lines: Iterable[bytes] = _lines_of_messages(value, name, tags)
    else:
        lines = _retagged(data, name, tags)
    return store.import_lines(lines, source=name, as_new=True)


def _lines_of_messages(value: Any, name: str, tags: Sequence[str]) -> Iterable[bytes]:
    found = detect_format(value) if isinstance(value, dict) else format_of_messages(value, "openai-chat")
    if found is None:
        raise ImportFormatError(f"{name}: neither an export of Antiphon nor messages of a known format")
    history = AgentHistory()
    for entry in read_messages(value, found).entries:
        history.append(entry)
    if not history.version:
        raise ImportFormatError(f"{name}: there are no messages in it")
    return lines_of(history.entries, head=ExportHead.new(name.rpartition(".")[0] or name, tags))


def _retagged(data: bytes, name: str, tags: Sequence[str]) -> Iterable[bytes]:
    lines = data.splitlines(keepends=True)
    head = next(iter(read_export(lines, name)))
    assert isinstance(head, ExportHead), "an export begins with it"
    return [head_line(msgspec.structs.replace(head, tags=tuple(tags))), *lines[1:]]
