"""Stored responses over HTTP: get, follow, cancel, delete, and list input items as the Responses API does.

The input items of a response are the input and output of all responses before it, then its own input. Items that the client
sent without an id get one here, the same each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2s
from typing import Any

import msgspec

from antiphon.errors import WireError
from antiphon.http.messages import Response
from antiphon.wire import formats
from antiphon.wire.openai_responses.item_ids import GENERATED_ID_MARK
from antiphon.wire.request import ModelRequest
from antiphon_gateway.endpoints.background import (
    answer_chain,
    cancelled_object,
    current_object,
    delete_answer,
    followed_events,
)
from antiphon_gateway.endpoints.upstream_answers import asks_upstream
from antiphon_gateway.runtime.metered import MeteredRequest
from antiphon_gateway.runtime.request_fields import query_number
from antiphon_gateway.state.conversations import complete_item
from antiphon_gateway.state.store import FORMAT, StoredResponse

_DEFAULT_LIMIT, _MAX_LIMIT = 20, 100


@asks_upstream
async def handle_get_response(context: MeteredRequest) -> Response:
    """Return a response as it is now, or its events with `stream=true`."""
    query = context.request.query
    if query.get("stream") == "true":
        after = query_number(query, "starting_after", -1, least=0, expected="the sequence_number of an event")
        return await followed_events(context, after)
    return Response.json(await current_object(context))


@asks_upstream
async def handle_delete_response(context: MeteredRequest) -> Response:
    """Delete a response; one that is generated in the background is cancelled."""
    await delete_answer(context)
    return Response.json(deletion_body(context.endpoint.resource))


@asks_upstream
async def handle_cancel_response(context: MeteredRequest) -> Response:
    """Cancel a response that is generated in the background."""
    cancelled = await cancelled_object(context)
    if cancelled is not None:
        return Response.json(cancelled)
    body = await current_object(context)
    if msgspec.json.decode(body).get("background") is True:
        return Response.json(body)  # it was complete before the client knew
    raise WireError("only responses created with background: true can be cancelled")


@asks_upstream
async def handle_list_items(context: MeteredRequest) -> Response:
    """List the input items of a response, including the responses it continues; also of one that is being generated."""
    return Response.json(list_input_items(await answer_chain(context), context.request.query))


def list_input_items(chain: Sequence[StoredResponse], query: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A page of the input items of a response. Raises `WireError` for an invalid query."""
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


def deletion_body(response_id: str) -> dict[str, Any]:
    """The reply to a deletion."""
    return {"id": response_id, "object": "response", "deleted": True}


def _items(chain: Sequence[StoredResponse]) -> Iterator[dict[str, Any]]:
    for stored in chain:
        yield from _input_items(stored)
        if stored is not chain[-1]:
            output = msgspec.json.decode(stored.body).get("output")
            yield from (item for item in output or () if isinstance(item, dict))


def _input_items(stored: StoredResponse) -> Iterator[dict[str, Any]]:
    if not stored.input:
        return
    stem = blake2s(stored.id.encode(), digest_size=10).hexdigest()
    written = formats[FORMAT].write_request(ModelRequest(messages=stored.input)).body["input"]
    for index, item in enumerate(written):
        yield complete_item(item, f"{GENERATED_ID_MARK}{stem}{index:02d}")
