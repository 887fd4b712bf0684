"""`Status`: the state of the gateway as one value, which is written as JSON for programs and for the status page.

Nothing in it is secret: credentials are named and masked, errors are already scrubbed. With several workers the requests are
those of all of them, and so are the counts of credentials; workers share the states of credentials and circuits (`WorkerHealth`).
The state of the shared store is that of the worker that handles the request.

What was spent (`SpendSummary`) is read from the usage ledger, which all workers and hosts write, in a thread and at most every
few seconds; less often if reading takes long. A reader may search the recent requests, by key, model, status, outcome, day, and
text of the error or the request id, and the ledger for what is older than those in memory, or was on another host.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

from msgspec import Struct, structs

from antiphon.errors import AntiphonError
from antiphon.history.sql.database import Database
from antiphon.providers.keys.health import CredentialStatus
from antiphon.providers.keys.target_health import CircuitStatus
from antiphon_gateway.config.reload import ReloadResult
from antiphon_gateway.ledger.database import OperatorDatabase
from antiphon_gateway.ledger.search import AttemptPage, RequestFilter, search_attempts
from antiphon_gateway.ledger.spend import RecentSpend, SpendRow, spend
from antiphon_gateway.observe.recent import Activity, Minute, RequestRecord, exact_percentile, percentile
from antiphon_gateway.share.redis_state import SharedStatus

DAYS = 30
_KEPT_SECONDS = 3.0
_FAILED_SECONDS = 15.0
_LEAST_PAUSE = 20.0
"""How many times as long as reading took the result is used: the page takes at most a twentieth of a processor."""
_PATIENCE_SECONDS = 2.0
_MOST_DIGITS = 18


class SpendSummary(Struct, frozen=True, kw_only=True):
    """The sums of the last days, the largest first. Without a ledger all are empty."""

    days: int = DAYS
    is_on: bool = True
    problem: str = ""
    """Why the ledger cannot be read at present: the sums are those that were read last."""
    by_key: tuple[SpendRow, ...] = ()
    by_model: tuple[SpendRow, ...] = ()
    by_day: tuple[SpendRow, ...] = ()
    """The newest first."""
    today: SpendRow | None = None


class LedgerSearch(Struct, frozen=True, kw_only=True):
    """What was found. `problem` is why nothing could be searched."""

    page: AttemptPage = AttemptPage()
    problem: str = ""


class LedgerReader:
    """Reads what the page shows of the ledger, and waits for it only a moment: the rest of the page needs no database.

    One reading of the sums is for all readers of the next seconds. One that takes longer is for those that come later.
    Without a `database` there is no ledger.
    """

    def __init__(self, database: OperatorDatabase | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._clock = clock
        self._until = 0.0
        self._last = SpendSummary()
        self._recent = RecentSpend()
        self._reading: asyncio.Task[None] | None = None

    async def spend(self) -> SpendSummary:
        """The sums of now, or the last ones if the ledger does not answer."""
        database = self._database
        if database is None or not database.exists:
            return SpendSummary(is_on=database is not None)
        if self._clock() >= self._until:
            self._reading = self._reading or asyncio.create_task(self._read(database))
            try:
                await asyncio.wait_for(asyncio.shield(self._reading), _PATIENCE_SECONDS)
            except TimeoutError:
                self._keep(structs.replace(self._last, problem=_silent(database)), _FAILED_SECONDS)
        return self._last

    async def search(self, search: RequestFilter, query: Mapping[str, str]) -> LedgerSearch | None:
        """What a reader looks for, in the ledger; None without a search. `before` in the query is the cursor."""
        database = self._database
        if database is None or (search.is_empty and "before" not in query):
            return None
        cursor = query.get("before", "")
        if cursor and not (cursor.isascii() and cursor.isdigit() and len(cursor) <= _MOST_DIGITS):
            return LedgerSearch(problem=f"before is a cursor from the page before, not {cursor[:40]!r}")
        searching = partial(search_attempts, wanted=search, before=int(cursor) if cursor else None)
        try:
            search.read_day()  # a wrong one is said, whatever there is to search
            if not database.exists:
                return LedgerSearch()
            if self._reading is not None:  # the page has waited for it already
                return LedgerSearch(problem=_silent(database))
            return LedgerSearch(page=await asyncio.wait_for(database.run(searching), _PATIENCE_SECONDS))
        except AntiphonError as error:
            return LedgerSearch(problem=str(error))
        except TimeoutError:
            return LedgerSearch(problem=_silent(database))

    async def _read(self, database: OperatorDatabase) -> None:
        began = self._clock()
        try:
            found = await database.run(partial(read_spend, now=datetime.now(UTC), recent=self._recent))
            self._keep(found, max(_KEPT_SECONDS, _LEAST_PAUSE * (self._clock() - began)))
        except AntiphonError as error:
            self._keep(structs.replace(self._last, problem=str(error)), _FAILED_SECONDS)
        finally:
            self._reading = None

    def _keep(self, summary: SpendSummary, seconds: float) -> None:
        self._last, self._until = summary, self._clock() + seconds


def _silent(database: OperatorDatabase) -> str:
    return f"{database.location} does not answer"


def read_spend(database: Database, now: datetime, recent: RecentSpend) -> SpendSummary:
    """The summary, from the database. Raises `StoreError`."""
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    since = today - timedelta(days=DAYS - 1)
    by_day = spend(database, ("day",), since=since)
    return SpendSummary(
        by_key=_largest_first(recent.by_key(database, since, today)),
        by_model=_largest_first(spend(database, ("model", "provider"), since=since)),
        by_day=tuple(reversed(by_day)),
        today=next((row for row in by_day if row.day == now.date()), None),
    )


def _largest_first(rows: list[SpendRow]) -> tuple[SpendRow, ...]:
    return tuple(sorted(rows, key=lambda row: (-(row.cost or 0), -row.usage.total_tokens)))


def matches(search: RequestFilter, record: RequestRecord) -> bool:
    """Whether a request is one that the reader looks for."""
    return (
        _contains(record.key, search.key)
        and (_contains(record.model, search.model) or _contains(record.target, search.model))
        and str(record.status).startswith(search.status)
        and search.outcome in ("", record.outcome)
        and search.day in ("", record.time.date().isoformat())
        and (not search.text or any(_contains(text, search.text) for text in _texts(record)))
    )


class TargetStats(Struct, frozen=True, kw_only=True):
    """The recent requests of one target in numbers. Times and tokens are of those that it answered."""

    target: str
    requests: int
    """How many asked it."""
    failed: int
    """How many of them it failed, whether another target answered or not."""
    p50_seconds: float | None
    p95_seconds: float | None
    ttft_p50_seconds: float | None
    ttft_p95_seconds: float | None
    prompt_tokens: int
    cached_tokens: int


def target_stats(records: Sequence[RequestRecord]) -> list[TargetStats]:
    """The numbers of each target, the most used first."""
    by_target: dict[str, list[RequestRecord]] = {}
    for record in records:
        for target in dict.fromkeys(filter(None, (*(attempt.target for attempt in record.attempts), record.target))):
            by_target.setdefault(target, []).append(record)
    return sorted((_stats(target, held) for target, held in by_target.items()), key=lambda one: -one.requests)


def _has_failed(target: str, record: RequestRecord) -> bool:
    """Whether a target failed a request: by its last attempt, or by the end of the request if it was the last target."""
    attempts = [attempt for attempt in record.attempts if attempt.target == target]
    return bool(attempts and attempts[-1].is_failed) or (target == record.target and record.outcome == "failed")


def _stats(target: str, asked: list[RequestRecord]) -> TargetStats:
    records = [record for record in asked if record.target == target]
    answered = [record.seconds for record in records if record.outcome == "answered"]
    first = [record.first_token_seconds for record in records if record.first_token_seconds is not None]
    return TargetStats(
        target=target,
        requests=len(asked),
        failed=sum(_has_failed(target, record) for record in asked),
        p50_seconds=exact_percentile(answered, 0.5),
        p95_seconds=exact_percentile(answered, 0.95),
        ttft_p50_seconds=exact_percentile(first, 0.5),
        ttft_p95_seconds=exact_percentile(first, 0.95),
        prompt_tokens=sum(record.prompt_tokens for record in records),
        cached_tokens=sum(record.cached_tokens for record in records),
    )


def _texts(record: RequestRecord) -> tuple[str, ...]:
    attempts = [attempt.error for attempt in record.attempts]
    return (record.id, record.error, *attempts, *record.fallbacks, *record.repairs, *record.losses)


def _contains(text: str, part: str) -> bool:
    return not part or part.casefold() in text.casefold()


class ServerStatus(Struct, frozen=True, kw_only=True):
    """The gateway itself. `workers` is the number of workers so far, including those that ended."""

    version: str
    started: datetime
    now: datetime
    config_file: str = ""
    workers: int = 1
    reload: ReloadResult | None = None
    shared: SharedStatus | None = None


class CoolingModel(Struct, frozen=True):
    """A cooldown of a credential for one model."""

    model: str
    state: str
    until: datetime | None


class CredentialRow(Struct, frozen=True, kw_only=True):
    """One credential: its name, the worst of its states and when that ends, and counts."""

    provider: str
    name: str
    masked: str
    state: str
    until: datetime | None
    resting: tuple[CoolingModel, ...]
    calls: int
    successes: int
    failures: int
    last_error: str


class CircuitRow(Struct, frozen=True, kw_only=True):
    """A target that is skipped after failures in a row. `until` is when it is probed next."""

    target: str
    state: str
    until: datetime | None
    last_error: str


class ModelRow(Struct, frozen=True):
    """A route: the name clients use, and its targets in order."""

    name: str
    targets: tuple[str, ...]


class Status(Struct, frozen=True, kw_only=True):
    """Everything `/status` shows, in the shape of its JSON."""

    server: ServerStatus
    uptime_seconds: float
    credentials: tuple[CredentialRow, ...]
    circuits: tuple[CircuitRow, ...]
    models: tuple[ModelRow, ...]
    hour: Mapping[str, object]
    minutes: list[Mapping[str, object]]
    requests: list[RequestRecord]
    targets: list[TargetStats]
    spend: SpendSummary | None
    """What was spent; None if it is not known here."""
    ledger: LedgerSearch | None
    """What a search found in the ledger; None without a search."""


def build_status(
    server: ServerStatus,
    *,
    seen: Activity,
    credentials: Mapping[str, Sequence[CredentialStatus]],
    models: Mapping[str, Sequence[str]],
    circuits: Sequence[CircuitStatus] = (),
    spend: SpendSummary | None = None,
    ledger: LedgerSearch | None = None,
    search: RequestFilter | None = None,
) -> Status:
    """The present status, with all stored requests that match `search`.

    `credentials` are those of each provider, `models` the targets of each route.
    """
    now, records, hour = server.now, seen.records, Minute(0)
    for minute in seen.minutes:
        hour.merge(minute)
    return Status(
        server=server,
        uptime_seconds=max(0.0, (now - server.started).total_seconds()),
        credentials=tuple(credential_rows(credentials, now)),
        circuits=tuple(_circuit_row(circuit, now) for circuit in circuits),
        models=tuple(ModelRow(name, tuple(targets)) for name, targets in models.items()),
        hour={
            **_numbers(hour),
            "first_token_p95_seconds": percentile(hour.first_token, 0.95),
            "prompt_tokens": hour.prompt_tokens,
            "cached_tokens": hour.cached_tokens,
        },
        minutes=[{"time": datetime.fromtimestamp(minute.start, UTC), **_numbers(minute)} for minute in seen.minutes],
        requests=records if search is None or search.is_empty else [each for each in records if matches(search, each)],
        targets=target_stats(records),
        spend=spend,
        ledger=ledger,
    )


def _numbers(minute: Minute) -> dict[str, object]:
    """Some time of requests in numbers. Times are None if there were no answers."""
    return {
        "requests": minute.requests,
        "refused": minute.refused,
        "failed": minute.failed,
        "p50_seconds": percentile(minute.seconds, 0.5),
        "p95_seconds": percentile(minute.seconds, 0.95),
        "first_token_p50_seconds": percentile(minute.first_token, 0.5),
    }


def credential_rows(credentials: Mapping[str, Sequence[CredentialStatus]], now: datetime) -> Iterator[CredentialRow]:
    """The health of the keys of each provider, with times instead of seconds."""
    for provider, statuses in credentials.items():
        for status in statuses:
            yield CredentialRow(
                provider=provider,
                name=status.name,
                masked=status.masked,
                state=status.health.state,
                until=_until(status.health.seconds, now),
                resting=tuple(
                    CoolingModel(model, held.state, _until(held.seconds, now)) for model, held in status.models.items()
                ),
                calls=status.calls,
                successes=status.successes,
                failures=status.failures,
                last_error=str(status.last_error or ""),
            )


def _circuit_row(circuit: CircuitStatus, now: datetime) -> CircuitRow:
    return CircuitRow(
        target=str(circuit.target),
        state=circuit.state,
        until=_until(circuit.seconds, now),
        last_error=str(circuit.last_error or ""),
    )


def _until(seconds: float, now: datetime) -> datetime | None:
    return now + timedelta(seconds=seconds) if seconds > 0 else None
