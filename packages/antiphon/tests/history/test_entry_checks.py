"""What `append` refuses: values of a wrong type, second results; and kinds of entries that an application adds."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from antiphon.errors import InvalidEntry
from antiphon.history import (
    AgentHistory,
    DebugLogEntry,
    EntryMetadata,
    HistoryEntry,
    HistoryStore,
    HumanDecisionEntry,
    ModelInputEntry,
    ModelOutputEntry,
    OpaqueEntry,
    ToolCallResultsEntry,
    register_entry,
)
from antiphon.history.export import lines_of
from antiphon.parts import Text, Thinking, ToolCallRequest, ToolCallResult

WRONG: list[tuple[Any, str]] = [
    (ModelInputEntry((Text(5),)), r"Expected `str`, got `int` - at `\$\.content\[0\]\.text`"),  # type: ignore[arg-type]
    (ModelInputEntry("Hi."), "Expected `array`, got `str`"),  # type: ignore[arg-type]
    (ModelInputEntry(({"type": "text", "text": "Hi."},)), r"content\[0\] is dict"),  # type: ignore[arg-type]
    (ModelInputEntry((Thinking("Hm."),)), "Invalid value 'thinking'"),  # type: ignore[arg-type]
    (ModelOutputEntry((Text(None),)), "Expected `str`, got `null`"),  # type: ignore[arg-type]
    (ToolCallResultsEntry(("done",)), "Expected `object`, got `str`"),  # type: ignore[arg-type]
    (HumanDecisionEntry("a", "maybe"), "Invalid enum value 'maybe'"),  # type: ignore[arg-type]
    (DebugLogEntry("a", "b", metadata=EntryMetadata(duration="long")), "metadata.duration"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("is_rolled_back", [False, True])
@pytest.mark.parametrize(("entry", "words"), WRONG)
def test_a_value_of_a_wrong_type_is_refused_and_not_written(
    any_store: HistoryStore, entry: HistoryEntry, words: str, is_rolled_back: bool
) -> None:
    for history in (AgentHistory(), any_store.create()):
        history.append(ModelInputEntry.of("Hi."))
        if is_rolled_back:
            history.rollback(0)
        before = list(history.entries)
        with pytest.raises(InvalidEntry, match=words):
            history.append(entry)
        assert list(history.entries) == before
        if history.id:
            assert list(any_store.open(history.id).entries) == before


def test_append_returns_the_entry_as_it_is_read_back(any_store: HistoryStore) -> None:
    history = any_store.create()
    given: list[HistoryEntry] = [
        ModelInputEntry([Text("a list, not a tuple")]),  # type: ignore[arg-type]
        DebugLogEntry("a", "b", metadata=EntryMetadata(extra={"pair": (1, 2)}, duration=1)),
    ]
    appended = [history.append(entry) for entry in given]
    assert appended[0] == any_store.open(history.id).entries[0]
    assert list(any_store.open(history.id).entries) == appended


def called(history: AgentHistory, *ids: str) -> list[ToolCallRequest]:
    calls = [ToolCallRequest("look", call_id) for call_id in ids]
    history.append(ModelOutputEntry.of(*calls))
    return calls


def results(*calls: ToolCallRequest) -> ToolCallResultsEntry:
    return ToolCallResultsEntry(tuple(ToolCallResult.of(call, "seen") for call in calls))


def test_a_second_result_of_a_call_is_refused(any_store: HistoryStore) -> None:
    history = any_store.create()
    first, second = called(history, "a", "b")
    history.append(results(first))
    for late in (results(first), results(first, second), results(second, second)):
        with pytest.raises(InvalidEntry, match=r"a second result for answered calls: '(a|b)'"):
            history.append(late)
    history.append(results(second))
    history.append(ModelInputEntry.of("And now?"))
    with pytest.raises(InvalidEntry, match="a second result for answered calls: 'a'"):
        history.append(results(first))
    again, twin = called(history, "a", "a")  # some models give an id twice
    history.append(results(again))
    history.append(results(twin))
    with pytest.raises(InvalidEntry, match="a second result for answered calls: 'a'"):
        history.append(results(again))


def test_a_result_that_was_rolled_back_can_be_given_again() -> None:
    history = AgentHistory()
    (one,) = called(history, "a")
    history.append(results(one))
    history.rollback(1)
    history.append(results(one))
    with pytest.raises(InvalidEntry, match="second result"):
        history.append(results(one))


def test_an_imported_history_with_second_results_is_read(any_store: HistoryStore) -> None:
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Look."},
        {
            "role": "assistant",
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "a", "content": "seen"},
        {"role": "tool", "tool_call_id": "a", "content": "seen again"},
    ]
    assert "seen again" in str(AgentHistory.from_messages(messages).to_messages()[-1]), "repair keeps it as text"
    source = AgentHistory()
    (one,) = called(source, "a")
    source.append(results(one))
    doubled = [*source.entries, ToolCallResultsEntry(results(one).results, sequence_number=3)]
    copy = any_store.import_lines(lines_of(doubled))
    assert any_store.open(copy.id).version == 3


class Directive(HistoryEntry, frozen=True, tag="acme.directive"):
    """A kind of an application."""

    goal: str
    steps: tuple[str, ...] = ()


class Stray(HistoryEntry, frozen=True, tag="acme.stray"):
    """A kind that is not registered."""

    goal: str


def test_a_registered_kind_is_read_back_as_itself(any_store: HistoryStore, caplog: pytest.LogCaptureFixture) -> None:
    assert register_entry(Directive) is Directive
    register_entry(Directive)  # a module that is loaded again
    history = any_store.create()
    history.append(ModelInputEntry.of("Plan it."))
    stored = history.append(Directive("arrive", ("go", "stay")))
    assert any_store.open(history.id).entries[1] == stored
    exported = list(any_store.export_lines(history.id))
    copy = any_store.import_lines(exported, as_new=True)
    assert any_store.open(copy.id).entries[1] == stored
    assert not caplog.records
    with pytest.raises(InvalidEntry, match="Expected `str`, got `int`"):
        history.append(Directive(5))  # type: ignore[arg-type]
    assert [message["role"] for message in history.to_messages()] == ["user"]


def test_an_unregistered_kind_is_reported_once(any_store: HistoryStore, caplog: pytest.LogCaptureFixture) -> None:
    from antiphon.history import codec

    codec._warned.clear()
    history = any_store.create()
    with caplog.at_level(logging.WARNING, "antiphon.history"):
        history.append(Stray("wander"))
        history.append(Stray("on"))
    assert [record.getMessage() for record in caplog.records if "'acme.stray'" in record.getMessage()] == [
        "entries of the kind 'acme.stray' are read back as OpaqueEntry, and no model sees them: register the class with "
        "antiphon.history.register_entry, or upgrade if a newer version wrote them"
    ]
    caplog.clear()
    codec._warned.clear()
    with caplog.at_level(logging.WARNING, "antiphon.history"):
        assert {type(entry) for entry in any_store.open(history.id).entries} == {OpaqueEntry}
    assert len(caplog.records) == 1


class Untagged(HistoryEntry, frozen=True):
    goal: str


class Taken(HistoryEntry, frozen=True, tag="acme.directive"):
    goal: str


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Untagged, r'its tag \'Untagged\' has no dot; give it one of your own, tag="acme.Untagged"'),
        (DebugLogEntry, "has no dot"),
        (Taken, "Directive has the tag 'acme.directive' already"),
        (str, "expected a subclass of HistoryEntry"),
        (Directive("arrive"), "expected a subclass of HistoryEntry"),
    ],
)
def test_a_class_that_cannot_be_registered_is_refused_with_the_reason(kind: Any, words: str) -> None:
    register_entry(Directive)
    with pytest.raises(InvalidEntry, match=words):
        register_entry(kind)
