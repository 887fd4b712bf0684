"""`GatewayChat`: the chat of a gateway, with its models, keys and limits, and a store that is opened on first use.

The gateway keeps serving if the chat cannot: without a store, the chat reports the reason and everything else works. After a
reload, the next answer comes from the reloaded models. Providers and the health of their targets are those of the gateway: what
a request of a client finds out about a key or a target, the chat knows, and the other way round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Literal

from msgspec import structs

from antiphon.conversation import RunLimits
from antiphon.errors import AntiphonError, RoutingError
from antiphon.history import HistoryStore
from antiphon.history.location import data_folder_for
from antiphon.http.messages import ClientRequest, Response
from antiphon.http.server.application import Admitted, Handler
from antiphon.providers.call import ProviderClient
from antiphon.providers.default_model import MODEL_VARIABLE, PREFERRED, default_model, make_choice
from antiphon.providers.http_provider import HttpProviderClient
from antiphon.providers.router import ProviderRouter
from antiphon.threads import STORES
from antiphon.tools.embedded import parse_setting
from antiphon_chat.offline import OfflineModel
from antiphon_chat.page.access import AccessControl
from antiphon_chat.page.app import ChatApp, admit
from antiphon_chat.page.mounted.metered_calls import ChatMeter
from antiphon_chat.page.request import ApiError, error_response
from antiphon_chat.page.services import STREAM_SECONDS, ChatServices
from antiphon_chat.shared.models import ChatModels
from antiphon_chat.shared.session import TurnSettings, open_chat_store
from antiphon_chat.shared.toolbox import Toolboxes
from antiphon_gateway.access.client_keys import MAX_KEYLESS_BYTES, ClientKey
from antiphon_gateway.app import Gateway
from antiphon_gateway.config.settings import ChatPageSettings
from antiphon_gateway.runtime.loaded import LoadedConfig
from antiphon_gateway.runtime.model_names import visible_models
from antiphon_gateway.runtime.offline import is_offline

_STREAM_FRACTION = 0.8
"""The fraction of the gateway's request timeout after which an event stream ends by itself."""


def chat_factory(store: str | Path) -> Callable[[Gateway], GatewayChat]:
    """The chat for `serve`, with its conversations in the store at `place`."""
    return lambda gateway: GatewayChat(gateway, store)


class GatewayChat:
    """The chat of one gateway. Its conversations are in the store at `place`, its plans beside it."""

    def __init__(self, gateway: Gateway, place: str | Path) -> None:
        self._gateway = gateway
        self._place = place
        self._admission = AccessControl(lambda: gateway.loaded.keys, lambda: gateway.loaded.origin_rules)
        self._opening = asyncio.Lock()
        self._is_closed = False
        self._store: HistoryStore | None = None
        self._app: ChatApp | None = None
        self._built: tuple[LoadedConfig, ChatModels] | None = None

    def admit(self, request: ClientRequest) -> Handler | Response:
        """Whose request it is, decided without its body and before the store is opened."""
        key = admit(self._admission, request)
        if isinstance(key, Response):
            return key
        admitted = Admitted(partial(self._answer, request, key), key.name)
        if not key.name and not self._gateway.loaded.keys.allows_anonymous:
            admitted.owner, admitted.max_body = None, MAX_KEYLESS_BYTES  # a public file of the page takes no body
        return admitted

    async def _answer(self, request: ClientRequest, key: ClientKey) -> Response:
        try:
            app = self._app or await self._opened()
        except AntiphonError as error:
            return error_response(ApiError(f"the chat cannot be opened: {error}", 503, "unavailable"))
        return await app.answer(request, key)

    async def aclose(self, grace: float) -> None:
        """End the running turns and close the store."""
        async with self._opening:
            self._is_closed = True
            if self._app is not None:
                await self._app.aclose(grace)
            if self._store is not None:
                self._store.close()

    async def _opened(self) -> ChatApp:
        async with self._opening:
            if self._is_closed:
                raise ApiError("the gateway is stopping")
            if self._app is None:
                gateway, services = self._gateway, self._gateway.services
                self._store = await STORES.run(open_chat_store, self._place)
                chat = ChatServices(
                    self._store,
                    self._models,
                    Toolboxes(data_folder_for(self._place)),
                    meter=ChatMeter(services.accounts, services.recorder, services.metrics, lambda: gateway.loaded),
                    stream_seconds=self._stream_seconds,
                    turns=lambda: turn_settings(gateway.loaded.config.chat),
                    prices=lambda: gateway.loaded.prices,
                )
                self._app = ChatApp(chat, keys=lambda: gateway.loaded.keys, rules=lambda: gateway.loaded.origin_rules)
            return self._app

    def _stream_seconds(self) -> float:
        return min(STREAM_SECONDS, self._gateway.loaded.config.gateway.request_seconds * _STREAM_FRACTION)

    def _models(self) -> ChatModels:
        """The current models."""
        running = self._gateway.loaded
        if self._built is None or self._built[0] is not running:
            self._built = (running, gateway_models(running))
        return self._built[1]


def turn_settings(chat: ChatPageSettings) -> TurnSettings:
    """The settings of turns in the `[chat]` table."""
    limits = RunLimits(max_rounds=chat.max_rounds, max_failed_rounds=chat.max_errors, max_seconds=chat.max_seconds)
    limit: int | Literal["auto"] | None = (
        chat.token_limit if chat.token_limit > 0 else None if chat.token_limit else "auto"
    )
    return TurnSettings(
        limits=limits,
        embedded_calls=parse_setting(chat.embedded_calls),
        token_limit=limit,
        has_memory_tool=chat.memory_tool,
        can_raise_limits=False,
    )


def gateway_models(running: LoadedConfig) -> ChatModels:
    """The models of a gateway: those it lists, and one of each provider."""
    clients = {name: _client(running, name) for name in running.providers}
    settings = running.config.gateway
    router = ProviderRouter(
        clients,
        routes=running.routes,
        environ={},
        only_routes=running.only_routes,
        first_token_seconds=settings.first_token_seconds,
        continue_streams=settings.continue_streams,
        health=running.target_health,
    )
    names = list(dict.fromkeys(_named(running)))
    if not names:
        raise ApiError("the gateway has no model that can be named; add one to [[models]]", 503, "unavailable")
    choice = make_choice(names[0], "gateway")
    if is_offline(running.providers[running.resolve(names[0])[0].provider]):
        offline = default_model({})
        choice = structs.replace(offline, model=names[0])
    return ChatModels(router, choice, names, check=running.resolve)


def _named(running: LoadedConfig) -> Iterator[str]:
    """Names that can be routed, the default first."""
    preferred = running.environ.get(MODEL_VARIABLE, "").strip()
    listed = [model.name for model in visible_models(running.routes)]
    offers = [f"{provider}/{model}" for provider, model in PREFERRED if provider in running.providers]
    for name in (preferred, *listed, *offers):
        try:
            if name and running.resolve(name):
                yield name
        except RoutingError:
            continue


def _client(running: LoadedConfig, name: str) -> ProviderClient:
    """A client of one of the gateway's upstreams."""
    upstream = running.providers[name]
    return OfflineModel() if is_offline(upstream) else HttpProviderClient.of(upstream)
