"""`MeteredRequest`: the one skeleton of a request, whatever its route.

`admit` makes it from the head; the server runs it when the body is there (`run`) and tells it the end (`end`). Between the two
are the limits of the client, the answer, every error in the client's format, and the record: exactly one, charged and passed on
before the client has the end of its response. A subclass answers, and says what a request of its kind may cost. `Services` is
what all requests of a process share.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

from msgspec import Struct, field

from antiphon.errors import AntiphonError, InvalidModelName, RoutingError, StoreError, UnknownResponse, WireError
from antiphon.http.body import Governor, Hold
from antiphon.http.client.request import Transport
from antiphon.http.messages import ClientRequest, Response, header_text
from antiphon.http.server.application import BodyKind
from antiphon.providers.engine.provider_call import Prepare, ProviderCall
from antiphon.providers.engine.reply import UpstreamFailed
from antiphon.providers.keys.health import CredentialStatus
from antiphon.providers.routes import Target, check_model_name
from antiphon.wire.output import ProviderError
from antiphon_gateway.access.accounts import ClientAccounts
from antiphon_gateway.access.client_keys import MAX_KEYLESS_BYTES, MAX_SETTINGS_BYTES, ClientKey
from antiphon_gateway.errors import (
    RequestRefused,
    error_response,
    overloaded,
    provider_error_response,
    store_failure,
)
from antiphon_gateway.ledger.database import OperatorDatabase
from antiphon_gateway.ledger.ledger import UsageLedger
from antiphon_gateway.ledger.stored_keys import StoredKeys
from antiphon_gateway.observe.metrics import Metrics
from antiphon_gateway.observe.recent import RecentRequests
from antiphon_gateway.observe.record import Charge, Record
from antiphon_gateway.observe.recorder import Recorder
from antiphon_gateway.observe.tracing import RequestTracer
from antiphon_gateway.routes import Endpoint
from antiphon_gateway.runtime.loaded import LoadedConfig
from antiphon_gateway.runtime.media import MediaFetcher
from antiphon_gateway.runtime.model_names import unknown_model_error, visible_models
from antiphon_gateway.share.state import SharedState
from antiphon_gateway.state.answers import AnswerStore
from antiphon_gateway.state.background import BackgroundAnswers
from antiphon_gateway.state.connection import ConnectionAnswers
from antiphon_gateway.state.continuing import to_provider_error
from antiphon_gateway.state.conversations import ConversationStore
from antiphon_gateway.state.file import StateLimitReached


class Services(Struct, kw_only=True):
    """Shared by all requests of a process."""

    transport: Transport
    answers: AnswerStore
    conversations: ConversationStore
    background: BackgroundAnswers
    media: MediaFetcher
    accounts: ClientAccounts
    """What clients may use and have used."""
    recorder: Recorder
    """Where finished requests go; these three are among its sinks."""
    metrics: Metrics
    recent: RecentRequests
    spans: RequestTracer
    database: OperatorDatabase
    stored_keys: StoredKeys
    """Client keys in that database."""
    governor: Governor = field(default_factory=Governor)
    """Counts what waits."""
    ledger: UsageLedger | None = None
    """Where usage is recorded; None: nowhere."""
    shared: SharedState = field(default_factory=SharedState)
    """What is shared with other processes."""

    def credentials_of(self, loaded: LoadedConfig) -> Mapping[str, Sequence[CredentialStatus]]:
        """The health of the keys of each provider, with the calls of all workers of the host."""
        return self.shared.with_other_workers(loaded.credentials)


logger = logging.getLogger("antiphon.gateway")

_MAX_HEADER_CHARS = 900
_CONTENT_ACTIONS = frozenset(
    {"generate", "count", "embed", "compact", "create_conversation", "update_conversation", "add_conversation_items"}
)
"""What takes a body of up to `gateway.max_body_bytes`."""
_PROBES = frozenset({"health", "ready", "metrics", "status", "status_page", "status_login_needed"})
"""What monitors ask all the time: recorded only if it is refused."""


class MeteredRequest(ABC):
    """One request: its client's `key`, its `endpoint`, the services, and its `record`. `loaded` stays the same to the end."""

    operation: ClassVar[str] = ""
    """Its name in the log and the ledger; by default that of its endpoint."""
    calls_providers: ClassVar[bool] = False
    """Whether it uses tokens or money, so that it is refused once a budget is used up."""
    charges: ClassVar[Charge] = "free"
    takes: BodyKind = "json"
    is_logged = True
    is_counted = False
    """Whether the limits of the client have counted it already."""
    _is_over_limit = _is_handed_over = False

    def __init__(
        self, services: Services, loaded: LoadedConfig, request: ClientRequest, endpoint: Endpoint, key: ClientKey
    ) -> None:
        self.services = services
        self.loaded = loaded
        self.request = request
        self.endpoint = endpoint
        self.key = key
        self.owner = key.name or ("" if loaded.keys.allows_anonymous else None)
        """The client whose bytes are counted; None: it has shown no key, although there are keys."""
        if self.owner is None:
            self.max_body = MAX_KEYLESS_BYTES
        else:
            takes_content = endpoint.action in _CONTENT_ACTIONS
            self.max_body = loaded.limits.max_body_bytes if takes_content else MAX_SETTINGS_BYTES
        self.record = Record(
            request_id=request.request_id,
            client_format=endpoint.format,
            key=key.name,
            operation=self.operation or endpoint.kind or endpoint.action,
            charges=self.charges,
            is_timed=self.calls_providers,
        )

    # What the server asks.

    async def run(self) -> Response:
        """The response for the client; recorded, unless its body follows."""
        try:
            response = None
            if self.key.is_limited and not self.is_counted:
                response = await self._limit()
            if response is None:
                response = await self.answer()
        except Exception as error:
            response = self._failed(error)
        except BaseException as cancelled:
            self.end(self.record.status_after(cancelled, self.request.deadline))
            raise
        if self.record.provider:
            self._add_report(response)
        if isinstance(response.body, bytes):
            self.end(response.status, response.error)
        return response

    @abstractmethod
    async def answer(self) -> Response:
        """The response. What it raises becomes an error in the client's format."""

    def end(self, status: int = 0, error: Any = None) -> None:
        """The request is over: with that status, or because its client left or time ran out. Only the first call counts."""
        record, key = self.record, self.key
        if record.ended_at or self._is_handed_over:
            return
        if not status:
            status = record.status_after(asyncio.CancelledError(), self.request.deadline)
        record.error = record.error or error
        record.end(status)
        if status < 400 and self.endpoint.action in _PROBES:
            return
        services = self.services
        if self._is_over_limit or (self.owner is None and 400 <= status < 500):
            services.recorder.refuse(record, self.request.peer, is_logged=self._is_over_limit)
            return
        services.recorder.add(record, key, self.loaded.prices)
        if record.span is None and self.calls_providers and services.spans.is_on:
            services.spans.start(record, self.request.headers)
        if record.span is not None:
            services.spans.end(record)

    def hand_over(self) -> None:
        """Another request continues for this one, and is recorded in its place."""
        self._is_handed_over = True

    # What subclasses use.

    @property
    def connection(self) -> ConnectionAnswers | None:
        """The answers of the client's WebSocket connection, if it has one."""
        session = self.request.session
        return session if isinstance(session, ConnectionAnswers) else None

    def call(self, targets: Sequence[Target], prepare: Prepare, **options: Any) -> ProviderCall:
        """A call of the targets, in order, until one answers. Attempts and waiting are in the record."""
        spans, headers = self.services.spans, self.request.headers
        if "traceparent" in headers or time.monotonic() >= spans.nowhere_until:
            spans.start(self.record, headers)
        return ProviderCall(targets, prepare, self.record, on_send=self.services.recorder.on_send, **options)

    def targets(self, model: str) -> list[Target]:
        """The targets of a model, in order. Raises `InvalidModelName`, `RoutingError`, and `RequestRefused` for this client.

        A name that the key may not use is refused alike whether there is such a model or not.
        """
        self.record.requested_model = model
        key = self.key
        if key.is_checked and not key.may_use(model):
            check_model_name(model)
            message = f"this key may not use model {model!r}; allowed: {', '.join(key.models)}"
            raise RequestRefused(ProviderError(message, "permission", param="model"))
        return self.loaded.resolve(model)

    def refuse(self, error: ProviderError, status: int | None = None) -> Response:
        """An error of the gateway's own, which is the answer."""
        self.record.error = error
        return error_response(self.endpoint.format, error, status=status)

    # Limits and errors.

    async def _limit(self) -> Response | None:
        """The refusal of a request whose client is over a limit; None if it may go on."""
        reached = await self.services.accounts.limit_reached(self.key, costs=self.calls_providers)
        if reached is None:
            return None
        self._is_over_limit = True
        return reached.response(self.endpoint.format)

    def _failed(self, error: Exception) -> Response:
        """The response to a request that an error ended: of the client, of a provider, of a store, or a defect of ours."""
        format_name = self.endpoint.format
        if isinstance(error, UpstreamFailed):
            self.record.error = error.error
            return provider_error_response(format_name, error.error, self.record.provider)
        if isinstance(error, WireError):
            return self.refuse(ProviderError(str(error), "invalid_request"))
        if isinstance(error, InvalidModelName):
            self.record.requested_model = ""  # it may be of any length
            return self.refuse(ProviderError(str(error), "invalid_request", param="model"))
        if isinstance(error, RoutingError):
            models = visible_models(self.loaded.routes, self.key.may_use)
            return self.refuse(unknown_model_error(self.record.requested_model, models))
        if isinstance(error, UnknownResponse):
            return self.refuse(to_provider_error(error), error.status)
        if isinstance(error, RequestRefused):
            return self.refuse(error.error, error.status)
        if isinstance(error, StateLimitReached):
            return self.refuse(ProviderError(str(error), "too_large"))
        if isinstance(error, StoreError):
            return self.refuse(store_failure(error))
        self.record.status_after(error, self.request.deadline)  # its line has the traceback of a defect
        if isinstance(error, AntiphonError):
            logger.error("internal error while handling a request", exc_info=error)
        message = f"internal error; see the log for request {self.request.request_id}"
        return error_response(format_name, ProviderError(message, "server"), status=500)

    def _add_report(self, response: Response) -> None:
        """Say in headers who answered and what was changed."""
        record, headers = self.record, response.headers
        target = f"{record.provider}/{record.model}" if record.model else record.provider
        headers["x-antiphon-target"] = target if target.isascii() and target.isprintable() else header_text(target)
        if len(record.attempts) > 1:
            headers["x-antiphon-attempts"] = str(len(record.attempts))
        if record.repairs:
            headers["x-antiphon-repairs"] = header_list([action.kind for action in record.repairs])
        if record.losses:
            headers["x-antiphon-losses"] = header_list([f"{loss.path} {loss.what}" for loss in record.losses])
        if record.fallbacks:
            headers["x-antiphon-fallback"] = header_list([each.summary for each in record.fallbacks])
        if record.cache is not None and response.status < 400:
            headers["x-antiphon-cache"] = header_text(record.cache.header)[:_MAX_HEADER_CHARS]


