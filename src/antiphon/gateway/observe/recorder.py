"""`RequestRecorder`: what a finished request leaves behind, in the ledger, the limits, the metrics, the status page and the log.

The ledger and the limits get it before the client gets the end of its response. The others are for people who look later: while
other requests are in progress they are written for several requests at once, after at most `_DELAY_SECONDS`, because the same code
run several times in a row is much cheaper than between other code.
"""

from __future__ import annotations

import asyncio

from antiphon.gateway.context import RequestContext, Services
from antiphon.gateway.generate.charging import charged_tokens, metered_cost, metered_usage
from antiphon.gateway.ledger.metering import usage_rows
from antiphon.gateway.observe.request_log import log_finished_request
from antiphon.gateway.observe.request_trace import RequestTrace

_DELAY_SECONDS = 0.02
_AT_ONCE = 32


class RequestRecorder:
    """Records the requests of one gateway."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._waiting: list[RequestTrace] = []

    def record(self, trace: RequestTrace, context: RequestContext) -> None:
        """Record a finished request."""
        services, key = self._services, context.key
        services.spans.record(trace, context.request.headers, context.loaded.base_urls)
        if services.ledger is not None or key.is_limited:
            usage, metering = metered_usage(trace)
            if services.ledger is not None:
                services.ledger.add_all(usage_rows(trace, usage, metering))
            if key.is_limited:
                services.limits.charge_tokens(key, charged_tokens(trace, usage))
            if key.has_budget:
                cost = metered_cost(trace, usage, metering, context.loaded.prices)
                services.budgets.charge(key, charged_tokens(trace, usage), cost)
        context.request.is_recorded = True
        self._waiting.append(trace)
        if services.metrics.requests_in_progress <= 1 or len(self._waiting) >= _AT_ONCE:
            self.flush()
        elif len(self._waiting) == 1:
            asyncio.get_running_loop().call_later(_DELAY_SECONDS, self.flush)

    def flush(self) -> None:
        """Write what waits."""
        traces, self._waiting = self._waiting, []
        services = self._services
        for trace in traces:
            seconds, overhead = trace.seconds, trace.overhead_seconds
            services.metrics.request(
                client_format=trace.client_format,
                upstream_format=trace.upstream_format,
                model=trace.requested_model,
                provider=trace.provider,
                status=trace.status,
                seconds=seconds,
                first_token_seconds=None if trace.first_token is None else trace.first_token - trace.started_at,
                overhead_seconds=overhead,
                usage=trace.usage,
                repairs=trace.repairs,
                losses=trace.losses,
                attempts=trace.attempts,
                key_name=trace.key,
                streamed=trace.streams,
            )
            services.recent.add(trace)
            log_finished_request(trace, seconds, overhead)
