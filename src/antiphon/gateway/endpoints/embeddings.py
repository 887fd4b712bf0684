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
from msgspec import Struct, structs

from antiphon.errors import InvalidModelName, WireError
from antiphon.gateway.context import RequestContext
from antiphon.gateway.endpoints.models import allowed_targets, model_not_found
from antiphon.gateway.generate.charging import prompt_estimate
from antiphon.gateway.generate.offline import OfflineUpstream
from antiphon.gateway.generate.prepare import read_model_name, replace_model
from antiphon.gateway.generate.upstream import Upstream, UpstreamFailed, WholeReply
from antiphon.gateway.http.errors import error_response, provider_error_response
from antiphon.gateway.http.messages import Response, header_text
from antiphon.gateway.observe.request_trace import RequestTrace
from antiphon.history.entries import TokenUsage
from antiphon.providers.presets import Preset
from antiphon.providers.retry import fallback_targets
from antiphon.providers.routes import Target
from antiphon.wire.openai_chat.response import read_usage
from antiphon.wire.output import NOT_AN_ANSWER, ProviderError

Finished: TypeAlias = Callable[[RequestTrace, RequestContext], None]

FORMATS = ("openai-chat", "openai-responses")
"""The formats whose providers have the endpoint."""

_GENERATING = ("/chat/completions", "/responses")


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
        others = [name for name, upstream in providers.items() if _address(upstream, "m") is not None]
        return error_response(endpoint, embeddings_unsupported(model, targets[0].provider, others))
    tried = able
    while True:
        target, *rest = able
        trace.provider, trace.model = target.provider, target.model
        began = time.monotonic()
        try:
            reply, trace.usage = await _call_target(context, trace, target, replace_model(body, target.model))
        except UpstreamFailed as failure:
            trace.error = failure.error
            able = fallback_targets(failure.error, target, rest)
            if not able:
                return provider_error_response(
                    endpoint, context.loaded.with_applied_wait(failure.error, tried), target.provider
                )
        else:
            trace.error = None
            return Response.json(reply.body, headers={"x-antiphon-target": header_text(str(target))})
        finally:
            trace.waiting_seconds += time.monotonic() - began


async def _call_target(
    context: RequestContext, trace: RequestTrace, target: Target, body: bytes
) -> tuple[WholeReply, TokenUsage | None]:
    """A target's response and its cost. Raises `UpstreamFailed`."""
    upstream = context.loaded.providers[target.provider]
    trace.upstream_format = upstream.format
    reply = await upstream.ask(
        target.model,
        [body],
        streams=False,
        headers={},
        attempts=trace.attempts,
        address=_address(upstream, target.model),
    )
    assert isinstance(reply, WholeReply), "no stream was requested"
    try:
        return reply, read_usage(msgspec.json.decode(reply.body, type=_Embedded).usage)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        message = f"invalid response from provider {target.provider}: no embeddings in it"
        failed = ProviderError(message, "server", code=NOT_AN_ANSWER)
        trace.fail_attempt(failed)
        raise UpstreamFailed(failed) from None


def _address(upstream: Upstream | OfflineUpstream, model: str) -> str | None:
    if not isinstance(upstream, Upstream):
        return None
    return embeddings_url(upstream.preset, upstream.base_url, model, upstream.api_version)


def embeddings_url(preset: Preset, base_url: str, model: str, api_version: str = "") -> str | None:
    """The URL of a provider's embeddings endpoint; None if it has none."""
    if preset.format not in FORMATS:
        return None
    paths = tuple((pattern, _embeddings_path(path)) for pattern, path in preset.paths)
    return structs.replace(preset, path=_embeddings_path(preset.path), paths=paths).url_for(
        base_url, model, api_version
    )


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


def _embeddings_path(path: str) -> str:
    for generating in _GENERATING:
        path = path.replace(generating, "/embeddings")
    return path
