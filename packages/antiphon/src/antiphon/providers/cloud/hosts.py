"""What hosts of Anthropic's models change in a request and in a response: Amazon Bedrock and Vertex AI.

Both have the model in the URL and the version in the body. Bedrock also has betas in the body, streams in frames of its own, and
errors with the kind in a header. Here a request becomes what the host expects, and its response becomes what Anthropic's API
would have sent: a stream of events, or an error object. Everything else (reader, relay, usage) knows one format.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
from msgspec import structs

from antiphon.errors import TransportError
from antiphon.http.body import BodyReceiver, PushedBody, pushed, read_error
from antiphon.http.client.request import HttpRequest, HttpResponse
from antiphon.providers.cloud.event_stream import EventFrame, EventStreamDecoder
from antiphon.providers.cloud.signers import error_type

BEDROCK, VERTEX = "bedrock", "vertex"
_BODY_VERSIONS = {BEDROCK: "bedrock-2023-05-31", VERTEX: "vertex-2023-10-16"}
_FIRST_VERSION = "2023-06-01"
"""The version of the API that the versions above stand for."""
_EVENT_STREAM = "application/vnd.amazon.eventstream"
_ERROR_TYPES = {
    "throttlingexception": "rate_limit_error",
    "servicequotaexceededexception": "rate_limit_error",
    "modelnotreadyexception": "overloaded_error",
    "serviceunavailableexception": "overloaded_error",
    "internalserverexception": "api_error",
    "modelerrorexception": "api_error",
    "modelstreamerrorexception": "api_error",
    "modeltimeoutexception": "timeout_error",
    "validationexception": "invalid_request_error",
    "resourcenotfoundexception": "not_found_error",
    "accessdeniedexception": "permission_error",
    "expiredtokenexception": "authentication_error",
    "unrecognizedclientexception": "authentication_error",
    "invalidsignatureexception": "authentication_error",
    "incompletesignatureexception": "authentication_error",
    "missingauthenticationtokenexception": "authentication_error",
}
"""Errors of AWS, in lower case, and what Anthropic's API calls them."""

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_chunk = msgspec.json.Decoder(dict[str, Any])


def wrap_request(host: str, request: HttpRequest) -> HttpRequest:
    """A request of the Messages API as the host expects it."""
    fields = _fields.decode(b"".join(request.body))
    headers = dict(request.headers)
    version = headers.pop("anthropic-version", _FIRST_VERSION)
    body_version = _BODY_VERSIONS[host] if version <= _FIRST_VERSION else version
    fields.pop("model", None)
    fields.setdefault("anthropic_version", msgspec.Raw(msgspec.json.encode(body_version)))
    if host == BEDROCK:
        fields.pop("stream", None)
        betas = [beta.strip() for beta in headers.pop("anthropic-beta", "").split(",") if beta.strip()]
        if betas:
            fields.setdefault("anthropic_beta", msgspec.Raw(msgspec.json.encode(betas)))
    return structs.replace(request, headers=headers, body=[msgspec.json.encode(fields)])


async def unwrap_response(response: HttpResponse) -> HttpResponse:
    """A response of AWS as Anthropic's API would have sent it; any other is returned unchanged."""
    if response.status >= 400:
        error = error_type(response.headers)
        return await _read_error(response, error) if error else response
    if response.headers.get("content-type", "").startswith(_EVENT_STREAM):
        return EventStreamResponse(response)
    return response


class BufferedResponse:
    """A response whose body has been read."""

    def __init__(self, status: int, headers: Mapping[str, str], data: bytes) -> None:
        self.status = status
        self.headers = headers
        self._data = data

    @property
    def body(self) -> AsyncIterator[bytes]:
        return self._pieces()

    async def _pieces(self) -> AsyncIterator[bytes]:
        yield self._data

    async def aclose(self) -> None:
        """Nothing is open."""


