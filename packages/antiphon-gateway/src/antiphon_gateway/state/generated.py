"""`GeneratedAnswer`: an answer that is generated for a WebSocket, or for clients that come later: for all but an HTTP connection.

How clients see an answer that is not complete (queued, in progress, cancelled or failed) is the `AnswerShape` of its format. Two
formats have answers that are looked up by id: Responses (`ResponseShape`) and Interactions (`InteractionShape`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec
from msgspec import Struct

from antiphon.http.messages import Response, StreamSource
from antiphon.wire import Format, formats
from antiphon.wire.delta import Assembler
from antiphon.wire.gemini_interactions.errors import error_object
from antiphon.wire.openai_responses.errors import response_error
from antiphon.wire.output import ModelOutput, ProviderError
from antiphon.wire.streams.sse import SseEvent, SseReader
from antiphon_gateway.errors import INTERNAL_ERROR

logger = logging.getLogger("antiphon.gateway")

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

    @abstractmethod
    def end_event(self, ended: bytes, number: int) -> SseEvent:
        """The last event of such an answer, with that number, from its object."""

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

    def end_event(self, ended: bytes, number: int) -> SseEvent:
        return response_event(msgspec.json.decode(ended)["status"], number, ended)


def response_event(kind: str, number: int, body: bytes) -> SseEvent:
    """The event of that kind, which has the object."""
    name = f"response.{kind}"
    data = {"type": name, "sequence_number": number, "response": msgspec.Raw(body)}
    return SseEvent(name.encode(), msgspec.json.encode(data))


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
        self._answer = WholeInteraction()

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

    def end_event(self, ended: bytes, number: int) -> SseEvent:
        body = msgspec.json.decode(ended)
        if errors := body.get("errors"):
            kind, data = "error", {"error": errors[0]}
        else:
            kind, data = "interaction.status_update", {"interaction_id": self._id, "status": body["status"]}
        return SseEvent(kind.encode(), msgspec.json.encode({**data, "event_type": kind, "event_id": str(number)}))


SHAPES: Mapping[str, type[AnswerShape]] = {shape.wire.name: shape for shape in (ResponseShape, InteractionShape)}
"""By format."""


class GeneratedAnswer(ABC):
    """An answer that is being generated. It is the `ResponseStream` of its generation; a subclass says where the events go."""

    def __init__(self, shape: AnswerShape) -> None:
        self.body = b""
        """The object, as the events so far show it; empty before the first of them."""
        self.ending: Ending | None = None
        """Why it ended before it was complete."""
        self.is_over = False
        self.number = 0
        """How many events it has so far."""
        self.shape = shape
        self._reader = SseReader()
        self._ended = asyncio.Event()
        self._source: StreamSource | None = None

    @abstractmethod
    def on_event(self, event: SseEvent) -> None:
        """One more event. `body` is already what it shows."""

    def on_whole(self, response: Response) -> None:
        """There are no events: the generation was refused."""
        self.end("failed", self.shape.refused(response))

    async def generate(self, respond: Callable[[], Awaitable[Response]]) -> None:
        """Generate the answer until it has ended. `respond` gives its stream, which is cancelled with this."""
        if self.is_over:
            return
        beginning = asyncio.create_task(self._begin(respond))
        try:
            await self._ended.wait()
        finally:
            beginning.cancel()
            await asyncio.wait({beginning})
            if self._source is not None:
                self._source.cancel()

    async def _begin(self, respond: Callable[[], Awaitable[Response]]) -> None:
        try:
            response = await respond()
            if isinstance(response.body, bytes):
                self.on_whole(response)
                return
            assert not isinstance(response.body, AsyncIterator), "generations push their events"
            self._source = response.body
            self._source.start(self)
        except Exception:
            logger.exception("internal error while generating an answer")
            self.abort_stream()

    def end(self, ending: Ending, error: ProviderError | None = None) -> None:
        """End it before it is complete. The last event says so."""
        if not self.is_over:
            self.ending = ending
            self.body = self.shape.ended(self.body or self.shape.queued(), ending, error)
            self._over()
            self._add(self.shape.end_event(self.body, self.number))

    # What the generation calls.

    def write(self, data: bytes) -> None:
        """More of the stream."""
        for event in self._reader.feed(data):
            if self.is_over:
                return
            self.body = self.shape.in_event(event) or self.body
            self._add(event)

    def end_stream(self) -> None:
        """The stream is complete."""
        self._source = None
        self._over()

    def abort_stream(self) -> None:
        """The stream broke by a defect of ours."""
        self.end("failed", INTERNAL_ERROR)

    def _add(self, event: SseEvent) -> None:
        self.on_event(event)  # which may end it instead
        self.number += 1

    def _over(self) -> None:
        self.is_over = True
        self._ended.set()


class WholeInteraction:
    """Assembles an interaction from its stream: with the steps of that, which one that is not streamed may join."""

    def __init__(self) -> None:
        self._reader = _interactions_wire.stream_reader()
        self._assembler = Assembler()

    def feed(self, data: bytes) -> None:
        """Read more of the stream."""
        for delta in self._reader.feed(data):
            self._assembler.add(delta)

    def encode(self) -> bytes:
        """The object so far."""
        return _interactions_wire.encode_response(self._assembler.output).data


def encode_event(event: SseEvent) -> bytes:
    """An event as it is sent."""
    data = b"data: %b\n\n" % event.data.replace(b"\n", b"\ndata: ")
    return b"event: %b\n%b" % (event.event, data) if event.event else data
