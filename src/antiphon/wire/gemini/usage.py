"""What an answer cost: `usageMetadata` and `TokenUsage`.

Gemini counts apart what the neutral counts include: thoughts beside the candidates, the prompts of its own tools beside the
prompt. Cached tokens are within the prompt for both.
"""

from __future__ import annotations

from typing import Any

from antiphon.history.usage import TokenUsage
from antiphon.wire.gemini.declarations import get
from antiphon.wire.gemini.spelling import FORMAT
from antiphon.wire.loss import Loss


def read_usage(raw: dict[str, Any]) -> TokenUsage:
    """The counts, and the object they came in."""
    thoughts = _count(raw, "thoughtsTokenCount")
    return TokenUsage(
        _count(raw, "promptTokenCount") + _count(raw, "toolUsePromptTokenCount"),
        _count(raw, "candidatesTokenCount") + thoughts,
        _count(raw, "cachedContentTokenCount"),
        0,
        thoughts,
        _count(raw, "totalTokenCount"),
        raw,
        FORMAT,
    )


def _count(raw: dict[str, Any], name: str) -> int:
    value = raw.get(name)
    if type(value) is int:
        return value
    value = get(raw, name)
    if type(value) is int:
        return value
    # proto3 JSON may write an integer as a string
    return int(value) if type(value) is str and value.isdecimal() else 0


def write_usage(usage: TokenUsage, losses: list[Loss]) -> dict[str, Any]:
    """The counts as Gemini gives them."""
    if usage.format == FORMAT and usage.raw is not None:
        return usage.raw
    written = {
        "promptTokenCount": usage.prompt_tokens,
        "candidatesTokenCount": max(usage.completion_tokens - usage.reasoning_tokens, 0),
        "totalTokenCount": usage.total,
    }
    if usage.reasoning_tokens:
        written["thoughtsTokenCount"] = usage.reasoning_tokens
    if usage.cached_tokens:
        written["cachedContentTokenCount"] = usage.cached_tokens
    if usage.cache_write_tokens:
        losses.append(Loss("usage.cache_write_tokens", "cache_write_tokens", f"{FORMAT} does not count them apart"))
    return written
