"""`read_fields`: the header fields that httptools delivers, as text. Requests of clients and responses of upstreams use it."""

from __future__ import annotations

from collections.abc import Iterable

REPEATED_HOST = "\n"
"""Joins repeated Host fields: a value cannot contain it."""
_SEPARATORS = {"cookie": "; ", "host": REPEATED_HOST}


def read_fields(fields: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Names in lower case with their values. A field in several lines is one list; bytes that are not text are kept."""
    headers: dict[str, str] = {}
    for name, value in fields:
        key = name.lower().decode()
        text = value.decode("utf-8", "surrogateescape").rstrip(" \t")
        if key in headers:  # libraries built on an SDK send their User-Agent beside its own
            text = f"{headers[key]}{_SEPARATORS.get(key, ', ')}{text}"
        headers[key] = text
    return headers
