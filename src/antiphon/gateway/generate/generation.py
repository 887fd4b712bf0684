"""`Generation`: one request for an answer, from the client's bytes to the client's bytes.

    read -> route -> repair -> write for the target -> ask -> back in the client's format

Repair happens here, once, and nowhere downstream (seed 001). Where the target speaks the client's format and nothing had to be
repaired, the body is sent as it came but for the model's name; otherwise it is written anew in the target's format, with a list
of what could not be said. Targets are tried in order: what fails before anything was shown goes to the next, if that may help.

Of a body that will be passed on as it came only the order is read (`Format.scan_request`); the whole is read once needed
(`neutral`): because the outline is not legal, the target speaks another format, or the first one failed.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct, structs

from antiphon.errors import AntiphonError, InvalidModelName, RoutingError, UnknownResponse, WireError
from antiphon.gateway.context import Asked
from antiphon.gateway.endpoints.models import listed_models, unknown_model
from antiphon.gateway.endpoints.response_store import refusal, wants_keeping
from antiphon.gateway.generate.charging import prompt_estimate
from antiphon.gateway.generate.encoders import (
    ArrayVoice,
    KeepingVoice,
    SameVoice,
    TranslatedVoice,
    UsageHidingVoice,
    Voice,
)
from antiphon.gateway.generate.offline import OfflineUpstream
from antiphon.gateway.generate.prepare import asking_for_usage, asks_for_usage, with_model
from antiphon.gateway.generate.relay import relayed
from antiphon.gateway.generate.upstream import StreamReply, Upstream, UpstreamFailed, WholeReply
from antiphon.gateway.generate.usage_scanner import Skimmer
from antiphon.gateway.http.errors import passed_on, refused
from antiphon.gateway.http.messages import Answer, header_text
from antiphon.gateway.observe.request_trace import Passage
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

_FORWARDED = frozenset({"anthropic-version", "anthropic-beta", "openai-beta"})
"""Headers of a client that go to an upstream of the same format: they say how the body is to be read."""
_STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}
_ARRAY_HEADERS = {**_STREAM_HEADERS, "content-type": "application/json; charset=utf-8"}
_UNPROCESSABLE = 422
_MOST_TOLD = 900
_RESPONSES = "openai-responses"

logger = logging.getLogger("antiphon.gateway")

AnyUpstream: TypeAlias = Upstream | OfflineUpstream


class _Identified(Struct):
    id: str


class Prepared(Struct, frozen=True):
    """A request as one target gets it."""

    target: Target
    upstream: AnyUpstream
    body: list[bytes]
    is_same: bool
    is_untouched: bool
    repairs: list[Action]
    losses: list[Loss]
    hides_usage: bool = False
    """Whether the stream reports usage that the client did not ask for."""


class Generation:
    """One request for an answer. `finished` hears of the passage when it is over."""

    def __init__(self, asked: Asked, finished: Callable[[Passage, Asked], None]) -> None:
        self._asked_for = asked
        self._running = asked.running
        self._services = asked.services
        self._request = request = asked.request
        self._door = door = asked.door
        self._key = key = asked.key
        self._finished = finished
        self._wire = formats[door.format]
        self._outline: ModelRequest | None = None
        self._whole_request: ModelRequest | None = None
        self._is_metered = key.tokens_per_minute is not None
        self._may_ask_for_usage = True
        self._passage = Passage(
            request_id=request.request_id,
            client_format=door.format,
            key=key.name,
            is_metered=self._is_metered,
            prompt_estimate=prompt_estimate(request.body) if self._is_metered else 0,
        )

    async def answer(self) -> Answer:
        """What the client gets."""
        try:
            answer = await self._answered()
        except BaseException as error:
            self._end(self._passage.status_after(error, self._request.deadline))
            raise
        if isinstance(answer.body, bytes):
            self._end(answer.status)
        return answer

    async def _answered(self) -> Answer:
        passage = self._passage
        try:
            if self._door.format in self._running.formats:
                self._outline = self._wire.scan_request(self._request.body)
            seen = self._outline or self.neutral
            model = seen.model
            passage.streams = bool(seen.stream)
            check_model_name(model)
            passage.asked = model
            if not model:
                return self._refused(ProviderError("the request names no model", "invalid_request", param="model"))
            if not self._key.may_use(model):
                allowed = ", ".join(self._key.models)
                return self._refused(
                    ProviderError(f"this key may not use {model!r}; it may use {allowed}", "permission")
                )
            return await self._asked(self._running.targets(model))
        except WireError as error:
            return self._refused(ProviderError(str(error), "invalid_request"))
        except InvalidModelName as error:
            return self._refused(ProviderError(str(error), "invalid_request", param="model"))
        except RoutingError:
            listed = listed_models(self._running.routes, self._key.may_use)
            return self._refused(unknown_model(passage.asked, listed))
        except UnknownResponse as unknown:
            return self._refused(refusal(unknown))

    @property
    def neutral(self) -> ModelRequest:
        """The request in neutral terms, read when it is first asked for. Raises `WireError`."""
        if self._whole_request is None:
            request = self._wire.read_request(self._request.body)
            door = self._door
            if door.format == "gemini":
                request = structs.replace(request, model=door.name, stream=door.streams)
            self._whole_request = request
        return self._whole_request

    async def _asked(self, targets: list[Target]) -> Answer:
        """Ask the targets in order until one answers."""
        passage = self._passage
        is_rewritten = False
        tried = targets
        while True:
            target, *others = targets
            prepared = (None if is_rewritten else self._untouched(target)) or await self._prepared(
                target, is_rewritten=is_rewritten
            )
            passage.provider, passage.model = target.provider, target.model
            passage.upstream_format = prepared.upstream.format
            passage.repairs, passage.losses = prepared.repairs, prepared.losses
            if self._key.strict and (prepared.repairs or prepared.losses):
                return self._too_strict(prepared)
            try:
                began = time.monotonic()
                try:
                    reply = await prepared.upstream.ask(
                        target.model,
                        prepared.body,
                        streams=passage.streams,
                        headers=self._forwarded(prepared.upstream),
                        attempts=passage.attempts,
                    )
                finally:  # what follows is our own time
                    passage.waited += time.monotonic() - began
                passage.error = None
                if isinstance(reply, StreamReply):
                    return self._streamed(reply, prepared)
                if prepared.is_same:
                    return self._passed(reply, prepared)
                return await self._translated(reply, prepared)
            except UpstreamFailed as failure:
                passage.error = failure.error
                if prepared.hides_usage and _refuses_stream_options(failure.error):
                    self._may_ask_for_usage = False
                    continue
                if self._is_refused_as_it_came(failure.error, prepared):
                    is_rewritten = True
                    continue
                targets = fallback_targets(failure.error, target, others)
                if not targets:
                    error = self._running.with_applied_wait(failure.error, tried)
                    return self._told(passed_on(self._door.format, error, target.provider))

    def _is_refused_as_it_came(self, error: ProviderError, prepared: Prepared) -> bool:
        """Whether a body that passed untouched was refused for what writing it anew mends: looked at only then."""
        if not prepared.is_untouched or error.kind != "invalid_request":
            return False
        return self._is_mendable(prepared.upstream, prepared.body[0], prepared.target.model)

    def _is_mendable(self, upstream: AnyUpstream, body: bytes, model: str) -> bool:
        """Whether a body breaks rules of its API, and may be written anew."""
        if not self._running.config.gateway.repair or self._key.strict:
            return False
        named: dict[str, Any] = {"model": model} if upstream.format == "gemini" else {}  # elsewhere the body names it
        return bool(upstream.wire.check_request(body, **named))

    def _untouched(self, target: Target) -> Prepared | None:
        """The body as it came, where its outline says that nothing is to be done to it."""
        outline, upstream = self._outline, self._running.upstreams[target.provider]
        if outline is None or target.model != outline.model or upstream.format != self._door.format:
            return None
        if not upstream.takes_bodies_as_they_are:
            return None
        if self._running.config.gateway.repair and not is_legal(outline.messages, upstream.wire.module.sequence_rule):
            return None
        return self._as_it_came(target, upstream, self._request.body)

    def _as_it_came(self, target: Target, upstream: AnyUpstream, body: bytes) -> Prepared:
        """A body that needs no writing. Where tokens are charged, it asks for usage if the client did not."""
        hides_usage = self._is_metered and self._lacks_usage(upstream)
        body = asking_for_usage(body) if hides_usage else body
        return Prepared(target, upstream, [body], True, True, [], [], hides_usage)

    def _lacks_usage(self, upstream: AnyUpstream) -> bool:
        """Whether the usage of a stream has to be asked for, can be, and the client did not."""
        is_chat = self._door.format == upstream.format == "openai-chat" and self._passage.streams
        if not is_chat or not self._may_ask_for_usage or not upstream.reports_stream_usage:
            return False
        return not asks_for_usage(self._request.body)

    async def _prepared(self, target: Target, *, is_rewritten: bool) -> Prepared:
        neutral, upstream = self.neutral, self._running.upstreams[target.provider]
        request = await self._expanded(neutral, upstream)
        losses: list[Loss] = []
        if self._running.config.gateway.fetch_media:
            request, losses = await self._services.media.inline(request, _wants_inline(upstream))
        repairs: list[Action] = []
        mended = request
        if self._running.config.gateway.repair:
            mended, repairs = repair(request, upstream.format, request_id=self._request.request_id)
        is_same = upstream.format == self._door.format
        if is_same and mended is neutral and upstream.takes_bodies_as_they_are and not is_rewritten:
            body = self._body_as_it_came(neutral, target)
            # made for one model, given to another: what the one takes the other may refuse
            if target.model == neutral.model or not self._is_mendable(upstream, body, target.model):
                return self._as_it_came(target, upstream, body)
        named = structs.replace(mended, model=target.model)
        data, lost = upstream.wire.encode_request(named, **upstream.wire_options)
        return Prepared(
            target, upstream, [data], is_same, False, repairs, losses + lost, is_same and self._lacks_usage(upstream)
        )

    async def _expanded(self, neutral: ModelRequest, upstream: AnyUpstream) -> ModelRequest:
        """The request with what it goes on from, where the upstream does not keep that itself."""
        if self._door.format != _RESPONSES:
            return neutral
        try:
            return await asyncio.to_thread(self._services.state.expand, neutral, owner=self._key.name)
        except UnknownResponse as error:
            # The future keeps the error that it carried, and a traceback would keep this request: a copy is raised instead.
            error.__traceback__ = None
            if upstream.format == _RESPONSES:
                return neutral  # it may be the upstream's own
            raise copy.copy(error) from None

    def _body_as_it_came(self, neutral: ModelRequest, target: Target) -> bytes:
        """The client's own bytes; if the target has another name for the model, with that name."""
        body = self._request.body
        if self._door.format == "gemini" or target.model == neutral.model:
            return body
        return with_model(body, target.model)

    def _forwarded(self, upstream: AnyUpstream) -> dict[str, str]:
        headers = self._request.headers
        if upstream.format != self._door.format or _FORWARDED.isdisjoint(headers):
            return {}
        return {name: headers[name] for name in _FORWARDED & headers.keys()}

    def _passed(self, reply: WholeReply, prepared: Prepared) -> Answer:
        """The upstream's own answer, of which only what it cost is read."""
        try:
            self._passage.usage = prepared.upstream.wire.scan_usage(reply.body)
        except WireError as error:
            raise self._unreadable(error, prepared) from None
        self._passage.output_bytes = len(reply.body)
        return self._told(Answer(headers={"content-type": "application/json"}, body=reply.body))

    def _unreadable(self, error: WireError, prepared: Prepared) -> UpstreamFailed:
        """The failure of a provider whose answer cannot be read: nothing was shown, so the next target may be asked."""
        message = f"the provider {prepared.target.provider} gave an answer that cannot be read: {error}"
        failed = prepared.upstream.scrub(ProviderError(message, "server", code=NOT_AN_ANSWER))
        self._passage.fail_attempt(failed)
        return UpstreamFailed(failed)

    async def _translated(self, reply: WholeReply, prepared: Prepared) -> Answer:
        passage = self._passage
        try:
            output = prepared.upstream.wire.read_response(reply.body)
        except WireError as error:
            raise self._unreadable(error, prepared) from None
        passage.usage, passage.output_bytes = output.usage, len(reply.body)
        neutral = self.neutral
        restored = structs.replace(
            CallRestorer(neutral).output(output), model=neutral.model, id=self._new_id(output.id)
        )
        body, losses = self._wire.encode_response(restored)
        passage.losses = [*passage.losses, *filter(_is_of_the_answer, losses)]
        if self._keeps(prepared):
            await self._keep(neutral, restored, body)
        return self._told(Answer.json(body))

    def _streamed(self, reply: StreamReply, prepared: Prepared) -> Answer:
        asked = self._passage.asked
        voice: Voice
        if prepared.is_same and reply.is_event_stream:
            voice = (UsageHidingVoice if prepared.hides_usage else SameVoice)(self._wire, asked)
            if not self._is_metered and any(map(is_visible, reply.deltas)):
                reply.reader = Skimmer.of(reply.reader, self._wire.name, b"".join(reply.held))
        else:
            hides_usage = self._door.format == "openai-chat" and not asks_for_usage(self._request.body)
            voice = TranslatedVoice(
                self._wire, asked, CallRestorer(self.neutral), self._new_id, hides_usage=hides_usage
            )
        headers = _STREAM_HEADERS
        if self._door.format == "gemini" and self._request.query.get("alt") != "sse":
            voice, headers = ArrayVoice(voice), _ARRAY_HEADERS
        prepared.body.clear()  # nothing is sent again from here on
        if prepared.is_same:
            self._outline = self._whole_request = None
        pieces = self._relayed(reply, voice, prepared)
        return self._told(Answer(headers=dict(headers), body=pieces, on_client_wait=self._passage.client_waited))

    async def _relayed(self, reply: StreamReply, voice: Voice, prepared: Prepared) -> AsyncGenerator[bytes, None]:
        keeping = KeepingVoice(voice) if self._keeps(prepared) else None
        pieces = relayed(
            reply,
            keeping or voice,
            self._passage,
            scrub=prepared.upstream.scrub,
            keep_alive=self._running.config.gateway.keep_alive_seconds,
        )
        status = 200
        try:
            async for piece in pieces:
                yield piece
            if keeping is not None and keeping.body:
                await self._keep(self.neutral, CallRestorer(self.neutral).output(keeping.output), keeping.body)
        except BaseException as error:
            status = self._passage.status_after(error, self._request.deadline)
            raise
        finally:
            await pieces.aclose()
            self._passage.losses = [*self._passage.losses, *filter(_is_of_the_answer, voice.losses)]
            self._end(status)

    def _new_id(self, given: str) -> str:
        """The id of an answer: the upstream's, but where it is looked up by id here it must be like no other."""
        return f"resp_{new_id()}" if self._door.format == _RESPONSES else given

    def _keeps(self, prepared: Prepared) -> bool:
        """Whether the answer is kept here for the requests that go on from it."""
        return self._door.format == _RESPONSES and not prepared.is_same and wants_keeping(self.neutral)

    async def _keep(self, neutral: ModelRequest, output: ModelOutput, body: bytes) -> None:
        try:
            response_id = str(msgspec.json.decode(body, type=_Identified).id)
            await asyncio.to_thread(
                self._services.state.keep, response_id, neutral, output, owner=self._key.name, body=body
            )
        except (AntiphonError, msgspec.DecodeError):
            logger.exception("an answer could not be kept; who goes on from it will not find it")

    def _too_strict(self, prepared: Prepared) -> Answer:
        """The answer of a strict key: what would have been done, and was not."""
        what = [f"repair: {action}" for action in prepared.repairs] + [f"loss: {loss}" for loss in prepared.losses]
        message = f"this key is strict, and the request cannot be passed on as it is: {'; '.join(what)}"
        error = ProviderError(message, "invalid_request", code="strict")
        self._passage.error = error
        return self._told(refused(self._door.format, error, status=_UNPROCESSABLE))

    def _refused(self, error: ProviderError) -> Answer:
        self._passage.error = error
        return refused(self._door.format, error)

    def _told(self, answer: Answer) -> Answer:
        """The answer with word of what was done to the request."""
        passage = self._passage
        if passage.repairs:
            answer.headers["x-antiphon-repairs"] = _listed([action.kind for action in passage.repairs])
        if passage.losses:
            answer.headers["x-antiphon-losses"] = _listed([f"{loss.path} {loss.what}" for loss in passage.losses])
        if passage.provider:
            answer.headers["x-antiphon-target"] = header_text(f"{passage.provider}/{passage.model}")
        return answer

    def _end(self, status: int) -> None:
        passage = self._passage
        if passage.ended is None:
            passage.status, passage.ended = status, time.monotonic()
            self._finished(passage, self._asked_for)


def _refuses_stream_options(error: ProviderError) -> bool:
    """Whether a host does not know how to report the usage of a stream."""
    told = f"{error.param} {error.message}"
    return error.kind == "invalid_request" and ("stream_options" in told or "include_usage" in told)


def _is_of_the_answer(loss: Loss) -> bool:
    """Whether a loss is of what the model said. What a provider repeats of the request, and when it answered, is not."""
    return loss.path.startswith(("parts", "others", "stop", "usage"))


def _wants_inline(upstream: AnyUpstream) -> Callable[[Part], bool]:
    """Which media the upstream takes only as data."""
    if upstream.format == "gemini":
        return lambda part: isinstance(part, Image | Audio | Document)
    if upstream.format == "openai-chat":
        return lambda part: isinstance(part, Audio | Document)
    return lambda part: isinstance(part, Audio)


def _listed(told: list[str]) -> str:
    """How many, and which, as a header can say it."""
    return header_text(f"{len(told)}; {', '.join(dict.fromkeys(told))}")[:_MOST_TOLD]
