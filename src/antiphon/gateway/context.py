"""What a request handler gets: `RequestContext`, and the `Services` that all requests of a process share."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct, field

from antiphon.gateway.access.budgets import Budgets
from antiphon.gateway.access.client_keys import ClientKey
from antiphon.gateway.access.rate_limits import RateLimits
from antiphon.gateway.cluster.sync import ClusterSync
from antiphon.gateway.cluster.worker_health import WorkerHealth
from antiphon.gateway.config.loaded import LoadedConfig
from antiphon.gateway.generate.media import MediaFetcher
from antiphon.gateway.http.governor import Governor
from antiphon.gateway.http.messages import ClientRequest, Response
from antiphon.gateway.ledger.database import OperatorDatabase
from antiphon.gateway.ledger.ledger import UsageLedger
from antiphon.gateway.ledger.spend_counters import SpendCounters
from antiphon.gateway.ledger.stored_keys import StoredKeys
from antiphon.gateway.observe.metrics import Metrics
from antiphon.gateway.observe.recent import RecentRequests
from antiphon.gateway.observe.request_trace import RequestTrace
from antiphon.gateway.observe.tracing import RequestTracer
from antiphon.gateway.routes import Endpoint
from antiphon.gateway.state.background import BackgroundAnswers
from antiphon.gateway.state.connection import ConnectionAnswers
from antiphon.gateway.state.conversations import ConversationStore
from antiphon.gateway.state.store import ResponseStore
from antiphon.gateway.state.upstream_answers import UpstreamAnswers
from antiphon.providers.credentials.health import CredentialStatus
from antiphon.providers.transport.request import Transport


class Services(Struct, kw_only=True):
    """Shared by all requests of a process."""

    transport: Transport
    state: ResponseStore
    conversations: ConversationStore
    background: BackgroundAnswers
    upstream_answers: UpstreamAnswers
    media: MediaFetcher
    limits: RateLimits
    metrics: Metrics
    recent: RecentRequests
    spans: RequestTracer
    database: OperatorDatabase
    stored_keys: StoredKeys
    """Client keys in that database."""
    budgets: Budgets = field(default_factory=Budgets)
    governor: Governor = field(default_factory=lambda: Governor(lambda: sys.maxsize))
    """Counts what waits."""
    ledger: UsageLedger | None = None
    """Where usage is recorded; None: nowhere."""
    spent: SpendCounters | None = None
    """What its rows used, for the metrics."""
    worker_health: WorkerHealth | None = None
    """Key health shared with the other workers of the host; None: there is one process."""
    shared: ClusterSync | None = None
    """The state shared with other processes; None: nothing is shared."""

    def credentials_of(self, loaded: LoadedConfig) -> Mapping[str, Sequence[CredentialStatus]]:
        """The health of the keys of each provider, with the calls of all workers of the host."""
        own = loaded.credentials
        return own if self.worker_health is None else self.worker_health.with_others(own)


class RequestContext(Struct, frozen=True):
    """One request: its `endpoint`, client `key` and services. `loaded` stays the same to the end."""

    loaded: LoadedConfig
    services: Services
    request: ClientRequest
    endpoint: Endpoint
    key: ClientKey
    connection: ConnectionAnswers | None = None
    """The answers of the client's WebSocket connection, if it has one."""


OnFinish: TypeAlias = Callable[[RequestTrace, RequestContext], None]
"""Records a request that has ended."""
Handler: TypeAlias = Callable[[RequestContext], Awaitable[Response]]
"""Answers a request to a small endpoint."""
