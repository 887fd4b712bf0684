"""Background requests of every format that has them: start, get, follow and cancel.

What differs between formats is how an answer that is not complete looks (`answer_shapes`). A request is checked before it is
accepted, so that a wrong model or a malformed body is refused at once and not found out by polling.
"""

from __future__ import annotations

import time
from collections.abc import Coroutine, Mapping
from typing import Any

import msgspec
from msgspec import structs

from antiphon.errors import UnknownResponse, WireError
from antiphon.http.messages import Response
from antiphon.ids import new_id
from antiphon.wire import formats
from antiphon.wire.delta import Failed
from antiphon.wire.output import ModelOutput, ProviderError
from antiphon_gateway.endpoints.answer_shapes import SHAPES, empty_response
from antiphon_gateway.errors import overloaded
from antiphon_gateway.generate.body_fields import top_level_fields
from antiphon_gateway.generate.generation import ID_PREFIXES, STREAM_HEADERS, Generation
from antiphon_gateway.runtime.metered import MeteredRequest
from antiphon_gateway.state.background import follow_stored
from antiphon_gateway.state.connection import ConnectionAnswers
from antiphon_gateway.state.store import StoredResponse, own_messages, previous_response_id
from antiphon_gateway.threads import STATE

_TRUE, _FALSE = b"true", b"false"
_ANSWER_BYTES = 64 * 1024
"""What an answer in progress takes beside its request: its task, its connection and what was parsed."""
_OVERDUE = ProviderError("the process that generated this answer has ended", "server")


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
        expanded = answers.expand(parsed)
        if expanded is None:
            expanded = await STATE.run(self.services.state.expand, parsed, owner=self.key.name)
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
    answer_id = f"{ID_PREFIXES[format_name]}{new_id()}"
    seconds = asked.loaded.config.gateway.request_seconds
    run = structs.replace(
        asked.request,
        body=msgspec.json.encode(fields),
        deadline=time.monotonic() + seconds,
        begin_early=None,  # the connection belongs to the client's next request by then
    )
    generation = Generation(services, asked.loaded, run, asked.endpoint, asked.key)
    generation.answer_id, generation.settings = answer_id, {"background": True}
    generation.is_counted = True
    hold = services.governor.hold(asked.key.name)
    if asked.request.hold is not None:
        hold.take_over(asked.request.hold)
    if refusal := hold.grow(_ANSWER_BYTES + len(run.body)):
        hold.release()
        return asked.refuse(overloaded(refusal))
    answer = await services.background.start(
        (asked.key.name, answer_id),
        SHAPES[format_name](answer_id, body),
        generation.run,
        seconds=seconds,
        request=body,
        hold=hold,
    )
    asked.hand_over()  # to the generation, which is recorded at its end
    if streams:
        return Response(headers=dict(STREAM_HEADERS), body=answer.follow())
    return Response.json(answer.body)


async def current_object(context: MeteredRequest) -> bytes:
    """The object of an answer as it is now. Raises `UnknownResponse`."""
    services, answer_id, owner = context.services, context.endpoint.resource, context.key.name
    answer = services.background.get((owner, answer_id))
    if answer is not None:
        return answer.body
    try:
        return (await STATE.run(services.state.get, answer_id, owner=owner)).body
    except UnknownResponse:
        unfinished = await STATE.run(services.background.unfinished.get, answer_id, owner)
        if unfinished is None:
            raise
    if not unfinished.is_overdue:
        return unfinished.body
    return SHAPES[context.endpoint.format](answer_id, b"").ended(unfinished.body, "failed", _OVERDUE)


async def followed_events(context: MeteredRequest, after: int) -> Response:
    """The events of a background answer after the one with index `after`.

    Raises `WireError` if the answer has none, and `UnknownResponse` if there is no such answer.
    """
    services, answer_id, owner = context.services, context.endpoint.resource, context.key.name
    answer = services.background.get((owner, answer_id))
    if answer is not None:
        return Response(headers=dict(STREAM_HEADERS), body=answer.follow(after))
    unfinished = services.background.unfinished
    stored = await STATE.run(unfinished.get, answer_id, owner)
    if (stored is None or not stored.is_running) and not await STATE.run(unfinished.events, answer_id, owner, -1):
        if stored is None:
            await STATE.run(services.state.get, answer_id, owner=owner)
        raise WireError(
            f"stream: '{answer_id}' was not created with background: true, or ended too long ago; get it without stream"
        )
    wire = formats[context.endpoint.format]
    body = follow_stored(
        unfinished,
        (owner, answer_id),
        after,
        comment=wire.module.keep_alive,
        silence=context.loaded.config.gateway.keep_alive_seconds,
        cut=wire.stream_writer("").write(Failed(_OVERDUE)),
    )
    return Response(headers=dict(STREAM_HEADERS), body=body)


async def answer_chain(context: MeteredRequest) -> list[StoredResponse]:
    """An answer with its input, and all that it continues, the first one first. Raises `UnknownResponse`.

    One that is not complete has the input of its request, and no output.
    """
    services, answer_id, owner = context.services, context.endpoint.resource, context.key.name
    try:
        return await STATE.run(services.state.chain, answer_id, owner=owner)
    except UnknownResponse:
        unfinished = await STATE.run(services.background.unfinished.get, answer_id, owner)
        if unfinished is None or not unfinished.request:
            raise
    request = formats[context.endpoint.format].read_request(unfinished.request)
    previous = previous_response_id(request)
    earlier = await STATE.run(services.state.chain, previous, owner=owner) if previous else []
    return [*earlier, StoredResponse(answer_id, own_messages(request), ModelOutput(), unfinished.body)]


async def cancelled_object(context: MeteredRequest) -> bytes | None:
    """Cancel an answer and return its object; None if it is complete already. Raises `UnknownResponse`."""
    services, answer_id, owner = context.services, context.endpoint.resource, context.key.name
    if await services.background.cancel((owner, answer_id)):
        return await current_object(context)
    unfinished = await STATE.run(services.background.unfinished.get, answer_id, owner)
    if unfinished is None:
        await STATE.run(services.state.get, answer_id, owner=owner)
        return None
    if not unfinished.is_running:
        return await current_object(context)
    await STATE.run(services.background.unfinished.request_cancel, answer_id, owner)
    return SHAPES[context.endpoint.format](answer_id, b"").ended(unfinished.body, "cancelled", None)


async def delete_answer(context: MeteredRequest) -> None:
    """Delete an answer, and cancel it if it is running. Raises `UnknownResponse`."""
    services, answer_id, owner = context.services, context.endpoint.resource, context.key.name
    await services.background.cancel((owner, answer_id))
    services.background.forget((owner, answer_id))
    was_unfinished = await STATE.run(services.background.unfinished.drop, answer_id, owner)
    try:
        await STATE.run(services.state.delete, answer_id, owner=owner)
    except UnknownResponse:
        if not was_unfinished:
            raise


def _is(fields: Mapping[str, msgspec.Raw], name: str, value: bytes) -> bool:
    return name in fields and bytes(fields[name]).strip() == value
