"""Branches of a conversation: alternatives that are kept side by side."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from antiphon.errors import ConversationError
from antiphon.history import HistoryStore, ModelInputEntry, ModelOutputEntry, SqliteStore
from antiphon_chat.shared.conversations.branches import BranchPoint, branch_points, make_branch, question_before
from antiphon_chat.shared.conversations.tags import pin_tag


@pytest.fixture
def store(tmp_path: Path) -> Iterator[HistoryStore]:
    with SqliteStore(tmp_path / "chats.db") as opened:
        yield opened


def talk(store: HistoryStore, *texts: str) -> str:
    history = store.create("Talk", tags=["owner:ada", pin_tag("ada")])
    for number, text in enumerate(texts):
        history.append(ModelOutputEntry.of(text) if number % 2 else ModelInputEntry.of(text))
    return str(history.id)


def test_a_branch_and_its_parent_are_alternatives_of_each_other(store: HistoryStore) -> None:
    parent = talk(store, "Hi.", "Hello.", "And?", "So.")
    first, second = (make_branch(store, parent, 3).id for _ in range(2))
    for position, conversation in enumerate((parent, first, second)):
        assert branch_points(store, conversation) == [BranchPoint(3, (parent, first, second), position)]
    assert store.info(first).tags == ("owner:ada", f"branch:{parent}"), "the owner stays, the pin does not"


def test_branches_of_branches_are_seen_from_the_last_one(store: HistoryStore) -> None:
    parent = talk(store, "Hi.", "Hello.", "And?", "So.")
    child = make_branch(store, parent, 3)
    child.append(ModelOutputEntry.of("Different."))
    late = make_branch(store, parent, 1)
    grandchild = make_branch(store, child.id, 4)
    assert [(point.at, point.current) for point in branch_points(store, grandchild.id)] == [(3, 1), (4, 1)]
    assert [point.at for point in branch_points(store, parent)] == [1, 3]
    assert [(point.at, point.conversations) for point in branch_points(store, late.id)] == [(1, (parent, late.id))]


def test_a_plain_fork_of_a_branch_is_a_conversation_of_its_own(store: HistoryStore) -> None:
    parent = talk(store, "Hi.", "Hello.")
    branch = make_branch(store, parent, 1)
    fork = store.fork(branch.id)
    assert branch_points(store, fork.id) == []
    assert len(branch_points(store, parent)[0].conversations) == 2


def test_a_deleted_parent_ends_the_line(store: HistoryStore) -> None:
    parent = talk(store, "Hi.", "Hello.")
    branch = make_branch(store, parent, 1)
    store.delete(parent)
    assert branch_points(store, branch.id) == []


def test_the_question_of_an_answer(store: HistoryStore) -> None:
    history = store.open(talk(store, "Hi.", "Hello.", "And?", "So."))
    assert (question_before(history), question_before(history, 2)) == (3, 1)
    with pytest.raises(ConversationError, match="no message"):
        question_before(store.create())
