"""The grammar of calls in text: `candidate` reads one where it may stand, or finds that it is text.

A call counts only if all of it is there, each tool it names is on offer, and it is not said in passing: behind it on its line
comes nothing, another call, or a new sentence. A closer may be missing where the text ends or the next call begins, if the
JSON before it is whole; models stop there.

A line or a block with no mark but its JSON must tell with its first keys that it is a call: a long JSON answer
is not held back.
"""

from __future__ import annotations

from antiphon.tools.embedded.dialect import (
    DIALECTS,
    FENCE_LANGUAGES,
    STEP_BEGIN,
    STEP_END,
    STEP_NAME_END,
    Dialect,
)
from antiphon.tools.embedded.source import (
    NEXT,
    SAME_LINE_BLANK,
    NotACall,
    Reading,
    Source,
    ahead,
    blanks,
    json_rest,
    json_text,
    one_of,
    peek,
    string,
    until,
)
from antiphon.tools.embedded.surroundings import Surroundings
from antiphon.tools.embedded.written_call import (
    ENVELOPE_KEYS,
    NAME_KEYS,
    Offer,
    WrittenCall,
    is_named,
    read_broken,
    read_calls,
    tagged_arguments,
)

_DIALECT_OF = {dialect.opener: dialect for dialect in DIALECTS}
_OPENERS = tuple(_DIALECT_OF)
_FUNCTION = "<function="
_LONGEST_NAME = 200


def candidate(source: Source, offer: Offer, place: Surroundings) -> Reading[list[WrittenCall]]:
    """The calls that stand at the front of `source`; `NotACall` if it is text."""
    front = source.front
    if front == "{":
        return (yield from _own_line(source, offer))
    if front in "`~":
        return (yield from _fenced(source, offer))
    return (yield from _marked(source, offer, place))


def _marked(source: Source, offer: Offer, place: Surroundings) -> Reading[list[WrittenCall]]:
    opener = yield from ahead(source, _OPENERS)
    if not opener:
        raise NotACall
    dialect = _DIALECT_OF[opener]
    if not place.admits(is_token=dialect.is_token):
        raise NotACall
    source.take(len(opener))
    if dialect.body == "function":
        calls = [(yield from _function(source, offer))]
        yield from blanks(source)
        if (yield from ahead(source, ("</tool_call>",))):  # models that forget to open it close it all the same
            yield from one_of(source, "</tool_call>")
    elif dialect.body == "steps":
        calls = yield from _steps(source, offer, dialect.closer)
    elif dialect.body == "objects or name" and (yield from _is_name_next(source)):
        calls = [(yield from _name_and_arguments(source, offer))]
    else:
        calls = yield from _tag(source, offer, dialect)
    yield from _end_of_call(source, is_token=dialect.is_token)
    return calls


def _end_of_call(source: Source, *, is_token: bool) -> Reading[None]:
    yield from blanks(source, SAME_LINE_BLANK)
    front = yield from peek(source)
    if front in ("", "\n", "\r") or (yield from ahead(source, _OPENERS)):
        return
    if is_token or not front.isupper():
        raise NotACall


def _tag(source: Source, offer: Offer, dialect: Dialect) -> Reading[list[WrittenCall]]:
    """What stands between opener and closer."""
    yield from blanks(source)
    if dialect.body == "objects or functions" and (yield from ahead(source, (_FUNCTION,))):
        calls = []
        while (yield from ahead(source, (_FUNCTION,))):
            yield from one_of(source, _FUNCTION)
            calls.append((yield from _function(source, offer)))
            yield from blanks(source)
    else:
        mark = source.mark
        try:
            calls = yield from _objects(source, offer)
        except NotACall:
            if not dialect.closer or not is_named(source.since(mark), offer):
                raise
            yield from until(source, dialect.closer, *_OPENERS)
            calls = [read_broken(source.since(mark))]
    if dialect.closer:
        yield from _closer(source, dialect.closer)
    return calls


def _closer(source: Source, closer: str) -> Reading[None]:
    yield from blanks(source)
    if (yield from ahead(source, (closer,))):
        source.take(len(closer))
    elif (yield from peek(source)) and not (yield from ahead(source, _OPENERS)):
        raise NotACall


def _objects(source: Source, offer: Offer) -> Reading[list[WrittenCall]]:
    """JSON objects, one a call, one behind the other or in an array."""
    calls: list[WrittenCall] = []
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


