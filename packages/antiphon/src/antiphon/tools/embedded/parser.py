"""The grammar of calls that models write into their text: each dialect, over text that may still grow.

`parse_call` reads the calls at one place of a text. It returns them with where they end, or raises `NotACall` with how far it
came (that is plain text, and not read again), or `NeedsMore` if what is there may still become a call. A decision never depends
on where the text ends by chance: it waits for as many characters as it needs. So the result is the same however a text was cut.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Literal, NoReturn

from msgspec import Struct

from antiphon.tools.embedded.parsed_call import (
    ENVELOPE_KEYS,
    NAME_KEYS,
    KnownTools,
    NotACall,
    ParsedCall,
    read_broken,
    read_calls,
    tagged_arguments,
)


class Dialect(Struct, frozen=True):
    """One way to mark a call.

    `body`: `objects` is JSON, one object a call; `function` names the tool in a tag and holds an object or a tag for each
    parameter; `objects or functions` is either; `objects or name` may name the tool before its arguments; `steps` is a list
    of marked calls. A `is_token` opener is a control token of the model's template, which prose does not use.
    """

    name: str
    opener: str
    body: Literal["objects", "function", "objects or functions", "objects or name", "steps"]
    closer: str = ""
    is_token: bool = False


DIALECTS = (
    Dialect("tag", "<tool_call>", "objects or functions", "</tool_call>"),
    Dialect("function tag", "<function_call>", "objects or functions", "</function_call>"),
    Dialect("function", "<function=", "function"),
    Dialect("llama", "<|python_tag|>", "objects", is_token=True),
    Dialect("granite", "<|tool_call|>", "objects", is_token=True),
    Dialect("mistral", "[TOOL_CALLS]", "objects or name", is_token=True),
    Dialect("deepseek", "<｜tool▁calls▁begin｜>", "steps", "<｜tool▁calls▁end｜>", is_token=True),
)

_BLANK, _SAME_LINE = " \t\r\n", " \t"
_FENCE_LANGUAGES = frozenset({"", "json", "tool_call", "tool_calls"})
_STEP_BEGIN, _STEP_NAME_END, _STEP_END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
_DIALECT_OF = {dialect.opener: dialect for dialect in DIALECTS}
_OPENERS = tuple(_DIALECT_OF)
_TAG_OPENERS = tuple(dialect.opener for dialect in DIALECTS if dialect.body == "objects or functions")
_FUNCTION, _FENCE = "<function=", "```"
_OTHER_OPENERS = tuple(opener for opener in _OPENERS if opener != _FUNCTION)
"""What ends a body that cannot be read; functions may be part of it."""
_LONGEST_NAME = 200
_LONGEST_OBJECT = 1_000
"""How many characters of JSON are held back in the hope of a call."""
_DEEPEST = 4_000
"""How many characters of JSON that is nested too deep are plain text."""

_PLAIN_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*')
_CUT_WORD = re.compile(r"[-+\w]{0,9}\Z")
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str)  # only where it ends counts


class _TooDeep(NotACall):
    """JSON that is nested deeper than can be read."""


class NeedsMore(Exception):
    """The text may still become a call."""


def parse_call(
    text: str, start: int, offer: KnownTools, *, is_ended: bool, only_closed: bool = False
) -> tuple[list[ParsedCall], int]:
    """The calls at `start`, and where they end. With `only_closed`, calls are tags that are closed."""
    reader = _CallReader(text, start, offer, is_ended)
    try:
        if only_closed:
            calls = reader.closed_tag()
        elif text[start] == "{":
            calls = reader.unmarked()
        else:
            calls = reader.fenced() if text[start] in "`~" else reader.marked()
    except NotACall as refusal:
        refusal.position = max(reader.position, start + 1)
        raise
    return calls, reader.position


class _CallReader:
    """Reads forward from a place. What it could not use is left at `position`."""

    def __init__(self, text: str, position: int, offer: KnownTools, is_ended: bool) -> None:
        self.text = text
        self.position = position
        self.offer = offer
        self.is_ended = is_ended

    # What every grammar takes: characters, words, white space, JSON.

    def peek(self) -> str:
        """The next character, or nothing at the end."""
        if self.position >= len(self.text) and not self.is_ended:
            raise NeedsMore
        return self.text[self.position : self.position + 1]

    def ahead(self, *words: str) -> str:
        """The one of `words` that comes next, or nothing."""
        for word in words:
            if self.text.startswith(word, self.position):
                return word
        rest = self.text[self.position : self.position + 40]
        if not self.is_ended and any(len(rest) < len(word) and word.startswith(rest) for word in words):
            raise NeedsMore
        return ""

    def take(self, *words: str) -> str:
        """Take the one of `words` that must come next."""
        word = self.ahead(*words)
        if not word:
            raise NotACall
        self.position += len(word)
        return word

    def skip(self, word: str) -> bool:
        """Take a word if it comes next."""
        found = self.ahead(word)
        self.position += len(found)
        return bool(found)

    def blanks(self, kinds: str = _BLANK) -> None:
        """Take white space, as far as it goes."""
        text, stop = self.text, self.position
        while stop < len(text) and text[stop] in kinds:
            stop += 1
        self.position = stop
        self.peek()

    def until(self, *words: str, longest: int | None = None) -> str:
        """Take the text before the first of `words`, which is left. More than `longest` characters of it are `NotACall`."""
        start, limit = self.position, None if longest is None else self.position + longest
        found = _any_of(words).search(self.text, start)
        if found and (limit is None or found.start() <= limit):
            self.position = found.start()
            return self.text[start : self.position]
        if limit is not None and len(self.text) - max(map(len, words)) >= limit:
            self.position = limit
            raise NotACall
        return self.ends()

    def ends(self) -> NoReturn:
        """Wait for more text; at its end, all of it was read in vain."""
        if not self.is_ended:
            raise NeedsMore
        self.position = len(self.text)
        raise NotACall

    def json(self, brackets: str = "{", longest: int | None = None) -> str:
        """Take a whole JSON object (or array, if `brackets` allow it), and return it as it is written."""
        if self.peek() not in tuple(brackets):
            raise NotACall
        start, text = self.position, self.text
        try:
            end = _DECODER.raw_decode(text, start)[1]
        except json.JSONDecodeError as error:
            if _is_cut(text, error) and (longest is None or len(text) - start <= longest):
                self.ends()
            self.position = min(max(error.pos, start + 1), len(text) if longest is None else start + longest)
            raise NotACall from None
        except (RecursionError, ValueError):
            raise _TooDeep from None
        self.position = end
        return text[start:end]

    # The dialects.

    def marked(self) -> list[ParsedCall]:
        opener = self.take(*_OPENERS)
        dialect, is_closed = _DIALECT_OF[opener], False
        if dialect.body == "function":
            calls, is_closed = self.bare_function()
        elif dialect.body == "steps":
            calls = self.steps(dialect.closer)
        elif dialect.body == "objects or name" and self.is_name_next():
            calls = [self.name_and_arguments()]
        else:
            calls, is_closed = self.tag(dialect)
        if not is_closed:
            self.blanks(_SAME_LINE)  # an unclosed call ends its line, or another call follows
            if self.peek() not in ("", "\n", "\r") and not self.ahead(*_OPENERS):
                raise NotACall
            if any(call.tool_name not in self.offer for call in calls):
                raise NotACall
        return calls

    def closed_tag(self) -> list[ParsedCall]:
        calls, is_closed = self.tag(_DIALECT_OF[self.take(*_TAG_OPENERS)])
        if not is_closed:
            raise NotACall
        return calls

    def bare_function(self) -> tuple[list[ParsedCall], bool]:
        """A function without the tag around it. Models that forget to open that close it all the same."""
        call, is_closed = self.function()
        if is_closed:
            self.blanks(_SAME_LINE)
            if self.ahead("</tool_call>", "\n</tool_call>"):
                self.blanks()
                self.take("</tool_call>")
        return [call], is_closed

    def tag(self, dialect: Dialect) -> tuple[list[ParsedCall], bool]:
        """The text between opener and closer, and whether the closer was there.

        A body that begins as a call and cannot be read as one is an error that the model receives, if its tag is closed.
        """
        self.blanks()
        if dialect.body != "objects or functions":
            return self.objects(), bool(dialect.closer) and self.closer(dialect.closer)
        if not self.ahead("{", "[", _FENCE, _FUNCTION, *self.offer):
            raise NotACall
        start = self.position
        try:
            return self.tag_body(), self.closer(dialect.closer)
        except NotACall:
            self.until(dialect.closer, *_OTHER_OPENERS)
            return [read_broken(self.text[start : self.position], self.offer)], self.closer(dialect.closer)

    def tag_body(self) -> list[ParsedCall]:
        """Objects, which may be in a fenced block; or functions."""
        calls: list[ParsedCall] = []
        if self.skip(_FENCE):
            if self.until("\n", "{", "[", longest=_LONGEST_NAME).strip().lower() not in _FENCE_LANGUAGES:
                raise NotACall
            self.blanks()
            calls = self.objects()
            self.blanks()
            self.take(_FENCE)
            return calls
        if not self.ahead(_FUNCTION):
            return self.objects()
        while self.skip(_FUNCTION):
            calls.append(self.function()[0])
            self.blanks()
        return calls

    def closer(self, closer: str) -> bool:
        """Take the closer and return whether it was there; it may be missing at the end of the text or before another call."""
        self.blanks()
        if self.skip(closer):
            return True
        if self.peek() and not self.ahead(*_OPENERS):
            raise NotACall
        return False

    def objects(self) -> list[ParsedCall]:
        """JSON objects, one per call, one after the other or in an array."""
        calls: list[ParsedCall] = []
        while True:
            calls += read_calls(self.json("{["), self.offer, is_marked=True)
            self.blanks(_SAME_LINE)
            if self.skip(";"):
                self.blanks()
            elif self.ahead("\n{"):
                self.position += 1
            else:
                return calls

    def known(self, name: str) -> str:
        name = name.strip().strip("\"'")
        if name not in self.offer:
            raise NotACall
        return name

    def function(self) -> tuple[ParsedCall, bool]:
        """`NAME>`, an object or a tag for each parameter, `</function>`; and whether that was there."""
        name = self.known(self.until(">", longest=_LONGEST_NAME))
        self.take(">")
        self.blanks()
        if self.peek() == "{":
            return ParsedCall(name, self.json()), self.closer("</function>")
        values: dict[str, str] = {}
        while self.take("<parameter=", "</function>") == "<parameter=":
            key = self.until(">", longest=_LONGEST_NAME)
            self.take(">")
            values[key.strip()] = self.until("</parameter>")
            self.take("</parameter>")
            self.blanks()
        return ParsedCall(name, tagged_arguments(values, self.offer[name])), True

    def is_name_next(self) -> bool:
        self.blanks(_SAME_LINE)
        return self.peek() not in ("", "{", "[")

    def name_and_arguments(self) -> ParsedCall:
        """`NAME`, then its arguments after a mark or at once; an id may be between them."""
        name = self.known(self.until("[ARGS]", "[CALL_ID]", "{", longest=_LONGEST_NAME))
        if self.ahead("[CALL_ID]"):
            self.until("[ARGS]", longest=_LONGEST_NAME)
        self.skip("[ARGS]")
        self.blanks()
        return ParsedCall(name, self.json())

    def steps(self, closer: str) -> list[ParsedCall]:
        """Calls with a mark each: `NAME`, a mark, its arguments; or `function`, a mark, `NAME`, a fenced block of them."""
        calls: list[ParsedCall] = []
        self.blanks()
        while not calls or self.ahead(_STEP_BEGIN):
            self.take(_STEP_BEGIN)
            name = self.until(_STEP_NAME_END, longest=_LONGEST_NAME)
            self.take(_STEP_NAME_END)
            is_fenced = name.strip() == "function"
            if is_fenced:
                name = self.until("\n", longest=_LONGEST_NAME)
                self.blanks()
                self.take("```json")
            self.blanks()
            calls.append(ParsedCall(self.known(name), self.json()))
            self.blanks()
            if is_fenced:
                self.take(_FENCE)
                self.blanks()
            if self.peek() and not self.ahead(closer):
                self.take(_STEP_END)
            self.blanks()
        self.closer(closer)
        return calls

    def object(self) -> list[ParsedCall]:
        """An object that names a tool on offer. Usually it does so first, which is certain at once; a long one must."""
        start = self.position
        self.take("{")
        self.blanks()
        longest: int | None = _LONGEST_OBJECT
        key = self.string()
        if key in NAME_KEYS:
            self.blanks()
            self.take(":")
            self.blanks()
            self.known(self.string())
            longest = None
        elif key in ENVELOPE_KEYS:
            longest = None
        read, self.position = self.position, start
        try:
            return read_calls(self.json(longest=longest), self.offer, is_marked=False)
        except _TooDeep:
            if len(self.text) - start < _DEEPEST:
                self.ends()
            self.position = start + _DEEPEST
            raise
        except NotACall:
            self.position = max(self.position, read)
            raise

    def string(self) -> str:
        """Take a short JSON string, and return it without its quotes."""
        if self.peek() != '"':
            raise NotACall
        found = _PLAIN_STRING.match(self.text, self.position, self.position + _LONGEST_NAME + 2)
        end = found.end() if found else self.position
        if end >= self.position + _LONGEST_NAME + 1:
            self.position = end
            raise NotACall
        if end >= len(self.text) or self.text[end] == "\\":
            self.ends()
        if self.text[end] != '"':
            self.position = end
            raise NotACall  # a control character, which JSON does not allow in a string
        start, self.position = self.position, end + 1
        return self.text[start + 1 : end]

    def unmarked(self) -> list[ParsedCall]:
        """An object that is a call; or several, with semicolons between them."""
        calls = self.object()
        while self.ahead("; {", ";{"):
            self.take("; ", ";")
            calls += self.object()
        return calls

    def fenced(self) -> list[ParsedCall]:
        """A fenced block that is nothing but calls."""
        mark = self.text[self.position]
        fence = self.take(mark * 3)
        while self.peek() == mark:
            self.position += 1
            fence += mark
        if self.until("\n", longest=_LONGEST_NAME).strip().lower() not in _FENCE_LANGUAGES:
            raise NotACall
        calls: list[ParsedCall] = []
        self.blanks()
        while not calls or self.peek() == "{":
            calls += self.object()
            self.blanks()
        if self.peek():
            self.take(fence)
            self.blanks(_SAME_LINE)
            if self.peek() not in ("", "\n", "\r"):
                raise NotACall
        return calls


@lru_cache(maxsize=64)
def _any_of(words: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, words)))


def _is_cut(text: str, error: json.JSONDecodeError) -> bool:
    """Whether a JSON text is wrong only in that it ends too early."""
    if error.msg.startswith("Unterminated string") or error.pos >= len(text):
        return True
    if error.msg.startswith("Invalid \\"):
        return error.pos + 6 > len(text)
    rest = text[error.pos :]
    return not rest.strip() or (error.msg == "Expecting value" and _CUT_WORD.match(rest) is not None)
