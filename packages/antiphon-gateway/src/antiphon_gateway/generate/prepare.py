"""`RequestPreparer`: the body of a request for one target: unchanged, renamed, repaired or translated.

Where the target speaks the client's format and nothing had to be repaired, the body is sent byte for byte, except for the
model's name and the request for usage. Otherwise it is encoded in the target's format, with a list of losses.

A body that is passed through is only outlined (`Format.scan_request`); it is parsed when needed (`parsed_request`): because the
outline is not legal, the target has another format, or the first target failed. Edits decode only the outermost object. For a
client with a list of models or a budget that object is always written again, with each key once: an upstream that takes the first
of two equal keys must not find another model than the one that was checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from functools import cached_property, partial
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct, structs

from antiphon.errors import UnknownResponse, WireError
from antiphon.parts import Audio, Document, Image, Part, Text
from antiphon.providers.engine.attempt import UpstreamRequest
from antiphon.providers.engine.model_call import TargetCall
from antiphon.providers.engine.provider import Provider
from antiphon.providers.engine.reply import UpstreamFailed
from antiphon.providers.routes import Target
from antiphon.repair import add_system_message, declare_called_tools, repair
from antiphon.repair.action import Action
from antiphon.repair.sequence import is_legal
from antiphon.wire import Format, formats
from antiphon.wire.capabilities import CapabilityOverride, CapabilityTable
from antiphon.wire.capabilities.refusals import facts_in_refusal
from antiphon.wire.clients import COMPLETIONS, client_formats
from antiphon.wire.loss import Loss
from antiphon.wire.openai_chat.dialects import UNKNOWN_HOST
from antiphon.wire.output import ProviderError
from antiphon.wire.request import Message, ModelRequest, ToolDefinition, server_state
from antiphon.wire.tool_calls import must_restore_calls
from antiphon_gateway.generate.server_state import check_server_state, expand_state
from antiphon_gateway.generate.volatile_lines import normalise_lines
from antiphon_gateway.generate.whole_answers import read_passed_on, read_translated
from antiphon_gateway.observe.cache_record import CacheCheck, CacheWatch
from antiphon_gateway.runtime.context import RequestContext
from antiphon_gateway.runtime.offline import OfflineProvider
from antiphon_gateway.state.store import STATE_FIELDS, to_provider_error
from antiphon_gateway.threads import STATE

_REPAIRED_ADVISORIES = frozenset({"OR-21", "AN-31"})
"""Rules that providers do not always enforce, and whose violation is repaired once they have."""
_FORWARDED_HEADERS = frozenset({"anthropic-version", "anthropic-beta", "openai-beta"})
"""Headers of a client that are sent to an upstream of the same format: they affect how the body is read."""
_USAGE_ON_REQUEST = ("openai-chat", COMPLETIONS)
"""Formats of clients whose streams report usage only on request."""
AnyProvider: TypeAlias = Provider | OfflineProvider


class Prepared(Struct, frozen=True):
    """A request prepared for one target."""

    target: Target
    provider: AnyProvider
    body: list[bytes]
    same_format: bool
    is_unchanged: bool
    repairs: list[Action] = []
    losses: list[Loss] = []
    hides_usage: bool = False
    """Whether the stream reports usage that the client did not request."""
    tools: tuple[ToolDefinition, ...] = ()
    """The tools whose calls are read from the text of the answer; the answer is then never passed on as it came."""
    is_completion: bool = False
    """Whether it goes to the legacy `/completions` of the provider, which the client speaks too."""
    keeps_answer: bool = False
    """Whether the gateway keeps the answer itself, under an id of its own, although the upstream has the client's format."""
    restores_calls: bool = False
    """Whether calls may come back under another name, or with other arguments, than the client's tools have."""

    assembles: bool = False
    """Whether the provider only streams and the client does not: the answer is assembled."""

    @property
    def passes_answer(self) -> bool:
        """Whether the client gets the bytes of the answer."""
        return self.same_format and not (self.tools or self.keeps_answer or self.restores_calls or self.assembles)

    @property
    def answer_wire(self) -> Format:
        """The format of the answer."""
        return client_formats[COMPLETIONS] if self.is_completion else self.provider.wire

    def call(self, headers: dict[str, str], *, streams: bool) -> TargetCall:
        """The call that sends it."""
        provider, model = self.provider, self.target.model
        if self.is_completion and isinstance(provider, Provider):
            wire = self.answer_wire
            return UpstreamRequest(
                provider,
                model,
                provider.completions_url(model),
                self.body,
                headers,
                streams,
                self.assembles,
                provider.holds_streams,
                None if self.assembles else partial(read_passed_on, wire),
                answer_format=wire,
            )
        read = partial(read_passed_on if self.passes_answer else read_translated, provider.wire)
        if isinstance(provider, OfflineProvider):
            return provider.call(model, self.body, streams=streams, read=read)
        url = provider.url_for(model, streams or self.assembles)
        return UpstreamRequest(
            provider,
            model,
            url,
            self.body,
            headers,
            streams,
            self.assembles,
            provider.holds_streams,
            None if self.assembles else read,
        )


