"""How an entry is stored in the file: deflated where that is smaller, recognised by its first byte."""

from __future__ import annotations

import random
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from antiphon.errors import StoreDamaged, StoreError
from antiphon.history import ModelInputEntry, ModelOutputEntry, SqliteStore, encode_entry
from antiphon.history.codec import PACK_FROM, PACKED_MARK, pack, row_body, row_checksum, unpack
from antiphon.history.sql.schema import APPLICATION_ID, FILE_SCHEMA, SCHEMA_V1, SQLITE_MIGRATIONS
from antiphon.history.sql.sqlite_file import SqliteFile
from support.store_rows import table

PROSE = "What is read is what was written, and what was written is kept as it was, word for word. " * 12
CHINESE = "今天奥斯陆下雨吗？" + "".join(random.Random(5).choices([chr(one) for one in range(0x4E00, 0x9000)], k=400))


def change(path: Path, *statements: str, given: tuple[object, ...] = ()) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for statement in statements:
            db.execute(statement, given)


@given(st.binary(max_size=3 * PACK_FROM) | st.text(max_size=2_000).map(lambda text: b'{"text":"%s"}' % text.encode()))
@example(b"")
@example(b"{" * PACK_FROM)
@example(b" {" + b" " * PACK_FROM)
def test_a_compressed_body_is_read_back(body: bytes) -> None:
    stored = pack(body)
    assert body.startswith(PACKED_MARK) or row_body((1, 0, stored, row_checksum(1, 0, stored))) == body
    assert len(stored) <= len(body)


def test_a_body_that_does_not_get_smaller_is_not_compressed() -> None:
    noise = b"{" + random.Random(7).randbytes(PACK_FROM)
    assert pack(noise) is noise


@pytest.mark.parametrize(
    ("text", "word", "is_deflated"),
    [
        ("Is it raining?", "raining", False),
        (PROSE, "word", True),
        (PROSE[:300], "read", False),
        (CHINESE, "下雨", True),
    ],
)
def test_a_body_is_deflated_where_that_is_smaller(store: SqliteStore, text: str, word: str, is_deflated: bool) -> None:
    history = store.create()
    entry = history.append(ModelOutputEntry.of(text))
    ((body,),) = table(store, "SELECT body FROM entries")
    whole = encode_entry(entry)
    assert body.startswith(PACKED_MARK if is_deflated else b"{")
    assert (len(body) < len(whole)) is is_deflated
    fork = store.fork(history.id)
    assert fork.entries == store.open(history.id).entries == (entry,)
    assert table(store, "SELECT count(DISTINCT body) FROM entries") == [(1,)]  # a fork copies it as it lies there
    assert list(store.export_lines(fork.id))[-1] == whole + b"\n"
    with SqliteStore(":memory:") as other:
        taken = other.import_lines(store.export_lines(history.id))
        assert list(other.export_lines(taken.id)) == list(store.export_lines(history.id))
    assert len(store.search(word)) == 2


def test_without_a_title_a_long_question_is_the_title(store: SqliteStore) -> None:
    store.create().append(ModelInputEntry.of(PROSE))
    assert [info.title for info in store.list()] == [PROSE[:59] + "…"]


def test_a_damaged_stream_keeps_no_other_entry_from_being_found(
    store: SqliteStore, caplog: pytest.LogCaptureFixture
) -> None:
    broken = store.create()
    broken.append(ModelInputEntry.of(PROSE))
    change(Path(store.path), "UPDATE entries SET body = substr(body, 1, 40), checksum = NULL")
    store.create("Snow").append(ModelInputEntry.of("What was written about snow?"))
    assert [hit.conversation.title for hit in store.search("written")] == ["Snow"]
    assert [info.title for info in store.list()] == ["Snow", ""]
    assert "entry 1 of conversation number 1 is damaged: it does not end where" in caplog.text


def test_a_stream_that_would_never_end_is_given_up() -> None:
    bomb = zlib.compress(b"{" + b" " * 1_000_000, 9, 12)
    assert bomb.startswith(PACKED_MARK)
    assert len(unpack(bomb, 1_000_001)) == 1_000_001
    with pytest.raises(StoreDamaged, match="at most 1,000,000 bytes"):
        unpack(bomb, 1_000_000)
    for damaged in (bomb[:-1], bomb + b" "):
        with pytest.raises(StoreDamaged, match="does not end"):
            unpack(damaged)


def make_older(path: Path) -> None:
    """The file as the version with schema 2 would have made it."""
    change(
        path,
        "ALTER TABLE entries DROP COLUMN checksum",
        "ALTER TABLE entries DROP COLUMN digest",
        "DROP TABLE tombstones",
        "ALTER TABLE conversations DROP COLUMN imported",
        "DROP TABLE lease_clock",
        "DROP INDEX latest_touched",
        "ALTER TABLE conversations DROP COLUMN touched",
        "PRAGMA user_version = 2",
    )


def test_a_file_of_the_second_schema_is_read_as_it_is_and_then_brought_up(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    with SqliteStore(path) as store:
        first, second = store.create("first"), store.create("second")
        first.append(ModelInputEntry.of("later"))
        entry = second.append(ModelInputEntry.of(PROSE))
        first.append(ModelInputEntry.of("last"))
    make_older(path)
    change(path, "UPDATE entries SET body = ? WHERE key = (2 << 32) + 1", given=(encode_entry(entry),))
    before = path.read_bytes()
    with SqliteStore(path, read_only=True) as store:
        assert [info.title for info in store.list()] == ["first", "second"]
        assert store.open("last").id == first.id
        assert store.open(second.id).entries == (entry,)
        assert len(store.search("written")) == 1
    assert path.read_bytes() == before
    with SqliteStore(path) as store:
        assert [info.title for info in store.list()] == ["first", "second"]
        history = store.open(second.id)
        history.append(ModelInputEntry.of(PROSE))
        assert [info.title for info in store.list()] == ["second", "first"]
        assert table(store, "SELECT substr(body, 1, 1) FROM entries WHERE key > 2 << 32") == [(b"{",), (PACKED_MARK,)]
        assert store.open(second.id).entries == history.entries
        assert table(store, "PRAGMA user_version") == [(FILE_SCHEMA,)]


def test_an_older_program_reports_a_newer_file(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    with SqliteStore(path) as store:
        store.create().append(ModelInputEntry.of(PROSE))
    with pytest.raises(StoreError, match=r"written by a newer Antiphon \(schema 7, this one knows 2\)"):
        SqliteFile(
            str(path),
            tables=SCHEMA_V1,
            migrations={1: SQLITE_MIGRATIONS[1]},
            application_id=APPLICATION_ID,
            schema=2,
            timeout=1,
            read_only=False,
            create=False,
        )
