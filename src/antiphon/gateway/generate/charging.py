"""Tokens charged to a client whose tokens or money are limited: what the provider reported, else an estimate.

Usage comes at the end of a stream. If the client disconnected or the stream broke, the prompt and the relayed text are counted
instead, four bytes of UTF-8 per token: about right for English and for Chinese, and fast.
"""

from __future__ import annotations

from decimal import Decimal
from math import ceil

from antiphon.context.tokens import MEDIA_TOKENS
from antiphon.gateway.observe.request_trace import RequestTrace
from antiphon.history import TokenUsage
from antiphon.prices.cost import cost_of
from antiphon.prices.table import PriceTable

_BYTES_PER_TOKEN = 4
_LONGEST_WORD = 4096
"""A longer string in a body, without a blank, is taken for media."""


def prompt_estimate(body: bytes) -> int:
    """The approximate number of tokens of a request body."""
    size = media = 0
    for piece in body.split(b'"'):
        if len(piece) > _LONGEST_WORD and b" " not in piece:
            media += 1
        else:
            size += len(piece)
    return ceil(size / _BYTES_PER_TOKEN) + media * MEDIA_TOKENS


def estimated_tokens(text: str) -> int:
    """The approximate number of tokens of a text."""
    return ceil(len(text.encode("utf-8", "replace")) / _BYTES_PER_TOKEN)


def charged_tokens(trace: RequestTrace) -> int:
    """The tokens of a finished request. A request without a response costs nothing."""
    usage = trace.usage
    reported = usage.total if usage is not None else 0
    is_whole = trace.status < 400 and trace.error is None
    if is_whole and usage is not None:
        return reported + trace.broken_tokens
    was_sent = is_whole or trace.first_token is not None or (trace.client_disconnected and bool(trace.provider))
    if not was_sent:
        return reported
    prompt = usage.prompt_tokens if usage is not None and usage.prompt_tokens else trace.prompt_estimate
    completion = ceil(trace.output_bytes / _BYTES_PER_TOKEN)
    if usage is not None:
        completion = max(completion, usage.completion_tokens)
    return max(reported, prompt + completion)


def charged_cost(trace: RequestTrace, tokens: int, table: PriceTable) -> Decimal | None:
    """What the charged tokens of a finished request cost; None if the price is not known."""
    usage = trace.usage
    if usage is None or usage.total != tokens:  # estimated: what is not the prompt was generated
        prompt = min(
            tokens, usage.prompt_tokens if usage is not None and usage.prompt_tokens else trace.prompt_estimate
        )
        usage = TokenUsage(prompt_tokens=prompt, completion_tokens=tokens - prompt)
    found = cost_of(usage, trace.model, trace.provider, table=table)
    return None if found is None else found.total
