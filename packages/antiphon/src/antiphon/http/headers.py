"""Headers as text and as bytes, in one codec: requests and responses, of clients and of upstreams.

UTF-8, and bytes that are not UTF-8 are kept as they are: with `CODEC` and `ERRORS` a head is written as `read_fields` read it.
httptools delivers fields; a name or value that would end its line is refused, so that no header can bring another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from email.utils import formatdate
from functools import lru_cache

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
    for field in fields:
        for name, text in read_fields([field]).items():
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
