"""`Generation`: one generation request, from the client's bytes to the client's bytes.

    read -> route -> prepare for the target -> call -> encode in the client's format

`RequestPreparer` makes the body for each target, `ModelCall` calls the targets until one answers, and the answer is passed on or
translated, whole or as a stream. What happened is recorded in the trace.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import msgspec
from msgspec import Struct, structs

from antiphon.errors import AntiphonError, InvalidModelName, RoutingError, StoreError, WireError
from antiphon.http.messages import Response, header_text
from antiphon.ids import new_id
from antiphon.parts import NativeExtras, text_of
from antiphon.providers.call import CallReport
from antiphon.providers.engine.attempt import UpstreamRequest
from antiphon.providers.engine.model_call import ModelCall, TargetCall
from antiphon.providers.engine.reply import StreamReply, UpstreamFailed, WholeReply
from antiphon.providers.routes import Target, check_model_name
from antiphon.tools.embedded import EmbeddedCalls, with_calls_read
from antiphon.wire.clients import COMPLETIONS, OLLAMA, OLLAMA_GENERATE, client_formats
from antiphon.wire.delta import Failed, Started, is_visible
from antiphon.wire.loss import Loss
from antiphon.wire.output import ModelOutput, ProviderError
from antiphon.wire.request import ModelRequest
from antiphon.wire.tool_calls import CallRestorer
from antiphon_gateway.access.accounts import priced_targets
from antiphon_gateway.errors import error_response, provider_error_response, store_failure
from antiphon_gateway.generate.answer_model import with_requested_model
from antiphon_gateway.generate.early_start import EarlyStart, KeepAlive
from antiphon_gateway.generate.encoders import (
    CallReadingEncoder,
    PassThroughEncoder,
    RecordingEncoder,
    StreamEncoder,
    TranslatingEncoder,
    UsageHidingEncoder,
    framed,
)
from antiphon_gateway.generate.model_names import unknown_model_error, visible_models
from antiphon_gateway.generate.prepare import (
    Prepared,
    RequestPreparer,
    top_level_fields,
)
from antiphon_gateway.generate.relay import Relay
from antiphon_gateway.generate.rescue import NextTargetRescue, StrictRefusal
from antiphon_gateway.generate.server_state import conversation_id
from antiphon_gateway.generate.usage_scanner import UsageScanner
from antiphon_gateway.observe.charging import prompt_estimate
from antiphon_gateway.observe.request_trace import RequestTrace
from antiphon_gateway.runtime.context import RequestContext
from antiphon_gateway.state.size_limit import StateLimitReached
from antiphon_gateway.state.store import STATE_FIELDS, previous_response_id, should_store
from antiphon_gateway.state.upstream_answers import UpstreamAnswer
from antiphon_gateway.threads import STATE

STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}
_LINES_HEADERS = {**STREAM_HEADERS, "content-type": "application/x-ndjson"}
_ARRAY_HEADERS = {**STREAM_HEADERS, "content-type": "application/json; charset=utf-8"}
_UNPROCESSABLE, _MAX_HEADER_CHARS = 422, 900
_USAGE_ON_REQUEST = ("openai-chat", COMPLETIONS)
"""Formats whose streams report usage only if the client asks for it."""
_JSON_LINES = (OLLAMA, OLLAMA_GENERATE)
"""Formats whose streams are lines of JSON."""

logger = logging.getLogger("antiphon.gateway")

ID_PREFIXES = {"openai-responses": "resp_", "gemini-interactions": "v1_"}
"""How the ids of answers begin, in formats whose answers are looked up by id here."""


class _Answer(Struct):
    id: str = ""
    output: list[Any] = []


class Generation:
    """One generation request. `on_finish` gets its trace at the end.

    With an `answer_id` the answer gets that id and is kept here whatever the format of the upstream is. `settings` are those the
    answer repeats beside the ones of the request.
    """

    def __init__(
        self,
        context: RequestContext,
        on_finish: Callable[[RequestTrace, RequestContext], None],
        *,
        answer_id: str = "",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._context = context
        self._answer_id = answer_id
        self._settings = settings or {}
        self._loaded = context.loaded
        self._services = context.services
        self._request = request = context.request
        self._endpoint = endpoint = context.endpoint
        self._key = key = context.key
        self._on_finish = on_finish
        self._wire = client_formats[endpoint.format]
        self._preparer = RequestPreparer(context)
        self._prepared: Prepared | None = None
        self._continued: UpstreamAnswer | None = None  # where the answer is that the request continues
        self._trace = RequestTrace(
            request_id=request.request_id,
            client_format=endpoint.format,
            key=key.name,
            prompt_estimate=prompt_estimate(request.body),
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
            seen = self._preparer.scan()
            model = seen.model
            trace.streams, trace.service_tier = bool(seen.stream), seen.service_tier or ""
            check_model_name(model)
            trace.requested_model = model
            if not model:
                return self._error(ProviderError("the request has no model", "invalid_request", param="model"))
            if not self._key.may_use(model):
                allowed = ", ".join(self._key.models)
                return self._error(
                    ProviderError(f"this key may not use model {model!r}; allowed: {allowed}", "permission")
                )
            targets = priced_targets(self._key, self._loaded.resolve(model), self._loaded.prices)
            if isinstance(targets, ProviderError):
                return self._error(targets)
            return await self._call(await self._where_stored(targets))
        except WireError as error:
            return self._error(ProviderError(str(error), "invalid_request"))
        except InvalidModelName as error:
            return self._error(ProviderError(str(error), "invalid_request", param="model"))
        except RoutingError:
            listed = visible_models(self._loaded.routes, self._key.may_use)
            return self._error(unknown_model_error(trace.requested_model, listed))
        except StoreError as error:
            return self._error(store_failure(error))

    async def _call(self, targets: list[Target]) -> Response:
        """Call the targets in order until one answers."""
        trace = self._trace
        self._services.spans.start(trace, self._request.headers)
        call = ModelCall(
            targets,
            self._prepare,
            CallReport(attempts=trace.attempts, fallbacks=trace.fallbacks),
            rewrite=self._prepare_again,
            first_token=self._loaded.config.gateway.first_token_seconds,
            health=self._loaded.target_health,
            prepare_prefix=self._prepare_prefix,
        )
        early = self._early_start() if trace.streams else None
        try:
            reply = await call.reply()
        except UpstreamFailed as failure:
            trace.error = failure.error
            if early is not None and early.stop():
                return self._error_event(failure.error)
            response = provider_error_response(self._endpoint.format, failure.error, trace.provider)
            return self._with_report_headers(response)
        except StrictRefusal:
            response = self._strict_refusal()
            assert trace.error is not None, "it was refused"
            return self._error_event(trace.error) if early is not None and early.stop() else response
        finally:
            trace.waiting_seconds += call.waiting_seconds
            if early is not None:
                early.stop()
        prepared = self._prepared
        assert prepared is not None, "it was sent"
        if isinstance(reply, StreamReply):
            return self._start_stream(reply, prepared, call)
        assert isinstance(reply, WholeReply), "nothing else is requested"
        if prepared.passes_answer:
            trace.usage = reply.content
            if trace.usage is None:
                shown = text_of(prepared.answer_wire.read_response(reply.body).parts)
                trace.output_bytes = len(shown.encode("utf-8", "replace"))
            if self._is_stored_upstream(prepared):
                self._remember(msgspec.json.decode(reply.body, type=_Answer).id, prepared)
            body = with_requested_model(self._endpoint.format, reply.body, self._answer_model(prepared))
            return self._with_report_headers(Response(headers={"content-type": "application/json"}, body=body))
        return await self._translate(reply.content, prepared)

    def _early_start(self) -> EarlyStart:
        """Keeps the connection of a streaming request alive until a provider answers."""
        hold = self._loaded.config.gateway.hold_seconds or self._keep_alive.interval
        return EarlyStart(self._request, self._stream_opening, self._keep_alive, hold=hold)

    @cached_property
    def _keep_alive(self) -> KeepAlive:
        interval, is_array = self._loaded.config.gateway.keep_alive_seconds, self._stream_headers is _ARRAY_HEADERS
        return KeepAlive(self._wire, self._trace.requested_model, interval, is_array=is_array)

    def _stream_opening(self) -> Response:
        self._trace.began_early = True
        return Response(headers=dict(self._stream_headers))

    def _error_event(self, error: ProviderError) -> Response:
        """The error of a stream whose head was sent before it was known."""
        if self._stream_headers is _ARRAY_HEADERS:
            return Response(body=msgspec.json.encode([self._wire.write_error(error)]))
        writer = self._wire.stream_writer(self._trace.requested_model)
        return Response(body=self._keep_alive.complete(writer.write(Failed(error)) + writer.close()))

    @property
    def _stream_headers(self) -> dict[str, str]:
        if self._endpoint.format == "gemini" and self._request.query.get("alt") != "sse":
            return _ARRAY_HEADERS
        return _LINES_HEADERS if self._endpoint.format in _JSON_LINES else STREAM_HEADERS

    async def _prepare(self, target: Target) -> TargetCall:
        return self._use(await self._preparer.prepare(target, streams=self._trace.streams))

    async def _prepare_prefix(self, target: Target, text: str) -> TargetCall | None:
        prepared = await self._preparer.prepare_prefix(target, text)
        return None if prepared is None else self._use(prepared)

    def _keeps_answer(self) -> bool:
        """Whether the gateway keeps the answer in any case: also of an upstream of the client's format, also if not stored."""
        if self._answer_id or self._context.connection is not None:
            return True
        expanded = self._preparer.expanded  # with what is stored here; the upstream does not know the ids
        return expanded is not None and expanded is not self._preparer.parsed_request

    def _local_conversation(self) -> str:
        """The conversation of the request, if the gateway has it; empty otherwise."""
        expanded = self._preparer.expanded
        if expanded is None or conversation_id(expanded):
            return ""
        return conversation_id(self._preparer.parsed_request)

    async def _prepare_again(self, _: Target, error: ProviderError) -> TargetCall | None:
        assert self._prepared is not None, "it was refused"
        again = await self._preparer.prepare_again(self._prepared, error, streams=self._trace.streams)
        return None if again is None else self._use(again)

    def _use(self, prepared: Prepared) -> TargetCall:
        if self._endpoint.format in STATE_FIELDS and self._keeps_answer():
            prepared = structs.replace(prepared, keeps_answer=True)
        trace, target = self._trace, prepared.target
        self._prepared = prepared
        trace.provider, trace.model = target.provider, target.model
        trace.upstream_format = prepared.provider.format
        trace.repairs, trace.losses = prepared.repairs, prepared.losses
        if self._loaded.cache_watch is not None:
            trace.cache = self._preparer.cache_check(prepared, self._loaded.cache_watch)
        if self._key.strict and (prepared.repairs or prepared.losses):
            raise StrictRefusal
        headers = self._preparer.forwarded_headers(prepared.provider)
        if trace.trace_headers:
            headers |= trace.trace_headers
        call = prepared.call(headers, streams=trace.streams)
        known = self._continued
        if known is not None and known.provider == target.provider and isinstance(call, UpstreamRequest):
            call.preferred_key = known.credential
        return call

    async def _translate(self, output: ModelOutput, prepared: Prepared) -> Response:
        """A whole answer in the client's format."""
        trace, parsed_request = self._trace, self._preparer.parsed_request
        trace.usage = output.usage
        if trace.usage is None:
            trace.output_bytes = len(text_of(output.parts).encode("utf-8", "replace"))
        trace.stop_reason, trace.response_id, trace.response_model = output.stop_reason, output.id, output.model
        if prepared.tools:
            output = with_calls_read(output, prepared.tools)
        restored = structs.replace(
            CallRestorer(parsed_request).output(output),
            model=self._answer_model(prepared),
            id=self._id_maker(prepared)(output.id),
            native=self._native_with_settings(output),
        )
        body, losses = self._wire.encode_response(restored)
        trace.losses = [*trace.losses, *filter(_is_response_loss, losses)]
        if self._should_record(prepared):
            await self._keep(parsed_request, restored, body)
        elif self._is_stored_upstream(prepared):
            self._remember(output.id, prepared)
        return self._with_report_headers(Response.json(body))

    def _start_stream(self, reply: StreamReply, prepared: Prepared, call: ModelCall) -> Response:
        requested_model = self._answer_model(prepared)
        encoder: StreamEncoder
        # not where calls are read from the text of the answer
        continues = self._loaded.config.gateway.continue_streams and call.may_continue and not prepared.tools
        if prepared.passes_answer and reply.is_event_stream and not continues:
            encoder = (UsageHidingEncoder if prepared.hides_usage else PassThroughEncoder)(self._wire, requested_model)
            if any(map(is_visible, reply.deltas)):
                reply.reader = UsageScanner.create(reply.reader, self._wire.name, b"".join(reply.held), reply.deltas)
        else:
            hides_usage = self._endpoint.format in _USAGE_ON_REQUEST and not self._preparer.requests_usage
            encoder = TranslatingEncoder(
                self._wire,
                requested_model,
                CallRestorer(self._preparer.parsed_request),
                self._id_maker(prepared),
                hides_usage=hides_usage,
                settings=self._repeated_settings(),
            )
        encoder = framed(encoder, self._keep_alive)
        if self._is_stored_upstream(prepared):
            self._remember(next((delta.id for delta in reply.deltas if isinstance(delta, Started)), ""), prepared)
        prepared.body.clear()  # nothing is sent again from here on
        if prepared.passes_answer and not continues:
            self._preparer.drop()
        rescue = NextTargetRescue(call, self._request, self._trace, self._scrub) if continues else None
        relay = self._relay(reply, encoder, prepared, rescue)
        return self._with_report_headers(Response(headers=dict(self._stream_headers), body=relay))

    def _scrub(self, error: ProviderError) -> ProviderError:
        """The error without the secrets of the provider that answers now."""
        return error if self._prepared is None else self._prepared.provider.scrub(error)

    def _relay(
        self, reply: StreamReply, encoder: StreamEncoder, prepared: Prepared, rescue: NextTargetRescue | None = None
    ) -> Relay:
        recording = RecordingEncoder(encoder, self._wire) if self._should_record(prepared) else None
        input_items = self._input_items() if recording is not None else []

        async def store() -> None:
            if recording is not None and recording.body:
                request = self._preparer.parsed_request
                output = CallRestorer(request).output(recording.output)
                await self._keep(request, output, recording.body, input_items)

        reader = reply.reader

        def end(status: int) -> None:
            if isinstance(reader, UsageScanner):
                self._trace.output_bytes += reader.skipped_text_bytes
            self._trace.losses = [*self._trace.losses, *filter(_is_response_loss, encoder.losses)]
            self._finish(status)

        outer: StreamEncoder = recording or encoder
        return Relay(
            reply,
            CallReadingEncoder(outer, EmbeddedCalls(prepared.tools)) if prepared.tools else outer,
            self._trace,
            scrub=self._scrub,
            keep_alive=self._keep_alive,
            deadline=self._request.deadline,
            on_end=end,
            before_end=store if recording is not None else None,
            rescue=rescue,
        )

    def _answer_model(self, prepared: Prepared) -> str:
        """The model that the answer names: the requested one, or after a fallback the one that answered."""
        return (prepared.target.model if self._trace.fallbacks else "") or self._trace.requested_model

    def _repeated_settings(self) -> dict[str, Any] | None:
        """The settings that the answer repeats; None if answers of the client's format repeat none."""
        if not self._wire.module.repeats_settings:
            return None
        return {**self._wire.request_settings(self._request.body), **self._settings}

    def _native_with_settings(self, output: ModelOutput) -> NativeExtras | None:
        settings = self._repeated_settings()
        return output.native if settings is None else self._wire.repeat_settings(output.native, settings)

    def _id_maker(self, prepared: Prepared) -> Callable[[str], str]:
        """Gives a response its id: the upstream's, or a unique one where responses are looked up by id here."""
        prefix = ID_PREFIXES.get(self._endpoint.format)
        if self._answer_id:
            return lambda _: self._answer_id
        if prefix is not None and (prepared.keeps_answer or not prepared.same_format):
            return lambda _: f"{prefix}{new_id()}"
        return lambda given: given

    def _should_record(self, prepared: Prepared) -> bool:
        """Whether the answer is kept for requests that continue it."""
        if self._endpoint.format not in STATE_FIELDS:
            return False
        return prepared.keeps_answer or (not prepared.same_format and should_store(self._preparer.parsed_request))

    async def _where_stored(self, targets: list[Target]) -> list[Target]:
        """The targets, first those of the provider that stored what the request continues."""
        if self._endpoint.format not in STATE_FIELDS or b'"previous_' not in self._request.body:
            return targets
        previous = previous_response_id(self._preparer.parsed_request)
        known = await STATE.run(self._services.upstream_answers.get, previous, self._key.name)
        if known is None:
            return targets
        self._continued = known
        return sorted(targets, key=lambda target: target.provider != known.provider)

    def _is_stored_upstream(self, prepared: Prepared) -> bool:
        """Whether the provider stores the answer under the id that the client gets."""
        if self._endpoint.format not in STATE_FIELDS or prepared.keeps_answer or not prepared.same_format:
            return False
        body = self._request.body
        return b'"store"' not in body or bytes(top_level_fields(body).get("store", b"")).strip() != b"false"

    def _remember(self, answer_id: str, prepared: Prepared) -> None:
        """Remember which provider has an answer, and which key gets it."""
        if answer_id:
            trace = self._trace
            credential = trace.attempts[-1].credential if trace.attempts else ""
            answer = UpstreamAnswer(trace.provider, credential, self._answer_model(prepared))
            self._services.upstream_answers.remember(answer_id, self._key.name, answer)

    def _input_items(self) -> list[Any]:
        """The items that the request adds to its conversation."""
        if not self._local_conversation():
            return []
        given = msgspec.json.decode(self._request.body).get("input")
        return given if isinstance(given, list) else [{"role": "user", "content": given}] if given else []

    async def _keep(
        self, request: ModelRequest, output: ModelOutput, body: bytes, input_items: list[Any] | None = None
    ) -> None:
        """Keep an answer where requests that continue it look for it."""
        services, owner, conversation = self._services, self._key.name, self._local_conversation()
        try:
            seen = msgspec.json.decode(body, type=_Answer)
            if self._context.connection is not None and self._preparer.expanded is not None:
                self._context.connection.store(seen.id, request, self._preparer.expanded, output)
            if should_store(request):
                await STATE.run(services.state.store, seen.id, request, output, owner=owner, body=body)
            if conversation:
                items = [*(self._input_items() if input_items is None else input_items), *seen.output]
                await STATE.run(services.conversations.add, conversation, owner, items)
        except StateLimitReached as reached:
            logger.warning("the answer is not stored; requests that continue it will not find it: %s", reached)
        except (AntiphonError, msgspec.DecodeError):
            logger.exception("the answer could not be stored; requests that continue it will not find it")

    def _strict_refusal(self) -> Response:
        """The response for a strict key: what would have been changed, and was not."""
        trace = self._trace
        what = [f"repair: {action}" for action in trace.repairs] + [f"loss: {loss}" for loss in trace.losses]
        message = f"strict key: the request would need changes: {'; '.join(what)}"
        error = ProviderError(message, "invalid_request", code="strict")
        trace.error = error
        return self._with_report_headers(error_response(self._endpoint.format, error, status=_UNPROCESSABLE))

    def _error(self, error: ProviderError) -> Response:
        self._trace.error = error
        return error_response(self._endpoint.format, error)

    def _with_report_headers(self, response: Response) -> Response:
        """The response with headers about what was changed in the request."""
        trace = self._trace
        if trace.repairs:
            response.headers["x-antiphon-repairs"] = header_list([action.kind for action in trace.repairs])
        if trace.losses:
            response.headers["x-antiphon-losses"] = header_list([f"{loss.path} {loss.what}" for loss in trace.losses])
        if len(trace.attempts) > 1:
            response.headers.update(trace.attempts_header)
        if trace.fallbacks:
            response.headers["x-antiphon-fallback"] = header_list([each.summary for each in trace.fallbacks])
        if trace.cache is not None and response.status < 400:
            response.headers["x-antiphon-cache"] = header_text(trace.cache.header)[:_MAX_HEADER_CHARS]
        if trace.provider:
            response.headers["x-antiphon-target"] = header_text(f"{trace.provider}/{trace.model}")
        return response

    def _finish(self, status: int) -> None:
        trace = self._trace
        if trace.finished_at is None:
            trace.status, trace.finished_at = status, time.monotonic()
            self._on_finish(trace, self._context)


def _is_response_loss(loss: Loss) -> bool:
    """Whether a loss concerns the model's output. Echoed request fields and timestamps do not."""
    return loss.path.startswith(("parts", "others", "stop", "usage"))


def header_list(text: list[str]) -> str:
    """How many and which, as a header value."""
    return header_text(f"{len(text)}; {', '.join(dict.fromkeys(text))}")[:_MAX_HEADER_CHARS]
