"""`PartialJson`: the values of a JSON text that is still coming in.

Only new characters are scanned. What is open at the end is closed; a member without a value is left out. So the text is decoded
as it would be if it ended here: while it is short with every piece, then each time it has grown by a little of its length, so
that a text of twice the length takes about twice the time.
"""

from __future__ import annotations

from typing import Any

from antiphon.json_text import read_json

_CLOSING = {"{": "}", "[": "]"}
_SHORT = 4_000
_GROWTH = 64
"""How many times a longer text is decoded while it doubles, about."""
_DEEPEST = 1_000


class PartialJson:
    """Feed it pieces of a text; `value` is what they contain so far."""

    def __init__(self) -> None:
        self.value: Any = None
        self._pieces: list[str] = []
        self._length = 0
        self._decoded = 0
        """How long the text was when it was decoded last."""
        self._closers: list[str] = []
        self._is_string = False
        self._is_escaped = False
        self._is_over = False
        """Whether what follows changes nothing: the value is whole, or nested too deeply to be read."""
        self._cut = 0, ""

    def feed(self, piece: str) -> bool:
        """Add a piece; whether `value` changed."""
        if self._is_over:
            return False
        for index, letter in enumerate(piece, self._length):
            self._scan(letter, index)
        self._pieces.append(piece)
        self._length += len(piece)
        is_due = self._length <= _SHORT or (self._length - self._decoded) * _GROWTH >= self._decoded
        if not (is_due or self._is_over):
            return False
        self._decoded = self._length
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
            self._is_over = len(self._closers) > _DEEPEST
            self._cut = index + 1, self._closed
        elif letter == ",":
            self._cut = index, self._closed
        elif letter in "}]" and self._closers:
            self._closers.pop()
            self._is_over = not self._closers

    @property
    def _closed(self) -> str:
        return "".join(reversed(self._closers))

    def _decode(self) -> Any:
        text = "".join(self._pieces)
        self._pieces = [text]
        value = read_json((text[:-1] if self._is_escaped else text) + ('"' if self._is_string else "") + self._closed)
        if value is None and self._cut[1]:  # the last member has no value yet
            end, closed = self._cut
            value = read_json(text[:end] + closed)
        return value
