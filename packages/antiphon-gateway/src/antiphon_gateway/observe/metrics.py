"""`Metrics`: what the gateway counts, and the text that Prometheus scrapes.

`model` is the route as written in the configuration, `other` for the rest: clients cannot create series by inventing models.
`what` of a loss is a field name of the formats, `other` for anything else or above a limit. All other labels come from the
configuration or a closed list.

Workers share their counts through `WorkerFiles`, and a scrape of any worker returns the sum. The states of credentials and
of the shared store are reported per worker, because each worker has its own.

A `Family` (a counter or a gauge, or a `Histogram`) has a series of numbers per set of label values: one number, or bucket counts
and their sum. Series with the same labels add up number by number, so workers are merged by one rule. Above a limit values go to
a series whose labels are all `other`. Nothing here locks; a worker counts in the thread of its event loop.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import msgspec
from msgspec import Struct

from antiphon.http.server.application import Traffic
from antiphon.providers.call import Attempt
from antiphon.providers.keys.health import CredentialStatus, KeyState
from antiphon.providers.keys.target_health import CircuitStatus
from antiphon_gateway.observe.record import CHAT_PAGE, Record
from antiphon_gateway.share.workers import WorkerFiles

if TYPE_CHECKING:
    from antiphon_gateway.ledger.ledger import Label, LedgerStatus, Spent

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OTHER = "other"

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
Rows: TypeAlias = dict[tuple[str, ...], list[float]]
_Labels: TypeAlias = tuple[str, str, str, str, int, bool, str]

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Family:
    """A metric: its rows by label values, their limit, and their text. A counter only grows; a gauge goes up and down."""

    most_rows = 2000

    def __init__(self, kind: Kind, name: str, help_text: str, labels: Sequence[str] = ()) -> None:
        self.kind = kind
        self.name = name
        self.help_text = help_text
        self.labels = tuple(labels)
        self.rows: Rows = {}
        self._width = 1

    def series(self, labels: tuple[str, ...]) -> list[float]:
        """The row of these label values; a new one if there is none and the limit allows it."""
        if labels not in self.rows and len(self.rows) >= self.most_rows:
            labels = (OTHER,) * len(self.labels)
        return self.rows.setdefault(labels, [0.0] * self._width)

    def add(self, labels: tuple[str, ...] = (), amount: float = 1) -> None:
        """Add one, or `amount`."""
        (self.rows.get(labels) or self.series(labels))[0] += amount

    def set(self, labels: tuple[str, ...], value: float) -> None:
        """Set it to `value`."""
        self.series(labels)[0] = value

    def text(self, rows: Mapping[tuple[str, ...], Sequence[float]]) -> str:
        """Rows of this family, as a scrape reads them."""
        lines = [f"# HELP {self.name} {self.help_text}", f"# TYPE {self.name} {self.kind}"]
        for labels in sorted(rows):
            lines += self.lines(labels, rows[labels])
        return "\n".join(lines) + "\n"

    def lines(self, labels: tuple[str, ...], series: Sequence[float]) -> Iterable[str]:
        """One row of this family as text."""
        return (f"{self.name}{self._braced(labels)} {_number(series[0])}",)

    def _braced(self, labels: tuple[str, ...], bound: str = "") -> str:
        pairs = [f'{name}="{value.translate(_ESCAPES)}"' for name, value in zip(self.labels, labels, strict=True)]
        if bound:
            pairs.append(f'le="{bound}"')
        return f"{{{','.join(pairs)}}}" if pairs else ""


class Histogram(Family):
    """How many observations fell under each of some fixed bounds, and their sum."""

    def __init__(self, name: str, help_text: str, labels: Sequence[str], bounds: Sequence[float]) -> None:
        super().__init__("histogram", name, help_text, labels)
        self._bounds = tuple(bounds)
        self._width = len(bounds) + 2

    def observe(self, labels: tuple[str, ...], value: float) -> None:
        """Record one observation."""
        series = self.rows.get(labels) or self.series(labels)
        series[bisect_left(self._bounds, value)] += 1
        series[-1] += value

    def lines(self, labels: tuple[str, ...], series: Sequence[float]) -> Iterable[str]:
        total = 0.0
        for bound, count in zip((*map(_number, self._bounds), "+Inf"), series, strict=False):
            total += count
            yield f"{self.name}_bucket{self._braced(labels, bound)} {_number(total)}"
        yield f"{self.name}_sum{self._braced(labels)} {_number(series[-1])}"
        yield f"{self.name}_count{self._braced(labels)} {_number(total)}"


def add_rows(total: Rows, more: Iterable[tuple[Sequence[str], Sequence[float]]]) -> None:
    """Add rows to `total`, number by number where the labels are the same."""
    for labels, series in more:
        known = total.get(tuple(labels))
        total[tuple(labels)] = list(series) if known is None else [a + b for a, b in zip(known, series, strict=True)]


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(value)


STATES: tuple[KeyState, ...] = get_args(KeyState)

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 300, 600)
_FIRST_TOKEN_SECONDS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 60)
_OVERHEAD_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1)
_BOUNDS = {"first_token_seconds": _FIRST_TOKEN_SECONDS, "overhead_seconds": _OVERHEAD_SECONDS}

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

_WORD = re.compile(r"[a-z$][a-z0-9_.$-]{0,39}", re.ASCII | re.IGNORECASE)
_MAX_LOSS_LABELS = 64
_ROUTE_CACHE_SIZE = 4096
_MAX_CACHED = 4096


class _Snapshot(Struct, frozen=True):
    """What one worker counted so far."""

    has_ended: bool
    families: dict[str, list[tuple[tuple[str, ...], list[float]]]]


class Metrics:
    """Everything the gateway counts. `snapshots` shares it among workers; `models` are the names of the routes."""

    def __init__(self, models: Iterable[str] = (), *, version: str = "", snapshots: WorkerFiles | None = None) -> None:
        self._snapshots = snapshots
        self._has_ended = False
        self._families: dict[str, Family] = {}
        self._known: dict[_Labels, dict[str, list[float]]] = {}
        """The rows that requests with the same labels count in: one lookup for each request."""
        self._times: dict[str, Histogram] = {}
        for name, (labels, text) in _TEXTS.items():  # as everywhere, the name of a metric says its kind
            full_name, bounds = f"antiphon_{name}", _BOUNDS.get(name, _SECONDS)
            if name.endswith("_seconds"):
                self._families[name] = self._times[name] = Histogram(full_name, text, labels.split(), bounds)
            else:
                kind: Kind = "counter" if name.endswith("_total") else "gauge"
                self._families[name] = Family(kind, full_name, text, labels.split())
        self._families["workers"].set((version,), 1)
        for outcome in ("applied", "refused"):
            self._families["reloads_total"].series((outcome,))
        for single in (self._families["log_failures_total"], self._families["connections"]):
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
        self._known.clear()

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
            rows = self._known.get(labels) or self._new_rows(labels)
            seconds, waited, usage, attempts = record.seconds, record.waiting_seconds, record.usage, record.attempts
            rows["requests"][0] += 1
            row = rows["seconds"]
            row[bisect_left(_SECONDS, seconds)] += 1
            row[-1] += seconds
            if record.is_timed and record.client_format != CHAT_PAGE:  # a call of the page has no overhead
                overhead = seconds - waited if seconds > waited else 0.0
                row = rows.get("overhead") or self._add_row(labels, "overhead")
                row[bisect_left(_OVERHEAD_SECONDS, overhead)] += 1
                row[-1] += overhead
            if record.first_token_seconds is not None:
                self._times["first_token_seconds"].observe((record.provider, model), record.first_token_seconds)
            if usage is not None:
                for kind, count in (
                    ("prompt", usage.prompt_tokens),
                    ("completion", usage.completion_tokens),
                    ("cached", usage.cached_tokens),
                    ("cache_write", usage.cache_write_tokens),
                    ("reasoning", usage.reasoning_tokens),
                ):
                    if count:
                        (rows.get(kind) or self._add_row(labels, kind))[0] += count
            if len(attempts) == 1 and attempts[0].error is None:
                (rows.get("attempts") or self._add_row(labels, "attempts"))[0] += 1
            elif attempts:
                self._count_attempts(attempts)
            if record.repairs or record.losses:
                self._count_changes(record)

    def _new_rows(self, labels: _Labels) -> dict[str, list[float]]:
        """The rows that every request with these labels counts in."""
        client_format, upstream_format, provider, model, status, streams, key = labels
        stream_label = "true" if streams else "false"
        names = (client_format, upstream_format, provider, model, str(status), stream_label, key)
        if len(self._known) >= _MAX_CACHED:
            self._known.clear()
        rows = self._known[labels] = {
            "requests": self._families["requests_total"].series(names),
            "seconds": self._times["request_seconds"].series((client_format, provider, model)),
        }
        return rows

    def _add_row(self, labels: _Labels, name: str) -> list[float]:
        """A row that only some of them count in: overhead, attempts, and tokens by their kind."""
        client_format, upstream_format, provider, model, _, _, key = labels
        if name == "overhead":
            row = self._times["overhead_seconds"].series((client_format, upstream_format))
        elif name == "attempts":
            row = self._families["upstream_attempts_total"].series((provider,))
        else:
            row = self._families["tokens_total"].series((name, provider, model, key))
        self._known[labels][name] = row
        return row

    def _count_attempts(self, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            self._families["upstream_attempts_total"].add((attempt.provider,))
            if attempt.error is not None:
                self._families["upstream_failures_total"].add((attempt.provider, attempt.error.kind))

    def _count_changes(self, record: Record) -> None:
        for action in record.repairs:
            self._families["repairs_total"].add((action.kind,))
        for loss in record.losses:
            self._families["losses_total"].add((self._loss_label(loss.what),))

    def tool_call(self, tool: str, outcome: str, seconds: float) -> None:
        """A tool call of the chat page ended. `tool` is empty if there is none of that name: models invent them."""
        self._families["tool_calls_total"].add((tool or OTHER, outcome))
        self._times["tool_seconds"].observe((tool or OTHER,), seconds)

    def reloaded(self, *, is_applied: bool) -> None:
        """The configuration was reloaded or rejected."""
        self._families["reloads_total"].add(("applied" if is_applied else "refused",))

    def log_failed(self) -> None:
        """A log line could not be written."""
        self._families["log_failures_total"].add()

    def set_credentials(self, credentials: Mapping[str, Sequence[CredentialStatus]]) -> None:
        """Set the states of the credentials of each provider."""
        worker = self._worker
        self._families["credentials"].rows.clear()
        for provider, statuses in credentials.items():
            for state in STATES:
                self._families["credentials"].set(
                    (worker, provider, state), sum(status.health.state == state for status in statuses)
                )

    def set_circuits(self, circuits: Sequence[CircuitStatus]) -> None:
        """Set the circuits that are not closed."""
        self._families["circuits_open"].rows.clear()
        for circuit in circuits:
            self._families["circuits_open"].set(
                (self._worker, circuit.target.provider, circuit.target.model, circuit.state), 1
            )

    def set_store_up(self, *, is_unavailable: bool) -> None:
        """Set whether the shared store is available."""
        self._families["shared_store_up"].set((self._worker,), 0 if is_unavailable else 1)

    def set_ledger(self, status: LedgerStatus) -> None:
        """Set the state of the usage ledger of this process."""
        self._families["ledger_rows_total"].set((), status.written_rows)
        self._families["ledger_rows_lost_total"].set((), status.lost_rows)
        self._families["ledger_write_errors_total"].set((), status.write_errors)
        self._families["ledger_rows_pending"].set((), status.pending_rows)

    def add_spend(self, spent: Mapping[Label, Spent]) -> None:
        """Add what rows of the ledger used, by provider, requested model and key."""
        for (provider, requested, key), sums in spent.items():
            model = self._route(requested)
            self._families["ledger_tokens_total"].add(("prompt", provider, model, key), sums.prompt_tokens)
            self._families["ledger_tokens_total"].add(("completion", provider, model, key), sums.completion_tokens)
            if sums.calls > sums.unpriced_calls:
                self._families["ledger_cost_dollars_total"].add((provider, model, key), sums.nanodollars / 1e9)
            if sums.unpriced_calls:
                self._families["ledger_unpriced_calls_total"].add((provider, model, key), sums.unpriced_calls)

    def render(self) -> bytes:
        """The text of a scrape: the sum over all workers."""
        self.share()
        others = self._snapshots.read_others("metrics", _Snapshot) if self._snapshots is not None else ()
        snapshots = [(self._snapshot(), True), *others]
        text = []
        for name, family in self._families.items():
            total: Rows = {}
            for snapshot, is_live in snapshots:
                if family.kind != "gauge" or (is_live and not snapshot.has_ended):
                    add_rows(total, snapshot.families.get(name, ()))
            if total:
                text.append(family.text(total))
        return "".join(text).encode("utf-8", "replace")

    def share(self) -> None:
        """Publish this worker's counts to the other workers. Called every second by `repeat_forever`."""
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
        self._families["requests_in_flight"].set((), len(self.traffic.busy))
        self._families["connections"].set((), len(self.traffic.connections))
        families = {name: list(family.rows.items()) for name, family in self._families.items()}
        return _Snapshot(self._has_ended, families)

    def _loss_label(self, what: str) -> str:
        rows = self._families["losses_total"].rows
        if (what,) in rows:
            return what
        return what if len(rows) < _MAX_LOSS_LABELS and _WORD.fullmatch(what) else OTHER
