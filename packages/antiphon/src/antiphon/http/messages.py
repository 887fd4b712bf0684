"""A client's request and the response to it, independent of any HTTP library, and the one codec of headers.

The codec serves both ends: UTF-8, and bytes that are not UTF-8 are kept as they are. With `CODEC` and `ERRORS` a head is
written as `read_fields` read it. httptools delivers fields; a name or value that would end its line is refused, so that no
header can bring another.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from email.utils import formatdate
from functools import lru_cache
from math import inf
from typing import Any, Protocol

import msgspec
from msgspec import Struct, field

from antiphon.http.body import Hold, PausedBody

MAX_HEAD_BYTES = 64 * 1024
"""Of what comes in a head, and between its end and the first content, and between two pieces of content."""
VERSIONS = frozenset({"1.0", "1.1"})
BODILESS = frozenset({204, 304})
"""Statuses of responses without a body, beside those below 200."""
REPEATED_HOST = "\n"
"""Joins repeated Host fields: a value cannot contain it."""
CODEC, ERRORS = "utf-8", "surrogateescape"
_SEPARATORS = {"cookie": "; ", "host": REPEATED_HOST}
_field = "%s: %s\r\n".__mod__


def read_fields(fields: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """Names in lower case with their values. A field in several lines is one list; bytes that are not text are kept."""
    headers: dict[str, str] = {}
    for name, value in fields:
        headers[_name(name)] = value.decode(CODEC, ERRORS).rstrip(" \t")
    return headers if len(headers) == len(fields) else _joined(fields)


def _joined(fields: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """Fields with repeated names: libraries built on an SDK send their User-Agent beside its own."""
    headers: dict[str, str] = {}
    for one in fields:
        for name, text in read_fields([one]).items():
            headers[name] = f"{headers[name]}{_SEPARATORS.get(name, ', ')}{text}" if name in headers else text
    return headers


@lru_cache(maxsize=512)
def _name(name: bytes) -> str:
    return name.lower().decode()


def write_fields(headers: Mapping[str, str]) -> str:
    """The lines of headers. Raises `ValueError` if one contains what ends a line."""
    fields, count = "".join(map(_field, headers.items())), len(headers)
    if fields.count("\n") != count or fields.count("\r") != count or "\0" in fields:
        raise ValueError("a header contains a line break")
    return fields


@lru_cache(maxsize=2)
def http_date(second: int) -> str:
    """A time as the `date` header has it."""
    return formatdate(second, usegmt=True)


def header_text(text: str) -> str:
    """Text as a header can carry it."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(letter if " " <= letter <= "~" else "?" for letter in text)


class ClientRequest(Struct, kw_only=True):
    """A request of a client. Names of headers are in lower case. `listener` is the name of the one it arrived on.

    It is admitted on its head, before there is a `body`; the body is dropped again as soon as nothing needs it any more.
    """

    method: str
    path: str
    query: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    body: bytes = b""
    stream: PausedBody | None = None
    """The body of a request that is passed on while it arrives; `body` is then empty."""
    hold: Hold | None = None
    """What counts its body, which is given back with it; None if it did not arrive over a connection."""
    raw_query: str = ""
    """The query as it came."""
    peer: str = ""
    listener: str = "main"
    request_id: str = ""
    deadline: float = inf
    """When it is cancelled because it takes too long, on the monotonic clock."""
    session: Any = None
    """What its connection keeps for all of its requests, if that is a WebSocket."""
    begin_early: Callable[[Response], ResponseStream | None] | None = None
    """Sends the head of a stream before the handler has its response, which then brings only the body; None if it cannot."""


class ResponseStream(Protocol):
    """A client that receives a response piece by piece, as seen by the source of the pieces."""

    def write(self, data: bytes) -> None:
        """Send more of the body."""

    def end_stream(self) -> None:
        """The body is complete."""

    def abort_stream(self) -> None:
        """The body cannot be completed: close the connection, so that the client sees a truncated response."""


class StreamSource(Protocol):
    """A body that is pushed by callbacks, without a task: for example bytes that arrive from an upstream."""

    def start(self, client: ResponseStream) -> None:
        """The head of the response is on its way; pieces may be written, at once or later."""

    def pause(self) -> None:
        """The client reads slowly; stop reading what you write to it."""

    def resume(self) -> None:
        """The client has caught up."""

    def cancel(self, error: Exception | None = None) -> None:
        """The client left, the request took too long, or `error` kept the response from being sent. Nothing can be written any
        more."""


class Response(Struct, kw_only=True):
    """What a client gets: a status, headers, and a body that is complete, iterated over, or pushed by a `StreamSource`."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | AsyncIterator[bytes] | StreamSource = b""
    error: Any = None
    """Why the request failed or was refused, for the application's record of it."""

    @classmethod
    def json(cls, value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
        """A value as JSON."""
        body = value if isinstance(value, bytes) else msgspec.json.encode(value)
        return cls(status=status, headers={"content-type": "application/json", **(headers or {})}, body=body)
