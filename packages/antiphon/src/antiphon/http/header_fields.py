"""Header fields as text and as bytes, in one codec: requests and responses, of clients and of upstreams.

UTF-8, and bytes that are not UTF-8 are kept as they are: with `CODEC` and `ERRORS` a head is written as `read_fields` read it.
httptools delivers fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

REPEATED_HOST = "\n"
"""Joins repeated Host fields: a value cannot contain it."""
CODEC, ERRORS = "utf-8", "surrogateescape"
_SEPARATORS = {"cookie": "; ", "host": REPEATED_HOST}


def read_fields(fields: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """Names in lower case with their values. A field in several lines is one list; bytes that are not text are kept."""
    headers = {_name(name): value.decode(CODEC, ERRORS).rstrip(" \t") for name, value in fields}
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
