"""Incremental parser for calls written into text: the input buffer, the grammar of each dialect.

A parser is a generator that yields when it needs more text, so the grammar reads as if the whole text were there. Two rules make
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

from antiphon.tools.embedded.parsed_call import (
    DIALECTS,
    ENVELOPE_KEYS,
    FENCE_LANGUAGES,
    NAME_KEYS,
    STEP_BEGIN,
    STEP_END,
    STEP_NAME_END,
    Dialect,
    KnownTools,
    NotACall,
    ParsedCall,
    read_broken,
    read_calls,
    tagged_arguments,
)

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
_KEY, _FIRST_KEY, _COLON, _VALUE, _FIRST_ITEM, NEXT = range(6)


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
            state = _COLON
        elif state == _COLON and front == ":":
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


_DIALECT_OF = {dialect.opener: dialect for dialect in DIALECTS}
_OPENERS = tuple(_DIALECT_OF)
_TAG_OPENERS = tuple(dialect.opener for dialect in DIALECTS if dialect.body == "objects or functions")
_FUNCTION = "<function="
_OTHER_OPENERS = tuple(opener for opener in _OPENERS if opener != _FUNCTION)
"""What ends a body that cannot be read; functions may be part of it."""
_FENCE = "```"
_LONGEST_NAME = 200
_LONGEST_OBJECT = 400
"""How many tokens of JSON are held back in the hope of a call."""


def parse_call(source: InputBuffer, offer: KnownTools, *, only_closed: bool = False) -> Parser[list[ParsedCall]]:
    """The calls at the front of `source`; `NotACall` if it is text. With `only_closed`, calls are tags that are closed."""
    front = source.front
    if not offer:
        raise NotACall
    if only_closed:
        return (yield from _closed_tag(source, offer))
    if front == "{":
        return (yield from _unmarked(source, offer))
    if front in "`~":
        return (yield from _fenced(source, offer))
    return (yield from _marked(source, offer))


def _marked(source: InputBuffer, offer: KnownTools) -> Parser[list[ParsedCall]]:
    opener = yield from ahead(source, _OPENERS)
    if not opener:
        raise NotACall
    dialect = _DIALECT_OF[opener]
    source.take(len(opener))
    if dialect.body == "function":
        calls, is_closed = yield from _bare_function(source, offer)
    elif dialect.body == "steps":
        calls, is_closed = (yield from _steps(source, offer, dialect.closer)), False
    elif dialect.body == "objects or name" and (yield from _is_name_next(source)):
        calls, is_closed = [(yield from _name_and_arguments(source, offer))], False
    else:
        calls, is_closed = yield from _tag(source, offer, dialect)
    if not is_closed:
        yield from _end_of_call(source)
        if any(call.tool_name not in offer for call in calls):
            raise NotACall
    return calls


def _closed_tag(source: InputBuffer, offer: KnownTools) -> Parser[list[ParsedCall]]:
    opener = yield from ahead(source, _TAG_OPENERS)
    if not opener:
        raise NotACall
    source.take(len(opener))
    calls, is_closed = yield from _tag(source, offer, _DIALECT_OF[opener])
    if not is_closed:
        raise NotACall
    return calls


def _bare_function(source: InputBuffer, offer: KnownTools) -> Parser[tuple[list[ParsedCall], bool]]:
    """A function without the tag around it. Models that forget to open that close it all the same."""
    call, is_closed = yield from _function(source, offer)
    if is_closed:
        yield from blanks(source, SAME_LINE_BLANK)
        if (yield from ahead(source, ("</tool_call>", "\n</tool_call>"))):
            yield from blanks(source)
            yield from one_of(source, "</tool_call>")
    return [call], is_closed


def _end_of_call(source: InputBuffer) -> Parser[None]:
    """An unclosed call ends its line, or another call follows."""
    yield from blanks(source, SAME_LINE_BLANK)
    if (yield from peek(source)) not in ("", "\n", "\r") and not (yield from ahead(source, _OPENERS)):
        raise NotACall


def _tag(source: InputBuffer, offer: KnownTools, dialect: Dialect) -> Parser[tuple[list[ParsedCall], bool]]:
    """The text between opener and closer, and whether the closer was there.

    A body that begins as a call and cannot be read as one is an error that the model receives, if its tag is closed.
    """
    yield from blanks(source)
    if dialect.body != "objects or functions":
        calls = yield from _objects(source, offer)
        return calls, bool(dialect.closer) and (yield from _closer(source, dialect.closer))
    if not (yield from ahead(source, ("{", "[", _FENCE, _FUNCTION, *offer))):
        raise NotACall
    mark = source.mark
    try:
        calls = yield from _tag_body(source, offer)
        return calls, (yield from _closer(source, dialect.closer))
    except NotACall:
        # What was used so far is not read again.
        yield from until(source, dialect.closer, *_OTHER_OPENERS)
        calls = [read_broken(source.since(mark), offer)]
        return calls, (yield from _closer(source, dialect.closer))


def _tag_body(source: InputBuffer, offer: KnownTools) -> Parser[list[ParsedCall]]:
    """Objects, which may be in a fenced block; or functions."""
    if (yield from ahead(source, (_FENCE,))):
        yield from one_of(source, _FENCE)
        language = yield from until(source, "\n", "{", "[", longest=_LONGEST_NAME)
        if language.strip().lower() not in FENCE_LANGUAGES:
            raise NotACall
        yield from blanks(source)
        calls = yield from _objects(source, offer)
        yield from blanks(source)
        yield from one_of(source, _FENCE)
        return calls
    if not (yield from ahead(source, (_FUNCTION,))):
        return (yield from _objects(source, offer))
    calls = []
    while (yield from ahead(source, (_FUNCTION,))):
        yield from one_of(source, _FUNCTION)
        calls.append((yield from _function(source, offer))[0])
        yield from blanks(source)
    return calls


def _closer(source: InputBuffer, closer: str) -> Parser[bool]:
    """Take the closer and return whether it was there; it may be missing at the end of the text or before another call."""
    yield from blanks(source)
    if (yield from ahead(source, (closer,))):
        source.take(len(closer))
        return True
    if (yield from peek(source)) and not (yield from ahead(source, _OPENERS)):
        raise NotACall
    return False


def _objects(source: InputBuffer, offer: KnownTools) -> Parser[list[ParsedCall]]:
    """JSON objects, one per call, one after the other or in an array."""
    calls: list[ParsedCall] = []
    while True:
        calls += read_calls((yield from json_text(source, "{[")), offer, is_marked=True)
        yield from blanks(source, SAME_LINE_BLANK)
        if (yield from ahead(source, (";",))):
            source.take(1)
            yield from blanks(source)
        elif (yield from ahead(source, ("\n{",))):
            source.take(1)
        else:
            return calls


def _known(name: str, offer: KnownTools) -> str:
    name = name.strip().strip("\"'")
    if name not in offer:
        raise NotACall
    return name


def _function(source: InputBuffer, offer: KnownTools) -> Parser[tuple[ParsedCall, bool]]:
    """`NAME>`, an object or a tag for each parameter, `</function>`; and whether that was there."""
    name = _known((yield from until(source, ">", longest=_LONGEST_NAME)), offer)
    yield from one_of(source, ">")
    yield from blanks(source)
    if (yield from peek(source)) == "{":
        arguments = yield from json_text(source)
        return ParsedCall(name, arguments), (yield from _closer(source, "</function>"))
    values: dict[str, str] = {}
    while (yield from one_of(source, "<parameter=", "</function>")) == "<parameter=":
        key = yield from until(source, ">", longest=_LONGEST_NAME)
        yield from one_of(source, ">")
        values[key.strip()] = yield from until(source, "</parameter>")
        yield from one_of(source, "</parameter>")
        yield from blanks(source)
    return ParsedCall(name, tagged_arguments(values, offer[name])), True


def _is_name_next(source: InputBuffer) -> Parser[bool]:
    yield from blanks(source, SAME_LINE_BLANK)
    return (yield from peek(source)) not in ("", "{", "[")


def _name_and_arguments(source: InputBuffer, offer: KnownTools) -> Parser[ParsedCall]:
    """`NAME`, then its arguments after a mark or at once; an id may be between them."""
    name = _known((yield from until(source, "[ARGS]", "[CALL_ID]", "{", longest=_LONGEST_NAME)), offer)
    if (yield from ahead(source, ("[CALL_ID]",))):
        yield from until(source, "[ARGS]", longest=_LONGEST_NAME)
    if (yield from ahead(source, ("[ARGS]",))):
        yield from one_of(source, "[ARGS]")
    yield from blanks(source)
    return ParsedCall(name, (yield from json_text(source)))


def _steps(source: InputBuffer, offer: KnownTools, closer: str) -> Parser[list[ParsedCall]]:
    """Calls with a mark each: `NAME`, a mark, its arguments; or the word `function`, a mark, `NAME`, a fenced block of them."""
    calls: list[ParsedCall] = []
    yield from blanks(source)
    while not calls or (yield from ahead(source, (STEP_BEGIN,))):
        yield from one_of(source, STEP_BEGIN)
        name = yield from until(source, STEP_NAME_END, longest=_LONGEST_NAME)
        yield from one_of(source, STEP_NAME_END)
        is_fenced = name.strip() == "function"
        if is_fenced:
            name = yield from until(source, "\n", longest=_LONGEST_NAME)
            yield from blanks(source)
            yield from one_of(source, "```json")
        yield from blanks(source)
        calls.append(ParsedCall(_known(name, offer), (yield from json_text(source))))
        yield from blanks(source)
        if is_fenced:
            yield from one_of(source, "```")
            yield from blanks(source)
        yield from _step_end(source, closer)
        yield from blanks(source)
    yield from _closer(source, closer)
    return calls


def _step_end(source: InputBuffer, closer: str) -> Parser[None]:
    if (yield from peek(source)) and not (yield from ahead(source, (closer,))):
        yield from one_of(source, STEP_END)


def _object(source: InputBuffer, offer: KnownTools) -> Parser[list[ParsedCall]]:
    """An object that names a tool on offer. Usually it does so first, which is certain at once; a long one must."""
    mark = source.mark
    yield from one_of(source, "{")
    yield from blanks(source)
    key = (yield from string(source, _LONGEST_NAME))[1:-1]
    if key in NAME_KEYS:
        yield from blanks(source)
        yield from one_of(source, ":")
        yield from blanks(source)
        _known((yield from string(source, _LONGEST_NAME)), offer)
        yield from json_rest(source, ["}"], NEXT)
    else:
        yield from json_rest(source, ["}"], _COLON, None if key in ENVELOPE_KEYS else _LONGEST_OBJECT)
    return read_calls(source.since(mark), offer, is_marked=False)


def _unmarked(source: InputBuffer, offer: KnownTools) -> Parser[list[ParsedCall]]:
    """An object that is a call; or several, with semicolons between them."""
    calls = yield from _object(source, offer)
    while (yield from ahead(source, ("; {", ";{"))):
        yield from one_of(source, "; ", ";")
        calls += yield from _object(source, offer)
    return calls


def _fenced(source: InputBuffer, offer: KnownTools) -> Parser[list[ParsedCall]]:
    """A fenced block that is nothing but calls."""
    mark = source.front
    fence = mark * 3
    yield from one_of(source, fence)
    while (yield from peek(source)) == mark:
        source.take(1)
        fence += mark
    language = yield from until(source, "\n", longest=_LONGEST_NAME)
    if language.strip().lower() not in FENCE_LANGUAGES:
        raise NotACall
    calls: list[ParsedCall] = []
    yield from blanks(source)
    while not calls or (yield from peek(source)) == "{":
        calls += yield from _object(source, offer)
        yield from blanks(source)
    if (yield from peek(source)):
        yield from one_of(source, fence)
        yield from blanks(source, SAME_LINE_BLANK)
        if (yield from peek(source)) not in ("", "\n", "\r"):
            raise NotACall
    return calls
