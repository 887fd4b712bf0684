"""`Generation`: one generation request, from the client's bytes to the client's bytes.

    read -> route -> prepare for the target -> call -> channel to the client's format

`TargetedRequest` prepares the body for each target, `ProviderCall` calls them until one answers, and the answer is passed on or
translated, whole or as a stream. Answers that requests may continue are kept by `AnswerKeeper`.
"""

from __future__ import annotations

from typing import Any

from msgspec import structs

from antiphon.http.messages import Response
from antiphon.ids import new_id
from antiphon.parts import NativeExtras, text_of
from antiphon.providers.engine.continuation import Continuation
from antiphon.providers.engine.provider_call import ProviderCall
from antiphon.providers.engine.reply import StreamReply, UpstreamFailed, WholeReply
from antiphon.tools.embedded import EmbeddedCalls, with_calls_read
from antiphon.wire.delta import Started
from antiphon.wire.output import ModelOutput, ProviderError
from antiphon.wire.tools.call_restorer import CallRestorer
from antiphon_gateway.access.accounts import priced_targets
from antiphon_gateway.errors import RequestRefused
from antiphon_gateway.generate.answer_keeper import AnswerKeeper
from antiphon_gateway.generate.channels import Channel, Same, Translate, is_response_loss
from antiphon_gateway.generate.failover import StreamFailover, first_token_limit
from antiphon_gateway.generate.frame import EarlyStart, StreamFrame
from antiphon_gateway.generate.relay import Relay
from antiphon_gateway.generate.targeted_request import USAGE_ON_REQUEST, TargetedRequest
from antiphon_gateway.observe.record import prompt_estimate
from antiphon_gateway.runtime.body_fields import with_model, with_requested_model
from antiphon_gateway.state.continuing import STATE_FIELDS

_RESUMABLE = frozenset({"openai-chat", "anthropic", "gemini"})
"""Formats whose streams another target can go on with after events of the upstream's own: they number nothing."""
ID_PREFIXES = {"openai-responses": "resp_", "gemini-interactions": "v1_"}
"""How the ids of answers begin, in formats whose answers are looked up by id here."""


