"""Background requests of the formats that have them (`STATE_FIELDS`); in others `background` is a field like any other.

What differs between formats is how an answer that is not complete looks (`AnswerShape`). A request is checked before it is
accepted, so that a wrong model or a malformed body is refused at once and not found out by polling.
"""

from __future__ import annotations

import time
from collections.abc import Coroutine, Mapping
from typing import Any

import msgspec
from msgspec import structs

from antiphon.http.messages import Response
from antiphon.ids import new_id
from antiphon.wire import formats
from antiphon.wire.output import ModelOutput, ProviderError
from antiphon_gateway.errors import overloaded
from antiphon_gateway.generate.frame import STREAM_HEADERS
from antiphon_gateway.generate.generation import ID_PREFIXES, Generation
from antiphon_gateway.generate.server_state import expand_state
from antiphon_gateway.runtime.body_fields import top_level_fields
from antiphon_gateway.runtime.metered import MeteredRequest
from antiphon_gateway.state.background import AnswerKey, BackgroundAnswer
from antiphon_gateway.state.connection import ConnectionAnswers
from antiphon_gateway.state.generated import SHAPES, empty_response
from antiphon_gateway.threads import STATE

_TRUE, _FALSE = b"true", b"false"
_ANSWER_BYTES = 64 * 1024
"""What an answer in progress takes beside its request: its task, its connection and what was parsed."""


class Answering(Generation):
    """A generation whose client may not want to wait for the answer, or over a WebSocket want none at all."""

    def answer(self) -> Coroutine[Any, Any, Response]:
        """The answer, or what is known of it if it is generated in the background."""
        body = self.request.body
        if b'"background"' in body and _is(top_level_fields(body), "background", _TRUE):
            return create_in_background(self)
        if self.connection is not None and b'"generate"' in body:
            fields = top_level_fields(body)
            if _is(fields, "generate", _FALSE):
                del fields["generate"]
                return self._keep_only(self.connection, msgspec.json.encode(fields))
        return super().answer()

    async def _keep_only(self, answers: ConnectionAnswers, body: bytes) -> Response:
        """Keep a request that later ones of the connection continue, without an answer to it."""
        parsed = formats[self.endpoint.format].read_request(body)
        expanded = await STATE.run(expand_state, self, parsed)
        response_id = f"{ID_PREFIXES[self.endpoint.format]}{new_id()}"
        if refusal := answers.store(response_id, parsed, expanded, ModelOutput()):
            return self.refuse(overloaded(refusal))
        return Response.json(empty_response(response_id, body))


async def create_in_background(asked: Generation) -> Response:
    """Start an answer. Returns its object, or its events if the client asked for a stream."""
    body, format_name, services = asked.request.body, asked.endpoint.format, asked.services
    fields = top_level_fields(body)
    request = formats[format_name].read_request(body)
    if not request.model:
        return asked.refuse(ProviderError("the request has no model", "invalid_request", param="model"))
    if _is(fields, "store", _FALSE):
        return asked.refuse(
            ProviderError("background requires store; send store: true, or omit it", "invalid_request", param="store")
        )
    asked.targets(request.model)  # is there one?
    streams = _is(fields, "stream", _TRUE)
    del fields["background"]
    fields["stream"] = msgspec.Raw(_TRUE)
    hold, seconds = services.governor.hold(asked.key.name), asked.loaded.config.gateway.request_seconds
    run = structs.replace(
        asked.request,
        hold=hold,
        body=msgspec.json.encode(fields),
        deadline=time.monotonic() + seconds,
        begin_early=None,  # the connection belongs to the client's next request by then
    )
    key = asked.key.name, f"{ID_PREFIXES[format_name]}{new_id()}"
    answer = BackgroundAnswer(key, SHAPES[format_name](key[1], body), services.answers, hold)
    generation = Generation(services, asked.loaded, run, asked.endpoint, asked.key)
    generation.background, generation.is_counted = answer, True
    if asked.request.hold is not None:
        hold.take_over(asked.request.hold)
    if refusal := hold.grow(_ANSWER_BYTES + len(run.body)):
        hold.release()
        return asked.refuse(overloaded(refusal))
    await services.background.start(answer, generation.run, seconds, body)
    asked.hand_over()  # to the generation, which is recorded at its end
    if streams:
        return follow_answer(asked, key, -1)
    return Response.json(answer.body)


def follow_answer(asked: MeteredRequest, key: AnswerKey, after: int) -> Response:
    """The events of an answer after the one with index `after`."""
    wire, silence = formats[asked.endpoint.format], asked.loaded.config.gateway.keep_alive_seconds
    return Response(headers=dict(STREAM_HEADERS), body=asked.services.background.follow(key, after, wire, silence))


def _is(fields: Mapping[str, msgspec.Raw], name: str, value: bytes) -> bool:
    return name in fields and bytes(fields[name]).strip() == value
