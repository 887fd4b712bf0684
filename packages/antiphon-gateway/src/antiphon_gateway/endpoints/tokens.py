"""Token counts: Anthropic's `count_tokens`, Gemini's `countTokens` and OpenAI's `input_tokens`.

A provider of the client's format counts itself. For any other the gateway estimates over messages, tools and the output schema,
with its own tokenizer, and marks the response with a header. The tokenizer is slow on megabytes, so it runs in a thread.
"""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.context import RenderedContextEntry
from antiphon.context.tokens import CounterChain
from antiphon.errors import WireError
from antiphon.history import ContextEntryRole
from antiphon.http.messages import Response
from antiphon.parts import Native, Text
from antiphon.providers.engine.attempt import UpstreamRequest
from antiphon.providers.engine.reply import UpstreamFailed, WholeReply
from antiphon.providers.presets import Preset
from antiphon.providers.routes import Target
from antiphon.wire import formats
from antiphon.wire.request import ModelRequest, ToolDefinition
from antiphon_gateway.generate.server_state import expand_state
from antiphon_gateway.runtime.body_fields import GEMINI_WRAPPER, read_object, rename_gemini_models, replace_model
from antiphon_gateway.runtime.metered import MeteredRequest, count_copy
from antiphon_gateway.state.continuing import STATE_FIELDS
from antiphon_gateway.threads import COUNTING, STATE

ESTIMATE_HEADER = "x-antiphon-estimate"
"""The header of an estimated count."""

_MESSAGE_TOKENS = 4
"""Tokens of a message beside its text: the role, the start and the end."""
_COUNTS = {"openai-responses": "/input_tokens", "anthropic": "/count_tokens"}
"""What follows the path of a generation where a provider counts its tokens."""

_counter = CounterChain()


class TokenCount(MeteredRequest):
    """Counts the tokens of a request: by a provider that counts in the client's format, else by an estimate."""

    operation = "count_tokens"
    _urls: dict[Target, str]
    """Where the targets that count in the client's format do it."""

    async def answer(self) -> Response:
        """The count."""
        format_name = self.endpoint.format
        count_copy(self.request.hold, len(self.request.body))
        counted = read_count_request(format_name, self.request.body)
        targets = self.targets(self.endpoint.resource or counted.model)
        expanded = await STATE.run(expand_state, self, counted) if format_name in STATE_FIELDS else counted
        self._urls = {target: url for target in targets if (url := self._url(target)) is not None}
        if targets[0] in self._urls and expanded is counted:
            try:
                reply = await self.call(list(self._urls), self._prepare).reply()
            except UpstreamFailed as failure:
                if format_name not in STATE_FIELDS or failure.error.kind != "not_found":
                    raise  # other hosts of the client's format may not count
            else:
                assert isinstance(reply, WholeReply), "no stream was requested"
                return Response.json(reply.body)
        return await COUNTING.run(count_here, format_name, expanded)

    async def _prepare(self, target: Target) -> UpstreamRequest:
        record, provider, body = self.record, self.loaded.providers[target.provider], self.request.body
        record.provider, record.model, record.upstream_format = target.provider, target.model, provider.format
        count_copy(self.request.hold, len(body))
        sent = (rename_gemini_models if self.endpoint.format == "gemini" else replace_model)(body, target.model)
        url, headers = self._urls[target], record.trace_headers
        return UpstreamRequest(provider, target.model, url, [sent], headers, streams=False)

    def _url(self, target: Target) -> str | None:
        provider = self.loaded.providers[target.provider]
        if provider.format != self.endpoint.format:
            return None
        return count_url(provider.preset, target.model)


def count_here(format_name: str, request: ModelRequest) -> Response:
    """The count of a request, in the shape of `count_tokens` (anthropic), `countTokens` (gemini) or `input_tokens`."""
    tokens = request_tokens(request)
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
    wrapped = fields.get(GEMINI_WRAPPER)
    if wrapped is not None and not isinstance(wrapped, dict):
        raise WireError(f"{GEMINI_WRAPPER}: expected an object, got {type(wrapped).__name__}")
    return formats[format_name].read_request(fields if wrapped is None else wrapped)


def request_tokens(request: ModelRequest) -> int:
    """The approximate number of tokens of a request."""
    parts = [part for message in request.messages for part in message.parts]
    parts += [_tool_text(tool) for tool in request.tools]
    if request.output_format is not None and request.output_format.schema is not None:
        parts.append(_json_text(request.output_format.schema))
    prompt = RenderedContextEntry(ContextEntryRole.MODEL_INPUT, tuple(parts))
    return _counter.count(prompt) + _MESSAGE_TOKENS * (len(request.messages) + len(request.tools))


def count_url(preset: Preset, model: str) -> str | None:
    """The URL at which a provider counts tokens of `model`; None if it does not."""
    if preset.format == "gemini":
        return preset.verb("countTokens").url_for(model)
    counts = _COUNTS.get(preset.format)
    if counts is None or preset.serves_only_generation:
        return None
    return preset.at_path(preset.path + counts).url_for(model)


def _tool_text(tool: ToolDefinition | Native) -> Text:
    if isinstance(tool, Native):
        return _json_text(tool.data)
    return Text("\n".join((tool.name, tool.description or "", _json_text(tool.parameters or {}).text)))


def _json_text(value: Any) -> Text:
    return Text(msgspec.json.encode(value).decode())
