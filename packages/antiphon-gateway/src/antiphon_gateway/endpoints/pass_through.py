"""Endpoints that are passed on as they are: files, uploads, batches, images, audio, moderations, vector stores, rerank.

Bodies pass while they arrive, in both directions, whatever they are; only the credential is the provider's. A request with a body
is sent once, with the first usable key: files belong to an account. The provider is the one that the client names (header
`x-antiphon-provider`, query `provider`), else the first whose configuration lists the endpoint (`pass_through`), else the only
one that has the client's API. Errors come as the provider wrote them, unless they concern or repeat the gateway's credential.

What belongs to an account is shared by all clients of it, so a key that is limited to some models may not use these endpoints.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from urllib.parse import parse_qsl, quote, unquote_plus, urlsplit

from msgspec import structs

from antiphon.http.messages import ClientRequest, Response, header_text
from antiphon.providers.call import CallReport
from antiphon.providers.engine.forward import ErrorResponse, ForwardedRequest
from antiphon.providers.engine.model_call import ModelCall
from antiphon.providers.engine.provider import Provider
from antiphon.providers.engine.reply import StreamReply, UpstreamFailed
from antiphon.providers.routes import Target
from antiphon.wire.output import ProviderError
from antiphon_gateway.access.signed_tokens import TICKET, UPLOAD_ID, new_ticket
from antiphon_gateway.endpoints.body_relay import BodyRelay
from antiphon_gateway.errors import error_response, provider_error_response
from antiphon_gateway.observe.request_trace import RequestTrace
from antiphon_gateway.runtime.context import OnFinish, RequestContext

_WITHOUT_TOKENS = frozenset({"files", "uploads", "moderations", "vector_stores"})
"""Endpoints that take no tokens: what a key with a limit of tokens may send although no usage is reported."""
_WITHOUT_COST = _WITHOUT_TOKENS - {"vector_stores"}
"""What a key with a money budget may send although it has no price."""
PROVIDER_HEADER, PROVIDER_PARAMETER = "x-antiphon-provider", "provider"
_APIS: Mapping[str, tuple[str, ...]] = {
    "openai-chat": ("openai-chat", "openai-responses"),
    "anthropic": ("anthropic",),
    "gemini": ("gemini", "gemini-interactions"),
}
"""The formats of providers that have the API of a client."""
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


async def handle_pass_through(context: RequestContext, on_finish: OnFinish) -> Response:
    """Pass a request on; `on_finish` gets its trace at the end."""
    return await _PassedRequest(context, on_finish).respond()


class _PassedRequest:
    """One request that is passed on."""

    def __init__(self, context: RequestContext, on_finish: OnFinish) -> None:
        self._context = context
        self._request = context.request
        self._endpoint = context.endpoint
        self._on_finish = on_finish
        self._trace = RequestTrace(
            request_id=context.request.request_id,
            client_format=context.endpoint.format,
            key=context.key.name,
            operation=context.endpoint.kind,
            is_estimable=False,
            is_free=context.request.method != "POST" or context.endpoint.kind in _WITHOUT_TOKENS,
        )

    async def respond(self) -> Response:
        """The response for the client."""
        try:
            response = await self._pass_on()
        except BaseException as error:
            self.finish(self._trace.status_after(error, self._request.deadline))
            raise
        if isinstance(response.body, bytes):
            self.finish(response.status)
        return response

    def finish(self, status: int) -> None:
        """Record the end."""
        trace = self._trace
        if trace.finished_at is None:
            trace.status, trace.finished_at = status, time.monotonic()
            self._on_finish(trace, self._context)

    async def _pass_on(self) -> Response:
        trace, request = self._trace, self._request
        if "*" not in self._context.key.models:
            message = 'this key is limited to some models, and these endpoints are not; use a key with models = ["*"]'
            return self._error(ProviderError(message, "permission"))
        if any(segment in (".", "..") for segment in request.path.split("/")):
            return self._error(ProviderError("the path contains dot segments; remove them", "invalid_request"))
        if limit := self._unchargeable_limit():
            message = (
                f"this key has {limit}, and what {self._endpoint.kind} requests use of it is not known; "
                "use a key without limits of tokens and money"
            )
            return self._error(ProviderError(message, "permission", code="price_unknown"))
        provider = self._choose()
        if isinstance(provider, ProviderError):
            return self._error(provider)
        trace.provider, trace.upstream_format = provider.name, provider.format
        self._context.services.spans.start(trace, request.headers)
        prepared = self._build_request(provider)
        call = forward_call(prepared, CallReport(attempts=trace.attempts))
        try:
            reply = await call.reply()
        except UpstreamFailed as failure:
            return self._provider_error(provider, prepared.last_error, failure.error)
        finally:
            trace.waiting_seconds += call.waiting_seconds
        assert isinstance(reply, StreamReply), "nothing else is forwarded"
        headers = self._with_own_upload_url(provider, _returned_headers(provider, reply.headers))
        headers.update(trace.attempts_header)
        body = BodyRelay(reply, trace, request.deadline, self.finish)
        return Response(status=reply.response.status, headers=headers, body=body)

    def _unchargeable_limit(self) -> str:
        """The limit of the client that this request cannot be charged to; empty if there is none."""
        key, kind = self._context.key, self._endpoint.kind
        if self._request.method != "POST" or kind in _WITHOUT_COST:
            return ""
        limits = key.limits if kind not in _WITHOUT_TOKENS else key.money_limits
        return limits[0] if limits else ""

    def _choose(self) -> Provider | ProviderError:
        """The provider of the request, or why there is none."""
        able = {
            name: provider
            for name, provider in self._context.loaded.providers.items()
            if isinstance(provider, Provider)
            and provider.format in _APIS[self._endpoint.format]
            and not provider.preset.serves_only_generation
        }
        what = f"{self._endpoint.kind} ({self._request.path[:200]})"
        named = self._request.headers.get(PROVIDER_HEADER) or self._request.query.get(PROVIDER_PARAMETER)
        if named:
            if named in able:
                return able[named]
            known = ", ".join(able) or "none"
            message = f"no provider {named[:100]!r} for {what}; providers with this API: {known}"
            return ProviderError(message, "not_found", 404, "provider_not_found")
        declared = self._context.loaded.pass_through
        listed = [name for name in able if {"*", self._endpoint.kind} & set(declared.get(name, ()))]
        if listed:
            return able[listed[0]]
        if len({provider.base_url for provider in able.values()}) == 1:
            return next(iter(able.values()))
        if not able:
            message = f"no provider of this gateway serves {what}"
            return ProviderError(message, "not_found", 404, "not_supported")
        message = (
            f"several providers could serve {what}: {', '.join(able)}; name one in the header {PROVIDER_HEADER} or in the "
            f'query (?{PROVIDER_PARAMETER}=…), or add pass_through = ["{self._endpoint.kind}"] to one of them'
        )
        return ProviderError(message, "not_found", 404, "provider_required")

    def _build_request(self, provider: Provider) -> ForwardedRequest:
        request = self._request
        forwarded = {
            name: value
            for name, value in request.headers.items()
            if name in _FORWARDED or (name.startswith(_UPLOAD_HEADERS) and name != _UPLOAD_URL)
        }
        forwarded |= self._trace.trace_headers or {}
        return ForwardedRequest(
            provider,
            "",
            forward_url(provider, self._endpoint.format, request, self._endpoint.resource),
            (request.body,) if request.body else (),
            forwarded,
            method=request.method,
            stream=request.stream,
            stream_length=request.stream.length if request.stream is not None else None,
        )

    def _provider_error(self, provider: Provider, written: ErrorResponse | None, error: ProviderError) -> Response:
        self._trace.error = error
        response = passed_on_error(self._endpoint.format, provider, written, error)
        return structs.replace(response, headers=self._with_own_upload_url(provider, response.headers))

    def _with_own_upload_url(self, provider: Provider, headers: dict[str, str]) -> dict[str, str]:
        if _UPLOAD_URL in headers:
            headers[_UPLOAD_URL] = self._own_upload_url(provider, headers[_UPLOAD_URL])
        return headers

    def _own_upload_url(self, provider: Provider, url: str) -> str:
        """Where the client sends the file: through the gateway, because the upload needs the provider's key."""
        parts = urlsplit(url)
        if parts.netloc != urlsplit(provider.base_url).netloc:
            return url
        own_scheme = "https" if self._context.loaded.config.gateway.tls_cert else "http"
        scheme = self._request.headers.get("x-forwarded-proto", own_scheme).partition(",")[0].strip()
        kept = [_without_own_parameters(parts.query), f"{PROVIDER_PARAMETER}={quote(provider.name, safe='')}"]
        loaded, upload_id = self._context.loaded, dict(parse_qsl(parts.query)).get(UPLOAD_ID, "")
        if self._context.key.name:
            kept.append(f"{TICKET}={new_ticket(loaded, self._context.key.name, upload_id)}")
        path = parts.path[max(0, parts.path.find("/upload/")) :]
        origin = f"{'https' if scheme == 'https' else 'http'}://{self._request.headers.get('host', '')}"
        return f"{origin}{path}?{'&'.join(filter(None, kept))}"

    def _error(self, error: ProviderError) -> Response:
        self._trace.error = error
        return error_response(self._endpoint.format, error)


