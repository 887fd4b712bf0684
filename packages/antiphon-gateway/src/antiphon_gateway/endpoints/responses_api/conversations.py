"""Conversations over HTTP: create, get, update, delete, and their items, as OpenAI's `/v1/conversations` does."""

from __future__ import annotations

from typing import Any

from antiphon.errors import WireError
from antiphon.http.messages import Response
from antiphon_gateway.endpoints.answers import page_of_items
from antiphon_gateway.runtime.body_fields import read_object
from antiphon_gateway.runtime.metered import MeteredRequest
from antiphon_gateway.threads import STATE

_MAX_ITEMS = 20
"""How many items one request may add, as with OpenAI."""
_MAX_METADATA = 16


async def handle_create_conversation(context: MeteredRequest) -> Response:
    """Create a conversation, with metadata and items if given."""
    body = _read(context)
    store, owner = context.services.conversations, context.key.name
    created = await STATE.run(store.create, owner, _metadata(body), _items(body) if body.get("items") else ())
    return Response.json(created.body)


async def handle_get_conversation(context: MeteredRequest) -> Response:
    """Return a conversation."""
    store = context.services.conversations
    return Response.json((await STATE.run(store.get, context.endpoint.resource, context.key.name)).body)


async def handle_update_conversation(context: MeteredRequest) -> Response:
    """Replace the metadata of a conversation."""
    metadata = _metadata(_read(context))
    store = context.services.conversations
    updated = await STATE.run(store.update, context.endpoint.resource, context.key.name, metadata)
    return Response.json(updated.body)


async def handle_delete_conversation(context: MeteredRequest) -> Response:
    """Delete a conversation and its items."""
    name = context.endpoint.resource
    await STATE.run(context.services.conversations.delete, name, context.key.name)
    return Response.json({"id": name, "object": "conversation.deleted", "deleted": True})


async def handle_add_conversation_items(context: MeteredRequest) -> Response:
    """Add items to a conversation."""
    items = _items(_read(context))
    store = context.services.conversations
    added = await STATE.run(store.add, context.endpoint.resource, context.key.name, items)
    return Response.json(page_of_items(added, {"order": "asc", "limit": str(_MAX_ITEMS)}))


async def handle_list_conversation_items(context: MeteredRequest) -> Response:
    """A page of the items of a conversation."""
    store = context.services.conversations
    items = await STATE.run(store.items, context.endpoint.resource, context.key.name)
    return Response.json(page_of_items(items, context.request.query))


async def handle_get_conversation_item(context: MeteredRequest) -> Response:
    """Return one item of a conversation."""
    conversation, item = _split(context)
    return Response.json(await STATE.run(context.services.conversations.item, conversation, context.key.name, item))


async def handle_delete_conversation_item(context: MeteredRequest) -> Response:
    """Delete one item of a conversation. Returns the conversation."""
    conversation, item = _split(context)
    store = context.services.conversations
    return Response.json((await STATE.run(store.delete_item, conversation, context.key.name, item)).body)


def _split(context: MeteredRequest) -> tuple[str, str]:
    """The ids of the conversation and the item in the path."""
    conversation, _, item = context.endpoint.resource.partition("/items/")
    return conversation, item


def _read(context: MeteredRequest) -> dict[str, Any]:
    return read_object(context.request.body or b"{}")


def _metadata(body: dict[str, Any]) -> dict[str, Any]:
    metadata = body.get("metadata") or {}
    if not isinstance(metadata, dict) or len(metadata) > _MAX_METADATA:
        raise WireError(f"metadata: expected an object with at most {_MAX_METADATA} fields")
    return metadata


def _items(body: dict[str, Any]) -> list[Any]:
    items = body.get("items")
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise WireError("items: expected an array of items")
    if len(items) > _MAX_ITEMS:
        raise WireError(f"items: at most {_MAX_ITEMS} in one request, got {len(items)}")
    return items
