"""A finished request as rows of the ledger: one for each attempt. The last attempt has the tokens of the answer.

An attempt that failed costs nothing, unless it brought the beginning of an answer that broke off: providers charge for those, so
its prompt is estimated.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from antiphon.gateway.generate.charging import price_variant
from antiphon.gateway.ledger.row import Metering, UsageRow, encode_variant, token_counts
from antiphon.gateway.observe.request_trace import RequestTrace
from antiphon.history import TokenUsage
from antiphon.providers.call import Attempt


def usage_rows(trace: RequestTrace, usage: TokenUsage, metering: Metering) -> list[UsageRow]:
    """The rows of a request whose answer took `usage`."""
    attempts = trace.attempts
    if not attempts:
        return []
    request = {
        "request_id": trace.request_id,
        "key": trace.key,
        "client_format": trace.client_format,
        "operation": trace.operation,
        "model_asked": trace.requested_model,
    }
    last = attempts[-1]
    has_answer = metering != "free" or last.error is None
    failed = attempts[:-1] if has_answer else attempts
    rows = [
        _with_lost_prompt(row, attempt, trace.prompt_estimate)
        for row, attempt in zip(attempt_rows(failed, **request), failed, strict=True)
    ]
    broken = (
        [number for number, attempt in enumerate(attempts[:-1]) if attempt.status == 200] if trace.broken_tokens else ()
    )
    if broken:  # streams that another attempt finished; the last of them has the estimate
        prompt = min(trace.prompt_estimate, trace.broken_tokens)
        rows[broken[-1]] = structs.replace(
            rows[broken[-1]],
            metering="estimated",
            prompt_tokens=prompt,
            completion_tokens=trace.broken_tokens - prompt,
        )
    if has_answer:
        outcome: str = "ok" if last.error is None else last.error.kind
        if trace.client_disconnected:
            outcome = "disconnected"
        elif trace.error is not None:
            outcome = trace.error.kind
        answer = {
            "outcome": outcome,
            "first_token_seconds": None if trace.first_token is None else trace.first_token - trace.started_at,
            "metering": metering,
            "variant": encode_variant(price_variant(usage, trace.service_tier)),
            **token_counts(usage),
        }
        rows.append(_row(last, len(attempts), request, answer))
    return rows


def attempt_rows(attempts: Sequence[Attempt], **request: str) -> list[UsageRow]:
    """Rows without tokens: what was asked of whom, and how it ended. `request` are the fields that all of them share."""
    return [
        _row(attempt, number, request, {"outcome": "ok" if attempt.error is None else attempt.error.kind})
        for number, attempt in enumerate(attempts, start=1)
    ]


def _row(attempt: Attempt, number: int, request: Mapping[str, Any], answer: Mapping[str, Any]) -> UsageRow:
    return UsageRow(
        attempt=number,
        at=time.time_ns() // 1000,
        provider=attempt.provider,
        credential=attempt.credential,
        model_served=attempt.model,
        status=attempt.status or 0,
        seconds=attempt.seconds,
        **request,
        **answer,
    )


def _with_lost_prompt(row: UsageRow, attempt: Attempt, prompt_tokens: int) -> UsageRow:
    """An attempt whose answer had begun and broke off before anything was shown."""
    has_begun = attempt.status is not None and 200 <= attempt.status < 300
    if not has_begun or attempt.error is None or attempt.error.kind != "stream_cut":
        return row
    return structs.replace(row, metering="estimated", prompt_tokens=prompt_tokens)
