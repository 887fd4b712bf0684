"""The runs of the database. Every change is one transaction; times are the server's.

Workers that claim at once do not wait for each other: each skips what another has locked. Only where a provider has a
limit do those who want a run of that provider queue up, at a lock of its name, for as long as it takes to count and to claim:
so the limit is exact. One who finds it reached lets go of everything before it looks at the next, so nobody waits in a circle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from antiphon.errors import RunRefused, TooManyRuns, UnknownConversation
from antiphon.history.asked import check_not_negative, may_be_an_end, the_run
from antiphon.history.entries import ModelInputEntry
from antiphon.history.export import ExportHead
from antiphon.history.ids import new_id
from antiphon.history.lease import Lease
from antiphon.history.postgres.connections import Connections
from antiphon.history.postgres.leases import give_back, lease_of, lost, take
from antiphon.history.postgres.log import Log
from antiphon.history.postgres.rows import aware, plain
from antiphon.history.postgres.tables import LOCKS, lock_number
from antiphon.history.run_table import ENDED, Run, RunState, RunTable

if TYPE_CHECKING:
    from antiphon.history.postgres.connections import Database

_RUNS = """
SELECT r.id, c.id, r.kind, r.code, r.provider, r.options, r.state, r.reason, r.created, r.updated, r.due, r.attempts,
    r.is_cancelled, c.holder, c.epoch, c.held_until, c.held_until > clock_timestamp()
FROM runs r JOIN conversations c USING (number)
"""
_RUNNING = "r.state = 'waiting' AND c.held_until > statement_timestamp()"
_WAITING = "r.state = 'waiting' AND c.held_until <= statement_timestamp()"
_ENDED = ", ".join(f"'{state}'" for state in sorted(ENDED))
_PLAYED = f"SELECT r.provider, count(*) FROM runs r JOIN conversations c USING (number) WHERE {_RUNNING} GROUP BY 1"
_NEXT = f"""
SELECT r.id, r.number, r.provider FROM runs r JOIN conversations c USING (number)
WHERE {_WAITING} AND r.due <= statement_timestamp() AND r.code <= (%(kinds)s::jsonb ->> r.kind)::bigint
    AND r.provider <> ALL (%(full)s::text[])
