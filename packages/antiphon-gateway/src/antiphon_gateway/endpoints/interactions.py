"""Stored interactions over HTTP: get, follow, cancel and delete, as the Interactions API does."""

from __future__ import annotations

from functools import wraps

import msgspec

from antiphon.errors import UnknownResponse
from antiphon.http.messages import Response
from antiphon.wire import formats
from antiphon.wire.output import ProviderError
from antiphon.wire.request import ModelRequest
from antiphon_gateway.endpoints.background import (
    answer_chain,
    cancelled_object,
    current_object,
    delete_answer,
    followed_events,
)
from antiphon_gateway.endpoints.upstream_answers import asks_upstream
from antiphon_gateway.errors import error_response
from antiphon_gateway.runtime.metered import Handler, MeteredRequest
from antiphon_gateway.runtime.request_fields import query_number

FORMAT = "gemini-interactions"


def _with_own_error(handler: Handler) -> Handler:
    """The handler with the error that this API returns for an unknown interaction."""

    @wraps(handler)
    async def handle(context: MeteredRequest) -> Response:
        try:
            return await handler(context)
        except UnknownResponse:
            message = f"Interaction with id {context.endpoint.resource!r} not found."
            return error_response(FORMAT, ProviderError(message, "not_found", 404))

    return handle


@_with_own_error
@asks_upstream
async def handle_get_interaction(context: MeteredRequest) -> Response:
    """Return an interaction as it is now, or its events with `stream=true`; `include_input=true` adds what it was asked."""
    query = context.request.query
    if query.get("stream") == "true":
        after = query_number(query, "last_event_id", -1, least=0, expected="the event_id of an event")
        return await followed_events(context, after)
    body = await current_object(context)
    return Response.json(await _with_input(context, body) if query.get("include_input") == "true" else body)


@_with_own_error
@asks_upstream
async def handle_delete_interaction(context: MeteredRequest) -> Response:
    """Delete an interaction; one that is generated in the background is cancelled."""
    await delete_answer(context)
    return Response.json({})


@_with_own_error
@asks_upstream
async def handle_cancel_interaction(context: MeteredRequest) -> Response:
    """Cancel an interaction that is generated in the background; one that is complete comes back as it is."""
    return Response.json(await cancelled_object(context) or await current_object(context))


async def _with_input(context: MeteredRequest, body: bytes) -> bytes:
    """The object with the steps of its request."""
    messages = (await answer_chain(context))[-1].input
    steps = formats[FORMAT].write_request(ModelRequest(messages=messages)).body["input"]
    return msgspec.json.encode({**msgspec.json.decode(body), "input": steps})
