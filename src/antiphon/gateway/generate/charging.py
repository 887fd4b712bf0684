"""The tokens of a request: what the provider reported, else an estimate that is marked as one.

Usage comes at the end of a stream. If the client disconnected or the stream broke, the prompt and the relayed text are counted
instead, four bytes of UTF-8 per token: about right for English and for Chinese, and fast. Limits and the ledger both count so.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from msgspec import structs

from antiphon.context.tokens import MEDIA_TOKENS
from antiphon.gateway.observe.request_trace import RequestTrace
from antiphon.parts import TokenUsage

if TYPE_CHECKING:
    from antiphon.gateway.ledger.row import Metering

_BYTES_PER_TOKEN = 4
_LONGEST_WORD = 4096
"""A longer string in a body, without a blank, is taken for media. Such strings are looked for in steps of this size."""
_NO_USAGE = TokenUsage()
_PRICED_TIERS = frozenset({"flex", "priority", "fast"})


def prompt_estimate(body: bytes) -> int:
    """The approximate number of tokens of a request body. Ordinary text is not read, so this is fast for long bodies too."""
    size, media, start = len(body), 0, 0
    while (end := start + _LONGEST_WORD) <= len(body):
        if body.find(b'"', start, end) >= 0 or body.find(b" ", start, end) >= 0:
            start = end
            continue
        media += 1
        begin, close = body.rfind(b'"', 0, start) + 1, body.find(b'"', end)
        start = close if close >= 0 else len(body)
        size -= start - begin
    return ceil(size / _BYTES_PER_TOKEN) + media * MEDIA_TOKENS


def estimated_tokens(text: str) -> int:
    """The approximate number of tokens of a text."""
    return ceil(len(text.encode("utf-8", "replace")) / _BYTES_PER_TOKEN)


def metered_usage(trace: RequestTrace) -> tuple[TokenUsage, Metering]:
    """The tokens of a finished request, and where the numbers come from. One without a response costs nothing."""
    usage = trace.usage
    is_whole = trace.status < 400 and trace.error is None
    if is_whole and usage is not None:
        return usage, "reported"
    was_sent = is_whole or trace.first_token is not None or (trace.client_disconnected and bool(trace.provider))
    if not was_sent:
        return (_NO_USAGE, "free") if usage is None else (usage, "reported")
    if not trace.is_estimable:
        return _NO_USAGE, "free" if trace.is_free else "unknown"
    reported = usage or _NO_USAGE
    prompt = reported.prompt_tokens or trace.prompt_estimate
    completion = max(ceil(trace.output_bytes / _BYTES_PER_TOKEN), reported.completion_tokens)
    total = max(reported.total_tokens, prompt + completion)
    return structs.replace(
        reported, prompt_tokens=prompt, completion_tokens=completion, total_tokens=total
    ), "estimated"


def price_variant(usage: TokenUsage, requested_tier: str) -> dict[str, str]:
    """What changes the price: the tier that the provider reports, else the requested one."""
    reported = (usage.raw or {}).get("service_tier")
    tier = reported if isinstance(reported, str) else requested_tier
    if tier == "batch":
        return {"processing": "batch"}
    return {"service_tier": tier} if tier in _PRICED_TIERS else {}
