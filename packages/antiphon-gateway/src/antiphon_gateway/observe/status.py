"""`Status`: the state of the gateway as one value, which is written as JSON for programs and for the status page.

Nothing in it is secret: credentials are named and masked, errors are already scrubbed. With several workers the requests are
those of all of them, and so are the counts of credentials; workers share the states of credentials and circuits (`WorkerHealth`).
The state of the shared store is that of the worker that handles the request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from antiphon.providers.keys.health import CredentialStatus
from antiphon.providers.keys.target_health import CircuitStatus
from antiphon_gateway.ledger.search import RequestFilter
from antiphon_gateway.observe.recent import Activity, Minute, RequestRecord, percentile
from antiphon_gateway.observe.request_search import LedgerSearch, TargetStats, matches, target_stats
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
        credentials=tuple(
            credential_row(provider, status, now) for provider, statuses in credentials.items() for status in statuses
        ),
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
