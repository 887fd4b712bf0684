"""The input of an incremental parser: `InputBuffer`, and what every grammar takes from it: words, white space, strings, JSON.

A parser is a generator that yields when it needs more text, so a grammar reads as if the whole text were there. Two rules make
the result independent of how the text was cut, and the work linear:

- A decision waits for as many characters as it needs and never depends on where a chunk ended.
- Consumed text is not read again. A parser that raises `NotACall` leaves the word it could not use at the front; what it had
  consumed becomes plain text.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from functools import lru_cache
from typing import TypeAlias, TypeVar

from antiphon.tools.embedded.parsed_call import NotACall

T = TypeVar("T")

Parser: TypeAlias = Generator[None, None, T]
"""Something being read: it yields when it needs more text, and returns what it read."""

BLANK = " \t\r\n"
SAME_LINE_BLANK = " \t"

_SCALAR = re.compile(r"[-+.\w]*")
_PLAIN_STRING = re.compile(r'[^"\\\x00-\x1f]*')


class InputBuffer:
    """Text with a front that moves. `taken` is what a reader has used of it since the last `commit`."""

    __slots__ = ("_taken", "is_ended", "position", "text")

    def __init__(self) -> None:
        self.text = ""
        self.position = 0
        self.is_ended = False
        self._taken: list[str] = []

    def add(self, piece: str) -> None:
        self.text = self.text[self.position :] + piece
        self.position = 0

    @property
    def front(self) -> str:
        """The next character, or nothing where the text that is there ends."""
        return self.text[self.position : self.position + 1]

    def take(self, length: int) -> None:
        if length:
            self._taken.append(self.text[self.position : self.position + length])
            self.position += length

    @property
    def mark(self) -> int:
        """A place to which `since` can look back."""
        return len(self._taken)

    def since(self, mark: int) -> str:
        return "".join(self._taken[mark:])

    def commit(self) -> str:
        """All text taken so far; it counts as consumed from here on."""
        text = self.since(0)
        self._taken.clear()
        return text

    def rest(self) -> str:
        """The text that is available and not taken; this call consumes it."""
        text = self.text[self.position :]
        self.text, self.position = "", 0
        return text


def more(source: InputBuffer) -> Parser[None]:
    """Wait for more text; that there is none is `NotACall`."""
    if source.is_ended:
        raise NotACall
    yield


def peek(source: InputBuffer) -> Parser[str]:
    """The next character, or nothing at the end."""
    while not source.front and not source.is_ended:
        yield
    return source.front


def ahead(source: InputBuffer, words: Sequence[str]) -> Parser[str]:
    """The one of `words` that comes next, not consumed, or nothing. It waits only while the text may still become one of them."""
    longest = max(map(len, words))
    while True:
        here = source.text[source.position : source.position + longest]
        for word in words:
            if here.startswith(word):
                return word
        if source.is_ended or not any(word.startswith(here) for word in words):
            return ""
        yield


def one_of(source: InputBuffer, *words: str) -> Parser[str]:
    """Take the one of `words` that must come next."""
    word = yield from ahead(source, words)
    if not word:
        raise NotACall
    source.take(len(word))
    return word


def blanks(source: InputBuffer, kinds: str = BLANK) -> Parser[None]:
    """Take white space, as far as it goes."""
    while True:
        stop, text = source.position, source.text
        while stop < len(text) and text[stop] in kinds:
            stop += 1
        source.take(stop - source.position)
        if stop < len(text) or source.is_ended:
            return
        yield


@lru_cache(maxsize=64)
def _any_of(words: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, words)))


def until(source: InputBuffer, *words: str, longest: int | None = None) -> Parser[str]:
    """Take the text before the first of `words`, which is left. More than `longest` characters of it are `NotACall`."""
    search = _any_of(words).search
    margin = max(map(len, words)) - 1  # a word may have begun there
    mark, length = source.mark, 0
    while True:
        found = search(source.text, source.position)
        stop = found.start() if found else max(source.position, len(source.text) - margin)
        length += stop - source.position
        source.take(stop - source.position)
        if longest is not None and length > longest:
            raise NotACall
        if found:
            return source.since(mark)
        yield from more(source)


def string(source: InputBuffer, longest: int | None = None) -> Parser[str]:
    """Take a JSON string, and return it as it is written, with its quotes."""
    mark, length = source.mark, 0
    yield from one_of(source, '"')
    while True:
        found = _PLAIN_STRING.match(source.text, source.position)
        stop = found.end() if found else source.position
        length += stop - source.position
        source.take(stop - source.position)
        if longest is not None and length > longest:
            raise NotACall
        if not source.front:
            yield from more(source)
        elif source.front == '"':
            source.take(1)
            return source.since(mark)
        elif source.front != "\\":
            raise NotACall  # a control character, which JSON does not allow in a string
        else:
            while len(source.text) - source.position < 2:
                yield from more(source)
            source.take(2)


def _scalar(source: InputBuffer) -> Parser[None]:
    while True:
        found = _SCALAR.match(source.text, source.position)
        source.take(found.end() - source.position if found else 0)
        if source.front or source.is_ended:
            return
        yield


# What may follow in a JSON text.
_KEY, _FIRST_KEY, COLON, _VALUE, _FIRST_ITEM, NEXT = range(6)


def json_rest(source: InputBuffer, closing: list[str], state: int, longest: int | None = None) -> Parser[None]:
    """Take the rest of a JSON text in which the brackets in `closing` are open. Numbers and words are not checked: decoding
    does that. More than `longest` tokens are `NotACall`."""
    mark = source.mark
    while closing:
        if longest is not None and source.mark - mark > longest:
            raise NotACall
        yield from blanks(source)
        front = source.front
        if state == NEXT and front == ",":
            source.take(1)
            state = _KEY if closing[-1] == "}" else _VALUE
        elif front == closing[-1] and state in (NEXT, _FIRST_KEY, _FIRST_ITEM):
            source.take(1)
            closing.pop()
            state = NEXT
        elif front == '"' and state in (_KEY, _FIRST_KEY):
            yield from string(source)
            state = COLON
        elif state == COLON and front == ":":
            source.take(1)
            state = _VALUE
        elif state in (_VALUE, _FIRST_ITEM):
            state = yield from _value(source, closing)
        else:
            raise NotACall


def _value(source: InputBuffer, closing: list[str]) -> Parser[int]:
    """Take a value, or the bracket it opens with; return the state after that."""
    front = source.front
    if front == "{":
        source.take(1)
        closing.append("}")
        return _FIRST_KEY
    if front == "[":
        source.take(1)
        closing.append("]")
        return _FIRST_ITEM
    if front == '"':
        yield from string(source)
    elif front and _SCALAR.fullmatch(front):
        yield from _scalar(source)
    else:
        raise NotACall
    return NEXT


def json_text(source: InputBuffer, brackets: str = "{") -> Parser[str]:
    """Take a whole JSON object (or array, if `brackets` allow it), and return it as it is written."""
    front = yield from peek(source)
    if not front or front not in brackets:
        raise NotACall
    mark = source.mark
    closing: list[str] = []
    state = yield from _value(source, closing)
    yield from json_rest(source, closing, state)
    return source.since(mark)
