"""`RunTable`: the turns that workers execute; the part of a store that workers look at.

A run is one turn that was submitted and that a worker completes. What happened in it is in the log; its row has only
whether it still needs a worker. "Running" is not a state of its own: it is a waiting run whose conversation is leased. A worker
that dies changes nothing: its lease expires, and the run can be claimed again.

    waiting  -> done | failed | cancelled      the turn is over, or given up
    waiting  -> suspended -> waiting           calls are pending approval; a decision wakes it
    waiting  -> waiting, due later             the provider is unavailable for now

A conversation has at most one run that is not over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from antiphon.errors import RunStateError, StoreDamaged, TooManyRuns, UnknownRun
from antiphon.history.entries import ModelInputEntry
from antiphon.history.export import ExportHead
from antiphon.history.lease import Lease, lease_lost_error
from antiphon.history.store import ENDED_STATES, Run, RunState, check_not_negative, is_id_abbreviation, single_match
from antiphon.ids import ID_LENGTH, new_id

if TYPE_CHECKING:
    from antiphon.history.sql.database import Rows
    from antiphon.history.sql.dialect import Dialect
    from antiphon.history.sql.leases import Leases
    from antiphon.history.sql.log import Log

FROM_RUNS = "FROM runs r JOIN conversations c USING (number)"
IS_RUNNING = "r.state = 'waiting' AND c.held_until > :lease_now"
IS_WAITING = "r.state = 'waiting' AND c.held_until <= :lease_now"
RUNNING_BY_PROVIDER = f"SELECT r.provider, count(*) {FROM_RUNS} WHERE {IS_RUNNING} GROUP BY 1"

_ENDED = ", ".join(f"'{state}'" for state in sorted(ENDED_STATES))
_SELECT = f"""
SELECT r.id, c.id, r.kind, r.code, r.provider, r.options, r.state, r.reason, r.created, r.updated, r.due, r.attempts,
    r.is_cancelled, c.holder, c.epoch, c.held_until, c.held_until > :lease_now {FROM_RUNS}
