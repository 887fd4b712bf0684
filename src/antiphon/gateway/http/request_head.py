"""`PlainHead`: the head of a request that says each thing once, told by one strict pattern; and the same head again.

A client that keeps its connection sends the same head with every request, but for the length of the body. So the last head of a
connection is kept there as the bytes before that length and those behind it: one that begins and goes on with the same bytes says
the same, and is not taken apart again. (It holds the client's key, which is checked anew for each request, and is forgotten with
the connection.)

What the pattern does not know is not judged here: `read_head` gives None, and somebody else has to read it.
"""

from __future__ import annotations

import re

from msgspec import Struct, structs

JSON_CONTENT_TYPES = frozenset({"application/json", "application/octet-stream", ""})
"""Content types of a body of JSON. The official clients send the first; text/plain is what any web page may send unasked."""

_LONGEST = 16 * 1024
_LONGEST_LENGTH = 12
_MOST_FIELDS = 100
_head = re.compile(
    rb"(GET|POST) "
    rb"((?:/[A-Za-z0-9_~:@-][A-Za-z0-9._~:@-]*)+)(?:\?([A-Za-z0-9._~=&-]+))? HTTP/1\.1\r\n"
    rb"((?:[A-Za-z0-9_-]+:[ -~]*\r\n)+)\r\n"
).match
_length = re.compile(rb"\r\ncontent-length: *([0-9]+)\r\n", re.IGNORECASE).search
_NOT_PLAIN = frozenset({"transfer-encoding", "content-encoding", "expect", "upgrade", "trailer"})


class PlainHead(Struct, frozen=True, kw_only=True):
    """A head of `size` bytes, before a body of `length`. Names of headers are in lower case."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    length: int
    size: int
    before: bytes = b""
    digits: bytes = b""
    behind: bytes = b""
    """The bytes up to the length, those of the length, and those behind it; none where it has no length."""

    def again(self, data: bytes) -> PlainHead | None:
        """The head that `data` begins with, if it is this one but for the length."""
        start = len(self.before)
        if not start or not data.startswith(self.before):
            return None
        end = data.find(b"\r", start, start + _LONGEST_LENGTH + 1)
        digits = data[start:end]
        if not digits.isdigit() or not data.startswith(self.behind, end):
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


def read_head(data: bytes) -> PlainHead | None:
    """The head that `data` begins with; None if it is not plain, or not whole."""
    found = _head(data)
    if found is None or found.end() > _LONGEST:
        return None
    lines = found[4].decode("ascii").split("\r\n")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip(" ")
    del headers[""]  # behind the last line
    if len(headers) != len(lines) - 1 or len(headers) > _MOST_FIELDS or not _NOT_PLAIN.isdisjoint(headers):
        return None
    if headers.get("connection", "keep-alive").lower() != "keep-alive" or "host" not in headers:
        return None
    query = _query(found[3]) if found[3] is not None else {}
    if query is None:
        return None
    method, length, end = found[1].decode(), headers.get("content-length"), found.end()
    if method == "GET":
        if length is not None:
            return None
        return PlainHead(method=method, path=found[2].decode(), query=query, headers=headers, length=0, size=end)
    if length is None or not length.isdecimal() or len(length) > _LONGEST_LENGTH:
        return None
    if not is_json_type(headers.get("content-type", "")):
        return None
    told = _length(data, 0, end)
    return PlainHead(
        method=method,
        path=found[2].decode(),
        query=query,
        headers=headers,
        length=int(length),
        size=end,
        before=data[: told.start(1)] if told is not None else b"",
        digits=told[1] if told is not None else b"",
        behind=data[told.end(1) : end] if told is not None else b"",
    )


def _query(text: bytes) -> dict[str, str] | None:
    """The fields of a query in which nothing is escaped; None if one stands there twice."""
    pairs = [pair.partition("=") for pair in text.decode().split("&") if pair]
    query = {name: value for name, _, value in pairs}
    return query if len(query) == len(pairs) else None