class RequestPreparer:
    """Prepares one request for its targets, one after the other."""

    expanded: ModelRequest | None = None
    """The request with the earlier messages it names, where the gateway has them."""
    _outline: ModelRequest | None = None
    _parsed: ModelRequest | None = None
    _is_rewritten = False
    _shown_facts: tuple[CapabilityOverride, ...] = ()

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._changed_lines: list[Loss] = []

    def scan(self) -> ModelRequest:
        """The outline of the request, or all of it if that is not enough. Raises `WireError`."""
        if self._context.loaded.volatile_lines:
            self._normalise_lines()
        if self._context.endpoint.format in self._context.loaded.formats:
            self._outline = formats[self._context.endpoint.format].scan_request(self._context.request.body)
        return self._outline or self.parsed_request

    @property
    def parsed_request(self) -> ModelRequest:
        """The request in neutral form, parsed on first use. Raises `WireError`."""
        if self._parsed is None:
            request = client_formats[self._context.endpoint.format].read_request(self._context.request.body)
            endpoint = self._context.endpoint
            if endpoint.format == "gemini":
                request = structs.replace(request, model=endpoint.resource, stream=endpoint.stream)
            self._parsed = request
        return self._parsed

    def drop(self) -> None:
        """Nothing is prepared again: the request need not be kept."""
        self._outline = self._parsed = None

    async def prepare(self, target: Target, *, streams: bool) -> Prepared:
        """The request for a target."""
        unchanged = None if self._is_rewritten else self._unchanged(target, streams)
        prepared = unchanged or await self._rewritten(target, streams)
        if self._changed_lines:
            prepared = structs.replace(prepared, losses=[*self._changed_lines, *prepared.losses])
        tools = self._tools_in_text(target) if self._context.loaded.embedded_calls else ()
        return structs.replace(prepared, tools=tools) if tools else prepared

    async def prepare_prefix(self, target: Target, text: str) -> Prepared | None:
        """The request with the beginning of its answer, for a target that continues it; None if the model cannot."""
        provider = self._context.loaded.providers[target.provider]
        if not isinstance(provider, Provider) or not provider.continues_prefix(target.model):
            return None
        request, was_rewritten = self.parsed_request, self._is_rewritten
        messages = (*request.messages, Message("assistant", (Text(text),)))
        self._parsed, self._is_rewritten = structs.replace(request, messages=messages), True
        try:
            return await self.prepare(target, streams=True)
        finally:
            self._parsed, self._is_rewritten = request, was_rewritten

    def _tools_in_text(self, target: Target) -> tuple[ToolDefinition, ...]:
        """The tools whose calls are read from the text of this target's answer."""
        patterns = self._context.loaded.embedded_calls.get(target.provider, ())
        if not any(fnmatchcase(target.model, pattern) for pattern in patterns):
            return ()
        request = self.parsed_request
        if request.tool_choice is not None and request.tool_choice.mode == "none":
            return ()
        return tuple(tool for tool in request.tools if isinstance(tool, ToolDefinition))

    async def prepare_again(self, prepared: Prepared, error: ProviderError, *, streams: bool) -> Prepared | None:
        """The same request for the same target, without what the target refused; None if nothing can be changed."""
        if prepared.hides_usage and _refuses_stream_options(error):
            self._context.loaded.without_stream_usage.add(prepared.provider.name)
        elif self._learns_from(error) or self._should_rewrite(prepared, error):
            self._is_rewritten = True
        else:
            return None
        return await self.prepare(prepared.target, streams=streams)

    def cache_check(self, prepared: Prepared, watch: CacheWatch) -> CacheCheck:
        """The examination of a prepared request by the cache doctor."""
        context, target = self._context, prepared.target
        return watch.check(
            prepared.body,
            prepared.provider.format,
            target.model,
            provider=target.provider,
            client=context.key.name,
            prices=context.loaded.prices,
        )

    def _normalise_lines(self) -> None:
        """Make lines stable that break the prompt cache; a strict key's request is sent as it came, or not at all."""
        context = self._context
        if not context.key.strict:
            request = context.request
            request.body, self._changed_lines = normalise_lines(
                request.body, context.endpoint.format, context.loaded.volatile_lines
            )

    def forwarded_headers(self, provider: AnyProvider) -> dict[str, str]:
        """The headers of the client that the provider needs."""
        headers = self._context.request.headers
        if provider.format != self._context.endpoint.format or _FORWARDED_HEADERS.isdisjoint(headers):
            return {}
        return {name: headers[name] for name in _FORWARDED_HEADERS & headers.keys()}

    def _unchanged(self, target: Target, streams: bool) -> Prepared | None:
        """The body as it came, if its outline shows that nothing has to be changed."""
        outline, provider = self._outline, self._context.loaded.providers[target.provider]
        if outline is None or target.model != outline.model or provider.format != self._context.endpoint.format:
            return None
        if not provider.accepts_unchanged_bodies:
            return None
        if self._context.loaded.config.gateway.repair and not is_legal(
            outline.messages, provider.wire.module.sequence_rule
        ):
            return None
        return self._as_sent(target, provider, self._context.request.body, streams)

    def _as_sent(self, target: Target, provider: AnyProvider, body: bytes, streams: bool) -> Prepared:
        """A body that needs no encoding. Where usage is recorded or limited, it is requested even if the client did not."""
        context = self._context
        if context.key.is_checked:
            body = msgspec.json.encode(top_level_fields(body))  # each key once: what was checked is what is sent
        assembles = provider.streams_only and not streams
        if assembles and provider.format != "gemini":  # its URL says it
            body = with_stream_requested(body)
        is_metered = context.services.ledger is not None or context.key.is_metered
        hides_usage = (is_metered or assembles) and self._lacks_usage(provider, streams or assembles)
        body = with_usage_requested(body, self._stream_options) if hides_usage else body
        return Prepared(target, provider, [body], True, True, hides_usage=hides_usage, assembles=assembles)

    def _lacks_usage(self, provider: AnyProvider, streams: bool) -> bool:
        """Whether the usage of a stream is needed, is available, and was not requested by the client."""
        context = self._context
        is_chat_stream = streams and context.endpoint.format in _USAGE_ON_REQUEST and provider.format == "openai-chat"
        if (
            not is_chat_stream
            or not provider.reports_stream_usage
            or provider.name in context.loaded.without_stream_usage
        ):
            return False
        return not self.requests_usage

    @property
    def requests_usage(self) -> bool:
        """Whether a Chat Completions request asks for the usage of its stream."""
        return (self._stream_options or {}).get(_INCLUDE) is True

    @cached_property
    def _stream_options(self) -> dict[str, Any] | None:
        """The `stream_options` of a Chat Completions request; None if it has none."""
        if self._outline is None:
            return stream_options(self._context.request.body)
        given = (self._outline.native or {}).get("openai-chat", {})
        return _as_options(given[_OPTIONS]) if _OPTIONS in given else None

    async def _rewritten(self, target: Target, streams: bool) -> Prepared:
        parsed_request, provider = self.parsed_request, self._context.loaded.providers[target.provider]
        client_format = self._context.endpoint.format
        if client_format == COMPLETIONS and isinstance(provider, Provider) and provider.has_completions(target.model):
            sent = self._as_sent(target, provider, self._original_body(parsed_request, target), streams)
            return structs.replace(sent, is_completion=True)
        same_format = provider.format == client_format
        self._check_required(parsed_request)
        request = await self._with_state(parsed_request, provider)
        if not same_format:
            check_server_state(request, client_format, target)
        losses: list[Loss] = []
        if self._context.loaded.config.gateway.fetch_media:
            request, losses = await self._context.services.media.inline_media(request, needs_inline_media(provider))
        repairs: list[Action] = []
        repaired = request
        if self._context.loaded.config.gateway.repair:
            request_id = self._context.request.request_id
            repaired, repairs = repair(request, provider.format, request_id=request_id, is_logged=False)
        options = self._wire_options(provider)
        may_pass = same_format and provider.accepts_unchanged_bodies and not self._is_rewritten
        if may_pass and repaired is parsed_request:
            body = self._original_body(parsed_request, target)
            # made for one model and sent to another, which may refuse it
            if target.model == parsed_request.model or not self._breaks_rules(provider, body, target.model):
                return self._as_sent(target, provider, body, streams)
        if not may_pass and self._context.loaded.config.gateway.repair:
            repaired, declared = declare_called_tools(repaired, provider.format)
            repaired, added = add_system_message(repaired, provider.format, options.get("dialect"))
            repairs = [*repairs, *declared, *added]
        assembles = provider.streams_only and not streams
        named = structs.replace(repaired, model=target.model, stream=True if assembles else repaired.stream)
        if not same_format and provider.wire.module.marked_messages:
            # a client of another API expects its prompts to be cached without a word; one of this API sets breakpoints itself
            caching = self._context.loaded.prompt_caching(parsed_request.model, target.provider)
            named = structs.replace(named, cache_prompt=caching)
        if not same_format and options.get("dialect") == "compatible":
            options = {**options, "dialect": UNKNOWN_HOST}
        data, lost = provider.wire.encode_request(named, **options)
        hides_usage = same_format and self._lacks_usage(provider, streams or assembles)
        restores_calls = same_format and must_restore_calls(parsed_request, provider.format)
        return Prepared(
            target,
            provider,
            [data],
            same_format,
            False,
            repairs,
            losses + lost,
            hides_usage,
            restores_calls=restores_calls,
            assembles=assembles,
        )

    def _check_required(self, request: ModelRequest) -> None:
        """Raises `UpstreamFailed` if the client's own API requires a field that is missing: no repair can know its value."""
        wire, body = client_formats[self._context.endpoint.format], self._context.request.body
        required = wire.module.required
        is_complete = request.messages and (request.max_output_tokens is not None or "max_tokens" not in required)
        if is_complete or required <= top_level_fields(body).keys():
            return
        for violation in wire.check_request(body):
            if violation.path in required:
                is_named = violation.path in violation.message
                message = violation.message if is_named else f"{violation.path}: {violation.message}"
                raise UpstreamFailed(ProviderError(message, "invalid_request", 400, param=violation.path))

    async def _with_state(self, request: ModelRequest, provider: AnyProvider) -> ModelRequest:
        """The request with the earlier messages that it names and the gateway has stored.

        Raises `UpstreamFailed` if they are not stored here, and not at the upstream either because it has another format.
        """
        if self._context.endpoint.format not in STATE_FIELDS:
            return request
        try:
            self.expanded = await STATE.run(expand_state, self._context, request)
        except UnknownResponse as unknown:
            if provider.format == self._context.endpoint.format and self._context.connection is None:
                return request  # the response may be stored at the upstream
            if unknown.param == "conversation":
                return request  # refused with advice, as everything that only the upstream can have
            error = structs.replace(to_provider_error(unknown), status=400)
        else:
            return self.expanded
        raise UpstreamFailed(error)

    def _original_body(self, request: ModelRequest, target: Target) -> bytes:
        """The client's own bytes, with the target's name for the model."""
        body = self._context.request.body
        is_named_in_body = self._context.endpoint.format != "gemini" and target.model != request.model
        return replace_model(body, target.model) if is_named_in_body else body

    def _learns_from(self, error: ProviderError) -> bool:
        """Whether a refusal shows something new about the model; it is then written for a model like that."""
        shown = facts_in_refusal(error.message) if error.kind == "invalid_request" else None
        if shown is None or shown in self._shown_facts or self._context.key.strict:
            return False
        self._shown_facts += (shown,)
        return True

    def _wire_options(self, provider: AnyProvider) -> Mapping[str, Any]:
        """How bodies are written for a provider, with what its refusals have shown."""
        if not self._shown_facts:
            return provider.wire_options
        known: CapabilityTable | None = provider.wire_options.get("capabilities")
        overrides = () if known is None else known.overrides
        return {**provider.wire_options, "capabilities": CapabilityTable((*overrides, *self._shown_facts))}

    def _should_rewrite(self, prepared: Prepared, error: ProviderError) -> bool:
        """Whether a body that was passed through was refused for something that a repair fixes."""
        if not prepared.is_unchanged or error.kind != "invalid_request":
            return False
        return self._breaks_rules(prepared.provider, prepared.body[0], prepared.target.model, is_refused=True)

    def _breaks_rules(self, provider: AnyProvider, body: bytes, model: str, *, is_refused: bool = False) -> bool:
        """Whether a body violates rules of its API, and may be repaired."""
        context = self._context
        if not context.loaded.config.gateway.repair or context.key.strict:
            return False
        if server_state(self.parsed_request, context.endpoint.format) is not None:
            return False  # what seems to be missing is at the server
        known: dict[str, Any] = {"capabilities": provider.wire_options.get("capabilities")}
        if provider.format == "gemini":  # elsewhere the body names it
            known["model"] = model
        found = provider.wire.check_request(body, advisories=is_refused, **known)
        return any(not rule.advisory or rule.rule in _REPAIRED_ADVISORIES for rule in found)


