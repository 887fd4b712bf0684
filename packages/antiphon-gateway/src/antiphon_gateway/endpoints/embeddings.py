"""Embeddings: `/v1/embeddings`, Gemini's `embedContent` and `batchEmbedContents`, Ollama's `/api/embed`.

A target of the client's own API gets the body as it came, with only the model's name replaced, and its response is passed on
unchanged. For others both are translated (`embedding_bodies`). Targets without embeddings are skipped; if no target has
them, the client gets a 404 that names the providers that do. Fallback, logging, metrics and charging work as for a generation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import msgspec
from msgspec import Struct

from antiphon.errors import InvalidModelName, WireError
from antiphon.http.messages import Response
from antiphon.json_text import NOT_JSON
from antiphon.parts import TokenUsage
from antiphon.providers.engine.attempt import UpstreamRequest
from antiphon.providers.engine.provider import Provider
from antiphon.providers.engine.reply import UpstreamFailed, WholeReply
from antiphon.providers.presets import Preset
from antiphon.providers.routes import Target
from antiphon.wire.openai_chat.response import read_usage
from antiphon.wire.output import ProviderError
from antiphon_gateway.access.accounts import EMBEDDED, priced_targets
from antiphon_gateway.endpoints.embedding_bodies import (
    SHAPES,
    EmbedOutput,
    EmbedRequest,
    Shape,
    read_gemini_response,
    read_openai_response,
    write_gemini_request,
    write_openai_request,
)
from antiphon_gateway.endpoints.pass_through import API_OF
from antiphon_gateway.endpoints.tokens import ESTIMATE_HEADER
from antiphon_gateway.observe.record import estimated_tokens, prompt_estimate
from antiphon_gateway.runtime.body_fields import (
    read_model_name,
    read_object,
    rename_gemini_models,
    replace_model,
    top_level_fields,
    with_model,
)
from antiphon_gateway.runtime.metered import MeteredRequest, count_copy

_GEMINI_VERBS = {"": "embedContent", "batch": "batchEmbedContents"}
_UNPROCESSABLE = 422


class Embedding(MeteredRequest):
    """One request for embeddings."""

    operation = "embeddings"
    calls_providers = True
    charges = "tokens"
    _urls: dict[Target, str]
    """The endpoints of the targets that have one."""

    async def answer(self) -> Response:
        """The embeddings."""
        if self.endpoint.resource and self.endpoint.format != "gemini":
            self.request.body = with_model(self.request.body, self.endpoint.resource)  # Azure names it in the path
        self.record.prompt_estimate = prompt_estimate(self.request.body)
        try:
            model, providers = self._model_name(), self.loaded.providers
        except WireError as error:
            raise InvalidModelName(str(error)) from None
        targets = self.targets(model)
        self._urls = {target: url for target in targets if (url := self._url(providers[target.provider], target.model))}
        if not self._urls:
            others = [name for name, provider in providers.items() if self._url(provider, "m")]
            return self.refuse(embeddings_unsupported(model, targets[0].provider, others))
        priced = priced_targets(self.key, list(self._urls), self.loaded.prices, EMBEDDED)
        if isinstance(priced, ProviderError):
            return self.refuse(priced)
        reply = await self.call(priced, self._prepare, health=self.loaded.target_health).reply()
        assert isinstance(reply, WholeReply), "no stream was requested"
        return self._written(reply)

    def _model_name(self) -> str:
        body = self.request.body
        if self.endpoint.format == "gemini":
            top_level_fields(body)  # the name is in the path; the body must be an object all the same
            return self.endpoint.resource
        return read_model_name(body)

    async def _prepare(self, target: Target) -> UpstreamRequest:
        record, provider = self.record, self.loaded.providers[target.provider]
        record.provider, record.model, record.upstream_format = target.provider, target.model, provider.format
        count_copy(self.request.hold, len(self.request.body))
        is_passed_on = API_OF.get(provider.format) == self.endpoint.format
        try:
            sent, read = self._passed_on(target) if is_passed_on else self._translated(provider, target)
        except WireError as error:
            raise UpstreamFailed(ProviderError(str(error), "invalid_request", 400)) from None
        url, headers = self._urls[target], record.trace_headers
        return UpstreamRequest(provider, target.model, url, [sent], headers, streams=False, read=read)

    def _passed_on(self, target: Target) -> tuple[bytes, Callable[[bytes], Any]]:
        body = self.request.body
        self.record.losses = []
        if self.endpoint.format != "gemini":
            return replace_model(body, target.model), _read_openai_usage
        renames = target.model != self.endpoint.resource
        return rename_gemini_models(body, target.model) if renames else body, _read_gemini_usage

    def _translated(self, provider: Provider, target: Target) -> tuple[bytes, Callable[[bytes], Any]]:
        request = self._embed_request
        self.record.losses = losses = request.losses()
        if losses and self.key.strict:
            what = "; ".join(map(str, losses))
            raise UpstreamFailed(
                ProviderError(f"strict key: the request would need changes: {what}", "invalid_request", _UNPROCESSABLE)
            )
        if provider.format == "gemini":
            write, read = write_gemini_request, read_gemini_response
        else:
            write, read = write_openai_request, read_openai_response

        def read_all(body: bytes) -> EmbedOutput:
            output = read(body)
            if len(output.vectors) != len(request.texts):
                raise WireError(f"{len(output.vectors)} embeddings for {len(request.texts)} texts")
            return output

        return msgspec.json.encode(write(request, target.model)), read_all

    @property
    def _shape(self) -> Shape:
        return SHAPES[self.endpoint.format, self.endpoint.kind]

    @cached_property
    def _embed_request(self) -> EmbedRequest:
        count_copy(self.request.hold, len(self.request.body))
        return self._shape.read_request(read_object(self.request.body))

    def _written(self, reply: WholeReply) -> Response:
        record, output = self.record, reply.content
        if not isinstance(output, EmbedOutput):  # it was passed on
            record.usage = output
            return Response.json(reply.body)
        request, headers = self._embed_request, {}
        tokens = output.tokens
        if tokens is None:
            tokens = sum(map(estimated_tokens, request.texts))
            headers[ESTIMATE_HEADER] = "1"
        else:
            record.usage = TokenUsage(prompt_tokens=tokens, total_tokens=tokens)
        body = self._shape.write_response(request, output, record.requested_model, tokens)
        return Response.json(body, headers=headers)

    def _url(self, provider: Provider, model: str) -> str | None:
        verb = _GEMINI_VERBS[self.endpoint.kind] if self.endpoint.format == "gemini" else "batchEmbedContents"
        return embeddings_url(provider.preset, model, verb)


class _Embedded(Struct):
    """The fields that are read from a response."""

    data: list[msgspec.Raw]
    usage: Any = None


def _read_openai_usage(body: bytes) -> TokenUsage | None:
    """The cost of a response with embeddings."""
    try:
        return read_usage(msgspec.json.decode(body, type=_Embedded).usage)
    except NOT_JSON:
        raise WireError("no embeddings in it") from None


def _read_gemini_usage(body: bytes) -> TokenUsage | None:
    tokens = read_gemini_response(body).tokens
    return None if tokens is None else TokenUsage(prompt_tokens=tokens, total_tokens=tokens)


def embeddings_url(preset: Preset, model: str, verb: str = "batchEmbedContents") -> str | None:
    """The URL of a provider's embeddings endpoint; None if it has none. `verb` is the call of a Gemini host."""
    if preset.serves_only_generation:
        return None
    if preset.format == "gemini":
        return preset.verb(verb).url_for(model)
    if API_OF.get(preset.format) != "openai-chat":
        return None
    return preset.beside("/embeddings").url_for(model)


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
