"""What comes in and what goes out, in nobody's framework: a request that is all there, and an answer that may stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct, field


def header_text(text: str) -> str:
    """Text as a header can carry it."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(letter if " " <= letter <= "~" else "?" for letter in text)


class ClientRequest(Struct, frozen=True, kw_only=True):
    """A request of a client. Names of headers are in lower case. `door` is the listener it came through."""

    method: str
    path: str
    query: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    body: bytes = b""
    peer: str = ""
    door: str = "main"
    request_id: str = ""


class Answer(Struct, kw_only=True):
    """What a client gets: a status, headers, and a body that is there or comes piece by piece."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | AsyncIterator[bytes] = b""

    @classmethod
    def json(cls, value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
        """A value as JSON."""
        body = value if isinstance(value, bytes) else msgspec.json.encode(value)
        return cls(status=status, headers={"content-type": "application/json", **(headers or {})}, body=body)
