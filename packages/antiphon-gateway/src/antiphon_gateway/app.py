"""`Gateway`: decides on the head of a request and makes the `MeteredRequest` that answers it.

`admit` needs no body (`access.client_keys`). One `LoadedConfig` is taken on admission and used to the end, even if the
configuration is reloaded meanwhile. Every error is returned in the format of the endpoint. What answers is found by the action of
the endpoint: a kind of `MeteredRequest`, or the function `handle_<action>`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Protocol

from antiphon import __version__
from antiphon.http.messages import ClientRequest, Response
from antiphon.http.origin import cors_headers, preflight_response
from antiphon.http.server.application import Application, Handler, Refusal
from antiphon.http.server.websocket import SocketSession, WebSocket
from antiphon_gateway.access.client_keys import ClientKey, admit_client, refuse_route
from antiphon_gateway.admin import credentials
from antiphon_gateway.admin import handlers as admin
from antiphon_gateway.config.reload import ConfigReloader
from antiphon_gateway.config.settings import Config
from antiphon_gateway.endpoints import answers, keyless, models
from antiphon_gateway.endpoints.background import Answering
from antiphon_gateway.endpoints.embeddings import Embedding
from antiphon_gateway.endpoints.pass_through import PassThrough
from antiphon_gateway.endpoints.responses_api import conversations
from antiphon_gateway.endpoints.responses_api.compaction import Compaction
from antiphon_gateway.endpoints.responses_api.websocket import ResponseSocket
from antiphon_gateway.endpoints.tokens import TokenCount
from antiphon_gateway.errors import refusal_response
from antiphon_gateway.generate.generation import Generation
from antiphon_gateway.ledger.search import RequestFilter
from antiphon_gateway.observe.metrics import CONTENT_TYPE
from antiphon_gateway.observe.page import wants_page
from antiphon_gateway.observe.record import Record
from antiphon_gateway.observe.status import ReloadResult, ServerStatus, SpendReader, build_status, search_ledger
from antiphon_gateway.routes import Endpoint, NoRoute, error_format_for_path, is_chat_path, match_route
from antiphon_gateway.runtime.loaded import LoadedConfig
from antiphon_gateway.runtime.metered import Handler as Answer
from antiphon_gateway.runtime.metered import MeteredRequest, Services, SmallRequest, SocketRequest
from antiphon_gateway.state.continuing import STATE_FIELDS

_STATUS_PAGE = Endpoint("status_page", resource="index.html")
_EXPOSED_HEADERS = (
    "x-request-id, x-antiphon-target, x-antiphon-repairs, x-antiphon-losses, x-antiphon-estimate, x-antiphon-limit, "
    "x-antiphon-limit-reset, retry-after"
)
"""What a page of an allowed origin may read of a response."""


class TapeHandler(Application, Protocol):
    """What stands between the listeners and the gateway to record requests, or to answer them from a recording."""

    def close(self) -> None:
        """Close the tape."""


class MountedApp(Protocol):
    """The chat, as seen by the gateway."""

    def admit(self, request: ClientRequest) -> Handler | Response:
        """Decide on a request without its body."""

    async def aclose(self, grace: float) -> None:
        """End the current runs, which get `grace` seconds."""


class Gateway:
    """Answers requests with the current configuration."""

    def __init__(self, loaded: LoadedConfig, services: Services) -> None:
        self._loaded = loaded
        self._services = services
        self._started_at = datetime.now(UTC)
        self._reloader: ConfigReloader | None = None
        self._chat: MountedApp | None = None
        self._spend = SpendReader()
        services.spans.base_urls = loaded.base_urls
        self._own_handlers: Mapping[str, Answer] = {
            "metrics": self._metrics,
            "status": self._status,
        }

    @property
    def loaded(self) -> LoadedConfig:
        """The current configuration."""
        return self._loaded

    @property
    def services(self) -> Services:
        """What all requests share."""
        return self._services

    def apply(self, config: Config) -> None:
        """Replace the configuration. Requests in progress finish on the one they started with."""
        services = self._services
        self._loaded = LoadedConfig(config, services.transport, previous=self._loaded, environ=self._loaded.environ)
        services.metrics.use_models(model.name for model in config.models)
        services.spans.base_urls = self._loaded.base_urls
        services.governor.limit = self._loaded.limits.max_buffered_bytes

    def attach_reloader(self, reloader: ConfigReloader) -> None:
        """Show the state of the file that `reloader` watches in `/status`."""
        self._reloader = reloader

    def refresh_gauges(self) -> None:
        """Bring the metrics up to date: requests that wait to be counted, and the gauges."""
        services = self._services
        services.recorder.publish()
        services.metrics.set_credentials(self._loaded.credentials)
        services.metrics.set_circuits(self._loaded.target_health.status())
        if services.ledger is not None:
            services.metrics.set_ledger(services.ledger.status)
            services.metrics.add_spend(services.ledger.take_spent())
        if services.shared.status is not None:
            services.metrics.set_store_up(is_unavailable=services.shared.status.is_unavailable)

    def mount(self, chat: MountedApp) -> None:
        """Pass requests to the chat's paths on the main port to `chat`."""
        self._chat = chat

    def admit(self, request: ClientRequest) -> Handler | Response:
        """Decide on a request without its body."""
        loaded, services = self._loaded, self._services
        endpoint = match_route(request.method, request.path, request.headers)
        if isinstance(endpoint, NoRoute):
            return self._admit_elsewhere(request, endpoint)
        if endpoint.action == "status" and wants_page(request.headers, request.query):
            endpoint = _STATUS_PAGE
        key = admit_client(loaded, request, endpoint)
        if not isinstance(key, ClientKey):
            self._refuse_client(request, endpoint, key)
            return key
        kind = REQUESTS.get(endpoint.action)
        if kind is not None:
            if endpoint.format in KEPT and endpoint.action == "generate":
                kind = KEPT[endpoint.format]
            return kind(services, loaded, request, endpoint, key)
        asked = SmallRequest(services, loaded, request, endpoint, key)
        asked.handler = self._own_handlers.get(endpoint.action) or HANDLERS[endpoint.action]
        return asked

    def _admit_elsewhere(self, request: ClientRequest, missing: NoRoute) -> Handler | Response:
        """A request to no endpoint: for the chat, a preflight of a page, or a mistake."""
        if self._chat is not None and request.listener == "main" and is_chat_path(request.path):
            return self._chat.admit(request)
        preflight = preflight_response(request, missing.allowed, self._loaded.origin_rules.origins)
        if preflight is not None:
            return preflight
        response = refuse_route(request, missing)
        self.refused(request, response)
        return response

    def _refuse_client(self, request: ClientRequest, endpoint: Endpoint, response: Response) -> None:
        """Record a request whose client is not known."""
        operation = (REQUESTS[endpoint.action].operation if endpoint.action in REQUESTS else "") or endpoint.kind
        record = Record(
            request_id=request.request_id,
            client_format=endpoint.format,
            operation=operation or endpoint.action,
            is_timed=False,
        )
        self._record_refusal(record, request, response)

    def refuse(self, request: ClientRequest, refusal: Refusal) -> Response:
        """The response to a request that a listener refuses, in the shape that its client reads."""
        return refusal_response(request, refusal)

    def refused(self, request: ClientRequest, response: Response) -> None:
        """Record a request that was refused before its endpoint was known."""
        client_format = error_format_for_path(request.path, request.headers)
        record = Record(request_id=request.request_id, client_format=client_format, is_timed=False)
        self._record_refusal(record, request, response)

    def _record_refusal(self, record: Record, request: ClientRequest, response: Response) -> None:
        record.error = response.error
        record.end(response.status)
        self._services.recorder.refuse(record, request.peer)

    def page_headers(self, request: ClientRequest) -> Mapping[str, str]:
        """The CORS headers for a page of another origin."""
        origins = self._loaded.origin_rules.origins
        return cors_headers(request.headers["origin"], origins, _EXPOSED_HEADERS) if origins else {}

    def open_socket(
        self,
        request: ClientRequest,
        socket: WebSocket,
        admit: Callable[[ClientRequest], Handler | Response] | None = None,
    ) -> SocketSession:
        """The session of a WebSocket that `request`, which was admitted, has opened. `admit` decides on its messages."""
        return ResponseSocket(admit or self.admit, lambda: self._loaded.limits, self._services, request, socket)

    async def _metrics(self, _: MeteredRequest) -> Response:
        self.refresh_gauges()
        return Response(headers={"content-type": CONTENT_TYPE}, body=self._services.metrics.render())

    async def _status(self, asked: MeteredRequest) -> Response:
        loaded, request, services = asked.loaded, asked.request, self._services
        services.recorder.publish()
        search, has_ledger = RequestFilter.of(request.query), services.ledger is not None
        seen = await services.recent.read()
        server = ServerStatus(
            version=__version__,
            started=self._started_at,
            now=datetime.now(UTC),
            config_file=self._reloader.status.path if self._reloader is not None else "",
            workers=seen.workers,
            reload=last_reload(self._reloader),
            shared=services.shared.status,
        )
        status = build_status(
            server,
            seen=seen,
            credentials=services.credentials_of(loaded),
            circuits=loaded.target_health.status(),
            models={model.name: model.targets for model in loaded.config.models},
            spend=await self._spend.read(services.database, is_on=has_ledger),
            ledger=await search_ledger(services.database, search, request.query) if has_ledger else None,
            search=search,
        )
        headers = {"cache-control": "no-store", "x-content-type-options": "nosniff", "vary": "Accept"}
        return Response.json(status, headers=headers)


def last_reload(reloader: ConfigReloader | None) -> ReloadResult | None:
    status = reloader.status if reloader is not None else None
    if status is None:
        return None
    if status.refusal and status.refused_at is not None:
        return ReloadResult(time=status.refused_at, is_applied=False, problems=tuple(status.refusal.splitlines()))
    return ReloadResult(time=status.applied_at, is_applied=True) if status.applied_at is not None else None


REQUESTS: Mapping[str, type[MeteredRequest]] = {
    "generate": Generation,
    "embed": Embedding,
    "count": TokenCount,
    "compact": Compaction,
    "pass": PassThrough,
    "connect": SocketRequest,
}
"""The kinds of requests that are more than a function."""

KEPT: Mapping[str, type[MeteredRequest]] = dict.fromkeys(STATE_FIELDS, Answering)
"""Generations of formats whose answers are kept here: a client may not want to wait for one."""

HANDLERS: dict[str, Answer] = {
    name.removeprefix("handle_"): handler
    for module in (credentials, admin, answers, keyless, models, conversations)
    for name, handler in vars(module).items()
    if name.startswith("handle_")
}
"""Handlers by the action of the endpoint."""
