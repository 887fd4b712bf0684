"""What only a file can do: a store in memory, and readers that never wait."""

from __future__ import annotations

import threading

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
