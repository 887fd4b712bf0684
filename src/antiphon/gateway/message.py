"""A client's request and the answer to it, in no framework's types: the request is complete, the answer may be a stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from math import inf
from typing import Any

import msgspec
from msgspec import Struct, field


def header_text(text: str) -> str:
    """Text as a header can carry it."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(letter if " " <= letter <= "~" else "?" for letter in text)


class ClientRequest(Struct, kw_only=True):
    """A request of a client. Names of headers are in lower case. `door` is the listener it came through.

    It is admitted on its head, before there is a `body`; the body is dropped again as soon as nothing needs it any more.
    """

    method: str
    path: str
    query: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    body: bytes = b""
    peer: str = ""
    door: str = "main"
    request_id: str = ""
    deadline: float = inf
    """When it is cancelled because it takes too long, on the monotonic clock."""


class Answer(Struct, kw_only=True):
    """What a client gets: a status, headers, and a body that is there or comes piece by piece.

    `on_client_wait` is called with the seconds that a stream had to wait for the client to read.
    """

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | AsyncIterator[bytes] = b""
    on_client_wait: Callable[[float], None] | None = None

    @classmethod
    def json(cls, value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
        """A value as JSON."""
        body = value if isinstance(value, bytes) else msgspec.json.encode(value)
        return cls(status=status, headers={"content-type": "application/json", **(headers or {})}, body=body)
