"""What a body is written for: the model and the version of the API, and what these refuse.

Each answer names the rule behind it. Where a model's name does not tell its generation, nothing is known against it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

VERSION = "2023-06-01"
VERSION_2026_10 = "2026-10-21"

_MAX_NAME_LENGTH = 256
"""No model has a longer name; what follows is not looked at, and not kept in a cache."""
_MODEL = re.compile(
    r"claude-(?:([a-z]+)-(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)|(\d)(?:[-.](\d))?(?!\d))"  # claude-opus-4-8, claude-3-5-haiku
)
THINKING_FAMILIES = ("opus", "sonnet", "fable", "mythos")
ALWAYS_THINKING = ("fable", "mythos")


class Capabilities:
    """A model and an API version: what they take."""

    def __init__(self, model: str, version: str, is_on_bedrock: bool) -> None:
        match = _MODEL.search(model)
        family, major, minor, old_major, old_minor = match.groups() if match else ("", 0, 0, 0, 0)
        self._family = family or ""
        self._version = (int(major or old_major), int(minor or old_minor or 0))
        self._is_known = is_known = match is not None
        self.is_on_bedrock = is_on_bedrock
        self.is_version_2026_10 = version.startswith("20") and version >= VERSION_2026_10
        # The conversation may end with the model's own words (AN-07).
        self.accepts_prefill = not self.is_at_least(4, 6)
        # The model may decide by itself how much it thinks (AN-19).
        self.accepts_adaptive = not is_known or self.is_at_least(4, 6)
        # Thinking may be enabled with a number of tokens, and it can be switched off (AN-19).
        self.accepts_budget = not self.is_at_least(4, 7, THINKING_FAMILIES)
        self.can_disable_thinking = not (self.is_at_least(5, 0, ALWAYS_THINKING) or self.is_at_least(5, 5, THINKING_FAMILIES))
        # It is certain that an effort may be stated, and it may be `xhigh` (AN-32).
        self.accepts_effort = self.is_at_least(4, 6)
        self.accepts_xhigh = not is_known or self.is_at_least(4, 7)
        # A tool call may be demanded (AN-17).
        self.accepts_forced_choice = not (self.is_at_least(5, 1, ALWAYS_THINKING) or self.is_at_least(5, 5, THINKING_FAMILIES))
        # Temperature, top_p and top_k still mean anything to the model (AN-21).
        self.accepts_sampling = not self.is_at_least(4, 7)

    def is_at_least(self, major: int, minor: int, families: tuple[str, ...] = ()) -> bool:
        """Whether the model is known, of these families, and of this generation or a later one."""
        return self._is_known and self._version >= (major, minor) and (not families or self._family in families)

    def accepts_system_role(self, is_native: bool) -> bool:
        """Whether system messages may stand among the others (AN-03); of unknown models only a native body knows."""
        return self.is_at_least(4, 8) if self._is_known else is_native


_cached = lru_cache(maxsize=256)(Capabilities)


def capabilities_for(model: Any, version: str, host: Any) -> Capabilities:
    """The target of a request; `host` is the version that a host other than Anthropic wants in the body."""
    is_on_bedrock = isinstance(host, str) and host.startswith("bedrock-")
    name = model[:_MAX_NAME_LENGTH] if isinstance(model, str) else ""
    return _cached(name, version[:_MAX_NAME_LENGTH], is_on_bedrock)
