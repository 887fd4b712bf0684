"""The runs of the file. Every change is one transaction, and claims are serialised by SQLite's write lock, so limits are exact.

A worker that looks for work reads first, which waits for nobody; only when there is some does it take the lock and look again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from antiphon.errors import RunRefused, TooManyRuns
from antiphon.history.asked import check_not_negative, may_be_an_end, the_run
from antiphon.history.entries import ModelInputEntry
from antiphon.history.ids import new_id
from antiphon.history.lease import Lease
from antiphon.history.run_table import ENDED, Run, RunState, RunTable
from antiphon.history.sqlite.file import SqliteFile
from antiphon.history.sqlite.leases import give_back, lease_of, lost, take
from antiphon.history.sqlite.rows import microseconds, moment, now

if TYPE_CHECKING:
    from antiphon.history.sqlite.store import SqliteStore

_RUNS = """
SELECT r.id, c.id, r.kind, r.code, r.provider, r.options, r.state, r.reason, r.created, r.updated, r.due, r.attempts,
    r.is_cancelled, c.holder, c.epoch, c.held_until
FROM runs r JOIN conversations c USING (number)
"""
_RUNNING = "r.state = 'waiting' AND c.held_until > :now"
_WAITING = "r.state = 'waiting' AND c.held_until <= :now"
_ENDED = ", ".join(f"'{state}'" for state in sorted(ENDED))
_options = msgspec.json.Decoder(dict[str, Any])


class SqliteRunTable(RunTable):
    """The runs of a store in one file."""

    def __init__(self, file: SqliteFile, store: SqliteStore) -> None:
        self._file = file
        self._store = store

    def submit(
        self,
        question: ModelInputEntry | None,
        *,
        kind: str,
        conversation: str | None = None,
        title: str = "",
        code: int = 0,
        provider: str = "",
        options: Mapping[str, Any] | None = None,
        max_waiting: int | None = None,
    ) -> Run:
        if question is None and conversation is None:
            raise RunRefused("there is nothing to run: give a question, or a conversation to go on with")
        run = new_id()
        told = msgspec.json.encode(dict(options or {})).decode()
        with self._file.transaction() as db:
            if max_waiting is not None:
                (waiting,) = db.execute(_count(_WAITING), {"now": now()}).fetchone()
                if waiting >= max_waiting:
                    raise TooManyRuns(f"{waiting} runs wait already, and {max_waiting} may; try again later")
            if conversation is not None:
                conversation = self._store.info(conversation).id
                _check_free(db, conversation)
            number = self._store._asked(db, conversation, title, question)
            at = now()
            row = (run, number, kind, code, provider, told, at, at, at)
            db.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, 'waiting', '', ?, ?, ?, 0, 0)", row)
        return self.get(run)

    def get(self, run: str) -> Run:
        if run == "last":
            found = self._found("ORDER BY r.id DESC LIMIT 1")
        else:
            found = self._found("WHERE r.id = :run", run=run)
            if not found and may_be_an_end(run):
                by_an_end = "WHERE substr(r.id, 1, :size) = :run OR substr(r.id, -:size) = :run LIMIT 2"
                found = self._found(by_an_end, run=run.lower(), size=len(run))
        return the_run(found, run, self._file.path)

    def list(
        self, *, state: str | None = None, conversation: str | None = None, limit: int = 50, offset: int = 0
    ) -> Sequence[Run]:
        check_not_negative(limit=limit, offset=offset)
        wanted = ["c.id = :conversation"] if conversation is not None else []
        if state is not None:
            wanted.append({"running": _RUNNING, "waiting": _WAITING}.get(state, "r.state = :state"))
        where = f"WHERE {' AND '.join(wanted)} " if wanted else ""
        rest = f"{where}ORDER BY r.id DESC LIMIT :limit OFFSET :offset"
        return self._found(rest, state=state, conversation=conversation, limit=limit, offset=offset)

    def counts(self) -> dict[str, int]:
        standing = f"CASE WHEN {_RUNNING} THEN 'running' ELSE r.state END"
        counted = f"SELECT {standing}, count(*) FROM runs r JOIN conversations c USING (number) GROUP BY 1 ORDER BY 1"
        with self._file.reading() as db:
            return dict(db.execute(counted, {"now": now()}).fetchall()) if self._file.schema >= 2 else {}

    def claim(
        self,
        holder: str,
        seconds: float,
        *,
        kinds: Mapping[str, int],
        limits: Mapping[str, int] | None = None,
    ) -> Run | None:
        with self._file.reading() as db:
            if not _candidate(db, kinds, limits):
                return None
        with self._file.transaction() as db:
            candidate = _candidate(db, kinds, limits)
            if candidate is None:
                return None
            run, number = candidate
            taken = take(db, number, holder, seconds)
            assert taken is not None, "the conversation of a candidate is held by nobody, and we have the lock"
            db.execute("UPDATE runs SET attempts = attempts + 1, updated = ? WHERE id = ?", (now(), run))
        return msgspec.structs.replace(self.get(run), lease=taken)

    def settle(self, run: str, lease: Lease, state: RunState, reason: str = "", *, due: datetime | None = None) -> Run:
        at = now()
        with self._file.transaction() as db:
            if not give_back(db, lease):
                raise lost(lease)
            settled = """
                UPDATE runs SET updated = :now, due = :due, reason = :reason, state =
                CASE WHEN is_cancelled AND :state IN ('waiting', 'suspended') THEN 'cancelled' ELSE :state END
                WHERE id = :run
            """
            given = {"now": at, "due": microseconds(due) if due else at, "reason": reason, "state": state, "run": run}
            db.execute(settled, given)
        return self.get(run)

    def cancel(self, run: str, reason: str = "") -> Run:
        known = self.get(run)
        cancelled = f"""
            UPDATE runs SET is_cancelled = 1, updated = :now, reason = :reason, state = CASE WHEN EXISTS
            (SELECT 1 FROM conversations c WHERE c.number = runs.number AND c.held_until > :now)
            THEN state ELSE 'cancelled' END
            WHERE id = :run AND state NOT IN ({_ENDED})
        """
        with self._file.writing() as db:
            db.execute(cancelled, {"now": now(), "reason": reason, "run": known.id})
        return self.get(known.id)

    def wake(self, run: str) -> Run:
        known = self.get(run)
        woken = """
            UPDATE runs SET state = 'waiting', reason = '', updated = :now, due = :now, attempts = 0, is_cancelled = 0
            WHERE id = :run AND state IN ('suspended', 'failed')
        """
        with self._file.transaction() as db:
            if known.is_over:
                _check_free(db, known.conversation)
            db.execute(woken, {"now": now(), "run": known.id})
        return self.get(known.id)

    def _found(self, rest: str, **given: object) -> Sequence[Run]:
        if self._file.schema < 2:  # an older file, opened for reading
            return []
        with self._file.reading() as db:
            return [_run(*row) for row in db.execute(f"{_RUNS} {rest}", {"now": now(), **given})]


def _candidate(
    db: sqlite3.Connection, kinds: Mapping[str, int], limits: Mapping[str, int] | None
) -> tuple[str, int] | None:
    """The run to take next, and the number of its conversation."""
    given: dict[str, object] = {"now": now()}
    full: list[str] = []
    if limits:
        held = (
            f"SELECT r.provider, count(*) FROM runs r JOIN conversations c USING (number) WHERE {_RUNNING} GROUP BY 1"
        )
        played = dict(db.execute(held, given).fetchall())
        full = [provider for provider, limit in limits.items() if played.get(provider, 0) >= limit]
    given["kinds"] = msgspec.json.encode(dict(kinds)).decode()
    given["full"] = msgspec.json.encode(full).decode()
    due = f"""
        SELECT r.id, r.number FROM runs r JOIN conversations c USING (number) JOIN json_each(:kinds) known ON known.key = r.kind
        WHERE {_WAITING} AND r.due <= :now AND r.code <= known.value
            AND r.provider NOT IN (SELECT value FROM json_each(:full))
        ORDER BY r.due, r.id LIMIT 1
    """
    found: tuple[str, int] | None = db.execute(due, given).fetchone()
    return found


def _check_free(db: sqlite3.Connection, conversation: str) -> None:
    unfinished = f"{_RUNS} WHERE c.id = ? AND r.state NOT IN ({_ENDED})"
    if row := db.execute(unfinished, (conversation,)).fetchone():
        run = _run(*row)
        raise RunRefused(
            f"conversation {conversation} has a run that is not over ({run.id}, {run.standing}); wait for its end or cancel it"
        )


def _count(which: str) -> str:
    return f"SELECT count(*) FROM runs r JOIN conversations c USING (number) WHERE {which}"


def _run(
    run: str,
    conversation: str,
    kind: str,
    code: int,
    provider: str,
    options: str,
    state: RunState,
    reason: str,
    created: int,
    updated: int,
    due: int,
    attempts: int,
    is_cancelled: int,
    holder: str,
    epoch: int,
    until: int,
) -> Run:
    return Run(
        id=run,
        conversation=conversation,
        kind=kind,
        code=code,
        provider=provider,
        options=_options.decode(options),
        state=state,
        reason=reason,
        created=moment(created),
        updated=moment(updated),
        due=moment(due),
        attempts=attempts,
        is_cancelled=bool(is_cancelled),
        lease=lease_of(conversation, holder, epoch, until),
    )
