"""A model call: who is called (`ProviderClient`), with which options (`ProviderCallOptions`), and its record (`CallReport`).

A call is a stream of deltas that ends with exactly one terminal event, `Finished` or `Failed` (see `wire.delta`). Every failure
(no connection, a rejected key, an HTML page, a cut stream) is a `Failed` with a `ProviderError`; exceptions are for cancellation
and for mistakes of the caller. Closing the iterator, or cancelling the task that reads it, closes the connection at once.

The caller creates the report and the client fills it: every attempt, what the format could not express, and what was repaired.
It contains no secrets; credentials are masked.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import Struct, field

from antiphon.closing import AsyncClosable
from antiphon.errors import AntiphonError
from antiphon.history import ContextEntry, Origin
from antiphon.repair.action import Action
from antiphon.wire.delta import ModelOutputDelta
from antiphon.wire.loss import Loss
from antiphon.wire.output import ProviderError
from antiphon.wire.request import Layout, ModelRequest, ToolDefinition

if TYPE_CHECKING:
    from antiphon.providers.engine.provider_call import TargetCall


class Attempt(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request to a provider. `error` is set if it failed."""

    provider: str
    model: str = ""
    credential: str = ""
    """The credential's name or its masked form."""
    status: int | None = None
    seconds: float = 0.0
    error: ProviderError | None = None


class Fallback(Struct, frozen=True):
    """One step from a target to the next one, both as `provider/model`, and the error that caused it."""

    failed: str
    target: str
    error: ProviderError

    @property
    def summary(self) -> str:
        """The target that failed, and the code or the kind of the error: what a header has room for."""
        return f"{self.failed} {self.error.code or self.error.kind}"

    def __str__(self) -> str:
        return f"{self.failed} to {self.target}: {self.error}"


class RetryScheduled(Struct, frozen=True, tag=True):
    """An attempt failed, and the call waits before it tries again. `error.retry_after` is the wait that the provider asked for.

    `model` is the target, as `provider/model`; `at` is when the next attempt begins, `seconds` from now.
    """

    model: str
    seconds: float
    at: datetime
    error: ProviderError


class CallReport(Struct, kw_only=True):
    """The record of a call. `origin` is the provider that answered."""

    origin: Origin = field(default_factory=Origin)
    attempts: list[Attempt] = field(default_factory=list)
    fallbacks: list[Fallback] = field(default_factory=list)
    """Empty if the first target answered."""
    losses: list[Loss] = field(default_factory=list)
    repairs: list[Action] = field(default_factory=list)
    provider_request_id: str = ""
    base_url: str = ""
    """The address of the provider that was called last, if it has one."""
    waiting_seconds: float = 0.0
    """Time spent waiting for providers, and between attempts."""
    bodies: list[bytes] = field(default_factory=list)
    """With `ProviderCallOptions.debug`: the body for each target, as it was sent. No headers, so no key."""


class ProviderCallOptions(Struct, kw_only=True):
    """Options of a call besides the context.

    `settings` has all other request fields (temperature, reasoning, output format, …); its messages, model and tools are
    ignored. `request_id` is in every log line of the call; `headers` are sent with its HTTP requests (`traceparent`); `on_retry`
    is called before each wait for another attempt.

    `live_context=False` leaves out what is true only now: the live screen. `debug` keeps the bodies that are sent in the report;
    a conversation records them as `DebugLogEntry`s after the answer. `strategy` is the layout of the messages in OpenAI's Chat
    Completions, as of `AgentHistory.to_messages`; other formats have one layout. `compact_at` asks the provider to compact a
    conversation of more tokens itself; only where `ProviderClient.compacts_at` says that it can.
    """

    model: str = ""
    tools: tuple[ToolDefinition, ...] = ()
    settings: ModelRequest = field(default_factory=ModelRequest)
    request_id: str = ""
    report: CallReport = field(default_factory=CallReport)
    headers: Mapping[str, str] | None = None
    live_context: bool = True
    debug: bool = False
    strategy: Layout = "merged"
    compact_at: int | None = None
    on_retry: Callable[[RetryScheduled], None] | None = None


class ProviderClient(AsyncClosable):
    """Calls models of a provider. `name` is its name in routes and origins."""

    name: str

    @abstractmethod
    def call_model(
        self, context: Sequence[ContextEntry], options: ProviderCallOptions
    ) -> AsyncIterator[ModelOutputDelta]:
        """Request the next output. Implementations are async generators."""

    def has_structured_output(self, model: str, *, with_tools: bool) -> bool:  # noqa: ARG002
        """Whether `model` keeps to the JSON Schema of an output format, also in requests with tools."""
        return False

    def origins_of(self, model: str) -> Sequence[Origin]:
        """Who may answer a call for `model`: for its price, before it is made. Raises `RoutingError` for an unknown name."""
        return (Origin(self.name, "", model),)

    def compacts_at(self, model: str, tokens: int) -> bool:  # noqa: ARG002
        """Whether the API of `model` compacts a conversation of more than `tokens` itself, if it is asked to."""
        return False

    def continues_prefix(self, model: str) -> bool:  # noqa: ARG002
        """Whether `model` continues a last message of its own instead of writing another one."""
        return False

    def prepare_call(self, context: Sequence[ContextEntry], options: ProviderCallOptions) -> TargetCall | None:
        """The call as a request with its keys and retries, for a router that has more targets.

        None, the default: the router uses `call_model`, and takes each call as one attempt.
        """
        del context, options
        return None

    async def aclose(self) -> None:
        """Close connections. Running calls end."""


class ModelCallFailed(AntiphonError):
    """No provider completed an answer. `error` is the last failure, `report` has all attempts."""

    def __init__(self, error: ProviderError, report: CallReport) -> None:
        self.error = error
        self.report = report
        target = report.origin.name or "the provider"
        tries = f" after {len(report.attempts)} attempts" if len(report.attempts) > 1 else ""
        super().__init__(f"{target} did not answer{tries} ({error.kind}): {error.message}")