def forward_call(request: ForwardedRequest, report: CallReport) -> ModelCall:
    """The call that sends a request to its provider, which is its only target."""

    async def prepare(_: Target) -> ForwardedRequest:
        return request

    return ModelCall([Target(request.provider.name, "")], prepare, report)


def passed_on_error(
    format_name: str, provider: Provider, written: ErrorResponse | None, error: ProviderError
) -> Response:
    """An error as the provider wrote it, unless it is about our credential or repeats it."""
    is_ours = written is None or written.status in _CREDENTIAL_STATUSES
    if written is None or is_ours or _repeats_secret(provider, written.body):
        return provider_error_response(format_name, error, provider.name)
    return Response(status=written.status, headers=_returned_headers(provider, written.headers), body=written.body)


def _repeats_secret(provider: Provider, body: bytes) -> bool:
    return any(secret.encode("utf-8", "surrogateescape") in body for secret in provider.secrets)


def _returned_headers(provider: Provider, received: Mapping[str, str]) -> dict[str, str]:
    headers = {name: value for name, value in received.items() if name in _RETURNED or name.startswith(_UPLOAD_HEADERS)}
    headers["x-antiphon-target"] = header_text(provider.name)
    return headers


def api_of(format_name: str) -> str:
    """The API that a provider of that format has."""
    return next(api for api, formats in _APIS.items() if format_name in formats)