"""
_INSERT = """
INSERT INTO runs (id, number, kind, code, provider, options, state, reason, created, updated, due)
VALUES (:run, :number, :kind, :code, :provider, :options, 'waiting', '', :now, :now, :now)
"""
_SETTLE = """
UPDATE runs SET updated = :now, due = coalesce(:due, :now), reason = :reason, state =
CASE WHEN is_cancelled AND :state IN ('waiting', 'suspended') THEN 'cancelled' ELSE :state END WHERE id = :run
"""
_CANCEL = f"""
UPDATE runs SET is_cancelled = true, updated = :now, reason = :reason, state = CASE WHEN EXISTS
(SELECT 1 FROM conversations c WHERE c.number = runs.number AND c.held_until > :lease_now) THEN state ELSE 'cancelled' END
WHERE id = :run AND state NOT IN ({_ENDED})
"""
_WAKE = """
UPDATE runs SET state = 'waiting', reason = '', updated = :now, due = :now, attempts = 0, is_cancelled = false
WHERE id = :run AND state IN ('suspended', 'failed')
"""
_ATTEMPT = "UPDATE runs SET attempts = attempts + 1, updated = :now WHERE id = :run AND state = 'waiting' RETURNING id"
_options = msgspec.json.Decoder(dict[str, Any])


class RunTable:
    """The runs of a store. Every change is one transaction."""

    def __init__(self, dialect: Dialect, log: Log, leases: Leases) -> None:
        self._dialect = dialect
        self._log = log
        self._leases = leases

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
        """Submit a turn, in one transaction: the conversation if it is new, the question in its log, and the run.

        Without a question, the turn is already in the log. Raises `RunStateError` if the conversation has a run that is not
        over, and `TooManyRuns` if `max_waiting` runs are already queued.
        """
        if question is None and conversation is None:
            raise RunStateError("nothing to run: give a question, or a conversation to resume")
        run = new_id()
        try:
            options_json = msgspec.json.encode(dict(options or {})).decode()
        except (TypeError, ValueError, RecursionError) as error:
            raise RunStateError(f"the options of a run must be JSON: {error}") from error
        known = self._log.find(conversation).id if conversation is not None else None
        with self._dialect.transaction() as db:
            if max_waiting is not None:
                self._dialect.lock(db, "submit")  # no other transaction counts the waiting runs and adds one
                ((waiting,),) = self._dialect.execute(db, f"SELECT count(*) {FROM_RUNS} WHERE {IS_WAITING}")
                if waiting >= max_waiting:
                    raise TooManyRuns(f"{waiting} runs are already queued, the limit is {max_waiting}; try again later")
            if known is None:
                head = ExportHead.new(title)
                known, number, version = head.id, self._log.insert_conversation(db, head), 0
            else:
                self._dialect.lock_conversation(db, known)
                self._require_no_open_run(db, known)
                number, version = self._locate(db, known)
            if question is not None:
                at = question.timestamp or datetime.now(UTC)
                entry = msgspec.structs.replace(question, sequence_number=version + 1, timestamp=at)
                self._log.insert_entry(db, number, known, entry)
            values = {"number": number, "kind": kind, "code": code, "provider": provider, "options": options_json}
            self._dialect.execute(db, _INSERT, run=run, **values)
        return self.get(run)

    def get(self, run: str) -> Run:
        """A run by its id, the beginning or end of it if only one matches, or `last`. Raises `UnknownRun`."""
        if run == "last":
            found = self._select_runs("ORDER BY r.id DESC LIMIT 1")
        else:
            found = self._select_runs("WHERE r.id = :run", run=run)
            if not found and is_id_abbreviation(run):
                by_an_end = "WHERE substr(r.id, 1, :size) = :run OR substr(r.id, :end) = :run LIMIT 2"
                found = self._select_runs(by_an_end, run=run.lower(), size=len(run), end=ID_LENGTH + 1 - len(run))
        return single_match(found, UnknownRun, run, self._dialect.location)

    def list(
        self, *, state: str | None = None, conversation: str | None = None, limit: int = 50, offset: int = 0
    ) -> Sequence[Run]:
        """Runs, the latest first. `state` may also be `running`."""
        check_not_negative(limit=limit, offset=offset)
        wanted = ["c.id = :conversation"] if conversation is not None else []
        if state is not None:
            wanted.append({"running": IS_RUNNING, "waiting": IS_WAITING}.get(state, "r.state = :state"))
        where = f"WHERE {' AND '.join(wanted)} " if wanted else ""
        rest = f"{where}ORDER BY r.id DESC LIMIT :limit OFFSET :offset"
        return self._select_runs(rest, state=state, conversation=conversation, limit=limit, offset=offset)

    def counts(self) -> dict[str, int]:
        """How many runs there are in each state, `running` included."""
        state = f"CASE WHEN {IS_RUNNING} THEN 'running' ELSE r.state END"
        return dict(self._rows(f"SELECT {state}, count(*) {FROM_RUNS} GROUP BY 1 ORDER BY 1"))

    def claim(
        self,
        holder: str,
        seconds: float,
        *,
        kinds: Mapping[str, int],
        limits: Mapping[str, int] | None = None,
    ) -> Run | None:
        """The oldest waiting run that is due, under a lease; None if there is none for this worker.

        `kinds` are those it knows, with the version of its code: it gets no run that needs a later one. `limits` is how many runs
        of a provider all workers together may execute at once.

        Workers do not wait for each other: each skips what another has locked. Only claims for a provider with a limit queue up,
        at a lock of its name, so the limit is exact. A worker that finds it reached ends its transaction before it looks at the
        next run, so none wait in a circle.
        """
        limits = limits or {}
        running: dict[str, int] = dict(self._rows(RUNNING_BY_PROVIDER)) if limits else {}
        full = {provider for provider, limit in limits.items() if running.get(provider, 0) >= limit}
        # Looked at first without a lock: most workers that look for work find none.
        while self._rows(self._dialect.next_run, kinds=dict(kinds), full=sorted(full)):
            with self._dialect.transaction() as db:
                found = self._dialect.execute(db, self._dialect.next_run_locked, kinds=dict(kinds), full=sorted(full))
                if not found:
                    return None  # other workers are claiming them
                ((run, number, provider),) = found
                if provider in limits and self._is_full(db, provider, limits[provider]):
                    full.add(provider)
                    continue
                if not self._dialect.execute(db, _ATTEMPT, run=run):
                    continue  # it was settled or cancelled just before its conversation was locked
                lease = self._leases.claim_in(db, number, holder, seconds)
                assert lease is not None, "the conversation is not leased, and its row is locked"
            return msgspec.structs.replace(self.get(run), lease=lease)
        return None

    def _is_full(self, db: Any, provider: str, limit: int) -> bool:
        """Whether a provider's limit is reached. Until the transaction ends, no other one counts its runs."""
        self._dialect.lock(db, f"provider {provider}")
        running = f"SELECT count(*) {FROM_RUNS} WHERE {IS_RUNNING} AND r.provider = :provider"
        ((number,),) = self._dialect.execute(db, running, provider=provider)
        return int(number) >= limit

    def settle(self, run: str, lease: Lease, state: RunState, reason: str = "", *, due: datetime | None = None) -> Run:
        """Set the state of a run and release its lease, in one transaction. Raises `LeaseLost` if the lease ended.

        A run that was cancelled meanwhile does not wait again.
        """
        with self._dialect.transaction() as db:
            if not self._leases.release_in(db, lease):
                raise lease_lost_error(lease.conversation, lease.epoch)
            self._dialect.execute(db, _SETTLE, run=run, state=state, reason=reason, due=due)
        return self.get(run)

    def cancel(self, run: str, reason: str = "") -> Run:
        """Cancel a run: at once if no worker has it, else when its worker next looks. A run that is over does not change."""
        known = self.get(run)
        with self._dialect.transaction() as db:
            # No worker can claim it meanwhile: else a run would be cancelled under a worker that just claimed it.
            self._dialect.lock_conversation(db, known.conversation)
            self._dialect.execute(db, _CANCEL, run=known.id, reason=reason)
        return self.get(known.id)

    def wake(self, run: str) -> Run:
        """Queue a suspended or failed run again, due now; other runs do not change."""
        known = self.get(run)
        with self._dialect.transaction() as db:
            self._dialect.lock_conversation(db, known.conversation)
            if known.is_over:
                self._require_no_open_run(db, known.conversation)
            self._dialect.execute(db, _WAKE, run=known.id)
        return self.get(known.id)

    def _rows(self, query: str, **values: Any) -> Rows:
        return self._dialect.rows(query, **values) if self._dialect.has_leases else []

    def _locate(self, db: Any, conversation: str) -> tuple[int, int]:
        """The number and the version of a conversation."""
        located = f"SELECT c.number, {self._dialect.version} FROM conversations c WHERE c.id = :conversation"
        for number, version in self._dialect.execute(db, located, conversation=conversation):
            return number, version
        raise self._log.deleted_error(conversation)

    def _require_no_open_run(self, db: Any, conversation: str) -> None:
        unfinished = f"{_SELECT} WHERE c.id = :conversation AND r.state NOT IN ({_ENDED})"
        for row in self._dialect.execute(db, unfinished, conversation=conversation):
            run = self._run(*row)
            raise RunStateError(
                f"conversation {conversation} has a run that is not over ({run.id}, {run.display_state}); wait for its end or "
                "cancel it"
            )

    def _select_runs(self, rest: str, **given: Any) -> Sequence[Run]:
        return [self._run(*row) for row in self._rows(f"{_SELECT} {rest}", **given)]

    def _run(
        self,
        run: str,
        conversation: str,
        kind: str,
        code: int,
        provider: str,
        options: str,
        state: RunState,
        reason: str,
        created: Any,
        updated: Any,
        due: Any,
        attempts: int,
        is_cancelled: int,
        holder: str,
        epoch: int,
        until: Any,
        is_held: int,
    ) -> Run:
        try:
            known_options = _options.decode(options)
            moments = [self._dialect.to_datetime(at) for at in (created, updated, due)]
            lease = Lease(
                conversation=conversation, holder=holder, epoch=epoch, expires=self._dialect.lease_expiry(until)
            )
        except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
            raise StoreDamaged(f"{self._dialect.location}: the row of run {run} is damaged: {error}") from error
        return Run(
            id=run,
            conversation=conversation,
            kind=kind,
            code=code,
            provider=provider,
            options=known_options,
            state=state,
            reason=reason,
            created=moments[0],
            updated=moments[1],
            due=moments[2],
            attempts=attempts,
            is_cancelled=bool(is_cancelled),
            lease=lease if is_held else None,
        )
