"""`copy_conversation`: one conversation from a store to another, be they files or servers, as often as you like.

A conversation travels as its export does, byte for byte, under its own id, and arrives whole or not at all. One that is there
already is compared: the same entries are left as they are, and if it has grown since, what is new is appended. So a copy that was
broken off, or made while people went on talking, is finished by making it again. What differs is never touched.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Literal, TypeAlias

from msgspec import Struct

from antiphon.errors import ConversationExists, UnknownConversation
from antiphon.history.store import ConversationInfo, HistoryStore

_NO_ENTRY = (b'{"antiphon":', b'{"attachment":')

Came: TypeAlias = Literal["copied", "grown", "same", "ahead", "differs", "gone"]


class Copied(Struct, frozen=True):
    """What came of a copy: `entries` were written."""

    conversation: str
    came: Came
    entries: int = 0
    why: str = ""


def copy_conversation(source: HistoryStore, target: HistoryStore, conversation: str) -> Copied:
    """Bring a conversation from `source` to `target`."""
    info = source.info(conversation)
    there = _there(target, info.id)
    if there is None:
        try:
            taken = target.import_lines(source.export_lines(info.id), source=f"conversation {info.id}")
            return Copied(info.id, "copied", taken.version)
        except ConversationExists:  # somebody else copies it at the same time
            there = target.info(info.id)
    return _compared(source, target, info.id, there.version)


def _there(target: HistoryStore, conversation: str) -> ConversationInfo | None:
    try:
        return target.info(conversation)
    except UnknownConversation:
        return None


def _compared(source: HistoryStore, target: HistoryStore, conversation: str, known: int) -> Copied:
    pairs = zip_longest(_entries(source, conversation), _entries(target, conversation))
    version = 0
    for version, (ours, theirs) in enumerate(pairs, 1):
        if ours is None:
            return Copied(conversation, "ahead", why=f"there it has {known} entries, here {version - 1}")
        if theirs is None:
            break
        if ours != theirs:
            return Copied(conversation, "differs", why=f"from entry {version} on it says something else there")
    else:
        return Copied(conversation, "same")
    history = target.open(conversation)
    new = source.open(conversation).entries[history.version :]
    for entry in new:
        history.append(entry)
    return Copied(conversation, "grown", len(new))


def _entries(store: HistoryStore, conversation: str) -> list[bytes]:
    """The entries as they are stored; attachments need no comparing, for entries name them by their hash."""
    return [line for line in store.export_lines(conversation) if not line.startswith(_NO_ENTRY)]
