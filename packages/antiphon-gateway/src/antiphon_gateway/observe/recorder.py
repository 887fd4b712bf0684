"""`Recorder`: where a finished request is recorded: the ledger and the client's account at once, all other sinks soon after.

The ledger and the limits have a request before its client has the end of its response. The sinks (metrics, list, log, spans) get
several requests at once while others are in progress, at most `_PUBLISH_SECONDS` later: the same code run several times in a row
costs much less than between other code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from antiphon.http.server.application import Traffic
from antiphon.logs import lines_written_together
from antiphon.prices.table import PriceTable
from antiphon.providers.call import CallReport
from antiphon.providers.keys.ring import KeyLease
from antiphon.providers.routes import Target
from antiphon_gateway.access.accounts import ClientAccounts
from antiphon_gateway.access.client_keys import ClientKey
from antiphon_gateway.ledger.ledger import UsageLedger
from antiphon_gateway.observe.metering import sent_row, tokens_of, usage_rows
from antiphon_gateway.observe.record import Record
from antiphon_gateway.observe.refusal_log import RefusalLog

_PUBLISH_SECONDS = 0.02
_MAX_UNPUBLISHED = 32


class Sink(Protocol):
    """Something that wants to know of every finished request."""

    def add(self, records: Sequence[Record]) -> None:
        """These requests have ended."""

    def add_refused(self, records: Sequence[Record]) -> None:
        """These were refused, some of any number: their client is not known, or over a limit."""


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
                self._ledger.add_all(rows, record.sent or ())
            if key.is_limited:
                self._accounts.charge(key, tokens_of(rows), sum(row.cost or 0 for row in rows))
        elif record.sent and self._ledger is not None:
            self._ledger.add_all((), record.sent)
        self._unpublished.append(record)
        if record.defect is not None or len(self._unpublished) >= _MAX_UNPUBLISHED:
            self.publish()  # the traceback of a defect is dropped when this returns
        elif not self._is_publishing_soon:
            if self._traffic.requests_in_progress <= 1:
                self.publish()
            else:
                self._is_publishing_soon = True
                asyncio.get_running_loop().call_later(_PUBLISH_SECONDS, self._publish_now)

    def on_send(self, record: CallReport, target: Target, lease: KeyLease | None) -> None:
        """An attempt is sent: if the process is killed before its end, the ledger has it all the same."""
        assert isinstance(record, Record), "it is of a request"
        if self._ledger is not None:
            slot = self._ledger.begin(sent_row(record, target, "" if lease is None else lease.name))
            record.sent = [*(record.sent or ()), slot]

    def refuse(self, record: Record, peer: str, *, is_logged: bool = False) -> None:
        """Record a refused request, one of any number: its client is not known, or over a limit.

        `is_logged`: the limit that refused it has a line.
        """
        for sink in self._sinks:
            sink.add_refused((record,))
        if not is_logged:
            self._refusals.add_unknown(record, peer)

    def publish(self) -> None:
        """Pass the finished requests that wait on to the sinks."""
        records, self._unpublished = self._unpublished, []
        if len(records) > 1:
            with lines_written_together():
                for sink in self._sinks:
                    sink.add(records)
        elif records:
            for sink in self._sinks:
                sink.add(records)

    def close(self) -> None:
        """The process ends: write what waits for it."""
        self.publish()
        self._refusals.flush()

    def _publish_now(self) -> None:
        self._is_publishing_soon = False
        self.publish()
