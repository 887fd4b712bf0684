"""What is read of a request without its reader: a JSON object, a typed body, a number in the query, the outermost fields.

Bodies are read and changed as their outermost fields where that is enough: decoding what is inside a long one costs more than
everything else that is done for a request that passes unchanged. What is wrong is a `WireError` that names the field.

The `model` of an answer that is passed on is the name that the client asked for, as in a translated answer. Most upstreams answer
with the name they were asked for, and then nothing is touched. A stream names its model in the first event; if it is another,
that exact field is replaced wherever it comes again. Text of the model cannot contain it: inside a string the quotes are escaped.
But a call, a setting or a piece of metadata that is a JSON object can, so in formats whose events hold such objects the field is
replaced only in its place (`_PLACES`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from antiphon.errors import WireError
from antiphon.json_text import NOT_JSON

T = TypeVar("T")

_MAX_DIGITS = 18
"""A longer number does not fit into a database."""


def read_object(body: bytes) -> dict[str, Any]:
    """A body that is a JSON object. Raises `WireError`."""
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except NOT_JSON as error:
        raise WireError(f"the body is not a JSON object: {error}") from error


def read_body_as(body: bytes, kind: type[T], *, advice: str = "") -> T:
    """A JSON body with the fields of `kind`; `advice` says in an error what to send. Raises `WireError`."""
    try:
        return msgspec.json.decode(body, type=kind)
    except NOT_JSON as error:
        raise WireError(f"{error}; {advice}" if advice else str(error)) from error


def query_number(
    query: Mapping[str, str], name: str, default: int, *, least: int = 1, most: int | None = None, expected: str = ""
) -> int:
    """A whole number in the query; `default` without it, `expected` says in an error what it is. Raises `WireError`."""
    given = query.get(name)
    if not given:
        return default
    is_number = given.isascii() and given.isdigit() and len(given) <= _MAX_DIGITS
    if not is_number or int(given) < least or (most is not None and int(given) > most):
        expected = expected or f"a number from {least}" + ("" if most is None else f" to {most}")
        raise WireError(f"{name}: expected {expected}, got {given[:20]!r}")
    return int(given)


INCLUDE_USAGE = "include_usage"
_OPTIONS = "stream_options"
_REQUESTED = b'{"stream_options":{"include_usage":true},'
GEMINI_WRAPPER = "generateContentRequest"
"""Where the body of a token count may have the request that is counted."""
_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read_model_name(body: bytes) -> str:
    """The model that a body names."""
    model = top_level_fields(body).get("model")
    name = msgspec.json.decode(model) if model is not None else None
    if not isinstance(name, str) or not name:
        raise WireError("model: you must provide a model parameter (a string)")
    return name


def replace_model(body: bytes, model: str) -> bytes:
    """The same body with another model."""
    fields = top_level_fields(body)
    name = "agent" if "agent" in fields and "model" not in fields else "model"  # Interactions have agents too
    fields[name] = msgspec.Raw(msgspec.json.encode(model))
    return msgspec.json.encode(fields)


def rename_gemini_models(body: bytes, model: str) -> bytes:
    """The body of a Gemini call with another model, where it names one: in itself, or in the requests that it has."""
    if b'"model"' not in body:
        return body
    fields = read_object(body)
    requests = fields.get("requests")
    for named in (fields, fields.get(GEMINI_WRAPPER), *(requests if isinstance(requests, list) else ())):
        if isinstance(named, dict) and "model" in named:
            named["model"] = f"models/{model.removeprefix('models/')}"
    return msgspec.json.encode(fields)


def with_model(body: bytes, model: str) -> bytes:
    """The same body with that model; unchanged if it names it already."""
    named = top_level_fields(body).get("model")
    return body if named is not None and msgspec.json.decode(named) == model else replace_model(body, model)


def top_level_fields(body: bytes) -> dict[str, msgspec.Raw]:
    """The outermost object of a body, its values as raw JSON. Raises `WireError`."""
    try:
        return _decoder.decode(body)
    except NOT_JSON as error:
        raise WireError(f"the body is not a JSON object: {error}") from error


def stream_options(body: bytes) -> dict[str, Any] | None:
    """The `stream_options` of a Chat Completions body; None if it has none. Raises `WireError`."""
    if _OPTIONS.encode() not in body:  # decoding a long body costs more than all else
        return None
    fields = top_level_fields(body)
    if _OPTIONS not in fields:
        return None
    given = msgspec.json.decode(fields[_OPTIONS])
    return given if isinstance(given, dict) else {}  # whatever a client sent there


def with_stream_requested(body: bytes) -> bytes:
    """The same body, which asks for a stream."""
    return msgspec.json.encode({**top_level_fields(body), "stream": True})


def with_usage_requested(body: bytes, options: dict[str, Any] | None) -> bytes:
    """The same body, which has these `stream_options`, with usage requested."""
    begin = body.find(b"{")
    if options is None and begin >= 0:
        return b"".join((body[:begin], _REQUESTED, memoryview(body)[begin + 1 :]))  # one copy
    fields = top_level_fields(body)
    fields[_OPTIONS] = msgspec.Raw(msgspec.json.encode({**(options or {}), INCLUDE_USAGE: True}))
    return msgspec.json.encode(fields)


_FIELDS = {"gemini": "modelVersion"}
_PLACES: Mapping[str, str] = {"gemini": "", "gemini-interactions": "interaction", "openai-responses": "response"}
"""The object of an event that names the model, by format; empty: the event itself."""
_FIND: dict[str, Callable[[bytes], re.Match[bytes] | None]] = {
    field: re.compile(rb'"%b"\s*:\s*"([^"\\]+)"' % field.encode()).search for field in ("model", "modelVersion")
}
split_events = re.compile(rb"(?<=\n\n)|(?<=\n\r\n)|(?<=\r\r)").split
_data = re.compile(rb"^data: ?(.*)$", re.MULTILINE).search


def with_requested_model(format_name: str, body: bytes, model: str) -> bytes:
    """A whole answer with the name that the client asked for; the same bytes if it has that already."""
    field = _FIELDS.get(format_name, "model")
    found = _FIND[field](body)
    if found is None or (found[1] == model.encode() and format_name not in _PLACES):
        return body
    fields = top_level_fields(body)
    named = msgspec.Raw(msgspec.json.encode(model))
    if field not in fields or fields[field] == named:
        return body  # what was found is in a call of the model
    fields[field] = named
    return msgspec.json.encode(fields)


class StreamModel:
    """Replaces the model in the events of one stream."""

    def __init__(self, format_name: str, model: str) -> None:
        self._field = _FIELDS.get(format_name, "model")
        self._find = _FIND[self._field]
        self._place = _PLACES.get(format_name)
        self._model = msgspec.json.encode(model)
        self._given = self._wanted = b""
        self._is_known = False
        self.is_done = False
        """Whether the stream has the right name, so that nothing need be replaced."""

    def feed(self, events: bytes) -> bytes:
        """Whole events; the same bytes if they need no change."""
        if self._place is not None:
            return b"".join(map(self._replaced, split_events(events))) if self._find(events) else events
        if not self._is_known:
            found = self._find(events)
            if found is None:
                return events
            self._is_known = True
            name = found[0][: found.start(1) - found.start() - 1]
            if b'"%b"' % found[1] == self._model:
                self.is_done = True
            else:
                self._given, self._wanted = found[0], name + self._model
        return events.replace(self._given, self._wanted) if self._given else events

    def _replaced(self, event: bytes) -> bytes:
        """One event, with the model replaced in its place."""
        data = _data(event) if self._find(event) and not self.is_done else None
        try:
            fields = _decoder.decode(data[1]) if data is not None else {}
            named = _decoder.decode(fields.get(self._place, b"{}")) if self._place else fields
        except NOT_JSON:
            return event  # the reader reports it
        if data is None or not _is_name(named.get(self._field)):
            return event
        if bytes(named[self._field]) == self._model:
            self.is_done = True
            return event
        named[self._field] = msgspec.Raw(self._model)
        if self._place:
            fields[self._place] = msgspec.Raw(msgspec.json.encode(named))
        return event[: data.start(1)] + msgspec.json.encode(fields) + event[data.end(1) :]


def _is_name(value: msgspec.Raw | None) -> bool:
    return value is not None and bytes(value)[:1] == b'"' and bytes(value) != b'""'
