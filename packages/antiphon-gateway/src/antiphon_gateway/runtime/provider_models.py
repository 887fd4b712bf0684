"""Models of providers that are routed by globs: what each provider lists, cached; else the known models of its preset.

A gateway configured by API keys alone has routes such as `gpt-*` and no names to list. Clients that choose from `/v1/models`
would see nothing. The providers are asked at most every ten minutes, and every minute while one does not answer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from antiphon.errors import AntiphonError
from antiphon.providers.default_model import LOCAL_SERVERS, PREFERRED
from antiphon.providers.engine.model_list import fetch_models
from antiphon.providers.engine.provider import Provider
from antiphon_gateway.runtime.offline import is_offline

if TYPE_CHECKING:
    from antiphon_gateway.runtime.loaded import LoadedConfig

logger = logging.getLogger("antiphon.gateway")

_KEPT_SECONDS, _RETRY_SECONDS = 600.0, 60.0


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
