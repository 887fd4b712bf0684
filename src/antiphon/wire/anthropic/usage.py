"""What an answer cost, read and written.

The API counts cached tokens beside `input_tokens`, neutral counts have them inside; thinking is inside `output_tokens` in both.
"""

from __future__ import annotations

from typing import Any

from antiphon.history.usage import TokenUsage
from antiphon.wire.anthropic.native import FORMAT


def read_usage(raw: Any) -> TokenUsage | None:
    """The counts of a usage object; None if it is none."""
    if type(raw) is not dict:
        return None
    cached, stored = _count(raw, "cache_read_input_tokens"), _count(raw, "cache_creation_input_tokens")
    details = raw.get("output_tokens_details")
    return TokenUsage(
        prompt_tokens=_count(raw, "input_tokens") + cached + stored,
        completion_tokens=_count(raw, "output_tokens"),
        cached_tokens=cached,
        cache_write_tokens=stored,
        reasoning_tokens=_count(details, "thinking_tokens") if type(details) is dict else 0,
        raw=raw,
        format=FORMAT,
    )


def _count(raw: dict[str, Any], name: str) -> int:
    value = raw.get(name)
    return value if type(value) is int else 0


def write_usage(usage: TokenUsage | None) -> dict[str, Any]:
    """A usage object: the provider's own if it is from here."""
    if usage is None:
        return {"input_tokens": 0, "output_tokens": 0}
    if usage.format == FORMAT and usage.raw is not None:
        return usage.raw
    written: dict[str, Any] = {
        "input_tokens": max(0, usage.prompt_tokens - usage.cached_tokens - usage.cache_write_tokens),
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
    }
    if usage.reasoning_tokens:
        written["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    return written
