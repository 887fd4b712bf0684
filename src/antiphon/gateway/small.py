"""The small endpoints: models, token counts, embeddings, and the responses that are kept here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from antiphon.errors import InvalidModelName, RoutingError
from antiphon.gateway.asked import Asked
from antiphon.gateway.count import count_address, count_here, counted_body, read_counted
from antiphon.gateway.embeddings import embeddings_address, no_embeddings
from antiphon.gateway.message import Answer
from antiphon.gateway.model_field import read_model, with_model
from antiphon.gateway.models import ListedModel, get_model, list_models, listed_models, unknown_model
from antiphon.gateway.offline import OfflineUpstream
from antiphon.gateway.refusal import passed_on, refused
from antiphon.gateway.response_items import deleted, item_page
from antiphon.gateway.upstream import Upstream, UpstreamFailed, WholeReply
from antiphon.providers.model_name import check_model_name
from antiphon.providers.routes import Target


async def models_listed(asked: Asked) -> Answer:
    """The models this client may ask for."""
    models = listed_models(asked.running.routes, asked.key.may_use)
    return Answer.json(list_models(asked.door.format, models, asked.request.query))


async def model_shown(asked: Asked) -> Answer:
    """One of them."""
    name = asked.door.name
    found = _targets(asked, name)
    if not found:
        return _unknown(asked, name)
    return Answer.json(get_model(asked.door.format, ListedModel(name, found[0].provider)))


async def tokens_counted(asked: Asked) -> Answer:
    """How many tokens a request takes: asked of a provider that counts in the client's format, else counted here."""
    request, door = asked.request, asked.door
    model = door.name or read_counted(door.format, request.body).model
    found = _first_target(asked, model)
    if found is None:
        return _unknown(asked, model)
    upstream, name = found
    if isinstance(upstream, Upstream) and upstream.format == door.format:
        address = count_address(upstream.preset, upstream.base_url, name)
        if address is not None:
            return await _passed_through(asked, upstream, name, counted_body(door.format, request.body, name), address)
    return await asyncio.to_thread(count_here, door.format, request.body)


async def embedded(asked: Asked) -> Answer:
    """Embeddings, by a provider that makes them."""
    body = asked.request.body
    model = read_model(body)
    found = _first_target(asked, model)
    if found is None:
        return _unknown(asked, model)
    upstream, name = found
    address = _embeds_at(upstream, name)
    if address is None or not isinstance(upstream, Upstream):
        able = [other.name for other in asked.running.upstreams.values() if _embeds_at(other, "m")]
        return refused(asked.door.format, no_embeddings(model, upstream.name, able))
    return await _passed_through(asked, upstream, name, with_model(body, name), address)


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
    "embed": embedded,
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
    targets = _targets(asked, model)
    return (asked.running.upstreams[targets[0].provider], targets[0].model) if targets else None


def _targets(asked: Asked, model: str) -> list[Target]:
    """Whom to ask for a model; nobody if there is no such model, or not for this client. Raises `InvalidModelName`."""
    check_model_name(model)
    if not asked.key.may_use(model):
        return []
    try:
        return asked.running.targets(model)
    except InvalidModelName:
        raise
    except RoutingError:
        return []


def _embeds_at(upstream: Upstream | OfflineUpstream, model: str) -> str | None:
    if not isinstance(upstream, Upstream):
        return None
    return embeddings_address(upstream.preset, upstream.base_url, model)


def _unknown(asked: Asked, name: str) -> Answer:
    models = listed_models(asked.running.routes, asked.key.may_use)
    return refused(asked.door.format, unknown_model(name, models))
