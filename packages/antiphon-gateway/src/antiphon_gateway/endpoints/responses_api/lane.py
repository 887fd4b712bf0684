"""`Lane`: the requests of one `stream_id` of a WebSocket, which are answered one after the other.

What waits is kept as the bytes that came, and counted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from antiphon.http.body import Hold
from antiphon.http.messages import Response
from antiphon.http.server.websocket import WebSocket
from antiphon.ids import new_id
from antiphon.parts import TokenUsage
from antiphon.wire.openai_responses.response import write_usage
from antiphon.wire.streams.sse import SseEvent
from antiphon_gateway.endpoints.responses_api.steering import Steer
from antiphon_gateway.state.generated import GeneratedAnswer, ResponseShape, response_event


class WaitingRequest(Struct, frozen=True):
    """A request as it came, or a successor, which takes over `steers`; `hold` counts it."""

    data: bytes
    hold: Hold
    steers: Sequence[Steer] = ()


class LaneAnswer(GeneratedAnswer):
    """The answer to a request of a lane: its events become messages."""

    id = ""
    """That of the response, once there is one."""
    is_complete = False
    refusal: Response | None = None
    """The response to a request that was refused."""

    def __init__(self, lane: Lane, body: bytes, settings: dict[str, Any], steers: Sequence[Steer]) -> None:
        super().__init__(ResponseShape(f"resp_{new_id()}", body))
        self.settings = settings
        """Those of the request, for a successor."""
        self.steers = steers
        """Input that the request took over, until its response exists."""
        self.send = lane.send

    @property
    def output(self) -> list[Any]:
        """The items of the response."""
        return msgspec.json.decode(self.body).get("output") or []

    def on_event(self, event: SseEvent) -> None:
        """Send an event."""
        if event.data == b"[DONE]":
            return
        if not self.id and self.body and self.ending is None:
            self.id = msgspec.json.decode(self.body)["id"]
            self.steers = ()  # the response took them over
        self.is_complete = event.event in (b"response.completed", b"response.incomplete")
        self.send(event.data)

    def on_whole(self, response: Response) -> None:
        """It was refused, or the request is kept for later ones, without an answer to it: tell the client its id."""
        if response.status < 400 and isinstance(response.body, bytes):
            kept = msgspec.json.decode(response.body)
            ended = {"status": "completed", "completed_at": int(time.time()), "usage": write_usage(TokenUsage())}
            for kind, fields in (("created", {"status": "in_progress"}), ("completed", ended)):
                self.body = msgspec.json.encode({**kept, **fields})
                self._add(response_event(kind, self.number, self.body))
        else:
            self.refusal = response
        self.end_stream()

    def pause(self) -> None:
        """The client reads slowly."""
        if self._source is not None:
            self._source.pause()

    def resume(self) -> None:
        """The client has caught up."""
        if self._source is not None:
            self._source.resume()


class Lane:
    """Requests that are answered one after the other. `hold` counts the one that is being answered."""

    task: asyncio.Task[None]

    def __init__(self, socket: WebSocket, lane_id: str, hold: Hold) -> None:
        self.id = lane_id
        self.waiting: list[WaitingRequest] = []
        self.hold = hold
        self.answer: LaneAnswer | None = None
        """That to the last request that had its turn."""
        self.is_cancelled = False
        """Whether the next one is cancelled before it has its turn."""
        # Not a method of the lane: its answer would hold it, and both the request, until garbage is collected.
        self.send = partial(_send, socket, lane_id)

    @property
    def current(self) -> LaneAnswer | None:
        """The answer in progress."""
        return self.answer if self.answer is not None and not self.answer.is_over else None

    def cancel(self) -> bool:
        """Stop the answer in progress, or the next one before it begins. Returns whether there is one."""
        if self.current is not None:
            self.current.end("cancelled")
            return True
        was_cancelled, self.is_cancelled = self.is_cancelled, bool(self.waiting)
        return self.is_cancelled and not was_cancelled

    def close(self) -> None:
        """The client left, or nothing is left to answer."""
        waiting, self.waiting = self.waiting, []
        for request in waiting:
            request.hold.release()
        self.hold.release()


def _send(socket: WebSocket, lane_id: str, event: bytes) -> None:
    """Send an event, with the id of its lane."""
    socket.send_text(b'{"stream_id":%b,%b' % (msgspec.json.encode(lane_id), event[1:]) if lane_id else event)