def needs_inline_media(provider: AnyProvider) -> Callable[[Part], bool]:
    """Which media the provider accepts only inline."""
    if provider.format in ("gemini", "gemini-interactions"):
        return lambda part: isinstance(part, Image | Audio | Document)
    if provider.format == "openai-chat":
        return lambda part: isinstance(part, Audio | Document)
    return lambda part: isinstance(part, Audio)


def _refuses_stream_options(error: ProviderError) -> bool:
    """Whether a host cannot report the usage of a stream."""
    text = f"{error.param} {error.message}"
    return error.kind == "invalid_request" and ("stream_options" in text or "include_usage" in text)


_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read_model_name(body: bytes) -> str:
    """The model that a body names."""
    model = top_level_fields(body).get("model")
    name = msgspec.json.decode(model) if model is not None else None
    if not isinstance(name, str) or not name:
        raise WireError("model: you must provide a model parameter (a string)")
    return name


def replace_model(body: bytes, model: str) -> bytes:
    """The same body with another model."""
    fields = top_level_fields(body)
    name = "agent" if "agent" in fields and "model" not in fields else "model"  # Interactions have agents too
    fields[name] = msgspec.Raw(msgspec.json.encode(model))
    return msgspec.json.encode(fields)


def with_model(body: bytes, model: str) -> bytes:
    """The same body with that model; unchanged if it names it already."""
    named = top_level_fields(body).get("model")
    return body if named is not None and msgspec.json.decode(named) == model else replace_model(body, model)


