"""What a model call cost, as the provider counted it."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class TokenUsage(
    Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, repr_omit_defaults=True, gc=False
):
    """Tokens of one call, or of many added up.

    The counts are inclusive, whatever the provider's habit: `prompt_tokens` has the cached ones in it, `completion_tokens`
    the reasoning. `raw` is the provider's own object, of a single call, in the words of the wire format `format`.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    total_tokens: int = 0
    raw: dict[str, Any] | None = None
    format: str = ""

    def __add__(self, other: TokenUsage) -> TokenUsage:
        """The sum. `raw` objects of different calls do not add up, so the sum has none."""
        return TokenUsage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cached_tokens + other.cached_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            self.total + other.total,
        )

    @property
    def total(self) -> int:
        """The provider's total, or the sum where it gave none."""
        return self.total_tokens or self.prompt_tokens + self.completion_tokens
