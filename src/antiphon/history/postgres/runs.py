"""The runs of the database. Every change is one transaction; times are the server's.

Workers that claim at once do not wait for each other: each skips what another has locked. Only where a provider has a
limit do those who want a run of that provider queue up, at a lock of its name, for as long as it takes to count and to claim:
so the limit is exact. One who finds it reached lets go of everything before it looks at the next, so nobody waits in a circle.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from antiphon.errors import UnknownConversation
from antiphon.history.entries import HistoryEntry
from antiphon.history.export import ExportHead
from antiphon.history.lease import Lease
from antiphon.history.postgres.connections import Connections
from antiphon.history.postgres.leases import give_back, take
from antiphon.history.postgres.log import Log
from antiphon.history.postgres.rows import aware, plain
from antiphon.history.postgres.tables import LOCKS, lock_number
from antiphon.history.run_table import PLAYED, RUNNING, RUNS, WAITING, Rows, Run, RunTable

if TYPE_CHECKING:
    from antiphon.history.postgres.connections import Database

_NEXT = f"""
SELECT r.id, r.number, r.provider {RUNS}
WHERE {WAITING} AND r.due <= :now AND r.code <= CAST(CAST(:kinds AS jsonb) ->> r.kind AS bigint)
    AND r.provider <> ALL (CAST(:full AS text[]))
ORDER BY r.due, r.id LIMIT 1
"""
# Of the two rows the conversation's is always locked first, here and everywhere.
_NEXT_LOCKED = f"{_NEXT} FOR UPDATE OF c SKIP LOCKED"
_ATTEMPT = "UPDATE runs SET attempts = attempts + 1, updated = :now WHERE id = :run AND state = 'waiting' RETURNING id"
_VERSION = """
SELECT number, (SELECT coalesce(max(sequence), 0) FROM entries e WHERE e.number = c.number) FROM conversations c WHERE id = %s
"""
_VALUE = re.compile(r":(\w+)")
_TIMES = ("now", "lease_now")


class PostgresRunTable(RunTable):
    """The runs of a store in a database."""

    def __init__(self, connections: Connections, log: Log) -> None:
        super().__init__(connections.place)
        self._connections = connections
        self._log = log

    def claim(
        self,
        holder: str,
        seconds: float,
        *,
        kinds: Mapping[str, int],
        limits: Mapping[str, int] | None = None,
    ) -> Run | None:
        limits = limits or {}
        asked = msgspec.json.encode(dict(kinds)).decode()
        played: dict[str, int] = dict(self._rows(PLAYED)) if limits else {}
        full = {provider for provider, limit in limits.items() if played.get(provider, 0) >= limit}
        # Looked at first without a lock: most who look for work find none.
        while self._rows(_NEXT, kinds=asked, full=sorted(full)):
            with self._transaction() as db:
                found = self._done(db, _NEXT_LOCKED, kinds=asked, full=sorted(full))
                if not found:
                    return None  # whoever has those is claiming them
                ((run, number, provider),) = found
                if provider in limits and self._is_full(db, provider, limits[provider]):
                    full.add(provider)
                    continue
                if not self._done(db, _ATTEMPT, run=run):
                    continue  # it was settled or cancelled just before its conversation was ours
                taken = take(db, number, holder, seconds)
                assert taken is not None, "the conversation was held by nobody, and we have its row"
            return msgspec.structs.replace(self.get(run), lease=taken)
        return None

    def _is_full(self, db: Database, provider: str, limit: int) -> bool:
        """Whether a provider's limit is reached. Until the transaction ends, nobody else asks."""
        self._lock(db, f"provider {provider}")
        played = f"SELECT count(*) {RUNS} WHERE {RUNNING} AND r.provider = :provider"
        ((number,),) = self._done(db, played, provider=provider)
        return int(number) >= limit

    def _lock(self, db: Database, what: str) -> None:
        db.execute("SELECT pg_advisory_xact_lock(%s, %s)", (LOCKS, lock_number(self._connections.address.schema, what)))

    def _rows(self, query: str, **given: object) -> Rows:
        return self._connections.rows(_named(query), {name: _kept(one) for name, one in given.items()})

    def _transaction(self) -> AbstractContextManager[Database]:
        return self._connections.transaction()

    def _done(self, db: Database, statement: str, **given: object) -> Rows:
        cursor = db.execute(_named(statement).encode(), {name: _kept(one) for name, one in given.items()})
        return cursor.fetchall() if cursor.description else []

    def _hold(self, db: Database, conversation: str) -> None:
        if db.execute("SELECT 1 FROM conversations WHERE id = %s FOR UPDATE", (conversation,)).fetchone() is None:
            raise UnknownConversation(f"{self._place}: conversation {conversation} was deleted")

    def _submits_alone(self, db: Database) -> None:
        self._lock(db, "submit")

    def _id_of(self, conversation: str) -> str:
        return self._log.find(conversation).id

    def _place_of(self, db: Database, conversation: str | None, title: str) -> tuple[int, int]:
        if conversation is None:
            return self._log.insert_conversation(db, ExportHead.begun(title)), 0
        found = db.execute(_VERSION, (conversation,)).fetchone()
        assert found is not None, "we have its row"
        number, version = found
        return number, version

    def _insert_entry(self, db: Database, number: int, entry: HistoryEntry) -> None:
        self._log.insert_entry(db, number, entry)

    def _give_back(self, db: Database, lease: Lease) -> bool:
        return give_back(db, lease)

    def _moment(self, at: datetime) -> datetime:
        return at

    def _expires(self, until: datetime) -> datetime:
        return until


@cache
def _named(statement: str) -> str:
    """A statement as the driver takes it. The time is that at which the server begins with it, also for leases."""
    return _VALUE.sub(lambda name: "statement_timestamp()" if name[1] in _TIMES else f"%({name[1]})s", statement)


def _kept(value: object) -> object:
    """A value as PostgreSQL can keep it."""
    return aware(value) if isinstance(value, datetime) else plain(value) if isinstance(value, str) else value
