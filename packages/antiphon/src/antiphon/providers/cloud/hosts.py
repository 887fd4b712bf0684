"""What hosts of Anthropic's models change in a request and in a response: Amazon Bedrock and Vertex AI.

Both have the model in the URL and the version in the body. Bedrock also has betas in the body, streams in frames of its own, and
errors with the kind in a header. Here a request becomes what the host expects, and its response becomes what Anthropic's API
would have sent: a stream of events, or an error object. Everything else (reader, relay, usage) knows one format.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct, structs

from antiphon.errors import TransportError
from antiphon.http.body import copy_failure, read_error
from antiphon.http.client.request import HttpRequest, HttpResponse
from antiphon.json_text import NOT_JSON
from antiphon.providers.cloud.event_stream import EventFrame, EventStreamDecoder

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


class _Chunk(Struct):
    """What the payload of a frame has to have."""

    bytes: str


class _Typed(Struct):
    """What an event has to have."""

    type: str


_chunk, _typed = msgspec.json.Decoder(_Chunk), msgspec.json.Decoder(_Typed)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_object = msgspec.json.Decoder(dict[str, Any])


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


def error_type(headers: Mapping[str, str]) -> str:
    """The error that AWS names in a header: `ThrottlingException:http://…`; empty if it names none."""
    name = headers.get("x-amzn-errortype", "").partition(":")[0].rpartition("#")[2]
    return name if name.isascii() else ""


class EventStreamResponse(HttpResponse):
    """A stream of AWS frames as server-sent events: the body of `response`, decoded as it arrives."""

    def __init__(self, response: HttpResponse) -> None:
        self.status = response.status
        self.headers = {**response.headers, "content-type": "text/event-stream"}
        self._decoder = EventStreamDecoder()
        self.flow = response
        response.deliver_to(self)

    def on_body(self, data: bytes) -> None:
        """Frames have arrived."""
        try:
            events = b"".join(map(_event, self._decoder.feed(data)))
        except TransportError as error:
            self.on_failure(copy_failure(error))
            assert self.flow is not None, "it is decoded from another body"
            self.flow.abort()
        else:
            if events:
                super().on_body(events)

    def on_complete(self) -> None:
        """The last frame has arrived, or a part of it."""
        if self._decoder.has_partial_frame:
            message = "connection lost: the event stream ended inside a frame"
            self.on_failure(TransportError(message, "connection_lost"))
        else:
            super().on_complete()


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
        data = b64decode(_chunk.decode(frame.payload).bytes, validate=True)
        event = _typed.decode(data).type.encode()
    except (*NOT_JSON, Base64Error):
        raise TransportError("malformed event stream: a frame without an event", "not_http") from None
    return b"event: %b\ndata: %b\n\n" % (event, data.replace(b"\n", b" "))


def _error(name: str, message: str) -> dict[str, Any]:
    error = _ERROR_TYPES.get(name.casefold(), "api_error")
    if "model identifier is invalid" in message:
        error = "not_found_error"
    return {"type": "error", "error": {"type": error, "message": message or name or "the host gave no error message"}}


def _message(payload: bytes) -> str:
    try:
        fields = _object.decode(payload)
    except NOT_JSON:
        return payload[:500].decode("utf-8", "replace")
    message = fields.get("message") or fields.get("Message") or ""
    return message if isinstance(message, str) else ""


async def _read_error(response: HttpResponse, name: str) -> HttpResponse:
    error = _error(name, _message(await read_error(response)))
    # A failure of the model has status 424, which elsewhere means a wrong request.
    status = max(response.status, 500) if error["error"]["type"] == "api_error" else response.status
    return HttpResponse.of(status, {**response.headers, "content-type": "application/json"}, msgspec.json.encode(error))
