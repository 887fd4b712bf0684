"""`InteractionShape`: an Interaction that is not complete: in progress, cancelled or failed.

Events have no object with the steps so far, so the shape assembles it from them.
"""

from __future__ import annotations

import time

import msgspec

from antiphon.gateway.generate.encoders import WholeAnswer
from antiphon.gateway.http.messages import Response
from antiphon.gateway.state.background import Ending, encode_event
from antiphon.wire import formats
from antiphon.wire.gemini_interactions.errors import error_object
from antiphon.wire.output import ModelOutput, ProviderError
from antiphon.wire.sse import SseEvent

_wire = formats["gemini-interactions"]
_SHOWN_AFTER = frozenset({b"interaction.created", b"step.stop", b"interaction.completed"})
"""The events after which there is something new to show."""


class InteractionShape:
    """One interaction. `body` is that of its request; it is needed only for `queued`."""

    def __init__(self, interaction_id: str, body: bytes) -> None:
        self._id = interaction_id
        self._body = body
        self._answer = WholeAnswer(_wire)

    def queued(self) -> bytes:
        """The object before anything has happened."""
        request = _wire.read_request(self._body)
        output = ModelOutput(id=self._id, model=request.model, created=int(time.time()))
        return _wire.encode_response(output).data

    def in_event(self, event: SseEvent) -> bytes | None:
        """The object with everything up to an event."""
        self._answer.feed(encode_event(event))
        return self._answer.encode() if event.event in _SHOWN_AFTER else None

    def refused(self, response: Response) -> ProviderError:
        """The error of a response that is not a stream."""
        return _wire.read_error(response.body, response.status)

    def ended(self, last: bytes, ending: Ending, error: ProviderError | None) -> bytes:
        """The object of an interaction that was not completed."""
        body = msgspec.json.decode(last) | {"status": ending}
        if error is not None:
            body["errors"] = [error_object(error)]
        return msgspec.json.encode(body)