Handler: TypeAlias = Callable[[MeteredRequest], Awaitable[Response]]
"""Answers a request to a small endpoint."""


class SmallRequest(MeteredRequest):
    """A request that the gateway answers itself, by a function."""

    handler: Handler
    """Set by who makes it."""

    async def answer(self) -> Response:
        """What the function answers."""
        return await self.handler(self)


class SocketRequest(MeteredRequest):
    """The request that opens a WebSocket. What it carries are requests of their own."""

    takes: BodyKind = "socket"

    async def answer(self) -> Response:
        """The response to a request that opens none."""
        error = ProviderError("connect with a WebSocket, or send POST", "invalid_request", code="upgrade_required")
        headers = {"upgrade": "websocket", "connection": "Upgrade"}
        return error_response(self.endpoint.format, error, status=426, headers=headers)


def count_copy(hold: Hold | None, size: int) -> None:
    """Count the copy of a body that is made while it is worked on: parsed, or written again. Raises `RequestRefused`."""
    if hold is not None and (refusal := hold.grow(size, is_copy=True)):
        raise RequestRefused(overloaded(refusal))


def header_list(text: list[str]) -> str:
    """How many and which, as a header value."""
    return header_text(f"{len(text)}; {', '.join(dict.fromkeys(text))}")[:_MAX_HEADER_CHARS]
