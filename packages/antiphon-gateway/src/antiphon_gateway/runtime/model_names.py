"""Which models a client may name, and the error for any other.

A route with a plain name is listed under it; a glob as the model of its first target, if that name routes to the same model.

A gateway configured by API keys alone has routes such as `gpt-*` and no names to list. Clients that choose from `/v1/models`
would see nothing. So `ProviderModels` asks the providers what they list, at most every ten minutes, and every minute while one
does not answer; else the known models of a preset are listed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from msgspec import Struct

from antiphon.errors import AntiphonError
from antiphon.model_name import ModelName
from antiphon.providers.default_model import LOCAL_SERVERS, PREFERRED
from antiphon.providers.engine.model_list import fetch_models
from antiphon.providers.engine.provider import Provider
from antiphon.providers.routes import Route
from antiphon.wire.output import ProviderError
from antiphon_gateway.runtime.offline import is_offline

if TYPE_CHECKING:
    from antiphon_gateway.runtime.loaded import LoadedConfig

logger = logging.getLogger("antiphon.gateway")

_KEPT_SECONDS, _RETRY_SECONDS = 600.0, 60.0
_GLOB = frozenset("*?[")
_MAX_SUGGESTIONS = 20


class ModelEntry(Struct, frozen=True):
    """A model that can be requested by `name`; `provider` is its first target."""

    name: str
    provider: str = ""


def visible_models(routes: Sequence[Route], may_use: Callable[[str], bool] | None = None) -> tuple[ModelEntry, ...]:
    """The models with a name of their own, in the order of the routes. `may_use` selects those this client may see."""
    found: dict[str, ModelEntry] = {}
    for route in routes:
        for name in _names(routes, route):
            if may_use is None or may_use(name):
                found.setdefault(name, ModelEntry(name, ModelName.parse(route.targets[0]).provider))
    return tuple(found.values())


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
    for name in (ModelName.parse(target).model, target):
        if name and next((first for first in routes if fnmatchcase(name, first.pattern)), None) is route:
            yield name
            return


class ProviderModels:
    """The names that the providers of one configuration list."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: dict[str, tuple[float, tuple[str, ...]]] = {}
        self._asking = asyncio.Lock()

    async def names(self, loaded: LoadedConfig) -> list[tuple[str, str]]:
        """Every name with its provider, as far as a client that requests the name reaches that provider."""
        providers = [provider for provider in loaded.providers.values() if not is_offline(provider)]
        async with self._asking:
            await asyncio.gather(*(self._refresh(provider) for provider in providers))
        return [
            (name, provider.name)
            for provider in providers
            for listed in self._kept[provider.name][1]
            for name in _names_leading_to(loaded, provider.name, listed)
        ]

    async def _refresh(self, provider: Provider) -> None:
        now = self._clock()
        until, before = self._kept.get(provider.name, (0.0, ()))
        if now < until:
            return
        try:
            names = await fetch_models(provider)
        except ValueError as error:
            logger.info("%s does not list its models: %s", provider.name, error)
            names, seconds = before or tuple(_preset_models(provider)), _RETRY_SECONDS
        else:
            seconds = _KEPT_SECONDS
        self._kept[provider.name] = (now + seconds, names)


def _preset_models(provider: Provider) -> Iterator[str]:
    yield from provider.preset.known_models
    yield from (model for name, model in (*PREFERRED, *LOCAL_SERVERS) if name == provider.preset.name)


def _names_leading_to(loaded: LoadedConfig, provider: str, model: str) -> Iterator[str]:
    """The plain name if it is routed to the provider, else the name with the provider before it, if that does."""
    for name in (model, f"{provider}/{model}"):
        try:
            target = loaded.resolve(name)[0]
        except AntiphonError:
            continue
        if (target.provider, target.model) == (provider, model):
            yield name
            return
