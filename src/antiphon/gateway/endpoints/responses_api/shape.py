"""`ResponseShape`: a Responses object that is not complete: queued, in progress, cancelled or failed."""

from __future__ import annotations

import time
from typing import Any

import msgspec
from msgspec import Struct

from antiphon.gateway.http.messages import Response
from antiphon.gateway.state.background import Ending
from antiphon.wire import formats
from antiphon.wire.openai_responses.errors import response_error
from antiphon.wire.output import ModelOutput, ProviderError
from antiphon.wire.sse import SseEvent

_wire = formats["openai-responses"]
_EVENTS_WITH_OBJECT = frozenset(
    {
        f"response.{status}".encode()
        for status in ("created", "queued", "in_progress", "completed", "incomplete", "failed")
    }
)


class _Event(Struct):
    response: msgspec.Raw


class ResponseShape:
    """One response. `body` is that of its request; it is needed only for `queued`."""

    def __init__(self, response_id: str, body: bytes) -> None:
        self._id = response_id
        self._body = body

    def queued(self) -> bytes:
        """The object before anything has happened."""
        return msgspec.json.encode({**empty_response(self._id, self._body), "status": "queued"})

    def in_event(self, event: SseEvent) -> bytes | None:
        """The object that an event contains."""
        if event.event not in _EVENTS_WITH_OBJECT:
            return None
        return bytes(msgspec.json.decode(event.data, type=_Event).response)

    def refused(self, response: Response) -> ProviderError:
        """The error of a response that is not a stream."""
        return _wire.read_error(response.body, response.status)

    def ended(self, last: bytes, ending: Ending, error: ProviderError | None) -> bytes:
        """The object of a response that was not completed."""
        body = msgspec.json.decode(last)
        body |= {"status": ending, "completed_at": None}
        if error is not None:
            body["error"] = response_error(error)
        return msgspec.json.encode(body)


def empty_response(response_id: str, body: bytes) -> dict[str, Any]:
    """A response to the request `body`, without output."""
    settings = _wire.request_settings(body)
    output = ModelOutput(
        id=response_id,
        model=_wire.read_request(body).model,
        created=int(time.time()),
        native=_wire.repeat_settings(None, settings),
    )
    return {**_wire.write_response(output).body, "completed_at": None}
