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
from antiphon_gateway.config.reload import ConfigReloader
from antiphon_gateway.config.settings import Config
from antiphon_gateway.endpoints import admin, answers, keyless, models
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
from antiphon_gateway.observe.status import LedgerReader, ServerStatus, build_status
from antiphon_gateway.routes import Endpoint, NoRoute, error_format_for_path, is_chat_path, match_route
from antiphon_gateway.runtime.loaded import LoadedConfig
from antiphon_gateway.runtime.metered import Handler as Answer
from antiphon_gateway.runtime.metered import MeteredRequest, Services, SmallRequest, SocketRequest
from antiphon_gateway.state.continuing import STATE_FIELDS

_STATUS_PAGE = Endpoint("status_page", resource="index.html", access="anyone")
_EXPOSED_HEADERS = (
    "x-request-id, x-antiphon-target, x-antiphon-repairs, x-antiphon-losses, x-antiphon-estimate, x-antiphon-limit, "
    "x-antiphon-limit-reset, retry-after"
)
"""What a page of an allowed origin may read of a response."""


class TapeHandler(Application, Protocol):
    """Records the requests between the listeners and the gateway, or answers them from a recording."""

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
        self.loaded = loaded
        """The current configuration."""
        self.services = services
        """What all requests share."""
        self.reloader: ConfigReloader | None = None
        """Watches the file that the configuration is from, if there is one."""
        self.chat: MountedApp | None = None
        """Gets the requests to the chat's paths on the main port."""
        self._started_at = datetime.now(UTC)
        self._ledger_reader = LedgerReader(services.database if services.ledger is not None else None)
        services.spans.base_urls = loaded.base_urls
        self._own_handlers: Mapping[str, Answer] = {
            "metrics": self._metrics,
            "status": self._status,
        }

    def apply(self, config: Config) -> None:
        """Replace the configuration. Requests in progress finish on the one they started with."""
        services = self.services
        self.loaded = LoadedConfig(
            config,
            services.transport,
            previous=self.loaded,
            environ=self.loaded.environ,
            stored_keys=services.stored_keys,
        )
        services.metrics.use_models(model.name for model in config.models)
        services.spans.base_urls = self.loaded.base_urls
        services.governor.limit = self.loaded.limits.max_buffered_bytes

    def refresh_gauges(self) -> None:
        """Bring the metrics up to date: requests that wait to be counted, and the gauges."""
        services = self.services
        services.recorder.publish()
        services.metrics.set_credentials(self.loaded.credentials)
        services.metrics.set_circuits(self.loaded.target_health.status())
        if services.ledger is not None:
            services.metrics.set_ledger(services.ledger.status)
            services.metrics.add_spend(services.ledger.take_spent())
        if services.shared.status is not None:
            services.metrics.set_store_up(is_unavailable=services.shared.status.is_unavailable)

    def admit(self, request: ClientRequest) -> Handler | Response:
        """Decide on a request without its body."""
        loaded, services = self.loaded, self.services
        endpoint = match_route(request.method, request.path, request.headers)
        if isinstance(endpoint, NoRoute):
            return self._admit_elsewhere(request, endpoint)
        if endpoint.action == "status" and wants_page(request.headers, request.query):
            endpoint = _STATUS_PAGE
        key, kind = admit_client(loaded, request, endpoint), REQUESTS.get(endpoint.action, SmallRequest)
        if not isinstance(key, ClientKey):
            operation = kind.operation or endpoint.kind or endpoint.action
            self._record_refusal(request, key, endpoint.format, operation)
            return key
        if kind is Generation and endpoint.format in STATE_FIELDS:
            kind = Answering
        asked = kind(services, loaded, request, endpoint, key)
        if isinstance(asked, SmallRequest):
            asked.handler = self._own_handlers.get(endpoint.action) or HANDLERS[endpoint.action]
        return asked

    def _admit_elsewhere(self, request: ClientRequest, missing: NoRoute) -> Handler | Response:
        """A request to no endpoint: for the chat, a preflight of a page, or a mistake."""
        if self.chat is not None and request.listener == "main" and is_chat_path(request.path):
            return self.chat.admit(request)
        preflight = preflight_response(request, missing.allowed, self.loaded.origin_rules.origins)
        if preflight is not None:
            return preflight
        response = refuse_route(request, missing)
        self.refused(request, response)
        return response

    def refuse(self, request: ClientRequest, refusal: Refusal) -> Response:
        """The response to a request that a listener refuses, in the shape that its client reads."""
        return refusal_response(request, refusal)

    def refused(self, request: ClientRequest, response: Response) -> None:
        """Record a request that was refused before its endpoint was known."""
        self._record_refusal(request, response, error_format_for_path(request.path, request.headers))

    def _record_refusal(
        self, request: ClientRequest, response: Response, client_format: str, operation: str = "chat"
    ) -> None:
        record = Record(request_id=request.request_id, client_format=client_format, operation=operation, is_timed=False)
        record.error = response.error
        record.end(response.status)
        self.services.recorder.refuse(record, request.peer)

    def page_headers(self, request: ClientRequest) -> Mapping[str, str]:
        """The CORS headers for a page of another origin."""
        origins = self.loaded.origin_rules.origins
        return cors_headers(request.headers["origin"], origins, _EXPOSED_HEADERS) if origins else {}

    def open_socket(
        self,
        request: ClientRequest,
        socket: WebSocket,
        admit: Callable[[ClientRequest], Handler | Response] | None = None,
    ) -> SocketSession:
        """The session of a WebSocket that `request`, which was admitted, has opened. `admit` decides on its messages."""
        return ResponseSocket(admit or self.admit, lambda: self.loaded.limits, self.services, request, socket)

    async def _metrics(self, _: MeteredRequest) -> Response:
        self.refresh_gauges()
        return Response(headers={"content-type": CONTENT_TYPE}, body=self.services.metrics.render())

    async def _status(self, asked: MeteredRequest) -> Response:
        loaded, request, services = asked.loaded, asked.request, self.services
        services.recorder.publish()
        search = RequestFilter.of(request.query)
        seen = await services.recent.read()
        server = ServerStatus(
            version=__version__,
            started=self._started_at,
            now=datetime.now(UTC),
            config_file=str(self.reloader.path) if self.reloader is not None else "",
            workers=seen.workers,
            reload=self.reloader.last if self.reloader is not None else None,
            shared=services.shared.status,
        )
        status = build_status(
            server,
            seen=seen,
            credentials=services.credentials_of(loaded),
            circuits=loaded.target_health.status(),
            models={model.name: model.targets for model in loaded.config.models},
            spend=await self._ledger_reader.spend(),
            ledger=await self._ledger_reader.search(search, request.query),
            search=search,
        )
        headers = {"cache-control": "no-store", "x-content-type-options": "nosniff", "vary": "Accept"}
        return Response.json(status, headers=headers)


REQUESTS: Mapping[str, type[MeteredRequest]] = {
    "generate": Generation,
    "embed": Embedding,
    "count": TokenCount,
    "compact": Compaction,
    "pass": PassThrough,
    "connect": SocketRequest,
}
"""The kinds of requests that are more than a function."""

HANDLERS: dict[str, Answer] = {
    name.removeprefix("handle_"): handler
    for module in (admin, answers, keyless, models, conversations)
    for name, handler in vars(module).items()
    if name.startswith("handle_")
}
"""Handlers by the action of the endpoint."""