class EventStreamResponse:
    """A stream of AWS frames as server-sent events. It is iterated over or delivered, like the response inside."""

    def __init__(self, response: HttpResponse) -> None:
        self.status = response.status
        self.headers = {**response.headers, "content-type": "text/event-stream"}
        self._response = response
        self._pieces = response.body
        self._pushed: PushedBody | None = None
        self._decoder = EventStreamDecoder()

    @property
    def body(self) -> AsyncIterator[bytes]:
        return self

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        while True:
            try:
                piece = await anext(self._pieces)
            except StopAsyncIteration:
                self.check_end()
                raise
            if events := self.events(piece):
                return events

    async def aclose(self) -> None:
        """Release the response inside."""
        await self._response.aclose()

    def deliver_to(self, receiver: BodyReceiver) -> None:
        """Deliver the events after those that were iterated over."""
        self._pushed = pushed(self._response, self._pieces)
        self._pushed.deliver_to(_DecodingReceiver(self, receiver))

    def pause(self) -> None:
        """Stop reading."""
        if self._pushed is not None:
            self._pushed.pause()

    def resume(self) -> None:
        """Read again."""
        if self._pushed is not None:
            self._pushed.resume()

    def abort(self) -> None:
        """Nothing more is delivered."""
        body = self._pushed or pushed(self._response, self._pieces)
        body.abort()

    def events(self, data: bytes) -> bytes:
        """The events in the frames that these bytes complete. Raises `TransportError`."""
        return b"".join(map(_event, self._decoder.feed(data)))

    def check_end(self) -> None:
        """Raise `TransportError` if the bytes end inside a frame."""
        if self._decoder.has_partial_frame:
            raise TransportError("connection lost: the event stream ended inside a frame", "connection_lost")


class _DecodingReceiver:
    def __init__(self, response: EventStreamResponse, receiver: BodyReceiver) -> None:
        self._response = response
        self._receiver: BodyReceiver | None = receiver

    def on_body(self, data: bytes) -> None:
        if self._receiver is None:
            return
        try:
            events = self._response.events(data)
        except TransportError as error:
            self.on_failure(TransportError(str(error), error.code))  # without a traceback
            self._response.abort()
        else:
            if events:
                self._receiver.on_body(events)

    def on_complete(self) -> None:
        try:
            self._response.check_end()
        except TransportError as error:
            self.on_failure(TransportError(str(error), error.code))
        else:
            receiver, self._receiver = self._receiver, None
            if receiver is not None:
                receiver.on_complete()

    def on_failure(self, error: TransportError) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.on_failure(error)


def _event(frame: EventFrame) -> bytes:
    """A frame as a server-sent event; empty for one that carries none."""
    kind = frame.headers.get(":message-type", "event")
    if kind != "event":
        name = frame.headers.get(":exception-type") or frame.headers.get(":error-code", "")
        message = frame.headers.get(":error-message") or _message(frame.payload)
        return b"event: error\ndata: %b\n\n" % msgspec.json.encode(_error(name, message))
    if frame.headers.get(":event-type") != "chunk":
        return b""
    try:
        data = b64decode(_chunk.decode(frame.payload)["bytes"], validate=True)
        event = _chunk.decode(data)["type"].encode()
    except (msgspec.DecodeError, Base64Error, KeyError, TypeError, AttributeError, ValueError):
        raise TransportError("malformed event stream: a frame without an event", "not_http") from None
    return b"event: %b\ndata: %b\n\n" % (event, data.replace(b"\n", b" "))


def _error(name: str, message: str) -> dict[str, Any]:
    error = _ERROR_TYPES.get(name.casefold(), "api_error")
    if "model identifier is invalid" in message:
        error = "not_found_error"
    return {"type": "error", "error": {"type": error, "message": message or name or "the host gave no error message"}}


def _message(payload: bytes) -> str:
    try:
        fields = _chunk.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return payload[:500].decode("utf-8", "replace")
    message = fields.get("message") or fields.get("Message") or ""
    return message if isinstance(message, str) else ""


async def _read_error(response: HttpResponse, name: str) -> HttpResponse:
    error = _error(name, _message(await read_error(response)))
    # A failure of the model has status 424, which elsewhere means a wrong request.
    status = max(response.status, 500) if error["error"]["type"] == "api_error" else response.status
    body = msgspec.json.encode(error)
    return BufferedResponse(status, {**response.headers, "content-type": "application/json"}, body)
