"""Token counts as Chat Completions hosts report them.

Theory of operation. Neutral counts are inclusive: the prompt has the cached tokens in it, the completion the reasoning. Most
hosts count so; those that do not give themselves away by their totals (xAI's total is larger than prompt and completion by
the reasoning; Grok at Azure reports more cached tokens than prompt tokens), and are put right. The host's own object is kept
in `raw` and goes back as it came.
"""

from __future__ import annotations

from typing import Any

from antiphon.history.usage import TokenUsage
from antiphon.wire.openai_chat.content import FORMAT

_CACHED = ("prompt_cache_hit_tokens", "cache_read_input_tokens", "cached_tokens", "num_cached_tokens")
_PLAIN = frozenset({"prompt_tokens", "completion_tokens", "total_tokens"})


def read_usage(raw: Any) -> TokenUsage | None:
    """The counts of a `usage` object; None if there is none."""
    if type(raw) is not dict or not raw:
        return None
    prompt, completion = _count(raw, "prompt_tokens"), _count(raw, "completion_tokens")
    total = _count(raw, "total_tokens")
    cached = written = reasoning = 0
    details = raw.get("prompt_tokens_details")
    if not _PLAIN.issuperset(raw):
        more = raw.get("completion_tokens_details")
        found = [_count(details, "cached_tokens"), *(_count(raw, name) for name in _CACHED)]
        cached = next(filter(None, found), 0)
        written = _count(details, "cache_write_tokens") or _count(raw, "cache_creation_input_tokens")
        reasoning = _count(more, "reasoning_tokens") or _count(raw, "reasoning_tokens")
    unexplained = total - prompt - completion
    if unexplained > 0 and unexplained == _count(details, "audio_tokens"):
        prompt += unexplained
    elif unexplained > 0 and reasoning in (0, unexplained):
        completion, reasoning = completion + unexplained, unexplained
    elif reasoning > completion:
        completion += reasoning
    if cached > prompt:
        prompt += cached
    return TokenUsage(prompt, completion, cached, written, reasoning, total, raw, FORMAT)


def _count(value: Any, key: str) -> int:
    count: Any = value.get(key) if type(value) is dict else None
    return int(count) if type(count) in (int, float) and 0 <= count < 2**53 else 0


def write_usage(usage: TokenUsage) -> dict[str, Any]:
    """A `usage` object: the host's own if it came from this format."""
    if usage.raw is not None and usage.format == FORMAT:
        return usage.raw
    prompt: dict[str, int] = {"cached_tokens": usage.cached_tokens}
    if usage.cache_write_tokens:
        prompt["cache_write_tokens"] = usage.cache_write_tokens
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": prompt,
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
