"""`HttpProviderClient`: a provider over HTTP, described by a preset; and `provider`, which builds one from the environment.

A call renders the context to the bytes of a body, takes a key from the pool, and reads the response as deltas
(`engine.attempt`). Until part of the answer is visible, a failed attempt is followed by another key or a retry (`retry`); after
that the failure is passed on. Every attempt is recorded in the report of the call, with the key masked.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from random import random as random_fraction
from typing import Any
from urllib.parse import urlsplit

from msgspec import structs

from antiphon.errors import ProviderSetupError
from antiphon.history import ContextEntry, Origin
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.client import ProviderClient
from antiphon.providers.credentials.pool import CredentialPool
from antiphon.providers.credentials.secret import Credential
from antiphon.providers.engine.attempt import UpstreamAttempt
from antiphon.providers.engine.provider import Provider
from antiphon.providers.presets import Preset, first_set_variable, get_preset, normalize_base_url
from antiphon.providers.rendering import render_call
from antiphon.providers.retry import RetryPolicy
from antiphon.providers.transport.aiohttp_transport import AiohttpTransport
from antiphon.providers.transport.request import Timeouts, Transport
from antiphon.wire.capabilities import CapabilityTable
from antiphon.wire.delta import Failed, ModelOutputDelta, is_visible
from antiphon.wire.output import ProviderError
from antiphon.wire.request import ModelRequest
from antiphon.wire.tool_calls import CallRestorer

logger = logging.getLogger("antiphon.providers")

Keys = CredentialPool | Iterable[str | Credential]

_RESPONSES = "openai-responses"
_ENCRYPTED = "reasoning.encrypted_content"
_has_encrypted_reasoning = re.compile(r"(?:^|[./])(?:gpt-(?!5-chat)(?:[5-9]|[1-9]\d)|o[1-9]|codex|grok-[4-9])").search
"""Whether a model returns encrypted reasoning; others reject a request for it."""


class HttpProviderClient(ProviderClient):
    """A provider over HTTP.

    `preset` is a row of `PRESETS`, or its name; other arguments override its fields. `keys` are secrets (literal, `env:NAME`,
    `file:PATH`), `Credential`s, or a `CredentialPool`, which may be shared. Values of `headers` may be `env:NAME` or `file:PATH`
    too (of `environ`, by default the process's); such a value is masked if a provider repeats it. `capabilities` adds facts about
    its models to the built-in ones. `sleep`, `clock` and `fraction` (of the jitter) can be replaced in tests.
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
        timeouts: Timeouts | None = None,
        transport: Transport | None = None,
        retry: RetryPolicy | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
        fraction: Callable[[], float] = random_fraction,
        environ: Mapping[str, str] | None = None,
        capabilities: CapabilityTable | None = None,
    ) -> None:
        preset = get_preset(preset) if isinstance(preset, str) else preset
        name = name or preset.name
        if not base_url and not preset.base_url:
            variables = " or ".join(preset.base_url_variables)
            raise ProviderSetupError(
                f"{name} has no default URL; pass base_url={f', or set {variables}' if variables else ''}"
            )
        self.name = name
        self.preset = preset
        self.base_url = normalize_base_url(base_url or preset.base_url, name)
        self.credentials = _pool(name, preset, keys)
        self._provider = Provider(
            name,
            preset,
            self.base_url,
            pool=self.credentials,
            transport=transport or AiohttpTransport(),
            headers={"accept": "application/json", **(headers or {})},
            timeouts=timeouts or Timeouts(),
            retry=retry or RetryPolicy(),
            api_version=api_version or "",
            environ=environ,
            capabilities=capabilities,
            clock=clock,
            fraction=fraction,
        )
        self._sleep = sleep
        self._unrenamed_tools: tuple[object, ...] = ()  # tools whose names the provider accepts unchanged

    async def call_model(
        self, context: Sequence[ContextEntry], options: ProviderCallOptions
    ) -> AsyncIterator[ModelOutputDelta]:
        """Request the next output; the last delta is terminal."""
        provider, report, model = self._provider, options.report, options.model
        report.origin = origin = Origin(self.name, provider.format, model)
        rendered = render_call(context, self._with_replayable_reasoning(options), origin, **provider.wire_options)
        report.losses += rendered.losses
        report.repairs += rendered.repairs
        restorer = self._restorer(rendered.request)
        url = provider.url_for(model)
        plan = provider.retry_plan(model)
        while True:
            should_retry: str | None = None
            if plan.begin_attempt():
                attempt = UpstreamAttempt(provider, plan, provider.request(plan, url, rendered.chunks))
                is_committed = False
                async with aclosing(self._visible_batches(attempt, restorer, options)) as batches:
                    async for batch in batches:
                        is_committed = True
                        for delta in batch:
                            yield delta
                if is_committed:
                    return
                should_retry = attempt.should_retry
            delay = plan.delay_after_failure(should_retry)
            error = plan.final_error() if delay is None or plan.error is None else plan.error
            self._log_failure(options, error, delay)
            if delay is None:
                yield Failed(error)
                return
            if delay:
                await self._sleep(delay)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._provider.transport.aclose()

    def __repr__(self) -> str:
        return f"<HttpProviderClient {self.name} at {urlsplit(self.base_url).netloc}>"

    async def _visible_batches(
        self, attempt: UpstreamAttempt, restorer: CallRestorer | None, options: ProviderCallOptions
    ) -> AsyncGenerator[list[ModelOutputDelta], None]:
        """Batches of deltas from the first visible one on. None of them if the attempt failed before; the plan has the error."""
        held: list[ModelOutputDelta] = []
        is_committed = has_failed = False
        try:
            async with aclosing(attempt.batches()) as batches:
                async for batch in batches:
                    last = batch[-1]
                    if isinstance(last, Failed):
                        has_failed = True
                        batch[-1] = Failed(attempt.failed(last.error))
                    if restorer is not None:
                        batch = [restored for delta in batch for restored in restorer.delta(delta)]
                    if not is_committed:
                        held += batch
                        if not any(map(is_visible, batch)):
                            continue
                        is_committed = True
                        batch = held
                        if not has_failed:
                            attempt.succeeded()
                    yield batch
            if not is_committed and not has_failed:  # an empty answer without a reason is passed on unchanged
                attempt.succeeded()
                yield held
        finally:
            attempt.release()
            report = options.report
            report.provider_request_id = attempt.provider_request_id or report.provider_request_id
            report.attempts.append(attempt.record(options.model))

    def _log_failure(self, options: ProviderCallOptions, error: ProviderError, delay: float | None) -> None:
        action = (
            "giving up" if delay is None else f"retrying in {delay:.2f} s" if delay else "retrying with another key"
        )
        target = f"{self.name}/{options.model}"
        logger.info("[%s] %s: %s (%s); %s", options.request_id, target, error.message, error.kind, action)

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
        if _has_encrypted_reasoning(options.model) and isinstance(include, list) and _ENCRYPTED not in include:
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


