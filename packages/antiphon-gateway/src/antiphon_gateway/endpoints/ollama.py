"""Ollama's small endpoints: `/api/tags`, `/api/show`, `/api/ps` and `/api/version`.

The models are those of `/v1/models`. They are not files on this machine, so sizes are 0 and digests are made from the name.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from antiphon.errors import WireError
from antiphon.http.messages import Response
from antiphon.wire.capabilities import look_up
from antiphon_gateway.endpoints.models import usable_models
from antiphon_gateway.runtime.metered import MeteredRequest
from antiphon_gateway.runtime.model_names import ModelEntry
from antiphon_gateway.runtime.request_fields import read_object

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
    known = look_up(model, provider.format, provider.capabilities)
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


async def handle_running(context: MeteredRequest) -> Response:
    """Models loaded on this machine: none."""
    del context
    return Response.json({"models": []})


async def handle_version(context: MeteredRequest) -> Response:
    """The version of the API."""
    del context
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
