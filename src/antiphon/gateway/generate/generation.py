"""`Generation`: one generation request, from the client's bytes to the client's bytes.

    read -> route -> repair -> encode for the target -> call -> encode in the client's format

Repair happens here, once, and nowhere downstream (seed 001). Where the target speaks the client's format and nothing had to be
repaired, the body is sent as it came except for the model's name; otherwise it is encoded in the target's format, with a list
of losses. Targets are tried in order: a failure before any output was shown moves to the next target, if that may help.

A body that is passed through is only outlined (`Format.scan_request`); it is parsed when needed (`parsed_request`): because the
outline is not legal, the target has another format, or the first target failed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct, structs

from antiphon.errors import AntiphonError, InvalidModelName, RoutingError, UnknownResponse, WireError
from antiphon.gateway.context import RequestContext
from antiphon.gateway.endpoints.models import unknown_model_error, visible_models
from antiphon.gateway.endpoints.response_store import should_store, to_provider_error
from antiphon.gateway.generate.charging import prompt_estimate
from antiphon.gateway.generate.encoders import (
    JsonArrayEncoder,
    PassThroughEncoder,
    RecordingEncoder,
    StreamEncoder,
    TranslatingEncoder,
    UsageHidingEncoder,
)
from antiphon.gateway.generate.offline import OfflineUpstream
from antiphon.gateway.generate.prepare import replace_model, requests_usage, with_usage_requested
from antiphon.gateway.generate.relay import relay
from antiphon.gateway.generate.upstream import StreamReply, Upstream, UpstreamFailed, WholeReply
from antiphon.gateway.generate.usage_scanner import UsageScanner
from antiphon.gateway.http.errors import error_response, provider_error_response
from antiphon.gateway.http.messages import Response, header_text
from antiphon.gateway.observe.request_trace import RequestTrace
from antiphon.gateway.threads import run_in_thread
from antiphon.history.ids import new_id
from antiphon.parts import Audio, Document, Image, Part
from antiphon.providers.model_name import check_model_name
from antiphon.providers.retry import fallback_targets
from antiphon.providers.routes import Target
from antiphon.repair import repair
from antiphon.repair.action import Action
from antiphon.repair.sequence import is_legal
from antiphon.wire import formats
from antiphon.wire.delta import is_visible
from antiphon.wire.loss import Loss
from antiphon.wire.output import NOT_AN_ANSWER, ModelOutput, ProviderError
from antiphon.wire.request import ModelRequest
from antiphon.wire.tool_calls import CallRestorer

_FORWARDED_HEADERS = frozenset({"anthropic-version", "anthropic-beta", "openai-beta"})
"""Headers of a client that are sent to an upstream of the same format: they affect how the body is read."""
_STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}
_ARRAY_HEADERS = {**_STREAM_HEADERS, "content-type": "application/json; charset=utf-8"}
_UNPROCESSABLE = 422
_MAX_HEADER_CHARS = 900
_RESPONSES = "openai-responses"

logger = logging.getLogger("antiphon.gateway")

AnyUpstream: TypeAlias = Upstream | OfflineUpstream


class _ResponseId(Struct):
    id: str


class Prepared(Struct, frozen=True):
    """A request prepared for one target."""

    target: Target
    upstream: AnyUpstream
    body: list[bytes]
    same_format: bool
    unchanged: bool
    repairs: list[Action]
    losses: list[Loss]
    hides_usage: bool = False
    """Whether the stream reports usage that the client did not request."""


class Generation:
    """One generation request. `on_finish` gets its trace at the end."""

    def __init__(self, context: RequestContext, on_finish: Callable[[RequestTrace, RequestContext], None]) -> None:
        self._context = context
        self._loaded = context.loaded
        self._services = context.services
        self._request = request = context.request
        self._endpoint = endpoint = context.endpoint
        self._key = key = context.key
        self._on_finish = on_finish
        self._wire = formats[endpoint.format]
        self._outline: ModelRequest | None = None
        self._parsed: ModelRequest | None = None
        self._is_metered = key.tokens_per_minute is not None
        self._may_ask_for_usage = True
        self._trace = RequestTrace(
            request_id=request.request_id,
            client_format=endpoint.format,
            key=key.name,
            is_metered=self._is_metered,
            prompt_estimate=prompt_estimate(request.body) if self._is_metered else 0,
        )

    async def respond(self) -> Response:
        """The response for the client."""
        try:
            response = await self._route()
        except BaseException as error:
            self._finish(self._trace.status_after(error, self._request.deadline))
            raise
        if isinstance(response.body, bytes):
            self._finish(response.status)
        return response

    async def _route(self) -> Response:
        trace = self._trace
        try:
            if self._endpoint.format in self._loaded.formats:
                self._outline = self._wire.scan_request(self._request.body)
            seen = self._outline or self.parsed_request
            model = seen.model
            trace.streams = bool(seen.stream)
            check_model_name(model)
            trace.requested_model = model
            if not model:
                return self._error(ProviderError("the request has no model", "invalid_request", param="model"))
            if not self._key.may_use(model):
                allowed = ", ".join(self._key.models)
                return self._error(
                    ProviderError(f"this key may not use model {model!r}; allowed: {allowed}", "permission")
                )
            return await self._call_targets(self._loaded.resolve(model))
        except WireError as error:
            return self._error(ProviderError(str(error), "invalid_request"))
        except InvalidModelName as error:
            return self._error(ProviderError(str(error), "invalid_request", param="model"))
        except RoutingError:
            listed = visible_models(self._loaded.routes, self._key.may_use)
            return self._error(unknown_model_error(trace.requested_model, listed))
        except UnknownResponse as unknown:
            return self._error(to_provider_error(unknown))

    @property
    def parsed_request(self) -> ModelRequest:
        """The request in neutral form, parsed on first use. Raises `WireError`."""
        if self._parsed is None:
            request = self._wire.read_request(self._request.body)
            endpoint = self._endpoint
            if endpoint.format == "gemini":
                request = structs.replace(request, model=endpoint.resource, stream=endpoint.stream)
            self._parsed = request
        return self._parsed

    async def _call_targets(self, targets: list[Target]) -> Response:
        """Call the targets in order until one answers."""
        trace = self._trace
        is_rewritten = False
        tried = targets
        while True:
            target, *others = targets
            prepared = (None if is_rewritten else self._prepare_unchanged(target)) or await self._prepare_rewritten(
                target, is_rewritten=is_rewritten
            )
            trace.provider, trace.model = target.provider, target.model
            trace.upstream_format = prepared.upstream.format
            trace.repairs, trace.losses = prepared.repairs, prepared.losses
            if self._key.strict and (prepared.repairs or prepared.losses):
                return self._strict_refusal(prepared)
            try:
                began = time.monotonic()
                try:
                    reply = await prepared.upstream.ask(
                        target.model,
                        prepared.body,
                        streams=trace.streams,
                        headers=self._forwarded_headers(prepared.upstream),
                        attempts=trace.attempts,
                    )
                finally:  # from here on it is our own time
                    trace.waiting_seconds += time.monotonic() - began
                trace.error = None
                if isinstance(reply, StreamReply):
                    return self._start_stream(reply, prepared)
                if prepared.same_format:
                    return self._pass_through(reply, prepared)
                return await self._translate(reply, prepared)
            except UpstreamFailed as failure:
                trace.error = failure.error
                if prepared.hides_usage and _refuses_stream_options(failure.error):
                    self._may_ask_for_usage = False
                    continue
                if self._should_rewrite(failure.error, prepared):
                    is_rewritten = True
                    continue
                targets = fallback_targets(failure.error, target, others)
                if not targets:
                    error = self._loaded.with_applied_wait(failure.error, tried)
                    return self._with_report_headers(
                        provider_error_response(self._endpoint.format, error, target.provider)
                    )

    def _should_rewrite(self, error: ProviderError, prepared: Prepared) -> bool:
        """Whether a body that was passed through was refused for something that a repair fixes."""
        if not prepared.unchanged or error.kind != "invalid_request":
            return False
        return self._breaks_rules(prepared.upstream, prepared.body[0], prepared.target.model)

    def _breaks_rules(self, upstream: AnyUpstream, body: bytes, model: str) -> bool:
        """Whether a body violates rules of its API, and may be repaired."""
        if not self._loaded.config.gateway.repair or self._key.strict:
            return False
        known: dict[str, Any] = {"capabilities": upstream.wire_options.get("capabilities")}
        if upstream.format == "gemini":  # in other formats the body names it
            known["model"] = model
        return bool(upstream.wire.check_request(body, **known))

    def _prepare_unchanged(self, target: Target) -> Prepared | None:
        """The body as it came, if its outline shows that nothing has to be changed."""
        outline, upstream = self._outline, self._loaded.providers[target.provider]
        if outline is None or target.model != outline.model or upstream.format != self._endpoint.format:
            return None
        if not upstream.accepts_unchanged_bodies:
            return None
        if self._loaded.config.gateway.repair and not is_legal(outline.messages, upstream.wire.module.sequence_rule):
            return None
        return self._as_sent(target, upstream, self._request.body)

    def _as_sent(self, target: Target, upstream: AnyUpstream, body: bytes) -> Prepared:
        """A body that needs no encoding. Where tokens are charged, usage is requested even if the client did not."""
        hides_usage = self._is_metered and self._lacks_usage(upstream)
        body = with_usage_requested(body) if hides_usage else body
        return Prepared(target, upstream, [body], True, True, [], [], hides_usage)

    def _lacks_usage(self, upstream: AnyUpstream) -> bool:
        """Whether the usage of a stream is needed, is available, and was not requested by the client."""
        is_chat_stream = self._endpoint.format == upstream.format == "openai-chat" and self._trace.streams
        if not is_chat_stream or not self._may_ask_for_usage or not upstream.reports_stream_usage:
            return False
        return not requests_usage(self._request.body)

    async def _prepare_rewritten(self, target: Target, *, is_rewritten: bool) -> Prepared:
        parsed_request, upstream = self.parsed_request, self._loaded.providers[target.provider]
        request = await self._expand_stored_response(parsed_request, upstream)
        losses: list[Loss] = []
        if self._loaded.config.gateway.fetch_media:
            request, losses = await self._services.media.inline_media(request, needs_inline_media(upstream))
        repairs: list[Action] = []
        repaired = request
        if self._loaded.config.gateway.repair:
            repaired, repairs = repair(request, upstream.format, request_id=self._request.request_id)
        same_format = upstream.format == self._endpoint.format
        if same_format and repaired is parsed_request and upstream.accepts_unchanged_bodies and not is_rewritten:
            body = self._original_body(parsed_request, target)
            # made for one model and sent to another, which may refuse it
            if target.model == parsed_request.model or not self._breaks_rules(upstream, body, target.model):
                return self._as_sent(target, upstream, body)
        named = structs.replace(repaired, model=target.model)
        data, lost = upstream.wire.encode_request(named, **upstream.wire_options)
        return Prepared(
            target,
            upstream,
            [data],
            same_format,
            False,
            repairs,
            losses + lost,
            same_format and self._lacks_usage(upstream),
        )

    async def _expand_stored_response(self, parsed_request: ModelRequest, upstream: AnyUpstream) -> ModelRequest:
        """The request with the responses it continues, where the upstream does not store them itself."""
        if self._endpoint.format != _RESPONSES:
            return parsed_request
        try:
            return await run_in_thread(self._services.state.expand, parsed_request, owner=self._key.name)
        except UnknownResponse:
            if upstream.format == _RESPONSES:
                return parsed_request  # the response may be stored at the upstream
            raise

    def _original_body(self, parsed_request: ModelRequest, target: Target) -> bytes:
        """The client's own bytes, with the target's name for the model."""
        body = self._request.body
        if self._endpoint.format == "gemini" or target.model == parsed_request.model:
            return body
        return replace_model(body, target.model)

    def _forwarded_headers(self, upstream: AnyUpstream) -> dict[str, str]:
        headers = self._request.headers
        if upstream.format != self._endpoint.format or _FORWARDED_HEADERS.isdisjoint(headers):
            return {}
        return {name: headers[name] for name in _FORWARDED_HEADERS & headers.keys()}

    def _pass_through(self, reply: WholeReply, prepared: Prepared) -> Response:
        """The upstream's own response; only its usage is read."""
        try:
            self._trace.usage = prepared.upstream.wire.scan_usage(reply.body)
        except WireError as error:
            raise self._invalid_response(error, prepared) from None
        self._trace.output_bytes = len(reply.body)
        return self._with_report_headers(Response(headers={"content-type": "application/json"}, body=reply.body))

    def _invalid_response(self, error: WireError, prepared: Prepared) -> UpstreamFailed:
        """The failure of a provider whose response cannot be read: nothing was shown, so the next target may be tried."""
        message = f"invalid response from provider {prepared.target.provider}: {error}"
        failed = prepared.upstream.scrub(ProviderError(message, "server", code=NOT_AN_ANSWER))
        self._trace.fail_attempt(failed)
        return UpstreamFailed(failed)

    async def _translate(self, reply: WholeReply, prepared: Prepared) -> Response:
        trace = self._trace
        try:
            output = prepared.upstream.wire.read_response(reply.body)
        except WireError as error:
            raise self._invalid_response(error, prepared) from None
        trace.usage, trace.output_bytes = output.usage, len(reply.body)
        parsed_request = self.parsed_request
        restored = structs.replace(
            CallRestorer(parsed_request).output(output), model=parsed_request.model, id=self._new_id(output.id)
        )
        body, losses = self._wire.encode_response(restored)
        trace.losses = [*trace.losses, *filter(_is_response_loss, losses)]
        if self._should_store(prepared):
            await self._store_response(parsed_request, restored, body)
        return self._with_report_headers(Response.json(body))

    def _start_stream(self, reply: StreamReply, prepared: Prepared) -> Response:
        requested_model = self._trace.requested_model
        encoder: StreamEncoder
        if prepared.same_format and reply.is_event_stream:
            encoder = (UsageHidingEncoder if prepared.hides_usage else PassThroughEncoder)(self._wire, requested_model)
            if not self._is_metered and any(map(is_visible, reply.deltas)):
                reply.reader = UsageScanner.create(reply.reader, self._wire.name, b"".join(reply.held))
        else:
            hides_usage = self._endpoint.format == "openai-chat" and not requests_usage(self._request.body)
            encoder = TranslatingEncoder(
                self._wire, requested_model, CallRestorer(self.parsed_request), self._new_id, hides_usage=hides_usage
            )
        headers = _STREAM_HEADERS
        if self._endpoint.format == "gemini" and self._request.query.get("alt") != "sse":
            encoder, headers = JsonArrayEncoder(encoder), _ARRAY_HEADERS
        prepared.body.clear()  # nothing is sent again from here on
        if prepared.same_format:
            self._outline = self._parsed = None
        pieces = self._stream(reply, encoder, prepared)
        return self._with_report_headers(
            Response(headers=dict(headers), body=pieces, on_client_wait=self._trace.client_waited)
        )

    async def _stream(
        self, reply: StreamReply, encoder: StreamEncoder, prepared: Prepared
    ) -> AsyncGenerator[bytes, None]:
        recording = RecordingEncoder(encoder) if self._should_store(prepared) else None
        pieces = relay(
            reply,
            recording or encoder,
            self._trace,
            scrub=prepared.upstream.scrub,
            keep_alive=self._loaded.config.gateway.keep_alive_seconds,
        )
        status = 200
        try:
            async for piece in pieces:
                yield piece
            if recording is not None and recording.body:
                await self._store_response(
                    self.parsed_request, CallRestorer(self.parsed_request).output(recording.output), recording.body
                )
        except BaseException as error:
            status = self._trace.status_after(error, self._request.deadline)
            raise
        finally:
            await pieces.aclose()
            self._trace.losses = [*self._trace.losses, *filter(_is_response_loss, encoder.losses)]
            self._finish(status)

    def _new_id(self, given: str) -> str:
        """The id of a response: the upstream's, or a unique one where responses are looked up by id here."""
        return f"resp_{new_id()}" if self._endpoint.format == _RESPONSES else given

    def _should_store(self, prepared: Prepared) -> bool:
        """Whether the response is stored for requests that continue it."""
        return self._endpoint.format == _RESPONSES and not prepared.same_format and should_store(self.parsed_request)

    async def _store_response(self, parsed_request: ModelRequest, output: ModelOutput, body: bytes) -> None:
        try:
            response_id = str(msgspec.json.decode(body, type=_ResponseId).id)
            await run_in_thread(
                self._services.state.store, response_id, parsed_request, output, owner=self._key.name, body=body
            )
        except (AntiphonError, msgspec.DecodeError):
            logger.exception("response could not be stored; previous_response_id will not find it")

    def _strict_refusal(self, prepared: Prepared) -> Response:
        """The response for a strict key: what would have been changed, and was not."""
        what = [f"repair: {action}" for action in prepared.repairs] + [f"loss: {loss}" for loss in prepared.losses]
        message = f"strict key: the request would need changes: {'; '.join(what)}"
        error = ProviderError(message, "invalid_request", code="strict")
        self._trace.error = error
        return self._with_report_headers(error_response(self._endpoint.format, error, status=_UNPROCESSABLE))

    def _error(self, error: ProviderError) -> Response:
        self._trace.error = error
        return error_response(self._endpoint.format, error)

    def _with_report_headers(self, response: Response) -> Response:
        """The response with headers about what was changed in the request."""
        trace = self._trace
        if trace.repairs:
            response.headers["x-antiphon-repairs"] = _header_list([action.kind for action in trace.repairs])
        if trace.losses:
            response.headers["x-antiphon-losses"] = _header_list([f"{loss.path} {loss.what}" for loss in trace.losses])
        if trace.provider:
            response.headers["x-antiphon-target"] = header_text(f"{trace.provider}/{trace.model}")
        return response

    def _finish(self, status: int) -> None:
        trace = self._trace
        if trace.finished_at is None:
            trace.status, trace.finished_at = status, time.monotonic()
            self._on_finish(trace, self._context)


def _refuses_stream_options(error: ProviderError) -> bool:
    """Whether a host cannot report the usage of a stream."""
    text = f"{error.param} {error.message}"
    return error.kind == "invalid_request" and ("stream_options" in text or "include_usage" in text)


def _is_response_loss(loss: Loss) -> bool:
    """Whether a loss concerns the model's output. Echoed request fields and timestamps do not."""
    return loss.path.startswith(("parts", "others", "stop", "usage"))


def needs_inline_media(upstream: AnyUpstream) -> Callable[[Part], bool]:
    """Which media the upstream accepts only inline."""
    if upstream.format == "gemini":
        return lambda part: isinstance(part, Image | Audio | Document)
    if upstream.format == "openai-chat":
        return lambda part: isinstance(part, Audio | Document)
    return lambda part: isinstance(part, Audio)


def _header_list(text: list[str]) -> str:
    """How many and which, as a header value."""
    return header_text(f"{len(text)}; {', '.join(dict.fromkeys(text))}")[:_MAX_HEADER_CHARS]
