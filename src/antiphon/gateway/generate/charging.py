"""What a request costs a client with `tokens_per_minute`: what the provider reported, else an estimate from what passed.

A provider reports usage at the end of a stream. A stream that the client abandoned, or that broke, has no end; then the prompt
and the text that passed are counted, four bytes of UTF-8 a token. That is about right for English and for Chinese, and needs no
tokenizer on the way.
"""

from __future__ import annotations

from math import ceil

from antiphon.context.tokens import MEDIA_TOKENS
from antiphon.gateway.observe.request_trace import Passage

_BYTES_PER_TOKEN = 4
_LONGEST_WORD = 4096
"""A string in a body that is longer and has no blank in it is taken for media."""


def prompt_estimate(body: bytes) -> int:
    """About how many tokens the body of a request puts before the model."""
    size = media = 0
    for piece in body.split(b'"'):
        if len(piece) > _LONGEST_WORD and b" " not in piece:
            media += 1
        else:
            size += len(piece)
    return ceil(size / _BYTES_PER_TOKEN) + media * MEDIA_TOKENS


def charged_tokens(passage: Passage) -> int:
    """The tokens of a request that is over. A request that nobody answered costs nothing."""
    usage = passage.usage
    reported = usage.total if usage is not None else 0
    is_whole = passage.status < 400 and passage.error is None
    if is_whole and usage is not None:
        return reported
    was_sent = is_whole or passage.first_token is not None or (passage.is_left and bool(passage.provider))
    if not was_sent:
        return reported
    prompt = usage.prompt_tokens if usage is not None and usage.prompt_tokens else passage.prompt_estimate
    completion = ceil(passage.output_bytes / _BYTES_PER_TOKEN)
    if usage is not None:
        completion = max(completion, usage.completion_tokens)
    return max(reported, prompt + completion)
