"""`RequestAccounting`: whether a client may send a request now, and where a finished one is recorded.

Requests of clients and model calls of the chat page both come here, so that limits, budgets, the ledger, metrics, the list of
recent requests and the log count the same things.

The ledger and the limits have a request before its client has the end of its response. Metrics, the list and the log are written
for several requests at once while others are in progress, at most `_PUBLISH_SECONDS` later: the same code run several times in a
row costs much less than between other code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from antiphon.logs import lines_written_together
from antiphon.prices.table import PriceTable
from antiphon_gateway.access.accounts import ClientAccounts
from antiphon_gateway.access.client_keys import ClientKey
from antiphon_gateway.access.refusals import LimitReached
from antiphon_gateway.ledger.ledger import UsageLedger
from antiphon_gateway.observe.charging import metered_usage
from antiphon_gateway.observe.metering import tokens_of, usage_rows
from antiphon_gateway.observe.metrics import Metrics
from antiphon_gateway.observe.recent import RecentRequests
from antiphon_gateway.observe.refusal_log import RefusalLog
from antiphon_gateway.observe.request_log import log_finished_request
from antiphon_gateway.observe.request_trace import RequestTrace

CHAT_PAGE = "chat-page"
"""The client format of model calls of the chat page."""
_PUBLISH_SECONDS = 0.02
_MAX_UNPUBLISHED = 32


class RequestAccounting:
    """The accounts of all clients of a process. Without a `ledger` usage is not written down."""

    def __init__(
        self,
        *,
        accounts: ClientAccounts,
        metrics: Metrics,
        recent: RecentRequests,
        ledger: UsageLedger | None = None,
    ) -> None:
        self._accounts = accounts
        self._metrics = metrics
        self._recent = recent
        self._ledger = ledger
        self._unpublished: list[RequestTrace] = []
        self._is_publishing_soon = False
        self._refusals = RefusalLog()

    async def limit_reached(self, key: ClientKey, *, costs: bool) -> LimitReached | None:
        """The limit that refuses a request of a client; None if it is admitted, and counted.

        `costs`: whether it uses tokens or money; a client can still list models when its budget is used up.
        """
        reached = await self._accounts.limit_reached(key, costs=costs) if key.is_limited else None
        if reached is not None:
            self._refusals.add(key, reached)
        return reached

    async def budget_reached(self, key: ClientKey) -> LimitReached | None:
        """The limit per day or month that a client has used up."""
        reached = await self._accounts.budget_reached(key)
        if reached is not None:
            self._refusals.add(key, reached)
        return reached

    def record(self, trace: RequestTrace, key: ClientKey, prices: PriceTable) -> None:
        """Record a finished request of a client."""
        if self._ledger is not None or key.is_limited:
            rows = usage_rows(trace, *metered_usage(trace), prices)
            if self._ledger is not None:
                self._ledger.add_all(rows)
            if key.is_limited:
                self._accounts.charge(key, tokens_of(rows), sum(row.cost or 0 for row in rows))
        self._unpublished.append(trace)
        if trace.defect is not None or len(self._unpublished) >= _MAX_UNPUBLISHED:
            self.publish()  # the traceback of a defect is dropped when this returns
        elif not self._is_publishing_soon:
            if self._metrics.traffic.requests_in_progress <= 1:
                self.publish()
            else:
                self._is_publishing_soon = True
                asyncio.get_running_loop().call_later(_PUBLISH_SECONDS, self._publish_now)

    def record_tool_call(self, tool: str, outcome: str, seconds: float) -> None:
        """Record a tool call of the chat page; `tool` is empty if there is none of that name."""
        self._metrics.tool_call(tool, outcome, seconds)

    def refuse(self, trace: RequestTrace, peer: str, *, is_logged: bool = False) -> None:
        """Record a refused request, one of any number: its client is not known, or over a limit.

        `is_logged`: the limit that refused it has a line.
        """
        self._count(trace)
        self._recent.add(trace, is_bounded=True)
        if not is_logged:
            self._refusals.add_unknown(trace, peer)

    def close(self) -> None:
        """The process ends: write what waits for it."""
        self.publish()
        self._refusals.flush()

    def _publish_now(self) -> None:
        self._is_publishing_soon = False
        self.publish()

    def publish(self) -> None:
        """Write the finished requests that wait for it to the metrics, the list of recent requests and the log."""
        traces, self._unpublished = self._unpublished, []
        if len(traces) > 1:
            with lines_written_together():
                self._publish(traces)
        else:
            self._publish(traces)

    def _publish(self, traces: Sequence[RequestTrace]) -> None:
        for trace in traces:
            self._count(trace)
            self._recent.add(trace)
            log_finished_request(trace, trace.seconds, trace.overhead_seconds)

    def _count(self, trace: RequestTrace) -> None:
        has_overhead = trace.is_timed and trace.client_format != CHAT_PAGE  # a call of the page has none
        self._metrics.request(
            client_format=trace.client_format,
            upstream_format=trace.upstream_format,
            model=trace.requested_model,
            provider=trace.provider,
            status=trace.status,
            seconds=trace.seconds,
            first_token_seconds=None if trace.first_token is None else trace.first_token - trace.started_at,
            overhead_seconds=trace.overhead_seconds if has_overhead else None,
            usage=trace.usage,
            repairs=trace.repairs,
            losses=trace.losses,
            attempts=trace.attempts,
            key_name=trace.key,
            streamed=trace.streams,
        )
