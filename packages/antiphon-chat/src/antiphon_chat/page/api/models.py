"""API handlers for the models: their sources, and the keys a person pastes on this machine.

Keys can be given only where the chat has a `ModelSetup`: `antiphon chat --web` has one, a gateway is set up by its configuration.
A key comes in the body of a request that only our own page can send (`access.py`), and no response repeats it.
"""

from __future__ import annotations

from msgspec import Struct

from antiphon.http.messages import Response
from antiphon_chat.page.request import ApiError, ChatRequest
from antiphon_chat.shared.models import facts_of
from antiphon_chat.shared.setup.model_setup import ModelSetup, ModelSource, providers_with_keys


class NewKey(Struct, frozen=True, forbid_unknown_fields=True):
    """A key, as the page sends it."""

    provider: str
    key: str
    store: bool = False

    def __repr__(self) -> str:
        return f"NewKey({self.provider!r})"


async def list_models(request: ChatRequest) -> Response:
    """The sources of models, with the models they list."""
    setup = request.chat.setup
    if setup is None:
        names = request.chat.model_names(request.key)
        sources = [ModelSource(kind="gateway", model=names[0] if names else "", models=names)]
        return Response.json({"sources": sources, "key_providers": [], "facts": facts_of(names)})
    sources = await setup.sources()
    known = [name for source in sources for name in (source.model, *source.models)]
    return Response.json({"sources": sources, "key_providers": providers_with_keys(), "facts": facts_of(known)})


async def add_key(request: ChatRequest) -> Response:
    """Use a key, and store it if asked."""
    setup = _setup_of(request)
    given = request.read(NewKey)
    model = setup.add_key(given.provider, given.key, is_stored=given.store)
    sources = await setup.sources()
    if not model:
        model = next((one.model for one in sources if one.provider == given.provider), "")
    return Response.json({"model": model, "sources": sources}, 201)


async def forget_key(request: ChatRequest) -> Response:
    """Remove a pasted or stored key."""
    setup = _setup_of(request)
    if not setup.forget_key(request.id):
        raise ApiError(f"no pasted or stored key of {request.id[:40]}", 404, "not_found")
    return Response.json({"sources": await setup.sources()})


def _setup_of(request: ChatRequest) -> ModelSetup:
    if request.chat.setup is None:
        raise ApiError("keys are set in the configuration of this server", 403, "forbidden")
    return request.chat.setup
