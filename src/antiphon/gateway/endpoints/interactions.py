"""Stored interactions over HTTP: get, follow, cancel and delete, as the Interactions API does."""

from __future__ import annotations

from functools import wraps

import msgspec

from antiphon.errors import UnknownResponse, WireError
from antiphon.gateway.context import RequestContext
from antiphon.gateway.endpoints.background import (
    answer_chain,
    cancelled_object,
    current_object,
    delete_answer,
    followed_events,
)
from antiphon.gateway.endpoints.upstream_answers import Handler, asks_upstream
from antiphon.gateway.http.errors import error_response
from antiphon.gateway.http.messages import Response
from antiphon.wire import formats
from antiphon.wire.output import ProviderError
from antiphon.wire.request import ModelRequest

FORMAT = "gemini-interactions"


def _in_own_words(handler: Handler) -> Handler:
    """The handler, which says in the words of this API that there is no such interaction."""

    @wraps(handler)
    async def handle(context: RequestContext) -> Response:
        try:
            return await handler(context)
        except UnknownResponse:
            message = f"Interaction with id {context.endpoint.resource!r} not found."
            return error_response(FORMAT, ProviderError(message, "not_found", 404))

    return handle


@_in_own_words
@asks_upstream
async def handle_get_interaction(context: RequestContext) -> Response:
    """Return an interaction as it is now, or its events with `stream=true`; `include_input=true` adds what it was asked."""
    query = context.request.query
    if query.get("stream") == "true":
        return await followed_events(context, _event_number(query.get("last_event_id")))
    body = await current_object(context)
    return Response.json(await _with_input(context, body) if query.get("include_input") == "true" else body)


@_in_own_words
@asks_upstream
async def handle_delete_interaction(context: RequestContext) -> Response:
    """Delete an interaction; one that is generated in the background is cancelled."""
    await delete_answer(context)
    return Response.json({})


@_in_own_words
@asks_upstream
async def handle_cancel_interaction(context: RequestContext) -> Response:
    """Cancel an interaction that is generated in the background; one that is complete comes back as it is."""
    return Response.json(await cancelled_object(context) or await current_object(context))


async def _with_input(context: RequestContext, body: bytes) -> bytes:
    """The object with the steps of its request."""
    messages = (await answer_chain(context))[-1].input
    steps = formats[FORMAT].write_request(ModelRequest(messages=messages)).body["input"]
    return msgspec.json.encode({**msgspec.json.decode(body), "input": steps})


def _event_number(given: str | None) -> int:
    if not given:
        return -1
    if not (given.isascii() and given.isdigit() and len(given) < 10):
        raise WireError(f"last_event_id: expected the event_id of an event, got {given[:20]!r}")
    return int(given)
