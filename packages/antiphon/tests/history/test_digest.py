"""The digest chain: a changed, removed or inserted entry is noticed; forks, exports and deletions keep the digests."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.cli import main
from antiphon.errors import ImportFormatError, SequenceError, StoreDamaged
from antiphon.history import AgentHistory, HistoryStore, ModelInputEntry, ModelOutputEntry, SqliteStore
from antiphon.history.codec import row_checksum
from antiphon.history.export import copy_conversation
from antiphon.parts import Image


def written(store: HistoryStore, *texts: str) -> AgentHistory:
    history = store.create("Rain")
    for text in texts:
        history.append(ModelInputEntry.of(text))
    return history


def execute(store: HistoryStore, statement: str, **values: Any) -> None:
    with store._dialect.connection() as db:
        store._dialect.execute(db, statement, **values)


def bodies(store: HistoryStore, conversation: str) -> list[bytes]:
    return [line[:-1] for line in store.export_lines(conversation) if line.startswith(b'{"kind"')]


def test_the_head_is_the_chain_of_the_exported_lines(any_store: HistoryStore) -> None:
    """A few lines compute it from an export."""
    history = written(any_store, "one", "two" * 400, "three")
    digest = bytes(32)
    for body in bodies(any_store, history.id):
        digest = sha256(digest + body).digest()
    found = any_store.verify(history.id)
    assert (found.head, found.entries, found.undigested, found.problem) == (digest.hex(), 3, 0, "")
    assert any_store.digest_at(history.id, 3) == digest.hex()
    assert any_store.verify(any_store.create("empty").id).head == bytes(32).hex()


def test_writers_that_take_turns_write_one_chain(any_store: HistoryStore) -> None:
    first = written(any_store, "one")
    second = any_store.open(first.id)
    second.append(ModelOutputEntry.of("two"))
    first.refresh()
    first.append(ModelInputEntry.of("three"))
    question = ModelInputEntry.of("four")
    any_store.runs.submit(question, kind="chat", conversation=first.id)
    found = any_store.verify(first.id)
    assert (found.entries, found.undigested, found.problem) == (4, 0, "")


CHANGED = b'{"kind":"model_input","sequence_number":2,"timestamp":null,"content":[{"type":"text","text":"forged"}]}'


@pytest.mark.parametrize("has_checksum", [True, False])
def test_a_changed_entry_is_found_even_if_its_checksum_fits(any_store: HistoryStore, has_checksum: bool) -> None:
    history = written(any_store, "one", "two", "three")
    condition = any_store._dialect.entry_at
    number = any_store._log.find(history.id).number
    at = any_store._dialect.read_entries(number, 2, 2)[0][1]
    assert isinstance(at, int)
    checksum = row_checksum(2, at or 0, CHANGED) if has_checksum else None
    execute(
        any_store,
        f"UPDATE entries SET body = :body, checksum = :checksum WHERE {condition}",
        number=number,
        sequence=2,
        body=CHANGED,
        checksum=checksum,
    )
    assert "entry 2 is not the one that was written" in any_store.verify(history.id).problem


def test_removed_entries_at_the_end_are_found_by_the_head(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = str(tmp_path / "chats.db")
    with SqliteStore(place) as store:
        history = written(store, "one", "two", "three")
        noted = store.verify(history.id).head
        execute(store, "DELETE FROM entries WHERE key & 255 = 3")
        assert store.verify(history.id).problem == "", "the rest is a valid chain"
    assert main(["history", "verify", history.id, "--head", noted, "--store", place]) == 1
    assert f"not {noted}" in capsys.readouterr().err


def test_a_fork_has_the_digests_of_its_parent(any_store: HistoryStore) -> None:
    history = written(any_store, "one", "two", "three")
    fork = any_store.fork(history.id, 2)
    assert any_store.verify(fork.id).head == any_store.digest_at(history.id, 2)
    fork.append(ModelInputEntry.of("another"))
    assert any_store.verify(fork.id).problem == ""
    with pytest.raises(SequenceError, match="versions 0 to 3, not 4"):
        any_store.digest_at(history.id, 4)


def test_an_export_carries_the_head_and_an_import_checks_it(any_store: HistoryStore, tmp_path: Path) -> None:
    history = written(any_store, "one", "pay 100", "three")
    history.append(ModelInputEntry.of("look", Image(media_type="image/png", data="A" * 40_000)))
    lines = list(any_store.export_lines(history.id))
    head = msgspec.json.decode(lines[0])["head"]
    assert head == any_store.verify(history.id).head
    with SqliteStore(tmp_path / "other.db") as other:
        taken = other.import_lines(lines)
        assert other.verify(taken.id) == any_store.verify(history.id)
        assert list(other.export_lines(taken.id)) == lines
        with pytest.raises(ImportFormatError, match="changed after it was exported"):
            other.import_lines([line.replace(b"pay 100", b"pay 900") for line in lines], as_new=True)
        assert other.count() == 1
        without = [lines[0].replace(f',"head":"{head}"'.encode(), b""), *lines[1:]]
        assert other.verify(other.import_lines(without, as_new=True).id).head == head, "as earlier versions exported"


def test_a_copy_that_grows_has_the_same_head(any_store: HistoryStore, tmp_path: Path) -> None:
    history = written(any_store, "one")
    with SqliteStore(tmp_path / "other.db") as other:
        copy_conversation(any_store, other, history.id)
        history.append(ModelOutputEntry.of("two"))
        copy_conversation(any_store, other, history.id)
        assert other.verify(history.id) == any_store.verify(history.id)


def test_a_deleted_conversation_leaves_its_id_length_and_head_and_no_word(any_store: HistoryStore) -> None:
    history = written(any_store, "my secret diary")
    head = any_store.verify(history.id).head
    any_store.delete(history.id)
    (left,) = any_store.tombstones()
    assert (left.id, left.entries, left.head) == (history.id, 1, head)
    assert b"Rain" not in msgspec.json.encode(left)


def test_entries_of_an_earlier_version_are_counted_and_the_chain_continues(any_store: HistoryStore) -> None:
    history = written(any_store, "one", "two")
    head = any_store.verify(history.id).head
    execute(any_store, "UPDATE entries SET digest = NULL")
    again = any_store.open(history.id)
    assert any_store.verify(history.id).undigested == 2
    assert any_store.verify(history.id).head == head
    again.append(ModelInputEntry.of("three"))
    found = any_store.verify(history.id)
    assert (found.entries, found.undigested, found.problem) == (3, 2, "")


def test_a_damaged_entry_without_a_digest_is_named_and_its_conversation_can_be_deleted(any_store: HistoryStore) -> None:
    history = written(any_store, "one", "two")
    execute(any_store, "UPDATE entries SET digest = NULL, checksum = 1")
    for compute in (
        lambda: any_store.digest_at(history.id, 2),
        lambda: list(any_store.export_lines(history.id)),
    ):
        with pytest.raises(StoreDamaged, match=f"entry 1 of conversation {history.id} is damaged"):
            compute()
    any_store.delete(history.id)
    (left,) = any_store.tombstones()
    assert (left.id, left.head) == (history.id, "")


def test_a_missing_row_at_the_end_of_a_piece_is_found(any_store: HistoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.history.sql.log._BATCH", 2)
    history = written(any_store, "one", "two", "three")
    is_second = "key & 4294967295 = 2" if isinstance(any_store, SqliteStore) else "sequence = 2"
    execute(any_store, f"DELETE FROM entries WHERE {is_second}")
    for read in (any_store.verify, lambda name: list(any_store.export_lines(name))):
        with pytest.raises(StoreDamaged, match=f"entry 2 of conversation {history.id} is damaged: its row is missing"):
            read(history.id)


def test_the_command_line_verifies_all_and_lists_the_deleted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(tmp_path / "chats.db")
    with SqliteStore(place) as store:
        good, gone = written(store, "one"), written(store, "two")
        bad = written(store, "three", "four")
        head = store.verify(good.id).head
        store.delete(gone.id)
        number = store._log.find(bad.id).number
        execute(store, "UPDATE entries SET digest = :zero WHERE key = :key", zero=bytes(32), key=(number << 32) + 1)
    assert main(["history", "verify", "--store", place]) == 1
    shown = capsys.readouterr()
    assert f"{head}  ok" in shown.out
    assert f"{bad.id}: entry 1 is not the one that was written" in shown.err
    assert main(["history", "verify", good.id, "--head", head.upper(), "--store", place]) == 0
    assert main(["history", "verify", good.id, "--head", bytes(32).hex(), "--at", "0", "--store", place]) == 0
    assert main(["history", "verify", "--head", head, "--store", place]) == 1
    assert "--head needs a conversation" in capsys.readouterr().err
    assert main(["history", "list", "--deleted", "--store", place]) == 0
    assert gone.id in capsys.readouterr().out
