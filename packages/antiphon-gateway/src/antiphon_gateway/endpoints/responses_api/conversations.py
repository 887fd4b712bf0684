"""Conversations over HTTP: create, get, update, delete, and their items, as OpenAI's `/v1/conversations` does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from antiphon.errors import WireError
from antiphon.http.messages import Response
from antiphon_gateway.endpoints.answers import page_of_items
from antiphon_gateway.runtime.body_fields import read_object
from antiphon_gateway.runtime.metered import MeteredRequest
from antiphon_gateway.state.conversations import ConversationStore
from antiphon_gateway.threads import STATE

T = TypeVar("T")

_MAX_ITEMS = 20
"""How many items one request may add, as with OpenAI."""
_MAX_METADATA = 16


async def handle_create_conversation(context: MeteredRequest) -> Response:
    """Create a conversation, with metadata and items if given."""
    body = _read(context)
    store, items = context.services.conversations, _items(body) if body.get("items") else ()
    return Response.json(await STATE.run(store.create, context.key.name, _metadata(body), items))


async def handle_get_conversation(context: MeteredRequest) -> Response:
    """Return a conversation."""
    return Response.json(await _run(context, ConversationStore.get))


async def handle_update_conversation(context: MeteredRequest) -> Response:
    """Replace the metadata of a conversation."""
    return Response.json(await _run(context, ConversationStore.update, _metadata(_read(context))))


async def handle_delete_conversation(context: MeteredRequest) -> Response:
    """Delete a conversation and its items."""
    await _run(context, ConversationStore.delete)
    return Response.json({"id": context.endpoint.resource, "object": "conversation.deleted", "deleted": True})


async def handle_add_conversation_items(context: MeteredRequest) -> Response:
    """Add items to a conversation."""
    added = await _run(context, ConversationStore.add, _items(_read(context)))
    return Response.json(page_of_items(added, {"order": "asc", "limit": str(_MAX_ITEMS)}))


async def handle_list_conversation_items(context: MeteredRequest) -> Response:
    """A page of the items of a conversation."""
    return Response.json(page_of_items(await _run(context, ConversationStore.items), context.request.query))


async def handle_get_conversation_item(context: MeteredRequest) -> Response:
    """Return one item of a conversation."""
    return Response.json(await _run(context, ConversationStore.item))


async def handle_delete_conversation_item(context: MeteredRequest) -> Response:
    """Delete one item of a conversation. Returns the conversation."""
    return Response.json(await _run(context, ConversationStore.delete_item))


async def _run(context: MeteredRequest, call: Callable[..., T], *given: Any) -> T:
    """What a method of the store answers about the conversation in the path, or about its item there."""
    conversation, _, item = context.endpoint.resource.partition("/items/")
    named = (item,) if item else ()
    return await STATE.run(call, context.services.conversations, conversation, context.key.name, *named, *given)


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
