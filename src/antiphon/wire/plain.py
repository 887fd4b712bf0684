"""Bodies of plain shapes, told while decoding.

Nearly all of a long conversation is text, calls and results that say nothing else. A decoder that knows these shapes checks them
as it goes and builds no dictionaries, so that reading what it gives is a matter of a few attributes. What it does not know it
refuses, whatever it is, and the body is then decoded and read in the general way: `PlainDecoder` is only ever quicker, and a
format's `plain` module gives the same request as its `request` module or None.

Everything beside the list of entries is kept as it came; its order is that of the alphabet.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import UNSET

Entry = TypeVar("Entry")


class PlainDecoder(Generic[Entry]):
    """Decodes bodies with a list of `entry` under `key`, and the named parameters beside it."""

    def __init__(self, key: str, entry: Any, parameters: Iterable[str]) -> None:
        self._key = key
        self._names = tuple(sorted({*parameters} - {key}))
        fields: list[tuple[str, Any, Any]] = [(name, Any, UNSET) for name in self._names]
        body = msgspec.defstruct("PlainBody", [(key, list[entry]), *fields], forbid_unknown_fields=True, gc=False)
        self._decode = msgspec.json.Decoder(body).decode

    def decode(self, data: bytes) -> tuple[list[Entry], dict[str, Any]] | None:
        """The entries, and the rest of the body; None if there is anything in it that is not plain."""
        try:
            body = self._decode(data)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return None
        rest = {name: value for name in self._names if (value := getattr(body, name)) is not UNSET}
        return getattr(body, self._key), rest
