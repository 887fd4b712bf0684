"""`Provider`: one upstream over HTTP: its URLs, headers, keys, timeouts and retry policy.

The library's client and the gateway build their requests here. The header that carries the key is made for each request and is
stored nowhere else. Errors pass through `scrub` before anyone sees them, because some providers repeat a rejected key (law L10).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from random import random as random_fraction
from typing import TYPE_CHECKING, Any

from msgspec import structs

from antiphon.errors import ProviderSetupError
from antiphon.http.client.connection import SharedHeaders
from antiphon.http.client.request import HttpRequest, HttpResponse, Timeouts, Transport
from antiphon.providers.engine.reply import UpstreamFailed
from antiphon.providers.keys.ring import KeyRing
from antiphon.providers.keys.secret import is_token_source, read_headers, scrub
from antiphon.providers.presets import Preset
from antiphon.providers.retry import RetryPolicy, Upstream
from antiphon.wire import formats
from antiphon.wire.capabilities import Capabilities, CapabilityTable, capabilities_for
from antiphon.wire.openai_chat.dialects import DIALECTS, OPENAI_ITSELF
from antiphon.wire.output import ProviderError

if TYPE_CHECKING:
    from antiphon.providers.cloud.signers import Authentication

_URL_CACHE_SIZE = 256  # clients of the gateway choose model names where a route is a glob
_PLAIN_DIALECTS = frozenset({"openai", "azure", "compatible"})
_GEMINI_CALLS = (":streamGenerateContent?alt=sse", ":generateContent")


class Provider(Upstream):
    """One upstream. `keys` holds its keys; None if it needs none. Values of `headers` may be `env:NAME` or `file:PATH`."""

    def __init__(
        self,
        name: str,
        preset: Preset,
        base_url: str,
        *,
        keys: KeyRing | None,
        transport: Transport,
        headers: Mapping[str, str],
        timeouts: Timeouts,
        retry: RetryPolicy,
        api_version: str = "",
        holds_streams: bool = True,
        environ: Mapping[str, str] | None = None,
        capabilities: CapabilityTable | None = None,
        reasoning_as_text: bool = False,
        clock: Callable[[], float] = time.monotonic,
        fraction: Callable[[], float] = random_fraction,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        super().__init__(keys=keys, timeouts=timeouts, retry=retry, clock=clock, fraction=fraction, sleep=sleep)
        self.name = name
        self.preset = preset.at_host(base_url, api_version)
        """With the base URL and the version that are used."""
        self.format = preset.format
        self.wire = formats[preset.format]
        dialect = DIALECTS.get(preset.dialect or "compatible") if self.format == "openai-chat" else None
        self.reports_stream_usage = dialect is not None and dialect.has_stream_options
        """Whether the usage of a stream can be requested (`include_usage` of Chat Completions)."""
        is_plain = (preset.dialect or "compatible") in _PLAIN_DIALECTS
        self.accepts_unchanged_bodies = is_plain if self.format == "openai-chat" else not preset.dialect
        """Whether a body of its format can be sent unchanged: the host has no dialect of its own."""
        self.streams_only = preset.streams_only
        self.base_url = base_url
        self.transport = transport
        self.holds_streams = holds_streams
        """Whether the gateway holds back a stream until its first visible event, so that a fallback is possible."""
        self.capabilities = capabilities
        """What its models accept, if not only the built-in facts."""
        self.reasoning_as_text = reasoning_as_text
        """Whether readable reasoning of other providers is sent as labelled text."""
        values, self._header_secrets = read_headers(headers, environ)
        own = {header.lower(): value for header, value in preset.headers}
        self.headers = SharedHeaders({"content-type": "application/json", **own, **values})
        """Of every request, without a key."""
        self.keyed_headers: dict[str, SharedHeaders] = {}
        """The same with a key, by the key."""
        for header, value in self.headers.items():
            if not (header + value).isprintable() or not header.isascii():
                raise ProviderSetupError(
                    f"{name}: header {header!r} contains characters that HTTP does not allow; remove it"
                )
        self.wire_options: Mapping[str, Any] = self._options(is_usual_host=base_url.rstrip("/") == preset.base_url)
        """What the format's writer needs to know about the host."""
        form = (preset.format, preset.dialect, preset.streams_only, preset.completions, preset.host)
        self._body_form = (*form, self.wire_options)
        self.authentication = self._create_authentication(environ)
        """What signs requests; None if they are sent as they are written."""
        self.url_for = lru_cache(maxsize=_URL_CACHE_SIZE)(self._url_for)

    def _create_authentication(self, environ: Mapping[str, str] | None) -> Authentication | None:
        references = () if self.keys is None else tuple(filter(is_token_source, self.keys.secrets))
        if not references and not self.preset.host and not self.preset.service:
            return None
        from antiphon.providers.cloud.signers import Authentication  # on first use: most providers need none

        return Authentication(self.preset, references, self.transport, environ=environ, clock=self.clock)

    def _options(self, *, is_usual_host: bool) -> dict[str, Any]:
        options: dict[str, Any] = {} if self.capabilities is None else {"capabilities": self.capabilities}
        if self.reasoning_as_text:
            options["reasoning_as_text"] = True
        version = self.headers.get("anthropic-version")
        if self.format == "openai-chat":
            dialect = self.preset.dialect or "compatible"
            options["dialect"] = OPENAI_ITSELF if dialect == "openai" and is_usual_host else dialect
        elif self.format == "anthropic":
            if version:
                options["version"] = version
            if self.preset.dialect:
                options["dialect"] = self.preset.dialect
        return options

    def takes_same_bodies(self, other: Provider) -> bool:
        """Whether a body that is prepared for this host can be sent to the other one as it is, for the same model."""
        return self._body_form == other._body_form

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every value that must not be shown: the keys, tokens in use, and secret headers."""
        keys = () if self.keys is None else self.keys.secrets
        if self.authentication is None:
            return keys + self._header_secrets
        return (*keys, *self.authentication.secrets, *self._header_secrets)

    def scrub(self, error: ProviderError) -> ProviderError:
        """The error without any of the secrets."""
        return scrub(error, self.secrets)

    def capabilities_of(self, model: str) -> Capabilities:
        """What is known of a model."""
        return capabilities_for(model, self.format, self.capabilities)

    def continues_prefix(self, model: str) -> bool:
        """Whether the model is known to continue a last message of its own: those of Anthropic that accept a prefill."""
        known = self.capabilities_of(model)
        return self.format == "anthropic" and known.is_known and known.prefill

    def has_completions(self, model: str) -> bool:
        """Whether it serves the model at `/completions`, OpenAI's legacy API, too."""
        return any(fnmatchcase(model, pattern) for pattern in self.preset.completions)

    def completions_url(self, model: str) -> str:
        """The URL of that API."""
        return self.preset.beside("/completions").url_for(model)

    def with_key(self, secret: str) -> SharedHeaders:
        """The headers of every request with a key, kept in `keyed_headers` as long as the key is in use."""
        if self.authentication is not None and is_token_source(secret):
            return self.headers
        known = self.keys.secrets if self.keys is not None else ()
        self.keyed_headers = {
            known_secret: kept for known_secret, kept in self.keyed_headers.items() if known_secret in known
        }
        headers = SharedHeaders({**self.headers, **self.preset.credential_header(secret)})
        self.keyed_headers[secret] = headers
        return headers

    async def send_with_first_key(self, request: HttpRequest) -> HttpResponse:
        """Send a request that is not part of a call, such as for a list. It has no effect on the health of the key.

        Raises `TransportError`, and `CredentialError` if there is no token.
        """
        secret = self.keys.secrets[0] if self.keys is not None else ""
        if secret and not is_token_source(secret):
            request = structs.replace(request, headers={**request.headers, **self.preset.credential_header(secret)})
        if self.authentication is None:
            return await self.transport.send(request)
        return await self.authentication.send(request, secret)

    @property
    def has_tokens(self) -> bool:
        """Whether its first key is a token that expires, or a signature."""
        return self.keys is not None and is_token_source(self.keys.secrets[0])

    async def check_token(self) -> None:
        """Raise `CredentialError` if its first key names a token source that gives no token."""
        if self.authentication is not None and self.keys is not None:
            await self.authentication.check(self.keys.secrets[0])

    def _url_for(self, model: str, stream: bool = True) -> str:
        """The address of a call. Raises `UpstreamFailed` for a model that the host serves under another preset."""
        if other := self.preset.preset_for(model):
            message = (
                f"{self.name} (preset {self.preset.name}) does not serve {model}: use {other}/{model}, "
                f'or in antiphon.toml a provider with preset = "{other}"'
            )
            raise UpstreamFailed(ProviderError(message, "not_found", code="other_preset"))
        url = self.preset.url_for(model)
        if stream:
            return url
        streamed, whole = _GEMINI_CALLS if self.format == "gemini" else self.preset.whole_call
        return url.replace(streamed, whole) if streamed else url
