"""What was found out about a JSON Schema, remembered by its bytes.

Clients send the same tools with every request, and looking through a schema costs far more than encoding it. What is remembered
is never handed out to be changed: the answers are values. The memory is bounded, in the number of schemas and in their size.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Generic, TypeVar

import msgspec

Answer = TypeVar("Answer")

_MOST_SCHEMAS = 512
_LONGEST = 32_768
_encode = msgspec.json.Encoder().encode


class Remembered(Generic[Answer]):
    """A question about a schema that is looked into once; asked again, the answer is known."""

    def __init__(self, look: Callable[[Any], Answer]) -> None:
        self._look = look
        self._known = lru_cache(_MOST_SCHEMAS)(lambda data: look(msgspec.json.decode(data)))

    def __call__(self, schema: Any) -> Answer:
        try:
            data = _encode(schema)
        except (TypeError, ValueError, RecursionError):  # it is no JSON: built by hand, or too deep
            return self._look(schema)
        return self._known(data) if len(data) <= _LONGEST else self._look(schema)
