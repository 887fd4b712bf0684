"""`AnswerShape`: an answer that is not complete, as clients of its format see it: queued, in progress, cancelled or failed.

Two formats have answers that are looked up by id: Responses (`ResponseShape`) and Interactions (`InteractionShape`).
`WholeAnswer` assembles the object of a format from a stream of it.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec
from msgspec import Struct

from antiphon.http.messages import Response
from antiphon.wire import Format, formats
from antiphon.wire.delta import Assembler
from antiphon.wire.gemini_interactions.errors import error_object
from antiphon.wire.openai_responses.errors import response_error
from antiphon.wire.output import ModelOutput, ProviderError
from antiphon.wire.streams.sse import SseEvent

Ending: TypeAlias = Literal["cancelled", "failed"]

_responses_wire = formats["openai-responses"]
_interactions_wire = formats["gemini-interactions"]
_EVENTS_WITH_OBJECT = frozenset(
    {
        f"response.{status}".encode()
        for status in ("created", "queued", "in_progress", "completed", "incomplete", "failed")
    }
)
_SHOWN_AFTER = frozenset({b"interaction.created", b"step.stop", b"interaction.completed"})
"""The events of an interaction after which there is something new to show."""


class _Event(Struct):
    response: msgspec.Raw


class AnswerShape(ABC):
    """One answer of a format. `body` is that of its request; it is needed only for `queued`."""

    wire: ClassVar[Format]

    def __init__(self, answer_id: str, body: bytes) -> None:
        self._id = answer_id
        self._body = body

    @abstractmethod
    def queued(self) -> bytes:
        """The object before anything has happened."""

    @abstractmethod
    def in_event(self, event: SseEvent) -> bytes | None:
        """The object as an event of the stream shows it; None if it shows nothing new."""

    @abstractmethod
    def ended(self, last: bytes, ending: Ending, error: ProviderError | None) -> bytes:
        """The object of an answer that was not completed; `last` is the object before."""

    def refused(self, response: Response) -> ProviderError:
        """The error of a response that is not a stream."""
        return self.wire.read_error(response.body, response.status)

    def _take_body(self) -> bytes:
        body, self._body = self._body, b""  # an answer in the background may take long
        return body


class ResponseShape(AnswerShape):
    """One response. Its events have the object."""

    wire = _responses_wire

    def queued(self) -> bytes:
        body = self._take_body()
        return msgspec.json.encode({**empty_response(self._id, body), "status": "queued"})

    def in_event(self, event: SseEvent) -> bytes | None:
        if event.event not in _EVENTS_WITH_OBJECT:
            return None
        return bytes(msgspec.json.decode(event.data, type=_Event).response)

    def ended(self, last: bytes, ending: Ending, error: ProviderError | None) -> bytes:
        body = msgspec.json.decode(last)
        body |= {"status": ending, "completed_at": None}
        if error is not None:
            body["error"] = response_error(error)
        return msgspec.json.encode(body)


def empty_response(response_id: str, body: bytes) -> dict[str, Any]:
    """A response to the request `body`, without output."""
    settings = _responses_wire.request_settings(body)
    output = ModelOutput(
        id=response_id,
        model=_responses_wire.read_request(body).model,
        created=int(time.time()),
        native=_responses_wire.repeat_settings(None, settings),
    )
    return {**_responses_wire.write_response(output).body, "completed_at": None}


class InteractionShape(AnswerShape):
    """One interaction. Its events have no object with the steps so far, so it is assembled from them."""

    wire = _interactions_wire

    def __init__(self, answer_id: str, body: bytes) -> None:
        super().__init__(answer_id, body)
        self._answer = WholeAnswer(_interactions_wire)

    def queued(self) -> bytes:
        request = _interactions_wire.read_request(self._take_body())
        output = ModelOutput(id=self._id, model=request.model, created=int(time.time()))
        return _interactions_wire.encode_response(output).data

    def in_event(self, event: SseEvent) -> bytes | None:
        self._answer.feed(encode_event(event))
        return self._answer.encode() if event.event in _SHOWN_AFTER else None

    def ended(self, last: bytes, ending: Ending, error: ProviderError | None) -> bytes:
        body = msgspec.json.decode(last) | {"status": ending}
        if error is not None:
            body["errors"] = [error_object(error)]
        return msgspec.json.encode(body)


SHAPES: Mapping[str, type[AnswerShape]] = {shape.wire.name: shape for shape in (ResponseShape, InteractionShape)}
"""By format."""


class WholeAnswer:
    """Assembles the answer that a stream of a format carries."""

    def __init__(self, wire: Format) -> None:
        self._wire = wire
        self._reader = wire.stream_reader()
        self._assembler = Assembler()

    def feed(self, data: bytes) -> bool:
        """Read more of the stream. Returns whether the answer is complete."""
        for delta in self._reader.feed(data):
            self._assembler.add(delta)
        return self._assembler.is_finished

    def encode(self) -> bytes:
        """The answer so far as an object of the format."""
        return self._wire.encode_response(self._assembler.output).data


def encode_event(event: SseEvent) -> bytes:
    """An event as it is sent."""
    data = b"data: %b\n\n" % event.data.replace(b"\n", b"\ndata: ")
    return b"event: %b\n%b" % (event.event, data) if event.event else data
