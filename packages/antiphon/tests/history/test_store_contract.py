"""The test kit for stores: ours pass it, a small one by others does, and each check fails for a store with its fault."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from antiphon.errors import UnknownConversation, WriterConflict
from antiphon.history import AgentHistory, HistoryEntry, SqliteStore, decode_entry, encode_entry
from antiphon.history.location import open_store as open_at
from antiphon.ids import new_id
from antiphon.testing.store_contract import STORE_CHECKS, ConversationStore, StoreOpener
from support.waiting import until

Check = Callable[[StoreOpener], None]
every_check = pytest.mark.parametrize("check", STORE_CHECKS, ids=lambda check: check.__name__)


class FolderStore:
    """A store in a folder: a file of JSON Lines for each conversation. `fault` is what is wrong with it."""

    def __init__(self, folder: Path, fault: str = "") -> None:
        self.folder = folder
        self.fault = fault

    def create(self) -> AgentHistory:
        conversation = "same" if self.fault == "one conversation" else new_id()
        (self.folder / conversation).touch()
        return self.open(conversation)

    def open(self, conversation: str, /) -> AgentHistory:
        if not (self.folder / conversation).exists() and self.fault != "creates what is unknown":
            raise UnknownConversation(f"{self.folder} has no conversation {conversation!r}")
        journal = FolderJournal(self, conversation)
        return AgentHistory(journal.read(0), journal=journal)


class FolderJournal:
    def __init__(self, store: FolderStore, conversation_id: str) -> None:
        self.store = store
        self.conversation_id = conversation_id
        self.file = store.folder / conversation_id
        self.unwritten: list[bytes] = []
        self.half_read = store.folder / "half a line was read"

    def write(self, entry: HistoryEntry, stored: bytes) -> None:
        fault = self.store.fault
        with self.file.open("rb+") as file:
            if fault != "no lock":
                fcntl.flock(file, fcntl.LOCK_EX)
            expected = len(file.readlines()) + len(self.unwritten) + 1
            if entry.sequence_number != expected and fault != "no lock":
                raise WriterConflict(
                    f"{self.conversation_id}: entry {expected} is the next, not {entry.sequence_number}"
                )
            body = stored
            if fault == "rewrites numbers":
                body = body.replace(b"2.50", b"2.5")
            if fault == "cuts long bodies":
                body = body if len(body) < 65_536 else encode_entry(decode_entry(body.replace(b"rain ", b"", 1)))
            if fault == "forgets microseconds":
                body = body.replace(b".678901Z", b"Z")
            self.unwritten.append(body + b"\n")
            if fault == "reads without the lock" and not self.half_read.exists():
                file.write(self.unwritten[0][:100])
                file.flush()
                until(self.half_read.exists)
                self.unwritten[0] = self.unwritten[0][100:]
            if fault != "writes late" or len(self.unwritten) == 3:
                file.writelines(self.unwritten)
                self.unwritten.clear()

    def read(self, after: int) -> Iterator[HistoryEntry]:
        with self.file.open("rb") as file:
            if self.store.fault != "reads without the lock":
                fcntl.flock(file, fcntl.LOCK_SH)  # a line that is being written is not whole
            data = file.read()
        if data and not data.endswith(b"\n"):
            self.half_read.touch()
        lines = data.splitlines()
        if self.store.fault == "loses an entry":
            lines = lines[:4]
        return iter([decode_entry(line) for line in lines[after:]])

    def fork(self, at: int) -> AgentHistory:
        history = self.store.create()
        for entry in [*self.read(0)][: at + 1 if self.store.fault == "forks too much" else at]:
            history.append(entry)
        return history


@every_check
def test_sqlite_keeps_the_contract(check: Check, tmp_path: Path) -> None:
    check(lambda: SqliteStore(tmp_path / "chats.db"))


@every_check
def test_postgresql_keeps_the_contract(check: Check, postgres: str) -> None:
    check(lambda: open_at(postgres))


@every_check
def test_a_store_by_others_keeps_the_contract(check: Check, tmp_path: Path) -> None:
    check(lambda: FolderStore(tmp_path))


@pytest.mark.parametrize(
    ("fault", "found_by"),
    [
        ("loses an entry", "every_kind_of_entry_is_kept"),
        ("writes late", "an_append_is_durable_when_it_returns"),
        ("cuts long bodies", "large_entries_are_kept"),
        ("rewrites numbers", "entries_of_a_newer_version_are_kept"),
        ("no lock", "a_second_writer_is_refused"),
        ("reads without the lock", "readers_get_whole_entries"),
        ("one conversation", "conversations_are_apart"),
        ("creates what is unknown", "conversations_are_apart"),
        ("forks too much", "a_fork_starts_the_same_and_goes_its_own_way"),
        ("forgets microseconds", "times_are_kept"),
    ],
)
def test_each_fault_is_found(fault: str, found_by: str, tmp_path: Path) -> None:
    def opened() -> ConversationStore:
        return FolderStore(tmp_path, fault)

    (check,) = (check for check in STORE_CHECKS if check.__name__ == found_by)
    with pytest.raises((AssertionError, OSError)):
        check(opened)
