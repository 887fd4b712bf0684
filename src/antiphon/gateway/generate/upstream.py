"""`Upstream`: a provider as the gateway sees it: a body goes there, and an answer that is known to be one comes back.

Several tries may be made before that: with another key where the key was refused, again where the moment was bad (the budgets
are `providers.retry`'s). A streamed answer is held until its first event that shows something: what fails before that, an
error inside a 200, a stream that is empty or cut, is a failure like any other and can still be mended here or by another
provider. One that thinks for longer than the hold is let through, and is the client's from then on.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import lru_cache
from random import random as any_fraction
from typing import Any, NoReturn, Protocol

from msgspec import Struct, structs

from antiphon.errors import TransportError
from antiphon.providers.call import Attempt
from antiphon.providers.credentials.pool import CredentialPool, Lease
from antiphon.providers.credentials.secret import read_headers, scrubbed
from antiphon.providers.engine.response_reader import AnswerReader, failure_of, read_whole, refusal_of
from antiphon.providers.engine.retry_after import retry_after
from antiphon.providers.presets import Preset
from antiphon.providers.retry import Course, RetryPolicy
from antiphon.providers.transport.request import HttpRequest, HttpResponse, Timeouts, Transport
from antiphon.wire import formats
from antiphon.wire.delta import Failed, ModelOutputDelta, is_visible
from antiphon.wire.openai_chat.dialects import DIALECTS
from antiphon.wire.output import ProviderError

_NOTHING = ProviderError("the provider ended its answer without having said anything", "stream_cut")
_READ_TO_BEGIN = 1024
_LONGEST_ERROR = 1024 * 1024
_LONGEST_WHOLE = 256 * 1024 * 1024
_MOST_ADDRESSES = 256  # clients choose the names of models where a route is a glob


class UpstreamFailed(Exception):
    """No try brought an answer. `error` is scrubbed of secrets."""

    def __init__(self, error: ProviderError) -> None:
        super().__init__(error.message)
        self.error = error


class WholeReply(Struct, frozen=True):
    """An answer that is all there."""

    body: bytes
    headers: Mapping[str, str]


class Reader(Protocol):
    """Who reads what goes on. `is_over` when the terminal delta was given."""

    @property
    def is_over(self) -> bool: ...
    def feed(self, data: bytes) -> list[ModelOutputDelta]: ...
    def close(self, trouble: TransportError | None = None) -> list[ModelOutputDelta]: ...


class StreamReply(Struct):
    """An answer that goes on. `held` are the bytes that were read so far, `deltas` what they said; `unread` came with them, and
    `pieces` gives the rest."""

    held: list[bytes]
    deltas: list[ModelOutputDelta]
    headers: Mapping[str, str]
    reader: Reader
    response: HttpResponse
    lease: Lease | None
    unread: bytes = b""

    @property
    def is_events(self) -> bool:
        """Whether it is a stream at all, and not one body."""
        return not isinstance(self.reader, AnswerReader) or self.reader.is_events

    @property
    def pieces(self) -> AsyncIterator[bytes]:
        """The bytes behind `held`. Waiting for the next may be cancelled, and nothing is lost."""
        return self.response.body

    async def aclose(self) -> None:
        """Let go of it; if it had not ended, its connection is closed at once."""
        if self.lease is not None:
            self.lease.release()
        await self.response.aclose()


class Upstream:
    """One provider. `pool` holds its keys (None: it takes none)."""

    def __init__(
        self,
        name: str,
        preset: Preset,
        base_url: str,
        *,
        pool: CredentialPool | None,
        transport: Transport,
        headers: Mapping[str, str],
        timeouts: Timeouts,
        retry: RetryPolicy,
        api_version: str = "",
        hold: float = 10.0,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.preset = preset
        self.format = preset.format
        self.wire = formats[preset.format]
        self.base_url = base_url
        self.pool = pool
        self.transport = transport
        values, self._header_secrets = read_headers(headers, environ)
        self._headers = {
            "content-type": "application/json",
            **{name.lower(): own for name, own in preset.headers},
            **values,
        }
        self._timeouts = timeouts
        self._retry = retry
        self.api_version = api_version
        self._hold = hold
        self._address = lru_cache(maxsize=_MOST_ADDRESSES)(self._made_address)

    @property
    def wire_options(self) -> dict[str, Any]:
        """What the writer of the format has to know of the host."""
        if self.format == "openai-chat":
            return {"dialect": self.preset.dialect or "compatible"}
        version = self._headers.get("anthropic-version")
        return {"version": version} if self.format == "anthropic" and version else {}

    @property
    def reports_stream_usage(self) -> bool:
        """Whether the usage of a stream can be asked for (`include_usage` of Chat Completions)."""
        dialect = DIALECTS.get(self.preset.dialect or "compatible")
        return self.format == "openai-chat" and dialect is not None and dialect.has_stream_options

    @property
    def takes_bodies_as_they_are(self) -> bool:
        """Whether a body of its format needs nothing done to it: the host speaks no dialect of its own."""
        return self.format != "openai-chat" or self.preset.dialect in (
            None,
            "",
            "openai",
            "azure",
            "compatible",
            "codebuddy",
        )

    async def ask(
        self,
        model: str,
        body: Sequence[bytes],
        *,
        streams: bool,
        headers: Mapping[str, str],
        attempts: list[Attempt],
        address: str | None = None,
    ) -> WholeReply | StreamReply:
        """Send a body and wait until there is an answer. Raises `UpstreamFailed`. `attempts` grows by every try."""
        course = Course(
            self._retry,
            self.pool,
            model,
            total=self._timeouts.total,
            clock=time.monotonic,
            fraction=any_fraction,
        )
        url = address or self._address(model, streams)
        while True:
            advice = None
            if course.begin():
                trial = _Try(self, course, streams=streams)
                reply = await trial.made(self._request(url, body, headers, course))
                advice = trial.advice
                attempts.append(trial.attempt(model))
                if reply is not None:
                    return reply
            delay = course.next_delay(advice)
            if delay is None:
                raise UpstreamFailed(course.final_error())
            if delay:
                await asyncio.sleep(delay)

    def scrubbed(self, error: ProviderError) -> ProviderError:
        """The error without any secret of ours."""
        return scrubbed(error, self.secrets)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must be seen nowhere: the keys, and headers that hold something secret."""
        return (*(self.pool.secrets if self.pool is not None else ()), *self._header_secrets)

    @property
    def hold(self) -> float:
        """How long a stream that shows nothing is held back, in seconds."""
        return self._hold

    def _made_address(self, model: str, streams: bool) -> str:
        url = self.preset.address(self.base_url, model, self.api_version)
        if self.format == "gemini" and not streams:
            return url.replace(":streamGenerateContent?alt=sse", ":generateContent")
        return url

    def _request(self, url: str, body: Sequence[bytes], headers: Mapping[str, str], course: Course) -> HttpRequest:
        sent = {**self._headers, **headers}
        if course.lease is not None:
            sent |= self.preset.credential_header(course.lease.secret)
        remaining = course.remaining()
        timeouts = self._timeouts if remaining is None else structs.replace(self._timeouts, total=remaining)
        return HttpRequest(url=url, headers=sent, body=body, timeouts=timeouts)


