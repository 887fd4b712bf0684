"""Counting tokens: Anthropic's `count_tokens` and Gemini's `countTokens`.

An upstream that speaks the client's format counts for itself: `count_address` says where to ask, `counted_body` what to send.
For any other the count is made here, over everything the request would put before the model: the messages, the tools, the shape
of the answer. It is an estimate (of another vendor's tokens, by a tokenizer that is not theirs), and the answer says so in a
header. The tokenizer takes its time over megabytes: an event loop should have it done in a thread.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import msgspec
from msgspec import Struct, structs

from antiphon.context.tokens import CounterChain, LocalTokenizer
from antiphon.errors import WireError
from antiphon.gateway.context import Asked
from antiphon.gateway.endpoints.models import (
    allowed_targets,
    model_not_found,
)
from antiphon.gateway.generate.offline import OfflineUpstream
from antiphon.gateway.generate.prepare import with_model
from antiphon.gateway.generate.upstream import Upstream, UpstreamFailed, WholeReply
from antiphon.gateway.http.errors import passed_on
from antiphon.gateway.http.messages import Answer
from antiphon.history import ContextEntryRole
from antiphon.parts import Native, Part, Text, ToolCallRequest
from antiphon.providers.presets import Preset
from antiphon.wire import formats
from antiphon.wire.request import ModelRequest, ToolDefinition


async def tokens_counted(asked: Asked) -> Answer:
    """How many tokens a request takes: asked of a provider that counts in the client's format, else counted here."""
    request, door = asked.request, asked.door
    model = door.name or read_counted(door.format, request.body).model
    found = _first_target(asked, model)
    if found is None:
        return model_not_found(asked, model)
    upstream, name = found
    if isinstance(upstream, Upstream) and upstream.format == door.format:
        address = count_address(upstream.preset, upstream.base_url, name, upstream.api_version)
        if address is not None:
            return await _passed_through(asked, upstream, name, counted_body(door.format, request.body, name), address)
    return await asyncio.to_thread(count_here, door.format, request.body)


async def _passed_through(asked: Asked, upstream: Upstream, model: str, body: bytes, address: str) -> Answer:
    try:
        reply = await upstream.ask(model, [body], streams=False, headers={}, attempts=[], address=address)
    except UpstreamFailed as failure:
        return passed_on(asked.door.format, failure.error, upstream.name)
    assert isinstance(reply, WholeReply), "no stream was asked for"
    return Answer.json(reply.body)


def _first_target(asked: Asked, model: str) -> tuple[Upstream | OfflineUpstream, str] | None:
    targets = allowed_targets(asked, model)
    return (asked.running.upstreams[targets[0].provider], targets[0].model) if targets else None


ESTIMATE = "x-antiphon-estimate"
"""The header of a count that was made here."""

_MESSAGE_TOKENS = 4
"""What a message costs beside its words: who speaks, where it begins and ends."""
_WRAPPED = "generateContentRequest"
_GENERATES = re.compile(r":(?:streamG|g)enerateContent(?:\?alt=sse)?")

_counter = CounterChain([LocalTokenizer()])


class _Prompt(Struct, frozen=True):
    """All that a request puts before the model, as the one entry a counter reads."""

    content: tuple[Part, ...]
    role: ContextEntryRole = ContextEntryRole.MODEL_INPUT
    tool_calls: tuple[ToolCallRequest, ...] = ()
    live_screen: str | None = None


def count_here(format_name: str, body: bytes) -> Answer:
    """The count of a body of `count_tokens` (anthropic) or `countTokens` (gemini), in the client's shape."""
    tokens = request_tokens(read_counted(format_name, body))
    if format_name == "gemini":
        details = [{"modality": "TEXT", "tokenCount": tokens}]
        return Answer.json({"totalTokens": tokens, "promptTokensDetails": details}, headers={ESTIMATE: "1"})
    return Answer.json({"input_tokens": tokens}, headers={ESTIMATE: "1"})


def read_counted(format_name: str, body: bytes) -> ModelRequest:
    """The request whose tokens are asked for. Gemini's may be wrapped in another."""
    if format_name != "gemini":
        return formats[format_name].read_request(body)
    fields = _object(body)
    wrapped = fields.get(_WRAPPED)
    if wrapped is None:
        return formats[format_name].read_request(fields)
    if not isinstance(wrapped, dict):
        raise WireError(f"{_WRAPPED}: expected an object, got {type(wrapped).__name__}")
    return formats[format_name].read_request(wrapped)


def request_tokens(request: ModelRequest) -> int:
    """About how many tokens a request takes."""
    parts = [part for message in request.messages for part in message.parts]
    parts += [_tool_words(tool) for tool in request.tools]
    if request.output_format is not None and request.output_format.schema is not None:
        parts.append(_words(request.output_format.schema))
    return _counter.count(_Prompt(tuple(parts))) + _MESSAGE_TOKENS * (len(request.messages) + len(request.tools))


def counted_body(format_name: str, body: bytes, model: str) -> bytes:
    """What to send to an upstream of the same format that calls the model `model`."""
    if format_name != "gemini":
        return with_model(body, model)
    fields = _object(body)
    wrapped = fields.get(_WRAPPED)
    if not isinstance(wrapped, dict) or "model" not in wrapped:
        return body  # the name is in the address alone
    return msgspec.json.encode({**fields, _WRAPPED: {**wrapped, "model": f"models/{model.removeprefix('models/')}"}})


def count_address(preset: Preset, base_url: str, model: str, api_version: str = "") -> str | None:
    """Where a provider counts the tokens of `model`; None if it does not."""
    if preset.format == "anthropic":
        counting = structs.replace(preset, path=f"{preset.path}/count_tokens", paths=())
    elif preset.format == "gemini":
        counting = structs.replace(preset, path=_GENERATES.sub(":countTokens", preset.path), paths=())
    else:
        return None
    return counting.url_for(base_url, model, api_version)


def _tool_words(tool: ToolDefinition | Native) -> Text:
    if isinstance(tool, Native):
        return _words(tool.data)
    return Text("\n".join((tool.name, tool.description or "", _words(tool.parameters or {}).text)))


def _words(value: Any) -> Text:
    return Text(msgspec.json.encode(value).decode())


def _object(body: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"the body is no JSON object: {error}") from error
