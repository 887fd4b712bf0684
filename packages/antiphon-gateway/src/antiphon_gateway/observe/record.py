"""`Record`: what happened to one request: who asked, whom was asked, how long, what it used, how it ended.

Every request has one, whatever its route; `MeteredRequest` makes it and ends it, once. A model call writes its attempts into it
directly: it is a `CallReport`. The `Recorder` charges it and passes it on.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from msgspec import field

from antiphon.errors import AntiphonError
from antiphon.parts import TokenUsage
from antiphon.providers.call import CallReport
from antiphon.wire.delta import Failed, Finished, ModelOutputDelta, PartDelta, Started, UsageReported, is_visible
from antiphon.wire.output import ProviderError
from antiphon_gateway.observe.cache_record import CacheCheck, CacheRecord

Outcome: TypeAlias = Literal["answered", "refused", "failed", "cancelled"]
Charge: TypeAlias = Literal["tokens", "free", "unknown"]
"""What a provider charges for a request that reports no usage: tokens that can be estimated, nothing, or what is not known."""

CHAT_PAGE = "chat-page"
"""The client format of model calls of the chat page."""
CLIENT_ERRORS = frozenset({"invalid_request", "context_length", "too_large"})
"""Kinds of errors that are the client's fault."""
CLIENT_LEFT = 499


def request_outcome(status: int, error_kind: str, *, was_sent: bool) -> Outcome:
    """How a request ended, whatever status its head had: the head of a stream is sent before its end is known.

    `refused` is the client's fault; a provider's rate limit is not. `was_sent`: whether a provider was asked.
    """
    if status == CLIENT_LEFT:
        return "cancelled"
    if status < 400:
        if not error_kind:
            return "answered"
        return "refused" if error_kind in CLIENT_ERRORS else "failed"
    return "refused" if status < 500 and not (status == 429 and was_sent) else "failed"


class Record(CallReport, kw_only=True):
    """One request. `waiting_seconds` of it were spent waiting for others; the rest of `seconds` is the gateway's own."""

    request_id: str
    client_format: str = ""
    operation: str = "chat"
    """Its operation name in OpenTelemetry's GenAI conventions."""
    key: str = ""
    requested_model: str = ""
    streams: bool = False
    service_tier: str = ""
    """The tier that the request asks for, which changes its price."""
    provider: str = ""
    model: str = ""
    upstream_format: str = ""
    status: int = 0
    error: ProviderError | None = None
    defect: Exception | None = None
    """The exception that ended it, if that was a defect of ours; the log line has its traceback."""
    client_left: bool = False
    """Whether the client disconnected before the end."""
    began_early: bool = False
    """Whether the head of the stream was sent before a provider answered."""
    started_at: float = field(default_factory=time.monotonic)
    """On the monotonic clock."""
    first_token_seconds: float | None = None
    seconds: float = 0.0
    """How long it took; set at its end."""
    ended_at: float = 0.0
    """When it ended, in seconds since 1970; 0 before that."""
    is_timed: bool = True
    """Whether its times are those of calls of models: the gateway answers other requests itself, in no time."""
    charges: Charge = "tokens"
    usage: TokenUsage | None = None
    prompt_estimate: int = 0
    """The approximate number of tokens of the prompt."""
    output_bytes: int = 0
    """The text of the answer so far, in bytes of UTF-8; counted if the provider reports no usage."""
    broken_tokens: int = 0
    """An estimate for streams that broke without reporting usage and were finished by another target."""
    sent: list[int] | None = None
    """What the ledger knows of its attempts before they end (`UsageLedger.begin`)."""
    span: Any = None
    """Its span of OpenTelemetry, if it is traced."""
    span_began: int = 0
    trace_headers: Mapping[str, str] | None = None
    """The headers that continue its trace upstream."""
    cache: CacheCheck | None = None
    """What the cache doctor finds, if it is on."""
    stop_reason: str = ""
    response_id: str = ""
    response_model: str = ""

    def observe(self, deltas: list[ModelOutputDelta]) -> None:
        """Record the facts in a response."""
        for delta in deltas:
            if self.first_token_seconds is None and is_visible(delta):
                self.first_token_seconds = time.monotonic() - self.started_at
            if isinstance(delta, PartDelta):
                self.output_bytes += len(delta.text.encode("utf-8", "replace"))
            elif isinstance(delta, UsageReported):
                self.usage = delta.usage
            elif isinstance(delta, Failed):
                self.error = delta.error
        if self.span is not None:
            self._observe_answer(deltas)

    def _observe_answer(self, deltas: list[ModelOutputDelta]) -> None:
        """What a span has besides: who answered, and why the answer ended."""
        for delta in deltas:
            if isinstance(delta, Finished):
                self.stop_reason = delta.stop_reason
                self.response_model = delta.model or self.response_model
            elif isinstance(delta, Started):
                self.response_id, self.response_model = delta.id, delta.model

    def end(self, status: int) -> None:
        """It ended with that status, now."""
        self.status = status
        self.seconds = time.monotonic() - self.started_at
        self.ended_at = time.time()

    def status_after(self, error: BaseException, deadline: float) -> int:
        """The status of a request ended by `error`: a defect of ours, a timeout, or a disconnect."""
        if isinstance(error, Exception):
            self.error = ProviderError(f"internal error: {type(error).__name__}", "server")
            self.defect = None if isinstance(error, AntiphonError) else error
            return 500
        if time.monotonic() >= deadline:
            self.error = ProviderError("request timed out", "timeout")
            return 504
        self.client_left = True
        return CLIENT_LEFT

    @property
    def outcome(self) -> Outcome:
        """How it ended."""
        if self.error is None and self.status < 400:
            return "answered"
        kind = self.error.kind if self.error is not None else ""
        return request_outcome(self.status, kind, was_sent=bool(self.attempts))

    @property
    def cache_record(self) -> CacheRecord | None:
        """What the cache doctor found, once the request has ended; None for a request without an answer."""
        return None if self.cache is None or self.status >= 400 else self.cache.record(self.usage)

    @property
    def overhead_seconds(self) -> float:
        """The gateway's own part of its time."""
        return max(0.0, self.seconds - self.waiting_seconds)
