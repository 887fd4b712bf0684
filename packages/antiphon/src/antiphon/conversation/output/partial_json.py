"""`PartialJson`: the values of a JSON text that is still coming in.

Only new characters are scanned. What is open at the end is closed; a member without a value is left out. So the text is decoded
as it would be if it ended here.
"""

from __future__ import annotations

from typing import Any

from antiphon.json_text import read_json

_CLOSING = {"{": "}", "[": "]"}


class PartialJson:
    """Feed it pieces of a text; `value` is what they contain so far."""

    def __init__(self) -> None:
        self.text = ""
        self.value: Any = None
        self._closers: list[str] = []
        self._is_string = False
        self._is_escaped = False
        self._cut = 0, ""

    def feed(self, piece: str) -> bool:
        """Add a piece; whether `value` changed."""
        start = len(self.text)
        self.text += piece
        for index in range(start, len(self.text)):
            self._scan(self.text[index], index)
        value = self._decode()
        if value is None or value == self.value:
            return False
        self.value = value
        return True

    def _scan(self, letter: str, index: int) -> None:
        if self._is_string:
            if self._is_escaped:
                self._is_escaped = False
            elif letter == "\\":
                self._is_escaped = True
            elif letter == '"':
                self._is_string = False
        elif letter == '"':
            self._is_string = True
        elif letter in _CLOSING:
            self._closers.append(_CLOSING[letter])
            self._cut = index + 1, self._closed
        elif letter == ",":
            self._cut = index, self._closed
        elif letter in "}]" and self._closers:
            self._closers.pop()

    @property
    def _closed(self) -> str:
        return "".join(reversed(self._closers))

    def _decode(self) -> Any:
        text = self.text[:-1] if self._is_escaped else self.text
        value = read_json(text + ('"' if self._is_string else "") + self._closed)
        if value is None and self._cut[1]:  # the last member has no value yet
            end, closed = self._cut
            value = read_json(self.text[:end] + closed)
        return value
