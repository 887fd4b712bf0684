"""`RunTable`: which conversations are to be gone on with, and by whom; the part of a store that workers look at.

A run is one turn that somebody asked for and some worker is to bring to its end. What happened in it is in the log; its row says
only whether anybody must still look at it. That a run is being played is no state of its own: it is a waiting run whose
conversation is leased. A worker that dies changes nothing, its lease runs out, and the run is simply there to be claimed.

    waiting  -> done | failed | cancelled      the turn is over, or given up
    waiting  -> suspended -> waiting           calls wait for a person; a decision wakes it
    waiting  -> waiting, due later             the provider is away for now

A conversation has at most one run that is not over.

What all stores do alike is here, in statements that SQLite and PostgreSQL both understand: a value stands in them as `:name`, and
`:now` is the time by the store's clock, `:lease_now` by that of its leases. A store says how they are asked, and how it claims:
there the databases lock in ways of their own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from antiphon.errors import RunRefused, StoreDamaged, TooManyRuns
from antiphon.history.asked import check_not_negative, may_be_an_end, the_run
from antiphon.history.entries import HistoryEntry, ModelInputEntry
from antiphon.history.ids import ID_LENGTH, new_id
from antiphon.history.lease import Lease, lease_lost_error

RunState: TypeAlias = Literal["waiting", "suspended", "done", "failed", "cancelled"]
Rows: TypeAlias = Sequence[tuple[Any, ...]]
ENDED: frozenset[str] = frozenset({"done", "failed", "cancelled"})

RUNS = "FROM runs r JOIN conversations c USING (number)"
RUNNING = "r.state = 'waiting' AND c.held_until > :lease_now"
WAITING = "r.state = 'waiting' AND c.held_until <= :lease_now"
PLAYED = f"SELECT r.provider, count(*) {RUNS} WHERE {RUNNING} GROUP BY 1"

_ENDED = ", ".join(f"'{state}'" for state in sorted(ENDED))
_SELECT = f"""
SELECT r.id, c.id, r.kind, r.code, r.provider, r.options, r.state, r.reason, r.created, r.updated, r.due, r.attempts,
    r.is_cancelled, c.holder, c.epoch, c.held_until, c.held_until > :lease_now {RUNS}
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
_options = msgspec.json.Decoder(dict[str, Any])


class Run(Struct, frozen=True, kw_only=True):
    """The row of a run, and the lease under which it is being played if it is."""

    id: str
    conversation: str
    kind: str
    """What sort of run it is: the name under which workers know the model, the tools and the bounds."""
    code: int = 0
    """The least version of that kind's code that may play it."""
    provider: str = ""
    """Whose limit it counts against."""
    options: dict[str, Any] = {}
    """What the submitter said about it, for the code of its kind."""
    state: RunState = "waiting"
    reason: str = ""
    """Why it stands as it does: how the turn ended, what failed, who cancelled it."""
    created: datetime
    updated: datetime
    due: datetime
    """Not before this."""
    attempts: int = 0
    """How often it was claimed."""
    is_cancelled: bool = False
    """Whether its end was asked for while somebody plays it."""
    lease: Lease | None = None

    @property
    def is_over(self) -> bool:
        return self.state in ENDED

    @property
    def standing(self) -> str:
        """The state in one word, a played run told from one that waits."""
        return "running" if self.state == "waiting" and self.lease is not None else self.state


