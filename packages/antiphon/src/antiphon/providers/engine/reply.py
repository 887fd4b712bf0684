"""What a call brings: a `WholeReply`, or a `StreamReply` that has begun and continues.

A stream counts as an answer from its first visible delta on (`wire.delta.is_visible`). What was read up to there is kept in the
reply, as bytes and as deltas: the gateway passes the bytes on, the library reads the deltas.

`ResponseReader` makes deltas of any response body. A stream was requested, but the first byte decides: an event stream, one
JSON body (from hosts that do not stream, or an error in a 200), or an HTML page (from a proxy, or a wrong URL). The last delta
is always terminal; `close` supplies it if the bytes do not.

`retry_after` finds how long a provider asks to wait. In order of trust: `retry-after-ms`; `retry-after` as seconds, a fraction
or a date; a delay in the error body (Google's `RetryInfo`, and fields of others); text such as "try again in 20s"; last, the
reset times of rate limits, which are when a limit is full again and not when the next call succeeds. A wait of 0 is ignored.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from typing import Any, Protocol, TypeAlias, cast

import msgspec
from msgspec import Struct, structs

from antiphon.errors import CredentialError, TransportError, WireError
from antiphon.http.client.request import HttpResponse
from antiphon.json_text import NOT_JSON
from antiphon.providers.keys.command import as_number, as_timestamp
from antiphon.wire import Format
from antiphon.wire.delta import (
    Failed,
    Finished,
    ModelOutputDelta,
    deltas_from_output,
    is_visible,
)
from antiphon.wire.errors import MAX_PAGE, page_text, page_title
from antiphon.wire.format import StreamReader
from antiphon.wire.output import NOT_AN_ANSWER, ErrorKind, ProviderError
from antiphon.wire.tools.call_restorer import CallRestorer

MAX_BODY_BYTES = 64 * 1024 * 1024
"""A longer body that is not streamed is an error."""
_BLANK = b" \t\r\n\xef\xbb\xbf"
_ENDS = (Finished, Failed)
_MAX_SUMMARY_CHARS = 200
_CUT = ProviderError("the response ended before it began", "stream_cut")
_TIMEOUTS = frozenset({"connect_timeout", "read_timeout", "total_timeout", "stalled"})
_STREAMS_JSON = frozenset({"gemini"})  # its streams may be one JSON array, which its reader handles


class ResponseReader:
    """Body bytes in, deltas out. `is_finished` after the terminal delta; `is_event_stream` unless it is something else."""

    def __init__(self, wire: Format) -> None:
        self.is_finished = False
        self.is_event_stream = True
        self._wire = wire
        self._stream: StreamReader | None = None
        self._whole: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[ModelOutputDelta]:
        """The deltas that these bytes complete."""
        if self._stream is not None:
            deltas = self._stream.feed(data)
            if deltas and type(deltas[-1]) in _ENDS:  # as in `_mark_finished`
                self.is_finished = True
            return deltas
        self._size += len(data)
        if self._size > MAX_BODY_BYTES:
            return self._mark_finished(
                [Failed(ProviderError("the response is too long", "server", code=NOT_AN_ANSWER))]
            )
        if not self._whole:
            data = data.lstrip(_BLANK)  # which may be sent to keep the connection alive
        if data:
            self._whole.append(data)
        first = self._whole[0][:1] if self._whole else b""
        self.is_event_stream = first not in (b"{", b"[", b"<", b'"')
        if not first or first in b'<"' or (first in b"{[" and self._wire.name not in _STREAMS_JSON):
            return []
        self._stream = self._wire.stream_reader()
        collected, self._whole = b"".join(self._whole), []
        return self._mark_finished(self._stream.feed(collected))

    def close(self, error: TransportError | None = None) -> list[ModelOutputDelta]:
        """The body ended, or `error` ended it: what was held back, and the terminal delta."""
        deltas = self._stream.close() if self._stream is not None else read_whole(self._wire, b"".join(self._whole))
        if not deltas or not isinstance(deltas[-1], Finished | Failed):
            deltas.append(Failed(_CUT))
        if error is not None and (isinstance(deltas[-1], Failed) or not self.is_event_stream):
            # One body is complete only if all of it came, however it reads; a stream says itself when it is complete.
            deltas = [delta for delta in deltas if not isinstance(delta, Finished | Failed)]
            deltas.append(Failed(error_from_transport(error, "stream_cut")))
        return self._mark_finished(deltas)

    def _mark_finished(self, deltas: list[ModelOutputDelta]) -> list[ModelOutputDelta]:
        if deltas and type(deltas[-1]) in _ENDS:
            self.is_finished = True
        return deltas


def read_whole(wire: Format, data: bytes) -> list[ModelOutputDelta]:
    """The deltas of a complete body; the last is terminal."""
    data = data.strip(_BLANK)
    if not data:
        return [Failed(_CUT)]
    if data.startswith(b"<"):
        return [Failed(ProviderError(html_summary(data, None), "server", code=NOT_AN_ANSWER))]
    try:
        body = msgspec.json.decode(data)
    except NOT_JSON:
        return [Failed(ProviderError("the response is not JSON", "server", code=NOT_AN_ANSWER))]
    if isinstance(body, dict) and not body.get("error"):
        try:
            return deltas_from_output(wire.read_response(body))
        except WireError:
            pass
    return [Failed(_error_in(wire, body))]


def _error_in(wire: Format, body: Any) -> ProviderError:
    """The error in a body with a success status."""
    error = wire.read_error(body)
    if error.kind != "unknown":
        return error
    is_error = isinstance(body, dict) and bool(body.get("error"))
    return structs.replace(error, kind="server", code=error.code if is_error else NOT_AN_ANSWER)


def error_from_transport(error: TransportError, otherwise: ErrorKind = "server") -> ProviderError:
    """A network error as a provider error."""
    return ProviderError(str(error), "timeout" if error.code in _TIMEOUTS else otherwise, code=error.code)


def error_from_credential(error: CredentialError, code: str) -> ProviderError:
    """That there is no key, or no token, as a provider error."""
    return ProviderError(str(error), cast(ErrorKind, error.kind), code=code, retry_after=error.retry_after)


def error_from_status(wire: Format, status: int, data: bytes) -> ProviderError:
    """The error in a body with an error status."""
    if data.lstrip(_BLANK).startswith(b"<"):
        return structs.replace(wire.read_error(b"", status), message=html_summary(data, status))
    return wire.read_error(data, status)


def html_summary(data: bytes, status: int | None) -> str:
    """One line about an HTML page."""
    page = data[:MAX_PAGE].decode("utf-8", "replace")
    text = (page_title(page) or page_text(page))[:_MAX_SUMMARY_CHARS]
    status_text = f" with status {status}" if status else ""
    return f"the host returned an HTML page{status_text}: {text or 'empty'}; check the base URL"


EMPTY_RESPONSE = ProviderError("provider returned an empty response", "stream_cut")
CUT_STREAM = ProviderError("the stream ended without a terminal event", "stream_cut")
_DRAIN_SECONDS = 0.1


class UpstreamFailed(Exception):
    """A call, or one attempt of it, brought no answer."""

    def __init__(self, error: ProviderError) -> None:
        super().__init__(error.message)
        self.error = error


class WholeReply(Struct):
    """A complete response. `content` is what `UpstreamRequest.read` made of the body."""

    body: bytes
    content: Any = None

    async def aclose(self) -> None:
        """Nothing is open."""


class StreamReply(Struct):
    """A response that continues. `held` are the bytes read so far and `deltas` their content; `unread` arrived with them, and
    `pieces` has the rest: the body of the response, which may be delivered by callbacks instead."""

    reader: ResponseReader
    response: HttpResponse
    pieces: AsyncIterator[bytes]
    """The bytes after `held` and `unread`. Cancelling a read loses nothing."""
    attempt: CallAttempt | None = None
    restorer: CallRestorer | None = None
    """Restores the tool names of the caller, in `batches`."""
    held: list[bytes] = []
    deltas: list[ModelOutputDelta] = []
    unread: bytes = b""

    @property
    def problem(self) -> ProviderError | None:
        """Why a stream that has ended is not an answer."""
        if not self.reader.is_finished or any(map(is_visible, self.deltas)):
            return None
        last = self.deltas[-1]
        return last.error if isinstance(last, Failed) else EMPTY_RESPONSE

    async def batches(self) -> AsyncGenerator[list[ModelOutputDelta], None]:
        """All deltas, in batches as their bytes arrived; the last of them is terminal. A failure is reported to the key."""
        reader, body = self.reader, self.pieces
        try:
            deltas, self.deltas = self.deltas, []
            if self.unread and not reader.is_finished:
                deltas = [*deltas, *reader.feed(self.unread)]
            while True:
                if deltas:
                    yield self._restored(deltas)
                if reader.is_finished:
                    break
                try:
                    deltas = reader.feed(await anext(body))
                except StopAsyncIteration:
                    deltas = reader.close()
                except TransportError as error:
                    deltas = reader.close(error)
            await _drain(body)
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Release it; closes the connection if the response had not ended."""
        if self.attempt is not None:
            self.attempt.close()
        self.response.abort()

    def release(self) -> None:
        """The attempt is over; the body is aborted by its receiver."""
        if self.attempt is not None:
            self.attempt.close()

    def _restored(self, deltas: list[ModelOutputDelta]) -> list[ModelOutputDelta]:
        last = deltas[-1]
        if isinstance(last, Failed) and self.attempt is not None:
            deltas[-1] = Failed(self.attempt.failed(last.error))
        if self.restorer is None:
            return deltas
        return [restored for delta in deltas for restored in self.restorer.delta(delta)]


