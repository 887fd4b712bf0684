"""The tables come and grow while others work: once, whole, and never under a program that would misread them."""

from __future__ import annotations

import os
import struct
import threading
import time

import pytest

from antiphon.errors import StoreError
from antiphon.history import ModelInputEntry
from antiphon.history.location import open_store
from antiphon.history.search_text import searchable_text
from antiphon.history.sql.postgres import PostgresStore
from antiphon.history.sql.schema import POSTGRES_MIGRATIONS as MIGRATIONS
from antiphon.history.sql.schema import Migration, migrate
from support.child_process import in_a_process, reported_numbers
from support.store_rows import table

LAST = MIGRATIONS[-1].number
GROWN = (
    *MIGRATIONS,
    Migration(
        LAST + 1,
        1,
        """
ALTER TABLE conversations ADD COLUMN colour text NOT NULL DEFAULT 'grey';
ALTER TABLE entries ADD COLUMN weight integer NOT NULL DEFAULT 1;
ALTER TABLE runs ADD COLUMN mood text
""",
    ),
    Migration(LAST + 2, 1, "CREATE TABLE later (number bigint PRIMARY KEY)"),
)
BROKEN_WITH = (*GROWN, Migration(LAST + 3, LAST + 3, "ALTER TABLE entries RENAME body TO bytes"))


def standing(store: PostgresStore) -> list[int]:
    return [number for (number,) in table(store, "SELECT number FROM migrations ORDER BY number")]


def test_concurrent_opens_create_the_tables_once(postgres: str) -> None:
    start = threading.Barrier(6)
    stores: list[PostgresStore] = []

    def work() -> None:
        start.wait()
        stores.append(PostgresStore(postgres))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(stores) == 6
    stores[0].create().append(ModelInputEntry.of("hello"))
    assert all(store.count() == 1 for store in stores)
    assert standing(stores[0]) == [migration.number for migration in MIGRATIONS]
    for store in stores:
        store.close()


def test_a_migration_while_another_process_appends(postgres: str) -> None:
    """An older program writes on as fast as it can, before, during and after; nothing is refused and nothing is lost."""
    with PostgresStore(postgres) as store:
        conversation = store.create().id

        def write_on(pipe: int) -> None:
            with open_store(postgres) as older:
                history = older.open(conversation)
                while True:
                    entry = history.append(ModelInputEntry.of(f"entry {history.version + 1}"))
                    os.write(pipe, struct.pack("<I", entry.sequence_number))

        process, pipe = in_a_process(write_on)
        os.read(pipe, 4 * 20)
        migrate(store._connections, GROWN)
        assert standing(store) == [migration.number for migration in GROWN]
        reached = table(store, "SELECT max(sequence) FROM entries")[0][0]
        deadline = time.monotonic() + 20
        while table(store, "SELECT max(sequence) FROM entries")[0][0] < reached + 50:
            assert time.monotonic() < deadline, "the older program stands still"
        os.kill(process, 9)
        os.waitpid(process, 0)
        last = reported_numbers(pipe)[-1]
        found = store.open(conversation)
        assert found.version in (last, last + 1)
        assert [searchable_text(entry) for entry in found.entries] == [
            f"entry {n}" for n in range(1, found.version + 1)
        ]
        assert table(store, "SELECT DISTINCT weight FROM entries") == [(1,)]


def test_an_older_program_uses_what_only_grew_and_is_refused_what_changed(postgres: str) -> None:
    with PostgresStore(postgres) as store:
        history = store.create()
        migrate(store._connections, GROWN)
        with open_store(postgres) as older:
            older.open(history.id).append(ModelInputEntry.of("still here"))
            older.runs.submit(ModelInputEntry.of("and runs"), kind="chat")
        migrate(store._connections, BROKEN_WITH)
    with pytest.raises(
        StoreError, match=rf"schema {LAST + 3} and needs .* schema {LAST + 3}, and this one knows {LAST}"
    ):
        open_store(postgres)


def test_a_migration_happens_whole_or_not_at_all(postgres: str) -> None:
    with PostgresStore(postgres) as store:
        half = (*MIGRATIONS, Migration(LAST + 1, 1, "CREATE TABLE half (a int); CREATE TABLE half (b int)"))
        with pytest.raises(StoreError, match="half"):
            migrate(store._connections, half)
        assert standing(store) == [migration.number for migration in MIGRATIONS]
        assert table(store, "SELECT to_regclass('half')") == [(None,)]
        migrate(store._connections, GROWN)
        migrate(store._connections, GROWN)
        assert len(standing(store)) == len(GROWN)


def test_a_migration_releases_its_locks_for_a_long_reader(postgres: str) -> None:
    """It waits for the table without blocking others: an append succeeds at the same time."""
    with PostgresStore(postgres) as store:
        history = store.create()
        with store._connections.transaction() as reader:
            reader.execute("SELECT * FROM conversations")
            migration = threading.Thread(target=migrate, args=(store._connections, GROWN))
            migration.start()
            for number in range(30):
                history.append(ModelInputEntry.of(str(number)))
                time.sleep(0.01)
            assert standing(store) == [migration.number for migration in MIGRATIONS]
        migration.join()
        assert len(standing(store)) == len(GROWN)


def test_two_schemas_of_one_database_are_two_stores(postgres: str) -> None:
    odd = 'Ödd "name" %s'
    with open_store(postgres) as one, open_store(postgres, schema=odd) as other:
        history = one.create("here")
        with pytest.raises(StoreError, match="no conversation"):
            other.open(history.id)
        copy = other.import_lines(one.export_lines(history.id))
        assert (copy.id, one.count(), other.count()) == (history.id, 1, 1)
        assert "schema=" in getattr(other, "path", "")
