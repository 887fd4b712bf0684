"""Branches: forks made to try a message or an answer again. Both versions are kept, and a person switches between them.

A branch is a fork with the tag `branch:<parent>`. At the point where it leaves its parent, the parent and all branches from there
are alternatives of each other. Other forks are conversations of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from antiphon.errors import ConversationError, UnknownConversation
from antiphon.history import AgentHistory, ConversationInfo, HistoryStore, ModelInputEntry
from antiphon_chat.shared.conversations.tags import without_pins

_BRANCH = "branch:"
_MAX_SIBLINGS = 50
_MAX_DEPTH = 50


class BranchPoint(Struct, frozen=True):
    """Where conversations differ: after entry `at`. `current` is the position of the one that was asked about."""

    at: int
    conversations: tuple[str, ...]
    current: int


def make_branch(store: HistoryStore, conversation: str, at: int) -> AgentHistory:
    """A branch that leaves the conversation after entry `at`."""
    history = store.fork(conversation, at)
    info = store.info(history.id)
    kept = [tag for tag in without_pins(info.tags) if not tag.startswith(_BRANCH)]
    store.describe(history.id, tags=[*kept, f"{_BRANCH}{info.parent}"])
    return history


def question_before(history: AgentHistory, answer: int | None = None) -> int:
    """The number of the message that an answer is for, by default of the last one. Raises `ConversationError`."""
    for entry in reversed(history.effective):
        if isinstance(entry, ModelInputEntry) and (answer is None or entry.sequence_number < answer):
            return entry.sequence_number
    raise ConversationError("there is no message to answer again")


def is_branch(info: ConversationInfo) -> bool:
    """Whether a conversation is a branch of its parent."""
    return info.parent is not None and f"{_BRANCH}{info.parent}" in info.tags


def branch_points(store: HistoryStore, conversation: str) -> list[BranchPoint]:
    """Where this conversation has alternatives: its own branches, and the branches it is one of, up to the first ancestor."""
    points: dict[int, BranchPoint] = {}
    for at, parent, member in _lineage(store, conversation):
        children = [info for info in _children(store, parent) if at is None or info.forked_at == at]
        for point in {info.forked_at or 0 for info in children}:
            siblings = sorted((info for info in children if info.forked_at == point), key=lambda info: info.created)
            members = (parent, *(info.id for info in siblings))
            points.setdefault(point, BranchPoint(point, members, members.index(member) if member in members else 0))
    return sorted(points.values(), key=lambda point: point.at)


def _lineage(store: HistoryStore, conversation: str) -> Iterator[tuple[int | None, str, str]]:
    """The conversation itself (all its branches count), and each ancestor with the point where the line leaves it."""
    yield None, conversation, conversation
    for _ in range(_MAX_DEPTH):
        try:
            info = store.info(conversation)
            if info.parent is None or not is_branch(info):
                return
            store.info(info.parent)
        except UnknownConversation:  # the parent was deleted
            return
        yield info.forked_at, info.parent, conversation
        conversation = info.parent


def _children(store: HistoryStore, parent: str) -> list[ConversationInfo]:
    listed = store.list(limit=_MAX_SIBLINGS, tag=f"{_BRANCH}{parent}")
    return [info for info in listed if info.parent == parent]
