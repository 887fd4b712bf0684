"""`ModelOutput`: what a model answered, in a neutral format; and `ProviderError`: why it did not."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct

from antiphon.parts import NativeExtras, OutputPart, Source, TokenUsage

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
