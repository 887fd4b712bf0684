"""The `model` of an answer that is passed on: the name that the client asked for, as in a translated answer.

Most upstreams answer with the name they were asked for, and then nothing is touched. A stream names its model in the first event;
if it is another, that exact field is replaced wherever it comes again. Text of the model cannot contain it: inside a string the
quotes are escaped. But a call, a setting or a piece of metadata that is a JSON object can, so in formats whose events hold such
objects the field is replaced only in its place (`_PLACES`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import msgspec

from antiphon_gateway.generate.body_fields import top_level_fields

_FIELDS = {"gemini": "modelVersion"}
_PLACES: Mapping[str, str] = {"gemini": "", "gemini-interactions": "interaction", "openai-responses": "response"}
"""The object of an event that names the model, by format; empty: the event itself."""
_FIND: dict[str, Callable[[bytes], re.Match[bytes] | None]] = {
    field: re.compile(rb'"%b"\s*:\s*"([^"\\]+)"' % field.encode()).search for field in ("model", "modelVersion")
}
_ends_of_events = re.compile(rb"(?<=\n\n)|(?<=\n\r\n)|(?<=\r\r)").split
_data = re.compile(rb"^data: ?(.*)$", re.MULTILINE).search
_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])


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
            return b"".join(map(self._replaced, _ends_of_events(events))) if self._find(events) else events
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
            fields = _objects.decode(data[1]) if data is not None else {}
            named = _objects.decode(fields.get(self._place, b"{}")) if self._place else fields
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
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
