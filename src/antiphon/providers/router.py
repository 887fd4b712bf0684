"""`ProviderRouter`: one `ProviderClient` for all of them, which finds out whom to ask and asks the next when nothing came.

Names are `routes`' business. The router's is failover, and its one rule is that nothing may be shown twice: deltas are held
back until the first that a reader would see (a word, a thought, the start of a call), and as long as nothing was seen, a stream
that fails, is cut, or ends empty is forgotten and the next target is asked. From then on the answer is passed on as it comes,
and a failure is the reader's to deal with. If nobody answers, the last failure is passed on.

Not every error is worth asking somebody else: what is wrong with our request is wrong everywhere. `FALLS_OVER` says which are.

Every attempt is in the call's report, failed ones too; its origin, losses and repairs are those of who answered. A provider
that was not given is built when it is first named, from its preset and the environment; one that cannot be built (no key) is a
failed attempt like any other. Closing the router closes all its providers.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from time import perf_counter
from types import MappingProxyType
from typing import Literal, Self, TypeAlias

from msgspec import structs

from antiphon.errors import AntiphonError
from antiphon.history import ContextEntry, Origin
from antiphon.providers.call import Attempt, ProviderCallOptions
from antiphon.providers.client import ProviderClient
from antiphon.providers.default_model import default_model
from antiphon.providers.presets import PRESETS
from antiphon.providers.routes import Route, RouteTable, Target
from antiphon.wire.delta import EMPTY_STOP_REASONS, Failed, Finished, ModelOutputDelta, is_visible
from antiphon.wire.output import ErrorKind, ProviderError

logger = logging.getLogger(__name__)

Reach: TypeAlias = Literal["anywhere", "another model", "nowhere"]

FALLS_OVER: Mapping[ErrorKind, Reach] = MappingProxyType(
    {
        "authentication": "anywhere",
        "billing": "anywhere",
        "permission": "anywhere",
        "not_found": "anywhere",
        "timeout": "anywhere",
        "conflict": "anywhere",
        "rate_limit": "anywhere",
        "overloaded": "anywhere",
        "server": "anywhere",
        "stream_cut": "anywhere",
        "unknown": "anywhere",
        "context_length": "another model",
        "too_large": "another model",
        "invalid_request": "nowhere",
    }
)
"""Where else to ask after an error of each kind."""

BUILT_IN: Mapping[str, tuple[str, ...]] = MappingProxyType({"offline": (), "local": ("smollm2*",)})
"""Providers that need no preset, with the globs of their models."""

_EMPTY = ProviderError("the answer was empty", "stream_cut")
_CUT = ProviderError("the stream ended without a terminal event", "stream_cut")


class ProviderRouter(ProviderClient):
    """Routes calls by the name of the model.

    `roles` are names for who does what in a conversation (planner, executor, reviewer). `fallbacks` are asked after everybody
    else, whatever the model. `default` is the model of calls that name none. Providers that were not given are built from
    `environ`, by default that of the process. With `only_routes` only names of `roles` and `routes` are served.
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
        """A router whose default is the best the environment offers (see `default_model`)."""
        environ = os.environ if environ is None else environ
        return cls(default=default_model(environ).model, environ=environ)

    def providers(self) -> dict[str, tuple[str, ...]]:
        """Every provider that can be named (given, built in, or with a preset), with the globs of its own models."""
        presets = {name: preset.models for name, preset in PRESETS.items()}
        given = {name: presets.get(name, ()) for name in self._clients}
        return {**given, **BUILT_IN, **presets}

    def resolve(self, model: str) -> list[Target]:
        """Whom a call for `model` asks, in order. Raises `RoutingError`, saying what there is, if it leads nowhere."""
        return self._table.resolve(model or self.default)

    def client(self, provider: str) -> ProviderClient:
        """The client of a provider, built if it is not there yet."""
        if provider not in self._clients:
            self._clients[provider] = _built(provider, self._environ)
        return self._clients[provider]

    async def call_model(
        self, context: Sequence[ContextEntry], options: ProviderCallOptions
    ) -> AsyncIterator[ModelOutputDelta]:
        targets = self.resolve(options.model)
        while True:
            target, *others = targets
            trial = _Trial(target, options)
            deltas = self._asked(target, context, trial.options)
            try:
                async for delta in deltas:
                    for shown in trial.told(delta):
                        yield shown
            finally:
                if isinstance(deltas, AsyncGenerator):
                    await deltas.aclose()
            for shown in trial.ended():
                yield shown
            targets = trial.worth_asking(others)
            if not targets:
                for held in trial.held:
                    yield held
                return
            logger.warning(
                "request %s: %s did not answer (%s), asking %s", options.request_id, target, trial.error, targets[0]
            )
            trial.forgotten()

    def _asked(
        self, target: Target, context: Sequence[ContextEntry], options: ProviderCallOptions
    ) -> AsyncIterator[ModelOutputDelta]:
        try:
            client = self.client(target.provider)
        except AntiphonError as error:
            return _refused(ProviderError(str(error), "authentication", code="not_configured"))
        return client.call_model(context, options)

    async def aclose(self) -> None:
        for client in self._clients.values():
            await client.aclose()


