"""Stored answers over HTTP: get, follow, cancel, delete, and list their input, as the Responses and Interactions APIs do.

One that is generated in this process is shown as it is now, one of another worker as it was stored last. One that only its
provider has (`StoredAnswer.provider`) is asked for there, with the key that created it; what comes back is as the provider wrote
it, except that `model` is the name that the client asked for, as in the answer to its first request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import wraps
from hashlib import blake2s
from typing import Any

import msgspec
from msgspec import structs

from antiphon.errors import TransportError, WireError
from antiphon.http.body import read_bounded
from antiphon.http.messages import Response
from antiphon.providers.engine.attempt import ForwardedRequest
from antiphon.providers.engine.provider import Provider
from antiphon.providers.engine.reply import StreamReply, error_from_transport
from antiphon.wire import formats
from antiphon.wire.openai_responses.item_ids import GENERATED_ID_MARK
from antiphon.wire.output import ModelOutput, ProviderError
from antiphon.wire.request import ModelRequest
from antiphon_gateway.endpoints.background import follow_answer
from antiphon_gateway.endpoints.pass_through import API_OF, forward, forward_url
from antiphon_gateway.errors import provider_error_response
from antiphon_gateway.generate.channels import Same
from antiphon_gateway.generate.frame import StreamFrame
from antiphon_gateway.generate.relay import Relay
from antiphon_gateway.runtime.body_fields import query_number, with_requested_model
from antiphon_gateway.runtime.metered import Handler, MeteredRequest
from antiphon_gateway.state.answers import StoredAnswer, StoredResponse
from antiphon_gateway.state.continuing import (
    FORMAT,
    own_messages,
    previous_response_id,
    to_provider_error,
    unknown_answer,
)
from antiphon_gateway.state.conversations import complete_item
from antiphon_gateway.state.generated import SHAPES
from antiphon_gateway.threads import STATE

INTERACTIONS = "gemini-interactions"
_MAX_BYTES = 256 * 1024 * 1024
_DEFAULT_LIMIT, _MAX_LIMIT = 20, 100


class FoundAnswer:
    """The answer that a request names: what is known of it now."""

    def __init__(self, metered: MeteredRequest, stored: StoredAnswer) -> None:
        self.metered = metered
        self.stored = stored
        self.key = metered.key.name, stored.id

    async def events(self, after: int) -> Response:
        """Its events after the one with index `after`. Raises `WireError` if it has none."""
        store, (owner, answer_id) = self.metered.services.answers, self.key
        has_ended = self.stored.status in ("complete", "ended")
        if has_ended and not await STATE.run(store.events, answer_id, owner, -1):
            raise WireError(
                f"stream: '{answer_id}' was not created with background: true, or ended too long ago; get it without stream"
            )
        return follow_answer(self.metered, self.key, after)

    async def chain(self) -> list[StoredResponse]:
        """The answer with its input, and all that it continues, the first one first.

        One that is not complete has the input of its request, and no output. Raises `UnknownResponse`.
        """
        store, (owner, answer_id) = self.metered.services.answers, self.key
        asked = await STATE.run(store.request, answer_id, owner)
        if not asked:
            return await STATE.run(store.chain, answer_id, owner=owner)
        request = formats[self.metered.endpoint.format].read_request(asked)
        previous = previous_response_id(request)
        earlier = await STATE.run(store.chain, previous, owner=owner) if previous else []
        return [*earlier, StoredResponse(answer_id, own_messages(request), ModelOutput(), self.stored.body)]

    async def cancel(self) -> bytes | None:
        """Cancel it and return its object; None if it was complete already."""
        services, (owner, answer_id) = self.metered.services, self.key
        if (cancelled := await services.background.cancel(self.key)) is not None:
            return cancelled
        if self.stored.status == "complete":
            return None
        if self.stored.status != "running":
            return self.stored.body
        await STATE.run(services.answers.request_cancel, answer_id, owner)
        return SHAPES[self.metered.endpoint.format](answer_id, b"").ended(self.stored.body, "cancelled", None)

    async def delete(self) -> None:
        """Delete it, and cancel it if it is running. Raises `UnknownResponse`."""
        services, (owner, answer_id) = self.metered.services, self.key
        await services.background.cancel(self.key)
        services.background.forget(self.key)
        await STATE.run(services.answers.delete, answer_id, owner)


def of_answer(handler: Callable[[FoundAnswer], Awaitable[Response]]) -> Handler:
    """A handler for a stored answer, by one for what was found. An answer that only its provider has is asked for there."""

    @wraps(handler)
    async def handle(context: MeteredRequest) -> Response:
        answer_id, format_name = context.endpoint.resource, context.endpoint.format
        stored = await context.services.background.find((context.key.name, answer_id), format_name)
        if stored is not None and not stored.provider:
            return await handler(FoundAnswer(context, stored))
        provider = context.loaded.providers.get(stored.provider) if stored is not None else None
        if stored is not None and provider is not None and provider.format == format_name:
            return await _ask(context, stored, provider)
        if format_name == INTERACTIONS:
            message = f"Interaction with id {answer_id!r} not found."
            return context.refuse(ProviderError(message, "not_found", 404))
        unknown = unknown_answer(answer_id)
        return context.refuse(to_provider_error(unknown), unknown.status)

    return handle


# Responses.


@of_answer
async def handle_get_response(answer: FoundAnswer) -> Response:
    """Return a response as it is now, or its events with `stream=true`."""
    query = answer.metered.request.query
    if query.get("stream") == "true":
        after = query_number(query, "starting_after", -1, least=0, expected="the sequence_number of an event")
        return await answer.events(after)
    return Response.json(answer.stored.body)


@of_answer
async def handle_delete_response(answer: FoundAnswer) -> Response:
    """Delete a response; one that is generated in the background is cancelled."""
    await answer.delete()
    return Response.json({"id": answer.stored.id, "object": "response", "deleted": True})


@of_answer
async def handle_cancel_response(answer: FoundAnswer) -> Response:
    """Cancel a response that is generated in the background."""
    cancelled = await answer.cancel()
    if cancelled is not None:
        return Response.json(cancelled)
    if msgspec.json.decode(answer.stored.body).get("background") is True:
        return Response.json(answer.stored.body)  # it was complete before the client knew
    raise WireError("only responses created with background: true can be cancelled")


@of_answer
async def handle_list_items(answer: FoundAnswer) -> Response:
    """List the input items of a response, including the responses it continues; also of one that is being generated."""
    return Response.json(list_input_items(await answer.chain(), answer.metered.request.query))


def list_input_items(chain: Sequence[StoredResponse], query: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A page of the input items of a response: the input and output of all responses before it, then its own input.

    Raises `WireError` for an invalid query.
    """
    return page_of_items(list(_items(chain)), query or {})


