"""Stored interactions over HTTP: get, follow, cancel and delete, as the Interactions API does."""

from __future__ import annotations

import msgspec

from antiphon.errors import UnknownResponse, WireError
from antiphon.gateway.context import RequestContext
from antiphon.gateway.endpoints.background import cancelled_object, current_object, delete_answer, followed_events
from antiphon.gateway.http.errors import error_response
from antiphon.gateway.http.messages import Response
from antiphon.gateway.threads import run_in_thread
from antiphon.wire import formats
from antiphon.wire.output import ProviderError
from antiphon.wire.request import ModelRequest

FORMAT = "gemini-interactions"


async def handle_get_interaction(context: RequestContext) -> Response:
    """Return an interaction as it is now, or its events with `stream=true`; `include_input=true` adds what it was asked."""
    query = context.request.query
    try:
        if query.get("stream") == "true":
            return followed_events(context, _event_number(query.get("last_event_id")))
        body = await current_object(context)
        if query.get("include_input") == "true":
            body = await _with_input(context, body)
    except UnknownResponse:
        return _not_found(context)
    return Response.json(body)


async def handle_delete_interaction(context: RequestContext) -> Response:
    """Delete an interaction; one that is generated in the background is cancelled."""
    try:
        await delete_answer(context)
    except UnknownResponse:
        return _not_found(context)
    return Response.json({})


async def handle_cancel_interaction(context: RequestContext) -> Response:
    """Cancel an interaction that is generated in the background; one that is complete comes back as it is."""
    try:
        return Response.json(await cancelled_object(context) or await current_object(context))
    except UnknownResponse:
        return _not_found(context)


async def _with_input(context: RequestContext, body: bytes) -> bytes:
    """The object with the steps of its request. One that is not complete is not stored with them."""
    services, owner = context.services, context.key.name
    try:
        stored = await run_in_thread(services.state.get, context.endpoint.resource, owner=owner)
    except UnknownResponse:
        return body
    steps = formats[FORMAT].write_request(ModelRequest(messages=stored.input)).body["input"]
    return msgspec.json.encode({**msgspec.json.decode(body), "input": steps})


def _not_found(context: RequestContext) -> Response:
    message = f"Interaction with id {context.endpoint.resource!r} not found."
    return error_response(FORMAT, ProviderError(message, "not_found", 404))


def _event_number(given: str | None) -> int:
    if not given:
        return -1
    if not (given.isascii() and given.isdigit() and len(given) < 10):
        raise WireError(f"last_event_id: expected the event_id of an event, got {given[:20]!r}")
    return int(given)
