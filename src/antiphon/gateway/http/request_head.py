"""`RequestHead`: the head of a simple request, matched by one strict pattern.

A client that keeps its connection sends the same head each time except for the length of the body. So the last head of a
connection is kept as the bytes before and after that length; a head with the same bytes is not parsed again. It contains the
client's key, which is checked for every request.

What the pattern does not match is not judged here: `read_head` returns None and the general server reads it.
"""

from __future__ import annotations

import re

from msgspec import Struct, structs

JSON_CONTENT_TYPES = frozenset({"application/json", "application/octet-stream", ""})
"""Content types that are read as JSON. The official clients send the first; any page may send text/plain without a preflight."""

_MAX_HEAD_BYTES = 16 * 1024
_MAX_LENGTH_DIGITS = 12
_MAX_FIELDS = 100
_head = re.compile(
    rb"(GET|POST) "
    rb"((?:/[A-Za-z0-9_~:@-][A-Za-z0-9._~:@-]*)+)(?:\?([A-Za-z0-9._~=&-]+))? HTTP/1\.1\r\n"
    rb"((?:[A-Za-z0-9_-]+:[ -~]*\r\n)+)\r\n"
).match
_length = re.compile(rb"\r\ncontent-length: *([0-9]+)\r\n", re.IGNORECASE).search
_NOT_PLAIN = frozenset({"transfer-encoding", "content-encoding", "expect", "upgrade", "trailer"})


class RequestHead(Struct, frozen=True, kw_only=True):
    """A head of `size` bytes, before a body of `length`. Names of headers are in lower case."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    length: int
    size: int
    before: bytes = b""
    digits: bytes = b""
    after: bytes = b""
    """The bytes before the length, those of the length, and those after it; None without a length."""

    def with_length_of(self, data: bytes) -> RequestHead | None:
        """The head at the start of `data`, if it is this one except for the length."""
        start = len(self.before)
        if not start or not data.startswith(self.before):
            return None
        end = data.find(b"\r", start, start + _MAX_LENGTH_DIGITS + 1)
        digits = data[start:end]
        if not digits.isdigit() or not data.startswith(self.after, end):
            return None
        if digits == self.digits:
            return self
        return structs.replace(
            self,
            headers={**self.headers, "content-length": digits.decode()},
            length=int(digits),
            size=self.size + len(digits) - len(self.digits),
            digits=digits,
        )


def is_json_type(content_type: str) -> bool:
    """Whether a body of that content type is read as JSON."""
    if content_type == "application/json":
        return True
    kind = content_type.partition(";")[0].strip().lower()
    return kind in JSON_CONTENT_TYPES or kind.endswith("+json")


def read_head(data: bytes) -> RequestHead | None:
    """The head at the start of `data`; None if it is not simple, or incomplete."""
    match = _head(data)
    if match is None or match.end() > _MAX_HEAD_BYTES:
        return None
    lines = match[4].decode("ascii").split("\r\n")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip(" ")
    del headers[""]  # after the last line
    if len(headers) != len(lines) - 1 or len(headers) > _MAX_FIELDS or not _NOT_PLAIN.isdisjoint(headers):
        return None
    if headers.get("connection", "keep-alive").lower() != "keep-alive" or "host" not in headers:
        return None
    query = _query(match[3]) if match[3] is not None else {}
    if query is None:
        return None
    method, length, end = match[1].decode(), headers.get("content-length"), match.end()
    if method == "GET":
        if length is not None:
            return None
        return RequestHead(method=method, path=match[2].decode(), query=query, headers=headers, length=0, size=end)
    if length is None or not length.isdecimal() or len(length) > _MAX_LENGTH_DIGITS:
        return None
    if not is_json_type(headers.get("content-type", "")):
        return None
    length_field = _length(data, 0, end)
    return RequestHead(
        method=method,
        path=match[2].decode(),
        query=query,
        headers=headers,
        length=int(length),
        size=end,
        before=data[: length_field.start(1)] if length_field is not None else b"",
        digits=length_field[1] if length_field is not None else b"",
        after=data[length_field.end(1) : end] if length_field is not None else b"",
    )


def _query(text: bytes) -> dict[str, str] | None:
    """The fields of a query without escapes; None if one is repeated."""
    pairs = [pair.partition("=") for pair in text.decode().split("&") if pair]
    query = {name: value for name, _, value in pairs}
    return query if len(query) == len(pairs) else None
