"""Rows that changed on the disk: never another text, always one error that names the conversation and the entry."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from antiphon.errors import StoreDamaged
from antiphon.history import (
    AgentHistory,
    HistoryStore,
    ModelInputEntry,
    ModelOutputEntry,
    SqliteStore,
    ToolCallResultsEntry,
    encode_entry,
)
from antiphon.history.codec import decode_rows, pack, row_checksum, row_entry, to_microseconds
from antiphon.history.sql.postgres import PostgresStore
from antiphon.history.sql.schema import FILE_SCHEMA
from antiphon.parts import Image, ToolCallRequest, ToolCallResult
from support.store_rows import table

LONG = "What is read is what was written, and what was written is stored as it was written, word for word. " * 12


def flips(body: bytes) -> Iterator[bytes]:
    """The body with each of its bits flipped in turn."""
    for place in range(len(body)):
        for bit in range(8):
            flipped = bytearray(body)
            flipped[place] ^= 1 << bit
            yield bytes(flipped)


def change(store: HistoryStore, statement: str, *given: object) -> None:
    """Change rows beneath a store; values stand as `?`."""
    if isinstance(store, PostgresStore):
        with store._connections.connection() as db:
            db.execute(statement.replace("?", "%s").encode(), given)
        return
    with closing(sqlite3.connect(store.path, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous = OFF")
        db.execute(statement, given)


def body_of_last(store: HistoryStore) -> bytes:
    order = "sequence" if isinstance(store, PostgresStore) else "key"
    ((body, _),) = table(store, f"SELECT body, {order} FROM entries ORDER BY {order} DESC LIMIT 1")
    return bytes(body)


def assert_damaged(store: HistoryStore, history: AgentHistory, entry: int = 1) -> str:
    """Opening and exporting fail with one clear error; lists and searches still work."""
    names = rf"entry {entry} of conversation {history.id} is damaged: "
    with pytest.raises(StoreDamaged, match=names) as damage:
        store.open(history.id)
    with pytest.raises(StoreDamaged, match=names):
        list(store.export_lines(history.id))
    assert history.id in [info.id for info in store.list()]
    store.search("pay")
    return str(damage.value)


def test_no_flipped_bit_of_a_short_entry_is_read(any_store: HistoryStore) -> None:
    history = any_store.create("payments")
    history.append(ModelInputEntry.of("pay 100"))
    body = body_of_last(any_store)
    assert len(body) < 512
    silent = []
    for flipped in flips(body):
        change(any_store, "UPDATE entries SET body = ?", flipped)
        try:
            any_store.open(history.id)
            silent.append(flipped)
        except StoreDamaged:
            pass
    assert len(body) * 8 >= 400
    assert not silent
    assert_damaged(any_store, history)


@given(st.sampled_from(["pay 100", "", "付 100 元", LONG]) | st.text(max_size=80), st.data())
def test_no_flipped_bit_of_any_row_is_read(text: str, data: st.DataObject) -> None:
    at_noon = datetime(2026, 11, 16, 12, tzinfo=UTC)
    entry = structs.replace(ModelOutputEntry.of(text), sequence_number=1, timestamp=at_noon)
    key, at, body = 1, to_microseconds(at_noon), pack(encode_entry(entry))
    checksum = row_checksum(key, at, body)
    assert row_entry((key, at, body, checksum)) == entry
    assert decode_rows([(key, at, body, checksum)], key) == ([encode_entry(entry)], [entry])
    bit = data.draw(st.integers(0, len(body) * 8 - 1))
    flipped = bytearray(body)
    flipped[bit // 8] ^= 1 << bit % 8
    number = data.draw(st.integers(0, 31))
    for damaged in (
        (key, at, bytes(flipped), checksum),
        (key, at, body[: len(body) // 2], checksum),
        (key, at ^ 1 << number, body, checksum),
        (key ^ 1 << number, at, body, checksum),
        (key, at, body, checksum ^ 1 << number),
    ):
        with pytest.raises(StoreDamaged):
            row_entry(damaged)
        assert decode_rows([damaged], 1) is None


@pytest.mark.parametrize(
    "damage",
    [
        "body = 5",
        "body = 2.5",
        "body = 'pay 900'",
        "body = CAST(x'ff7b22' AS TEXT)",
        "body = x'ff'",
        "body = x''",
        "body = x'4889ff00'",
        "at = 900000000000000000",
        "at = 'yesterday'",
        "at = 1.5",
        "at = x'00'",
        "checksum = checksum + 1",
        "checksum = 'none'",
        "checksum = 0.5",
        "key = key + 1",
    ],
)
@pytest.mark.parametrize("has_checksum", [True, False])
def test_a_wrong_value_in_a_row_is_one_clear_error(store: SqliteStore, damage: str, has_checksum: bool) -> None:
    history = store.create()
    history.append(ModelInputEntry.of("pay 100"))
    if not has_checksum:
        if damage == "checksum = checksum + 1":
            return  # NULL + 1 is NULL
        change(store, "UPDATE entries SET checksum = NULL")
    change(store, f"UPDATE entries SET {damage}")
    message = assert_damaged(store, history)
    assert message.startswith(f"{store.path}: ")


@pytest.mark.parametrize(
    "damage", ["body = CAST(x'ff7b22' AS TEXT)", "body = x'4889ff00'", "at = 1.5", "checksum = checksum + 1"]
)
def test_a_damaged_row_far_into_a_conversation_is_named(store: SqliteStore, damage: str) -> None:
    (line,) = store.export_lines(store.create().id)
    head = line.partition(b',"head"')[0].replace(b'"entries":0', b'"entries":700') + b"}"
    entries = AgentHistory(
        [structs.replace(ModelInputEntry.of(f"pay {number}"), sequence_number=number) for number in range(1, 701)]
    ).entries
    copy = store.import_lines([head, *map(encode_entry, entries)], as_new=True)
    opened = store.open(copy.id)
    assert opened.entries == entries
    change(store, f"UPDATE entries SET {damage} WHERE key & 4294967295 = 600")
    with pytest.raises(StoreDamaged, match=f"entry 600 of conversation {copy.id} is damaged: "):
        store.open(copy.id)


def test_an_entry_of_a_newer_version_is_read_among_the_others(any_store: HistoryStore) -> None:
    history = any_store.create()
    history.append(ModelInputEntry.of("pay 100"))
    history.append(ModelOutputEntry.of(LONG))
    lines = list(any_store.export_lines(history.id))
    newer = b'{"kind":"payment","sequence_number":3,"amount":100}'
    head = lines[0].partition(b',"head"')[0].replace(b'"entries":2', b'"entries":3') + b"}"
    copy = any_store.import_lines([head, *lines[1:], newer], as_new=True)
    first, second, third = any_store.open(copy.id).entries
    assert (first, second) == tuple(history.entries)
    assert encode_entry(third) == newer


@pytest.mark.parametrize(
    "damage",
    [
        "body = ''::bytea",
        "body = '\\xff7b22'::bytea",
        "body = substring(body FOR 40)",
        "at = 'infinity'",
        "at = '30000-01-01'",
        "at = at + interval '1 microsecond'",
        "checksum = checksum # 1",
        "sequence = sequence + 1",
    ],
)
def test_a_wrong_value_in_a_row_of_postgres_is_one_clear_error(postgres: str, damage: str) -> None:
    with PostgresStore(postgres) as store:
        history = store.create()
        history.append(ModelInputEntry.of("pay 100"))
        change(store, f"UPDATE entries SET {damage}")
        assert_damaged(store, history)


def test_rows_without_a_checksum_are_still_read_and_new_ones_have_one(any_store: HistoryStore) -> None:
    history = any_store.create()
    history.append(ModelInputEntry.of("pay 100"))
    history.append(ModelOutputEntry.of(LONG))
    change(any_store, "UPDATE entries SET checksum = NULL")
    again = any_store.open(history.id)
    assert again.entries == history.entries
    again.append(ModelInputEntry.of("pay 200"))
    fork = any_store.fork(history.id)
    any_store.import_lines(list(any_store.export_lines(history.id)), as_new=True)
    assert fork.entries == any_store.open(history.id).entries
    assert (
        len(table(any_store, "SELECT 1 FROM entries WHERE checksum IS NULL")) == 4
    )  # the two, and their copies in the fork


def test_a_damaged_attachment_is_named(any_store: HistoryStore) -> None:
    history = any_store.create()
    image = Image(data="QUJD" * 40_000, media_type="image/png")
    history.append(ModelOutputEntry.of(ToolCallRequest("t", "c")))
    history.append(ToolCallResultsEntry((ToolCallResult("t", "c", content=(image,)),)))
    assert any_store.open(history.id).entries == history.entries
    data = "QUJD" * 39_999 + "QUJE"
    change(
        any_store, "UPDATE attachments SET data = ?", data.encode() if isinstance(any_store, PostgresStore) else data
    )
    for read in (lambda: any_store.open(history.id), lambda: list(any_store.export_lines(history.id))):
        with pytest.raises(StoreDamaged, match=r"attachment sha256:[0-9a-f]{64} is damaged"):
            read()


@pytest.mark.parametrize(
    ("damage", "is_listed"),
    [
        ("created = 'long ago'", False),
        ("created = 900000000000000000", False),
        ("title = x'05'", False),
        ("tags = '[1'", False),
        ("tags = 5", False),
        ("forked_at = 'x'", False),
        ("title = CAST(x'ff' AS TEXT)", None),
        ("held_until = 900000000000000000", True),
    ],
)
def test_a_damaged_conversation_row_is_named_and_the_others_are_listed(
    store: SqliteStore, damage: str, is_listed: bool | None, caplog: pytest.LogCaptureFixture
) -> None:
    history, other = store.create("first"), store.create("other")
    change(store, f"UPDATE conversations SET {damage} WHERE id = ?", history.id)
    if is_listed is None:  # SQLite itself cannot read it, and the whole question fails
        with pytest.raises(StoreDamaged, match="UTF-8"):
            store.list()
        return
    assert other.id in [info.id for info in store.list()]
    assert (history.id in [info.id for info in store.list()]) is is_listed
    if is_listed:
        assert store.current_lease(history.id) is not None
        return
    assert f"the row of conversation '{history.id}'" in caplog.text
    for read in (store.open, store.info):
        with pytest.raises(StoreDamaged, match=f"the row of conversation '{history.id}'"):
            read(history.id)


def test_a_damaged_run_is_named(store: SqliteStore) -> None:
    run = store.runs.submit(ModelInputEntry.of("go"), kind="k")
    change(store, "UPDATE runs SET options = '{'")
    with pytest.raises(StoreDamaged, match=f"the row of run {run.id} is damaged"):
        store.runs.get(run.id)


def test_a_file_from_before_checksums_is_read_as_it_is_and_then_brought_up(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    with SqliteStore(path) as store:
        history = store.create("old")
        history.append(ModelInputEntry.of("pay 100"))
        history.append(ModelOutputEntry.of(LONG))
        for statement in (
            "ALTER TABLE entries DROP COLUMN checksum",
            "ALTER TABLE entries DROP COLUMN digest",
            "DROP TABLE tombstones",
            "ALTER TABLE conversations DROP COLUMN imported",
            "DROP TABLE lease_clock",
            "PRAGMA user_version = 3",
        ):
            change(store, statement)
    before = path.read_bytes()
    with SqliteStore(path, read_only=True) as store:
        assert store.open(history.id).entries == history.entries
        assert store.current_lease(history.id) is None
        assert len(store.search("pay")) == 1
        assert len(list(store.export_lines(history.id))) == 3
        assert not store.runs.list()
    assert path.read_bytes() == before
    with SqliteStore(path) as store:
        again = store.open(history.id)
        assert again.entries == history.entries
        again.append(ModelInputEntry.of("pay 200"))
        assert table(store, "SELECT checksum IS NULL FROM entries") == [(1,), (1,), (0,)]
        assert table(store, "PRAGMA user_version") == [(FILE_SCHEMA,)]


def test_a_checksum_takes_four_bytes_in_both_databases() -> None:
    numbers: list[int] = [row_checksum(number, 0, b"x") for number in range(10_000)]
    assert -(1 << 31) <= min(numbers) < 0 < max(numbers) < 1 << 31
