"""Token counts: Anthropic's `count_tokens`, Gemini's `countTokens` and OpenAI's `input_tokens`.

A provider of the client's format counts itself. For any other the gateway estimates over messages, tools and the output schema,
with its own tokenizer, and marks the response with a header. The tokenizer is slow on megabytes, so it runs in a thread.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct, structs

from antiphon.context.tokens import CounterChain, LocalTokenizer
from antiphon.errors import WireError
from antiphon.history import ContextEntryRole
from antiphon.http.messages import Response
from antiphon.parts import Native, Part, Text, ToolCallRequest
from antiphon.providers.engine.attempt import UpstreamRequest
from antiphon.providers.engine.reply import UpstreamFailed, WholeReply
from antiphon.providers.presets import Preset
from antiphon.providers.routes import Target
from antiphon.wire import formats
from antiphon.wire.request import ModelRequest, ToolDefinition
from antiphon_gateway.generate.server_state import expand_state
from antiphon_gateway.runtime.body_fields import read_object, replace_model
from antiphon_gateway.runtime.metered import MeteredRequest, count_copy
from antiphon_gateway.state.continuing import STATE_FIELDS
from antiphon_gateway.threads import COUNTING, STATE

ESTIMATE_HEADER = "x-antiphon-estimate"
"""The header of an estimated count."""

_MESSAGE_TOKENS = 4
"""Tokens of a message beside its text: the role, the start and the end."""
_GEMINI_WRAPPER = "generateContentRequest"

_counter = CounterChain([LocalTokenizer()])


class TokenCount(MeteredRequest):
    """Counts the tokens of a request: by a provider that counts in the client's format, else by an estimate."""

    operation = "count_tokens"

    async def answer(self) -> Response:
        """The count."""
        format_name = self.endpoint.format
        count_copy(self.request.hold, len(self.request.body))
        counted = read_count_request(format_name, self.request.body)
        targets = self.targets(self.endpoint.resource or counted.model)
        expanded = await STATE.run(expand_state, self, counted) if format_name in STATE_FIELDS else counted
        counting = [target for target in targets if self._address(target) is not None]
        if targets[0] in counting and expanded is counted:
            response = await self._count_upstream(counting)
            if response is not None:
                return response
        return await COUNTING.run(count_here, format_name, expanded)

    async def _count_upstream(self, targets: list[Target]) -> Response | None:
        """The response of a provider that counts; None if it has the client's format but does not count."""
        try:
            reply = await self.call(targets, self._prepare).reply()
        except UpstreamFailed as failure:
            if self.endpoint.format in STATE_FIELDS and failure.error.kind == "not_found":
                return None
            raise
        assert isinstance(reply, WholeReply), "no stream was requested"
        return Response.json(reply.body)

    async def _prepare(self, target: Target) -> UpstreamRequest:
        record, provider, address = self.record, self.loaded.providers[target.provider], self._address(target)
        assert address is not None, "only counting targets are called"
        record.provider, record.model = target.provider, target.model
        count_copy(self.request.hold, len(self.request.body))
        body = rewrite_count_body(self.endpoint.format, self.request.body, target.model)
        return UpstreamRequest(provider, target.model, address, [body], streams=False)

    def _address(self, target: Target) -> str | None:
        """The URL at which a target counts in the client's format; None if it does not."""
        provider = self.loaded.providers[target.provider]
        if provider.format != self.endpoint.format:
            return None
        return count_url(provider.preset, provider.base_url, target.model, provider.api_version)


class _Prompt(Struct, frozen=True):
    """Everything a request gives the model, as the one entry a counter reads."""

    content: tuple[Part, ...]
    role: ContextEntryRole = ContextEntryRole.MODEL_INPUT
    tool_calls: tuple[ToolCallRequest, ...] = ()
    live_screen: str | None = None


def count_here(format_name: str, request: ModelRequest | bytes) -> Response:
    """The count of a request, in the shape of `count_tokens` (anthropic), `countTokens` (gemini) or `input_tokens`."""
    tokens = request_tokens(read_count_request(format_name, request) if isinstance(request, bytes) else request)
    if format_name == "gemini":
        details = [{"modality": "TEXT", "tokenCount": tokens}]
        return Response.json({"totalTokens": tokens, "promptTokensDetails": details}, headers={ESTIMATE_HEADER: "1"})
    kind = {"object": "response.input_tokens"} if format_name == "openai-responses" else {}
    return Response.json({**kind, "input_tokens": tokens}, headers={ESTIMATE_HEADER: "1"})


def read_count_request(format_name: str, body: bytes) -> ModelRequest:
    """The request to count. Gemini's may be wrapped in another."""
    if format_name != "gemini":
        return formats[format_name].read_request(body)
    fields = read_object(body)
    wrapped = fields.get(_GEMINI_WRAPPER)
    if wrapped is None:
        return formats[format_name].read_request(fields)
    if not isinstance(wrapped, dict):
        raise WireError(f"{_GEMINI_WRAPPER}: expected an object, got {type(wrapped).__name__}")
    return formats[format_name].read_request(wrapped)


def request_tokens(request: ModelRequest) -> int:
    """The approximate number of tokens of a request."""
    parts = [part for message in request.messages for part in message.parts]
    parts += [_tool_text(tool) for tool in request.tools]
    if request.output_format is not None and request.output_format.schema is not None:
        parts.append(_json_text(request.output_format.schema))
    return _counter.count(_Prompt(tuple(parts))) + _MESSAGE_TOKENS * (len(request.messages) + len(request.tools))


def rewrite_count_body(format_name: str, body: bytes, model: str) -> bytes:
    """The body for an upstream of the same format that calls the model `model`."""
    if format_name != "gemini":
        return replace_model(body, model)
    fields = read_object(body)
    wrapped = fields.get(_GEMINI_WRAPPER)
    if not isinstance(wrapped, dict) or "model" not in wrapped:
        return body  # the name is only in the URL
    return msgspec.json.encode(
        {**fields, _GEMINI_WRAPPER: {**wrapped, "model": f"models/{model.removeprefix('models/')}"}}
    )


def count_url(preset: Preset, base_url: str, model: str, api_version: str = "") -> str | None:
    """The URL at which a provider counts tokens of `model`; None if it does not."""
    if preset.format == "openai-responses":
        counting = structs.replace(preset, path=f"{preset.path}/input_tokens", paths=())
        return counting.url_for(base_url, model, api_version)
    if preset.format == "gemini":
        return preset.url_of_verb("countTokens", base_url, model, api_version)
    if preset.format != "anthropic" or preset.serves_only_generation:
        return None
    counting = structs.replace(preset, path=f"{preset.path}/count_tokens", paths=())
    return counting.url_for(base_url, model, api_version)


def _tool_text(tool: ToolDefinition | Native) -> Text:
    if isinstance(tool, Native):
        return _json_text(tool.data)
    return Text("\n".join((tool.name, tool.description or "", _json_text(tool.parameters or {}).text)))


def _json_text(value: Any) -> Text:
    return Text(msgspec.json.encode(value).decode())
