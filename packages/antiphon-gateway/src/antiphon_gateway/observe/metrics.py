"""`Metrics`: what the gateway counts, and the text that Prometheus scrapes.

The number of series is bounded. `model` is the route as written in the configuration, `other` for the rest: clients cannot
create series by inventing models. `what` of a loss is a field name of the formats, `other` for anything else or above a limit.
All other labels come from the configuration or a closed list.

Workers share their counts through `WorkerFiles`, and a scrape of any worker returns the sum. The states of credentials and
of the shared store are reported per worker, because each worker has its own.
"""

from __future__ import annotations

import logging
import re
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar, get_args

import msgspec
from msgspec import Struct

from antiphon.http.server.application import Traffic
from antiphon.providers.call import Attempt
from antiphon.providers.keys.health import CredentialStatus, KeyState
from antiphon.providers.keys.target_health import CircuitStatus
from antiphon_gateway.observe.instruments import OTHER, Counter, Family, Gauge, Histogram, Rows, add_rows
from antiphon_gateway.observe.record import CHAT_PAGE, Record
from antiphon_gateway.share.workers import WorkerFiles

if TYPE_CHECKING:
    from antiphon_gateway.ledger.ledger import Label, LedgerStatus, Spent

_Family = TypeVar("_Family", bound=Family)

STATES: tuple[KeyState, ...] = get_args(KeyState)

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 300, 600)
_FIRST_TOKEN_SECONDS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 60)
_OVERHEAD_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1)

_FAMILIES = """
requests_total: client_format upstream_format provider model status streamed key: Requests answered.
tokens_total: kind provider model key: Tokens as counted by the providers; cached and cache_write are part of prompt, \
reasoning of completion.
request_seconds: client_format provider model: Time from the first request byte to the last response byte.
first_token_seconds: provider model: Time from the first request byte to the first content of the response.
overhead_seconds: client_format upstream_format: Time spent in the gateway, excluding waits for the upstream and the client.
repairs_total: kind: Repairs of message sequences.
losses_total: what: Fields dropped in translation, by field.
upstream_attempts_total: provider: Upstream requests sent.
upstream_failures_total: provider kind: Upstream requests that failed, by error kind.
tool_calls_total: tool outcome: Tool calls of the chat page that ended.
tool_seconds: tool: Time of a tool call of the chat page.
reloads_total: outcome: Configuration reloads.
log_failures_total: : Log lines that could not be written.
requests_in_flight: : Requests in progress.
connections: : Open client connections.
credentials: worker provider state: Credentials in each state, as each worker sees them.
circuits_open: worker provider model state: Circuits of targets that are not closed, as each worker sees them.
shared_store_up: worker: 1 if the worker can reach the shared store, else 0.
ledger_tokens_total: kind provider model key: Tokens of written ledger rows, estimates included.
ledger_cost_dollars_total: provider model key: What written ledger rows cost, in US dollars, by the prices when they were written.
ledger_unpriced_calls_total: provider model key: Written ledger rows with tokens whose price is not known.
ledger_rows_total: : Rows written to the usage ledger.
ledger_rows_lost_total: : Rows dropped because too many waited to be written.
ledger_write_errors_total: : Batches of ledger rows that could not be written at once.
ledger_rows_pending: : Rows waiting to be written to the usage ledger.
workers: version: Serving workers, by version.
"""
"""Each metric: its name without `antiphon_`, its labels, and what it says."""
_TEXTS = {line.partition(":")[0]: line.split(": ", 2)[1:] for line in _FAMILIES.strip().splitlines()}

logger = logging.getLogger("antiphon.gateway")

_WORD = re.compile(r"[a-z$][a-z0-9_.$-]{0,39}", re.ASCII | re.IGNORECASE)
_MAX_LOSS_LABELS = 64
_ROUTE_CACHE_SIZE = 4096
_MAX_CACHED = 4096
_STALE_SECONDS = 15.0


