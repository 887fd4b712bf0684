"""`ProviderRouter`: one `ProviderClient` for all providers; it picks the target of a call and falls back to the next one.

`routes` resolves names to targets, and `engine.provider_call` calls them: deltas are held back until the first visible one. Until
then a stream that fails, is cut or ends empty is discarded, and the next target is tried; after that a failure is passed on, so
nothing is shown twice. If every target fails, the last failure is passed on.

All attempts are in the call's report; its origin, losses and repairs are those of the target that answered. A provider is built
on first use, from its preset and the environment; if that fails (no key), it counts as a failed attempt. Closing the router
closes its providers.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from types import MappingProxyType
from typing import Self

from msgspec import structs

from antiphon.errors import AntiphonError
from antiphon.extensions import EXTENSIONS, load_part
from antiphon.history import ContextEntry, ModelOutputEntry, Origin
from antiphon.parts import Text
from antiphon.providers.call import ProviderCallOptions, ProviderClient
from antiphon.providers.default_model import default_model
from antiphon.providers.engine.client_call import ClientCall, failed_deltas
from antiphon.providers.engine.provider_call import ProviderCall, TargetCall
from antiphon.providers.keys.target_health import CircuitPolicy, TargetHealth
from antiphon.providers.presets import PRESETS
from antiphon.providers.retry import FIRST_TOKEN_SECONDS
from antiphon.providers.routes import Route, RouteTable, Target
from antiphon.wire.delta import ModelOutputDelta
from antiphon.wire.output import ProviderError

BUILTIN_PROVIDERS: Mapping[str, tuple[str, ...]] = MappingProxyType({"offline": (), "local": ("smollm2*",)})
"""Providers without a preset, with the globs of their models."""


class ProviderRouter(ProviderClient):
    """Routes calls by model name.

    `roles` are names for jobs in a conversation (planner, executor, reviewer). `fallbacks` are tried last, whatever the model.
    `default` is the model of calls that name none. Other providers are built from `environ`, by default the process's. With
    `only_routes` only names in `roles` and `routes` are accepted. A target without a visible delta after `first_token_seconds`
    is given up if another one is left (None: it is waited for); `Timeouts.first_token` of a provider takes precedence. `circuit`
    says when a target that fails is skipped for a while. With `continue_streams` a text whose stream broke is finished by the
    next target: from the shown text on, if the model can continue it, or if its own answer begins with that text. `health` is
    that of another user of the same targets, in place of one with the policy `circuit`.
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
        first_token_seconds: float | None = FIRST_TOKEN_SECONDS,
        circuit: CircuitPolicy | None = None,
        continue_streams: bool = False,
        health: TargetHealth | None = None,
    ) -> None:
        self.name = name
        self._first_token_seconds = first_token_seconds
        self._continues = continue_streams
        self.default = default
        self._environ = os.environ if environ is None else environ
        self._clients = dict(providers or {})
        measures = any(route.order == "fastest" for route in routes)
        self.target_health = health or TargetHealth(circuit, measures=measures)
        arrange = self.target_health.arrange
        self._table = RouteTable(routes, roles, fallbacks, self.providers, only_routes=only_routes, arrange=arrange)

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

    def call_model(
        self, context: Sequence[ContextEntry], options: ProviderCallOptions
    ) -> AsyncIterator[ModelOutputDelta]:
        return self.call_targets(None, context, options)

    async def call_targets(
        self, targets: list[Target] | None, context: Sequence[ContextEntry], options: ProviderCallOptions
    ) -> AsyncIterator[ModelOutputDelta]:
        """Like `call_model`, with these targets; None: those of `options.model`."""
        targets = self.resolve(options.model) if targets is None else targets
        report = options.report
        losses, repairs = len(report.losses), len(report.repairs)

        async def prepare(target: Target, context: Sequence[ContextEntry] = context) -> TargetCall:
            del report.losses[losses:], report.repairs[repairs:]  # those of the target before
            report.origin = Origin(target.provider, "", target.model)
            report.provider_request_id = ""
            return self._target_call(target, context, structs.replace(options, model=target.model))

        async def prepare_prefix(target: Target, text: str) -> TargetCall | None:
            client = self.client(target.provider)
            prefixed = [*context, ModelOutputEntry((Text(text),))]
            return await prepare(target, prefixed) if client.continues_prefix(target.model) else None

        call = ProviderCall(
            targets,
            prepare,
            report,
            accepts_empty=True,
            request_id=options.request_id,
            first_token=self._first_token_seconds,
            health=self.target_health,
            continues=self._continues,
            prepare_prefix=prepare_prefix,
            on_retry=options.on_retry,
        )
        async with aclosing(await call.batches()) as batches:
            async for batch in batches:
                for delta in batch:
                    yield delta

    def _target_call(self, target: Target, context: Sequence[ContextEntry], options: ProviderCallOptions) -> TargetCall:
        try:
            client = self.client(target.provider)
        except AntiphonError as error:
            failure = ProviderError(str(error), "authentication", code="not_configured")
            return ClientCall(target, failed_deltas(failure))
        return client.prepare_call(context, options) or ClientCall(target, client.call_model(context, options))

    def has_structured_output(self, model: str, *, with_tools: bool) -> bool:
        return all(
            self.client(target.provider).has_structured_output(target.model, with_tools=with_tools)
            for target in self.resolve(model)
        )

    def origins_of(self, model: str) -> Sequence[Origin]:
        return [Origin(target.provider, "", target.model) for target in self.resolve(model)]

    def compacts_at(self, model: str, tokens: int) -> bool:
        targets = self.resolve(model)
        return all(self.client(target.provider).compacts_at(target.model, tokens) for target in targets)

    def retry_rejected_keys(self) -> None:
        """Let the next call try keys that were just rejected, where there are no others."""
        from antiphon.providers.http_provider import HttpProviderClient

        for client in self._clients.values():
            if isinstance(client, HttpProviderClient) and client.credentials is not None:
                client.credentials.retry_rejected()

    async def aclose(self) -> None:
        async with AsyncExitStack() as all_of_them:  # also if closing one fails, or is cancelled
            for client in self._clients.values():
                all_of_them.push_async_callback(client.aclose)


def build_client(provider: str, environ: Mapping[str, str]) -> ProviderClient:
    if provider == "offline":
        needed_for = "set an API key (ANTHROPIC_API_KEY, OPENAI_API_KEY, …) or name a model; the offline model"
        client: ProviderClient = load_part(EXTENSIONS, "guided_tour", needed_for).OfflineModel()
        return client
    if provider == "local":
        from antiphon.providers.local import LocalModel

        return LocalModel()

    from antiphon.providers import http_provider

    return http_provider.provider(provider, environ=environ)
