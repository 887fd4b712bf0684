"""`HttpProviderClient`: a provider over HTTP, described by a preset; and `provider`, which builds one from the environment.

A call renders the context to the bytes of a body; `engine.provider_call` sends it and reads the response as deltas. Until part of
the answer is visible, a failed attempt is followed by another key or a retry; after that the failure is passed on. Every attempt
is recorded in the report of the call, with the key masked.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from random import random as random_fraction
from typing import Any, TypedDict, Unpack
from urllib.parse import urlsplit

from msgspec import structs

from antiphon.errors import AntiphonError, ProviderSetupError
from antiphon.history import ContextEntry, Origin
from antiphon.http.client.client import HttpClient
from antiphon.http.client.request import Timeouts, Transport
from antiphon.providers.call import ProviderCallOptions, ProviderClient
from antiphon.providers.engine.attempt import UpstreamRequest
from antiphon.providers.engine.model_list import LISTING_TIMEOUTS, fetch_models
from antiphon.providers.engine.provider import Provider
from antiphon.providers.engine.provider_call import ProviderCall
from antiphon.providers.keys.ring import KeyRing
from antiphon.providers.keys.secret import Credential
from antiphon.providers.presets import Preset, get_preset, normalize_base_url
from antiphon.providers.rendering import render_call
from antiphon.providers.retry import RetryPolicy
from antiphon.providers.routes import Target
from antiphon.wire import formats
from antiphon.wire.capabilities import CapabilityTable
from antiphon.wire.delta import ModelOutputDelta
from antiphon.wire.request import ModelRequest
from antiphon.wire.tools.call_restorer import CallRestorer

Keys = KeyRing | Iterable[str | Credential]

_RESPONSES = "openai-responses"
_ENCRYPTED = "reasoning.encrypted_content"
_BETA = "anthropic-beta"


_SCHEMA_PRESETS = frozenset({"openai", "azure-openai", "vllm", "llamacpp"})
"""Hosts of Chat Completions that keep to a JSON Schema in `response_format`; others may ignore it."""


class HttpProviderClient(ProviderClient):
    """A provider over HTTP.

    `preset` is a row of `PRESETS`, or its name; other arguments override its fields. `keys` are secrets (literal, `env:NAME`,
    `file:PATH`, or a token source such as `command:…`), `Credential`s, or a `KeyRing`, which may be shared. `region`,
    `project`, `resource` and `workspace` are settings of hosts in a cloud. Values of `headers` may be `env:NAME` or `file:PATH`
    too; such a value is masked if a provider repeats it. Variables are those of `environ`, by default the process's.
    `capabilities` adds facts about its models to the built-in ones; `reasoning_as_text` sends readable reasoning of other
    providers as labelled text instead of dropping it. `sleep`, `clock` and `fraction` (of the jitter) can be replaced in tests.
    """

    def __init__(
        self,
        preset: Preset | str,
        *,
        name: str | None = None,
        base_url: str | None = None,
        keys: Keys | None = None,
        headers: Mapping[str, str] | None = None,
        api_version: str | None = None,
        region: str | None = None,
        project: str | None = None,
        resource: str | None = None,
        workspace: str | None = None,
        timeouts: Timeouts | None = None,
        transport: Transport | None = None,
        retry: RetryPolicy | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
        fraction: Callable[[], float] = random_fraction,
        environ: Mapping[str, str] | None = None,
        capabilities: CapabilityTable | None = None,
        reasoning_as_text: bool = False,
    ) -> None:
        preset = get_preset(preset) if isinstance(preset, str) else preset
        name = name or preset.name
        given = {"region": region, "project": project, "resource": resource, "workspace": workspace}
        settings = {setting: value for setting, value in given.items() if value}
        if preset.settings or settings:
            preset = preset.with_all_settings(settings, name=name, has_base_url=bool(base_url))
        if not base_url and not preset.base_url:
            variables = " or ".join(preset.base_url_variables)
            raise ProviderSetupError(
                f"{name} has no default URL; pass base_url={f', or set {variables}' if variables else ''}"
            )
        if keys is None and preset.needs_key:
            variables = " or ".join(preset.secret_variables)
            raise ProviderSetupError(
                f"{name} needs a key: set {variables} and use provider({preset.name!r}), or pass keys=[…]"
            )
        self._use(
            Provider(
                name,
                preset,
                normalize_base_url(base_url or preset.base_url, name),
                keys=_ring(keys or (), environ),
                transport=transport or HttpClient(),
                headers={"accept": "application/json", **(headers or {})},
                timeouts=timeouts or Timeouts(),
                retry=retry or RetryPolicy(),
                api_version=api_version or "",
                environ=environ,
                capabilities=capabilities,
                reasoning_as_text=reasoning_as_text,
                clock=clock,
                fraction=fraction,
                sleep=sleep,
            )
        )

    @classmethod
    def of(cls, provider: Provider) -> HttpProviderClient:
        """A client of a provider that is set up already, such as one of a gateway: the same keys, timeouts and connections."""
        client = cls.__new__(cls)
        client._use(provider)
        return client

    def _use(self, provider: Provider) -> None:
        self._provider = provider
        self.name = provider.name
        self.preset = provider.preset
        self.base_url = provider.base_url
        self.credentials = provider.keys
        self._unrenamed_tools: tuple[object, ...] = ()  # tools whose names the provider accepts unchanged

    async def call_model(
        self, context: Sequence[ContextEntry], options: ProviderCallOptions
    ) -> AsyncIterator[ModelOutputDelta]:
        """Request the next output; the last delta is terminal."""

        async def prepare(_: Target) -> UpstreamRequest:
            return self._request(context, options)

        target = Target(self.name, options.model)
        call = ProviderCall(
            [target],
            prepare,
            options.report,
            accepts_empty=True,
            request_id=options.request_id,
            on_retry=options.on_retry,
        )
        async with aclosing(await call.batches()) as batches:
            async for batch in batches:
                for delta in batch:
                    yield delta

    def prepare_call(self, context: Sequence[ContextEntry], options: ProviderCallOptions) -> UpstreamRequest | None:
        if type(self).call_model is not HttpProviderClient.call_model:
            return None  # a subclass has a call of its own
        return self._request(context, options)

    def has_structured_output(self, model: str, *, with_tools: bool) -> bool:
        known = self._provider.capabilities_of(model).structured_output
        match self.preset.format:
            case _ if known is not None:
                return known
            case "openai-responses":
                return True
            case "gemini" | "gemini-interactions":
                return not with_tools  # most models refuse both at once
            case _:
                return self.preset.name in _SCHEMA_PRESETS

    def continues_prefix(self, model: str) -> bool:
        return self._provider.continues_prefix(model)

    @property
    def wire_options(self) -> Mapping[str, Any]:
        """What the format's writer and checker must know about the host."""
        return self._provider.wire_options

    async def list_models(self, *, timeouts: Timeouts = LISTING_TIMEOUTS, owner: str = "") -> tuple[str, ...]:
        """The names of the models that the provider lists; with `owner` those that are owned by it. Raises `AntiphonError`."""
        try:
            return await fetch_models(self._provider, timeouts, owner=owner)
        except (AntiphonError, ValueError) as error:
            raise ProviderSetupError(f"{self.name} does not list its models: {error}") from None

    async def aclose(self) -> None:
        """Close the connections."""
        await self._provider.transport.aclose()

    def __repr__(self) -> str:
        return f"<HttpProviderClient {self.name} at {urlsplit(self.base_url).netloc}>"

    def _request(self, context: Sequence[ContextEntry], options: ProviderCallOptions) -> UpstreamRequest:
        """The request for a call. The report gets its origin, losses and repairs."""
        provider, report, model = self._provider, options.report, options.model
        report.origin = origin = Origin(self.name, provider.format, model)
        report.base_url = self.base_url
        options = self._with_compaction(self._with_replayable_reasoning(options))
        rendered = render_call(context, options, origin, **provider.wire_options)
        report.losses += rendered.losses
        report.repairs += rendered.repairs
        if options.debug:
            report.bodies.append(b"".join(rendered.chunks))
        url, restorer = provider.url_for(model), self._restorer(rendered.request)
        return UpstreamRequest(provider, model, url, rendered.chunks, options.headers, restorer=restorer)

    def compacts_at(self, model: str, tokens: int) -> bool:
        compaction = formats[self.preset.format].spec.compaction
        if compaction is None or tokens < compaction.least_tokens:
            return False
        return self._provider.capabilities_of(model).compaction

    def _with_compaction(self, options: ProviderCallOptions) -> ProviderCallOptions:
        """The options with the setting by which the API compacts the conversation itself, unless there is one."""
        wire_format = self.preset.format
        compaction = formats[wire_format].spec.compaction if options.compact_at is not None else None
        if compaction is None or options.compact_at is None:
            return options
        native = dict(options.settings.native or {})
        own = {"context_management": compaction.setting(options.compact_at), **native.get(wire_format, {})}
        settings = structs.replace(options.settings, native={**native, wire_format: own})
        headers = dict(options.headers or {})
        if compaction.beta:
            betas = [headers.get(_BETA), self._provider.headers.get(_BETA), compaction.beta]
            headers[_BETA] = ",".join(beta for beta in betas if beta)
        return structs.replace(options, settings=settings, headers=headers)

    def _with_replayable_reasoning(self, options: ProviderCallOptions) -> ProviderCallOptions:
        """The options for the Responses API with stored responses off (the history is ours) and encrypted reasoning on, which
        can be sent again in a later request (OR-22)."""
        settings = options.settings
        if self.preset.format != _RESPONSES or settings.store:
            return options
        native = dict(settings.native or {})
        own = dict(native.get(_RESPONSES, {}))
        if own.get("previous_response_id") or own.get("conversation"):
            return options
        include = own.get("include") or []
        known = self._provider.capabilities_of(options.model)
        if known.encrypted_reasoning and isinstance(include, list) and _ENCRYPTED not in include:
            own["include"] = [*include, _ENCRYPTED]
            native[_RESPONSES] = own
        return structs.replace(options, settings=structs.replace(settings, store=False, native=native or None))

    def _restorer(self, request: ModelRequest) -> CallRestorer | None:
        """Restores the original tool names; None if no name was changed."""
        if request.tools is self._unrenamed_tools:
            return None
        restorer = CallRestorer(request)
        if not restorer.is_noop:
            return restorer
        self._unrenamed_tools = request.tools
        return None


