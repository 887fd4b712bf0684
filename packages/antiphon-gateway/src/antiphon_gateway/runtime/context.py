"""What a request handler gets: its `Admission`, its `RequestContext`, and the `Services` that all requests of a process share."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct, field

from antiphon.http.client.request import Transport
from antiphon.http.governor import Governor
from antiphon.http.messages import ClientRequest, Response
from antiphon.providers.call import CallReport
from antiphon.providers.credentials.health import CredentialStatus
from antiphon_gateway.access.accounts import ClientAccounts
from antiphon_gateway.access.admission import MAX_KEYLESS_BYTES, MAX_SETTINGS_BYTES
from antiphon_gateway.access.client_keys import ClientKey
from antiphon_gateway.ledger.database import OperatorDatabase
from antiphon_gateway.ledger.ledger import UsageLedger
from antiphon_gateway.ledger.stored_keys import StoredKeys
from antiphon_gateway.observe.metrics import Metrics
from antiphon_gateway.observe.recent import RecentRequests
from antiphon_gateway.observe.request_trace import RequestTrace
from antiphon_gateway.observe.tracing import RequestTracer
from antiphon_gateway.routes import Endpoint
from antiphon_gateway.runtime.loaded import LoadedConfig
from antiphon_gateway.runtime.media import MediaFetcher
from antiphon_gateway.share.state import SharedState
from antiphon_gateway.state.background import BackgroundAnswers
from antiphon_gateway.state.connection import ConnectionAnswers
from antiphon_gateway.state.conversations import ConversationStore
from antiphon_gateway.state.store import ResponseStore
from antiphon_gateway.state.upstream_answers import UpstreamAnswers

_CONTENT_ACTIONS = frozenset(
    {"generate", "count", "embed", "compact", "create_conversation", "update_conversation", "add_conversation_items"}
)
"""What takes a body of up to `gateway.max_body_bytes`."""


class Services(Struct, kw_only=True):
    """Shared by all requests of a process."""

    transport: Transport
    state: ResponseStore
    conversations: ConversationStore
    background: BackgroundAnswers
    upstream_answers: UpstreamAnswers
    media: MediaFetcher
    metrics: Metrics
    recent: RecentRequests
    spans: RequestTracer
    database: OperatorDatabase
    stored_keys: StoredKeys
    """Client keys in that database."""
    accounts: ClientAccounts = field(default_factory=ClientAccounts)
    governor: Governor = field(default_factory=lambda: Governor(lambda: sys.maxsize))
    """Counts what waits."""
    ledger: UsageLedger | None = None
    """Where usage is recorded; None: nowhere."""
    shared: SharedState = field(default_factory=SharedState)
    """What is shared with other processes."""

    def credentials_of(self, loaded: LoadedConfig) -> Mapping[str, Sequence[CredentialStatus]]:
        """The health of the keys of each provider, with the calls of all workers of the host."""
        return self.shared.with_other_workers(loaded.credentials)


class Admission(Struct, frozen=True):
    """A request that may be answered: its configuration, endpoint and client.

    Requests to the chat have no `endpoint` but an admission made by the chat.
    """

    loaded: LoadedConfig
    endpoint: Endpoint | None
    key: ClientKey
    started_at: float
    chat: Any = None
    passes_body: bool = False
    """Whether the body is passed on while it arrives, whatever it is."""
    connection: ConnectionAnswers | None = None
    """The answers of the client's WebSocket connection, if it has one."""
    record: Callable[[ClientRequest, Admission, Response | None], None] | None = None
    """Records a request that ends before, or without, being handled."""

    def end(self, request: ClientRequest, response: Response | None) -> None:
        """The request ends with a response that its handler did not give; None if the client left."""
        if self.record is not None:
            self.record(request, self, response)

    @property
    def opens_socket(self) -> bool:
        """Whether the path is served over a WebSocket."""
        return self.endpoint is not None and self.endpoint.action == "connect"

    @property
    def owner(self) -> str | None:
        """The client whose bytes are counted; None: it has shown no key, although there are keys."""
        key = self.chat if isinstance(self.chat, ClientKey) else self.key
        return key.name if key.name or self.loaded.keys.allows_anonymous else None

    @property
    def max_body(self) -> int:
        """The most bytes that the body may have."""
        if self.owner is None:
            return MAX_KEYLESS_BYTES
        most = self.loaded.config.gateway.max_body_bytes
        return most if self.endpoint is None or self.endpoint.action in _CONTENT_ACTIONS else MAX_SETTINGS_BYTES


class RequestContext(Struct, frozen=True):
    """One request: its `endpoint`, client `key` and services. `loaded` stays the same to the end."""

    loaded: LoadedConfig
    services: Services
    request: ClientRequest
    endpoint: Endpoint
    key: ClientKey
    connection: ConnectionAnswers | None = None
    """The answers of the client's WebSocket connection, if it has one."""
    trace: RequestTrace | None = None
    """The record of a request to a small endpoint, whose handler adds what it asked of providers."""

    def report(self) -> CallReport:
        """The report of a call that belongs to the record of this request."""
        trace = self.trace
        return CallReport() if trace is None else CallReport(attempts=trace.attempts, fallbacks=trace.fallbacks)

    def asked(self, provider: str, waiting_seconds: float, *, model: str = "", target_model: str = "") -> None:
        """A provider was asked, and took so long."""
        if self.trace is not None:
            self.trace.provider, self.trace.requested_model, self.trace.model = provider, model, target_model
            self.trace.waiting_seconds += waiting_seconds


OnFinish: TypeAlias = Callable[[RequestTrace, RequestContext], None]
"""Records a request that has ended."""
Handler: TypeAlias = Callable[[RequestContext], Awaitable[Response]]
"""Answers a request to a small endpoint."""
