"""`TargetedRequest`: its body is prepared for one target after the other: unchanged, renamed, repaired or translated.

Where the target speaks the client's format and nothing had to be repaired, the body is sent byte for byte, except for the
model's name and the request for usage. Otherwise it is encoded in the target's format, with a list of losses. A
`PreparedRequest` is the only thing that is passed on: it is sent as it is, and says how its answer is read. The next target with
the same model, and a host that takes the same bodies, gets it again.

A body that may be sent unchanged is scanned, not read (`outline`). Any other is read once (`parsed_request`), and again only
where it was dropped meanwhile. Edits decode only the outermost object. For a client with a list of models or a budget that object
is always written again, with each key once: an upstream that takes the first of two equal keys must not find another model than
the one that was checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

import msgspec
from msgspec import field, structs

from antiphon.errors import UnknownResponse
from antiphon.http.body import Hold
from antiphon.parts import Audio, Document, Image, Text, ToolCallRequest, ToolCallResult
from antiphon.providers.engine.attempt import UpstreamRequest, whole_reader
from antiphon.providers.engine.provider import Provider
from antiphon.providers.engine.reply import UpstreamFailed
from antiphon.providers.routes import Target
from antiphon.repair import add_system_message, declare_called_tools, repair
from antiphon.repair.action import Action
from antiphon.repair.repairer import is_legal
from antiphon.wire import Format
from antiphon.wire.capabilities import CapabilityOverride, CapabilityTable, facts_in_refusal
from antiphon.wire.inbound import COMPLETIONS, client_formats
from antiphon.wire.loss import Loss
from antiphon.wire.openai_chat.dialects import UNKNOWN_HOST
from antiphon.wire.output import ProviderError
from antiphon.wire.request import Message, ModelRequest, ToolDefinition, server_state
from antiphon.wire.tools.call_restorer import must_restore_calls
from antiphon_gateway.errors import RequestRefused
from antiphon_gateway.generate.server_state import check_server_state, expand_state
from antiphon_gateway.generate.volatile_lines import normalise_lines
from antiphon_gateway.observe.record import CacheCheck, CacheWatch
from antiphon_gateway.runtime.body_fields import (
    INCLUDE_USAGE,
    replace_model,
    stream_options,
    top_level_fields,
    with_stream_requested,
    with_usage_requested,
)
from antiphon_gateway.runtime.media import MediaKinds
from antiphon_gateway.runtime.metered import MeteredRequest, count_copy
from antiphon_gateway.state.background import BackgroundAnswer
from antiphon_gateway.state.continuing import STATE_FIELDS, to_provider_error
from antiphon_gateway.threads import STATE

_REPAIRED_ADVISORIES = frozenset({"OR-21", "AN-31"})
"""Rules that providers do not always enforce, and whose violation is repaired once they have."""
_FORWARDED_HEADERS = frozenset({"anthropic-version", "anthropic-beta", "openai-beta"})
"""Headers of a client that are sent to an upstream of the same format: they affect how the body is read."""
_INLINE_MEDIA: Mapping[str, MediaKinds] = {
    "gemini": (Image, Audio, Document),
    "gemini-interactions": (Image, Audio, Document),
    "openai-chat": (Audio, Document),
}
"""What providers of a format accept only inline; those of others take all but sound at a URL."""
_UNPROCESSABLE = 422
USAGE_ON_REQUEST = ("openai-chat", COMPLETIONS)
"""Formats of clients whose streams report usage only on request."""


class PreparedRequest(UpstreamRequest, kw_only=True):
    """A request prepared for one target, which may be sent several times."""

    is_unchanged: bool = False
    repairs: list[Action] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    hides_usage: bool = False
    """Whether the stream reports usage that the client did not request."""
    tools: tuple[ToolDefinition, ...] = ()
    """The tools whose calls are read from the text of the answer."""
    has_own_id: bool = False
    """Whether the answer gets an id of the gateway's own, because the upstream could not look it up for the client."""
    passes_answer: bool = False
    """Whether the client gets the bytes of the answer."""

    @property
    def answer_wire(self) -> Format:
        """The format of the answer."""
        return self.answer_format or self.provider.wire


