"""`ResponseSocket`: the Responses API over a WebSocket: many responses on one connection.

A client sends `response.create` events, whose fields are those of `POST /v1/responses`, and gets the events of the stream as
messages. Requests with the same `stream_id` are answered one after the other, other lanes at the same time. The answers of the
connection can be continued although they are not stored (`ConnectionAnswers`). Every request passes the gateway's admission,
limits and metrics as one over HTTP does. Cancelled is what the client names in `response.cancel`, and everything when it leaves.
Input that steers a response in progress is queued for a successor (`steering`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from typing import Any, Protocol

import msgspec
from msgspec import structs

from antiphon.errors import AntiphonError, UnknownResponse, WireError
from antiphon.gateway.access.admission import Admission
from antiphon.gateway.context import Services
from antiphon.gateway.endpoints.answer_shapes import ResponseShape, empty_response
from antiphon.gateway.endpoints.responses_api.steering import (
    MAX_QUEUED,
    Failure,
    Steer,
    read_steer,
    required_results,
    successor,
    with_steers,
)
from antiphon.gateway.http.errors import INTERNAL_ERROR, error_response
from antiphon.gateway.http.messages import ClientRequest, Response, StreamSource
from antiphon.gateway.http.websocket import GOING_AWAY, WebSocket
from antiphon.gateway.state.connection import ConnectionAnswers
from antiphon.gateway.state.store import to_provider_error
from antiphon.gateway.threads import STATE
from antiphon.ids import new_id
from antiphon.parts import TokenUsage, ToolCallResult
from antiphon.wire import formats
from antiphon.wire.openai_responses.response import write_usage
from antiphon.wire.output import ModelOutput, ProviderError
from antiphon.wire.request import ModelRequest
from antiphon.wire.sse import SseReader

logger = logging.getLogger("antiphon.gateway")

MAX_LANES = 32
MAX_WAITING = 64
"""How many requests may wait in a lane."""
_FORMAT = "openai-responses"
_ENVELOPE = frozenset({"type", "stream_id", "generate", "stream", "stream_options", "background"})
"""Fields of an event that are not those of the request."""
_wire = formats[_FORMAT]


def upgrade_required() -> Response:
    """The response to a GET that does not open a WebSocket."""
    error = ProviderError("connect with a WebSocket, or send POST", "invalid_request", code="upgrade_required")
    return error_response(_FORMAT, error, status=426, headers={"upgrade": "websocket", "connection": "Upgrade"})


class RequestGateway(Protocol):
    """What the socket needs of the gateway."""

    def admit(self, request: ClientRequest) -> Admission | Response: ...
    async def handle(self, request: ClientRequest, admission: Any = None) -> Response: ...


class ResponseSocket:
    """One connection. `head` is the request that opened it."""

    def __init__(self, gateway: RequestGateway, services: Services, head: ClientRequest, socket: WebSocket) -> None:
        self._gateway = gateway
        self._services = services
        self._head = head
        self._socket = socket
        self._answers = ConnectionAnswers()
        self._lanes: dict[str, _Lane] = {}
        self._steers: dict[str, list[Steer]] = {}
        """Queued input by the response that it steers."""
        self._count = 0
        self._is_finishing = False

    def on_message(self, text: str) -> None:
        """An event of the client."""
        try:
            event = msgspec.json.decode(text, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError) as error:
            self._send_error(_invalid(f"the message is not a JSON object: {error}"), "")
            return
        lane_id = event.get("stream_id") or ""
        if not isinstance(lane_id, str):
            self._send_error(_invalid("stream_id: expected a string", "stream_id"), "")
        elif event.get("type") == "response.create":
            self._queue(lane_id, event)
        elif event.get("type") == "response.cancel":
            self._cancel(lane_id, event.get("response_id"))
        elif event.get("type") == "response.steer":
            self._steer(event)
        else:
            kind = str(event.get("type"))[:100]
            message = f"type: unknown event {kind!r}; send response.create, response.steer or response.cancel"
            self._send_error(_invalid(message, "type"), lane_id)

    def pause(self) -> None:
        """The client reads slowly."""
        for lane in self._lanes.values():
            lane.pause()

    def resume(self) -> None:
        """The client has caught up."""
        for lane in self._lanes.values():
            lane.resume()

    def finish(self) -> None:
        """Close the socket when nothing is being answered any more."""
        self._is_finishing = True
        if not self._lanes:
            self._socket.close(GOING_AWAY, "the server shuts down")

    def on_closed(self) -> None:
        """The client left."""
        for lane in self._lanes.values():
            lane.task.cancel()

    def _queue(self, lane_id: str, event: dict[str, Any]) -> None:
        lane = self._lanes.get(lane_id)
        if lane is None and len(self._lanes) >= MAX_LANES:
            self._send_error(_busy(f"at most {MAX_LANES} lanes (stream_id) at a time"), lane_id)
        elif lane is not None and len(lane.waiting) >= MAX_WAITING:
            self._send_error(_busy(f"at most {MAX_WAITING} requests may wait in a lane"), lane_id)
        elif lane is not None:
            lane.waiting.append(event)
        else:
            lane = self._lanes[lane_id] = _Lane(self._socket, lane_id)
            lane.waiting.append(event)
            self._socket.set_busy(True)
            lane.task = asyncio.create_task(self._run(lane))

    def _cancel(self, lane_id: str, response_id: Any) -> None:
        lanes = [
            lane
            for lane in self._lanes.values()
            if lane.is_answering and (lane.response_id == response_id if response_id else lane.id == lane_id)
        ]
        if not lanes:
            self._send_error(_invalid("there is no response in progress to cancel", "response_id"), lane_id)
        for lane in lanes:
            lane.cancel()

    def _steer(self, event: dict[str, Any]) -> None:
        """Queue input for the response in progress that it names."""
        response_id, given = event.get("previous_response_id"), event.get("input")
        named = Steer(response_id if isinstance(response_id, str) else "", [], given)
        lane = next(
            (each for each in self._lanes.values() if each.is_answering and each.response_id == response_id), None
        )
        number = lane.number if lane is not None else 0
        try:
            steer = read_steer(event)
        except WireError as error:
            self._send(lane, named.failed(number, "invalid_input", str(error)))
            return
        if lane is None:
            is_known = steer.response_id in self._answers or steer.response_id in self._steers
            code: Failure = "response_already_completed" if is_known else "response_not_found"
            message = f"response {response_id!r} is not in progress on this connection; send response.create"
        elif lane.event.get("conversation"):
            code, message = "steering_not_supported", "a response of a conversation cannot be steered"
        elif len(self._steers.get(steer.response_id, ())) >= MAX_QUEUED:
            code, message = "too_many_pending_steers", f"at most {MAX_QUEUED} steers may wait for one response"
        else:
            self._steers.setdefault(steer.response_id, []).append(steer)
            self._send(lane, steer.accepted(number))
            return
        self._send(lane, named.failed(number, code, message))

    def _after_answer(self, lane: _Lane, event: dict[str, Any], *, is_answered: bool) -> None:
        """Continue a steered response, or return the input that did not reach a successor."""
        for steer in lane.steers:
            self._send(lane, steer.failed(lane.number, "successor_creation_failed", "the request was refused"))
        lane.steers = []
        steers = self._steers.get(lane.response_id) if lane.response_id else None
        if not steers:
            return
        if not is_answered:
            for steer in self._steers.pop(lane.response_id):
                self._send(lane, steer.failed(lane.number, "response_not_active", "the response was not completed"))
        elif required := required_results(lane.output):
            for steer in steers:
                self._send(lane, steer.pending(lane.number, required))
            while len(self._steers) > MAX_LANES:
                for steer in self._steers.pop(next(iter(self._steers))):
                    self._send(lane, steer.failed(lane.number, "response_not_active", "it waited for results too long"))
        else:
            del self._steers[lane.response_id]
            lane.waiting.insert(0, successor(event, lane.response_id, steers))
            lane.successor_of = steers

    def _send(self, lane: _Lane | None, event: dict[str, Any]) -> None:
        data = msgspec.json.encode(event)
        self._socket.send_text(data if lane is None else lane.with_id(data))

    async def _run(self, lane: _Lane) -> None:
        """Answer the requests of a lane, one after the other."""
        try:
            while lane.waiting and not self._is_finishing:
                await self._answer(lane, lane.waiting.pop(0))
        finally:
            del self._lanes[lane.id]
            if not self._lanes:
                self._socket.set_busy(False)
                if self._is_finishing:
                    self._socket.close(GOING_AWAY, "the server shuts down")

    async def _answer(self, lane: _Lane, event: dict[str, Any]) -> None:
        previous = event.get("previous_response_id")
        lane.begin(event)
        if isinstance(previous, str) and previous in self._steers:  # it brings the results they wait for
            lane.steers = self._steers.pop(previous)
            event = with_steers(event, lane.steers)
        try:
            is_answered = await self._respond(lane, event)
        except Exception:
            logger.exception("internal error while answering a WebSocket request")
            self._send_error(error_response(_FORMAT, INTERNAL_ERROR), lane.id)
            is_answered = False
        if not is_answered and isinstance(previous, str):
            self._answers.drop(previous)
        self._after_answer(lane, event, is_answered=is_answered)

    async def _respond(self, lane: _Lane, event: dict[str, Any]) -> bool:
        """Answer one request. Returns whether that succeeded."""
        if event.get("background"):
            self._send_error(_invalid("background is not supported over WebSocket; send POST", "background"), lane.id)
            return False
        fields = {name: value for name, value in event.items() if name not in _ENVELOPE}
        body = msgspec.json.encode({**fields, "stream": True})
        self._count += 1
        request = structs.replace(
            self._head,
            method="POST",
            body=body,
            request_id=f"{self._head.request_id}-{self._count}",
            begin_early=None,  # a head of HTTP has no place between messages
        )
        admission = self._gateway.admit(request)
        if isinstance(admission, Response):
            self._send_error(admission, lane.id)
            return False
        seconds = admission.loaded.config.gateway.request_seconds
        request.deadline = time.monotonic() + seconds
        try:
            parsed = _wire.read_request(body)
            self._check_results(parsed, event.get("previous_response_id"))
            if event.get("generate") is False:
                await self._warm_up(lane, parsed, body, admission)
                return True
        except UnknownResponse as unknown:
            self._send_error(error_response(_FORMAT, to_provider_error(unknown), status=400), lane.id)
            return False
        except AntiphonError as error:
            self._send_error(_invalid(str(error)), lane.id)
            return False
        try:
            async with asyncio.timeout(seconds):
                response = await self._gateway.handle(request, structs.replace(admission, connection=self._answers))
                if isinstance(response.body, bytes):
                    self._send_error(response, lane.id)
                    return False
                return await lane.relay(response.body)
        except TimeoutError:
            message = f"request timed out after {seconds:g} s (gateway.request_seconds)"
            self._send_error(error_response(_FORMAT, ProviderError(message, "timeout")), lane.id)
            return False

    def _check_results(self, request: ModelRequest, previous: Any) -> None:
        """Raises `UnknownResponse` for a result without its call, in a request that continues an answer of this connection.

        The gateway has all messages before it, so the client continues the wrong answer: nothing is there to be repaired.
        """
        if not isinstance(previous, str) or previous not in self._answers:
            return
        own = {part.tool_call_id for part in _parts(request) if hasattr(part, "arguments")}
        for part in _parts(request):
            if not isinstance(part, ToolCallResult) or part.tool_call_id in own:
                continue
            if not self._answers.has_call(previous, part.tool_call_id):
                message = f"No tool call found for function call output with call_id {part.tool_call_id}."
                raise UnknownResponse(message, status=400, param="input")

    async def _warm_up(self, lane: _Lane, request: ModelRequest, body: bytes, admission: Admission) -> None:
        """Keep a request that later ones continue, without an answer to it (`generate: false`)."""
        owner = admission.key.name
        expanded = self._answers.expand(request)
        if expanded is None:
            expanded = await STATE.run(self._services.state.expand, request, owner=owner)
        response_id = f"resp_{new_id()}"
        self._answers.store(response_id, expanded, ModelOutput())
        empty = empty_response(response_id, body)
        started = {**empty, "status": "in_progress"}
        usage = write_usage(TokenUsage())
        completed = {**empty, "status": "completed", "completed_at": int(time.time()), "usage": usage}
        for number, (kind, response) in enumerate((("created", started), ("completed", completed))):
            event = {"type": f"response.{kind}", "sequence_number": number, "response": response}
            self._socket.send_text(lane.with_id(msgspec.json.encode(event)))

    def _send_error(self, response: Response, lane_id: str) -> None:
        body = response.body if isinstance(response.body, bytes) else b"{}"
        error = msgspec.json.decode(body).get("error") or {}
        error["code"] = error.get("code") or error.get("type") or "error"
        event: dict[str, Any] = {"type": "error", "status": response.status, "error": error}
        if lane_id:
            event["stream_id"] = lane_id
        self._socket.send_text(msgspec.json.encode(event))


class _Lane:
    """Requests that are answered one after the other. It is the `ResponseStream` of the one that is being answered."""

    task: asyncio.Task[None]

    def __init__(self, socket: WebSocket, lane_id: str) -> None:
        self.id = lane_id
        self.waiting: list[dict[str, Any]] = []
        self.response_id = ""
        self.event: dict[str, Any] = {}
        """The request that is being answered."""
        self.steers: list[Steer] = []
        """Input that the request took over, until its response exists."""
        self.successor_of: list[Steer] = []
        """Input that the next request of the lane takes over."""
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

    def begin(self, event: dict[str, Any]) -> None:
        """The next request of the lane."""
        self.event = event
        self.steers, self.successor_of = self.successor_of, []
        self.response_id, self._body, self.number = "", b"", 0

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
                self.steers = []  # a response took them over
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
        if self._body:
            self._end_with("failed", INTERNAL_ERROR)

    def cancel(self) -> None:
        """Stop the answer in progress."""
        source, self._source = self._source, None
        if source is None:
            return
        source.cancel()
        self._is_complete = False
        if self._body:
            self._end_with("cancelled", None)
        self._ended.set()

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
        response = msgspec.Raw(self._shape.ended(self._body, ending, error))
        event = {"type": f"response.{ending}", "sequence_number": self.number, "response": response}
        self._socket.send_text(self.with_id(msgspec.json.encode(event)))


def _parts(request: ModelRequest) -> list[Any]:
    return [part for message in request.messages for part in message.parts]


def _invalid(message: str, param: str | None = None) -> Response:
    return error_response(_FORMAT, ProviderError(message, "invalid_request", param=param))


def _busy(message: str) -> Response:
    return error_response(_FORMAT, ProviderError(message, "rate_limit"))
