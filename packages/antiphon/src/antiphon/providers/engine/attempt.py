"""`UpstreamRequest`: a request prepared for one provider; and `UpstreamAttempt`: sending it once, and judging the response.

An error status, a broken connection, an HTML page, an unreadable or empty answer: each ends an attempt as a `ProviderError`. A
streamed response is held until its first visible delta; a whole one until it was read. A `ForwardedRequest` is any other request
to a provider: its response is passed on unread.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import cache, partial
from time import monotonic
from types import MappingProxyType
from typing import Any, ClassVar
from urllib.parse import urljoin, urlsplit

from msgspec import Struct, structs

from antiphon.errors import CredentialError, TransportError, WireError
from antiphon.http.body import BodyTooLong, read_bounded, read_error
from antiphon.http.client.request import HttpRequest, HttpResponse
from antiphon.parts import TokenUsage
from antiphon.providers.call import Attempt, CallReport
from antiphon.providers.engine.provider import Provider
from antiphon.providers.engine.reply import (
    EMPTY_RESPONSE,
    Outcome,
    Reply,
    ResponseReader,
    StreamReply,
    UpstreamFailed,
    WholeReply,
    error_from_credential,
    error_from_status,
    error_from_transport,
    read_whole,
    retry_after,
)
from antiphon.providers.keys.ring import KeyLease
from antiphon.wire import Format
from antiphon.wire.delta import Assembler, Failed, Finished, ModelOutputDelta, PartStarted, is_visible
from antiphon.wire.output import NOT_AN_ANSWER, ModelOutput, ProviderError
from antiphon.wire.tools.call_restorer import CallRestorer

_MAX_RESPONSE_BYTES = 256 * 1024 * 1024
_FIRST_EVENTS_BYTES = 1024
_REQUEST_ID_ORDER = (
    "x-request-id",
    "request-id",
    "apim-request-id",
    "x-ms-request-id",
    "x-goog-request-id",
    "x-tt-logid",
)
_REQUEST_IDS = frozenset(_REQUEST_ID_ORDER)

_SHOWN: dict[str, Callable[[bytes], Any]] = {
    "openai-chat": re.compile(rb'"content"\s*:\s*"[^"]|"tool_calls"\s*:\s*\[\s*\{').search,
    "anthropic": re.compile(rb'"text"\s*:\s*"[^"]|"type"\s*:\s*"tool_use"').search,
}
"""What proves that a whole body shows something. Formats that are missing are read whole in any case."""


class ErrorResponse(Struct, frozen=True):
    """A response with an error status, as the provider wrote it."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class UpstreamRequest(Struct):
    """A request for `model` at a provider, which may be sent several times."""

    first_error: ClassVar[int] = 300
    """From this status on a response is an error."""
    takes_keys_in_order: ClassVar[bool] = False
    """Whether the first usable key is taken, and not the next one in turn."""
    provider: Provider
    model: str
    url: str
    body: Sequence[bytes]
    headers: Mapping[str, str] | None = None
    streams: bool = True
    assembles: bool = False
    """Whether a whole answer is wanted of a host that only streams: the stream is read to its end."""
    holds: bool = True
    """Whether a stream is held until its first visible delta; otherwise it is passed on from its head on."""
    read: Callable[[bytes], Any] | None = None
    """Reads a whole body. Raises `WireError` if it is not an answer, and `UpstreamFailed` if it is an unusable one."""
    restorer: CallRestorer | None = None
    answer_format: Format | None = None
    """The format of the answer, if it is not the provider's own."""
    preferred_key: str = ""
    """The name of the key to begin with, because what the request refers to belongs to it."""
    last_error: ErrorResponse | None = None
    """The last response with an error status."""

    @property
    def is_repeatable(self) -> bool:
        """Whether it may be sent again: repeating it is harmless."""
        return True

    def attempt(self, lease: KeyLease | None, time_left: float | None, report: CallReport) -> UpstreamAttempt:
        """Another attempt with this key."""
        provider = self.provider
        headers: Mapping[str, str] = provider.headers
        if lease is not None:
            headers = provider.keyed_headers.get(lease.secret) or provider.with_key(lease.secret)
        if self.headers:
            headers = {**headers, **self.headers}
        timeouts = provider.timeouts
        request = HttpRequest(
            url=self.url,
            headers=headers,
            body=self.body,
            timeouts=timeouts if time_left is None else structs.replace(timeouts, total=time_left),
            is_whole=not self.streams and not self.assembles,
        )
        return UpstreamAttempt(
            self, request, lease, report, provider, self.answer_format or provider.wire, provider.clock()
        )


