"""The models a client may use, listed in the shape of the client's own API.

The list comes from the routes (`runtime.model_names`). If that gives no name at all, the providers are asked (`ProviderModels`).
The order is that of the configuration, for pages too.

Shapes: OpenAI returns everything at once; Anthropic pages by `limit`, `after_id` and `before_id`; Gemini by `pageSize` and
`pageToken`, with `models/` before every name. The creation time of a model is not known and given as the beginning of 1970.

Ollama's `/api/tags` and `/api/show` have the same models. They are not files on this machine, so sizes are 0 and digests are made
from the name; `/api/ps` is empty.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, TypeAlias

from antiphon.errors import WireError
from antiphon.http.messages import Response
from antiphon_gateway.runtime.body_fields import query_number, read_object
from antiphon_gateway.runtime.metered import MeteredRequest
from antiphon_gateway.runtime.model_names import ModelEntry, visible_models

Body: TypeAlias = dict[str, Any]
Query: TypeAlias = Mapping[str, str]

_PREFIX = "models/"
_METHODS = ("generateContent", "streamGenerateContent", "countTokens")
_PAGE_SIZES = {"limit": (20, 1000), "pageSize": (50, 1000)}
"""The default and the maximum number of models per page."""


async def handle_list_models(context: MeteredRequest) -> Response:
    """List the models this client may use."""
    models = await usable_models(context)
    return Response.json(list_models(context.endpoint.format, models, context.request.query))


async def usable_models(context: MeteredRequest) -> tuple[ModelEntry, ...]:
    """The models this client may use."""
    may_use = context.key.may_use
    models = visible_models(context.loaded.routes, may_use)
    if not models:  # every route is a glob
        found = await context.loaded.provider_models.names(context.loaded)
        models = tuple(ModelEntry(name, provider) for name, provider in found if may_use(name))
    return models


async def handle_get_model(context: MeteredRequest) -> Response:
    """Return one of them."""
    name = context.endpoint.resource
    found = context.targets(name)
    return Response.json(get_model(context.endpoint.format, ModelEntry(name, found[0].provider)))


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


API_VERSION = "0.12.6"
"""The version of Ollama whose API this is. Clients compare it with the one they need."""
_MODIFIED_AT = "1970-01-01T00:00:00Z"


async def handle_tags(context: MeteredRequest) -> Response:
    """The models a client may use."""
    return Response.json({"models": [_entry(model) for model in await usable_models(context)]})


async def handle_show(context: MeteredRequest) -> Response:
    """What is known about one model. Raises `WireError`."""
    body = read_object(context.request.body)
    name = body.get("model") or body.get("name")
    if not isinstance(name, str):
        raise WireError("model: expected the name of a model")
    targets = context.targets(name)
    provider, model = context.loaded.providers[targets[0].provider], targets[0].model
    known = provider.capabilities_of(model)
    can = ["completion", "tools"]
    can += ["vision"] if known.accepts_media("image") else []
    can += ["thinking"] if known.thinking and known.thinking != ("off",) else []
    family = provider.name
    info: dict[str, Any] = {"general.architecture": family, "general.basename": model}
    if known.context_window:
        info[f"{family}.context_length"] = known.context_window
    return Response.json(
        {
            "modelfile": f"FROM {targets[0]}",
            "parameters": "",
            "template": "",
            "details": _details(family),
            "model_info": info,
            "capabilities": can,
            "modified_at": _MODIFIED_AT,
        }
    )


async def handle_running(_: MeteredRequest) -> Response:
    """Models loaded on this machine: none."""
    return Response.json({"models": []})


async def handle_version(_: MeteredRequest) -> Response:
    """The version of the API."""
    return Response.json({"version": API_VERSION})


def _entry(model: ModelEntry) -> dict[str, Any]:
    return {
        "name": model.name,
        "model": model.name,
        "modified_at": _MODIFIED_AT,
        "size": 0,
        "digest": sha256(model.name.encode()).hexdigest(),
        "details": _details(model.provider),
    }


def _details(family: str) -> dict[str, Any]:
    return {
        "parent_model": "",
        "format": "",
        "family": family,
        "families": [family],
        "parameter_size": "",
        "quantization_level": "",
    }
