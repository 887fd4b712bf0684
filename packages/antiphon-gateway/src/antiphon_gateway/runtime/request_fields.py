"""What the small endpoints read of a request: a JSON object, a typed JSON body, a number in the query.

Each raises a `WireError` that names the field and what was expected; the client gets it as a 400.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from antiphon.errors import WireError

T = TypeVar("T")

_MAX_DIGITS = 18
"""A longer number does not fit into a database."""


def read_object(body: bytes) -> dict[str, Any]:
    """A body that is a JSON object. Raises `WireError`."""
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"the body is not a JSON object: {error}") from error


def read_body_as(body: bytes, kind: type[T], *, advice: str = "") -> T:
    """A JSON body with the fields of `kind`; `advice` says in an error what to send. Raises `WireError`."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"{error}; {advice}" if advice else str(error)) from error


def query_number(
    query: Mapping[str, str], name: str, default: int, *, least: int = 1, most: int | None = None, expected: str = ""
) -> int:
    """A whole number in the query; `default` without it, `expected` says in an error what it is. Raises `WireError`."""
    given = query.get(name)
    if not given:
        return default
    is_number = given.isascii() and given.isdigit() and len(given) <= _MAX_DIGITS
    if not is_number or int(given) < least or (most is not None and int(given) > most):
        expected = expected or f"a number from {least}" + ("" if most is None else f" to {most}")
        raise WireError(f"{name}: expected {expected}, got {given[:20]!r}")
    return int(given)
