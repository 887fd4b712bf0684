"""`CacheReport`: what a request could read from the prompt cache, what it read, and what a miss cost, with reason and advice.

Token counts are estimates until the usage is known. They are then scaled so that the whole prompt has the reported size, which
keeps their proportions. Money is what the lost tokens cost more than a read would have: as input, or as a write where the
provider charges for writes.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Literal, TypeAlias

from msgspec import Struct, structs

from antiphon.parts import TokenUsage
from antiphon.prices.table import PriceTable
from antiphon_devtools.cache_doctor.difference import Difference
from antiphon_devtools.cache_doctor.rules import CacheRules

Verdict: TypeAlias = Literal[
    "first",
    "hit",
    "changed",
    "model_changed",
    "key_changed",
    "expired",
    "too_short",
    "no_breakpoints",
    "lookback",
    "breakpoints",
    "elsewhere",
    "missed",
]

_MILLION = Decimal(1_000_000)
_DEFAULT_TABLE = PriceTable()
_CHANGES = {"changed": "changed", "added": "was added", "removed": "was removed", "moved": "moved"}
_SECTION_ADVICE = {
    "tools": "send the same tools in the same order in every request of a conversation",
    "instructions": "move what changes from the instructions to the end of the last message",
    "settings": "keep this setting the same for the whole conversation",
    "messages": "add messages at the end and leave earlier ones as they were sent",
}


class CacheReport(Struct, frozen=True, kw_only=True):
    """One request. `expected_tokens` is what the request before it had left in the cache."""

    format: str
    model: str
    provider: str = ""
    verdict: Verdict
    prompt_tokens: int
    is_estimated: bool = True
    predicted_tokens: int = 0
    expected_tokens: int = 0
    cached_tokens: int | None = None
    """What the provider reports; None if it reported nothing."""
    lost_tokens: int = 0
    lost_cost: Decimal | None = None
    """US dollars; None if the price is not known."""
    difference: Difference | None = None
    gap_seconds: float | None = None
    rules: CacheRules
    lifetime: float = 0.0
    """How long the prefix is kept, in seconds."""
    elsewhere: str = ""

    @property
    def is_miss(self) -> bool:
        """Whether something that could have been read was not."""
        return self.lost_tokens > 0

    @property
    def reason(self) -> str:
        """What happened, in a sentence."""
        found, tokens = self.difference, self.predicted_tokens
        match self.verdict:
            case "first":
                more = f"; {tokens:,} tokens match another conversation" if tokens else ""
                return f"no earlier request stored a prefix{more}"
            case "hit":
                return (
                    "continues the request before"
                    if not self.cached_tokens
                    else f"{self.cached_tokens:,} tokens were read"
                )
            case "changed" | "model_changed":
                assert found is not None, "it differs"
                size = "" if found.change != "changed" or not found.offset else f" at byte {found.offset:,}"
                return f"{found.path} {_CHANGES[found.change]}{size}"
            case "key_changed":
                return "prompt_cache_key changed; requests with another key are sent to other machines"
            case "expired":
                return (
                    f"{_duration(self.gap_seconds or 0)} since the request before; kept for {_duration(self.lifetime)}"
                )
            case "too_short":
                return f"fewer than {self.rules.minimum:,} tokens, the least that this model caches"
            case "no_breakpoints":
                return "the request has no cache_control, so nothing is cached"
            case "lookback":
                return f"more than {self.rules.lookback} blocks were added since the last breakpoint"
            case "breakpoints":
                return "no breakpoint is at a place that the request before stored"
            case "elsewhere":
                return f"{self.elsewhere} names content that is stored at the provider and cannot be compared here"
            case "missed":
                return f"{tokens:,} tokens were expected; the provider read {self.cached_tokens or 0:,}"

    @property
    def advice(self) -> str:
        """What to do about a miss; empty if there is nothing to do."""
        match self.verdict:
            case "changed":
                assert self.difference is not None, "it differs"
                return _SECTION_ADVICE.get(self.difference.section, "")
            case "model_changed":
                return "a cache belongs to one model; switch models between conversations where cost matters"
            case "key_changed":
                return "use one prompt_cache_key for all requests of a conversation"
            case "expired":
                is_short = self.rules.uses_breakpoints and self.format == "anthropic" and self.lifetime < 3600
                return 'set "ttl": "1h" in cache_control if pauses are common' if is_short else ""
            case "no_breakpoints":
                return 'add "cache_control": {"type": "ephemeral"} to the body: it marks the last block of each request'
            case "lookback":
                return "set a breakpoint at least every 20 blocks"
            case "breakpoints":
                return "keep a breakpoint where the request before had its last one"
            case "missed":
                return (
                    "the prefix was evicted, or the request reached another machine; with OpenAI, set prompt_cache_key"
                )
            case _:
                return ""

    def with_usage(
        self, usage: TokenUsage | None, table: PriceTable | None = None, at: datetime | None = None
    ) -> CacheReport:
        """The report with what the provider counted, and with the cost of what was lost."""
        report = self
        if usage is not None and usage.prompt_tokens:
            report = self._scaled(usage)
        return structs.replace(report, lost_cost=report._cost(table or _DEFAULT_TABLE, at))

    def _scaled(self, usage: TokenUsage) -> CacheReport:
        factor = usage.prompt_tokens / max(1, self.prompt_tokens)
        predicted, expected = (round(count * factor) for count in (self.predicted_tokens, self.expected_tokens))
        predicted, expected = (count if count >= self.rules.minimum else 0 for count in (predicted, expected))
        actual, verdict = usage.cached_tokens, self.verdict
        if verdict == "hit" and not actual:
            verdict = "missed" if predicted else "too_short"
        elif verdict == "hit" and actual < predicted // 2:
            verdict = "missed"
        elif verdict not in ("hit", "elsewhere") and actual and actual >= expected * 0.9:
            verdict = "hit"  # another request stored the prefix, or it was kept longer
        return structs.replace(
            self,
            verdict=verdict,
            prompt_tokens=usage.prompt_tokens,
            is_estimated=False,
            predicted_tokens=predicted,
            expected_tokens=expected,
            cached_tokens=actual,
            lost_tokens=0 if verdict == "hit" else max(0, expected - actual),
        )

    def _cost(self, table: PriceTable, at: datetime | None) -> Decimal | None:
        known = table.find(self.model, self.provider)
        if known is None:
            return None
        price = known.price_at(at or datetime.now(UTC), {})
        size = self.prompt_tokens
        paid = price.amount("input", size)
        if self.rules.uses_breakpoints and self.verdict != "no_breakpoints":
            paid = price.amount("cache_write", size) or paid
        if paid is None:
            return None
        read = price.amount("cache_read", size)
        return (paid - (paid if read is None else read)) * self.lost_tokens / _MILLION


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
