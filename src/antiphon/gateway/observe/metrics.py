"""`Metrics`: what the gateway counts, and the text that Prometheus scrapes.

Counting is adding to rows of numbers (`meters`); a request costs a few microseconds. The labels are few by construction:

- `model` is the route a request took, as it is written in the configuration, and `other` for what no route names: a client
  cannot make series by inventing models. The names of routes are told by `use_models`, at the start and at each reload.
- `what` of a loss is a word of the formats; words that do not look like one, and new ones past a limit, are `other`.
- everything else comes from the configuration or from a closed list.

Several workers share what they counted through `WorkerFiles`: a scrape of any of them gives the sum. Only the states of
credentials and of the shared store are told by worker, for each keeps its own book of them.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TypeVar, get_args

import msgspec
from msgspec import Struct

from antiphon.gateway.cluster.worker_snapshots import WorkerFiles
from antiphon.gateway.observe.instruments import OTHER, Counter, Family, Gauge, Histogram, Rows, add_rows
from antiphon.history.entries import TokenUsage
from antiphon.providers.call import Attempt
from antiphon.providers.credentials.health import CredentialStatus, KeyState
from antiphon.repair.action import Action
from antiphon.wire.loss import Loss

_Family = TypeVar("_Family", bound=Family)

STATES: tuple[KeyState, ...] = get_args(KeyState)

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 300, 600)
_FIRST_TOKEN_SECONDS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 60)
_OVERHEAD_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1)

logger = logging.getLogger("antiphon.gateway")

_WORD = re.compile(r"[a-z$][a-z0-9_.$-]{0,39}", re.ASCII | re.IGNORECASE)
_MOST_WORDS = 64
_MOST_REMEMBERED = 4096
_LIVING_SECONDS = 15.0


class _Snapshot(Struct, frozen=True):
    """What one worker counted so far."""

    time: float
    has_ended: bool
    families: dict[str, list[tuple[tuple[str, ...], list[float]]]]


class Metrics:
    """Everything the gateway counts. `files` shares it among workers; `models` are the names of the routes."""

    def __init__(
        self,
        models: Iterable[str] = (),
        *,
        version: str = "",
        files: WorkerFiles | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._files = files
        self._has_ended = False
        self._families: dict[str, Family] = {}
        self._requests = self._kept(
            Counter(
                "antiphon_requests_total",
                "Requests answered.",
                ("client_format", "upstream_format", "provider", "model", "status", "streamed", "key"),
            )
        )
        self._tokens = self._kept(
            Counter(
                "antiphon_tokens_total",
                "Tokens as the providers counted them; cached and cache_write are part of prompt, reasoning of completion.",
                ("kind", "provider", "model", "key"),
            )
        )
        self._seconds = self._kept(
            Histogram(
                "antiphon_request_seconds",
                "From the first byte of a request to the last of its answer.",
                ("client_format", "provider", "model"),
                _SECONDS,
            )
        )
        self._first_token = self._kept(
            Histogram(
                "antiphon_first_token_seconds",
                "From the first byte of a request to the first content of its answer.",
                ("provider", "model"),
                _FIRST_TOKEN_SECONDS,
            )
        )
        self._overhead = self._kept(
            Histogram(
                "antiphon_overhead_seconds",
                "The part of a request that the gateway itself took.",
                ("client_format", "upstream_format"),
                _OVERHEAD_SECONDS,
            )
        )
        self._repairs = self._kept(Counter("antiphon_repairs_total", "Repairs of message sequences.", ("kind",)))
        self._losses = self._kept(Counter("antiphon_losses_total", "Things a translation could not carry.", ("what",)))
        self._attempts = self._kept(Counter("antiphon_upstream_attempts_total", "Calls of providers.", ("provider",)))
        self._failures = self._kept(
            Counter("antiphon_upstream_failures_total", "Calls of providers that failed.", ("provider", "kind"))
        )
        self._reloads = self._kept(Counter("antiphon_reloads_total", "Reloads of the configuration.", ("outcome",)))
        self._log_failures = self._kept(Counter("antiphon_log_failures_total", "Log lines that could not be written."))
        self._in_flight = self._kept(Gauge("antiphon_requests_in_flight", "Requests being answered."))
        self._connections = self._kept(Gauge("antiphon_connections", "Open connections of clients."))
        self._credentials = self._kept(
            Gauge(
                "antiphon_credentials",
                "Credentials in each state, as each worker sees them.",
                ("worker", "provider", "state"),
            )
        )
        self._shared = self._kept(
            Gauge("antiphon_shared_store_up", "Whether each worker reaches the shared store: 1, or 0.", ("worker",))
        )
        self._info = self._kept(Gauge("antiphon_workers", "Workers that serve, by version.", ("version",)))
        self._info.set((version,), 1)
        for outcome in ("applied", "refused"):
            self._reloads.row((outcome,))
        for single in (self._log_failures, self._connections):
            single.row(())
        self._under_way = self._in_flight.row(())
        self.use_models(models)

    def use_models(self, models: Iterable[str]) -> None:
        """These are the names of the routes from now on."""
        routes = tuple(models)

        def route(model: str) -> str:
            return next((name for name in routes if name == model or fnmatchcase(model, name)), OTHER)

        self._route = lru_cache(_MOST_REMEMBERED)(route)

    def request(
        self,
        *,
        client_format: str = "",
        upstream_format: str = "",
        model: str = "",
        provider: str = "",
        status: int = 200,
        seconds: float = 0.0,
        first_token_seconds: float | None = None,
        overhead_seconds: float | None = None,
        usage: TokenUsage | None = None,
        repairs: Iterable[Action] = (),
        losses: Iterable[Loss] = (),
        attempts: Iterable[Attempt] = (),
        key_name: str = "",
        streamed: bool = False,
    ) -> None:
        """A request was answered."""
        model = self._route(model)
        told = "true" if streamed else "false"
        self._requests.add((client_format, upstream_format, provider, model, str(status), told, key_name))
        self._seconds.observe((client_format, provider, model), seconds)
        if first_token_seconds is not None:
            self._first_token.observe((provider, model), first_token_seconds)
        if overhead_seconds is not None:
            self._overhead.observe((client_format, upstream_format), overhead_seconds)
        if usage is not None:
            self._spend(usage, provider, model, key_name)
        for action in repairs:
            self._repairs.add((action.kind,))
        for loss in losses:
            self._losses.add((self._word(loss.what),))
        for attempt in attempts:
            self._attempts.add((attempt.provider,))
            if attempt.error is not None:
                self._failures.add((attempt.provider, attempt.error.kind))

    def request_began(self) -> None:
        """One more request is being answered."""
        self._under_way[0] += 1

    def request_ended(self) -> None:
        """One request less is being answered."""
        self._under_way[0] -= 1

    def connection_opened(self) -> None:
        """A client connected."""
        self._connections.add()

    def connection_closed(self) -> None:
        """A client's connection is gone."""
        self._connections.add(amount=-1)

    def reloaded(self, *, is_applied: bool) -> None:
        """The configuration was read again, and is in force or was refused."""
        self._reloads.add(("applied" if is_applied else "refused",))

    def log_failed(self) -> None:
        """A log line could not be written."""
        self._log_failures.add()

    def see_credentials(self, credentials: Mapping[str, Sequence[CredentialStatus]]) -> None:
        """These are the credentials of each provider now."""
        worker = self._worker
        self._credentials.rows.clear()
        for provider, statuses in credentials.items():
            for state in STATES:
                self._credentials.set((worker, provider, state), sum(_state(status) == state for status in statuses))

    def see_shared(self, *, is_away: bool) -> None:
        """The shared store is away now, or is not."""
        self._shared.set((self._worker,), 0 if is_away else 1)

    def render(self, credentials: Mapping[str, Sequence[CredentialStatus]] | None = None) -> bytes:
        """The text of a scrape: the sum over all workers. `credentials` are their states now, by provider."""
        if credentials is not None:
            self.see_credentials(credentials)
        self.share()
        snapshots = [self._snapshot(), *self._snapshots_of_others()]
        oldest = self._clock() - _LIVING_SECONDS
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
        """Tell the other workers what this one counted. Called every second by `keep_sharing`."""
        if self._files is not None:
            self._files.write("metrics", msgspec.json.encode(self._snapshot()))

    def close(self) -> None:
        """This worker ends: what it counted stays, what it held is gone."""
        self._has_ended = True
        self.share()

    @property
    def _worker(self) -> str:
        return self._files.worker if self._files is not None else ""

    def _snapshot(self) -> _Snapshot:
        families = {name: list(family.rows.items()) for name, family in self._families.items()}
        return _Snapshot(self._clock(), self._has_ended, families)

    def _snapshots_of_others(self) -> Iterable[_Snapshot]:
        for data in self._files.others("metrics") if self._files is not None else ():
            try:
                yield msgspec.json.decode(data, type=_Snapshot)
            except msgspec.DecodeError:
                logger.warning("the counts of another worker cannot be read, and are left out of this scrape")

    def _spend(self, usage: TokenUsage, provider: str, model: str, key_name: str) -> None:
        add = self._tokens.add
        if usage.prompt_tokens:
            add(("prompt", provider, model, key_name), usage.prompt_tokens)
        if usage.completion_tokens:
            add(("completion", provider, model, key_name), usage.completion_tokens)
        if usage.cached_tokens:
            add(("cached", provider, model, key_name), usage.cached_tokens)
        if usage.cache_write_tokens:
            add(("cache_write", provider, model, key_name), usage.cache_write_tokens)
        if usage.reasoning_tokens:
            add(("reasoning", provider, model, key_name), usage.reasoning_tokens)

    def _word(self, what: str) -> str:
        rows = self._losses.rows
        if (what,) in rows:
            return what
        return what if len(rows) < _MOST_WORDS and _WORD.fullmatch(what) else OTHER

    def _kept(self, family: _Family) -> _Family:
        self._families[family.name] = family
        return family


def _state(status: CredentialStatus) -> KeyState:
    """A key that is healthy but rests for some model counts as cooling: it is what an alarm wants to know."""
    if status.state == "healthy" and any(model.state != "half_open" for model in status.models.values()):
        return "cooling"
    return status.state
