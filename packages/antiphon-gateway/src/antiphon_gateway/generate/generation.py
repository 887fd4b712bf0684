"""`Generation`: one generation request, from the client's bytes to the client's bytes.

    read -> route -> prepare for the target -> call -> channel to the client's format

`Preparer` makes the body for each target, `ProviderCall` calls the targets until one answers, and the answer is passed on or
translated, whole or as a stream. Answers that requests may continue are kept by `AnswerKeeper`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import structs

from antiphon.http.messages import ClientRequest, Response
from antiphon.ids import new_id
from antiphon.parts import NativeExtras, text_of
from antiphon.providers.engine.continuation import Continuation
from antiphon.providers.engine.provider_call import ProviderCall
from antiphon.providers.engine.reply import StreamReply, UpstreamFailed, WholeReply
from antiphon.providers.routes import check_model_name
from antiphon.tools.embedded import EmbeddedCalls, with_calls_read
from antiphon.wire.delta import Started
from antiphon.wire.inbound import OLLAMA, OLLAMA_GENERATE, client_formats
from antiphon.wire.loss import Loss
from antiphon.wire.output import ModelOutput, ProviderError
from antiphon.wire.tools.call_restorer import CallRestorer
from antiphon_gateway.access.accounts import priced_targets
from antiphon_gateway.access.client_keys import ClientKey
from antiphon_gateway.errors import Overloaded, error_response
from antiphon_gateway.generate.answer_keeper import AnswerKeeper, AnswerRecording
from antiphon_gateway.generate.channels import Channel, Same, Translate
from antiphon_gateway.generate.failover import StreamFailover, first_token_limit
from antiphon_gateway.generate.frame import StreamFrame
from antiphon_gateway.generate.preparer import USAGE_ON_REQUEST, PreparedRequest, Preparer, StrictRefusal
from antiphon_gateway.generate.relay import EarlyStart, Relay
from antiphon_gateway.observe.record import prompt_estimate
from antiphon_gateway.routes import Endpoint
from antiphon_gateway.runtime.body_fields import with_model, with_requested_model
from antiphon_gateway.runtime.loaded import LoadedConfig
from antiphon_gateway.runtime.metered import MeteredRequest, Services
from antiphon_gateway.state.continuing import STATE_FIELDS

STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}
_LINES_HEADERS = {**STREAM_HEADERS, "content-type": "application/x-ndjson"}
_ARRAY_HEADERS = {**STREAM_HEADERS, "content-type": "application/json; charset=utf-8"}
_UNPROCESSABLE = 422
_JSON_LINES = (OLLAMA, OLLAMA_GENERATE)
"""Formats whose streams are lines of JSON."""
_RESUMABLE = frozenset({"openai-chat", "anthropic", "gemini"})
"""Formats whose streams another target can go on with after events of the upstream's own: they number nothing."""
ID_PREFIXES = {"openai-responses": "resp_", "gemini-interactions": "v1_"}
"""How the ids of answers begin, in formats whose answers are looked up by id here."""