class _Trial:
    """One target's try at a call: what it said while nothing of it could be seen, and how it ended."""

    def __init__(self, target: Target, options: ProviderCallOptions) -> None:
        self.options = structs.replace(options, model=target.model)
        self.held: list[ModelOutputDelta] = []
        self.error: ProviderError | None = None
        self._target = target
        self._was_shown = self._has_ended = False
        self._report = options.report
        self._report.origin = Origin(target.provider, "", target.model)
        self._report.provider_request_id = ""
        self._known = (len(self._report.attempts), len(self._report.losses), len(self._report.repairs))
        self._since = perf_counter()

    def told(self, delta: ModelOutputDelta) -> Sequence[ModelOutputDelta]:
        """Take a delta in; what may be shown now."""
        if isinstance(delta, Failed):
            self._has_ended = True
            self.error = delta.error
        elif isinstance(delta, Finished):
            self._has_ended = True
            self.error = None if self._was_shown or delta.stop_reason not in EMPTY_STOP_REASONS else _EMPTY
        if self._was_shown:
            return (delta,)
        self.held.append(delta)
        if not is_visible(delta):
            return ()
        self._was_shown = True
        shown, self.held = self.held, []
        return shown

    def ended(self) -> Sequence[ModelOutputDelta]:
        """The stream is over: write the attempt down; what is to be shown if it was cut."""
        cut = () if self._has_ended else self.told(Failed(_CUT))
        attempts = self._report.attempts
        if len(attempts) == self._known[0]:
            seconds = perf_counter() - self._since
            attempts.append(Attempt(provider=self._target.provider, model=self._target.model, seconds=seconds))
        if self.error is not None and attempts[-1].error is None:
            attempts[-1] = structs.replace(attempts[-1], error=self.error)
        return cut

    def worth_asking(self, others: list[Target]) -> list[Target]:
        """Who of the others may do better."""
        if self._was_shown or self.error is None:
            return []
        return worth_asking(self.error, self._target, others)

    def forgotten(self) -> None:
        """Take back what the report says of an answer that is not given."""
        del self._report.losses[self._known[1] :]
        del self._report.repairs[self._known[2] :]


def worth_asking(error: ProviderError, asked: Target, others: list[Target]) -> list[Target]:
    """Who of the others may do better where `asked` failed."""
    reach = FALLS_OVER[error.kind]
    if reach == "another model":
        return [target for target in others if target.model != asked.model]
    return others if reach == "anywhere" else []


async def _refused(error: ProviderError) -> AsyncIterator[ModelOutputDelta]:
    yield Failed(error)


def _built(provider: str, environ: Mapping[str, str]) -> ProviderClient:
    if provider == "offline":
        from antiphon.providers.offline import OfflineModel

        return OfflineModel()
    if provider == "local":
        from antiphon.providers.local import LocalModel

        return LocalModel()

    from antiphon.providers import http_provider

    return http_provider.provider(provider, environ=environ)
