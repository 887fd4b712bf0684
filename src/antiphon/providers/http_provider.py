"""`HttpProviderClient`: a provider behind HTTP, described by a preset; and `provider`, which builds one from the environment.

A call: the context is rendered to the bytes of a body, a key is taken from the pool, and an `Exchange` gives the deltas. Until
something of the answer was shown (a part of it; that it began does not count), a failure may still be mended: by another key,
or by trying again (`retry` says which helps, and how often). From then on a failure is passed on. Every try is written down in
the report of the call, with the key masked.

The header that carries the key is made for each request and kept nowhere. What a provider says in an error is scrubbed of every
secret this client knows before anybody sees it (law L10).
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import lru_cache
from random import random as any_fraction
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct, structs

from antiphon.errors import ProviderSetupError
from antiphon.history import ContextEntry, Origin
from antiphon.providers.call import Attempt, ProviderCallOptions
from antiphon.providers.client import ProviderClient
from antiphon.providers.credentials.pool import CredentialPool
from antiphon.providers.credentials.secret import Credential, read_headers, scrubbed
from antiphon.providers.engine.attempt import Exchange
from antiphon.providers.presets import Preset, first_set, plain_base_url, preset_named
from antiphon.providers.rendering import render_call
from antiphon.providers.retry import Course, RetryPolicy
from antiphon.providers.transport.aiohttp_transport import AiohttpTransport
from antiphon.providers.transport.request import HttpRequest, Timeouts, Transport
from antiphon.wire import formats
from antiphon.wire.delta import Failed, ModelOutputDelta, is_visible
from antiphon.wire.output import ProviderError
from antiphon.wire.request import ModelRequest
from antiphon.wire.tool_calls import CallRestorer

logger = logging.getLogger("antiphon.providers")

Keys = CredentialPool | Iterable[str | Credential]

_VERSION_HEADER = "anthropic-version"
_RESPONSES = "openai-responses"
_ENCRYPTED = "reasoning.encrypted_content"
_thinks = re.compile(r"(?:^|[./])(?:gpt-(?!5-chat)(?:[5-9]|[1-9]\d)|o[1-9]|codex|grok-[4-9])").search
"""Whether a model gives encrypted reasoning: others answer a request for it with an error."""


class _Call(Struct, kw_only=True):
    """One call while it is made."""

    options: ProviderCallOptions
    url: str
    chunks: list[bytes]
    restorer: CallRestorer | None
    course: Course
    is_shown: bool = False
    advice: str | None = None


class HttpProviderClient(ProviderClient):
    """A provider that is spoken to over HTTP.

    `preset` is a row of `PRESETS`, or its name; what is given beside it takes the place of what it says. `keys` are secrets
    (literal, `env:NAME`, `file:PATH`), `Credential`s, or a `CredentialPool` that may be shared. Values of `headers` may be read
    from the same places (`environ`, by default that of the process); such a value is masked wherever a provider repeats it.
    `sleep`, `clock` and `fraction` (of the jitter) are there to be replaced in tests.
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
        fraction: Callable[[], float] = any_fraction,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.preset = preset_named(preset) if isinstance(preset, str) else preset
        self.name = name or self.preset.name
        if not base_url and not self.preset.base_url:
            variables = " or ".join(self.preset.base_url_variables)
            raise ProviderSetupError(
                f"{self.name} has no address of its own: give base_url={f', or set {variables}' if variables else ''}"
            )
        self.base_url = plain_base_url(base_url or self.preset.base_url, self.name)
        self._host = urlsplit(self.base_url).netloc
        self.credentials = self._pool(keys)
        self._wire = formats[self.preset.format]
        self._address = lru_cache(maxsize=256)(
            lambda model: self.preset.address(self.base_url, model, api_version or "")
        )
        self._timeouts = timeouts or Timeouts()
        self._retry = retry or RetryPolicy()
        self._transport = transport or AiohttpTransport()
        self._sleep, self._clock, self._fraction = sleep, clock, fraction
        own = {"content-type": "application/json", "accept": "application/json", **dict(self.preset.headers)}
        values, self._header_secrets = read_headers(headers or {}, environ)
        self._headers = {**{header.lower(): value for header, value in own.items()}, **values}
        for header, value in self._headers.items():
            if not (header + value).isprintable() or not header.isascii():
                raise ProviderSetupError(
                    f"{self.name}: the header {header!r} holds what no header can carry; leave it out"
                )
        self._wire_options = self._options_of_the_format()
        self._idle_tools: tuple[object, ...] = ()  # tools whose names every provider takes as they are

    async def call_model(
        self, context: Sequence[ContextEntry], options: ProviderCallOptions
    ) -> AsyncIterator[ModelOutputDelta]:
        """Ask for the next output; the last delta is terminal."""
        report, model = options.report, options.model
        report.origin = origin = Origin(self.name, self.preset.format, model)
        rendered = render_call(context, self._prepared(options), origin, **self._wire_options)
        report.losses += rendered.losses
        report.repairs += rendered.repairs
        call = _Call(
            options=options,
            url=self._address(model),
            chunks=rendered.chunks,
            restorer=self._restorer(rendered.request),
            course=Course(
                self._retry,
                self.credentials,
                model,
                total=self._timeouts.total,
                clock=self._clock,
                fraction=self._fraction,
            ),
        )
        course = call.course
        while True:
            if course.begin():
                async with aclosing(self._try(call)) as batches:
                    async for batch in batches:
                        for delta in batch:
                            yield delta
                if call.is_shown:
                    return
            delay = course.next_delay(call.advice)
            error = course.final_error() if delay is None or course.error is None else course.error
            self._tell(call, error, delay)
            if delay is None:
                yield Failed(error)
                return
            if delay:
                await self._sleep(delay)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()

    def __repr__(self) -> str:
        return f"<HttpProviderClient {self.name} at {self._host}>"

    async def _try(self, call: _Call) -> AsyncGenerator[list[ModelOutputDelta], None]:
        """One try: batches of deltas that can be shown. A failure before the first of them is left in the course."""
        course, lease = call.course, call.course.lease
        exchange = Exchange(self._transport, self._wire, self._request(call))
        began = self._clock()
        held: list[ModelOutputDelta] = []
        try:
            async with aclosing(exchange.batches()) as batches:
                async for batch in batches:
                    last = batch[-1]
                    if isinstance(last, Failed):
                        course.error = self._scrubbed(last.error)
                        batch[-1] = Failed(course.error)
                        if lease is not None:
                            lease.failed(course.error)
                    if call.restorer is not None:
                        batch = [said for delta in batch for said in call.restorer.delta(delta)]
                    if not call.is_shown:
                        held += batch
                        if not any(map(is_visible, batch)):
                            continue
                        call.is_shown = True
                        batch = held
                        if lease is not None and course.error is None:
                            lease.succeeded()
                    yield batch
            if (
                not call.is_shown and course.error is None
            ):  # an empty answer, and no reason why: it is passed on as it came
                call.is_shown = True
                if lease is not None:
                    lease.succeeded()
                yield held
        finally:
            if lease is not None:
                lease.release()
            self._note(call, exchange, self._clock() - began)

    def _request(self, call: _Call) -> HttpRequest:
        lease, remaining = call.course.lease, call.course.remaining()
        headers = self._headers
        if lease is not None:
            headers = {**headers, **self.preset.credential_header(lease.secret)}
        timeouts = self._timeouts if remaining is None else structs.replace(self._timeouts, total=remaining)
        return HttpRequest(url=call.url, headers=headers, body=call.chunks, timeouts=timeouts)

    def _note(self, call: _Call, exchange: Exchange, seconds: float) -> None:
        """Write a try down."""
        course, report = call.course, call.options.report
        call.advice = exchange.headers.get("x-should-retry")
        report.provider_request_id = exchange.provider_request_id or report.provider_request_id
        report.attempts.append(
            Attempt(
                provider=self.name,
                model=call.options.model,
                credential=course.lease.name if course.lease is not None else "",
                status=exchange.status,
                seconds=seconds,
                error=course.error,
            )
        )

    def _tell(self, call: _Call, error: ProviderError, delay: float | None) -> None:
        then = "given up" if delay is None else f"tried again in {delay:.2f} s" if delay else "tried with another key"
        whom = f"{self.name}/{call.options.model}"
        logger.info("[%s] %s: %s (%s); %s", call.options.request_id, whom, error.message, error.kind, then)

    def _scrubbed(self, error: ProviderError) -> ProviderError:
        secrets = self.credentials.secrets if self.credentials is not None else ()
        return scrubbed(error, (*secrets, *self._header_secrets))

    def _prepared(self, options: ProviderCallOptions) -> ProviderCallOptions:
        """The options with what makes a later replay work: the whole history is ours, so nothing is to be kept there, and
        reasoning comes back in a form that can be sent again (OR-22)."""
        settings = options.settings
        if self.preset.format != _RESPONSES or settings.store:
            return options
        native = dict(settings.native or {})
        own = dict(native.get(_RESPONSES, {}))
        if own.get("previous_response_id") or own.get("conversation"):
            return options
        include = own.get("include") or []
        if _thinks(options.model) and isinstance(include, list) and _ENCRYPTED not in include:
            own["include"] = [*include, _ENCRYPTED]
            native[_RESPONSES] = own
        return structs.replace(options, settings=structs.replace(settings, store=False, native=native or None))

    def _restorer(self, request: ModelRequest) -> CallRestorer | None:
        """Who puts the names of tools back; nobody, if none was changed."""
        if request.tools is self._idle_tools:
            return None
        restorer = CallRestorer(request)
        if not restorer.is_noop:
            return restorer
        self._idle_tools = request.tools
        return None

    def _pool(self, keys: Keys | None) -> CredentialPool | None:
        if keys is None and self.preset.needs_key:
            variables = " or ".join((*self.preset.key_variables, *self.preset.bearer_variables))
            raise ProviderSetupError(
                f"{self.name} needs a key: set {variables} and use provider({self.preset.name!r}), or give keys=[…]"
            )
        if isinstance(keys, CredentialPool) or keys is None:
            return keys
        given = [keys] if isinstance(keys, str) else list(keys)
        return CredentialPool(given) if given else None

    def _options_of_the_format(self) -> dict[str, Any]:
        """What the writer of the format has to know of the host."""
        if self.preset.format == "openai-chat":
            return {"dialect": self.preset.dialect or "compatible"}
        version = self._headers.get(_VERSION_HEADER)
        return {"version": version} if self.preset.format == "anthropic" and version else {}


def provider(preset_name: str, /, *, environ: Mapping[str, str] | None = None, **overrides: Any) -> HttpProviderClient:
    """A client of that preset with what the environment says: the variables the provider's own SDK reads.

    `overrides` are arguments of `HttpProviderClient`, and win.
    """
    environ = os.environ if environ is None else environ
    preset = preset_named(preset_name)
    if overrides.get("keys") is None:
        variable = first_set(preset.key_variables, environ)
        if not variable:
            variable = first_set(preset.bearer_variables, environ)
            preset = structs.replace(preset, auth="bearer") if variable else preset
        if variable:
            overrides["keys"] = CredentialPool([f"env:{variable}"], environ=environ)
    if not overrides.get("base_url") and (variable := first_set(preset.base_url_variables, environ)):
        overrides["base_url"] = environ[variable]
    if not overrides.get("api_version") and (variable := first_set(preset.api_version_variables, environ)):
        overrides["api_version"] = environ[variable]
    own = {
        header: f"env:{variable}" for header, variable in preset.header_variables if environ.get(variable, "").strip()
    }
    overrides["headers"] = {**own, **(overrides.get("headers") or {})}
    overrides.setdefault("environ", environ)
    return HttpProviderClient(preset, **overrides)