class DeltaReply(Protocol):
    """A reply that the library reads."""

    def batches(self) -> AsyncGenerator[list[ModelOutputDelta], None]: ...
    async def aclose(self) -> None: ...


Reply: TypeAlias = WholeReply | StreamReply | DeltaReply
Outcome: TypeAlias = tuple[Reply | None, ProviderError | None]
"""Of an attempt: a reply, and why it is not an answer. There is no reply without an error."""


class CallAttempt(Protocol):
    """One attempt of a call. It writes itself into the report."""

    @property
    def should_retry(self) -> str | None: ...
    async def run(self) -> Outcome:
        """The reply and why it is not an answer. The time that it waited is in the report."""

    def succeeded(self, reply: Reply) -> None: ...
    def failed(self, error: ProviderError) -> ProviderError: ...
    def close(self) -> None: ...


async def _drain(body: AsyncIterator[bytes]) -> None:
    """Read the rest if it arrives at once, so that the connection can be reused; otherwise it is closed."""
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for _ in body:
                pass
    except (TimeoutError, TransportError):
        pass


Clock: TypeAlias = Callable[[], float]
_FIRST_MOMENT = 1e9
"""A larger number of seconds is not a wait, but counted from 1970."""
LONGEST = 7 * 86_400.0
"""A longer wait is a misread date."""

