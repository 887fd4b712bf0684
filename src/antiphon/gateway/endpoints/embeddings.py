"""`/v1/embeddings`, passed through to providers that speak OpenAI's formats.

Only the model's name is read and replaced; the response is passed on unchanged. Targets without the endpoint are skipped; if no
target has it, the client gets a 404 that names the providers that do. Fallback, logging, metrics and charging work as for a
generation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from antiphon.errors import InvalidModelName, WireError
from antiphon.gateway.context import RequestContext
from antiphon.gateway.endpoints.models import allowed_targets, model_not_found
from antiphon.gateway.generate.charging import prompt_estimate
from antiphon.gateway.generate.offline import OfflineProvider
from antiphon.gateway.generate.prepare import read_model_name, replace_model
from antiphon.gateway.http.errors import error_response, provider_error_response
from antiphon.gateway.http.messages import Response, header_text
from antiphon.gateway.observe.request_trace import RequestTrace
from antiphon.history.entries import TokenUsage
from antiphon.providers.call import CallReport
from antiphon.providers.engine.attempt import UpstreamRequest
from antiphon.providers.engine.model_call import ModelCall
from antiphon.providers.engine.provider import Provider
from antiphon.providers.engine.reply import UpstreamFailed, WholeReply
from antiphon.providers.presets import Preset
from antiphon.providers.routes import Target
from antiphon.wire.openai_chat.response import read_usage
from antiphon.wire.output import ProviderError

Finished: TypeAlias = Callable[[RequestTrace, RequestContext], None]

FORMATS = ("openai-chat", "openai-responses")
"""The formats whose providers have the endpoint."""


class _Embedded(Struct):
    """The fields that are read from a response."""

    data: list[msgspec.Raw]
    usage: Any = None


async def handle_embeddings(context: RequestContext, on_finish: Finished) -> Response:
    """Answer a request for embeddings; `on_finish` gets its trace at the end."""
    trace = RequestTrace(
        request_id=context.request.request_id,
        client_format=context.endpoint.format,
        key=context.key.name,
        operation="embeddings",
        prompt_estimate=prompt_estimate(context.request.body) if context.key.tokens_per_minute is not None else 0,
    )
    status = 0
    try:
        response = await _respond(context, trace)
        status = response.status
    except BaseException as error:
        status = trace.status_after(error, context.request.deadline)
        raise
    finally:
        trace.status, trace.finished_at = status, time.monotonic()
        on_finish(trace, context)
    return response


async def _respond(context: RequestContext, trace: RequestTrace) -> Response:
    body, endpoint = context.request.body, context.endpoint.format
    try:
        model = read_model_name(body)
        targets = allowed_targets(context, model)
    except (WireError, InvalidModelName) as error:
        trace.error = ProviderError(str(error), "invalid_request", param="model")
        return error_response(endpoint, trace.error)
    trace.requested_model = model
    if not targets:
        return model_not_found(context, model)
    providers = context.loaded.providers
    able = [target for target in targets if _address(providers[target.provider], target.model) is not None]
    if not able:
        others = [name for name, provider in providers.items() if _address(provider, "m") is not None]
        return error_response(endpoint, embeddings_unsupported(model, targets[0].provider, others))

    async def prepare(target: Target) -> UpstreamRequest:
        provider = providers[target.provider]
        trace.provider, trace.model, trace.upstream_format = target.provider, target.model, provider.format
        address = _address(provider, target.model)
        assert isinstance(provider, Provider), "only able targets are called"
        assert address is not None, "only able targets are called"
        sent = [replace_model(body, target.model)]
        return UpstreamRequest(
            provider, target.model, address, sent, trace.trace_headers, streams=False, read=_read_usage
        )

    context.services.spans.start(trace, context.request.headers)
    call = ModelCall(able, prepare, CallReport(attempts=trace.attempts))
    try:
        reply = await call.reply()
    except UpstreamFailed as failure:
        trace.error = failure.error
        return provider_error_response(endpoint, failure.error, trace.provider)
    finally:
        trace.waiting_seconds += call.waiting_seconds
    assert isinstance(reply, WholeReply), "no stream was requested"
    trace.usage = reply.content
    return Response.json(reply.body, headers={"x-antiphon-target": header_text(f"{trace.provider}/{trace.model}")})


def _read_usage(body: bytes) -> TokenUsage | None:
    """The cost of a response with embeddings."""
    try:
        return read_usage(msgspec.json.decode(body, type=_Embedded).usage)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise WireError("no embeddings in it") from None


def _address(provider: Provider | OfflineProvider, model: str) -> str | None:
    if not isinstance(provider, Provider):
        return None
    return embeddings_url(provider.preset, provider.base_url, model, provider.api_version)


def embeddings_url(preset: Preset, base_url: str, model: str, api_version: str = "") -> str | None:
    """The URL of a provider's embeddings endpoint; None if it has none."""
    if preset.format not in FORMATS:
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
