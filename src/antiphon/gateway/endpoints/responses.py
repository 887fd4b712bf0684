"""The input items of a kept response, listed as the Responses API lists them.

They are all that the response was made from: the input and output of everything it goes on from, then its own input. Items that
the client sent without an id get one here, which is the same each time they are listed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2s
from typing import Any

import msgspec

from antiphon.errors import WireError
from antiphon.gateway.context import Asked
from antiphon.gateway.endpoints.response_store import FORMAT, KeptResponse
from antiphon.gateway.http.messages import Answer
from antiphon.wire import formats
from antiphon.wire.openai_responses.content import GENERATED_ID_MARK
from antiphon.wire.request import ModelRequest


async def response_shown(asked: Asked) -> Answer:
    """A response that was kept here."""
    return Answer.json(asked.services.state.get(asked.door.name, owner=asked.key.name).body)


async def response_deleted(asked: Asked) -> Answer:
    """A response that was kept here is forgotten."""
    asked.services.state.delete(asked.door.name, owner=asked.key.name)
    return Answer.json(deleted(asked.door.name))


async def items_listed(asked: Asked) -> Answer:
    """What was put in for a response that was kept here, and what it went on from."""
    context = asked.services.state.context(asked.door.name, owner=asked.key.name)
    return Answer.json(item_page(context, asked.request.query))


_USUAL, _MOST = 20, 100
_PREFIXES = {"function_call": "fc", "custom_tool_call": "ctc", "reasoning": "rs"}


def item_page(context: Sequence[KeptResponse], query: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A page of items, the newest first unless `order` says `asc`. Raises `WireError` for a query that makes no sense."""
    query = query or {}
    order, after = query.get("order") or "desc", query.get("after")
    if order not in ("asc", "desc"):
        raise WireError("order: expected 'asc' or 'desc'")
    items = list(_items(context))
    if order == "desc":
        items.reverse()
    start = 0
    if after:
        start = next((place for place, item in enumerate(items, 1) if item.get("id") == after), -1)
        if start < 0:
            raise WireError("after: the response has no item with that id")
    size = _size(query.get("limit"))
    page = items[start : start + size]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0].get("id") if page else None,
        "last_id": page[-1].get("id") if page else None,
        "has_more": start + size < len(items),
    }


def deleted(response_id: str) -> dict[str, Any]:
    """What is answered when a response was deleted."""
    return {"id": response_id, "object": "response", "deleted": True}


def _items(context: Sequence[KeptResponse]) -> Iterator[dict[str, Any]]:
    for kept in context:
        yield from _input_items(kept)
        if kept is not context[-1]:
            output = msgspec.json.decode(kept.body).get("output")
            yield from (item for item in output or () if isinstance(item, dict))


def _input_items(kept: KeptResponse) -> Iterator[dict[str, Any]]:
    if not kept.input:
        return
    stem = blake2s(kept.id.encode(), digest_size=10).hexdigest()
    written = formats[FORMAT].write_request(ModelRequest(messages=kept.input)).body["input"]
    for place, item in enumerate(written):
        kind = item.setdefault("type", "message")
        item.setdefault("id", f"{_PREFIXES.get(kind, 'msg')}{GENERATED_ID_MARK}{stem}{place:02d}")
        if kind == "message":
            item.setdefault("status", "completed")
            if isinstance(item.get("content"), str):
                part = "output_text" if item.get("role") == "assistant" else "input_text"
                item["content"] = [{"type": part, "text": item["content"]}]
        yield item


def _size(given: str | None) -> int:
    if not given:
        return _USUAL
    if not (given.isascii() and given.isdigit() and len(given) < 10 and int(given) > 0):
        raise WireError(f"limit: expected a number from 1 to {_MOST}, got {given[:20]!r}")
    return min(int(given), _MOST)
