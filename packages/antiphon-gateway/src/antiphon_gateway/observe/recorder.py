"""`Recorder`: where a finished request is recorded: the ledger and the client's account at once, all other sinks soon after.

The ledger and the limits have a request before its client has the end of its response. The sinks (metrics, list, log) get
several requests at once while others are in progress, at most `_PUBLISH_SECONDS` later: the same code run several times in a row
costs much less than between other code.

Refusals by a limit of a client, and of requests whose client is not known (no key, a wrong key, no such path), can be any number,
so their log lines are bounded (`RefusalLog`). The first refusal of a kind is logged at once. Further ones within `interval`
seconds are counted, and one line at its end says how many they were. So a key that is refused all the time, and all wrong keys
together, have one line per interval.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TypeAlias

from antiphon.http.server.application import Traffic
from antiphon.logs import lines_written_together
from antiphon.prices.table import PriceTable
from antiphon.providers.call import CallReport
from antiphon.providers.keys.ring import KeyLease
from antiphon.providers.routes import Target
from antiphon_gateway.access.accounts import ClientAccounts, LimitReached
from antiphon_gateway.access.client_keys import ClientKey
from antiphon_gateway.ledger.ledger import UsageLedger
from antiphon_gateway.observe.record import Record, attempt_row, tokens_of, usage_rows

logger = logging.getLogger("antiphon.gateway")

_PUBLISH_SECONDS = 0.02
_MAX_UNPUBLISHED = 32


Sink: TypeAlias = Callable[[Sequence[Record]], None]
"""Gets every finished request."""


class Recorder:
    """Records the requests of a process. Without a `ledger` usage is not written down."""

    def __init__(
        self,
        sinks: Sequence[Sink],
        accounts: ClientAccounts,
        *,
        refusals: RefusalLog | None = None,
        ledger: UsageLedger | None = None,
        traffic: Traffic | None = None,
    ) -> None:
        self._sinks = tuple(sinks)
        self._accounts = accounts
        self._refusals = refusals or RefusalLog()
        self._ledger = ledger
        self._traffic = traffic or Traffic()
        self._unpublished: list[Record] = []
        self._is_publishing_soon = False

    def add(self, record: Record, key: ClientKey, prices: PriceTable) -> None:
        """Record a finished request of a client."""
        if (self._ledger is not None or key.is_limited) and record.attempts:
            rows = usage_rows(record, prices)
            if self._ledger is not None:
                self._ledger.add(rows, record.sent or ())
            if key.is_limited:
                self._accounts.charge(key, tokens_of(rows), sum(row.cost or 0 for row in rows))
        elif record.sent and self._ledger is not None:
            self._ledger.add((), record.sent)
        self._unpublished.append(record)
        if record.defect is not None or len(self._unpublished) >= _MAX_UNPUBLISHED:
            self.publish()  # the traceback of a defect is dropped when this returns
        elif not self._is_publishing_soon:
            if len(self._traffic.busy) <= 1:
                self.publish()
            else:
                self._is_publishing_soon = True
                asyncio.get_running_loop().call_later(_PUBLISH_SECONDS, self._publish_now)

    def on_send(self, record: CallReport, target: Target, lease: KeyLease | None) -> None:
        """An attempt is sent: if the process is killed before its end, the ledger has it all the same."""
        assert isinstance(record, Record), "it is of a request"
        if self._ledger is None:
            return
        credential = "" if lease is None else lease.name
        row = attempt_row(record, len(record.attempts) + 1, target.provider, target.model, credential)
        row.outcome = "disconnected"
        if record.charges == "tokens":
            row.metering, row.prompt_tokens = "estimated", record.prompt_estimate
        else:
            row.metering = record.charges
        record.sent = [*(record.sent or ()), self._ledger.begin(row)]

    def refuse(self, record: Record, peer: str, *, is_logged: bool = False) -> None:
        """Record a refused request, one of any number: its client is not known, or over a limit.

        `is_logged`: the limit that refused it has a line.
        """
        record.is_admitted = False
        for sink in self._sinks:
            sink((record,))
        if not is_logged:
            self._refusals.add_unknown(record, peer)

    def publish(self) -> None:
        """Pass the finished requests that wait on to the sinks."""
        records, self._unpublished = self._unpublished, []
        if len(records) > 1:
            with lines_written_together():
                for sink in self._sinks:
                    sink(records)
        elif records:
            for sink in self._sinks:
                sink(records)

    def close(self) -> None:
        """The process ends: write what waits for it."""
        self.publish()
        self._refusals.flush()

    def _publish_now(self) -> None:
        self._is_publishing_soon = False
        self.publish()


INTERVAL_SECONDS = 10.0

_LONGEST_REASON = 200

_Later = Callable[[float, Callable[[], None]], object]
_Line = tuple[str, str, dict[str, object]]
"""About one refusal, about several (after their number), and the fields of both."""


class RefusalLog:
    """The log of the refusals of a process. `later` calls a function after so many seconds; by default the event loop does."""

    def __init__(self, interval: float = INTERVAL_SECONDS, later: _Later | None = None) -> None:
        self._interval = interval
        self._later = later
        self._held: dict[tuple[str, str], tuple[int, _Line]] = {}  # how many were not logged, and the line about them

    def add(self, key: ClientKey, reached: LimitReached) -> None:
        """A request of a client was refused by one of its limits."""
        refused = f"of key {key.name} refused: {reached.limit} reached"
        fields = {
            "event": "limit_reached",
            "key": key.name,
            "limit": reached.limit,
            "used": round(reached.used, 6),
            "allowed": reached.allowed,
            "reset": reached.reset,
            "retry_seconds": round(reached.wait, 3),
        }
        self._add((key.name, reached.limit), (f"request {refused}", f"more requests {refused}", fields))

    def add_unknown(self, record: Record, peer: str) -> None:
        """A request of a client that is not known was refused."""
        reason = record.error.message[:_LONGEST_REASON] if record.error is not None else ""
        fields = {
            "event": "refused",
            "request_id": record.request_id,
            "status": record.status,
            "client_format": record.client_format,
            "operation": record.operation,
            "peer": peer,
            "error": reason,
        }
        one = f"request from {peer} refused with {record.status}: {reason}"
        several = f"more requests refused with {record.status}, the last one from {peer}"
        self._add(("", str(record.status)), (one, several, fields))

    def flush(self) -> None:
        """Write what was counted so far."""
        for which, (count, line) in self._held.items():
            _write(count, line)
            self._held[which] = 0, line

    def _add(self, which: tuple[str, str], line: _Line) -> None:
        if which in self._held:
            self._held[which] = self._held[which][0] + 1, line
            return
        text, _, fields = line
        logger.warning("%s", text, extra=fields)
        self._wait(which, line)

    def _wait(self, which: tuple[str, str], line: _Line) -> None:
        self._held[which] = 0, line
        later = self._later or asyncio.get_running_loop().call_later
        later(self._interval, lambda: self._end_interval(which))

    def _end_interval(self, which: tuple[str, str]) -> None:
        count, line = self._held.pop(which)
        if count:
            _write(count, line)
            self._wait(which, line)


def _write(count: int, line: _Line) -> None:
    """Write a line about refusals that had none."""
    _, text, fields = line
    if count:
        logger.warning("%s %s", count, text, extra={**fields, "left_out": count})