def page_of_items(items: list[dict[str, Any]], query: Mapping[str, str]) -> dict[str, Any]:
    """A page of items, the newest first unless `order` is `asc`. Raises `WireError` for an invalid query."""
    order, after = query.get("order") or "desc", query.get("after")
    if order not in ("asc", "desc"):
        raise WireError("order: expected 'asc' or 'desc'")
    if order == "desc":
        items.reverse()
    start = 0
    if after:
        start = next((index for index, item in enumerate(items, 1) if item.get("id") == after), -1)
        if start < 0:
            raise WireError("after: there is no item with that id")
    size = query_number(query, "limit", _DEFAULT_LIMIT, expected=f"a number from 1 to {_MAX_LIMIT}")
    size = min(size, _MAX_LIMIT)
    page = items[start : start + size]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0].get("id") if page else None,
        "last_id": page[-1].get("id") if page else None,
        "has_more": start + size < len(items),
    }


def _items(chain: Sequence[StoredResponse]) -> Iterator[dict[str, Any]]:
    for stored in chain:
        yield from _input_items(stored)
        if stored is not chain[-1]:
            output = msgspec.json.decode(stored.body).get("output")
            yield from (item for item in output or () if isinstance(item, dict))


def _input_items(stored: StoredResponse) -> Iterator[dict[str, Any]]:
    """Its input. Items that the client sent without an id get one here, the same each time."""
    if not stored.input:
        return
    stem = blake2s(stored.id.encode(), digest_size=10).hexdigest()
    written = formats[FORMAT].write_request(ModelRequest(messages=stored.input)).body["input"]
    for index, item in enumerate(written):
        yield complete_item(item, f"{GENERATED_ID_MARK}{stem}{index:02d}")


# Interactions.


@of_answer
async def handle_get_interaction(answer: FoundAnswer) -> Response:
    """Return an interaction as it is now, or its events with `stream=true`; `include_input=true` adds what it was asked."""
    query = answer.metered.request.query
    if query.get("stream") == "true":
        after = query_number(query, "last_event_id", -1, least=0, expected="the event_id of an event")
        return await answer.events(after)
    if query.get("include_input") != "true":
        return Response.json(answer.stored.body)
    messages = (await answer.chain())[-1].input
    steps = formats[INTERACTIONS].write_request(ModelRequest(messages=messages)).body["input"]
    return Response.json({**msgspec.json.decode(answer.stored.body), "input": steps})


@of_answer
async def handle_delete_interaction(answer: FoundAnswer) -> Response:
    """Delete an interaction; one that is generated in the background is cancelled."""
    await answer.delete()
    return Response.json({})


@of_answer
async def handle_cancel_interaction(answer: FoundAnswer) -> Response:
    """Cancel an interaction that is generated in the background; one that is complete comes back as it is."""
    return Response.json(await answer.cancel() or answer.stored.body)


# Answers that only their provider has.


async def _ask(metered: MeteredRequest, known: StoredAnswer, provider: Provider) -> Response:
    request, format_name = metered.request, metered.endpoint.format
    prepared = ForwardedRequest(
        provider,
        "",
        forward_url(provider, API_OF[format_name], request),
        (request.body,) if request.body else (),
        {},
        method=request.method,
        preferred_key=known.credential,
    )
    response = await forward(metered, prepared)
    if response.status >= 400 or not isinstance(response.body, Relay):
        return response
    reply = response.body.reply
    content_type = response.headers.get("content-type", "application/json")
    if content_type.startswith("text/event-stream"):
        headers = {"content-type": content_type, "cache-control": "no-cache"}
        return Response(headers=headers, body=_events(metered, reply, provider, known.model))
    try:
        body = await read_bounded(reply.response, _MAX_BYTES)
    except TransportError as lost:
        metered.record.error = error_from_transport(lost)
        return provider_error_response(format_name, metered.record.error, provider.name)
    finally:
        await reply.aclose()
    if request.method == "DELETE":
        await STATE.run(metered.services.answers.delete, known.id, metered.key.name)
    if not request.path.rstrip("/").endswith("/input_items"):
        body = with_requested_model(format_name, body, known.model)
    return Response(headers={"content-type": content_type}, body=body)


def _events(metered: MeteredRequest, reply: StreamReply, provider: Provider, model: str) -> Relay:
    """The events of a stream that the client follows. What was used for it was charged with its first request."""
    record, wire = metered.record, formats[metered.endpoint.format]
    frame = StreamFrame(wire, model, metered.loaded.config.gateway.keep_alive_seconds)
    channel = Same(frame, structs.replace(record), provider.scrub)
    return Relay(reply, channel, record, deadline=metered.request.deadline, on_end=metered.end, frame=frame)