class ForwardedRequest(UpstreamRequest):
    """Any request to a provider, with a `method` and `headers` of its client's own, whose response is passed on as it comes.

    Redirects too. Its keys are taken in order, because files belong to the account of a key. `stream` is a body that is sent
    while it arrives, of `stream_length` bytes if that is known; it cannot be sent again.
    """

    first_error: ClassVar[int] = 400
    takes_keys_in_order: ClassVar[bool] = True
    method: str = "POST"
    stream: AsyncIterator[bytes] | None = None
    stream_length: int | None = None
    holds: bool = False

    @property
    def is_repeatable(self) -> bool:
        return self.stream is None and self.method in ("GET", "HEAD")

    def attempt(self, lease: KeyLease | None, time_left: float | None, report: CallReport) -> UpstreamAttempt:
        """Another attempt with this key."""
        attempt = super().attempt(lease, time_left, report)
        headers = dict(attempt.request.headers)
        if "content-type" not in (self.headers or {}):
            headers.pop("content-type", None)
        attempt.request = structs.replace(
            attempt.request, method=self.method, headers=headers, stream=self.stream, stream_length=self.stream_length
        )
        return attempt


class UpstreamAttempt(Struct, eq=False):
    """One attempt. `status` and `headers` are set once the response head has arrived, `error` if it failed."""

    prepared: UpstreamRequest
    request: HttpRequest
    lease: KeyLease | None
    report: CallReport
    provider: Provider
    wire: Format
    started_at: float
    status: int | None = None
    headers: Mapping[str, str] = MappingProxyType({})
    error: ProviderError | None = None
    should_retry: str | None = None
    """The provider's own advice (`x-should-retry`), once it failed."""
    index: int | None = None
    """The place of its record in the report."""

    async def run(self) -> Outcome:
        """Send it, and read the response as far as it has to be judged: the reply, and why it is not an answer."""
        prepared, provider, began = self.prepared, self.provider, monotonic()
        response: HttpResponse | None = None
        reply: WholeReply | StreamReply | None = None
        problem: ProviderError | None = None
        try:
            if provider.authentication is None:
                response = await provider.transport.send(self.request)
            else:
                key = None if self.lease is None else self.lease.secret
                response = await provider.authentication.send(self.request, key)
            self.status, self.headers = response.status, response.headers
            if not 200 <= response.status < prepared.first_error:
                problem = await self._read_error(response)
            elif prepared.streams:
                started = StreamReply(ResponseReader(self.wire), response, response, self, prepared.restorer)
                if prepared.holds:
                    await _read_until_visible(started)
                reply, problem = started, started.problem
            elif prepared.assembles:
                reply = await self._assembled(response)
            else:
                reply = WholeReply(await read_bounded(response, _MAX_RESPONSE_BYTES))
        except TransportError as lost:
            problem = error_from_transport(lost) if response is None else error_from_transport(lost, "stream_cut")
        except UpstreamFailed as failure:
            problem = failure.error
        except CredentialError as none:
            problem = error_from_credential(none, "no_token")
        except BaseException:
            self.close()
            if response is not None:
                response.abort()
            raise
        finally:
            self.report.waiting_seconds += monotonic() - began
        if isinstance(reply, WholeReply) and not prepared.assembles:  # our own work, not a wait
            problem = self._judge(reply)
        return reply, problem

    def _judge(self, reply: WholeReply) -> ProviderError | None:
        """Why a whole body is not an answer; None if it is one, and then its content is read."""
        data, read = reply.body, self.prepared.read
        is_object = data[:1] == b"{" and b'"error"' not in data[:2048]
        if (not is_object or len(data) < 8) and data.strip() == b"{}":
            return EMPTY_RESPONSE
        if not is_object:  # does not look like an answer: parse it
            last = read_whole(self.wire, data)[-1]
            if isinstance(last, Failed):
                return last.error
        if read is None:
            return None
        try:
            reply.content = read(data)
        except UpstreamFailed as failure:
            return failure.error
        except WireError as error:
            message = f"invalid response from provider {self.provider.name}: {error}"
            return ProviderError(message, "server", code=NOT_AN_ANSWER)
        return None

    def succeeded(self, reply: Reply) -> None:
        """The provider answered. A stream may have failed in the bytes that brought its first visible delta."""
        if isinstance(reply, StreamReply) and reply.deltas and isinstance(reply.deltas[-1], Failed):
            self.failed(reply.deltas[-1].error)
            return
        if self.lease is not None:
            self.lease.succeeded()
        self._record()

    def failed(self, error: ProviderError) -> ProviderError:
        """Report the failure to the key, once. The error comes back without secrets, with the delay the provider asks for."""
        if self.error is not None:
            return self.error
        self.should_retry = self.headers.get("x-should-retry")
        delay = retry_after(self.headers, error) if self.status is not None else None
        error = error if delay is None else structs.replace(error, retry_after=delay)
        self.error = error = self.provider.scrub(error)
        if self.lease is not None:
            self.lease.failed(error, is_scrubbed=True)
        self._record()
        return error

    def close(self) -> None:
        """The attempt is over. No effect on the key after `succeeded` or `failed`."""
        if self.lease is not None:
            self.lease.release()
        self._record()

    def _record(self) -> None:
        """Write the attempt into the report, or renew its record."""
        provider, lease, attempts = self.provider, self.lease, self.report.attempts
        record = Attempt(
            provider=provider.name,
            model=self.prepared.model,
            credential="" if lease is None else lease.name,
            status=self.status,
            seconds=provider.clock() - self.started_at,
            error=self.error,
        )
        if self.index is not None:
            attempts[self.index] = record
            return
        for resend in self.request.resends:  # requests that the host got, too
            attempts.append(structs.replace(record, status=None, seconds=0.0, error=error_from_transport(resend)))
        self.index = len(attempts)
        attempts.append(record)
        if not _REQUEST_IDS.isdisjoint(self.headers):
            named = next(name for name in _REQUEST_ID_ORDER if name in self.headers)
            self.report.provider_request_id = self.headers[named]

    async def _read_error(self, response: HttpResponse) -> ProviderError:
        """The error that a response with an error status, or a redirect, contains."""
        request, status = self.request, response.status
        if 300 <= status < 400:
            response.abort()
            try:
                target = urlsplit(urljoin(request.url, response.headers.get("location", "")))
                place = f"{target.scheme}://{target.netloc.rpartition('@')[2]}{target.path}"
            except ValueError:
                place = "an invalid URL"
            return ProviderError(
                f"{request.host} redirects to {place}; keys are not sent there; if it is correct, use it as the base URL",
                "not_found",
                status,
                "redirected",
            )
        body = await read_error(response)
        self.prepared.last_error = ErrorResponse(status, response.headers, body)
        return error_from_status(self.wire, status, body)

    async def _assembled(self, response: HttpResponse) -> WholeReply:
        """The answer in a stream. Nothing of it was shown, so an error anywhere in it may be followed by another attempt."""
        reply = StreamReply(ResponseReader(self.wire), response, _limited(response, _MAX_RESPONSE_BYTES))
        assembler, has_visible = Assembler(), False
        async with aclosing(reply.batches()) as batches:
            async for batch in batches:
                has_visible = has_visible or any(map(is_visible, batch))
                for delta in batch:
                    assembler.add(delta)
        error = assembler.error if has_visible or assembler.error is not None else EMPTY_RESPONSE
        if error is not None:
            raise UpstreamFailed(error)
        return WholeReply(b"", assembler.output)


