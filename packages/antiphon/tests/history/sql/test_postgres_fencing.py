"""What two do to one conversation at the same instant has an order: claims, deletes, listeners and appends wait for each other.

One side stands in the middle of its transaction while the other begins, which is the race that a test with two busy loops would
meet once in a thousand times.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from antiphon.errors import LeaseLost, RunStateError, UnknownConversation
from antiphon.history import ModelInputEntry
from antiphon.history.location import open_store
from antiphon.history.search_text import searchable_text
from antiphon.history.sql.postgres import PostgresStore


class Meanwhile:
    """Work on another thread, and what came of it."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result: Any = self._work()
        except Exception as error:
            self._result = error

    def waits(self) -> bool:
        """Whether it is still at it after a while."""
        self._thread.join(0.3)
        return self._thread.is_alive()

    def result(self) -> Any:
        """What it gave, or the error it ended with."""
        self._thread.join(20)
        assert not self._thread.is_alive()
        return self._result


def test_an_append_waits_for_a_running_claim_and_is_fenced_off(postgres: str) -> None:
    with PostgresStore(postgres) as store:
        chat = store.create()
        lease = store.claim(chat.id, "zombie", 1e-6)
        zombie = store.open(chat.id, lease=lease)
        with store._connections.transaction() as heir:
            heir.execute("UPDATE conversations SET epoch = epoch + 1, holder = 'heir'")
            late = Meanwhile(lambda: zombie.append(ModelInputEntry.of("late")))
            assert late.waits()
        assert isinstance(late.result(), LeaseLost)
        assert store.open(chat.id).version == zombie.version == 0


def test_a_claim_waits_for_a_running_append(postgres: str) -> None:
    with PostgresStore(postgres) as store:
        chat = store.create()
        with store._connections.transaction() as db:
            entry = msgspec.structs.replace(ModelInputEntry.of("just in time"), sequence_number=1)
            store._log.insert_entry(db, 1, chat.id, entry)
            claim = Meanwhile(lambda: store.claim(chat.id, "heir"))
            assert claim.waits()
        heir = store.open(chat.id, lease=claim.result())
        assert [searchable_text(entry) for entry in heir.entries] == ["just in time"]
        heir.append(ModelInputEntry.of("mine"))


def test_a_delete_during_an_append(postgres: str) -> None:
    with PostgresStore(postgres) as store:
        chat, other = store.create(), store.create()
        with store._connections.transaction() as db:
            store._log.insert_entry(db, 1, chat.id, msgspec.structs.replace(ModelInputEntry.of("x"), sequence_number=1))
            delete = Meanwhile(lambda: store.delete(chat.id))
            assert delete.waits()
        assert delete.result() is None
        with store._connections.transaction() as db:
            db.execute("DELETE FROM conversations WHERE number = 2")
            append = Meanwhile(lambda: other.append(ModelInputEntry.of("y")))
            assert append.waits()
        assert isinstance(append.result(), UnknownConversation)
        assert store._connections.rows("SELECT count(*) FROM entries") == [(0,)]


def test_a_listener_waits_for_a_running_append(postgres: str) -> None:
    """Else it would read before the entry is there, and miss it because there was no listener when it was written."""
    with PostgresStore(postgres) as store:
        chat = store.create()
        with store._connections.transaction() as db:
            store._log.insert_entry(db, 1, chat.id, msgspec.structs.replace(ModelInputEntry.of("x"), sequence_number=1))

            def mark() -> None:
                with store._connections.connection() as other:
                    other.execute("UPDATE conversations SET watched_until = clock_timestamp()")

            marked = Meanwhile(mark)
            assert marked.waits()
        assert marked.result() is None


def test_concurrent_submits_create_one_run_per_conversation(postgres: str) -> None:
    with open_store(postgres, max_connections=8) as store:
        chat = store.create()
        chat.append(ModelInputEntry.of("hello"))
        asked = [Meanwhile(lambda: store.runs.submit(None, kind="chat", conversation=chat.id)) for _ in range(6)]
        results = [each.result() for each in asked]
        assert sorted(type(result).__name__ for result in results) == ["Run"] + ["RunStateError"] * 5
        assert all(chat.id in str(result) for result in results if isinstance(result, RunStateError))


def test_claims_settlements_and_cancellations_never_wait_in_a_circle(postgres: str) -> None:
    """Workers whose leases run out at once, a person who cancels and wakes, and limits: every run ends, and none is lost."""
    with PostgresStore(postgres, max_connections=8) as store:
        runs = [store.runs.submit(ModelInputEntry.of(str(n)), kind="chat", provider="ab"[n % 2]) for n in range(24)]

        def work() -> None:
            idle = 0
            while idle < 40:
                run = store.runs.claim("worker", 0.002, kinds={"chat": 0}, limits={"a": 2, "b": 1})
                if run is None or run.lease is None:
                    idle += 1
                    threading.Event().wait(0.003)
                    continue
                idle = 0
                try:
                    store.runs.settle(run.id, run.lease, "done" if run.attempts % 2 else "waiting")
                except LeaseLost:
                    continue

        def meddle() -> None:
            for run in runs:
                store.runs.cancel(run.id, "enough")
                store.runs.wake(run.id)

        everybody = [Meanwhile(work) for _ in range(4)] + [Meanwhile(meddle)]
        assert [each.result() for each in everybody] == [None] * 5
        counts = store.runs.counts()
        assert sum(counts.values()) == 24
        assert set(counts) <= {"done", "cancelled"}


@pytest.mark.parametrize("limit", [1, 3])
def test_the_limit_of_a_provider_is_exact_at_every_instant(postgres: str, limit: int) -> None:
    with PostgresStore(postgres, max_connections=8) as store:
        for number in range(30):
            store.runs.submit(ModelInputEntry.of(str(number)), kind="chat", provider="a")
        most: list[int] = []

        def work() -> None:
            for _ in range(15):
                run = store.runs.claim("worker", 60, kinds={"chat": 0}, limits={"a": limit})
                if run is not None and run.lease is not None:
                    most.append(store.runs.counts().get("running", 0))
                    store.runs.settle(run.id, run.lease, "done")

        everybody = [Meanwhile(work) for _ in range(6)]
        assert [each.result() for each in everybody] == [None] * 6
        assert most
        assert max(most) <= limit
