"""`ProviderRouter`: one `ProviderClient` for all providers; it picks the target of a call and falls back to the next one.

`routes` resolves names to targets. Deltas are held back until the first visible one. Until then a stream that fails, is cut or
ends empty is discarded, and `retry.fallback_targets` picks the next target; after that a failure is passed on, so nothing is
shown twice. If every target fails, the last failure is passed on.

All attempts are in the call's report; its origin, losses and repairs are those of the target that answered. A provider is built
on first use, from its preset and the environment; if that fails (no key), it counts as a failed attempt. Closing the router
closes its providers.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from time import perf_counter
from types import MappingProxyType
from typing import Self

from msgspec import structs

from antiphon.errors import AntiphonError
from antiphon.history import ContextEntry, Origin
from antiphon.providers.call import Attempt, ProviderCallOptions
from antiphon.providers.client import ProviderClient
from antiphon.providers.default_model import default_model
from antiphon.providers.presets import PRESETS
from antiphon.providers.retry import RETRY_RULES, FallbackScope, fallback_targets
from antiphon.providers.routes import Route, RouteTable, Target
from antiphon.wire.delta import EMPTY_STOP_REASONS, Failed, Finished, ModelOutputDelta, is_visible
from antiphon.wire.output import ErrorKind, ProviderError

logger = logging.getLogger(__name__)

FALLS_OVER: Mapping[ErrorKind, FallbackScope] = MappingProxyType(
    {kind: rule.fallback for kind, rule in RETRY_RULES.items()}
)
"""Which targets are tried after an error of each kind: a column of `retry.RETRY_RULES`."""

BUILTIN_PROVIDERS: Mapping[str, tuple[str, ...]] = MappingProxyType({"offline": (), "local": ("smollm2*",)})
"""Providers without a preset, with the globs of their models."""

_EMPTY = ProviderError("the answer was empty", "stream_cut")
_CUT = ProviderError("the stream ended without a terminal event", "stream_cut")


class ProviderRouter(ProviderClient):
    """Routes calls by model name.

    `roles` are names for jobs in a conversation (planner, executor, reviewer). `fallbacks` are tried last, whatever the model.
    `default` is the model of calls that name none. Other providers are built from `environ`, by default the process's. With
    `only_routes` only names in `roles` and `routes` are accepted.
    """

    def __init__(
        self,
        providers: Mapping[str, ProviderClient] | None = None,
        *,
        routes: Sequence[Route] = (),
        roles: Mapping[str, str] = MappingProxyType({}),
        fallbacks: Sequence[str] = (),
        default: str = "",
        environ: Mapping[str, str] | None = None,
        name: str = "router",
        only_routes: bool = False,
    ) -> None:
        self.name = name
        self.default = default
        self._environ = os.environ if environ is None else environ
        self._clients = dict(providers or {})
        self._table = RouteTable(routes, roles, fallbacks, self.providers, only_routes=only_routes)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Self:
        """A router whose default is the best available model (see `default_model`)."""
        environ = os.environ if environ is None else environ
        return cls(default=default_model(environ).model, environ=environ)

    def providers(self) -> dict[str, tuple[str, ...]]:
        """Every known provider (given, built in, or with a preset), with the globs of its models."""
        presets = {name: preset.models for name, preset in PRESETS.items()}
        given = {name: presets.get(name, ()) for name in self._clients}
        return {**given, **BUILTIN_PROVIDERS, **presets}

    def resolve(self, model: str) -> list[Target]:
        """The targets of a call for `model`, in order. Raises `RoutingError`, with the known names, if there is none."""
        return self._table.resolve(model or self.default)

    def client(self, provider: str) -> ProviderClient:
        """The client of a provider, built on first use."""
        if provider not in self._clients:
            self._clients[provider] = build_client(provider, self._environ)
        return self._clients[provider]

    async def call_model(
        self, context: Sequence[ContextEntry], options: ProviderCallOptions
    ) -> AsyncIterator[ModelOutputDelta]:
        targets = self.resolve(options.model)
        while True:
            target, *others = targets
            attempt = _TargetAttempt(target, options)
            deltas = self._call(target, context, attempt.options)
            try:
                async for delta in deltas:
                    for visible in attempt.accept(delta):
                        yield visible
            finally:
                if isinstance(deltas, AsyncGenerator):
                    await deltas.aclose()
            for visible in attempt.finish():
                yield visible
            targets = attempt.next_targets(others)
            if not targets:
                for held in attempt.held:
                    yield held
                return
            logger.warning(
                "request %s: %s failed (%s); falling back to %s", options.request_id, target, attempt.error, targets[0]
            )
            attempt.discard()

    def _call(
        self, target: Target, context: Sequence[ContextEntry], options: ProviderCallOptions
    ) -> AsyncIterator[ModelOutputDelta]:
        try:
            client = self.client(target.provider)
        except AntiphonError as error:
            return _failed_stream(ProviderError(str(error), "authentication", code="not_configured"))
        return client.call_model(context, options)

    def has_structured_output(self, model: str, *, with_tools: bool) -> bool:
        return all(
            self.client(target.provider).has_structured_output(target.model, with_tools=with_tools)
            for target in self.resolve(model)
        )

    async def aclose(self) -> None:
        for client in self._clients.values():
            await client.aclose()


class _TargetAttempt:
    """One target's attempt: the deltas held back until one is visible, and how it ended."""

    def __init__(self, target: Target, options: ProviderCallOptions) -> None:
        self.options = structs.replace(options, model=target.model)
        self.held: list[ModelOutputDelta] = []
        self.error: ProviderError | None = None
        self._target = target
        self._is_visible = self._has_ended = False
        self._report = options.report
        self._report.origin = Origin(target.provider, "", target.model)
        self._report.provider_request_id = ""
        self._recorded_before = (len(self._report.attempts), len(self._report.losses), len(self._report.repairs))
        self._started_at = perf_counter()

    def accept(self, delta: ModelOutputDelta) -> Sequence[ModelOutputDelta]:
        """Take a delta; returns what may be shown now."""
        if isinstance(delta, Failed):
            self._has_ended = True
            self.error = delta.error
        elif isinstance(delta, Finished):
            self._has_ended = True
            self.error = None if self._is_visible or delta.stop_reason not in EMPTY_STOP_REASONS else _EMPTY
        if self._is_visible:
            return (delta,)
        self.held.append(delta)
        if not is_visible(delta):
            return ()
        self._is_visible = True
        visible, self.held = self.held, []
        return visible

    def finish(self) -> Sequence[ModelOutputDelta]:
        """The stream is over: record the attempt; returns what to show if it was cut."""
        cut = () if self._has_ended else self.accept(Failed(_CUT))
        attempts = self._report.attempts
        if len(attempts) == self._recorded_before[0]:
            seconds = perf_counter() - self._started_at
            attempts.append(Attempt(provider=self._target.provider, model=self._target.model, seconds=seconds))
        if self.error is not None and attempts[-1].error is None:
            attempts[-1] = structs.replace(attempts[-1], error=self.error)
        return cut

    def next_targets(self, others: list[Target]) -> list[Target]:
        """Which of the other targets to try."""
        if self._is_visible or self.error is None:
            return []
        return fallback_targets(self.error, self._target, others)

    def discard(self) -> None:
        """Remove this attempt's losses and repairs from the report."""
        del self._report.losses[self._recorded_before[1] :]
        del self._report.repairs[self._recorded_before[2] :]


async def _failed_stream(error: ProviderError) -> AsyncIterator[ModelOutputDelta]:
    yield Failed(error)


def build_client(provider: str, environ: Mapping[str, str]) -> ProviderClient:
    if provider == "offline":
        from antiphon.providers.offline import OfflineModel

        return OfflineModel()
    if provider == "local":
        from antiphon.providers.local import LocalModel

        return LocalModel()

    from antiphon.providers import http_provider

    return http_provider.provider(provider, environ=environ)
