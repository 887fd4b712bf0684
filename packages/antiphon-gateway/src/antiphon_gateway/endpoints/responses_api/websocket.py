"""`ResponseSocket`: the Responses API over a WebSocket: many responses on one connection.

A client sends `response.create` events, whose fields are those of `POST /v1/responses`, and gets the events of the stream as
messages. Requests with the same `stream_id` are answered one after the other, other lanes at the same time. The answers of the
connection can be continued although they are not stored (`ConnectionAnswers`). Every request passes the gateway's admission,
limits and metrics as one over HTTP does; a message that is refused is recorded, too. Cancelled is what the client names in
`response.cancel`, and everything when it leaves. What waits is kept as the bytes that came, which are counted (`Hold`) until the
request is answered. Input that steers a response in progress is queued for a successor (`steering`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct, structs

from antiphon.errors import AntiphonError, UnknownResponse, WireError
from antiphon.http.body import Hold
from antiphon.http.messages import ClientRequest, Response
from antiphon.http.server.application import Handler, Limits
from antiphon.http.server.websocket import GOING_AWAY, WebSocket
from antiphon.ids import new_id
from antiphon.json_text import NOT_JSON
from antiphon.wire import formats
from antiphon.wire.output import ProviderError
from antiphon_gateway.endpoints.responses_api.lane import Lane, LaneAnswer, WaitingRequest
from antiphon_gateway.endpoints.responses_api.steering import (
    MAX_QUEUED,
    Failure,
    Steer,
    check_steer,
    inherited_settings,
    read_steer,
    required_results,
    successor,
    with_steers,
)
from antiphon_gateway.errors import INTERNAL_ERROR, error_response, overloaded
from antiphon_gateway.runtime.metered import Services
from antiphon_gateway.state.connection import ConnectionAnswers
from antiphon_gateway.state.continuing import to_provider_error

logger = logging.getLogger("antiphon.gateway")

MAX_LANES = 32
MAX_WAITING = 64
"""How many requests may wait in a lane."""
_FORMAT = "openai-responses"
_ENVELOPE = frozenset({"type", "stream_id", "generate", "stream", "stream_options", "background"})
"""Fields of an event that are not those of the request."""
_CONNECTION_ENDS = ProviderError(
    "the connection ends before the request has its turn; connect and send it again", "overloaded"
)
_wire = formats[_FORMAT]


class _Envelope(Struct):
    """What decides where an event goes. The rest of it is not parsed before its turn."""

    type: Any = None
    stream_id: Any = None
    response_id: Any = None


class ResponseSocket:
    """One connection. `head` is the request that opened it; `admit` decides on each message as on any request."""

    def __init__(
        self,
        admit: Callable[[ClientRequest], Handler | Response],
        limits: Callable[[], Limits],
        services: Services,
        head: ClientRequest,
        socket: WebSocket,
    ) -> None:
        self._admit_request = admit
        self._limits = limits
        self._services = services
        self._head = head
        self._socket = socket
        self._owner = head.hold.owner if head.hold is not None else ""
        self._answers = ConnectionAnswers(self._new_hold)
        self._lanes: dict[str, Lane] = {}
        self._steers: dict[str, list[Steer]] = {}
        """Queued input by the response that it steers."""
        self._count = 0
        self._is_finishing = False

    def on_message(self, data: bytes, hold: Hold) -> None:
        """An event of the client."""
        if not self._accept(data, hold):
            self._socket.give_back(hold)

    def on_refused(self, refusal: str) -> None:
        """A message that was not kept."""
        self._refuse(overloaded(refusal), "")

    def _accept(self, data: bytes, hold: Hold) -> bool:
        """Whether the event waits from now on; otherwise it was answered."""
        try:
            event = msgspec.json.decode(data, type=_Envelope)
        except NOT_JSON as error:
            self._refuse(_invalid(f"the message is not a JSON object: {error}"), "")
            return False
        lane_id = event.stream_id or ""
        if not isinstance(lane_id, str):
            self._refuse(_invalid("stream_id: expected a string", "stream_id"), "")
        elif event.type == "response.create":
            return self._queue(lane_id, WaitingRequest(data, hold))
        elif event.type == "response.cancel":
            self._cancel(lane_id, event.response_id)
        elif event.type == "response.steer":
            return self._steer(msgspec.json.decode(data, type=dict[str, msgspec.Raw]), hold)
        else:
            kind = str(event.type)[:100]
            message = f"type: unknown event {kind!r}; send response.create, response.steer or response.cancel"
            self._refuse(_invalid(message, "type"), lane_id)
        return False

    def pause(self) -> None:
        """The client reads slowly."""
        for answer in self._current_answers():
            answer.pause()

    def resume(self) -> None:
        """The client has caught up."""
        for answer in self._current_answers():
            answer.resume()

    def finish(self) -> None:
        """Close the socket when nothing is being answered any more."""
        self._is_finishing = True
        if not self._lanes:
            self._socket.close(GOING_AWAY, "the server shuts down")

    def on_closed(self) -> None:
        """The client left."""
        self._answers.close()
        for steers in self._steers.values():
            for steer in steers:
                steer.hold.release()
        self._steers.clear()
        for lane in self._lanes.values():
            for _ in lane.waiting:
                _, handler = self._admit()
                if not isinstance(handler, Response):
                    handler.end()
            lane.close()
            lane.cancel()

    def _current_answers(self) -> list[LaneAnswer]:
        """Those in progress."""
        return [answer for lane in self._lanes.values() if (answer := lane.current) is not None]

    def _new_hold(self) -> Hold:
        return self._services.governor.hold(self._owner)

    def _queue(self, lane_id: str, request: WaitingRequest) -> bool:
        """Whether the request waits for its turn."""
        lane = self._lanes.get(lane_id)
        if lane is None and len(self._lanes) >= MAX_LANES:
            self._refuse(ProviderError(f"at most {MAX_LANES} lanes (stream_id) at a time", "rate_limit"), lane_id)
        elif lane is not None and len(lane.waiting) >= MAX_WAITING:
            self._refuse(ProviderError(f"at most {MAX_WAITING} requests may wait in a lane", "rate_limit"), lane_id)
        elif lane is not None:
            lane.waiting.append(request)
            return True
        else:
            lane = self._lanes[lane_id] = Lane(self._socket, lane_id, self._new_hold())
            lane.waiting.append(request)
            self._socket.set_busy(True)
            lane.task = asyncio.create_task(self._run(lane))
            return True
        return False

    def _cancel(self, lane_id: str, response_id: Any) -> None:
        lane = self._lanes.get(lane_id)
        if response_id:
            lanes = (lane for lane in self._lanes.values() if lane.current and lane.current.id == response_id)
            lane = next(lanes, None)
        if lane is None or not lane.cancel():
            self._refuse(_invalid("there is no response in progress to cancel", "response_id"), lane_id)

    def _steer(self, event: dict[str, msgspec.Raw], hold: Hold) -> bool:
        """Queue input for the response in progress that it names. Returns whether it waits there."""
        steer = read_steer(event, hold)
        answer = next((answer for answer in self._current_answers() if answer.id == steer.response_id), None)
        number = answer.number if answer is not None else 0
        try:
            check_steer(event, steer)
        except WireError as error:
            self._send(answer, steer.failed(number, "invalid_input", str(error)))
            return False
        if answer is None:
            is_known = steer.response_id in self._answers or steer.response_id in self._steers
            code: Failure = "response_already_completed" if is_known else "response_not_found"
            message = f"response {steer.response_id!r} is not in progress on this connection; send response.create"
        elif answer.settings.get("conversation"):
            code, message = "steering_not_supported", "a response of a conversation cannot be steered"
        elif len(self._steers.get(steer.response_id, ())) >= MAX_QUEUED:
            code, message = "too_many_pending_steers", f"at most {MAX_QUEUED} steers may wait for one response"
        else:
            steer = structs.replace(steer, id=f"steer_{new_id()}")
            self._steers.setdefault(steer.response_id, []).append(steer)
            self._send(answer, steer.accepted(number))
            return True
        self._send(answer, steer.failed(number, code, message))
        return False

    def _after_answer(self, lane: Lane, answer: LaneAnswer) -> None:
        """Continue a steered response, or return the input that did not reach a successor."""
        for steer in answer.steers:
            self._return(answer, steer, "successor_creation_failed", "the request was refused")
        steers = self._steers.get(answer.id) if answer.id else None
        if not steers:
            return
        if not answer.is_complete:
            for steer in self._steers.pop(answer.id):
                self._return(answer, steer, "response_not_active", "the response was not completed")
        elif required := required_results(answer.output):
            for steer in steers:
                self._send(answer, steer.pending(answer.number, required))
            while len(self._steers) > MAX_LANES:
                for steer in self._steers.pop(next(iter(self._steers))):
                    self._return(answer, steer, "response_not_active", "it waited for results too long")
        else:
            del self._steers[answer.id]
            hold = lane.hold.move()
            for steer in steers:
                hold.take_over(steer.hold)
            event = successor(answer.settings, answer.id, steers)
            lane.waiting.insert(0, WaitingRequest(msgspec.json.encode(event), hold, steers))

    def _return(self, answer: LaneAnswer, steer: Steer, code: Failure, message: str) -> None:
        """Return input to the client."""
        self._send(answer, steer.failed(answer.number, code, message))
        self._socket.give_back(steer.hold)

    def _send(self, answer: LaneAnswer | None, event: dict[str, Any]) -> None:
        data = msgspec.json.encode(event)
        if answer is None:
            self._socket.send_text(data)
        else:
            answer.send(data)

    async def _run(self, lane: Lane) -> None:
        """Answer the requests of a lane, one after the other."""
        try:
            while lane.waiting and not self._is_finishing:
                await self._answer(lane, lane.waiting.pop(0))
        finally:
            for _ in lane.waiting:
                self._refuse(_CONNECTION_ENDS, lane.id)
            lane.close()
            del self._lanes[lane.id]
            if not self._lanes:
                self._socket.set_busy(False)
                if self._is_finishing:
                    self._socket.close(GOING_AWAY, "the server shuts down")

    async def _answer(self, lane: Lane, waiting: WaitingRequest) -> None:
        lane.hold.take_over(waiting.hold)
        try:
            event = msgspec.json.decode(waiting.data, type=dict[str, Any])
        except NOT_JSON as error:  # in a field that was not parsed before its turn
            self._refuse(_invalid(f"the message cannot be read: {error}"), lane.id)
            self._socket.give_back(lane.hold.move())
            return
        previous, steers = event.get("previous_response_id"), waiting.steers
        del waiting
        if isinstance(previous, str) and previous in self._steers:  # it brings the results they wait for
            steers = self._steers.pop(previous)
            event = with_steers(event, steers)
            for steer in steers:
                lane.hold.take_over(steer.hold)
        warms_up, wrong = event.get("generate") is False, None
        if event.get("background"):
            wrong = _invalid("background is not supported over WebSocket; send POST", "background")
        fields = {name: value for name, value in event.items() if name not in _ENVELOPE}
        if warms_up:
            fields["generate"] = False
        body = msgspec.json.encode({**fields, "stream": True})
        answer = lane.answer = LaneAnswer(lane, body, inherited_settings(event), steers)
        del event, fields  # parsed, they take many times the bytes that are counted
        try:
            await self._respond(lane, answer, body, wrong, warms_up=warms_up)
        except Exception:
            logger.exception("internal error while answering a WebSocket request")
            self._send_error(error_response(_FORMAT, INTERNAL_ERROR), lane.id)
        if not answer.is_complete and isinstance(previous, str):
            self._answers.drop(previous)
        self._after_answer(lane, answer)
        self._socket.give_back(lane.hold.move())

    def _admit(self, body: bytes = b"") -> tuple[ClientRequest, Handler | Response]:
        """The next message as a request of its own, and whether it may be answered."""
        self._count += 1
        request = structs.replace(
            self._head,
            method="POST",
            body=body,
            request_id=f"{self._head.request_id}-{self._count}",
            begin_early=None,  # a head of HTTP has no place between messages
            session=self._answers,
        )
        return request, self._admit_request(request)

    def _refuse(self, error: ProviderError, lane_id: str) -> None:
        """Refuse a message, which is recorded as a request."""
        _, handler = self._admit()
        response = handler if isinstance(handler, Response) else error_response(_FORMAT, error)
        if not isinstance(handler, Response):  # recorded by that
            handler.end(response.status, error)
        self._send_error(response, lane_id)

    async def _respond(
        self, lane: Lane, answer: LaneAnswer, body: bytes, wrong: ProviderError | None, *, warms_up: bool
    ) -> None:
        """Answer one request."""
        is_cancelled, lane.is_cancelled = lane.is_cancelled, False
        request, handler = self._admit(body)
        if isinstance(handler, Response):
            self._send_error(handler, lane.id)
            return
        seconds = self._limits().request_seconds
        request.deadline = time.monotonic() + seconds
        request.hold = lane.hold
        refusal: Response | None = None
        try:
            if problem := wrong or self._problem(body):
                refusal = error_response(_FORMAT, problem)
            elif is_cancelled:
                answer.end("cancelled")
            else:
                if warms_up:
                    lane.hold.release()  # what is kept counts instead
                async with asyncio.timeout(seconds):
                    await answer.generate(handler.run)
                refusal = answer.refusal
        except TimeoutError:
            message = f"request timed out after {seconds:g} s (gateway.request_seconds)"
            refusal = error_response(_FORMAT, ProviderError(message, "timeout"))
        finally:
            if refusal is None:
                handler.end()  # it was cancelled, unless its end is recorded
            else:
                handler.end(refusal.status, refusal.error)
        if refusal is not None:
            self._send_error(refusal, lane.id)

    def _problem(self, body: bytes) -> ProviderError | None:
        """Why a body cannot be answered: it cannot be read, or it continues the wrong answer."""
        try:
            self._answers.check_results(_wire.read_request(body))
        except UnknownResponse as unknown:
            return to_provider_error(unknown)
        except AntiphonError as error:
            return _invalid(str(error))
        return None

    def _send_error(self, response: Response, lane_id: str) -> None:
        body = response.body if isinstance(response.body, bytes) else b"{}"
        error = msgspec.json.decode(body).get("error") or {}
        error["code"] = error.get("code") or error.get("type") or "error"
        event: dict[str, Any] = {"type": "error", "status": response.status, "error": error}
        if lane_id:
            event["stream_id"] = lane_id
        self._socket.send_text(msgspec.json.encode(event))


def _invalid(message: str, param: str | None = None) -> ProviderError:
    return ProviderError(message, "invalid_request", param=param)
