"""`Services`: what outlives a configuration: connections, kept responses, limits, and everything that is counted and shown."""

from __future__ import annotations

from msgspec import Struct

from antiphon.gateway.limits import RateLimits
from antiphon.gateway.media import MediaFetcher
from antiphon.gateway.metrics import Metrics
from antiphon.gateway.recent import RecentRequests
from antiphon.gateway.response_state import ResponseState
from antiphon.gateway.shared import Shared
from antiphon.gateway.spans import Spans
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
