"""The context windows of known models, and the size from which a conversation should be summarised.

Sizes are the input limits that the vendors publish, by globs of model names without a provider; the first match counts.
An unknown model has none: a guess would summarise too early or too late.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache

_SHARE = 0.8
"""The part of a window that a conversation may fill; the rest is for the answer and for errors of the estimate."""

_WINDOWS: tuple[tuple[str, int], ...] = (
    ("gpt-5*", 272_000),
    ("gpt-4.1*", 1_047_576),
    ("gpt-4o*", 128_000),
    ("gpt-4-turbo*", 128_000),
    ("gpt-4*", 8_192),
    ("gpt-3.5*", 16_385),
    ("gpt-oss*", 131_072),
    ("chatgpt-4o*", 128_000),
    ("o1*", 200_000),
    ("o3*", 200_000),
    ("o4*", 200_000),
    ("claude-*", 200_000),
    ("gemini-*", 1_048_576),
    ("deepseek-*", 128_000),
    ("mistral-*", 128_000),
    ("grok-4*", 256_000),
    ("grok-*", 131_072),
    ("kimi-k2*", 256_000),
    ("moonshot-v1-8k*", 8_192),
    ("moonshot-v1-32k*", 32_768),
    ("moonshot-*", 131_072),
    ("glm-*", 128_000),
    ("qwen*", 131_072),
    ("doubao-*", 128_000),
    ("llama*3*", 128_000),
)


@lru_cache(maxsize=256)
def context_window(model: str) -> int | None:
    """The context window of a model in tokens, by its name with or without the provider; None if it is not known."""
    name = model.rpartition("/")[2].lower()
    return next((size for pattern, size in _WINDOWS if fnmatchcase(name, pattern)), None)


def compaction_limit(model: str) -> int | None:
    """The number of tokens from which a conversation with a model should be summarised; None if the window is not known."""
    window = context_window(model)
    return None if window is None else int(window * _SHARE)