def _pool(name: str, preset: Preset, keys: Keys | None) -> CredentialPool | None:
    if keys is None and preset.needs_key:
        variables = " or ".join((*preset.key_variables, *preset.bearer_variables))
        raise ProviderSetupError(
            f"{name} needs a key: set {variables} and use provider({preset.name!r}), or pass keys=[…]"
        )
    if isinstance(keys, CredentialPool) or keys is None:
        return keys
    given = [keys] if isinstance(keys, str) else list(keys)
    return CredentialPool(given) if given else None


def provider(preset_name: str, /, *, environ: Mapping[str, str] | None = None, **overrides: Any) -> HttpProviderClient:
    """A client of that preset, set up from the environment variables that the provider's own SDK reads.

    `overrides` are arguments of `HttpProviderClient` and take precedence.
    """
    environ = os.environ if environ is None else environ
    preset = get_preset(preset_name)
    if overrides.get("keys") is None:
        variable = first_set_variable(preset.key_variables, environ)
        if not variable:
            variable = first_set_variable(preset.bearer_variables, environ)
            preset = structs.replace(preset, auth="bearer") if variable else preset
        if variable:
            overrides["keys"] = CredentialPool([f"env:{variable}"], environ=environ)
    if not overrides.get("base_url") and (variable := first_set_variable(preset.base_url_variables, environ)):
        overrides["base_url"] = environ[variable]
    if not overrides.get("api_version") and (variable := first_set_variable(preset.api_version_variables, environ)):
        overrides["api_version"] = environ[variable]
    own = {
        header: f"env:{variable}" for header, variable in preset.header_variables if environ.get(variable, "").strip()
    }
    overrides["headers"] = {**own, **(overrides.get("headers") or {})}
    overrides.setdefault("environ", environ)
    return HttpProviderClient(preset, **overrides)
