"""Stop reasons and token counts of a format as tables, each read in both directions, for responses and for streams.

An API has its own words for why a model stopped, and its own names for what it counted. A format states both once; the rules
that hold for all are here: calls decide between `end` and `tool_calls`, and neutral counts are inclusive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from antiphon.parts import OutputPart, Refusal, TokenUsage, ToolCallRequest
from antiphon.wire.loss import Loss
from antiphon.wire.output import StopReason, as_count

Counted: TypeAlias = Literal["prompt", "completion", "cached", "cache_write", "reasoning", "total"]


_COUNTS: tuple[Counted, ...] = get_args(Counted)


class StopReasons:
    """The words of an API for why a model stopped. The first word of each reason is the one that is written.

    `same` has the words for reasons that the API does not tell apart, `instead` those that say something else and are reported.
    """

    def __init__(
        self,
        field: str,
        words: Mapping[str, StopReason],
        *,
        same: Mapping[StopReason, str],
        instead: Mapping[StopReason, str],
    ) -> None:
        self._field, self._words, self._instead = field, words, instead
        self._written = {words[word]: word for word in reversed([*words])} | {**same, **instead}

    def read(self, word: Any, parts: Iterable[OutputPart]) -> StopReason:
        """The reason. Whether there are calls is decided by the parts: hosts report it wrongly, or not at all."""
        if word is None:
            return ""
        reason = self._words.get(word, "other") if type(word) is str else "other"
        if reason not in ("end", "tool_calls"):
            return reason
        # Without this rule a loop would never end: "tool_calls" without a call.
        kinds = set(map(type, parts))
        return (
            "tool_calls" if ToolCallRequest in kinds else "refusal" if Refusal in kinds and reason == "end" else "end"
        )

    def write(self, reason: StopReason, losses: list[Loss] | None = None) -> str | None:
        """The word for a reason, and a loss if it says something else; None if there is none."""
        if reason in self._instead and losses is not None:
            why = f'no matching {self._field}; sent "{self._instead[reason]}"'
            losses.append(Loss("stop_reason", reason, why))
        return self._written.get(reason)


def lose_stop_sequence(stop_sequence: str | None, losses: list[Loss], target: str, path: str = "") -> None:
    """Report the stop sequence of an answer in a format that does not tell which one it was."""
    if stop_sequence is not None:
        reason = f"{target} does not report the matched stop sequence; dropped"
        losses.append(Loss(f"{path}stop_sequence", "stop_sequence", reason))


class Count(NamedTuple):
    """Where an API has a count; `a.b` is inside an object. Several fields of one count add up; the first is written."""

    path: str
    name: Counted
    is_optional: bool = False
    """Written only if it is not 0."""


class UsageTable:
    """The usage object of a format: its counts, in the order in which they are written.

    Neutral counts are inclusive: a prompt has its cached tokens in it. `apart` has those that the API counts beside another.
    """

    def __init__(
        self,
        wire_format: str,
        target: str,
        *counts: Count,
        apart: tuple[tuple[Counted, Counted], ...] = (),
        get: Callable[[dict[str, Any], str], Any] = dict.get,
    ) -> None:
        self._format, self._target, self._apart, self._get = wire_format, target, apart, get
        self._rows = [(*path.rpartition(".")[::2], name, is_optional) for path, name, is_optional in counts]

    def read(self, raw: Any) -> TokenUsage | None:
        """The counts of a usage object; None if it is not an object."""
        if type(raw) is not dict:
            return None
        found: dict[Counted, int] = dict.fromkeys(_COUNTS, 0)
        get = self._get
        for place, field, name, _ in self._rows:
            counts = raw.get(place) if place else raw
            if type(counts) is dict:
                found[name] += as_count(get(counts, field))
        for whole, part in self._apart:
            found[whole] += found[part]
        prompt, completion, cached, cache_write, reasoning, total = found.values()
        return TokenUsage(prompt, completion, cached, cache_write, reasoning, total, raw, self._format)

    def write(self, usage: TokenUsage, losses: list[Loss] | None = None) -> dict[str, Any]:
        """A usage object: the provider's own if it is one of this format."""
        if usage.format == self._format and usage.raw is not None:
            return usage.raw
        left: dict[Counted, int] = {
            "prompt": usage.prompt_tokens,
            "completion": usage.completion_tokens,
            "cached": usage.cached_tokens,
            "cache_write": usage.cache_write_tokens,
            "reasoning": usage.reasoning_tokens,
        }
        for whole, part in self._apart:
            left[whole] = max(0, left[whole] - left[part])
        left["total"] = usage.total
        written: dict[str, Any] = {}
        for place, field, name, is_optional in self._rows:
            count = left.pop(name, 0)
            if count or not is_optional:
                (written.setdefault(place, {}) if place else written)[field] = count
        if left.get("cache_write") and losses is not None:
            reason = f"{self._target} does not report cache writes; dropped"
            losses.append(Loss("usage.cache_write_tokens", "cache_write_tokens", reason))
        return written