class _Snapshot(Struct, frozen=True):
    """What one worker counted so far."""

    time: float
    has_ended: bool
    families: dict[str, list[tuple[tuple[str, ...], list[float]]]]


class _Series:
    """The rows that requests with the same labels count in: one lookup for each request."""

    __slots__ = ("attempts", "labels", "overhead", "requests", "seconds", "tokens")

    def __init__(
        self, labels: tuple[str, str, str, str, int, bool, str], requests: list[float], seconds: list[float]
    ) -> None:
        self.labels = labels
        self.requests = requests
        self.seconds = seconds
        self.overhead: list[float] | None = None
        self.attempts: list[float] | None = None
        self.tokens: dict[str, list[float]] = {}


class Metrics:
    """Everything the gateway counts. `snapshots` shares it among workers; `models` are the names of the routes."""

    def __init__(
        self,
        models: Iterable[str] = (),
        *,
        version: str = "",
        snapshots: WorkerFiles | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._snapshots = snapshots
        self._has_ended = False
        self._families: dict[str, Family] = {}
        self._series: dict[tuple[str, str, str, str, int, bool, str], _Series] = {}
        self._requests = self._register(Counter, "requests_total")
        self._tokens = self._register(Counter, "tokens_total")
        self._seconds = self._register(Histogram, "request_seconds", _SECONDS)
        self._first_token = self._register(Histogram, "first_token_seconds", _FIRST_TOKEN_SECONDS)
        self._overhead = self._register(Histogram, "overhead_seconds", _OVERHEAD_SECONDS)
        self._repairs = self._register(Counter, "repairs_total")
        self._losses = self._register(Counter, "losses_total")
        self._attempts = self._register(Counter, "upstream_attempts_total")
        self._failures = self._register(Counter, "upstream_failures_total")
        self._tool_calls = self._register(Counter, "tool_calls_total")
        self._tool_seconds = self._register(Histogram, "tool_seconds", _SECONDS)
        self._reloads = self._register(Counter, "reloads_total")
        self._log_failures = self._register(Counter, "log_failures_total")
        self._in_flight = self._register(Gauge, "requests_in_flight")
        self._connections = self._register(Gauge, "connections")
        self._credentials = self._register(Gauge, "credentials")
        self._circuits = self._register(Gauge, "circuits_open")
        self._shared = self._register(Gauge, "shared_store_up")
        self._ledger_tokens = self._register(Counter, "ledger_tokens_total")
        self._ledger_cost = self._register(Counter, "ledger_cost_dollars_total")
        self._ledger_unpriced = self._register(Counter, "ledger_unpriced_calls_total")
        self._ledger_rows = self._register(Counter, "ledger_rows_total")
        self._ledger_lost = self._register(Counter, "ledger_rows_lost_total")
        self._ledger_errors = self._register(Counter, "ledger_write_errors_total")
        self._ledger_pending = self._register(Gauge, "ledger_rows_pending")
        self._info = self._register(Gauge, "workers")
        self._info.set((version,), 1)
        for outcome in ("applied", "refused"):
            self._reloads.series((outcome,))
        for single in (self._log_failures, self._connections):
            single.series(())
        self.traffic = Traffic()
        """Open connections and requests in progress. The listeners count them."""
        self.use_models(models)

    @property
    def families(self) -> tuple[Family, ...]:
        """Every metric, in the order of a scrape."""
        return tuple(self._families.values())

    def use_models(self, models: Iterable[str]) -> None:
        """Set the names of the routes."""
        routes = tuple(models)

        def route(model: str) -> str:
            return next((name for name in routes if name == model or fnmatchcase(model, name)), OTHER)

        self._route = lru_cache(_ROUTE_CACHE_SIZE)(route)
        self._series.clear()

    def add(self, records: Sequence[Record]) -> None:
        """Count finished requests."""
        for record in records:
            model = self._route(record.requested_model)
            labels = (
                record.client_format,
                record.upstream_format,
                record.provider,
                model,
                record.status,
                record.streams,
                record.key,
            )
            series = self._series.get(labels) or self._new_series(labels)
            seconds, waited, usage, attempts = record.seconds, record.waiting_seconds, record.usage, record.attempts
            series.requests[0] += 1
            row = series.seconds
            row[bisect_left(_SECONDS, seconds)] += 1
            row[-1] += seconds
            if record.is_timed and record.client_format != CHAT_PAGE:  # a call of the page has no overhead
                overhead = seconds - waited if seconds > waited else 0.0
                row = series.overhead or self._overhead_row(series)
                row[bisect_left(_OVERHEAD_SECONDS, overhead)] += 1
                row[-1] += overhead
            if record.first_token_seconds is not None:
                self._first_token.observe((record.provider, model), record.first_token_seconds)
            if usage is not None:
                rows = series.tokens
                for kind, count in (
                    ("prompt", usage.prompt_tokens),
                    ("completion", usage.completion_tokens),
                    ("cached", usage.cached_tokens),
                    ("cache_write", usage.cache_write_tokens),
                    ("reasoning", usage.reasoning_tokens),
                ):
                    if count:
                        (rows.get(kind) or self._tokens_row(series, kind))[0] += count
            if len(attempts) == 1 and attempts[0].error is None:
                (series.attempts or self._attempts_row(series))[0] += 1
            elif attempts:
                self._count_attempts(attempts)
            if record.repairs or record.losses:
                self._count_changes(record)

    add_refused = add

    def _new_series(self, labels: tuple[str, str, str, str, int, bool, str]) -> _Series:
        """The rows that requests with these labels count in."""
        client_format, upstream_format, provider, model, status, streams, key = labels
        stream_label = "true" if streams else "false"
        names = (client_format, upstream_format, provider, model, str(status), stream_label, key)
        series = _Series(labels, self._requests.series(names), self._seconds.series((client_format, provider, model)))
        if len(self._series) >= _MAX_CACHED:
            self._series.clear()
        self._series[labels] = series
        return series

    def _overhead_row(self, series: _Series) -> list[float]:
        series.overhead = self._overhead.series(series.labels[:2])
        return series.overhead

    def _attempts_row(self, series: _Series) -> list[float]:
        series.attempts = self._attempts.series((series.labels[2],))
        return series.attempts

    def _tokens_row(self, series: _Series, kind: str) -> list[float]:
        _, _, provider, model, _, _, key = series.labels
        row = series.tokens[kind] = self._tokens.series((kind, provider, model, key))
        return row

    def _count_attempts(self, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            self._attempts.add((attempt.provider,))
            if attempt.error is not None:
                self._failures.add((attempt.provider, attempt.error.kind))

    def _count_changes(self, record: Record) -> None:
        for action in record.repairs:
            self._repairs.add((action.kind,))
        for loss in record.losses:
            self._losses.add((self._loss_label(loss.what),))

    def tool_call(self, tool: str, outcome: str, seconds: float) -> None:
        """A tool call of the chat page ended. `tool` is empty if there is none of that name: models invent them."""
        self._tool_calls.add((tool or OTHER, outcome))
        self._tool_seconds.observe((tool or OTHER,), seconds)

    def reloaded(self, *, is_applied: bool) -> None:
        """The configuration was reloaded or rejected."""
        self._reloads.add(("applied" if is_applied else "refused",))

    def log_failed(self) -> None:
        """A log line could not be written."""
        self._log_failures.add()

    def set_credentials(self, credentials: Mapping[str, Sequence[CredentialStatus]]) -> None:
        """Set the states of the credentials of each provider."""
        worker = self._worker
        self._credentials.rows.clear()
        for provider, statuses in credentials.items():
            for state in STATES:
                self._credentials.set(
                    (worker, provider, state), sum(status.health.state == state for status in statuses)
                )

    def set_circuits(self, circuits: Sequence[CircuitStatus]) -> None:
        """Set the circuits that are not closed."""
        self._circuits.rows.clear()
        for circuit in circuits:
            self._circuits.set((self._worker, circuit.target.provider, circuit.target.model, circuit.state), 1)

    def set_store_up(self, *, is_unavailable: bool) -> None:
        """Set whether the shared store is available."""
        self._shared.set((self._worker,), 0 if is_unavailable else 1)

    def set_ledger(self, status: LedgerStatus) -> None:
        """Set the state of the usage ledger of this process."""
        for family, value in (
            (self._ledger_rows, status.written_rows),
            (self._ledger_lost, status.lost_rows),
            (self._ledger_errors, status.write_errors),
            (self._ledger_pending, status.pending_rows),
        ):
            family.series(())[0] = value

    def add_spend(self, spent: Mapping[Label, Spent]) -> None:
        """Add what rows of the ledger used, by provider, requested model and key."""
        for (provider, requested, key), sums in spent.items():
            model = self._route(requested)
            self._ledger_tokens.add(("prompt", provider, model, key), sums.prompt_tokens)
            self._ledger_tokens.add(("completion", provider, model, key), sums.completion_tokens)
            if sums.calls > sums.unpriced_calls:
                self._ledger_cost.add((provider, model, key), sums.nanodollars / 1e9)
            if sums.unpriced_calls:
                self._ledger_unpriced.add((provider, model, key), sums.unpriced_calls)

    def render(self, credentials: Mapping[str, Sequence[CredentialStatus]] | None = None) -> bytes:
        """The text of a scrape: the sum over all workers. `credentials` are their present states, by provider."""
        if credentials is not None:
            self.set_credentials(credentials)
        self.share()
        snapshots = [self._snapshot(), *self._snapshots_of_others()]
        oldest = self._clock() - _STALE_SECONDS
        text = []
        for name, family in self._families.items():
            total: Rows = {}
            for snapshot in snapshots:
                if family.kind != "gauge" or (snapshot.time >= oldest and not snapshot.has_ended):
                    add_rows(total, snapshot.families.get(name, ()))
            if total:
                text.append(family.text(total))
        return "".join(text).encode("utf-8", "replace")

    def share(self) -> None:
        """Publish this worker's counts to the other workers. Called every second by `publish_forever`."""
        if self._snapshots is not None:
            self._snapshots.write("metrics", msgspec.json.encode(self._snapshot()))

    def close(self) -> None:
        """This worker ends: its counters remain, its gauges are removed."""
        self._has_ended = True
        self.share()

    @property
    def _worker(self) -> str:
        return self._snapshots.worker if self._snapshots is not None else ""

    def _snapshot(self) -> _Snapshot:
        self._in_flight.set((), self.traffic.requests_in_progress)
        self._connections.set((), self.traffic.connections)
        families = {name: list(family.rows.items()) for name, family in self._families.items()}
        return _Snapshot(self._clock(), self._has_ended, families)

    def _snapshots_of_others(self) -> Iterable[_Snapshot]:
        for data in self._snapshots.read_others("metrics") if self._snapshots is not None else ():
            try:
                yield msgspec.json.decode(data, type=_Snapshot)
            except msgspec.DecodeError:
                logger.warning("skipping unreadable metrics of another worker")

    def _loss_label(self, what: str) -> str:
        rows = self._losses.rows
        if (what,) in rows:
            return what
        return what if len(rows) < _MAX_LOSS_LABELS and _WORD.fullmatch(what) else OTHER

    def _register(self, kind: type[_Family], name: str, *bounds: Sequence[float]) -> _Family:
        labels, text = _TEXTS[name]
        family = kind(f"antiphon_{name}", text, labels.split(), *bounds)
        self._families[family.name] = family
        return family