def _ring(keys: Keys, environ: Mapping[str, str] | None) -> KeyRing | None:
    """The ring of these keys; None for none."""
    if isinstance(keys, KeyRing):
        return keys
    given = [keys] if isinstance(keys, str) else list(keys)
    return KeyRing(given, environ=environ) if given else None


class ProviderOverrides(TypedDict, total=False):
    """Arguments of `HttpProviderClient` that `provider` passes on."""

    name: str | None
    base_url: str | None
    keys: Keys | None
    headers: Mapping[str, str] | None
    api_version: str | None
    region: str | None
    project: str | None
    resource: str | None
    workspace: str | None
    timeouts: Timeouts | None
    transport: Transport | None
    retry: RetryPolicy | None
    sleep: Callable[[float], Awaitable[object]]
    clock: Callable[[], float]
    fraction: Callable[[], float]
    capabilities: CapabilityTable | None
    reasoning_as_text: bool


def provider(
    preset_name: str, /, *, environ: Mapping[str, str] | None = None, **overrides: Unpack[ProviderOverrides]
) -> HttpProviderClient:
    """A client of that preset, set up from the environment variables that the provider's own SDK reads.

    `overrides` are arguments of `HttpProviderClient` and take precedence.
    """
    environ = os.environ if environ is None else environ
    preset = get_preset(preset_name)
    found = preset.read_variables(environ)
    keys = overrides.get("keys")
    if keys is None and found.key:
        keys = [found.key]
        preset = structs.replace(preset, auth="bearer") if found.is_bearer else preset
    ring = None if keys is None else _ring(keys, environ)
    overrides["keys"] = keys if ring is None else ring
    overrides["base_url"] = overrides.get("base_url") or found.base_url
    overrides["api_version"] = overrides.get("api_version") or found.api_version
    overrides["headers"] = {**found.headers, **(overrides.get("headers") or {})}
    if preset.settings:
        from antiphon.providers.cloud.tokens import find_settings  # on first use: most providers have no settings

        references = () if ring is None else ring.secrets
        given = {setting.name: str(overrides.get(setting.name) or "") for setting in preset.settings}
        overrides |= find_settings(preset, given, references, environ)  # type: ignore[typeddict-item]
    return HttpProviderClient(preset, environ=environ, **overrides)
