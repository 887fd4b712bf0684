"""What only a file can do: a store in memory, and readers that never wait."""

from __future__ import annotations

import threading
from pathlib import Path

from antiphon.history import ModelInputEntry, SqliteStore


def test_readers_do_not_wait_for_a_writer(store: SqliteStore) -> None:
    history = store.create()
    for text in ("a", "b"):
        history.append(ModelInputEntry.of(text))
    with store._file.transaction() as db:
        db.execute("UPDATE conversations SET title = 'unfinished'")
        seen: list[object] = []
        reader = threading.Thread(
            target=lambda: seen.append((store.open(history.id).version, store.info(history.id).title))
        )
        reader.start()
        reader.join(timeout=60)
        assert seen == [(2, "a")]
    assert history.snapshot().version == 2


def test_a_store_in_memory_is_a_store_for_every_thread() -> None:
    with SqliteStore(":memory:") as store:
        history = store.create()
        history.append(ModelInputEntry.of("rain"))
        seen: list[int] = []
        reader = threading.Thread(
            target=lambda: seen.append(len(store.search("rain")) + store.open(history.id).version)
        )
        reader.start()
        reader.join()
        assert seen == [2]


def test_the_connection_to_write_with_is_made_by_the_first_write(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "chats.db") as store:
        name = store.create().id
    with SqliteStore(tmp_path / "chats.db") as store:
        history = store.open(name)
        assert len(store._file._connections) == 1
        history.append(ModelInputEntry.of("is it raining?"))
        assert len(store._file._connections) == 2
        assert store.open(name).entries == history.entries
        assert store._file._connections[1].execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
