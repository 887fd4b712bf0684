"""`Status`: the state of the gateway as one value, and `status_json`, which writes it for programs and for the status page.

Nothing in it is secret: credentials are named and masked, errors are already scrubbed. With several workers the requests are
those of all of them, and so are the counts of credentials; workers share the states of credentials and circuits (`WorkerHealth`).
The state of the shared store is that of the worker that handles the request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec import Struct

from antiphon.providers.keys.health import CredentialStatus
from antiphon.providers.keys.target_health import CircuitStatus
from antiphon_gateway.observe.recent import Activity, Minute, RequestRecord, percentile
from antiphon_gateway.observe.record import Outcome
from antiphon_gateway.observe.request_search import LedgerSearch, RequestFilter, TargetStats, target_stats
from antiphon_gateway.observe.spend_summary import SpendSummary
from antiphon_gateway.share.redis_store import SharedStatus


class ReloadResult(Struct, frozen=True, kw_only=True):
    """The last reload. After a rejected one the old configuration stays in use; `problems` are the reasons."""

    time: datetime
    is_applied: bool
    problems: tuple[str, ...] = ()


class ServerStatus(Struct, frozen=True, kw_only=True):
    """The gateway itself. `workers` is the number of workers so far, including those that ended."""

    version: str
    started: datetime
    now: datetime
    config_file: str = ""
    workers: int = 1
    reload: ReloadResult | None = None
    shared: SharedStatus | None = None

    @property
    def uptime(self) -> float:
        """Seconds since the start."""
        return max(0.0, (self.now - self.started).total_seconds())


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


class MinuteRow(Struct, frozen=True, kw_only=True):
    """One minute of requests in numbers. Times are None if there were no answers."""

    time: datetime
    requests: int
    refused: int
    failed: int
    p50_seconds: float | None
    p95_seconds: float | None
    first_token_p50_seconds: float | None

    @classmethod
    def of(cls, minute: Minute) -> MinuteRow:
        """The numbers of a minute."""
        return cls(
            time=datetime.fromtimestamp(minute.start, UTC),
            requests=minute.requests,
            refused=minute.refused,
            failed=minute.failed,
            p50_seconds=percentile(minute.seconds, 0.5),
            p95_seconds=percentile(minute.seconds, 0.95),
            first_token_p50_seconds=percentile(minute.first_token, 0.5),
        )


class HourRow(Struct, frozen=True, kw_only=True):
    """The last hour in numbers. Times are None if there were no answers."""

    requests: int
    refused: int
    failed: int
    p50_seconds: float | None
    p95_seconds: float | None
    first_token_p50_seconds: float | None
    first_token_p95_seconds: float | None
    prompt_tokens: int
    cached_tokens: int

    @classmethod
    def of(cls, minutes: Sequence[Minute]) -> HourRow:
        """The minutes added up."""
        hour = Minute(0)
        for minute in minutes:
            hour.merge(minute)
        return cls(
            requests=hour.requests,
            refused=hour.refused,
            failed=hour.failed,
            p50_seconds=percentile(hour.seconds, 0.5),
            p95_seconds=percentile(hour.seconds, 0.95),
            first_token_p50_seconds=percentile(hour.first_token, 0.5),
            first_token_p95_seconds=percentile(hour.first_token, 0.95),
            prompt_tokens=hour.prompt_tokens,
            cached_tokens=hour.cached_tokens,
        )


class ShownRequest(RequestRecord, frozen=True, kw_only=True):
    """A request as JSON has it: with how it ended."""

    outcome: Outcome

    @classmethod
    def of_record(cls, record: RequestRecord) -> ShownRequest:
        """The record with its outcome."""
        return cls(**{name: getattr(record, name) for name in record.__struct_fields__}, outcome=record.outcome)


class Status(Struct, frozen=True, kw_only=True):
    """Everything `/status` shows."""

    server: ServerStatus
    credentials: tuple[CredentialRow, ...]
    models: tuple[ModelRow, ...]
    seen: Activity
    spend: SpendSummary | None = None
    """What was spent; None if it is not known here."""
    circuits: tuple[CircuitRow, ...] = ()
    ledger: LedgerSearch | None = None
    """What a search found in the ledger; None without a search."""


class StatusDocument(Struct, frozen=True, kw_only=True):
    """The shape of a status as JSON."""

    server: ServerStatus
    uptime_seconds: float
    credentials: tuple[CredentialRow, ...]
    circuits: tuple[CircuitRow, ...]
    models: tuple[ModelRow, ...]
    hour: HourRow
    minutes: list[MinuteRow]
    requests: list[ShownRequest]
    targets: list[TargetStats]
    spend: SpendSummary | None
    ledger: LedgerSearch | None = None


def build_status(
    *,
    version: str,
    started: datetime,
    now: datetime,
    seen: Activity,
    credentials: Mapping[str, Sequence[CredentialStatus]],
    models: Mapping[str, Sequence[str]],
    circuits: Sequence[CircuitStatus] = (),
    config_file: str = "",
    reload: ReloadResult | None = None,
    shared: SharedStatus | None = None,
    spend: SpendSummary | None = None,
    ledger: LedgerSearch | None = None,
) -> Status:
    """The present status. `credentials` are those of each provider, `models` the targets of each route."""
    return Status(
        server=ServerStatus(
            version=version,
            started=started,
            now=now,
            config_file=config_file,
            workers=seen.workers,
            reload=reload,
            shared=shared,
        ),
        credentials=tuple(
            credential_row(provider, status, now) for provider, statuses in credentials.items() for status in statuses
        ),
        models=tuple(ModelRow(name, tuple(targets)) for name, targets in models.items()),
        seen=seen,
        spend=spend,
        ledger=ledger,
        circuits=tuple(_circuit_row(circuit, now) for circuit in circuits),
    )


def status_json(status: Status, search: RequestFilter | None = None) -> bytes:
    """The status as JSON: everything the page shows, and all stored requests that match `search`."""
    records = status.seen.records
    found = records if search is None or search.is_empty else [record for record in records if search.matches(record)]
    return msgspec.json.encode(
        StatusDocument(
            server=status.server,
            uptime_seconds=status.server.uptime,
            credentials=status.credentials,
            circuits=status.circuits,
            models=status.models,
            hour=HourRow.of(status.seen.minutes),
            minutes=[MinuteRow.of(minute) for minute in status.seen.minutes],
            requests=[ShownRequest.of_record(record) for record in found],
            targets=target_stats(records),
            spend=status.spend,
            ledger=status.ledger,
        )
    )


def credential_row(provider: str, status: CredentialStatus, now: datetime) -> CredentialRow:
    """The health of a provider's key, with times instead of seconds."""
    error, health = status.last_error, status.health
    return CredentialRow(
        provider=provider,
        name=status.name,
        masked=status.masked,
        state=health.state,
        until=_until(health.seconds, now),
        resting=tuple(
            CoolingModel(model, held.state, _until(held.seconds, now)) for model, held in status.models.items()
        ),
        calls=status.calls,
        successes=status.successes,
        failures=status.failures,
        last_error=f"{error.kind}: {error.message}" if error is not None else "",
    )


def _circuit_row(circuit: CircuitStatus, now: datetime) -> CircuitRow:
    error = circuit.last_error
    return CircuitRow(
        target=str(circuit.target),
        state=circuit.state,
        until=_until(circuit.seconds, now),
        last_error=f"{error.kind}: {error.message}" if error is not None else "",
    )


def _until(seconds: float, now: datetime) -> datetime | None:
    return now + timedelta(seconds=seconds) if seconds > 0 else None
