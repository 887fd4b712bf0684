"""JSON that others wrote. Reading it fails in three ways: on what is not JSON, on bytes or characters that are not Unicode, and
on values nested deeper than can be read. `NOT_JSON` are all of them."""

from __future__ import annotations

import math
from typing import Any

import msgspec

NOT_JSON = (msgspec.DecodeError, UnicodeError, RecursionError)


def _number(text: str) -> float | msgspec.Raw:
    value = float(text)
    return value if math.isfinite(value) else msgspec.Raw(text.encode())


_decode = msgspec.json.Decoder().decode
_decode_any_number = msgspec.json.Decoder(float_hook=_number).decode


def decode_json(data: bytes | bytearray | memoryview | str) -> Any:
    """The value of a JSON text. A number that no float holds, which a model may write, stays as it is written (`msgspec.Raw`)."""
    try:
        return _decode(data)
    except msgspec.ValidationError:  # of plain values, only such a number is one
        return _decode_any_number(data)


def read_json(text: str | bytes, otherwise: Any = None) -> Any:
    """The value of a JSON text; `otherwise` if it is none."""
    try:
        return _decode(text)
    except NOT_JSON:
        return otherwise