class TargetedRequest(MeteredRequest):
    """A request to models. `background` is the answer if it is generated in the background: it is kept here, whatever the format
    of the upstream is.

    `preferred` names the provider and the key that have what the request continues.
    """

    background: BackgroundAnswer | None = None
    body = b""
    """As it was read; empty once nothing is prepared again."""
    wire: Format
    """The client's format."""
    expanded: ModelRequest | None = None
    """The request with the earlier messages it names, where the gateway has them."""
    preferred = ("", "")
    hold: Hold | None = None
    """Counts the body, and again when it is parsed, and when it is written."""
    current: PreparedRequest
    """What was prepared last, for the target that is asked."""
    _parsed: ModelRequest | None = None
    _unread: ModelRequest | None = None  # the request without its content, which may be passed on as it is
    _last: PreparedRequest | None = None
    _is_rewritten = False
    _shown_facts: tuple[CapabilityOverride, ...] = ()
    _changed_lines: Sequence[Loss] = ()

    @property
    def parsed_request(self) -> ModelRequest:
        """The request in neutral form, parsed on first use. Raises `WireError`."""
        return self._parsed or self.parse()

    @property
    def answer_model(self) -> str:
        """The model that the answer names: the requested one, or after a fallback the one that answered."""
        return (self.current.model if self.record.fallbacks else "") or self.record.requested_model

    def outline(self, body: bytes) -> ModelRequest:
        """The request as far as its targets depend on it: without its content, if that may pass unread. Raises `WireError`."""
        loaded, format_name = self.loaded, self.endpoint.format
        self.body, self.hold, self.wire = body, self.request.hold, client_formats[format_name]
        if loaded.volatile_lines and not self.key.strict:  # a strict key's request is sent as it came, or not at all
            self.body, self._changed_lines = normalise_lines(body, format_name, loaded.volatile_lines)
        if format_name in loaded.formats:
            self._unread = self.wire.scan_request(self.body)
        return self._unread or self.parse()

    def parse(self) -> ModelRequest:
        """Read the request. Raises `WireError`."""
        request = self.wire.read_request(self.body)
        if self.endpoint.format == "gemini":
            request = structs.replace(request, model=self.endpoint.resource, stream=self.endpoint.stream)
        self._parsed = request
        count_copy(self.hold, len(self.body))
        return request

    def drop(self, *, keeps_body: bool = False) -> None:
        """What was parsed need not be kept; without `keeps_body` nothing is prepared again."""
        self._parsed = self._last = None
        if not keeps_body:
            self.body = b""

    async def prepare(self, target: Target) -> PreparedRequest:
        """The request for a target. Raises `UpstreamFailed` if that target cannot take it."""
        provider, last = self.loaded.providers[target.provider], self._last
        # The body of one whose answer has begun is dropped.
        if last is not None and last.body and self._takes_same(last, target, provider):
            return self._bound(structs.replace(last, provider=provider, body=[*last.body]))
        prepared = None if self._is_rewritten else self._try_pass_through(target, provider)
        if prepared is None:
            prepared = await self._rewrite(target, provider)
        self._last = prepared
        return self._bound(prepared)

    async def prepare_prefix(self, target: Target, text: str) -> PreparedRequest | None:
        """The request with the beginning of its answer, for a target that continues it; None if the model cannot."""
        provider = self.loaded.providers[target.provider]
        if not provider.continues_prefix(target.model):
            return None
        return self._bound(await self._rewrite(target, provider, prefix=text))

    async def prepare_again(self, target: Target, error: ProviderError) -> PreparedRequest | None:
        """The current request for the same target, without what that refused; None if nothing can be changed."""
        refused = self.current
        if error.kind != "invalid_request":
            return None
        if refused.hides_usage and _refuses_stream_options(error):
            self.loaded.without_stream_usage.add(refused.provider.name)
        elif self._learns_from(error) or self._should_rewrite(refused):
            self._is_rewritten = True
        else:
            return None
        self._last = None
        return await self.prepare(target)

    def _cache_check(self, prepared: PreparedRequest, watch: CacheWatch) -> CacheCheck:
        """The examination of a prepared request by the cache doctor."""
        return watch.check(
            prepared.body,
            prepared.provider.format,
            prepared.model,
            provider=prepared.provider.name,
            client=self.key.name,
            prices=self.loaded.prices,
        )

    @property
    def requests_usage(self) -> bool:
        """Whether a Chat Completions request asks for the usage of its stream."""
        return (self._stream_options or {}).get(INCLUDE_USAGE) is True

    @property
    def _is_continued(self) -> bool:
        """Whether the request names what is stored here; the upstream does not know the ids."""
        return self.expanded is not None and self.expanded is not self.parsed_request

    # What every prepared request gets.

    def _takes_same(self, last: PreparedRequest, target: Target, provider: Provider) -> bool:
        """Whether a target takes the body that was prepared for the one before."""
        before, name = last.provider, target.provider
        return (
            last.model == target.model
            and before.takes_same_bodies(provider)
            and (name in self.loaded.without_stream_usage) == (before.name in self.loaded.without_stream_usage)
            and self.loaded.embedded_calls.get(name) == self.loaded.embedded_calls.get(before.name)
            and self.loaded.provider_caching[name] == self.loaded.provider_caching[before.name]
        )

    def _bound(self, prepared: PreparedRequest) -> PreparedRequest:
        """The request with the URL and the headers of its target, and with how its answer is read.

        The record says whom it goes to, and what was changed in it. Raises `RequestRefused` for a strict key.
        """
        provider, model, record, headers = prepared.provider, prepared.model, self.record, self.request.headers
        streams = record.streams
        if self.loaded.embedded_calls:
            prepared.tools = self._tools_in_text(provider.name, model)
        if self.endpoint.format in STATE_FIELDS:
            is_known_here = self.background is not None or self.connection is not None or self._is_continued
            prepared.has_own_id = is_known_here or provider.format != self.endpoint.format
        if prepared.tools or prepared.has_own_id:
            prepared.passes_answer = False
        prepared.streams, prepared.holds = streams, provider.holds_streams
        if prepared.answer_format is None:
            prepared.url = provider.url_for(model, streams or prepared.assembles)
        else:
            prepared.url = provider.completions_url(model)
        if not streams and not prepared.assembles:
            prepared.read = whole_reader(prepared.answer_format or provider.wire, prepared.passes_answer)
        if provider.format == self.endpoint.format and not _FORWARDED_HEADERS.isdisjoint(headers):
            prepared.headers = {name: headers[name] for name in _FORWARDED_HEADERS & headers.keys()}
        self.current = prepared
        record.provider, record.model, record.upstream_format = provider.name, model, provider.format
        record.repairs, record.losses = prepared.repairs, [*self._changed_lines, *prepared.losses]
        if self.loaded.cache_watch is not None:
            record.cache = self._cache_check(prepared, self.loaded.cache_watch)
        if self.key.strict and (prepared.repairs or prepared.losses):
            raise _changes_refused(prepared)
        if record.trace_headers:
            prepared.headers = {**(prepared.headers or {}), **record.trace_headers}
        prepared.preferred_key = self.preferred[1] if provider.name == self.preferred[0] else ""
        return prepared

    def _tools_in_text(self, provider: str, model: str) -> tuple[ToolDefinition, ...]:
        """The tools whose calls are read from the text of the model's answer."""
        patterns = self.loaded.embedded_calls.get(provider, ())
        if not any(fnmatchcase(model, pattern) for pattern in patterns):
            return ()
        request = self.parsed_request
        if request.tool_choice is not None and request.tool_choice.mode == "none":
            return ()
        return tuple(tool for tool in request.tools if isinstance(tool, ToolDefinition))

    # A body that needs no encoding.

    def _try_pass_through(self, target: Target, provider: Provider) -> PreparedRequest | None:
        """The body as it came, if nothing has to be changed: its messages are text, calls and results in a legal order, and
        neither stored state nor a name in the URL belongs to it."""
        format_name = self.endpoint.format
        if provider.format != format_name or not provider.accepts_unchanged_bodies or self.endpoint.resource:
            return None
        request = self._unread or self.parsed_request
        if target.model != request.model or format_name in STATE_FIELDS:
            return None
        if self._unread is None:
            if not _has_only_text(request.messages):
                return None
            if self.loaded.config.gateway.repair and not is_legal(request.messages, provider.wire.spec.sequence_rule):
                return None
        return self._pass_through(target, provider, self.body)

    def _pass_through(self, target: Target, provider: Provider, body: bytes) -> PreparedRequest:
        """A body that needs no encoding. Where usage is recorded or limited, it is requested even if the client did not."""
        key, streams = self.key, self.record.streams
        if key.is_checked:
            body = msgspec.json.encode(top_level_fields(body))  # each key once: what was checked is what is sent
        assembles = provider.streams_only and not streams
        if assembles and provider.format != "gemini":  # its URL says it
            body = with_stream_requested(body)
        hides_usage = False
        if streams or assembles:
            is_metered = self.services.ledger is not None or key.is_metered
            hides_usage = (is_metered or assembles) and self._lacks_usage(provider)
            body = with_usage_requested(body, self._stream_options) if hides_usage else body
        return PreparedRequest(
            provider,
            target.model,
            "",
            [body],
            is_unchanged=True,
            passes_answer=not assembles,
            hides_usage=hides_usage,
            assembles=assembles,
        )

    def _lacks_usage(self, provider: Provider) -> bool:
        """Whether the usage of a stream is needed, is available, and was not requested by the client."""
        is_chat_stream = self.endpoint.format in USAGE_ON_REQUEST and provider.format == "openai-chat"
        if not is_chat_stream or not provider.reports_stream_usage or provider.name in self.loaded.without_stream_usage:
            return False
        return not self.requests_usage

    @cached_property
    def _stream_options(self) -> dict[str, Any] | None:
        """The `stream_options` of a Chat Completions request; None if it has none."""
        if self._unread is None:
            return stream_options(self.body)
        return (self._unread.native or {}).get(self.endpoint.format, {}).get("stream_options")

    def _original_body(self, request: ModelRequest, target: Target) -> bytes:
        """The client's own bytes, with the target's name for the model."""
        is_named_in_body = self.endpoint.format != "gemini" and target.model != request.model
        return replace_model(self.body, target.model) if is_named_in_body else self.body

    # A body that is repaired, or written in another format.

    async def _rewrite(self, target: Target, provider: Provider, *, prefix: str = "") -> PreparedRequest:
        """The body in the target's format, with a `prefix` as the beginning of the answer."""
        parsed_request, client_format = self.parsed_request, self.endpoint.format
        settings = self.loaded.config.gateway
        if client_format == COMPLETIONS and provider.has_completions(target.model):
            sent = self._pass_through(target, provider, self._original_body(parsed_request, target))
            sent.answer_format = client_formats[COMPLETIONS]
            return sent
        same_format = provider.format == client_format
        self._check_required(parsed_request)
        request = await self._with_state(parsed_request, provider)
        if prefix:
            request = structs.replace(request, messages=(*request.messages, Message("assistant", (Text(prefix),))))
        if not same_format:
            check_server_state(request, client_format, target)
        losses: list[Loss] = []
        if settings.fetch_media and not _has_only_text(request.messages):
            kinds = _INLINE_MEDIA.get(provider.format, (Audio,))
            request, losses = await self.services.media.inline_media(request, kinds, self.hold)
        repairs: list[Action] = []
        repaired = request
        if settings.repair:
            repaired, repairs = repair(request, provider.format, request_id=self.record.request_id, is_logged=False)
        options = self._wire_options(provider)
        may_pass = same_format and provider.accepts_unchanged_bodies and not self._is_rewritten and not prefix
        if may_pass and repaired is parsed_request:
            body = self._original_body(parsed_request, target)
            # made for one model and sent to another, which may refuse it
            if target.model == parsed_request.model or not self._breaks_rules(provider, body, target.model):
                return self._pass_through(target, provider, body)
        if not may_pass and settings.repair:
            repaired, declared = declare_called_tools(repaired, provider.format)
            repaired, added = add_system_message(repaired, provider.format, options.get("dialect"))
            repairs = [*repairs, *declared, *added]
        assembles = provider.streams_only and not self.record.streams
        named = structs.replace(repaired, model=target.model, stream=True if assembles else repaired.stream)
        if not same_format and provider.wire.spec.marked_messages:
            # a client of another API expects its prompts to be cached unasked; one of this API sets breakpoints itself
            caching = self.loaded.prompt_caching(parsed_request.model, provider.name)
            named = structs.replace(named, cache_prompt=caching)
        if not same_format and options.get("dialect") == "compatible":
            options = {**options, "dialect": UNKNOWN_HOST}
        data, lost = provider.wire.encode_request(named, **options)
        count_copy(self.hold, len(data))
        restores_calls = same_format and must_restore_calls(parsed_request, provider.format)
        return PreparedRequest(
            provider,
            target.model,
            "",
            [data],
            repairs=repairs,
            losses=losses + lost,
            hides_usage=same_format and (self.record.streams or assembles) and self._lacks_usage(provider),
            passes_answer=same_format and not restores_calls and not assembles,
            assembles=assembles,
        )

    def _check_required(self, request: ModelRequest) -> None:
        """Raises `UpstreamFailed` if the client's own API requires a field that is missing: no repair can know its value."""
        required = self.wire.spec.required
        is_complete = request.messages and (request.max_output_tokens is not None or "max_tokens" not in required)
        if is_complete or required <= top_level_fields(self.body).keys():
            return
        for violation in self.wire.check_request(self.body):
            if violation.path in required:
                is_named = violation.path in violation.message
                message = violation.message if is_named else f"{violation.path}: {violation.message}"
                raise UpstreamFailed(ProviderError(message, "invalid_request", 400, param=violation.path))

    async def _with_state(self, request: ModelRequest, provider: Provider) -> ModelRequest:
        """The request with the earlier messages that it names and the gateway has stored.

        Raises `UpstreamFailed` if they are not stored here, and not at the upstream either because it has another format.
        """
        if self.endpoint.format not in STATE_FIELDS:
            return request
        if self.expanded is not None:
            return self.expanded
        try:
            self.expanded = await STATE.run(expand_state, self, request)
        except UnknownResponse as unknown:
            if provider.format == self.endpoint.format and self.connection is None:
                return request  # the response may be stored at the upstream
            if unknown.param == "conversation":
                return request  # refused with advice, as everything that only the upstream can have
            error = structs.replace(to_provider_error(unknown), status=400)
        else:
            return self.expanded
        raise UpstreamFailed(error)

    # What a refusal shows.

    def _learns_from(self, error: ProviderError) -> bool:
        """Whether a refusal shows something new about the model; it is then written for a model like that."""
        shown = facts_in_refusal(error.message)
        if shown is None or shown in self._shown_facts or self.key.strict:
            return False
        self._shown_facts += (shown,)
        return True

    def _wire_options(self, provider: Provider) -> Mapping[str, Any]:
        """How bodies are written for a provider, with what its refusals have shown."""
        if not self._shown_facts:
            return provider.wire_options
        known: CapabilityTable | None = provider.wire_options.get("capabilities")
        overrides = () if known is None else known.overrides
        return {**provider.wire_options, "capabilities": CapabilityTable((*overrides, *self._shown_facts))}

    def _should_rewrite(self, refused: PreparedRequest) -> bool:
        """Whether a body that was passed through was refused for something that a repair fixes."""
        provider, model = refused.provider, refused.model
        return refused.is_unchanged and self._breaks_rules(provider, refused.body[0], model, is_refused=True)

    def _breaks_rules(self, provider: Provider, body: bytes, model: str, *, is_refused: bool = False) -> bool:
        """Whether a body violates rules of its API, and may be repaired."""
        if not self.loaded.config.gateway.repair or self.key.strict:
            return False
        if server_state(self.parsed_request, self.endpoint.format) is not None:
            return False  # what seems to be missing is at the server
        known: dict[str, Any] = {"capabilities": provider.wire_options.get("capabilities")}
        if provider.format == "gemini":  # elsewhere the body names it
            known["model"] = model
        found = provider.wire.check_request(body, advisories=is_refused, **known)
        return any(not rule.advisory or rule.rule in _REPAIRED_ADVISORIES for rule in found)


def _has_only_text(messages: Sequence[Message]) -> bool:
    """Whether messages have only text, calls, and results with text: no media to fetch, and no block of a format."""
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCallResult):
                if any(type(inner) is not Text for inner in part.content):
                    return False
            elif type(part) is not Text and type(part) is not ToolCallRequest:
                return False
    return True


def _changes_refused(prepared: PreparedRequest) -> RequestRefused:
    """The refusal for a strict key: what would have been changed, and was not."""
    what = [f"repair: {action}" for action in prepared.repairs] + [f"loss: {loss}" for loss in prepared.losses]
    message = f"strict key: the request would need changes: {'; '.join(what)}"
    return RequestRefused(ProviderError(message, "invalid_request", code="strict"), _UNPROCESSABLE)


def _refuses_stream_options(error: ProviderError) -> bool:
    """Whether a host cannot report the usage of a stream."""
    text = f"{error.param} {error.message}"
    return "stream_options" in text or "include_usage" in text
