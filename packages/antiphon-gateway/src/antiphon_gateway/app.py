"""`Gateway`: admit a request, pick the handler of its endpoint, record the result.

`admit` decides on the head alone, before a body is read (`access.admission`). One `LoadedConfig` is taken on admission and used
to the end, even if the configuration is reloaded meanwhile. Every error is returned in the format of the endpoint.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Coroutine, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from antiphon import __version__
from antiphon.errors import AntiphonError, InvalidModelName, StoreError, UnknownResponse, WireError
from antiphon.http.messages import ClientRequest, Response
from antiphon.http.origin import cors_headers, preflight_response
from antiphon.http.server.application import Application, Refusal, RequestHandler
from antiphon.http.server.websocket import SocketSession, WebSocket
from antiphon.wire.output import ProviderError
from antiphon_gateway.access.admission import admit_client, refuse_route
from antiphon_gateway.access.client_keys import ANONYMOUS, ClientKey
from antiphon_gateway.access.operators import find_operator
from antiphon_gateway.accounting import RequestAccounting
from antiphon_gateway.config.reload import ConfigReloader
from antiphon_gateway.config.settings import Config
from antiphon_gateway.endpoints.answer_shapes import SHAPES
from antiphon_gateway.endpoints.background import create_in_background, requests_background
from antiphon_gateway.endpoints.embeddings import handle_embeddings
from antiphon_gateway.endpoints.handlers import HANDLERS
from antiphon_gateway.endpoints.pass_through import handle_pass_through
from antiphon_gateway.endpoints.readiness import readiness
from antiphon_gateway.endpoints.responses_api.compaction import handle_compact
from antiphon_gateway.endpoints.responses_api.websocket import ResponseSocket, upgrade_required
from antiphon_gateway.errors import error_response, internal_error, refusal_response, store_failure
from antiphon_gateway.generate.generation import Generation
from antiphon_gateway.generate.prepare import with_model
from antiphon_gateway.observe.instruments import CONTENT_TYPE
from antiphon_gateway.observe.ledger_search import search_ledger
from antiphon_gateway.observe.page import wants_page
from antiphon_gateway.observe.request_search import RequestFilter
from antiphon_gateway.observe.request_trace import RequestTrace
from antiphon_gateway.observe.spend_summary import SpendReader
from antiphon_gateway.observe.status import ReloadResult, build_status, status_json
from antiphon_gateway.routes import Endpoint, NoRoute, error_format_for_path, is_chat_path, match_route
from antiphon_gateway.runtime.context import Admission, RequestContext, Services
from antiphon_gateway.runtime.loaded import LoadedConfig
from antiphon_gateway.state.size_limit import StateLimitReached
from antiphon_gateway.state.store import to_provider_error

logger = logging.getLogger("antiphon.gateway")

_CALLS_PROVIDERS = frozenset({"generate", "embed", "compact", "pass"})
"""What calls a provider and records itself. It is refused once a budget is used up; a client can still list models."""
_STATUS_PAGE = Endpoint("status_page", resource="index.html")
_BODIES_WITH_MODEL = frozenset({"generate", "embed"})
_PROBES = frozenset({"health", "ready", "metrics", "status", "status_page", "status_login_needed"})
_OPERATIONS = {"generate": "chat", "compact": "chat", "embed": "embeddings", "count": "count_tokens"}
"""The operations of requests that have another name in the log and the ledger."""
_CLIENT_LEFT = 499
_EXPOSED_HEADERS = (
    "x-request-id, x-antiphon-target, x-antiphon-repairs, x-antiphon-losses, x-antiphon-estimate, x-antiphon-limit, "
    "x-antiphon-limit-reset, retry-after"
)
"""What a page of an allowed origin may read of a response."""


class TapeHandler(Application, Protocol):
    """What stands between the listeners and the gateway to record requests, or to answer them from a recording."""

    def close(self) -> None:
        """Close the tape."""


class MountedApp(RequestHandler, Protocol):
    """The chat, as seen by the gateway."""

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
        self.accounting = RequestAccounting(
            accounts=services.accounts,
            metrics=services.metrics,
            recent=services.recent,
            ledger=services.ledger,
        )

    @property
    def loaded(self) -> LoadedConfig:
        """The current configuration."""
        return self._loaded

    def apply(self, config: Config) -> None:
        """Replace the configuration. Requests in progress finish on the one they started with."""
        self._loaded = LoadedConfig(
            config, self._services.transport, previous=self._loaded, environ=self._loaded.environ
        )
        self._services.metrics.use_models(model.name for model in config.models)

    def attach_reloader(self, reloader: ConfigReloader) -> None:
        """Show the state of the file that `reloader` watches in `/status`."""
        self._reloader = reloader

    def refresh_gauges(self) -> None:
        """Bring the metrics up to date: requests that wait to be counted, and the gauges."""
        services = self._services
        self.accounting.publish()
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

    def admit(self, request: ClientRequest) -> Admission | Response:
        """Decide on a request without its body."""
        loaded, started_at = self._loaded, time.monotonic()
        endpoint = match_route(request.method, request.path, request.headers)
        if isinstance(endpoint, NoRoute):
            if self._chat is not None and request.listener == "main" and is_chat_path(request.path):
                verdict = self._chat.admit(request)
                return (
                    verdict
                    if isinstance(verdict, Response)
                    else Admission(loaded, None, ANONYMOUS, started_at, verdict)
                )
            preflight = preflight_response(request, endpoint.allowed, loaded.origin_rules.origins)
            if preflight is not None:
                return preflight
            refusal = refuse_route(request, endpoint)
            client_format = error_format_for_path(request.path, request.headers)
            self._refuse(RequestTrace(request_id=request.request_id, client_format=client_format), request, refusal)
            return refusal
        if endpoint.action == "status" and wants_page(request.headers, request.query):
            endpoint = _STATUS_PAGE
        key = admit_client(loaded, request, endpoint)
        if isinstance(key, ClientKey):
            return Admission(
                loaded, endpoint, key, started_at, passes_body=endpoint.action == "pass", record=self._record_end
            )
        self._refuse(_new_trace(request, endpoint, "", started_at), request, key)
        return key

    async def handle(self, request: ClientRequest, admission: Any = None) -> Response:
        """Answer a request."""
        admission = admission or self.admit(request)
        if isinstance(admission, Response):
            return admission
        loaded, endpoint, key = admission.loaded, admission.endpoint, admission.key
        if endpoint is None:
            assert self._chat is not None
            return await self._chat.handle(request, admission.chat)
        action = endpoint.action
        if action == "health":
            return Response.json({"status": "ok", "version": __version__})
        if action == "ready":
            return readiness(loaded, has_details=find_operator(loaded, request) is not None)
        if key.is_limited and (limited := await self._limit(request, admission)) is not None:
            return limited
        if action == "metrics":
            self.refresh_gauges()
            return Response(headers={"content-type": CONTENT_TYPE}, body=self._services.metrics.render())
        if action == "status":
            return await self._status(loaded, request)
        if action in _CALLS_PROVIDERS:
            context = RequestContext(loaded, self._services, request, endpoint, key, admission.connection)
            response = await self._finished(self._call_provider(context), context, admission.started_at)
        else:
            trace = _new_trace(request, endpoint, key.name, admission.started_at)
            context = RequestContext(loaded, self._services, request, endpoint, key, trace=trace)
            response = await self._finished(self._answer(context), context, admission.started_at)
        return response

    async def _limit(self, request: ClientRequest, admission: Admission) -> Response | None:
        """The refusal of a request whose client is over a limit, recorded; None if it may be answered, and is counted."""
        endpoint, key = admission.endpoint, admission.key
        assert endpoint is not None, "the chat has no limits here"
        costs = endpoint.action in _CALLS_PROVIDERS
        if not key.is_limited or (reached := await self.accounting.limit_reached(key, costs=costs)) is None:
            return None
        limited = reached.response(endpoint.format)
        trace = _new_trace(request, endpoint, key.name, admission.started_at)
        self._refuse(trace, request, limited, is_logged=True)
        return limited

    async def _finished(
        self, answering: Coroutine[Any, Any, Response], context: RequestContext, started_at: float
    ) -> Response:
        """The response to a request, or the error that ended it, recorded unless it records itself."""
        request, endpoint = context.request, context.endpoint
        defect: Exception | None = None
        try:
            response = await answering
        except Exception as error:
            known = self._error_response(error, endpoint.format)
            response = known or internal_error(endpoint.format, request.request_id)
            defect = error if known is None else None
        except BaseException as cancelled:
            if not request.is_recorded:
                trace = context.trace or _new_trace(request, endpoint, context.key.name, started_at)
                trace.status = trace.status_after(cancelled, request.deadline)
                self._record_small(trace, context)
            raise
        if request.is_recorded:
            if isinstance(defect, AntiphonError):  # else its line has the traceback
                logger.error("internal error while handling a request", exc_info=defect)
        elif context.trace is not None or isinstance(response.body, bytes):  # else it records itself at its end
            trace = context.trace or _new_trace(request, endpoint, context.key.name, started_at)
            if defect is not None:
                trace.status_after(defect, request.deadline)
            trace.status, trace.error, trace.defect = response.status, trace.error or response.error, defect
            self._record_small(trace, context)
        return response

    async def _call_provider(self, context: RequestContext) -> Response:
        """The response to a request that calls a provider and records itself, unless it is refused before that."""
        request, endpoint = context.request, context.endpoint
        if endpoint.resource and endpoint.action in _BODIES_WITH_MODEL and endpoint.format != "gemini":
            request.body = with_model(request.body, endpoint.resource)  # Azure names it in the path
        if endpoint.action == "embed":
            return await handle_embeddings(context, self._record_request)
        if endpoint.action == "pass":
            return await handle_pass_through(context, self._record_request)
        if endpoint.action == "compact":
            return await handle_compact(context, self._record_request)
        if endpoint.format in SHAPES and requests_background(context):
            return await create_in_background(context, self._record_request)
        return await Generation(context, self._record_request).respond()

    async def _answer(self, context: RequestContext) -> Response:
        """The response of a small endpoint."""
        if context.endpoint.action == "connect":
            return upgrade_required()
        return await HANDLERS[context.endpoint.action](context)

    def refuse(self, request: ClientRequest, refusal: Refusal) -> Response:
        """The response to a request that a listener refuses, in the shape that its client reads."""
        return refusal_response(request, refusal)

    def page_headers(self, request: ClientRequest) -> Mapping[str, str]:
        """The CORS headers for a page of another origin."""
        origins = self._loaded.origin_rules.origins
        return cors_headers(request.headers["origin"], origins, _EXPOSED_HEADERS) if origins else {}

    def open_socket(
        self, request: ClientRequest, socket: WebSocket, handler: RequestHandler | None = None
    ) -> SocketSession:
        """The session of a WebSocket that `request`, which was admitted, has opened.

        `handler` answers its requests instead of the gateway.
        """
        return ResponseSocket(handler or self, self._limit, self._services, request, socket)

    def _refuse(
        self, trace: RequestTrace, request: ClientRequest, response: Response, *, is_logged: bool = False
    ) -> None:
        """Record the refusal of a request whose client is not known, or over a limit."""
        trace.status, trace.error, trace.finished_at = response.status, response.error, time.monotonic()
        request.is_recorded = True
        self.accounting.refuse(trace, request.peer, is_logged=is_logged)

    def _record_end(self, request: ClientRequest, admission: Admission, response: Response | None) -> None:
        """Record a request that ended without its handler: its body was refused, or its client left before it was complete."""
        endpoint, key, loaded = admission.endpoint, admission.key, admission.loaded
        if endpoint is None or request.is_recorded:
            return
        trace = _new_trace(request, endpoint, key.name, admission.started_at)
        trace.client_disconnected = response is None
        trace.status, trace.error = (_CLIENT_LEFT, None) if response is None else (response.status, response.error)
        self._record_small(trace, RequestContext(loaded, self._services, request, endpoint, key))

    def _record_small(self, trace: RequestTrace, context: RequestContext) -> None:
        """Record a request that does not record itself, once. What monitors ask all the time is recorded if it is refused."""
        request, loaded = context.request, context.loaded
        is_answered = trace.status < 400
        if request.is_recorded or (is_answered and context.endpoint.action in _PROBES):
            return
        request.is_recorded, trace.finished_at = True, time.monotonic()
        if 400 <= trace.status < 500 and not context.key.name and not loaded.keys.allows_anonymous:
            self.accounting.refuse(trace, request.peer)
        else:
            self.accounting.record(trace, context.key, loaded.prices)

    def _error_response(self, error: Exception, format_name: str) -> Response | None:
        """An error that ended a request, in the client's format; None if it is a defect."""
        if isinstance(error, WireError):
            return error_response(format_name, ProviderError(str(error), "invalid_request"))
        if isinstance(error, InvalidModelName):
            return error_response(format_name, ProviderError(str(error), "invalid_request", param="model"))
        if isinstance(error, UnknownResponse):
            return error_response(format_name, to_provider_error(error), status=error.status)
        if isinstance(error, StateLimitReached):
            return error_response(format_name, ProviderError(str(error), "too_large"))
        if isinstance(error, StoreError):
            return error_response(format_name, store_failure(error))
        return None

    async def _status(self, loaded: LoadedConfig, request: ClientRequest) -> Response:
        self.accounting.publish()
        search, has_ledger = RequestFilter.of(request.query), self._services.ledger is not None
        status = build_status(
            version=__version__,
            started=self._started_at,
            now=datetime.now(UTC),
            seen=await self._services.recent.read(),
            credentials=self._services.credentials_of(loaded),
            circuits=loaded.target_health.status(),
            models={model.name: model.targets for model in loaded.config.models},
            config_file=self._reloader.status.path if self._reloader is not None else "",
            reload=last_reload(self._reloader),
            shared=self._services.shared.status,
            spend=await self._spend.read(self._services.database, is_on=has_ledger),
            ledger=await search_ledger(self._services.database, search, request.query) if has_ledger else None,
        )
        headers = {"cache-control": "no-store", "x-content-type-options": "nosniff", "vary": "Accept"}
        return Response.json(status_json(status, search), headers=headers)

    def _record_request(self, trace: RequestTrace, context: RequestContext) -> None:
        self._services.spans.record(trace, context.request.headers, context.loaded.base_urls)
        self.accounting.record(trace, context.key, context.loaded.prices)
        context.request.is_recorded = True


def last_reload(reloader: ConfigReloader | None) -> ReloadResult | None:
    status = reloader.status if reloader is not None else None
    if status is None:
        return None
    if status.refusal and status.refused_at is not None:
        return ReloadResult(time=status.refused_at, is_applied=False, problems=tuple(status.refusal.splitlines()))
    return ReloadResult(time=status.applied_at, is_applied=True) if status.applied_at is not None else None


def _new_trace(request: ClientRequest, endpoint: Endpoint, key_name: str, started_at: float) -> RequestTrace:
    """The record of a request that no handler records."""
    operation = endpoint.kind if endpoint.action == "pass" else _OPERATIONS.get(endpoint.action, endpoint.action)
    return RequestTrace(
        request_id=request.request_id,
        client_format=endpoint.format,
        key=key_name,
        operation=operation,
        started_at=started_at,
        is_timed=False,
        is_free=True,
        is_estimable=False,
    )