async def _read_until_visible(reply: StreamReply) -> None:
    """Read a stream up to its first visible delta, or its end."""
    reader, body = reply.reader, reply.pieces
    has_visible = False
    while not reader.is_finished and not has_visible:
        try:
            piece, reply.unread = _first_events(reply.unread or await anext(body))
        except StopAsyncIteration:
            fresh: list[ModelOutputDelta] = _whole_or_failed(reader.close())
        except TransportError as error:
            fresh = _whole_or_failed(reader.close(error))
        else:
            reply.held.append(piece)
            fresh = reader.feed(piece)
        reply.deltas += fresh
        has_visible = any(map(is_visible, fresh))


def _whole_or_failed(deltas: list[ModelOutputDelta]) -> list[ModelOutputDelta]:
    """What the end of a body brought. An event that was cut there is no answer: nothing was passed on, so it may be retried."""
    return deltas[-1:] if isinstance(deltas[-1], Failed) else deltas


def _first_events(piece: bytes) -> tuple[bytes, bytes]:
    """The first events of a piece, and the rest: the first ones are enough to find a visible delta."""
    end = piece.find(b"\n\n", _FIRST_EVENTS_BYTES) + 2
    return (piece, b"") if end < _FIRST_EVENTS_BYTES else (piece[:end], piece[end:])


async def _limited(body: AsyncIterator[bytes], max_bytes: int) -> AsyncIterator[bytes]:
    """A body as it arrives. Raises `BodyTooLong`."""
    size = 0
    async for piece in body:
        size += len(piece)
        if size > max_bytes:
            raise BodyTooLong("the response is too long", "connection_lost")
        yield piece


@cache
def whole_reader(wire: Format, is_passed_on: bool) -> Callable[[bytes], Any]:
    """How a whole answer is read: its usage where it is passed on, all of it where it is translated."""
    return partial(read_passed_on if is_passed_on else read_translated, wire)


def read_passed_on(wire: Format, body: bytes) -> TokenUsage | None:
    """The usage of an answer that is passed on. Raises `WireError`, and `UpstreamFailed` if the answer is empty."""
    shown = _SHOWN.get(wire.name)
    if shown is not None and shown(body):
        return wire.scan_usage(body)
    return read_translated(wire, body).usage


def read_translated(wire: Format, body: bytes) -> ModelOutput:
    """An answer. Raises `WireError`, and `UpstreamFailed` if it is empty: another attempt may bring one."""
    output = wire.read_response(body)
    for answer in (output, *output.others):
        if is_visible(Finished(answer.stop_reason)) or any(is_visible(PartStarted(0, part)) for part in answer.parts):
            return output
    raise UpstreamFailed(EMPTY_RESPONSE)