class _Try:
    """One request of a course."""

    def __init__(self, upstream: Upstream, course: Course, *, streams: bool) -> None:
        self.advice: str | None = None
        self._upstream = upstream
        self._course = course
        self._streams = streams
        self._status: int | None = None
        self._began = time.monotonic()

    async def made(self, request: HttpRequest) -> WholeReply | StreamReply | None:
        """The answer, or None: then the course knows the error."""
        lease = self._course.lease
        try:
            reply = await self._sent(request)
        except UpstreamFailed as failure:
            error = self._course.error = self._upstream.scrubbed(failure.error)
            if lease is not None:
                lease.failed(error)
            return None
        except BaseException:
            if lease is not None:
                lease.release()
            raise
        if lease is not None:
            lease.succeeded()
        return reply

    async def _sent(self, request: HttpRequest) -> WholeReply | StreamReply:
        try:
            response = await self._upstream.transport.send(request)
        except TransportError as trouble:
            raise UpstreamFailed(failure_of(trouble)) from None
        reply: WholeReply | StreamReply | None = None
        try:
            self._status = response.status
            self.advice = response.headers.get("x-should-retry")
            if 200 <= response.status < 300:
                reply = await (self._stream(response) if self._streams else self._whole(response))
            else:
                reply = await self._refused(response)
        except TransportError as trouble:
            raise UpstreamFailed(failure_of(trouble, "stream_cut")) from None
        except UpstreamFailed as failure:
            raise UpstreamFailed(_dated(failure.error, response.headers)) from None
        finally:
            if not isinstance(reply, StreamReply):
                await response.aclose()
        return reply

    def attempt(self, model: str) -> Attempt:
        course = self._course
        return Attempt(
            provider=self._upstream.name,
            model=model,
            credential=course.lease.name if course.lease is not None else "",
            status=self._status,
            seconds=time.monotonic() - self._began,
            error=course.error,
        )

    async def _refused(self, response: HttpResponse) -> NoReturn:
        raise UpstreamFailed(refusal_of(self._upstream.wire, response.status, await _error_body(response)))

    async def _whole(self, response: HttpResponse) -> WholeReply:
        data = await _read(response, _LONGEST_WHOLE)
        if data.strip() == b"{}":
            raise UpstreamFailed(_NOTHING)
        if data.lstrip()[:1] != b"{" or b'"error"' in data[:2048]:  # an answer begins otherwise: look closely
            last = read_whole(self._upstream.wire, data)[-1]
            if isinstance(last, Failed):
                raise UpstreamFailed(last.error)
        return WholeReply(data, response.headers)

    async def _stream(self, response: HttpResponse) -> StreamReply:
        reader = AnswerReader(self._upstream.wire)
        held: list[bytes] = []
        deltas: list[ModelOutputDelta] = []
        is_shown, unread = False, b""
        body = response.body
        with contextlib.suppress(TimeoutError):  # it thinks; from here on it is the client's
            async with asyncio.timeout(self._upstream.hold):
                while not reader.is_over and not is_shown:
                    try:
                        piece, unread = _begun(unread or await anext(body))
                        held.append(piece)
                        fresh = reader.feed(piece)
                    except StopAsyncIteration:
                        fresh = reader.close()
                    deltas += fresh
                    is_shown = any(map(is_visible, fresh))
        if reader.is_over and not is_shown:
            last = deltas[-1]
            raise UpstreamFailed(last.error if isinstance(last, Failed) else _NOTHING)
        return StreamReply(held, deltas, response.headers, reader, response, self._course.lease, unread)


def _begun(piece: bytes) -> tuple[bytes, bytes]:
    """The first events of a piece, and the others: to know that something is said, not everything need be read."""
    end = piece.find(b"\n\n", _READ_TO_BEGIN) + 2
    return (piece, b"") if end < _READ_TO_BEGIN else (piece[:end], piece[end:])


def _dated(error: ProviderError, headers: Mapping[str, str]) -> ProviderError:
    """The error with the wait that the provider asked for."""
    wait = retry_after(headers, error)
    return error if wait is None else structs.replace(error, retry_after=wait)


async def _error_body(response: HttpResponse) -> bytes:
    try:
        return await _read(response, _LONGEST_ERROR)
    except TransportError:
        return b""  # the status says enough


async def _read(response: HttpResponse, longest: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    async for piece in response.body:
        pieces.append(piece)
        size += len(piece)
        if size > longest:
            raise TransportError("the answer is longer than any answer may be", "connection_lost")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
