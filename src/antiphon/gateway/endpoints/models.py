"""The models a client may use, listed in the shape of the client's own API.

The list comes from the routes. A route with a plain name is listed under it; a glob as the model of its first target, if that
name routes to the same model. If that gives no name at all, the providers are asked (`provider_models`). The order is that of
the configuration, for pages too.

Shapes: OpenAI returns everything at once; Anthropic pages by `limit`, `after_id` and `before_id`; Gemini by `pageSize` and
`pageToken`, with `models/` before every name. The creation time of a model is not known and given as the beginning of 1970.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from msgspec import Struct

from antiphon.errors import InvalidModelName, RoutingError, WireError
from antiphon.gateway.context import RequestContext
from antiphon.gateway.endpoints.request_fields import query_number
from antiphon.gateway.http.errors import error_response
from antiphon.gateway.http.messages import Response
from antiphon.providers.routes import Route, Target, check_model_name
from antiphon.wire.output import ProviderError

Body: TypeAlias = dict[str, Any]
Query: TypeAlias = Mapping[str, str]

_GLOB = frozenset("*?[")
_PREFIX = "models/"
_MAX_SUGGESTIONS = 20
_METHODS = ("generateContent", "streamGenerateContent", "countTokens")
_PAGE_SIZES = {"limit": (20, 1000), "pageSize": (50, 1000)}
"""The default and the maximum number of models per page."""


class ModelEntry(Struct, frozen=True):
    """A model that can be requested by `name`; `provider` is its first target."""

    name: str
    provider: str = ""


async def handle_list_models(context: RequestContext) -> Response:
    """List the models this client may use."""
    models = await usable_models(context)
    return Response.json(list_models(context.endpoint.format, models, context.request.query))


async def usable_models(context: RequestContext) -> tuple[ModelEntry, ...]:
    """The models this client may use."""
    may_use = context.key.may_use
    models = visible_models(context.loaded.routes, may_use)
    if not models:  # every route is a glob
        found = await context.loaded.provider_models.names(context.loaded)
        models = tuple(ModelEntry(name, provider) for name, provider in found if may_use(name))
    return models


async def handle_get_model(context: RequestContext) -> Response:
    """Return one of them."""
    name = context.endpoint.resource
    found = allowed_targets(context, name)
    if not found:
        return model_not_found(context, name)
    return Response.json(get_model(context.endpoint.format, ModelEntry(name, found[0].provider)))


def visible_models(routes: Sequence[Route], may_use: Callable[[str], bool] | None = None) -> tuple[ModelEntry, ...]:
    """The models with a name of their own, in the order of the routes. `may_use` selects those this client may see."""
    found: dict[str, ModelEntry] = {}
    for route in routes:
        for name in _names(routes, route):
            if may_use is None or may_use(name):
                found.setdefault(name, ModelEntry(name, _provider(route)))
    return tuple(found.values())


def list_models(shape: str, models: Sequence[ModelEntry], query: Query | None = None) -> Body:
    """A page of `models` in the format `shape`. Raises `WireError` for an invalid query."""
    if shape == "anthropic":
        return _anthropic_page(models, query or {})
    if shape == "gemini":
        return _gemini_page(models, query or {})
    return {"object": "list", "data": [get_model(shape, model) for model in models]}


def get_model(shape: str, model: ModelEntry) -> Body:
    """One model in the format `shape`."""
    if shape == "anthropic":
        return {
            "type": "model",
            "id": model.name,
            "display_name": model.name,
            "created_at": "1970-01-01T00:00:00Z",
            "lifecycle": "active",
        }
    if shape == "gemini":
        return {
            "name": _PREFIX + model.name,
            "version": "1",
            "displayName": model.name,
            "supportedGenerationMethods": list(_METHODS),
        }
    return {"id": model.name, "object": "model", "created": 0, "owned_by": model.provider or "antiphon"}


def unknown_model_error(name: str, models: Sequence[ModelEntry]) -> ProviderError:
    """The error message for an unknown name: which names exist, the most similar first."""
    names = [model.name for model in models]
    near = get_close_matches(name, names, n=3)
    others = [other for other in names if other not in near]
    shown = (near + others)[:_MAX_SUGGESTIONS]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    there = f"There are: {', '.join(shown)}{more}." if shown else "No models are available to this key."
    short_name = name if len(name) <= 200 else f"{name[:200]}…"
    return ProviderError(
        f"The model `{short_name}` does not exist or you do not have access to it. {there}",
        "not_found",
        404,
        param="model",
    )


def _names(routes: Sequence[Route], route: Route) -> Iterator[str]:
    if not _GLOB & set(route.pattern):
        yield route.pattern
        return
    target = route.targets[0]
    if "*" in target:
        return
    for name in (target.partition("/")[2], target):
        if name and _route_of(routes, name) is route:
            yield name
            return


def _route_of(routes: Sequence[Route], name: str) -> Route | None:
    return next((route for route in routes if fnmatchcase(name, route.pattern)), None)


def _provider(route: Route) -> str:
    return route.targets[0].partition("/")[0]


def _anthropic_page(models: Sequence[ModelEntry], query: Query) -> Body:
    size = _page_size(query, "limit")
    after, before = query.get("after_id"), query.get("before_id")
    if after and before:
        raise WireError("after_id: give after_id or before_id, not both")
    if before:
        end = _index_of(models, before, "before_id")
        start = max(end - size, 0)
        has_more = start > 0
    else:
        start = _index_of(models, after, "after_id") + 1 if after else 0
        end = start + size
        has_more = end < len(models)
    page = [get_model("anthropic", model) for model in models[start:end]]
    return {
        "data": page,
        "has_more": has_more,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
    }


def _gemini_page(models: Sequence[ModelEntry], query: Query) -> Body:
    size = _page_size(query, "pageSize")
    token = query.get("pageToken")
    start = _index_of(models, _decode_page_token(token), "pageToken") + 1 if token else 0
    page = models[start : start + size]
    body: Body = {"models": [get_model("gemini", model) for model in page]}
    if start + size < len(models):
        body["nextPageToken"] = urlsafe_b64encode(page[-1].name.encode()).decode()
    return body


def _decode_page_token(token: str) -> str:
    """The name of the model after which the page of a token begins."""
    try:
        return urlsafe_b64decode(token).decode()
    except (binascii.Error, ValueError):
        raise WireError("pageToken: invalid; request the first page again") from None


def _index_of(models: Sequence[ModelEntry], name: str, field: str) -> int:
    for place, model in enumerate(models):
        if model.name == name:
            return place
    raise WireError(f"{field}: no such page; request the first page again")


def _page_size(query: Query, field: str) -> int:
    default, most = _PAGE_SIZES[field]
    return min(query_number(query, field, default, expected=f"a number from 1 to {most}"), most)


def allowed_targets(context: RequestContext, model: str) -> list[Target]:
    """The targets of a model, in order; empty if it does not exist, or not for this client. Raises `InvalidModelName`."""
    check_model_name(model)
    if not context.key.may_use(model):
        return []
    try:
        return context.loaded.resolve(model)
    except InvalidModelName:
        raise
    except RoutingError:
        return []


def model_not_found(context: RequestContext, name: str) -> Response:
    """A 404 that names the models this client may use."""
    models = visible_models(context.loaded.routes, context.key.may_use)
    return error_response(context.endpoint.format, unknown_model_error(name, models))