_UNITS = {"mil": 0.001, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
"""Seconds, by how the name of a unit begins; the first that fits."""
_NUMBER = r"\d{1,12}(?:\.\d{1,12})?"
_STEPS = rf"(?:{_NUMBER}(?:ms|s|m|h|d))+"
_STEP = re.compile(rf"({_NUMBER}) ?([a-z]+)")
_is_duration = re.compile(_STEPS).fullmatch
_WORDS = re.compile(
    rf"(?:try again|retry|wait)(?: again)?(?: in| after)?(?: about| at least)? "
    rf"({_STEPS}\b|{_NUMBER} ?(?:milliseconds?|seconds?|secs?|minutes?|mins?|hours?))",
    re.IGNORECASE,
)
_FIELDS = ("retryDelay", "retry_after", "retry_after_seconds", "retryAfter")
_is_reset = re.compile(r"(?:x-|anthropic-)?ratelimit-(?:.+-)?reset(?:-.+)?").fullmatch
_MAX_DEPTH = 6


def retry_after(headers: Mapping[str, str], error: ProviderError, now: float | None = None) -> float | None:
    """The seconds to wait, or None. Header names are in lower case; `now` is in seconds since 1970."""

    def clock() -> float:
        return now or as_timestamp(headers.get("date")) or time.time()

    for wait in _waits(headers, error, clock):
        if wait is not None and wait > 0:
            return min(wait, LONGEST)
    return None


def _waits(headers: Mapping[str, str], error: ProviderError, clock: Clock) -> Iterator[float | None]:
    """What is stated, in the order in which it counts."""
    if "retry-after-ms" in headers:
        yield _milliseconds(headers["retry-after-ms"])
    if "retry-after" in headers:
        yield _wait(headers["retry-after"], clock)
    if error.native:
        yield from _delays_in_body(error.native, clock)
    yield _delay_in_message(error.message)
    if error.kind == "rate_limit":
        yield _reset_delay(headers, clock)


def _duration(text: str) -> float:
    """`1h2m3.5s`, `120ms`, `20 seconds`."""
    return sum(
        float(number) * next(seconds for unit, seconds in _UNITS.items() if name.startswith(unit))
        for number, name in _STEP.findall(text)
    )


def _milliseconds(written: Any) -> float | None:
    number = as_number(written)
    return None if number is None else number / 1000


def _wait(written: str | float, clock: Clock) -> float | None:
    """Seconds, a duration, or a moment."""
    number = as_number(written)
    if number is not None and number <= _FIRST_MOMENT:
        return number
    if isinstance(written, str) and _is_duration(written.strip()):
        return _duration(written)
    moment = as_timestamp(written)
    return None if moment is None else moment - clock()


def _delays_in_body(value: Any, clock: Clock, depth: int = 0) -> Iterator[float | None]:
    """The delays in an error body."""
    if isinstance(value, dict):
        for name in _FIELDS:
            delay = value.get(name)
            if isinstance(delay, str | int | float) and not isinstance(delay, bool):
                yield _wait(delay, clock)
        if "retry_after_ms" in value:
            yield _milliseconds(value["retry_after_ms"])
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, dict | list) and depth < _MAX_DEPTH:
            yield from _delays_in_body(inner, clock, depth + 1)


def _delay_in_message(message: str) -> float | None:
    match = _WORDS.search(message)
    return None if match is None else _duration(match[1].lower())


def _reset_delay(headers: Mapping[str, str], clock: Clock) -> float | None:
    """When the exhausted limits reset; if none is marked as exhausted, the soonest reset of any."""
    waits: list[tuple[bool, float]] = []
    for header, value in headers.items():
        wait = _wait(value, clock) if _is_reset(header) else None
        if wait is not None and wait > 0:
            waits.append((headers.get(header.replace("reset", "remaining", 1), "") == "0", wait))
    spent = [wait for is_spent, wait in waits if is_spent]
    return max(spent) if spent else min((wait for _, wait in waits), default=None)