def top_level_fields(body: bytes) -> dict[str, msgspec.Raw]:
    """The outermost object of a body, its values as raw JSON. Raises `WireError`."""
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"the body is not a JSON object: {error}") from error


_OPTIONS = "stream_options"
_INCLUDE = "include_usage"
_REQUESTED = b'{"stream_options":{"include_usage":true},'


def stream_options(body: bytes) -> dict[str, Any] | None:
    """The `stream_options` of a Chat Completions body; None if it has none. Raises `WireError`."""
    if _OPTIONS.encode() not in body:  # decoding a long body costs more than all else
        return None
    fields = top_level_fields(body)
    return _as_options(msgspec.json.decode(fields[_OPTIONS])) if _OPTIONS in fields else None


def with_stream_requested(body: bytes) -> bytes:
    """The same body, which asks for a stream."""
    return msgspec.json.encode({**top_level_fields(body), "stream": True})


def with_usage_requested(body: bytes, options: dict[str, Any] | None) -> bytes:
    """The same body, which has these `stream_options`, with usage requested."""
    begin = body.find(b"{")
    if options is None and begin >= 0:
        return body[:begin] + _REQUESTED + body[begin + 1 :]
    fields = top_level_fields(body)
    fields[_OPTIONS] = msgspec.Raw(msgspec.json.encode({**(options or {}), _INCLUDE: True}))
    return msgspec.json.encode(fields)


def _as_options(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
