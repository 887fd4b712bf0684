"""`AnswerReader`: the body of a response, whatever it turns out to be, as deltas.

A stream was asked for, but the first byte tells what came: an event stream, one whole JSON body (from hosts that do not stream,
or an error in a 200), or a page of HTML (from a proxy, or a wrong address). Nothing here opens a socket. However the body ends,
the last delta is a terminal one; `close` says which where the bytes alone do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import structs

from antiphon.errors import TransportError, WireError
from antiphon.parts import OutputPart, Refusal, Text, Thinking, ToolCallRequest
from antiphon.wire import Format
from antiphon.wire.delta import (
    Failed,
    Finished,
    ModelOutputDelta,
    PartDelta,
    PartEnded,
    PartStarted,
    Started,
    UsageReported,
)
from antiphon.wire.format import StreamReader
from antiphon.wire.html_text import MAX_PAGE, page_text, page_title
from antiphon.wire.output import NOT_AN_ANSWER, ErrorKind, ModelOutput, ProviderError

MOST_WHOLE = 64 * 1024 * 1024
"""A body that is not streamed and longer than this is no answer."""
_BLANK = b" \t\r\n\xef\xbb\xbf"
_LONGEST_WORDS = 200
_CUT = ProviderError("the answer ended before it began", "stream_cut")
_TIMEOUTS = frozenset({"connect_timeout", "read_timeout", "total_timeout"})
_NO_TEXT = Text("")
_STREAMS_JSON = frozenset({"gemini"})  # its streams may be one growing array, which its reader knows


class AnswerReader:
    """Bytes of a body in, deltas out. `is_over` when the terminal delta was given; `is_events` unless something else came."""

    def __init__(self, wire: Format) -> None:
        self.is_over = False
        self.is_events = True
        self._wire = wire
        self._stream: StreamReader | None = None
        self._whole: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[ModelOutputDelta]:
        """The deltas that these bytes complete."""
        if self._stream is not None:
            return self._noted(self._stream.feed(data))
        self._whole.append(data)
        self._size += len(data)
        if self._size > MOST_WHOLE:
            return self._noted(
                [Failed(ProviderError("the answer is longer than any answer may be", "server", code=NOT_AN_ANSWER))]
            )
        first = self._whole[0].lstrip(_BLANK)[:1]
        if not first:
            self._whole = [b"".join(self._whole)]
            first = self._whole[0].lstrip(_BLANK)[:1]
        self.is_events = first not in (b"{", b"[", b"<", b'"')
        if not first or first in b'<"' or (first in b"{[" and self._wire.name not in _STREAMS_JSON):
            return []
        self._stream = self._wire.stream_reader()
        gathered, self._whole = b"".join(self._whole), []
        return self._noted(self._stream.feed(gathered))

    def close(self, trouble: TransportError | None = None) -> list[ModelOutputDelta]:
        """The body ended, or `trouble` ended it: what was held back, and the terminal delta."""
        deltas = self._stream.close() if self._stream is not None else read_whole(self._wire, b"".join(self._whole))
        if not deltas or not isinstance(deltas[-1], Finished | Failed):
            deltas.append(Failed(_CUT))
        if trouble is not None and isinstance(deltas[-1], Failed):
            deltas[-1] = Failed(failure_of(trouble, "stream_cut"))
        return self._noted(deltas)

    def _noted(self, deltas: list[ModelOutputDelta]) -> list[ModelOutputDelta]:
        if deltas and isinstance(deltas[-1], Finished | Failed):
            self.is_over = True
        return deltas


def read_whole(wire: Format, data: bytes) -> list[ModelOutputDelta]:
    """The deltas of a body that is all there, the last of them terminal."""
    data = data.strip(_BLANK)
    if not data:
        return [Failed(_CUT)]
    if data.startswith(b"<"):
        return [Failed(ProviderError(page_words(data, None), "server", code=NOT_AN_ANSWER))]
    try:
        body = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return [Failed(ProviderError("the answer is not JSON", "server", code=NOT_AN_ANSWER))]
    if isinstance(body, dict) and not body.get("error"):
        try:
            return unfolded(wire.read_response(body))
        except WireError:
            pass
    return [Failed(_error_in(wire, body))]


def _error_in(wire: Format, body: Any) -> ProviderError:
    """The error in a body that came with a status of success."""
    error = wire.read_error(body)
    if error.kind != "unknown":
        return error
    is_error = isinstance(body, dict) and bool(body.get("error"))
    return structs.replace(error, kind="server", code=error.code if is_error else NOT_AN_ANSWER)


def failure_of(trouble: TransportError, otherwise: ErrorKind = "server") -> ProviderError:
    """A trouble of the network as an error of the provider."""
    return ProviderError(str(trouble), "timeout" if trouble.code in _TIMEOUTS else otherwise, code=trouble.code)


def refusal_of(wire: Format, status: int, data: bytes) -> ProviderError:
    """The error in a body that came with a status of failure."""
    if data.lstrip(_BLANK).startswith(b"<"):
        return structs.replace(wire.read_error(b"", status), message=page_words(data, status))
    return wire.read_error(data, status)


def page_words(data: bytes, status: int | None) -> str:
    """What a page says, in a line."""
    page = data[:MAX_PAGE].decode("utf-8", "replace")
    words = (page_title(page) or page_text(page))[:_LONGEST_WORDS]
    came = f"status {status} and a page" if status else "a page"
    return f"the host answered with {came} instead of an answer: {words or 'it is empty'}; check the base URL"


def unfolded(output: ModelOutput, chunk_size: int | None = None) -> list[ModelOutputDelta]:
    """The deltas of `output`, from `Started` to `Finished`."""
    deltas: list[ModelOutputDelta] = [Started(output.id, output.model, output.created, output.format, output.native)]
    index = 0
    for candidate, answer in enumerate((output, *output.others)):
        for part in answer.parts:
            deltas += unfolded_part(index, part, chunk_size, candidate)
            index += 1
    if output.usage is not None:
        deltas.append(UsageReported(output.usage))
    deltas.append(Finished(output.stop_reason, output.stop_sequence))
    for candidate, answer in enumerate(output.others, 1):
        deltas.append(Finished(answer.stop_reason, answer.stop_sequence, candidate, answer.native))
    return deltas


def unfolded_part(
    index: int, part: OutputPart, chunk_size: int | None = None, candidate: int = 0
) -> Sequence[ModelOutputDelta]:
    """The deltas of one part."""
    words = ""
    if type(part) is Text:
        words = part.text
        part = _NO_TEXT if part.native is None else structs.replace(part, text="")
    elif type(part) is ToolCallRequest:
        words = part.arguments
        part = structs.replace(part, arguments="")
    elif isinstance(part, Thinking | Refusal):
        words = part.text
        part = structs.replace(part, text="")
    started, ended = PartStarted(index, part, candidate), PartEnded(index)
    if not words:
        return started, ended
    if chunk_size is None or len(words) <= chunk_size:
        return started, PartDelta(index, words), ended
    pieces = [PartDelta(index, words[at : at + chunk_size]) for at in range(0, len(words), chunk_size)]
    return started, *pieces, ended
