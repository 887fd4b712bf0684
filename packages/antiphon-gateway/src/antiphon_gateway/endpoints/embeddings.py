"""Embeddings: `/v1/embeddings`, Gemini's `embedContent` and `batchEmbedContents`, Ollama's `/api/embed`.

A target of the client's own API gets the body as it came, with only the model's name replaced, and its response is passed on
unchanged. For others both are translated (`wire.clients.embeddings`). Targets without embeddings are skipped; if no target has
them, the client gets a 404 that names the providers that do. Fallback, logging, metrics and charging work as for a generation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from antiphon.errors import InvalidModelName, WireError
from antiphon.http.messages import Response, header_text
from antiphon.parts import TokenUsage
from antiphon.providers.call import CallReport
from antiphon.providers.engine.attempt import UpstreamRequest
from antiphon.providers.engine.model_call import ModelCall
from antiphon.providers.engine.provider import Provider
from antiphon.providers.engine.reply import UpstreamFailed, WholeReply
from antiphon.providers.presets import Preset
from antiphon.providers.routes import Target
from antiphon.wire.clients.embeddings import (
    SHAPES,
    EmbedOutput,
    EmbedRequest,
    read_gemini_response,
    read_openai_response,
    write_gemini_request,
    write_openai_request,
)
from antiphon.wire.openai_chat.response import read_usage
from antiphon.wire.output import ProviderError
from antiphon_gateway.access.accounts import EMBEDDED, priced_targets
from antiphon_gateway.endpoints.tokens import ESTIMATE_HEADER
from antiphon_gateway.errors import error_response, provider_error_response
from antiphon_gateway.generate.generation import header_list
from antiphon_gateway.generate.model_names import allowed_targets, model_not_found
from antiphon_gateway.generate.prepare import read_model_name, replace_model, top_level_fields
from antiphon_gateway.observe.charging import estimated_tokens, prompt_estimate
from antiphon_gateway.observe.request_trace import RequestTrace
from antiphon_gateway.runtime.context import OnFinish, RequestContext
from antiphon_gateway.runtime.offline import OfflineProvider
from antiphon_gateway.runtime.request_fields import read_object

OPENAI_FORMATS = ("openai-chat", "openai-responses")
"""The formats whose providers have `/v1/embeddings`."""
_GEMINI_VERBS = {"": "embedContent", "batch": "batchEmbedContents"}
_UNPROCESSABLE = 422


async def handle_embeddings(context: RequestContext, on_finish: OnFinish) -> Response:
    """Answer a request for embeddings; `on_finish` gets its trace at the end."""
    trace = RequestTrace(
        request_id=context.request.request_id,
        client_format=context.endpoint.format,
        key=context.key.name,
        operation="embeddings",
        prompt_estimate=prompt_estimate(context.request.body),
    )
    status = 0
    try:
        response = await _Embedding(context, trace).respond()
        status = response.status
    except BaseException as error:
        status = trace.status_after(error, context.request.deadline)
        raise
    finally:
        trace.status, trace.finished_at = status, time.monotonic()
        on_finish(trace, context)
    return response


class _Embedding:
    """One request for embeddings."""

    def __init__(self, context: RequestContext, trace: RequestTrace) -> None:
        self._context = context
        self._trace = trace
        self._endpoint = context.endpoint
        self._shape = SHAPES[context.endpoint.format, context.endpoint.kind]
        self._parsed: EmbedRequest | None = None
        self._is_passed_on = True

    async def respond(self) -> Response:
        context, trace, format_name = self._context, self._trace, self._endpoint.format
        try:
            model = self._model_name()
            targets = allowed_targets(context, model)
        except (WireError, InvalidModelName) as error:
            trace.error = ProviderError(str(error), "invalid_request", param="model")
            return error_response(format_name, trace.error)
        trace.requested_model = model
        if not targets:
            return model_not_found(context, model)
        providers = context.loaded.providers
        able = [target for target in targets if self._address(providers[target.provider], target.model) is not None]
        if not able:
            others = [name for name, provider in providers.items() if self._address(provider, "m") is not None]
            return error_response(format_name, embeddings_unsupported(model, targets[0].provider, others))
        priced = priced_targets(context.key, able, context.loaded.prices, EMBEDDED)
        if isinstance(priced, ProviderError):
            trace.error = priced
            return error_response(format_name, priced)
        context.services.spans.start(trace, context.request.headers)
        report = CallReport(attempts=trace.attempts, fallbacks=trace.fallbacks)
        call = ModelCall(priced, self._prepare, report, health=context.loaded.target_health)
        try:
            reply = await call.reply()
        except UpstreamFailed as failure:
            trace.error = failure.error
            return provider_error_response(format_name, failure.error, trace.provider)
        finally:
            trace.waiting_seconds += call.waiting_seconds
        assert isinstance(reply, WholeReply), "no stream was requested"
        return self._with_headers(self._answer(reply))

    def _model_name(self) -> str:
        body = self._context.request.body
        if self._endpoint.format == "gemini":
            top_level_fields(body)  # the name is in the path; the body must be an object all the same
            return self._endpoint.resource
        return read_model_name(body)

    async def _prepare(self, target: Target) -> UpstreamRequest:
        trace, provider = self._trace, self._context.loaded.providers[target.provider]
        trace.provider, trace.model, trace.upstream_format = target.provider, target.model, provider.format
        address = self._address(provider, target.model)
        assert isinstance(provider, Provider), "only able targets are called"
        assert address is not None, "only able targets are called"
        self._is_passed_on = _api(provider.format) == _api(self._endpoint.format)
        try:
            sent, read = self._passed_on(target) if self._is_passed_on else self._translated(provider, target)
        except WireError as error:
            raise UpstreamFailed(ProviderError(str(error), "invalid_request", 400)) from None
        return UpstreamRequest(provider, target.model, address, [sent], trace.trace_headers, streams=False, read=read)

    def _passed_on(self, target: Target) -> tuple[bytes, Callable[[bytes], Any]]:
        body = self._context.request.body
        self._trace.losses = []
        if self._endpoint.format == "gemini":
            renames = target.model != self._endpoint.resource
            return (_rename_gemini_models(body, target.model) if renames else body), _read_gemini_usage
        return replace_model(body, target.model), _read_openai_usage

    def _translated(self, provider: Provider, target: Target) -> tuple[bytes, Callable[[bytes], Any]]:
        request = self._request
        self._trace.losses = losses = request.losses()
        if losses and self._context.key.strict:
            what = "; ".join(map(str, losses))
            raise UpstreamFailed(
                ProviderError(f"strict key: the request would need changes: {what}", "invalid_request", _UNPROCESSABLE)
            )
        if provider.format == "gemini":
            return msgspec.json.encode(write_gemini_request(request, target.model)), read_gemini_response
        return msgspec.json.encode(write_openai_request(request, target.model)), read_openai_response

    @property
    def _request(self) -> EmbedRequest:
        if self._parsed is None:
            self._parsed = self._shape.read_request(read_object(self._context.request.body))
        return self._parsed

    def _answer(self, reply: WholeReply) -> Response:
        trace = self._trace
        if self._is_passed_on:
            trace.usage = reply.content
            return Response.json(reply.body)
        output: EmbedOutput = reply.content
        request, headers = self._request, {}
        tokens = output.tokens
        if tokens is None:
            tokens = sum(map(estimated_tokens, request.texts))
            headers[ESTIMATE_HEADER] = "1"
        else:
            trace.usage = TokenUsage(prompt_tokens=tokens, total_tokens=tokens)
        return Response.json(
            self._shape.write_response(request, output, trace.requested_model, tokens), headers=headers
        )

    def _with_headers(self, response: Response) -> Response:
        trace = self._trace
        response.headers["x-antiphon-target"] = header_text(f"{trace.provider}/{trace.model}")
        response.headers.update(trace.attempts_header)
        if trace.losses:
            response.headers["x-antiphon-losses"] = header_list([f"{loss.path} {loss.what}" for loss in trace.losses])
        return response

    def _address(self, provider: Provider | OfflineProvider, model: str) -> str | None:
        if not isinstance(provider, Provider):
            return None
        verb = _GEMINI_VERBS[self._endpoint.kind] if self._endpoint.format == "gemini" else "batchEmbedContents"
        return embeddings_url(provider.preset, provider.base_url, model, provider.api_version, verb=verb)


def _api(format_name: str) -> str:
    """The API for embeddings that providers, or clients, of a format have."""
    return "openai-chat" if format_name in OPENAI_FORMATS else format_name


class _Embedded(Struct):
    """The fields that are read from a response."""

    data: list[msgspec.Raw]
    usage: Any = None


def _read_openai_usage(body: bytes) -> TokenUsage | None:
    """The cost of a response with embeddings."""
    try:
        return read_usage(msgspec.json.decode(body, type=_Embedded).usage)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise WireError("no embeddings in it") from None


def _read_gemini_usage(body: bytes) -> TokenUsage | None:
    tokens = read_gemini_response(body).tokens
    return None if tokens is None else TokenUsage(prompt_tokens=tokens, total_tokens=tokens)


def _rename_gemini_models(body: bytes, model: str) -> bytes:
    """The same body with another model, where it names one: in itself, or in each request of a batch."""
    fields = read_object(body)
    name = f"models/{model.removeprefix('models/')}"
    entries = fields.get("requests")
    for entry in [fields, *(entries if isinstance(entries, list) else ())]:
        if isinstance(entry, dict) and "model" in entry:
            entry["model"] = name
    return msgspec.json.encode(fields)


def embeddings_url(
    preset: Preset, base_url: str, model: str, api_version: str = "", *, verb: str = "batchEmbedContents"
) -> str | None:
    """The URL of a provider's embeddings endpoint; None if it has none. `verb` is the call of a Gemini host."""
    if preset.serves_only_generation:
        return None
    if preset.format == "gemini":
        return preset.url_of_verb(verb, base_url, model, api_version)
    if preset.format not in OPENAI_FORMATS:
        return None
    return preset.url_beside("/embeddings", base_url, model, api_version)


def embeddings_unsupported(model: str, provider: str, providers: Sequence[str]) -> ProviderError:
    """The error for a model whose provider has no embeddings; `providers` are those that have."""
    there = (
        f"Providers with embeddings: {', '.join(providers)}." if providers else "No provider of this gateway has one."
    )
    return ProviderError(
        f"The model `{model}` is served by {provider}, which has no embeddings endpoint. {there}",
        "not_found",
        404,
        "embeddings_not_supported",
        "model",
    )
