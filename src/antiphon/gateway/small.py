"""The small endpoints: models, token counts, and the responses that are kept here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from antiphon.gateway.allowed import allowed_targets, model_not_found
from antiphon.gateway.asked import Asked
from antiphon.gateway.count import count_address, count_here, counted_body, read_counted
from antiphon.gateway.message import Answer
from antiphon.gateway.models import ListedModel, get_model, list_models, listed_models
from antiphon.gateway.offline import OfflineUpstream
from antiphon.gateway.refusal import passed_on
from antiphon.gateway.response_items import deleted, item_page
from antiphon.gateway.upstream import Upstream, UpstreamFailed, WholeReply


async def models_listed(asked: Asked) -> Answer:
    """The models this client may ask for."""
    models = listed_models(asked.running.routes, asked.key.may_use)
    return Answer.json(list_models(asked.door.format, models, asked.request.query))


async def model_shown(asked: Asked) -> Answer:
    """One of them."""
    name = asked.door.name
    found = allowed_targets(asked, name)
    if not found:
        return model_not_found(asked, name)
    return Answer.json(get_model(asked.door.format, ListedModel(name, found[0].provider)))


async def tokens_counted(asked: Asked) -> Answer:
    """How many tokens a request takes: asked of a provider that counts in the client's format, else counted here."""
    request, door = asked.request, asked.door
    model = door.name or read_counted(door.format, request.body).model
    found = _first_target(asked, model)
    if found is None:
        return model_not_found(asked, model)
    upstream, name = found
    if isinstance(upstream, Upstream) and upstream.format == door.format:
        address = count_address(upstream.preset, upstream.base_url, name, upstream.api_version)
        if address is not None:
            return await _passed_through(asked, upstream, name, counted_body(door.format, request.body, name), address)
    return await asyncio.to_thread(count_here, door.format, request.body)


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


SMALL: Mapping[str, Callable[[Asked], Awaitable[Answer]]] = {
    "list_models": models_listed,
    "get_model": model_shown,
    "count": tokens_counted,
    "get_response": response_shown,
    "delete_response": response_deleted,
    "list_items": items_listed,
}
"""By the action of the door."""


async def _passed_through(asked: Asked, upstream: Upstream, model: str, body: bytes, address: str) -> Answer:
    try:
        reply = await upstream.ask(model, [body], streams=False, headers={}, attempts=[], address=address)
    except UpstreamFailed as failure:
        return passed_on(asked.door.format, failure.error, upstream.name)
    assert isinstance(reply, WholeReply), "no stream was asked for"
    return Answer.json(reply.body)


def _first_target(asked: Asked, model: str) -> tuple[Upstream | OfflineUpstream, str] | None:
    targets = allowed_targets(asked, model)
    return (asked.running.upstreams[targets[0].provider], targets[0].model) if targets else None
