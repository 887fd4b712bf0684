"""`AgentHistory` refuses what could not be read again once it is stored."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.errors import ImportFormatError, InvalidEntry, SequenceError, StoreError, WireError
from antiphon.history import AgentHistory, HistoryStore, ModelInputEntry
from antiphon.parts import Text

NOT_TEXT: Any = ["Be brief."]


def test_a_setting_that_is_not_text_is_refused_and_not_written(any_store: HistoryStore) -> None:
    history = any_store.create()
    history.append(ModelInputEntry.of("Hi."))
    for mistake in (
        lambda: history.set_system_instruction(NOT_TEXT),
        lambda: history.set_memory_notebook(NOT_TEXT),
        lambda: history.compact(NOT_TEXT, 1),
        lambda: history.rollback(NOT_TEXT),
    ):
        with pytest.raises(
            InvalidEntry, match=r"wrong type: Expected `(str|int)`, got `array` - at `\$\.\w+`.*\['Be brief\.'\]"
        ):
            mistake()
    assert [entry.kind for entry in any_store.open(history.id).entries] == ["model_input"]


def test_an_input_of_something_else_than_parts_is_refused() -> None:
    five: Any = 5
    with pytest.raises(InvalidEntry, match="not a part: expected text or a part such as Text or Image, got int"):
        ModelInputEntry.of("Hi.", five)
    assert ModelInputEntry.of("Hi.", Text("You.")).content == (Text("Hi."), Text("You."))


def test_a_history_begins_with_entries_of_a_log() -> None:
    text: Any = "Hi."
    with pytest.raises(InvalidEntry, match="a history takes HistoryEntry values, not str"):
        AgentHistory([text])
    with pytest.raises(SequenceError, match=r"entry 0 .* position 1; new entries have no number: append them"):
        AgentHistory([ModelInputEntry.of("Hi.")])


@pytest.mark.parametrize("messages", ["Hi.", b"Hi.", None, 5])
def test_messages_are_a_list(messages: Any) -> None:
    with pytest.raises(WireError, match=r"expected a list of messages or a body, got \w+"):
        AgentHistory.from_messages(messages)


def test_titles_and_tags_are_texts(any_store: HistoryStore) -> None:
    five: Any = 5
    history = any_store.create("Mine", tags=["a", "b"])
    for mistake, words in (
        (lambda: any_store.create(five), "the title must be text, not int"),
        (lambda: any_store.create(tags="ab"), "tags='ab': expected a list of texts"),
        (lambda: any_store.describe(history.id, tags="ab"), "tags='ab': expected a list of texts"),
        (lambda: any_store.describe(history.id, tags=[five]), "the tag must be text, not int"),
    ):
        with pytest.raises(StoreError, match=words):
            mistake()
    assert (any_store.count(), any_store.info(history.id).tags) == (1, ("a", "b"))


def test_an_export_is_read_as_bytes(any_store: HistoryStore) -> None:
    lines: Any = [line.decode() for line in any_store.export_lines(any_store.create().id)]
    with pytest.raises(
        ImportFormatError, match="the export: its lines are str, not bytes; open the file with mode 'rb'"
    ):
        any_store.import_lines(lines, as_new=True)
