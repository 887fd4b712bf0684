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
from antiphon_gateway.observe.charging import metered_usage, price_variant
from antiphon_gateway.observe.record import Record


def usage_rows(record: Record, prices: PriceTable) -> list[UsageRow]:
    """The rows of a finished request, with their cost."""
    attempts = record.attempts
    if not attempts:
        return []
    usage, metering = metered_usage(record)
    last = attempts[-1]
    if metering == "free" and last.error is not None:
        rows = _failed_rows(record, attempts)
    else:
        rows = _failed_rows(record, attempts[:-1]) if len(attempts) > 1 else []
        rows.append(_answer_row(record, last, usage, metering))
    for row in rows:
        row.set_cost(prices)
    return rows


def tokens_of(rows: Sequence[UsageRow]) -> int:
    """All tokens of a request, as limits and budgets count them."""
    return sum([row.prompt_tokens + row.completion_tokens for row in rows])


def _answer_row(record: Record, attempt: Attempt, usage: TokenUsage, metering: Metering) -> UsageRow:
    """The row of the attempt that brought the answer."""
    outcome: str = "ok" if attempt.error is None else attempt.error.kind
    if record.client_left:
        outcome = "disconnected"
    elif record.error is not None:
        outcome = record.error.kind
    prompt, completion, cached, written, written_1h, reasoning = token_counts(usage)
    return UsageRow(
        request_id=record.request_id,
        attempt=len(record.attempts),
        at=time.time_ns() // 1000,
        key=record.key,
        client_format=record.client_format,
        operation=record.operation,
        provider=attempt.provider,
        credential=attempt.credential,
        model_asked=record.requested_model,
        model_served=attempt.model,
        status=attempt.status or 0,
        outcome=outcome,
        seconds=attempt.seconds,
        first_token_seconds=record.first_token_seconds,
        metering=metering,
        variant=encode_variant(price_variant(usage, record.service_tier)),
        prompt_tokens=prompt,
        completion_tokens=completion,
        cached_tokens=cached,
        cache_write_tokens=written,
        cache_write_1h_tokens=written_1h,
        reasoning_tokens=reasoning,
    )


def _failed_rows(record: Record, attempts: Sequence[Attempt]) -> list[UsageRow]:
    """The rows of attempts that brought no answer, or only the beginning of one."""
    request = {
        "request_id": record.request_id,
        "key": record.key,
        "client_format": record.client_format,
        "operation": record.operation,
        "model_asked": record.requested_model,
    }
    rows = [
        _with_lost_prompt(row, attempt, record.prompt_estimate)
        for row, attempt in zip(attempt_rows(attempts, **request), attempts, strict=True)
    ]
    if record.broken_tokens:  # streams that another attempt finished; the last of them has the estimate
        broken = [number for number, attempt in enumerate(record.attempts[:-1]) if attempt.status == 200]
        if broken:
            prompt = min(record.prompt_estimate, record.broken_tokens)
            rows[broken[-1]] = structs.replace(
                rows[broken[-1]],
                metering="estimated",
                prompt_tokens=prompt,
                completion_tokens=record.broken_tokens - prompt,
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
