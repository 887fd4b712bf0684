"""The tokens of a request: what the provider reported, else an estimate that is marked as one.

Usage comes at the end of a stream. If the client disconnected or the stream broke, the prompt and the relayed text are counted
instead, four bytes of UTF-8 per token: about right for English and for Chinese, and fast. Limits and the ledger both count so.
"""

from __future__ import annotations

import re
from math import ceil
from typing import TYPE_CHECKING

from msgspec import structs

from antiphon.context.tokens import MEDIA_TOKENS
from antiphon.parts import TokenUsage
from antiphon_gateway.observe.record import Record

if TYPE_CHECKING:
    from antiphon_gateway.ledger.row import Metering

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


def price_variant(usage: TokenUsage, requested_tier: str) -> dict[str, str]:
    """What changes the price: the tier that the provider reports, else the requested one."""
    reported = (usage.raw or {}).get("service_tier")
    tier = reported if isinstance(reported, str) else requested_tier
    if tier == "batch":
        return {"processing": "batch"}
    return {"service_tier": tier} if tier in _PRICED_TIERS else {}