ORDER BY r.due, r.id LIMIT 1
"""
# Of the two rows the conversation's is always locked first, here and everywhere.
_NEXT_LOCKED = f"{_NEXT} FOR UPDATE OF c SKIP LOCKED"
_ATTEMPT = "UPDATE runs SET attempts = attempts + 1, updated = clock_timestamp() WHERE id = %s AND state = 'waiting'"
_options = msgspec.json.Decoder(dict[str, Any])


class PostgresRunTable(RunTable):
    """The runs of a store in a database."""

    def __init__(self, connections: Connections, log: Log) -> None:
        self._connections = connections
        self._log = log

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
        known = self._log.find(conversation) if conversation is not None else None
        with self._connections.transaction() as db:
            if max_waiting is not None:
                self._lock(db, "submit")
                waiting = _number(
                    db, f"SELECT count(*) FROM runs r JOIN conversations c USING (number) WHERE {_WAITING}"
                )
                if waiting >= max_waiting:
                    raise TooManyRuns(f"{waiting} runs wait already, and {max_waiting} may; try again later")
            if known is None:
                number, version = self._log.insert_conversation(db, ExportHead.begun(title)), 0
            else:
                number = known.number
                version = self._alone_with(db, number, known.id)
            if question is not None:
                at = question.timestamp or datetime.now(UTC)
                self._log.insert_entry(
                    db, number, msgspec.structs.replace(question, sequence_number=version + 1, timestamp=at)
                )
            db.execute(
                "INSERT INTO runs (id, number, kind, code, provider, options, state, reason, created, updated, due)"
                " SELECT %s, %s, %s, %s, %s, %s, 'waiting', '', at, at, at FROM clock_timestamp() AS at",
                (run, number, plain(kind), code, plain(provider), told),
            )
        return self.get(run)

    def get(self, run: str) -> Run:
        wanted = plain(run)
        if run == "last":
            found = self._found("ORDER BY r.id DESC LIMIT 1")
        else:
            found = self._found("WHERE r.id = %(run)s", run=wanted)
            if not found and may_be_an_end(wanted):
                by_an_end = "WHERE left(r.id, %(size)s) = %(run)s OR right(r.id, %(size)s) = %(run)s LIMIT 2"
                found = self._found(by_an_end, run=wanted.lower(), size=len(wanted))
        return the_run(found, run, self._connections.place)

    def list(
        self, *, state: str | None = None, conversation: str | None = None, limit: int = 50, offset: int = 0
    ) -> Sequence[Run]:
        check_not_negative(limit=limit, offset=offset)
        wanted = ["c.id = %(conversation)s"] if conversation is not None else []
        if state is not None:
            wanted.append({"running": _RUNNING, "waiting": _WAITING}.get(state, "r.state = %(state)s"))
        where = f"WHERE {' AND '.join(wanted)} " if wanted else ""
        rest = f"{where}ORDER BY r.id DESC LIMIT %(limit)s OFFSET %(offset)s"
        given = {"state": plain(state or ""), "conversation": plain(conversation or "")}
        return self._found(rest, **given, limit=limit, offset=offset)

    def counts(self) -> dict[str, int]:
        standing = f"CASE WHEN {_RUNNING} THEN 'running' ELSE r.state END"
        counted = f"SELECT {standing}, count(*) FROM runs r JOIN conversations c USING (number) GROUP BY 1 ORDER BY 1"
        return dict(self._connections.rows(counted))

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
        played = dict(self._connections.rows(_PLAYED)) if limits else {}
        full = {provider for provider, limit in limits.items() if played.get(provider, 0) >= limit}
        # Looked at first without a lock: most who look for work find none.
        while self._connections.rows(_NEXT, {"kinds": asked, "full": sorted(full)}):
            with self._connections.transaction() as db:
                found = db.execute(_NEXT_LOCKED, {"kinds": asked, "full": sorted(full)}).fetchone()
                if found is None:
                    return None  # whoever has those is claiming them
                run, number, provider = found
                if provider in limits and self._is_full(db, provider, limits[provider]):
                    full.add(provider)
                    continue
                if not db.execute(_ATTEMPT, (run,)).rowcount:
                    continue  # it was settled or cancelled just before its conversation was ours
                taken = take(db, number, holder, seconds)
                assert taken is not None, "the conversation was held by nobody, and we have its row"
            return msgspec.structs.replace(self.get(run), lease=taken)
        return None

    def settle(self, run: str, lease: Lease, state: RunState, reason: str = "", *, due: datetime | None = None) -> Run:
        settled = """
            UPDATE runs SET updated = clock_timestamp(), due = coalesce(%(due)s::timestamptz, clock_timestamp()),
            reason = %(reason)s, state = CASE WHEN is_cancelled AND %(state)s IN ('waiting', 'suspended') THEN 'cancelled'
            ELSE %(state)s END WHERE id = %(run)s
        """
        given = {"due": aware(due), "reason": plain(reason), "state": state, "run": run}
        with self._connections.transaction() as db:
            if not give_back(db, lease):
                raise lost(lease.conversation, lease.epoch)
            db.execute(settled, given)
        return self.get(run)

    def cancel(self, run: str, reason: str = "") -> Run:
        known = self.get(run)
        cancelled = f"""
            UPDATE runs SET is_cancelled = true, updated = clock_timestamp(), reason = %s, state = CASE WHEN EXISTS
            (SELECT 1 FROM conversations c WHERE c.number = runs.number AND c.held_until > clock_timestamp())
            THEN state ELSE 'cancelled' END
            WHERE id = %s AND state NOT IN ({_ENDED})
        """
        with self._connections.transaction() as db:
            # The lease is looked at while nobody can take it: else a run would be cancelled under a worker that just claimed it.
            db.execute("SELECT 1 FROM conversations WHERE id = %s FOR UPDATE", (known.conversation,))
            db.execute(cancelled, (plain(reason), known.id))
        return self.get(known.id)

    def wake(self, run: str) -> Run:
        known = self.get(run)
        woken = """
            UPDATE runs SET state = 'waiting', reason = '', updated = clock_timestamp(), due = clock_timestamp(), attempts = 0,
            is_cancelled = false WHERE id = %s AND state IN ('suspended', 'failed')
        """
        number = self._log.find(known.conversation).number
        with self._connections.transaction() as db:
            if known.is_over:
                self._alone_with(db, number, known.conversation)
            db.execute(woken, (known.id,))
        return self.get(known.id)

    def _alone_with(self, db: Database, number: int, conversation: str) -> int:
        """The version of a conversation that has no run but those that are over; nobody changes that while we are at it."""
        if db.execute("SELECT 1 FROM conversations WHERE number = %s FOR UPDATE", (number,)).fetchone() is None:
            raise UnknownConversation(f"{self._connections.place}: conversation {conversation} was deleted")
        unfinished = f"{_RUNS} WHERE c.number = %s AND r.state NOT IN ({_ENDED})"
        if row := db.execute(unfinished, (number,)).fetchone():
            run = _run(*row)
            raise RunRefused(
                f"conversation {conversation} has a run that is not over ({run.id}, {run.standing}); wait for its end or "
                "cancel it"
            )
        return _number(db, "SELECT coalesce(max(sequence), 0) FROM entries WHERE number = %s", number)

    def _is_full(self, db: Database, provider: str, limit: int) -> bool:
        """Whether a provider's limit is reached. Until the transaction ends, nobody else asks."""
        self._lock(db, f"provider {provider}")
        played = f"SELECT count(*) FROM runs r JOIN conversations c USING (number) WHERE {_RUNNING} AND r.provider = %s"
        return _number(db, played, provider) >= limit

    def _lock(self, db: Database, what: str) -> None:
        db.execute("SELECT pg_advisory_xact_lock(%s, %s)", (LOCKS, lock_number(self._connections.address.schema, what)))

    def _found(self, rest: str, **given: object) -> Sequence[Run]:
        return [_run(*row) for row in self._connections.rows(f"{_RUNS} {rest}", given)]


def _number(db: Database, question: str, *given: object) -> int:
    (number,) = db.execute(question.encode(), given).fetchone() or (0,)
    return int(number)


def _run(
    run: str,
    conversation: str,
    kind: str,
    code: int,
    provider: str,
    options: str,
    state: RunState,
    reason: str,
    created: datetime,
    updated: datetime,
    due: datetime,
    attempts: int,
    is_cancelled: bool,
    holder: str,
    epoch: int,
    until: datetime,
    is_held: bool,
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
        created=created,
        updated=updated,
        due=due,
        attempts=attempts,
        is_cancelled=is_cancelled,
        lease=lease_of(conversation, holder, epoch, until) if is_held else None,
    )