class Generation(MeteredRequest):
    """One generation request.

    With an `answer_id` the answer gets that id and is kept here whatever the format of the upstream is. `settings` are those the
    answer repeats beside the ones of the request.
    """

    operation = "chat"
    calls_providers = True
    charges = "tokens"
    _frame: StreamFrame
    _stream_headers: dict[str, str]

    def __init__(
        self, services: Services, loaded: LoadedConfig, request: ClientRequest, endpoint: Endpoint, key: ClientKey
    ) -> None:
        super().__init__(services, loaded, request, endpoint, key)
        self.answer_id = ""
        self.settings: Mapping[str, Any] = {}
        self._wire = client_formats[endpoint.format]
        self._preparer = Preparer(self)
        self._keeper = AnswerKeeper(self, self._preparer) if endpoint.format in STATE_FIELDS else None

    async def answer(self) -> Response:
        """The response for the client."""
        record, key, preparer, body = self.record, self.key, self._preparer, self.request.body
        if self.endpoint.resource and self.endpoint.format != "gemini":
            body = with_model(body, self.endpoint.resource)  # Azure names it in the path
        record.prompt_estimate = prompt_estimate(body)
        preparer.body, preparer.hold = body, self.request.hold
        if self.loaded.volatile_lines and not key.strict:  # a strict key's request is sent as it came, or not at all
            preparer.normalise_lines()
        seen = preparer.outline()
        model = seen.model
        record.streams, record.service_tier = bool(seen.stream), seen.service_tier or ""
        preparer.streams = record.streams
        record.requested_model = model
        if not model:
            return self.refuse(ProviderError("the request has no model", "invalid_request", param="model"))
        if key.is_checked:
            check_model_name(model)
            if not key.may_use(model):
                message = f"this key may not use model {model!r}; allowed: {', '.join(key.models)}"
                return self.refuse(ProviderError(message, "permission"))
        targets = self.loaded.resolve(model)
        if key.has_money_budget:
            priced = priced_targets(key, targets, self.loaded.prices)
            if isinstance(priced, ProviderError):
                return self.refuse(priced)
            targets = priced
        if self._keeper is not None:
            preparer.keeps_answer = bool(self.answer_id) or self.connection is not None
            targets = await self._keeper.prefer_storing_provider(targets)
        call = self.call(
            targets,
            preparer.prepare,
            rewrite=preparer.prepare_again,
            first_token=first_token_limit(self.loaded, seen, record, targets) if len(targets) > 1 else None,
            health=self.loaded.target_health,
            prepare_prefix=preparer.prepare_prefix,
        )
        if record.streams:
            return await self._stream(call)
        try:
            reply = await call.reply()
        except StrictRefusal:
            return self._strict_refusal()
        assert isinstance(reply, WholeReply), "no stream is requested"
        prepared = preparer.current
        assert prepared is not None, "it was sent"
        if not prepared.passes_answer:
            return await self._translate(reply.content, prepared)
        record.usage = reply.content
        if record.usage is None:
            shown = text_of(prepared.answer_wire.read_response(reply.body).parts)
            record.output_bytes = len(shown.encode("utf-8", "replace"))
        if self._keeper is not None:
            self._keeper.remember_whole(reply.body, prepared, self._answer_model(prepared))
        body = with_requested_model(self.endpoint.format, reply.body, self._answer_model(prepared))
        return Response(headers={"content-type": "application/json"}, body=body)

    def _strict_refusal(self) -> Response:
        """The response for a strict key: what would have been changed, and was not."""
        record = self.record
        what = [f"repair: {action}" for action in record.repairs] + [f"loss: {loss}" for loss in record.losses]
        message = f"strict key: the request would need changes: {'; '.join(what)}"
        record.error = ProviderError(message, "invalid_request", code="strict")
        return error_response(self.endpoint.format, record.error, status=_UNPROCESSABLE)

    # A whole answer.

    async def _translate(self, output: ModelOutput, prepared: PreparedRequest) -> Response:
        """A whole answer in the client's format."""
        record, keeper = self.record, self._keeper
        record.usage = output.usage
        if record.usage is None:
            record.output_bytes = len(text_of(output.parts).encode("utf-8", "replace"))
        record.stop_reason, record.response_id, record.response_model = output.stop_reason, output.id, output.model
        if prepared.tools:
            output = with_calls_read(output, prepared.tools)
        restored = structs.replace(
            CallRestorer(self._preparer.parsed_request).output(output),
            model=self._answer_model(prepared),
            id=self._id_maker(prepared)(output.id),
            native=self._native_with_settings(output),
        )
        body, losses = self._wire.encode_response(restored)
        record.losses = [*record.losses, *filter(_is_response_loss, losses)]
        if keeper is not None:
            if keeper.keeps(prepared):
                await keeper.keep(restored, body)
            else:
                keeper.remember(output.id, prepared, self._answer_model(prepared))
        return Response.json(body)

    def _answer_model(self, prepared: PreparedRequest) -> str:
        """The model that the answer names: the requested one, or after a fallback the one that answered."""
        return (prepared.target.model if self.record.fallbacks else "") or self.record.requested_model

    def _id_maker(self, prepared: PreparedRequest) -> Callable[[str], str]:
        """Gives a response its id: the upstream's, or a unique one where responses are looked up by id here."""
        prefix = ID_PREFIXES.get(self.endpoint.format)
        if self.answer_id:
            return lambda _: self.answer_id
        if prefix is not None and (prepared.keeps_answer or not prepared.same_format):
            return lambda _: f"{prefix}{new_id()}"
        return lambda given: given

    def _repeated_settings(self) -> dict[str, Any] | None:
        """The settings that the answer repeats; None if answers of the client's format repeat none."""
        if not self._wire.spec.repeats_settings:
            return None
        return {**self._wire.request_settings(self._preparer.body), **self.settings}

    def _native_with_settings(self, output: ModelOutput) -> NativeExtras | None:
        settings = self._repeated_settings()
        return output.native if settings is None else self._wire.repeat_settings(output.native, settings)

    # A stream.

    async def _stream(self, call: ProviderCall) -> Response:
        """The stream of the first target that answers. While all are silent, the client gets the head and keep-alives."""
        gateway, format_name = self.loaded.config.gateway, self.endpoint.format
        is_array = format_name == "gemini" and self.request.query.get("alt") != "sse"
        framed = _LINES_HEADERS if format_name in _JSON_LINES else STREAM_HEADERS
        self._stream_headers = _ARRAY_HEADERS if is_array else framed
        model, interval = self.record.requested_model, gateway.keep_alive_seconds
        frame = self._frame = StreamFrame(self._wire, model, interval, is_array=is_array)
        early = EarlyStart(self.request, self._opening, frame, hold=gateway.hold_seconds or gateway.keep_alive_seconds)
        try:
            reply = await call.reply()
        except (UpstreamFailed, Overloaded) as failure:
            if not early.stop():
                raise
            return self._error_event(failure.error)
        except StrictRefusal:
            response = self._strict_refusal()
            assert self.record.error is not None, "it was refused"
            return self._error_event(self.record.error) if early.stop() else response
        finally:
            early.stop()
        prepared = self._preparer.current
        assert prepared is not None, "it was sent"
        assert isinstance(reply, StreamReply), "a stream is requested"
        return Response(headers=dict(self._stream_headers), body=self._relay(call, reply, prepared))

    def _opening(self) -> Response:
        self.record.began_early = True
        return Response(headers=dict(self._stream_headers))

    def _error_event(self, error: ProviderError) -> Response:
        """The error of a stream whose head was sent before it was known."""
        self.record.error = error
        return Response(body=self._frame.error(error))

    def _relay(self, call: ProviderCall, reply: StreamReply, prepared: PreparedRequest) -> Relay:
        gateway, keeper = self.loaded.config.gateway, self._keeper
        # not where calls are read from the text of the answer
        may_continue = gateway.continue_streams and call.may_continue and not prepared.tools
        continuation = Continuation() if may_continue else None
        recording = AnswerRecording(self._wire) if keeper is not None and keeper.keeps(prepared) else None
        channel = self._channel(reply, prepared, continuation, recording)
        if keeper is not None and recording is None:
            started = next((delta.id for delta in reply.deltas if isinstance(delta, Started)), "")
            keeper.remember(started, prepared, self._answer_model(prepared))
        prepared.body = ()  # nothing is sent again from here on, unless another target continues
        failover = None
        if continuation is not None:
            failover = StreamFailover(call, continuation, self.record, self._scrub, self.request.hold, gateway)
            self._preparer.hold = failover.hold
        if recording is None and isinstance(channel, Same):
            self._preparer.drop(keeps_body=failover is not None)
        items = keeper.input_items() if keeper is not None and recording is not None else []

        async def store() -> None:
            if keeper is not None and recording is not None and recording.body:
                output = CallRestorer(self._preparer.parsed_request).output(recording.output)
                await keeper.keep(output, recording.body, items)

        def end(status: int) -> None:
            if failover is not None:
                failover.close()
            self.record.losses = [*self.record.losses, *filter(_is_response_loss, channel.losses)]
            self.end(status)

        return Relay(
            reply,
            channel,
            self.record,
            deadline=self.request.deadline,
            on_end=end,
            frame=self._frame,
            before_end=store if recording is not None else None,
            failover=failover,
        )

    def _channel(
        self,
        reply: StreamReply,
        prepared: PreparedRequest,
        continuation: Continuation | None,
        recording: AnswerRecording | None,
    ) -> Channel:
        """The way of the answer to the client."""
        model, wire, record = self._answer_model(prepared), self._wire, self.record

        def translate() -> Translate:
            return Translate(
                wire,
                model,
                record,
                self._frame,
                self._scrub,
                CallRestorer(self._preparer.parsed_request),
                self._id_maker(prepared),
                hides_usage=self.endpoint.format in USAGE_ON_REQUEST and not self._preparer.requests_usage,
                settings=self._repeated_settings(),
                calls=EmbeddedCalls(prepared.tools) if prepared.tools else None,
                recording=recording,
                continuation=continuation,
            )

        passes = prepared.passes_answer and reply.is_event_stream and recording is None
        if not passes or (continuation is not None and self.endpoint.format not in _RESUMABLE):
            return translate()
        return Same(
            wire,
            model,
            record,
            self._frame,
            self._scrub,
            hides_usage=prepared.hides_usage,
            continuation=continuation,
            translate=translate,
        )

    def _scrub(self, error: ProviderError) -> ProviderError:
        """The error without the secrets of the provider that answers now."""
        current = self._preparer.current
        return error if current is None else current.provider.scrub(error)


def _is_response_loss(loss: Loss) -> bool:
    """Whether a loss concerns the model's output. Echoed request fields and timestamps do not."""
    return loss.path.startswith(("parts", "others", "stop", "usage"))