def _known(name: str, offer: Offer) -> str:
    name = name.strip().strip("\"'")
    if name not in offer:
        raise NotACall
    return name


def _function(source: Source, offer: Offer) -> Reading[WrittenCall]:
    """`NAME>`, an object or a tag for each parameter, `</function>`."""
    name = _known((yield from until(source, ">", longest=_LONGEST_NAME)), offer)
    yield from one_of(source, ">")
    yield from blanks(source)
    if (yield from peek(source)) == "{":
        arguments = yield from json_text(source)
        yield from _closer(source, "</function>")
        return WrittenCall(name, arguments)
    values: dict[str, str] = {}
    while (yield from one_of(source, "<parameter=", "</function>")) == "<parameter=":
        key = yield from until(source, ">", longest=_LONGEST_NAME)
        yield from one_of(source, ">")
        values[key.strip()] = yield from until(source, "</parameter>")
        yield from one_of(source, "</parameter>")
        yield from blanks(source)
    return WrittenCall(name, tagged_arguments(values, offer[name]))


def _is_name_next(source: Source) -> Reading[bool]:
    yield from blanks(source, SAME_LINE_BLANK)
    return (yield from peek(source)) not in ("", "{", "[")


def _name_and_arguments(source: Source, offer: Offer) -> Reading[WrittenCall]:
    """`NAME`, then its arguments behind a mark or at once; an id may be between them."""
    name = _known((yield from until(source, "[ARGS]", "[CALL_ID]", "{", longest=_LONGEST_NAME)), offer)
    if (yield from ahead(source, ("[CALL_ID]",))):
        yield from until(source, "[ARGS]", longest=_LONGEST_NAME)
    if (yield from ahead(source, ("[ARGS]",))):
        yield from one_of(source, "[ARGS]")
    yield from blanks(source)
    return WrittenCall(name, (yield from json_text(source)))


def _steps(source: Source, offer: Offer, closer: str) -> Reading[list[WrittenCall]]:
    """Calls with a mark each: `NAME`, a mark, its arguments; or the word `function`, a mark, `NAME`, a fenced block of them."""
    calls: list[WrittenCall] = []
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
        calls.append(WrittenCall(_known(name, offer), (yield from json_text(source))))
        yield from blanks(source)
        if is_fenced:
            yield from one_of(source, "```")
            yield from blanks(source)
        yield from _step_end(source, closer)
        yield from blanks(source)
    yield from _closer(source, closer)
    return calls


def _step_end(source: Source, closer: str) -> Reading[None]:
    if (yield from peek(source)) and not (yield from ahead(source, (closer,))):
        yield from one_of(source, STEP_END)


def _telling_object(source: Source, offer: Offer) -> Reading[list[WrittenCall]]:
    """An object that tells with its first keys that it is a call."""
    mark = source.mark
    yield from one_of(source, "{")
    while True:
        yield from blanks(source)
        key = (yield from string(source, _LONGEST_NAME))[1:-1]
        if key not in NAME_KEYS and key not in ENVELOPE_KEYS:
            raise NotACall
        yield from blanks(source)
        yield from one_of(source, ":")
        yield from blanks(source)
        value = (yield from string(source, _LONGEST_NAME))[1:-1]
        if key in NAME_KEYS:
            break
        yield from blanks(source)
        yield from one_of(source, ",")
    _known(value, offer)
    yield from json_rest(source, ["}"], NEXT)
    return read_calls(source.since(mark), offer, is_marked=False)


def _own_line(source: Source, offer: Offer) -> Reading[list[WrittenCall]]:
    """A line, or several, that is nothing but a call; or calls with semicolons between them."""
    calls = yield from _telling_object(source, offer)
    while True:
        yield from blanks(source, SAME_LINE_BLANK)
        front = yield from peek(source)
        if front in ("", "\n", "\r"):
            return calls
        yield from one_of(source, ";")
        yield from blanks(source, SAME_LINE_BLANK)
        calls += yield from _telling_object(source, offer)


def _fenced(source: Source, offer: Offer) -> Reading[list[WrittenCall]]:
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
    calls: list[WrittenCall] = []
    yield from blanks(source)
    while not calls or (yield from peek(source)) == "{":
        calls += yield from _telling_object(source, offer)
        yield from blanks(source)
    if (yield from peek(source)):
        yield from one_of(source, fence)
        yield from blanks(source, SAME_LINE_BLANK)
        if (yield from peek(source)) not in ("", "\n", "\r"):
            raise NotACall
    return calls
