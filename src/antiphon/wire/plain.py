"""Bodies of plain shapes, told while decoding.

Nearly all of a long conversation is text, calls and results that say nothing else. A decoder that knows these shapes checks them
as it goes and builds no dictionaries, so that reading what it gives is a matter of a few attributes. What it does not know it
refuses, whatever it is, and the body is then decoded and read in the general way: `PlainReader` is only ever quicker, and a
format's `plain` module gives the same request as its `request` module or None.

Everything beside the list of entries is kept as it came; its order is that of the alphabet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import UNSET

from antiphon.wire.request import ModelRequest


class PlainReader:
    """Reads bodies with a list of `entry` under `key`, and the named parameters beside it.

    `request_of` makes the request of the entries and of the rest of the body; None if there is something odd in them.
    """

    def __init__(
        self,
        key: str,
        entry: Any,
        parameters: Iterable[str],
        request_of: Callable[[list[Any], dict[str, Any]], ModelRequest | None],
    ) -> None:
        self._key = key
        self._names = tuple(sorted({*parameters} - {key}))
        self._request_of = request_of
        fields: list[tuple[str, Any, Any]] = [(name, Any, UNSET) for name in self._names]
        body = msgspec.defstruct("PlainBody", [(key, list[entry]), *fields], forbid_unknown_fields=True, gc=False)
        self._decode = msgspec.json.Decoder(body).decode

    def read(self, data: bytes) -> ModelRequest | None:
        """A plain body in neutral terms; None if it is not plain, or holds what cannot be written again."""
        try:
            body = self._decode(data)
            rest = {name: value for name in self._names if (value := getattr(body, name)) is not UNSET}
            return self._request_of(getattr(body, self._key), rest)
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            return None
