"""The contract of a store, as checks that any store can run: `STORE_CHECKS`.

A store gives an `AgentHistory` for each conversation, with a `Journal` that makes its entries durable. Each check gets a function
that opens the store: every call opens the same data once more, as another process would.

    @pytest.mark.parametrize("check", STORE_CHECKS, ids=lambda check: check.__name__)
    def test_my_store(check, tmp_path):
        check(lambda: MyStore(tmp_path))

A check raises `AssertionError` that says what is missing. What a conversation stored today looks like is in `docs/log-format.md`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Protocol, TypeAlias

from antiphon.errors import (
    AntiphonError,
    InvalidEntry,
    SequenceError,
    StoreDamaged,
    UnknownConversation,
    WriterConflict,
)
from antiphon.history import (
    AgentHistory,
    ApprovalRequestedEntry,
    DebugLogEntry,
    HistoryEntry,
    HumanDecisionEntry,
    LiveContextInjectedEntry,
    ModelInputEntry,
    ModelOutputEntry,
    Origin,
    SetMemoryNotebookEntry,
    SetSystemInstructionEntry,
    ToolCallFinishedEntry,
    ToolCallResultsEntry,
    ToolCallStartedEntry,
    decode_entry,
    encode_entry,
)
from antiphon.parts import Document, Image, Text, Thinking, ToolCallRequest, ToolCallResult

__all__ = ["STORE_CHECKS", "ConversationStore", "StoreOpener"]

_CALL = ToolCallRequest("weather", "call_1", '{"city": "Ålesund"}')
_RESULT = ToolCallResult.of(_CALL, "Heavy rain 🌧", Document("text/plain", text="line\u2028line"))
_NEWER = (
    b'{"kind":"dream","sequence_number":1,"timestamp":"2031-01-01T00:00:00Z","of":{"sheep":[1,2.50,1e3]}}',
    b'{"kind":"model_input","content":[{"type":"text","text":"hi"}],"mood":"good","sequence_number":2}',
)


class ConversationStore(Protocol):
    """What a store must be able to do at least. One with `close()` is closed after use."""

    def create(self) -> AgentHistory:
        """A new, empty conversation."""

    def open(self, conversation: str, /) -> AgentHistory:
        """The conversation of that id. Raises `UnknownConversation`."""


StoreOpener: TypeAlias = Callable[[], ConversationStore]


@contextmanager
def _opened(open_store: StoreOpener) -> Iterator[ConversationStore]:
    store = open_store()
    try:
        yield store
    finally:
        close: Callable[[], object] | None = getattr(store, "close", None)
        if close is not None:
            close()


def _reread(open_store: StoreOpener, conversation: str) -> AgentHistory:
    with _opened(open_store) as store:
        return store.open(conversation)


def _assert_stored(open_store: StoreOpener, history: AgentHistory, what: str) -> None:
    """Assert that the conversation, opened again, has the same entries, byte for byte."""
    written = [encode_entry(entry) for entry in history.entries]
    read = [encode_entry(entry) for entry in _reread(open_store, history.id).entries]
    for number, (one, other) in enumerate(zip(written, read, strict=False), 1):
        assert one == other, f"{what}: entry {number} was {one[:200]!r} and is {other[:200]!r} when it is opened again"
    assert len(written) == len(read), f"{what}: {len(written)} entries were appended and {len(read)} are there"


def _assert_refused(error: type[AntiphonError], action: Callable[[], object], what: str) -> None:
    try:
        action()
    except error:
        return
    raise AssertionError(f"{what}: expected {error.__name__}")


def every_kind_of_entry_is_kept(open_store: StoreOpener) -> None:
    """What is appended is there when the conversation is opened again: every kind, its order, its numbers and times."""
    kinds: tuple[HistoryEntry, ...] = (
        SetSystemInstructionEntry("Be kind.\nAnd brief."),
        SetMemoryNotebookEntry("Lives in Oslo."),
        ModelInputEntry.of("今天下雨吗？\u2028", Image("image/png", "aGk=")),
        LiveContextInjectedEntry("It is noon.", 3),
        ModelOutputEntry(
            (Thinking("Rain …"), Text("Let me look.", native={"acme": {"x": [1, None, 0.5]}}), _CALL),
            "tool_calls",
            Origin("acme", "openai-chat", "rain-1"),
        ),
        ApprovalRequestedEntry(("call_1",), "it asks the sky"),
        HumanDecisionEntry("call_1", "approve", ""),
        ToolCallStartedEntry("weather", "call_1"),
        ToolCallFinishedEntry(_RESULT),
        ToolCallResultsEntry((_RESULT,)),
        DebugLogEntry("note", ""),
        ModelOutputEntry.of("It rains."),
    )
    with _opened(open_store) as store:
        history = store.create()
        for entry in kinds:
            history.append(entry)
        history.rollback(2, "that was not it")
        history.append(ModelInputEntry.of("Again?"))
        history.compact("The user asked about rain.", 13)
        _assert_stored(open_store, history, "every kind")
        read = _reread(open_store, history.id)
        assert [entry.sequence_number for entry in read.entries] == list(range(1, 16)), "entries are numbered from 1"
        assert read.effective == history.effective, "what counts is another after the conversation is opened again"
        assert (read.system_instruction, read.memory_notebook) == ("Be kind.\nAnd brief.", "Lives in Oslo.")


def an_append_is_durable_when_it_returns(open_store: StoreOpener) -> None:
    """Each entry can be read by another process as soon as `append` has returned, with the writer still open."""
    with _opened(open_store) as store:
        history = store.create()
        for number in range(5):
            history.append(ModelInputEntry.of(f"message {number}"))
            _assert_stored(open_store, history, f"after append {number + 1}")


def large_entries_are_kept(open_store: StoreOpener) -> None:
    """An entry of a megabyte, and large media, twice."""
    image = Image("image/png", "QUJD" * 60_000)
    with _opened(open_store) as store:
        history = store.create()
        history.append(ModelInputEntry.of("rain " * 200_000))
        history.append(ModelInputEntry.of(image, "the same again", image))
        _assert_stored(open_store, history, "large entries")


def entries_of_a_newer_version_are_kept(open_store: StoreOpener) -> None:
    """A kind or a field that this version does not know stays as it is, byte for byte."""
    with _opened(open_store) as store:
        history = store.create()
        for stored in _NEWER:
            history.append(decode_entry(stored))
        history.append(ModelInputEntry.of("and on"))
        read = [encode_entry(entry) for entry in _reread(open_store, history.id).entries]
        assert read[:2] == list(_NEWER), f"entries of a newer version were changed: {read[:2]}"


def what_cannot_be_stored_is_refused(open_store: StoreOpener) -> None:
    """Text that is not Unicode is an `InvalidEntry`, and nothing is written."""
    with _opened(open_store) as store:
        history = store.create()
        history.append(ModelInputEntry.of("fine"))
        _assert_refused(InvalidEntry, lambda: history.append(ModelInputEntry.of("a\ud800b")), "a lone surrogate")
        _assert_stored(open_store, history, "after a refused entry")


def a_second_writer_is_refused(open_store: StoreOpener) -> None:
    """Of two writers at the same version one wins. The other gets a `WriterConflict`, has written nothing, and can go on."""
    with _opened(open_store) as store, _opened(open_store) as elsewhere:
        first = store.create()
        second = elsewhere.open(first.id)
        first.append(ModelInputEntry.of("I was faster"))
        _assert_refused(WriterConflict, lambda: second.append(ModelInputEntry.of("so was I")), "a second writer")
        assert second.version == 0, "a refused append must leave the history as it was"
        assert list(second.refresh()) == list(first.entries), "refresh gives what the other writer appended"
        second.append(ModelInputEntry.of("now me"))
        _assert_stored(open_store, second, "two writers in turn")


def writers_at_the_same_time_lose_nothing(open_store: StoreOpener) -> None:
    """Four writers that refresh after a conflict: every accepted entry is there once, in one order."""
    with _opened(open_store) as store:
        conversation = store.create().id
    accepted: list[str] = []

    def write(name: str) -> None:
        with _opened(open_store) as own:
            history = own.open(conversation)
            for number in range(12):
                while True:
                    try:
                        history.append(DebugLogEntry(name, str(number)))
                        break
                    except WriterConflict:
                        history.refresh()
                accepted.append(f"{name} {number}")

    threads = [threading.Thread(target=write, args=(f"writer {n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    read = [
        f"{e.category} {e.message}" for e in _reread(open_store, conversation).entries if isinstance(e, DebugLogEntry)
    ]
    assert len(accepted) == 48, f"a writer stopped after {len(accepted)} of 48 entries in all"
    assert sorted(read) == sorted(accepted), f"{len(accepted)} appends were accepted and {len(read)} entries are there"
    for name in {one.rsplit(" ", 1)[0] for one in read}:
        numbers = [int(one.rsplit(" ", 1)[1]) for one in read if one.startswith(f"{name} ")]
        assert numbers == sorted(numbers), f"the entries of {name} are not in the order of its appends: {numbers}"


def readers_get_whole_entries(open_store: StoreOpener) -> None:
    """Who reads while another writes gets the first entries, each of them whole."""
    texts = [f"{number} {'rain ' * 40_000}" for number in range(12)]
    with _opened(open_store) as store:
        conversation = store.create().id

    def write() -> None:
        with _opened(open_store) as own:
            history = own.open(conversation)
            for text in texts:
                history.append(ModelInputEntry.of(text))

    writer = threading.Thread(target=write)
    writer.start()
    read = list[HistoryEntry]()
    try:
        is_over = False
        while not is_over:
            is_over = not writer.is_alive()
            try:
                read = list(_reread(open_store, conversation).entries)
            except StoreDamaged as error:
                raise AssertionError(f"a reader got a part of an entry that is being written: {error}") from error
            whole = [ModelInputEntry.of(text).content for text in texts[: len(read)]]
            assert [entry.content for entry in read if isinstance(entry, ModelInputEntry)] == whole, (
                "a reader got others"
            )
    finally:
        writer.join()
    assert len(read) == len(texts), f"{len(read)} of {len(texts)} entries are there when the writer has ended"


def conversations_are_apart(open_store: StoreOpener) -> None:
    """Two conversations have different ids, and none has an entry of the other."""
    with _opened(open_store) as store:
        first, second = store.create(), store.create()
        assert len({"", first.id, second.id}) == 3, "every conversation has an id of its own"
        for number in range(3):
            first.append(ModelInputEntry.of(f"a {number}"))
            second.append(ModelInputEntry.of(f"b {number}"))
        _assert_stored(open_store, first, "the first of two")
        _assert_stored(open_store, second, "the second of two")
        _assert_refused(UnknownConversation, lambda: store.open("01zzzzzzzzzzzzzzzzzzzzzzzz"), "an unknown id")


def a_fork_starts_the_same_and_goes_its_own_way(open_store: StoreOpener) -> None:
    """A fork has the first entries of its parent, is stored, and neither sees what is appended to the other."""
    with _opened(open_store) as store:
        history = store.create()
        for text in ("a", "b", "c"):
            history.append(ModelInputEntry.of(text))
        fork = history.fork(2)
        assert fork.id != history.id, "a fork is a conversation of its own"
        assert list(fork.entries) == list(history.entries[:2]), "a fork starts with the first entries of its parent"
        fork.append(ModelInputEntry.of("d"))
        history.append(ModelInputEntry.of("e"))
        _assert_stored(open_store, fork, "the fork")
        _assert_stored(open_store, history, "its parent")
        _assert_refused(SequenceError, lambda: history.fork(5), "a fork at a version that does not exist")


def times_are_kept(open_store: StoreOpener) -> None:
    """An entry that has a time keeps it, to the microsecond; any other gets that of its append."""
    then = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    with _opened(open_store) as store:
        history = store.create()
        before = datetime.now(UTC)
        history.append(DebugLogEntry("a", "b", timestamp=then))
        history.append(DebugLogEntry("a", "b"))
        first, second = _reread(open_store, history.id).entries
        assert first.timestamp == then, f"{then} was stored as {first.timestamp}"
        assert second.timestamp is not None, "an entry without a time gets that of its append"
        assert before <= second.timestamp <= datetime.now(UTC), f"{second.timestamp} is not the time of its append"


STORE_CHECKS: tuple[Callable[[StoreOpener], None], ...] = (
    every_kind_of_entry_is_kept,
    an_append_is_durable_when_it_returns,
    large_entries_are_kept,
    entries_of_a_newer_version_are_kept,
    what_cannot_be_stored_is_refused,
    a_second_writer_is_refused,
    writers_at_the_same_time_lose_nothing,
    readers_get_whole_entries,
    conversations_are_apart,
    a_fork_starts_the_same_and_goes_its_own_way,
    times_are_kept,
)
"""Every check, to be run one by one."""