def forward_url(provider: Provider, api: str, request: ClientRequest, deployment: str = "") -> str:
    """Where a request goes at a provider: its path and query, without the parameters that are the gateway's."""
    url = upstream_url(provider, api, request.path, deployment)
    query = _without_own_parameters(request.raw_query)
    return f"{url}{'&' if '?' in url else '?'}{query}" if query else url


def upstream_url(provider: Provider, api: str, path: str, deployment: str = "") -> str:
    """The URL of a path at a provider."""
    preset, base_url = provider.preset, provider.base_url
    if api == "gemini":
        return structs.replace(preset, path=quote(path, safe=_SAFE), paths=()).url_for(base_url, "")
    if api == "anthropic":
        rest = path.removeprefix("/anthropic").removeprefix("/v1")
        return structs.replace(preset, path=f"/v1{quote(rest, safe=_SAFE)}", paths=()).url_for(base_url, "")
    is_deployed = path.startswith("/openai/deployments/")
    rest = path.removeprefix("/openai").removeprefix(f"/deployments/{deployment}" if is_deployed else "")
    rest = rest.removeprefix("/v1").removeprefix("/v2")
    if not is_deployed:  # Azure has these beside the deployments
        without = [(pattern, each.replace("/deployments/{model}", "")) for pattern, each in preset.paths]
        preset = structs.replace(preset, path=preset.path.replace("/deployments/{model}", ""), paths=tuple(without))
    return preset.url_beside(quote(rest, safe=_SAFE), base_url, deployment, provider.api_version)


def _without_own_parameters(query: str) -> str:
    parts = query.split("&")
    return "&".join(part for part in parts if part and unquote_plus(part.partition("=")[0]) not in _OWN_PARAMETERS)
