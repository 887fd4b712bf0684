"""A finished request as rows of the ledger: one for each attempt. The last attempt has the tokens of the answer.

An attempt that failed costs nothing, unless it brought the beginning of an answer that broke off: providers charge for those, so
its prompt is estimated.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from msgspec import structs

from antiphon.parts import TokenUsage
from antiphon.prices.rate_card import encode_variant, token_counts
from antiphon.prices.table import PriceTable
from antiphon.providers.call import Attempt
from antiphon_gateway.ledger.row import Metering, UsageRow
from antiphon_gateway.observe.charging import price_variant
from antiphon_gateway.observe.request_trace import RequestTrace


def usage_rows(trace: RequestTrace, usage: TokenUsage, metering: Metering, prices: PriceTable) -> list[UsageRow]:
    """The rows of a request whose answer took `usage`, with their cost."""
    attempts = trace.attempts
    if not attempts:
        return []
    last = attempts[-1]
    if metering == "free" and last.error is not None:
        rows = _failed_rows(trace, attempts)
    else:
        rows = _failed_rows(trace, attempts[:-1]) if len(attempts) > 1 else []
        rows.append(_answer_row(trace, last, usage, metering))
    for row in rows:
        row.set_cost(prices)
    return rows


def tokens_of(rows: Sequence[UsageRow]) -> int:
    """All tokens of a request, as limits and budgets count them."""
    return sum([row.prompt_tokens + row.completion_tokens for row in rows])


def _answer_row(trace: RequestTrace, attempt: Attempt, usage: TokenUsage, metering: Metering) -> UsageRow:
    """The row of the attempt that brought the answer."""
    outcome: str = "ok" if attempt.error is None else attempt.error.kind
    if trace.client_disconnected:
        outcome = "disconnected"
    elif trace.error is not None:
        outcome = trace.error.kind
    prompt, completion, cached, written, written_1h, reasoning = token_counts(usage)
    return UsageRow(
        request_id=trace.request_id,
        attempt=len(trace.attempts),
        at=time.time_ns() // 1000,
        key=trace.key,
        client_format=trace.client_format,
        operation=trace.operation,
        provider=attempt.provider,
        credential=attempt.credential,
        model_asked=trace.requested_model,
        model_served=attempt.model,
        status=attempt.status or 0,
        outcome=outcome,
        seconds=attempt.seconds,
        first_token_seconds=None if trace.first_token is None else trace.first_token - trace.started_at,
        metering=metering,
        variant=encode_variant(price_variant(usage, trace.service_tier)),
        prompt_tokens=prompt,
        completion_tokens=completion,
        cached_tokens=cached,
        cache_write_tokens=written,
        cache_write_1h_tokens=written_1h,
        reasoning_tokens=reasoning,
    )


def _failed_rows(trace: RequestTrace, attempts: Sequence[Attempt]) -> list[UsageRow]:
    """The rows of attempts that brought no answer, or only the beginning of one."""
    request = {
        "request_id": trace.request_id,
        "key": trace.key,
        "client_format": trace.client_format,
        "operation": trace.operation,
        "model_asked": trace.requested_model,
    }
    rows = [
        _with_lost_prompt(row, attempt, trace.prompt_estimate)
        for row, attempt in zip(attempt_rows(attempts, **request), attempts, strict=True)
    ]
    if trace.broken_tokens:  # streams that another attempt finished; the last of them has the estimate
        broken = [number for number, attempt in enumerate(trace.attempts[:-1]) if attempt.status == 200]
        if broken:
            prompt = min(trace.prompt_estimate, trace.broken_tokens)
            rows[broken[-1]] = structs.replace(
                rows[broken[-1]],
                metering="estimated",
                prompt_tokens=prompt,
                completion_tokens=trace.broken_tokens - prompt,
            )
    return rows


def attempt_rows(attempts: Sequence[Attempt], **request: Any) -> list[UsageRow]:
    """Rows without tokens: what was asked of whom, and how it ended. `request` are the fields that all of them share."""
    return [
        UsageRow(
            attempt=number,
            at=time.time_ns() // 1000,
            provider=attempt.provider,
            credential=attempt.credential,
            model_served=attempt.model,
            status=attempt.status or 0,
            outcome="ok" if attempt.error is None else attempt.error.kind,
            seconds=attempt.seconds,
            **request,
        )
        for number, attempt in enumerate(attempts, start=1)
    ]


def _with_lost_prompt(row: UsageRow, attempt: Attempt, prompt_tokens: int) -> UsageRow:
    """An attempt whose answer had begun and broke off before anything was shown."""
    has_begun = attempt.status is not None and 200 <= attempt.status < 300
    if not has_begun or attempt.error is None or attempt.error.kind != "stream_cut":
        return row
    return structs.replace(row, metering="estimated", prompt_tokens=prompt_tokens)
