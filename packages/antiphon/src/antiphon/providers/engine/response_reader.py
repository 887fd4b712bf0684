"""`ResponseReader`: any response body as deltas.

A stream was requested, but the first byte decides: an event stream, one JSON body (from hosts that do not stream, or an error in
a 200), or an HTML page (from a proxy, or a wrong URL). The last delta is always terminal; `close` supplies it if the bytes do
not. No I/O here.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import structs

from antiphon.errors import TransportError, WireError
from antiphon.wire import Format
from antiphon.wire.delta import (
    Failed,
    Finished,
    ModelOutputDelta,
    deltas_from_output,
)
from antiphon.wire.format import StreamReader
from antiphon.wire.html_text import MAX_PAGE, page_text, page_title
from antiphon.wire.output import NOT_AN_ANSWER, ErrorKind, ProviderError

MAX_BODY_BYTES = 64 * 1024 * 1024
"""A longer body that is not streamed is an error."""
_BLANK = b" \t\r\n\xef\xbb\xbf"
_ENDS = (Finished, Failed)
_MAX_SUMMARY_CHARS = 200
_CUT = ProviderError("the response ended before it began", "stream_cut")
_TIMEOUTS = frozenset({"connect_timeout", "read_timeout", "total_timeout"})
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
        self._whole.append(data)
        self._size += len(data)
        if self._size > MAX_BODY_BYTES:
            return self._mark_finished(
                [Failed(ProviderError("the response is too long", "server", code=NOT_AN_ANSWER))]
            )
        first = self._whole[0].lstrip(_BLANK)[:1]
        if not first:
            self._whole = [b"".join(self._whole)]
            first = self._whole[0].lstrip(_BLANK)[:1]
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
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
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
