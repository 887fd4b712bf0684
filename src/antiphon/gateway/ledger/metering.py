"""A finished request as rows of the ledger: one for each attempt. The last attempt has the tokens of the answer.

An attempt that failed costs nothing, unless it brought the beginning of an answer that broke off: providers charge for those, so
its prompt is estimated.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from msgspec import structs

from antiphon.gateway.generate.charging import price_variant
from antiphon.gateway.ledger.row import Metering, UsageRow, encode_variant, token_counts
from antiphon.gateway.observe.request_trace import RequestTrace
from antiphon.history import TokenUsage
from antiphon.providers.call import Attempt


def usage_rows(trace: RequestTrace, usage: TokenUsage, metering: Metering) -> list[UsageRow]:
    """The rows of a request whose answer took `usage`."""
    rows = attempt_rows(
        trace.attempts,
        request_id=trace.request_id,
        key=trace.key,
        client_format=trace.client_format,
        operation=trace.operation,
        model_asked=trace.requested_model,
    )
    if not rows:
        return rows
    for number, attempt in enumerate(trace.attempts[:-1]):
        rows[number] = _with_lost_prompt(rows[number], attempt, trace.prompt_estimate)
    last = trace.attempts[-1]
    if metering == "free" and last.error is not None:
        rows[-1] = _with_lost_prompt(rows[-1], last, trace.prompt_estimate)
        return rows
    outcome: str = "ok" if last.error is None else last.error.kind
    if trace.client_disconnected:
        outcome = "disconnected"
    elif trace.error is not None:
        outcome = trace.error.kind
    first = None if trace.first_token is None else trace.first_token - trace.started_at
    rows[-1] = structs.replace(
        rows[-1],
        outcome=outcome,
        first_token_seconds=first,
        metering=metering,
        variant=encode_variant(price_variant(usage, trace.service_tier)),
        **token_counts(usage),
    )
    return rows


def attempt_rows(
    attempts: Sequence[Attempt], *, request_id: str, key: str, client_format: str, operation: str, model_asked: str
) -> list[UsageRow]:
    """Rows without tokens: what was asked of whom, and how it ended."""
    at = time.time_ns() // 1000
    return [
        UsageRow(
            request_id=request_id,
            attempt=number,
            at=at,
            key=key,
            client_format=client_format,
            operation=operation,
            provider=attempt.provider,
            credential=attempt.credential,
            model_asked=model_asked,
            model_served=attempt.model,
            status=attempt.status or 0,
            outcome="ok" if attempt.error is None else attempt.error.kind,
            seconds=attempt.seconds,
        )
        for number, attempt in enumerate(attempts, start=1)
    ]


def _with_lost_prompt(row: UsageRow, attempt: Attempt, prompt_tokens: int) -> UsageRow:
    """An attempt whose answer had begun and broke off before anything was shown."""
    has_begun = attempt.status is not None and 200 <= attempt.status < 300
    if not has_begun or attempt.error is None or attempt.error.kind != "stream_cut":
        return row
    return structs.replace(row, metering="estimated", prompt_tokens=prompt_tokens)
