"""The grammar of each dialect in which calls are written into text, over an `InputBuffer`."""

from __future__ import annotations

from antiphon.tools.embedded.input_buffer import (
    COLON,
    NEXT,
    SAME_LINE_BLANK,
    InputBuffer,
    Parser,
    ahead,
    blanks,
    json_rest,
    json_text,
    one_of,
    peek,
    string,
    until,
)
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
        yield from json_rest(source, ["}"], COLON, None if key in ENVELOPE_KEYS else _LONGEST_OBJECT)
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
