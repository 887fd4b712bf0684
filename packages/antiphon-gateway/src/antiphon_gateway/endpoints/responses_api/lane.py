"""`Lane`: the requests of one `stream_id` of a WebSocket, which are answered one after the other.

It is the `ResponseStream` of the request that is being answered: events of the stream become messages. What waits is kept as the
bytes that came, and counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from antiphon.http.body import Hold
from antiphon.http.messages import StreamSource
from antiphon.http.server.websocket import WebSocket
from antiphon.ids import new_id
from antiphon.wire.output import ProviderError
from antiphon.wire.streams.sse import SseReader
from antiphon_gateway.endpoints.responses_api.steering import Steer, inherited_settings
from antiphon_gateway.errors import INTERNAL_ERROR
from antiphon_gateway.state.answer_shapes import ResponseShape


class WaitingRequest(Struct, frozen=True):
    """A request as it came, or a successor, which takes over `steers`; `hold` counts it."""

    data: bytes
    hold: Hold
    steers: Sequence[Steer] = ()


class Lane:
    """Requests that are answered one after the other. It is the `ResponseStream` of the one that is being answered."""

    task: asyncio.Task[None]

    def __init__(self, socket: WebSocket, lane_id: str, hold: Hold) -> None:
        self.id = lane_id
        self.waiting: list[WaitingRequest] = []
        self.response_id = ""
        self.hold = hold
        """Counts the request that is being answered."""
        self.settings: dict[str, Any] = {}
        """Those of that request, for a successor."""
        self.is_active = False
        """Whether a request is being answered, also before its answer begins."""
        self.is_cancelled = False
        self.steers: Sequence[Steer] = ()
        """Input that the request took over, until its response exists."""
        self._socket = socket
        self._source: StreamSource | None = None
        self._ended = asyncio.Event()
        self._reader = SseReader()
        self._shape = ResponseShape("", b"")
        self._body = b""
        self.number = 0
        """How many events of the response were sent."""
        self._is_complete = False

    @property
    def is_answering(self) -> bool:
        return self._source is not None

    @property
    def output(self) -> list[Any]:
        """The items of the last response."""
        return msgspec.json.decode(self._body).get("output") or [] if self._body else []

    def begin(self, event: dict[str, Any], steers: Sequence[Steer]) -> None:
        """The next request of the lane, which took over `steers`."""
        self.settings, self.steers = inherited_settings(event), steers
        self.response_id, self._body, self.number = "", b"", 0

    def use_body(self, body: bytes) -> None:
        """The body of the request, from which a response is made that ends before it begins."""
        self._shape = ResponseShape(f"resp_{new_id()}", body)

    def close(self) -> None:
        """The client left, or nothing is left to answer."""
        waiting, self.waiting = self.waiting, []
        for request in waiting:
            request.hold.release()
        self.hold.release()

    async def relay(self, body: AsyncIterator[bytes] | StreamSource) -> bool:
        """Pass on a stream. Returns whether it was complete."""
        assert not isinstance(body, AsyncIterator), "generations push their events"
        self._ended.clear()
        self._reader, self._body, self.response_id, self._is_complete = SseReader(), b"", "", False
        self._source = body
        try:
            body.start(self)
            await self._ended.wait()
            return self._is_complete
        finally:
            self._source = None
            if not self._ended.is_set():
                body.cancel()

    def write(self, data: bytes) -> None:
        """More of the stream."""
        for event in self._reader.feed(data):
            if event.data == b"[DONE]":
                continue
            found = self._shape.in_event(event)
            if found is not None:
                self._body = found
                self.response_id = msgspec.json.decode(found)["id"]
                self.steers = ()  # a response took them over
                self._is_complete = event.event in (b"response.completed", b"response.incomplete")
            self.number += 1
            self._socket.send_text(self.with_id(event.data))

    def end_stream(self) -> None:
        """The stream is complete."""
        self._ended.set()

    def abort_stream(self) -> None:
        """The stream broke by a defect of ours."""
        self._is_complete = False
        self._ended.set()
        self._end_with("failed", INTERNAL_ERROR)

    def cancel(self) -> None:
        """Stop the answer in progress, or the request for it."""
        self.is_cancelled = True
        source, self._source = self._source, None
        if source is not None:
            source.cancel()
            self._is_complete = False
            self.end_cancelled()
            self._ended.set()
        elif self.is_active:
            self.task.cancel()

    def end_cancelled(self) -> None:
        """Tell the client that the response is cancelled."""
        self._end_with("cancelled", None)

    def pause(self) -> None:
        if self._source is not None:
            self._source.pause()

    def resume(self) -> None:
        if self._source is not None:
            self._source.resume()

    def with_id(self, event: bytes) -> bytes:
        """An event with the id of the lane."""
        return b'{"stream_id":%b,%b' % (msgspec.json.encode(self.id), event[1:]) if self.id else event

    def _end_with(self, ending: Any, error: ProviderError | None) -> None:
        response = msgspec.Raw(self._shape.ended(self._body or self._shape.queued(), ending, error))
        event = {"type": f"response.{ending}", "sequence_number": self.number, "response": response}
        self._socket.send_text(self.with_id(msgspec.json.encode(event)))
