"""JSON that others wrote. Reading it fails in three ways: on what is not JSON, on bytes or characters that are not Unicode, and
on values nested deeper than can be read. `NOT_JSON` are all of them."""

from __future__ import annotations

from typing import Any

import msgspec

NOT_JSON = (msgspec.DecodeError, UnicodeError, RecursionError)


def read_json(text: str | bytes, otherwise: Any = None) -> Any:
    """The value of a JSON text; `otherwise` if it is none."""
    try:
        return msgspec.json.decode(text)
    except NOT_JSON:
        return otherwise