class RunTable(ABC):
    """The runs of a store at `place`."""

    def __init__(self, place: str) -> None:
        self._place = place

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
        """Ask for a turn, in one transaction: the conversation if it is new, the question in its log, and the run.

        Without a question the turn stands in the log already. Raises `RunRefused` if the conversation has a run that is not
        over, and `TooManyRuns` if `max_waiting` others wait already.
        """
        if question is None and conversation is None:
            raise RunRefused("there is nothing to run: give a question, or a conversation to go on with")
        run = new_id()
        try:
            told = msgspec.json.encode(dict(options or {})).decode()
        except (TypeError, ValueError, RecursionError) as error:
            raise RunRefused(f"the options of a run must be JSON: {error}") from error
        known = self._id_of(conversation) if conversation is not None else None
        with self._transaction() as db:
            if max_waiting is not None:
                self._submits_alone(db)
                ((waiting,),) = self._done(db, f"SELECT count(*) {RUNS} WHERE {WAITING}")
                if waiting >= max_waiting:
                    raise TooManyRuns(f"{waiting} runs wait already, and {max_waiting} may; try again later")
            if known is not None:
                self._hold(db, known)
                self._check_free(db, known)
            number, version = self._place_of(db, known, title)
            if question is not None:
                at = question.timestamp or datetime.now(UTC)
                self._insert_entry(
                    db, number, msgspec.structs.replace(question, sequence_number=version + 1, timestamp=at)
                )
            given = {"number": number, "kind": kind, "code": code, "provider": provider, "options": told}
            self._done(db, _INSERT, run=run, **given)
        return self.get(run)

    def get(self, run: str) -> Run:
        """A run by its id, or the beginning or end of it if only one fits, or `last`. Raises `UnknownRun`."""
        if run == "last":
            found = self._found("ORDER BY r.id DESC LIMIT 1")
        else:
            found = self._found("WHERE r.id = :run", run=run)
            if not found and may_be_an_end(run):
                by_an_end = "WHERE substr(r.id, 1, :size) = :run OR substr(r.id, :end) = :run LIMIT 2"
                found = self._found(by_an_end, run=run.lower(), size=len(run), end=ID_LENGTH + 1 - len(run))
        return the_run(found, run, self._place)

    def list(
        self, *, state: str | None = None, conversation: str | None = None, limit: int = 50, offset: int = 0
    ) -> Sequence[Run]:
        """Runs, the latest first. `state` may also be `running`."""
        check_not_negative(limit=limit, offset=offset)
        wanted = ["c.id = :conversation"] if conversation is not None else []
        if state is not None:
            wanted.append({"running": RUNNING, "waiting": WAITING}.get(state, "r.state = :state"))
        where = f"WHERE {' AND '.join(wanted)} " if wanted else ""
        rest = f"{where}ORDER BY r.id DESC LIMIT :limit OFFSET :offset"
        return self._found(rest, state=state, conversation=conversation, limit=limit, offset=offset)

    def counts(self) -> dict[str, int]:
        """How many runs there are in each standing, `running` among them."""
        standing = f"CASE WHEN {RUNNING} THEN 'running' ELSE r.state END"
        return dict(self._rows(f"SELECT {standing}, count(*) {RUNS} GROUP BY 1 ORDER BY 1"))

    @abstractmethod
    def claim(
        self,
        holder: str,
        seconds: float,
        *,
        kinds: Mapping[str, int],
        limits: Mapping[str, int] | None = None,
    ) -> Run | None:
        """The oldest waiting run that is due, under a lease; None if there is none for this worker.

        `kinds` are those it knows, with the version of its code: it is given none that asks for a later one. `limits` say how
        many runs of a provider may be played at once by all workers together.
        """

    def settle(self, run: str, lease: Lease, state: RunState, reason: str = "", *, due: datetime | None = None) -> Run:
        """Say how the run stands and give the lease back, in one transaction. Raises `LeaseLost` if it is another's by now.

        A run whose end was asked for meanwhile does not wait again: it is cancelled.
        """
        with self._transaction() as db:
            if not self._give_back(db, lease):
                raise lease_lost_error(lease.conversation, lease.epoch)
            self._done(db, _SETTLE, run=run, state=state, reason=reason, due=due)
        return self.get(run)

    def cancel(self, run: str, reason: str = "") -> Run:
        """Ask for the end of a run: at once if nobody plays it, else when its player next looks. What is over stays as it is."""
        known = self.get(run)
        with self._transaction() as db:
            # Nobody can take the lease while it is looked at: else a run would be cancelled under a worker that just claimed it.
            self._hold(db, known.conversation)
            self._done(db, _CANCEL, run=known.id, reason=reason)
        return self.get(known.id)

    def wake(self, run: str) -> Run:
        """Let a suspended or failed run wait again, due now; a run that waits or is over otherwise stays as it is."""
        known = self.get(run)
        with self._transaction() as db:
            self._hold(db, known.conversation)
            if known.is_over:
                self._check_free(db, known.conversation)
            self._done(db, _WAKE, run=known.id)
        return self.get(known.id)

    # What a store says.

    @abstractmethod
    def _rows(self, query: str, **given: object) -> Rows:
        """What a question gives."""

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[Any]:
        """A transaction in the database."""

    @abstractmethod
    def _done(self, db: Any, statement: str, **given: object) -> Rows:
        """What a statement of a transaction gives, if it gives something."""

    @abstractmethod
    def _hold(self, db: Any, conversation: str) -> None:
        """Until the transaction ends, nobody else changes or claims that conversation."""

    @abstractmethod
    def _submits_alone(self, db: Any) -> None:
        """Until the transaction ends, nobody else counts the runs that wait and adds one."""

    @abstractmethod
    def _id_of(self, conversation: str) -> str:
        """The id of the conversation that is meant."""

    @abstractmethod
    def _place_of(self, db: Any, conversation: str | None, title: str) -> tuple[int, int]:
        """The number and the version of a conversation; of a new one, if none is named."""

    @abstractmethod
    def _insert_entry(self, db: Any, number: int, entry: HistoryEntry) -> None:
        """Write an entry as part of a transaction. Raises `LeaseHeld` if somebody holds the conversation."""

    @abstractmethod
    def _give_back(self, db: Any, lease: Lease) -> bool:
        """End a lease, and say whether it was still that holder's."""

    @abstractmethod
    def _moment(self, at: Any) -> datetime:
        """A time, of what the database gives for it."""

    @abstractmethod
    def _expires(self, until: Any) -> datetime:
        """When a lease ends, of what the database gives for it."""

    def _check_free(self, db: Any, conversation: str) -> None:
        unfinished = f"{_SELECT} WHERE c.id = :conversation AND r.state NOT IN ({_ENDED})"
        for row in self._done(db, unfinished, conversation=conversation):
            run = self._run(*row)
            raise RunRefused(
                f"conversation {conversation} has a run that is not over ({run.id}, {run.standing}); wait for its end or "
                "cancel it"
            )

    def _found(self, rest: str, **given: object) -> Sequence[Run]:
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
            moments = [self._moment(at) for at in (created, updated, due)]
            lease = Lease(conversation=conversation, holder=holder, epoch=epoch, expires=self._expires(until))
        except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
            raise StoreDamaged(f"{self._place}: the row of run {run} is damaged: {error}") from error
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
