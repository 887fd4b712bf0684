"""The runs of the file. Every change is one transaction, and claims are serialised by SQLite's write lock, so limits are exact.

A worker that looks for work reads first, which waits for nobody; only when there is some does it take the lock and look again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import datetime

import msgspec

from antiphon.history.asked import whole
from antiphon.history.codec import microseconds
from antiphon.history.entries import HistoryEntry
from antiphon.history.export import ExportHead
from antiphon.history.lease import Lease
from antiphon.history.run_table import PLAYED, RUNS, WAITING, Rows, Run, RunTable
from antiphon.history.sqlite.file import SqliteFile
from antiphon.history.sqlite.lease_clock import LeaseClock
from antiphon.history.sqlite.leases import give_back, take
from antiphon.history.sqlite.log import SqliteLog
from antiphon.history.sqlite.rows import moment, now

_NEXT = f"""
SELECT r.id, r.number {RUNS} JOIN json_each(:kinds) known ON known.key = r.kind
WHERE {WAITING} AND r.due <= :now AND r.code <= known.value AND r.provider NOT IN (SELECT value FROM json_each(:full))
ORDER BY r.due, r.id LIMIT 1
"""


class SqliteRunTable(RunTable):
    """The runs of a store in one file."""

    def __init__(self, file: SqliteFile, log: SqliteLog, clock: LeaseClock) -> None:
        super().__init__(file.path)
        self._file = file
        self._log = log
        self._clock = clock

    def claim(
        self,
        holder: str,
        seconds: float,
        *,
        kinds: Mapping[str, int],
        limits: Mapping[str, int] | None = None,
    ) -> Run | None:
        with self._file.reading() as db:
            if not self._next(db, kinds, limits or {}):
                return None
        with self._transaction() as db:
            found = self._next(db, kinds, limits or {})
            if not found:
                return None
            ((run, number),) = found
            taken = take(db, self._clock, number, holder, seconds)
            assert taken is not None, "the conversation of a candidate is held by nobody, and we have the lock"
            self._done(db, "UPDATE runs SET attempts = attempts + 1, updated = :now WHERE id = :run", run=run)
        return msgspec.structs.replace(self.get(run), lease=taken)

    def _next(self, db: sqlite3.Connection, kinds: Mapping[str, int], limits: Mapping[str, int]) -> Rows:
        """The run to take next, and the number of its conversation."""
        played: dict[str, int] = dict(self._done(db, PLAYED)) if limits else {}
        full = [provider for provider, limit in limits.items() if played.get(provider, 0) >= limit]
        return self._done(db, _NEXT, kinds=_json(dict(kinds)), full=_json(full))

    def _rows(self, query: str, **given: object) -> Rows:
        if self._file.schema < 2:  # an older file, opened for reading
            return []
        with self._file.reading() as db:
            return self._done(db, query, **given)

    def _transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        self._clock.settle()
        return self._file.transaction()

    def _done(self, db: sqlite3.Connection, statement: str, **given: object) -> Rows:
        times = {"now": now(), "lease_now": self._clock.now()}
        return db.execute(statement, {**times, **{name: _kept(one) for name, one in given.items()}}).fetchall()

    def _hold(self, db: sqlite3.Connection, conversation: str) -> None:
        pass  # there is one transaction at a time

    def _submits_alone(self, db: sqlite3.Connection) -> None:
        pass

    def _id_of(self, conversation: str) -> str:
        return self._log.find(conversation).id

    def _place_of(self, db: sqlite3.Connection, conversation: str | None, title: str) -> tuple[int, int]:
        if conversation is None:
            return self._log.insert_conversation(db, ExportHead.begun(title)), 0
        row = self._log.find(conversation)
        return row.number, row.version

    def _insert_entry(self, db: sqlite3.Connection, number: int, entry: HistoryEntry) -> None:
        self._log.insert_entry(db, number, entry)

    def _give_back(self, db: sqlite3.Connection, lease: Lease) -> bool:
        return give_back(db, lease)

    def _moment(self, at: int) -> datetime:
        return moment(at)

    def _expires(self, until: int) -> datetime:
        return self._clock.shown(until)


def _kept(value: object) -> object:
    """A value as SQLite can keep it."""
    return microseconds(value) if isinstance(value, datetime) else whole(value) if isinstance(value, str) else value


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
