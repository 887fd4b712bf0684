"""`ModelOutput`: what a model answered, in a neutral format; and `ProviderError`: why it did not.

An API has its own words for why a model stopped, and its own names for what it counted. A format states both once, as tables that
are read in both directions (`StopReasons`, `UsageTable`); the rules that hold for all are here: calls decide between `end` and
`tool_calls`, and neutral counts are inclusive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from msgspec import Struct

from antiphon.parts import NativeExtras, OutputPart, Refusal, Source, TokenUsage, ToolCallRequest
from antiphon.wire.loss import Loss

StopReason: TypeAlias = Literal[
    "", "end", "stop_sequence", "length", "tool_calls", "content_filter", "refusal", "paused", "malformed_call", "other"
]
"""Why a model stopped. Empty: not given. A more specific word of the provider is in the output's `native`."""

ErrorKind: TypeAlias = Literal[
    "invalid_request",
    "context_length",
    "authentication",
    "billing",
    "permission",
    "not_found",
    "timeout",
    "conflict",
    "too_large",
    "rate_limit",
    "overloaded",
    "server",
    "stream_cut",
    "unknown",
]


_STATUSES: dict[int, ErrorKind] = {
    401: "authentication",
    402: "billing",
    403: "permission",
    404: "not_found",
    408: "timeout",
    409: "conflict",
    413: "too_large",
    429: "rate_limit",
    503: "overloaded",
    504: "timeout",
    529: "overloaded",
}


NOT_AN_ANSWER = "not_an_answer"
"""The code of the error for an answer that cannot be read. It may be billed, so it is not requested again."""


_MAX_COUNT = 2**53


def as_count(value: Any) -> int:
    """A number of tokens; 0 if it is missing or not one. Hosts also write it as a decimal (1.0), proto3 JSON as a string."""
    if type(value) is str:
        value = int(value) if value.isdecimal() and len(value) < 16 else 0
    return int(value) if (type(value) is int or type(value) is float) and 0 <= value < _MAX_COUNT else 0


def token_count(counts: Any, name: str) -> int:
    """A number of tokens in a usage object."""
    value = counts.get(name) if type(counts) is dict else 0
    return value if type(value) is int and 0 <= value < _MAX_COUNT else as_count(value)


def kind_of_status(status: int | None) -> ErrorKind | None:
    """The kind of error that an HTTP status means; None if it is not an error."""
    if status is None or status < 400:
        return None
    return _STATUSES.get(status) or ("server" if status >= 500 else "invalid_request")


class ModelOutput(Struct, frozen=True, kw_only=True, omit_defaults=True, repr_omit_defaults=True):
    """One answer. `others` are further candidates of the same call, if more than one was requested.

    `format` is the wire format it was read from; that format can write it back as it came.
    """

    parts: tuple[OutputPart, ...] = ()
    stop_reason: StopReason = ""
    stop_sequence: str | None = None
    id: str = ""
    model: str = ""
    created: int | None = None
    usage: TokenUsage | None = None
    others: tuple[ModelOutput, ...] = ()
    format: str = ""
    native: NativeExtras | None = None
    source: Source | None = None


MAX_CANDIDATES = 128
"""No API gives more candidates; a higher index in a stream would only fill memory."""
STREAM_CUT = "connection lost: the stream ended before the response was complete"
"""Clients decide by the words of an error whether to ask again: they know a lost connection (opencode)."""


class ProviderError(Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """An error of a provider, whole or in the middle of a stream."""

    message: str
    kind: ErrorKind = "unknown"
    status: int | None = None
    code: str | None = None
    param: str | None = None
    native: NativeExtras | None = None
    retry_after: float | None = None
    """How many seconds the provider asks to wait before the next try, if given."""

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


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
        places = dict.fromkeys(place for place, *_ in self._rows)
        self._places = [(place, [row[1:3] for row in self._rows if row[0] == place]) for place in places]

    def read(self, raw: Any) -> TokenUsage | None:
        """The counts of a usage object; None if it is not an object."""
        if type(raw) is not dict:
            return None
        found: dict[Counted, int] = dict.fromkeys(_COUNTS, 0)
        get = self._get
        for place, fields in self._places:
            counts = raw.get(place) if place else raw
            if type(counts) is dict:
                for field, name in fields:
                    if value := get(counts, field):
                        is_plain = type(value) is int and 0 <= value < _MAX_COUNT
                        found[name] += value if is_plain else as_count(value)
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
