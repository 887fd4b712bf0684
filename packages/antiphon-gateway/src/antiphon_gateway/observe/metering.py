"""What a finished request used: its tokens, and the rows of the ledger, one for each attempt.

The tokens are those that the provider reported, else an estimate that is marked so. Usage comes at the end of a stream. If the
client disconnected or the stream broke, the prompt and the relayed text are counted instead, four bytes of UTF-8 per token: about
right for English and for Chinese, and fast. Limits and the ledger both count so.

The last attempt has the tokens of the answer. One that failed costs nothing, unless it brought the beginning of an answer that
broke off: providers charge for those, so its prompt is estimated.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from math import ceil
from typing import Any

from msgspec import structs

from antiphon.context.tokens import MEDIA_TOKENS
from antiphon.parts import TokenUsage
from antiphon.prices.rate_card import encode_variant, token_counts
from antiphon.prices.table import PriceTable
from antiphon.providers.call import Attempt
from antiphon.providers.routes import Target
from antiphon_gateway.ledger.row import Metering, UsageRow
from antiphon_gateway.observe.record import Record

_BYTES_PER_TOKEN = 4
_WINDOW = 4096
"""Media are looked for in steps of this size: a step with a blank or a quote holds none."""
_MEDIA_FIELD = re.compile(rb'(?:"(?:data|url|image_url|file_data)"\s*:|"images"\s*:\s*\[)\s*\Z')
"""What stands before the string of an image, a sound or a file, in all formats of clients."""
_MOST_BLANKS = 64
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=-_:;,.%\\"
"""Characters of base64, and of the start of a `data:` URL."""
_NO_USAGE = TokenUsage()
_PRICED_TIERS = frozenset({"flex", "priority", "fast"})


def prompt_estimate(body: bytes) -> int:
    """The approximate number of tokens of a request body: of its text by its size, and so many for each of its media.

    Ordinary text is not read, so this is fast for long bodies too. A character that is escaped (`\\u4e2d`) counts as in UTF-8.
    """
    size, media, start, last_media = len(body) - 3 * body.count(b"\\u"), 0, 0, -1
    while (end := start + _WINDOW) <= len(body):
        if body.find(b'"', start, end) >= 0 or body.find(b" ", start, end) >= 0:
            start = end
            continue
        begin, close = body.rfind(b'"', 0, start) + 1, body.find(b'"', end)
        start = close if close >= 0 else len(body)
        if _is_media(body, begin, last_media):
            media, last_media = media + 1, start
            size -= start - begin
    return ceil(size / _BYTES_PER_TOKEN) + media * MEDIA_TOKENS


def _is_media(body: bytes, begin: int, last_media: int) -> bool:
    """Whether the string from `begin` on is an image, a sound or a file, by its field and its characters.

    `last_media` is the end of such a string before it, which may be in the same list.
    """
    before = body[max(0, begin - 1 - _MOST_BLANKS) : max(0, begin - 1)]
    follows = last_media >= 0 and body[last_media + 1 : max(0, begin - 1)].strip() == b","
    if not follows and _MEDIA_FIELD.search(before) is None:
        return False
    return not body[begin : begin + _WINDOW].translate(None, _BASE64)


def estimated_tokens(text: str) -> int:
    """The approximate number of tokens of a text."""
    return ceil(len(text.encode("utf-8", "replace")) / _BYTES_PER_TOKEN)


def metered_usage(record: Record) -> tuple[TokenUsage, Metering]:
    """The tokens of a finished request, and where the numbers come from. One without a response costs nothing."""
    usage = record.usage
    is_whole = record.status < 400 and record.error is None
    if is_whole and usage is not None:
        return usage, "reported"
    was_sent = is_whole or record.first_token_seconds is not None or (record.client_left and bool(record.provider))
    if not was_sent:
        return (_NO_USAGE, "free") if usage is None else (usage, "reported")
    if record.charges != "tokens":
        return _NO_USAGE, record.charges
    reported = usage or _NO_USAGE
    prompt = reported.prompt_tokens or record.prompt_estimate
    completion = max(ceil(record.output_bytes / _BYTES_PER_TOKEN), reported.completion_tokens)
    total = max(reported.total_tokens, prompt + completion)
    return structs.replace(
        reported, prompt_tokens=prompt, completion_tokens=completion, total_tokens=total
    ), "estimated"


def price_variant(usage: TokenUsage, requested_tier: str) -> str:
    """What changes the price, as the ledger writes it: the tier that the provider reports, else the requested one."""
    reported = (usage.raw or {}).get("service_tier")
    tier = reported if isinstance(reported, str) else requested_tier
    if tier == "batch":
        return encode_variant({"processing": "batch"})
    return encode_variant({"service_tier": tier}) if tier in _PRICED_TIERS else ""


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


def sent_row(record: Record, target: Target, credential: str) -> UsageRow:
    """The row of an attempt that is sent now, if nothing more is ever known of it: its client is disconnected."""
    return UsageRow(
        request_id=record.request_id,
        attempt=len(record.attempts) + 1,
        at=time.time_ns() // 1000,
        key=record.key,
        client_format=record.client_format,
        operation=record.operation,
        provider=target.provider,
        credential=credential,
        model_asked=record.requested_model,
        model_served=target.model,
        outcome="disconnected",
        metering="estimated" if record.charges == "tokens" else record.charges,
        prompt_tokens=record.prompt_estimate if record.charges == "tokens" else 0,
    )


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
        variant=price_variant(usage, record.service_tier),
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
