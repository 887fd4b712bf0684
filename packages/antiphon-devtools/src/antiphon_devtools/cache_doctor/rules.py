"""How each provider caches prompts: what is matched, from which size on, and for how long.

Two ways of matching exist. With `breakpoints` a prefix is stored where the request has a breakpoint, and read only if a later
request reaches exactly that place (Anthropic, and OpenAI from GPT-5.6 on, which sets one itself at the end of the last message).
Otherwise the longest common beginning of two prompts is read, in steps of tokens (earlier models of OpenAI, Gemini, DeepSeek).

The figures are those of the providers' guides. Where a guide has none for a lifetime, it is `ASSUMED_LIFETIME`.
"""

from __future__ import annotations

import re

from msgspec import Struct

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
ASSUMED_LIFETIME = HOUR


class CacheRules(Struct, frozen=True, kw_only=True):
    """The rules for one model."""

    uses_breakpoints: bool = False
    sets_breakpoint: bool = False
    """Whether the provider sets a breakpoint at the end of the last message itself."""
    lookback: int | None = None
    """How many content blocks before a breakpoint are compared with what is stored; None: all of them."""
    minimum: int = 1024
    """Prefixes with fewer tokens are not cached."""
    step: int = 1
    """Tokens are read in multiples of this."""
    seconds: float = 5 * MINUTE
    """How long a prefix is kept after its last use."""


_ANTHROPIC_MINIMUMS = (
    (r"(opus|fable|mythos)-5", 512),
    (r"opus-4[-.]7", 2048),
    (r"opus-4[-.][56]|haiku-4[-.]5", 4096),
    (r"3[-.]5-haiku|3-haiku", 2048),
)
_GPT_VERSION = re.compile(r"gpt-(\d+)(?:\.(\d+))?")


def cache_rules(format_name: str, model: str) -> CacheRules:
    """The rules for a model that is called in a format."""
    name = model.lower()
    if format_name == "anthropic":
        minimum = next((tokens for pattern, tokens in _ANTHROPIC_MINIMUMS if re.search(pattern, name)), 1024)
        return CacheRules(uses_breakpoints=True, lookback=20, minimum=minimum)
    if format_name in ("gemini", "gemini-interactions") or "gemini" in name:
        minimum = 2048 if "gemini-2" in name else 4096
        return CacheRules(minimum=minimum, seconds=ASSUMED_LIFETIME)
    if "deepseek" in name:
        return CacheRules(minimum=64, step=64, seconds=ASSUMED_LIFETIME)
    if "grok" in name:
        return CacheRules(minimum=128, seconds=ASSUMED_LIFETIME)
    version = _GPT_VERSION.search(name)
    if version and (int(version[1]), int(version[2] or 0)) >= (5, 6):
        return CacheRules(uses_breakpoints=True, sets_breakpoint=True, seconds=30 * MINUTE)
    return CacheRules(step=128, seconds=10 * MINUTE)
