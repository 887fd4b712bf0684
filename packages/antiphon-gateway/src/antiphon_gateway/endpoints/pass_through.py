"""Endpoints that are passed on as they are: files, uploads, batches, images, audio, moderations, vector stores, rerank.

Bodies pass while they arrive, in both directions, whatever they are; only the credential is the provider's. A request with a body
is sent once, with the first usable key: files belong to an account. The provider is the one that the client names (header
`x-antiphon-provider`, query `provider`), else the first whose configuration lists the endpoint (`pass_through`), else the only
one that has the client's API. Errors come as the provider wrote them, unless they concern or repeat the gateway's credential.

What belongs to an account is shared by all clients of it, so a key that is limited to some models may not use these endpoints.
Nor may one with limits of tokens or money, to which a request cannot be charged whose cost is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl, quote, unquote_plus, urlsplit

from antiphon.http.messages import ClientRequest, Response
from antiphon.http.server.application import BodyKind
from antiphon.providers.engine.attempt import ErrorResponse, ForwardedRequest
from antiphon.providers.engine.provider import Provider
from antiphon.providers.engine.reply import StreamReply, UpstreamFailed
from antiphon.providers.routes import Target
from antiphon.wire.output import ProviderError
from antiphon_gateway.access.client_keys import METERED_LIMITS, MONEY_LIMITS, TICKET, UPLOAD_ID, new_ticket
from antiphon_gateway.errors import RequestRefused, provider_error_response
from antiphon_gateway.generate.relay import Relay
from antiphon_gateway.generate.whole_body import Whole
from antiphon_gateway.runtime.metered import MeteredRequest

_WITHOUT_TOKENS = frozenset({"files", "uploads", "moderations", "vector_stores"})
"""Endpoints that take no tokens: what a key with a limit of tokens may send although no usage is reported."""
_WITHOUT_COST = _WITHOUT_TOKENS - {"vector_stores"}
"""What a key with a money budget may send although it has no price."""
PROVIDER_HEADER, PROVIDER_PARAMETER = "x-antiphon-provider", "provider"
API_OF: Mapping[str, str] = {
    "openai-chat": "openai-chat",
    "openai-responses": "openai-chat",
    "anthropic": "anthropic",
    "gemini": "gemini",
    "gemini-interactions": "gemini",
}
"""The API that a provider of a format has beside generation, by the format of its clients."""
_FORWARDED = frozenset(
    {
        "content-type",
        "content-encoding",
        "accept",
        "range",
        "if-none-match",
        "openai-beta",
        "anthropic-version",
        "anthropic-beta",
    }
)
_RETURNED = frozenset(
    {
        "content-type",
        "content-encoding",
        "content-disposition",
        "content-range",
        "accept-ranges",
        "etag",
        "last-modified",
        "retry-after",
        "openai-processing-ms",
    }
)
_UPLOAD_HEADERS = "x-goog-upload-"
_UPLOAD_URL = "x-goog-upload-url"
_OWN_PARAMETERS = frozenset({"key", PROVIDER_PARAMETER, TICKET})
_CREDENTIAL_STATUSES = (401, 402, 403)
_SAFE = "/:@!$&'()*+,;=-._~"


class PassThrough(MeteredRequest):
    """One request that is passed on."""

    calls_providers = True
    takes: BodyKind = "stream"

    async def answer(self) -> Response:
        """The response of the provider, while it arrives."""
        self._check()
        provider, record = self._choose(), self.record
        record.upstream_format = provider.format
        if self.request.method == "POST" and self.endpoint.kind not in _WITHOUT_TOKENS:
            record.charges = "unknown"
        response = await forward(self, self._build_request(provider))
        self._own_upload_url(provider, response.headers)
        return response

    def _check(self) -> None:
        """Raises `RequestRefused` for what this client must not send: what it uses cannot be charged, or is not its own."""
        key, kind = self.key, self.endpoint.kind
        if self.request.method == "POST" and kind not in _WITHOUT_COST:
            limits = key.limits_of(MONEY_LIMITS if kind in _WITHOUT_TOKENS else METERED_LIMITS)
            if limits:
                message = (
                    f"this key has {limits[0]}, and what {self.record.operation} requests use of it is not known; "
                    "use a key without limits of tokens and money"
                )
                raise RequestRefused(ProviderError(message, "permission", code="price_unknown"))
        if "*" not in key.models:
            message = 'this key is limited to some models, and these endpoints are not; use a key with models = ["*"]'
            raise RequestRefused(ProviderError(message, "permission"))
        if any(segment in (".", "..") for segment in self.request.path.split("/")):
            raise RequestRefused(ProviderError("the path contains dot segments; remove them", "invalid_request"))

    def _choose(self) -> Provider:
        """The provider of the request. Raises `RequestRefused` if there is none."""
        able = {
            name: provider
            for name, provider in self.loaded.providers.items()
            if API_OF.get(provider.format) == self.endpoint.format and not provider.preset.serves_only_generation
        }
        what = f"{self.endpoint.kind} ({self.request.path[:200]})"
        named = self.request.headers.get(PROVIDER_HEADER) or self.request.query.get(PROVIDER_PARAMETER)
        if named:
            if named in able:
                return able[named]
            known = ", ".join(able) or "none"
            message = f"no provider {named[:100]!r} for {what}; providers with this API: {known}"
            raise RequestRefused(ProviderError(message, "not_found", 404, "provider_not_found"))
        declared = self.loaded.pass_through
        listed = [name for name in able if {"*", self.endpoint.kind} & set(declared.get(name, ()))]
        if listed:
            return able[listed[0]]
        if len({provider.base_url for provider in able.values()}) == 1:
            return next(iter(able.values()))
        if not able:
            message = f"no provider of this gateway serves {what}"
            raise RequestRefused(ProviderError(message, "not_found", 404, "not_supported"))
        message = (
            f"several providers could serve {what}: {', '.join(able)}; name one in the header {PROVIDER_HEADER} or in the "
            f'query (?{PROVIDER_PARAMETER}=…), or add pass_through = ["{self.endpoint.kind}"] to one of them'
        )
        raise RequestRefused(ProviderError(message, "not_found", 404, "provider_required"))

    def _build_request(self, provider: Provider) -> ForwardedRequest:
        request = self.request
        forwarded = {
            name: value
            for name, value in request.headers.items()
            if name in _FORWARDED or (name.startswith(_UPLOAD_HEADERS) and name != _UPLOAD_URL)
        }
        return ForwardedRequest(
            provider,
            "",
            forward_url(provider, self.endpoint.format, request, self.endpoint.resource),
            (request.body,) if request.body else (),
            forwarded,
            method=request.method,
            stream=request.stream,
            stream_length=request.stream.length if request.stream is not None else None,
        )

    def _own_upload_url(self, provider: Provider, headers: dict[str, str]) -> None:
        """Let the client send its file through the gateway, because the upload needs the provider's key."""
        parts = urlsplit(headers.get(_UPLOAD_URL, ""))
        if not parts.netloc or parts.netloc != urlsplit(provider.base_url).netloc:
            return
        own_scheme = "https" if self.loaded.config.gateway.tls_cert else "http"
        scheme = self.request.headers.get("x-forwarded-proto", own_scheme).partition(",")[0].strip()
        kept = [_without_own_parameters(parts.query), f"{PROVIDER_PARAMETER}={quote(provider.name, safe='')}"]
        upload_id = dict(parse_qsl(parts.query)).get(UPLOAD_ID, "")
        if self.key.name:
            kept.append(f"{TICKET}={new_ticket(self.loaded, self.key.name, upload_id)}")
        path = parts.path[max(0, parts.path.find("/upload/")) :]
        origin = f"{'https' if scheme == 'https' else 'http'}://{self.request.headers.get('host', '')}"
        headers[_UPLOAD_URL] = f"{origin}{path}?{'&'.join(filter(None, kept))}"


