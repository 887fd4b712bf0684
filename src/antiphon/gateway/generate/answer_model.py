"""The `model` of an answer that is passed on: the name that the client asked for, as in a translated answer.

Most upstreams answer with the name they were asked for, and then nothing is touched. A stream names its model in the first event;
if it is another, that exact field is replaced wherever it comes again. Text of the model cannot contain it: inside a string the
quotes are escaped.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from antiphon.gateway.generate.prepare import top_level_fields

_FIELDS = {"gemini": "modelVersion"}
_FIND: dict[str, Callable[[bytes], re.Match[bytes] | None]] = {
    field: re.compile(rb'"%b"\s*:\s*"([^"\\]+)"' % field.encode()).search for field in ("model", "modelVersion")
}


def with_requested_model(format_name: str, body: bytes, model: str) -> bytes:
    """A whole answer with the name that the client asked for; the same bytes if it has that already."""
    field = _FIELDS.get(format_name, "model")
    found = _FIND[field](body)
    if found is None or found[1] == model.encode():
        return body
    fields = top_level_fields(body)
    if field not in fields:
        return body  # it is in a call of the model
    fields[field] = msgspec.Raw(msgspec.json.encode(model))
    return msgspec.json.encode(fields)


class StreamModel:
    """Replaces the model in the events of one stream."""

    def __init__(self, format_name: str, model: str) -> None:
        self._find = _FIND[_FIELDS.get(format_name, "model")]
        self._model = msgspec.json.encode(model)
        self._given = self._wanted = b""
        self._is_known = False
        self.is_done = False
        """Whether the stream has the right name, so that nothing need be replaced."""

    def feed(self, events: bytes) -> bytes:
        """Whole events; the same bytes if they need no change."""
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
