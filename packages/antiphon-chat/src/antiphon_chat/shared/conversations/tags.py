"""Pins and tags of conversations. The store keeps them as tags, with the owner in them: owners do not see each other's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from antiphon.errors import ConversationError
from antiphon.history import ConversationInfo, HistoryStore
from antiphon.text import one_line

MAX_TAGS = 20
MAX_TAG_CHARS = 40
_PINNED = "pinned:"
_TAG = "tag:"


def pin_tag(owner: str) -> str:
    """The tag of the conversations that an owner pinned."""
    return f"{_PINNED}{owner}"


def store_tag(owner: str, name: str) -> str:
    """The tag of the conversations that an owner gave the tag `name`."""
    return f"{_TAG}{owner}:{name}"


def is_pinned(info: ConversationInfo, owner: str) -> bool:
    """Whether an owner pinned a conversation."""
    return pin_tag(owner) in info.tags


def tags_of(info: ConversationInfo, owner: str) -> list[str]:
    """The tags an owner gave a conversation."""
    beginning = store_tag(owner, "")
    return [tag.removeprefix(beginning) for tag in info.tags if tag.startswith(beginning)]


def without_pins(tags: Iterable[str]) -> list[str]:
    """The tags without the pins, for a copy."""
    return [tag for tag in tags if not tag.startswith(_PINNED)]


def organize(
    store: HistoryStore,
    info: ConversationInfo,
    owner: str,
    *,
    pinned: bool | None = None,
    tags: Sequence[str] | None = None,
) -> ConversationInfo:
    """Pin a conversation, or set its tags; None leaves them. Raises `ConversationError`."""
    kept = list(info.tags)
    if pinned is not None:
        kept = [tag for tag in kept if tag != pin_tag(owner)] + [pin_tag(owner)] * pinned
    if tags is not None:
        beginning = store_tag(owner, "")
        given = dict.fromkeys(store_tag(owner, name) for name in _clean(tags))
        kept = [*(tag for tag in kept if not tag.startswith(beginning)), *given]
    return store.describe(info.id, tags=kept) if kept != list(info.tags) else info


def _clean(tags: Sequence[str]) -> list[str]:
    names = [one_line(tag) for tag in tags]
    names = [name for name in names if name]
    if len(names) > MAX_TAGS:
        raise ConversationError(f"{len(names)} tags; at most {MAX_TAGS} are possible")
    for name in names:
        if len(name) > MAX_TAG_CHARS or not name.isprintable():
            raise ConversationError(f"not a tag: {name[:60]!r}; expected at most {MAX_TAG_CHARS} printable characters")
    return names