async def forward(metered: MeteredRequest, request: ForwardedRequest) -> Response:
    """The response of a provider to a request that is sent as it came. Its body is passed on while it arrives."""

    async def prepare(_: Target) -> ForwardedRequest:
        if metered.record.trace_headers:
            request.headers = {**(request.headers or {}), **metered.record.trace_headers}
        return request

    provider, record = request.provider, metered.record
    record.provider = provider.name
    try:
        reply = await metered.call([Target(provider.name, "")], prepare).reply()
    except UpstreamFailed as failure:
        record.error = failure.error
        return passed_on_error(metered.endpoint.format, provider, request.last_error, failure.error)
    assert isinstance(reply, StreamReply), "nothing else is forwarded"
    received = reply.response
    channel = Whole(received.headers.get("content-type", ""), record)
    body = Relay(reply, channel, record, deadline=metered.request.deadline, on_end=metered.end, status=received.status)
    return Response(status=received.status, headers=_returned_headers(received.headers), body=body)


def passed_on_error(
    format_name: str, provider: Provider, written: ErrorResponse | None, error: ProviderError
) -> Response:
    """An error as the provider wrote it, unless it is about our credential or repeats it."""
    is_ours = written is None or written.status in _CREDENTIAL_STATUSES
    if written is None or is_ours or _repeats_secret(provider, written.body):
        return provider_error_response(format_name, error, provider.name)
    return Response(status=written.status, headers=_returned_headers(written.headers), body=written.body)


def _repeats_secret(provider: Provider, body: bytes) -> bool:
    return any(secret.encode("utf-8", "surrogateescape") in body for secret in provider.secrets)


def _returned_headers(received: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in received.items() if name in _RETURNED or name.startswith(_UPLOAD_HEADERS)}


def forward_url(provider: Provider, api: str, request: ClientRequest, deployment: str = "") -> str:
    """Where a request goes at a provider: its path and query, without the parameters that are the gateway's."""
    url = upstream_url(provider, api, request.path, deployment)
    query = _without_own_parameters(request.raw_query)
    return f"{url}{'&' if '?' in url else '?'}{query}" if query else url


def upstream_url(provider: Provider, api: str, path: str, deployment: str = "") -> str:
    """The URL of a path at a provider."""
    preset = provider.preset
    if api == "gemini":
        return preset.at_path(quote(path, safe=_SAFE)).url_for()
    if api == "anthropic":
        rest = path.removeprefix("/anthropic").removeprefix("/v1")
        return preset.at_path(f"/v1{quote(rest, safe=_SAFE)}").url_for()
    is_deployed = path.startswith("/openai/deployments/")
    rest = path.removeprefix("/openai").removeprefix(f"/deployments/{deployment}" if is_deployed else "")
    rest = rest.removeprefix("/v1").removeprefix("/v2")
    host = preset if is_deployed else preset.beside_deployments()
    return host.beside(quote(rest, safe=_SAFE)).url_for(deployment)


def _without_own_parameters(query: str) -> str:
    parts = query.split("&")
    return "&".join(part for part in parts if part and unquote_plus(part.partition("=")[0]) not in _OWN_PARAMETERS)
