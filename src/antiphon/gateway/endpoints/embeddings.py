"""Embeddings: `/v1/embeddings`, passed through to providers that speak OpenAI's formats.

Numbers are not translated: of a request only the model is read and replaced (`model_field`), and the provider's answer is passed
on unchanged. The endpoint is next to the one that generates, so its address follows from the preset of the provider. Targets
without the endpoint are skipped; a model with no other target is a 404 that names the providers that have it. Everything else is
as for a generation: the next target is asked after a failure, and the request is logged, counted and charged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct, structs

from antiphon.errors import InvalidModelName, WireError
from antiphon.gateway.context import Asked
from antiphon.gateway.endpoints.models import allowed_targets, model_not_found
from antiphon.gateway.generate.charging import prompt_estimate
from antiphon.gateway.generate.offline import OfflineUpstream
from antiphon.gateway.generate.prepare import read_model, with_model
from antiphon.gateway.generate.upstream import Upstream, UpstreamFailed, WholeReply
from antiphon.gateway.http.errors import passed_on, refused
from antiphon.gateway.http.messages import Answer, header_text
from antiphon.gateway.observe.request_trace import Passage
from antiphon.history.entries import TokenUsage
from antiphon.providers.presets import Preset
from antiphon.providers.retry import fallback_targets
from antiphon.providers.routes import Target
from antiphon.wire.openai_chat.response import read_usage
from antiphon.wire.output import NOT_AN_ANSWER, ProviderError

Finished: TypeAlias = Callable[[Passage, Asked], None]

FORMATS = ("openai-chat", "openai-responses")
"""The formats whose providers have the endpoint."""

_GENERATING = ("/chat/completions", "/responses")


class _Embedded(Struct):
    """Of an answer what is read."""

    data: list[msgspec.Raw]
    usage: Any = None


async def embed(asked: Asked, finished: Finished) -> Answer:
    """Answer a request for embeddings; `finished` hears of it when it is over."""
    passage = Passage(
        request_id=asked.request.request_id,
        client_format=asked.door.format,
        key=asked.key.name,
        operation="embeddings",
        prompt_estimate=prompt_estimate(asked.request.body) if asked.key.tokens_per_minute is not None else 0,
    )
    status = 0
    try:
        answer = await _answer(asked, passage)
        status = answer.status
    except BaseException as error:
        status = passage.status_after(error, asked.request.deadline)
        raise
    finally:
        passage.status, passage.ended = status, time.monotonic()
        finished(passage, asked)
    return answer


async def _answer(asked: Asked, passage: Passage) -> Answer:
    body, door = asked.request.body, asked.door.format
    try:
        model = read_model(body)
        targets = allowed_targets(asked, model)
    except (WireError, InvalidModelName) as error:
        passage.error = ProviderError(str(error), "invalid_request", param="model")
        return refused(door, passage.error)
    passage.asked = model
    if not targets:
        return model_not_found(asked, model)
    upstreams = asked.running.upstreams
    able = [target for target in targets if _address(upstreams[target.provider], target.model) is not None]
    if not able:
        others = [name for name, upstream in upstreams.items() if _address(upstream, "m") is not None]
        return refused(door, no_embeddings(model, targets[0].provider, others))
    tried = able
    while True:
        target, *rest = able
        passage.provider, passage.model = target.provider, target.model
        began = time.monotonic()
        try:
            reply, passage.usage = await _asked(asked, passage, target, with_model(body, target.model))
        except UpstreamFailed as failure:
            passage.error = failure.error
            able = fallback_targets(failure.error, target, rest)
            if not able:
                return passed_on(door, asked.running.with_applied_wait(failure.error, tried), target.provider)
        else:
            passage.error = None
            return Answer.json(reply.body, headers={"x-antiphon-target": header_text(str(target))})
        finally:
            passage.waited += time.monotonic() - began


async def _asked(asked: Asked, passage: Passage, target: Target, body: bytes) -> tuple[WholeReply, TokenUsage | None]:
    """A target's answer and what it cost. Raises `UpstreamFailed`."""
    upstream = asked.running.upstreams[target.provider]
    passage.upstream_format = upstream.format
    reply = await upstream.ask(
        target.model,
        [body],
        streams=False,
        headers={},
        attempts=passage.attempts,
        address=_address(upstream, target.model),
    )
    assert isinstance(reply, WholeReply), "no stream was asked for"
    try:
        return reply, read_usage(msgspec.json.decode(reply.body, type=_Embedded).usage)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        message = f"invalid response from provider {target.provider}: no embeddings in it"
        failed = ProviderError(message, "server", code=NOT_AN_ANSWER)
        passage.fail_attempt(failed)
        raise UpstreamFailed(failed) from None


def _address(upstream: Upstream | OfflineUpstream, model: str) -> str | None:
    if not isinstance(upstream, Upstream):
        return None
    return embeddings_address(upstream.preset, upstream.base_url, model, upstream.api_version)


def embeddings_address(preset: Preset, base_url: str, model: str, api_version: str = "") -> str | None:
    """Where a provider makes embeddings; None if it does not."""
    if preset.format not in FORMATS:
        return None
    paths = tuple((pattern, _embedding(path)) for pattern, path in preset.paths)
    return structs.replace(preset, path=_embedding(preset.path), paths=paths).url_for(base_url, model, api_version)


def no_embeddings(model: str, provider: str, providers: Sequence[str]) -> ProviderError:
    """What to answer where the provider of a model makes none; `providers` are those that do."""
    there = f"These do: {', '.join(providers)}." if providers else "No provider of this gateway does."
    return ProviderError(
        f"The model `{model}` is answered by {provider}, which does not make embeddings. {there}",
        "not_found",
        404,
        "embeddings_not_supported",
        "model",
    )


def _embedding(path: str) -> str:
    for generating in _GENERATING:
        path = path.replace(generating, "/embeddings")
    return path
