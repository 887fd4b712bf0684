"""`Services`: what outlives a configuration: connections, kept responses, limits, and everything that is counted and shown."""

from __future__ import annotations

from msgspec import Struct

from antiphon.gateway.access.client_keys import ClientKey
from antiphon.gateway.access.rate_limits import RateLimits
from antiphon.gateway.cluster.sync import Shared
from antiphon.gateway.config.loaded import Running
from antiphon.gateway.endpoints.response_store import ResponseState
from antiphon.gateway.generate.media import MediaFetcher
from antiphon.gateway.http.messages import ClientRequest
from antiphon.gateway.observe.metrics import Metrics
from antiphon.gateway.observe.recent import RecentRequests
from antiphon.gateway.observe.tracing import Spans
from antiphon.gateway.routes import Door
from antiphon.providers.transport.request import Transport


class Services(Struct, kw_only=True):
    """Shared by all requests of a process."""

    transport: Transport
    state: ResponseState
    media: MediaFetcher
    limits: RateLimits
    metrics: Metrics
    recent: RecentRequests
    spans: Spans
    shared: Shared | None = None
    """What it shares with other processes; None: nothing."""


class Asked(Struct, frozen=True):
    """What is asked for (`door`), by whom (`key`), and with what it is answered. `running` is kept to the end."""

    running: Running
    services: Services
    request: ClientRequest
    door: Door
    key: ClientKey
