"""Changes of a conversation, shared by the terminal and the page: rolling back, the system instruction, the notebook, titles."""

from __future__ import annotations

import pytest

from antiphon.errors import AntiphonError, ConversationError, UnknownConversation
from antiphon.history import (
    AgentHistory,
    ModelInputEntry,
    ModelOutputEntry,
    RollbackEntry,
    SetMemoryNotebookEntry,
    SetSystemInstructionEntry,
    SqliteStore,
)
from antiphon_chat.shared.conversations.changes import (
    MAX_TEXT_CHARS,
    MAX_TITLE_CHARS,
    Rollback,
    TextTooLong,
    check_texts,
    clean_title,
    roll_back,
    set_texts,
    set_title,
)


def talked(*questions: str) -> AgentHistory:
    history = AgentHistory()
    for question in questions:
        history.append(ModelInputEntry.of(question))
        history.append(ModelOutputEntry.of(f"Answer to {question}"))
    return history


def test_rolling_back_removes_the_last_message_and_returns_it() -> None:
    history = talked("one", "two")
    assert roll_back(history) == Rollback(version=2, previous=4, message="two")
    assert [entry.sequence_number for entry in history.effective] == [1, 2]
    last = history.entries[-1]
    assert isinstance(last, RollbackEntry)
    assert (last.to, last.reason) == (2, "by the user")


def test_rolling_back_again_removes_the_message_before() -> None:
    history = talked("one", "two")
    roll_back(history)
    assert roll_back(history) == Rollback(version=0, previous=5, message="one")
    assert list(history.effective) == []
    with pytest.raises(ConversationError, match="no message to roll back"):
        roll_back(history)
    assert history.version == 6, "a refused rollback writes nothing"


def test_a_rollback_is_undone_with_the_previous_version() -> None:
    history = talked("one", "two")
    done = roll_back(history, 1)
    assert done == Rollback(version=1, previous=4)
    assert [entry.sequence_number for entry in history.effective] == [1]
    undone = roll_back(history, done.previous)
    assert undone == Rollback(version=4, previous=5)
    assert [entry.sequence_number for entry in history.effective] == [1, 2, 3, 4]


@pytest.mark.parametrize("to", [-1, 5, 99])
def test_a_version_that_does_not_exist_is_refused(to: int) -> None:
    history = talked("one", "two")
    with pytest.raises(AntiphonError):
        roll_back(history, to)
    assert history.version == 4


def test_texts_are_set_once_and_only_if_they_changed() -> None:
    history = AgentHistory()
    set_texts(history, system="Be brief.", memory="Ada likes rain.")
    assert (history.system_instruction, history.memory_notebook) == ("Be brief.", "Ada likes rain.")
    set_texts(history, system="Be brief.", memory="Ada likes rain.")
    set_texts(history)
    assert [type(entry) for entry in history.entries] == [SetSystemInstructionEntry, SetMemoryNotebookEntry]
    set_texts(history, memory="")
    assert (history.system_instruction, history.memory_notebook) == ("Be brief.", "")


@pytest.mark.parametrize("name", ["system", "memory"])
def test_a_text_over_the_limit_is_refused_and_neither_is_written(name: str) -> None:
    texts = {"system": "fits", "memory": "fits", name: "x" * (MAX_TEXT_CHARS + 1)}
    history = AgentHistory()
    with pytest.raises(TextTooLong, match=r"200,001 characters; the limit is 200,000"):
        set_texts(history, **texts)
    assert history.version == 0
    set_texts(history, **{**texts, name: "x" * MAX_TEXT_CHARS})
    assert history.version == 2


def test_absent_texts_are_within_the_limit() -> None:
    check_texts(None, "", "x" * MAX_TEXT_CHARS)
    with pytest.raises(TextTooLong):
        check_texts(None, "x" * (MAX_TEXT_CHARS + 1))


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("  Rain in\n\tOslo ", "Rain in Oslo"),
        ("", ""),
        (" \n ", ""),
        ("奥斯陆\u3000的雨", "奥斯陆 的雨"),
        ("x" * (MAX_TITLE_CHARS + 1), "x" * MAX_TITLE_CHARS),
    ],
)
def test_a_title_is_one_short_line(text: str, title: str) -> None:
    assert clean_title(text) == title


def test_a_title_is_stored_clean(store: SqliteStore) -> None:
    chat = store.create()
    set_title(store, chat.id, " Rain \n in Oslo ")
    assert store.info(chat.id).title == "Rain in Oslo"
    with pytest.raises(UnknownConversation):
        set_title(store, "unknown-id", "Rain")