class Generation(TargetedRequest):
    """One generation request."""

    operation = "chat"
    calls_providers = True
    charges = "tokens"
    _frame: StreamFrame

    async def answer(self) -> Response:
        """The response for the client."""
        record, key, body = self.record, self.key, self.request.body
        if self.endpoint.resource and self.endpoint.format != "gemini":
            body = with_model(body, self.endpoint.resource)  # Azure names it in the path
        record.prompt_estimate = prompt_estimate(body)
        seen = self.outline(body)
        model = seen.model
        record.streams, record.service_tier = bool(seen.stream), seen.service_tier or ""
        if not model:
            return self.refuse(ProviderError("the request has no model", "invalid_request", param="model"))
        targets = self.targets(model)
        if key.has_money_budget:
            priced = priced_targets(key, targets, self.loaded.prices)
            if isinstance(priced, ProviderError):
                return self.refuse(priced)
            targets = priced
        keeper = AnswerKeeper(self) if self.endpoint.format in STATE_FIELDS else None
        if keeper is not None:
            targets = await keeper.prefer_storing_provider(targets)
        call = self.call(
            targets,
            self.prepare,
            rewrite=self.prepare_again,
            first_token=first_token_limit(self.loaded, seen, record, targets) if len(targets) > 1 else None,
            health=self.loaded.target_health,
            prepare_prefix=self.prepare_prefix,
        )
        if record.streams:
            return await self._stream(call, keeper)
        reply = await call.reply()
        assert isinstance(reply, WholeReply), "no stream is requested"
        prepared = self.current
        if not prepared.passes_answer:
            return await self._translate(reply.content, keeper)
        record.usage = reply.content
        if record.usage is None:
            shown = text_of(prepared.answer_wire.read_response(reply.body).parts)
            record.output_bytes = len(shown.encode("utf-8", "replace"))
        if keeper is not None:
            keeper.remember_whole(reply.body)
        body = with_requested_model(self.endpoint.format, reply.body, self.answer_model)
        return Response(headers={"content-type": "application/json"}, body=body)

    # A whole answer.

    async def _translate(self, output: ModelOutput, keeper: AnswerKeeper | None) -> Response:
        """A whole answer in the client's format."""
        record = self.record
        record.usage = output.usage
        if record.usage is None:
            record.output_bytes = len(text_of(output.parts).encode("utf-8", "replace"))
        record.stop_reason, record.response_id, record.response_model = output.stop_reason, output.id, output.model
        if self.current.tools:
            output = with_calls_read(output, self.current.tools)
        restored = structs.replace(
            CallRestorer(self.parsed_request).output(output),
            model=self.answer_model,
            id=self._new_id() or output.id,
            native=self._native_with_settings(output),
        )
        body, losses = self.wire.encode_response(restored)
        record.losses = [*record.losses, *filter(is_response_loss, losses)]
        if keeper is not None:
            if keeper.keeps():
                await keeper.keep(restored, body)
            else:
                keeper.remember(output.id)
        return Response.json(body)

    def _new_id(self) -> str:
        """The id that the answer gets here, where responses are looked up by id; empty if it keeps the upstream's."""
        if self.background is not None:
            return self.background.id
        return "" if not self.current.has_own_id else f"{ID_PREFIXES[self.endpoint.format]}{new_id()}"

    def _repeated_settings(self) -> dict[str, Any] | None:
        """The settings that the answer repeats; None if answers of the client's format repeat none."""
        if not self.wire.spec.repeats_settings:
            return None
        settings = self.wire.request_settings(self.body)
        return settings if self.background is None else {**settings, "background": True}

    def _native_with_settings(self, output: ModelOutput) -> NativeExtras | None:
        settings = self._repeated_settings()
        return output.native if settings is None else self.wire.repeat_settings(output.native, settings)

    # A stream.

    async def _stream(self, call: ProviderCall, keeper: AnswerKeeper | None) -> Response:
        """The stream of the first target that answers. While all are silent, the client gets the head and keep-alives."""
        gateway = self.loaded.config.gateway
        is_array = self.endpoint.format == "gemini" and self.request.query.get("alt") != "sse"
        frame = StreamFrame(self.wire, self.record.requested_model, gateway.keep_alive_seconds, is_array=is_array)
        self._frame = frame
        early = EarlyStart(self.request, self.record, frame, hold=gateway.hold_seconds or gateway.keep_alive_seconds)
        try:
            reply = await call.reply()
        except (UpstreamFailed, RequestRefused) as failure:
            if not early.stop():
                raise
            self.record.error = failure.error  # the head was sent before it was known
            return Response(body=frame.error(failure.error))
        finally:
            early.stop()
        assert isinstance(reply, StreamReply), "a stream is requested"
        return Response(headers=dict(frame.headers), body=self._relay(call, reply, keeper))

    def _relay(self, call: ProviderCall, reply: StreamReply, keeper: AnswerKeeper | None) -> Relay:
        gateway, prepared = self.loaded.config.gateway, self.current
        # not where calls are read from the text of the answer
        may_continue = gateway.continue_streams and call.may_continue and not prepared.tools
        continuation = Continuation() if may_continue else None
        recording = keeper if keeper is not None and keeper.keeps() else None
        if keeper is not None and recording is None:
            keeper.remember(next((delta.id for delta in reply.deltas if isinstance(delta, Started)), ""))
        channel = self._channel(reply, continuation, recording)
        prepared.body = ()  # nothing is sent again from here on, unless another target continues
        failover = None
        if continuation is not None:
            hold = self.hold = self.hold.move() if self.hold is not None else None
            failover = StreamFailover(call, continuation, self.record, self._scrub, hold, gateway.stall_seconds)
        if recording is None and isinstance(channel, Same):
            self.drop(keeps_body=failover is not None)
        return Relay(
            reply,
            channel,
            self.record,
            deadline=self.request.deadline,
            on_end=self.end,
            frame=self._frame,
            recording=recording,
            failover=failover,
        )

    def _channel(
        self, reply: StreamReply, continuation: Continuation | None, recording: AnswerKeeper | None
    ) -> Channel:
        """The way of the answer to the client."""
        frame, record, prepared = self._frame, self.record, self.current
        frame.model = self.answer_model

        def translate() -> Translate:
            restorer = CallRestorer(self.parsed_request)
            return Translate(
                frame,
                record,
                self._scrub,
                None if restorer.is_noop else restorer,
                answer_id=self._new_id(),
                hides_usage=self.endpoint.format in USAGE_ON_REQUEST and not self.requests_usage,
                settings=self._repeated_settings(),
                calls=EmbeddedCalls(prepared.tools) if prepared.tools else None,
                recording=recording,
                continuation=continuation,
            )

        passes = prepared.passes_answer and reply.reader.is_event_stream and recording is None
        if not passes or (continuation is not None and self.endpoint.format not in _RESUMABLE):
            return translate()
        return Same(
            frame,
            record,
            self._scrub,
            hides_usage=prepared.hides_usage,
            continuation=continuation,
            translate=translate,
        )

    def _scrub(self, error: ProviderError) -> ProviderError:
        """The error without the secrets of the provider that answers now."""
        return self.current.provider.scrub(error)
