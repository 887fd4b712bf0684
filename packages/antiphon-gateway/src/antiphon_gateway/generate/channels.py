"""`Channel`: bytes of an upstream in, bytes for the client out. What they say about the request goes into its record.

    Same       upstream and client speak one format: whole events pass as they came. Most only add text; they are searched for the
               few markers under which usage, finish reasons and errors come, and only what has one is read. With a
               `Continuation` every event is read before it passes, so that another target can go on where this one broke.
    Translate  events are read as deltas and written in the client's format, with the names of its request.

(`Whole`, for files, is in `whole_body`.) A stream that fails raises `StreamFailed` with what the client still gets of it; the
relay decides what follows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import structs

from antiphon.errors import TransportError
from antiphon.json_text import NOT_JSON
from antiphon.providers.engine.continuation import Continuation
from antiphon.providers.engine.reply import ResponseReader, StreamReply
from antiphon.tools.embedded import EmbeddedCalls
from antiphon.wire.delta import Failed, Finished, ModelOutputDelta, PartDelta, Started, UsageReported
from antiphon.wire.loss import Loss
from antiphon.wire.output import NOT_AN_ANSWER, ProviderError
from antiphon.wire.streams.sse import MAX_EVENT, SseReader
from antiphon.wire.tools.call_restorer import CallRestorer
from antiphon_gateway.generate.answer_keeper import AnswerKeeper
from antiphon_gateway.generate.frame import StreamFrame
from antiphon_gateway.observe.record import Record
from antiphon_gateway.runtime.body_fields import StreamModel, split_events

Scrub = Callable[[ProviderError], ProviderError]
_BLANK_LINES = (b"\n\n", b"\n\r\n", b"\r\r")
"""The separator of two events."""
_MARKERS: Mapping[str, tuple[bytes, ...]] = {
    "openai-chat": (b"[DONE]", b"error", b'"finish_reason":"', b'"finish_reason": "', b'"usage":{', b'"usage": {'),
    "anthropic": (b"message_delta", b"message_stop", b"error", b"[DONE]"),
}
_USE_MARKERS: Mapping[str, Callable[[bytes], object]] = {
    "openai-chat": re.compile(rb'"finish_reason": ?null').search,
    "anthropic": re.compile(rb"event: message_start").search,
}
"""How hosts that use these markers write: what is found near the beginning of their streams."""
_END_MARKS = {"openai-chat": b"[DONE]"}
"""The last event of a format, which some hosts leave out."""
_has_empty_choices = re.compile(rb'"choices"\s*:\s*\[\s*\]').search


class StreamFailed(Exception):
    """A stream broke with `error`; `data` is what the client still gets of what came before."""

    def __init__(self, error: ProviderError, data: bytes = b"") -> None:
        super().__init__(error.message)
        self.error = error
        self.data = data


class Channel(Protocol):
    """The way from one upstream to one client."""

    @property
    def is_finished(self) -> bool:
        """Whether the answer has ended, so that nothing of it follows."""

    @property
    def losses(self) -> Sequence[Loss]:
        """What the client's format could not express."""

    def begin(self, reply: StreamReply) -> bytes:
        """What was read of a reply so far. Raises `StreamFailed`."""

    def feed(self, data: bytes) -> bytes:
        """More of it. Raises `StreamFailed`."""

    def end(self, trouble: TransportError | None) -> bytes:
        """The body ended, or `trouble` ended it. Raises `StreamFailed`."""

    def fail(self, error: ProviderError) -> bytes | None:
        """The last bytes of a stream that cannot be completed; None if the client must see a cut."""

    def close(self) -> bytes:
        """The last bytes of a complete stream."""

    def continued(self) -> Channel:
        """The channel through which another target finishes the answer."""


class Same:
    """The upstream's own events, with the requested model's name; `hides_usage`: without the chunk that only has usage.

    `translate` makes the channel that continues, in the client's format, if another target finishes the answer.
    """

    losses: Sequence[Loss] = ()

    def __init__(
        self,
        frame: StreamFrame,
        record: Record,
        scrub: Scrub,
        *,
        hides_usage: bool = False,
        continuation: Continuation | None = None,
        translate: Callable[[], Translate] | None = None,
    ) -> None:
        self.is_finished = False
        self._frame = frame
        self._wire = frame.wire
        self._record = record
        self._scrub = scrub
        self._hides_usage = hides_usage
        self._continuation = continuation
        self._translate = translate
        self._following: Translate | None = None
        self._normalizer = frame.wire.stream_normalizer()
        self._model: StreamModel | None = StreamModel(frame.wire.name, frame.model)
        self._partial: list[bytes] = []
        self._first = self._last = b""  # the first events that the client got, and the last ones
        self._markers: tuple[bytes, ...] = ()
        self._is_scanning = self._has_end_mark = False
        self._size = 0  # of an event that is not complete
        self._event_bytes = 0  # of a typical event without its text

    def begin(self, reply: StreamReply) -> bytes:
        self._reader = reply.reader
        held = b"".join(reply.held)
        if self._continuation is None:
            self._choose_markers(held, reply.deltas)
        passed = self._pass_on(self._whole_events(held), reply.deltas)
        try:
            return passed + self.feed(reply.unread) if reply.unread else passed
        except StreamFailed as failed:
            failed.data = passed + failed.data
            raise

    def feed(self, data: bytes) -> bytes:
        if not self._is_scanning or self.is_finished:
            deltas = self._reader.feed(data) if not self.is_finished else []
            # What the reader has seen ends with an event.
            self._is_scanning = bool(self._markers) and data.endswith(b"\n\n")
            return self._pass_on(self._whole_events(data), deltas)
        events = data if not self._partial and data.endswith(b"\n\n") else self._whole_events(data)
        if not events:
            return self._hold_back(len(data))
        self._size = 0
        first = size = len(events)
        for marker in self._markers:  # each search is as long as the events: none is made twice
            at = events.find(marker, 0, first)
            if at >= 0:
                first = at
        if first < size:
            return self._pass_on(events, self._read_from(events, first))
        self._record.output_bytes += size - events.count(b"\n\n") * self._event_bytes
        if self._model is not None or not self._frame.is_plain:
            return self._pass_on(events, [])
        self._last = events
        return events if self._normalizer is None else self._normalizer.feed(events)

    def end(self, trouble: TransportError | None) -> bytes:
        if self.is_finished:
            return b""
        deltas = self._reader.feed(b"".join(self._partial)) if self._is_scanning and self._partial else []
        if not self._reader.is_finished:
            deltas = [*deltas, *self._reader.close(trouble)]
        failed = deltas[-1]
        if not isinstance(failed, Failed):
            return self._pass_on(b"", deltas)
        rest = b"".join(self._partial)
        if trouble is not None or self._must_replace(failed.error) or not _is_object(rest):
            raise self._failure(deltas)
        self._partial = []  # an error outside of events: clients of this upstream know it so
        return self._pass_on(rest, deltas)

    def fail(self, error: ProviderError) -> bytes:
        if self._following is not None:
            return self._following.fail(error)
        writer = self._wire.stream_writer(self._frame.model)
        writer.resume(_first_event(self._first), self._last)
        return self._closed(writer.write(Failed(error)))

    def close(self) -> bytes:
        rest, self._partial = b"".join(self._partial), []
        mark = _END_MARKS.get(self._wire.name, b"")
        if mark and self._record.error is None and not self._has_end_mark and mark not in rest:
            rest = rest + b"\n\n" * bool(rest) + b"data: %b\n\n" % mark  # clients of the format wait for it
        return self._closed(rest)

    def continued(self) -> Channel:
        """The channel through which another target finishes the answer."""
        assert self._following is not None, "the stream failed"
        return self._following

    def _choose_markers(self, seen: bytes, deltas: list[ModelOutputDelta]) -> None:
        """Look only for markers from here on, if the host writes like those that use them."""
        name = self._wire.name
        uses_markers = _USE_MARKERS.get(name)
        if uses_markers is None or not uses_markers(seen):
            return
        self._markers = _MARKERS[name]
        self._is_scanning = seen.endswith(b"\n\n")
        texts = [len(delta.text.encode("utf-8", "replace")) for delta in deltas if isinstance(delta, PartDelta)]
        self._event_bytes = len(seen.rstrip().rpartition(b"\n\n")[2]) - (texts[-1] if texts else 0) + 2

    def _whole_events(self, data: bytes) -> bytes:
        """The events that these bytes complete; the rest is held until it is whole."""
        partial = self._partial
        if not partial and data.endswith(b"\n\n"):
            return data
        overlap = partial[-1][-2:] if partial else b""  # the blank line may be cut, between each of its bytes
        if len(overlap) == 1 and len(partial) > 1:
            overlap = partial[-2][-1:] + overlap
        joined = overlap + data
        end = max(joined.rfind(blank) + len(blank) if blank in joined else 0 for blank in _BLANK_LINES) - len(overlap)
        if end <= 0:
            if data:
                partial.append(data)
            return b""
        events = b"".join([*partial, data[:end]])
        self._partial = [data[end:]] if end < len(data) else []
        return events

    def _hold_back(self, size: int) -> bytes:
        """An event is not complete yet. One that is longer than any event can be goes to the reader, which reports it."""
        self._size += size
        if self._size < MAX_EVENT:
            return b""
        events, self._partial = b"".join(self._partial), []
        return self._pass_on(events, self._reader.feed(events))

    def _read_from(self, events: bytes, marker: int) -> list[ModelOutputDelta]:
        """Read the events from the one on that has a marker at that place."""
        skipped = max(0, events.rfind(b"\n\n", 0, marker))
        self._record.output_bytes += max(0, skipped - events.count(b"\n\n", 0, skipped) * self._event_bytes)
        return self._reader.feed(events[skipped:])

    def _pass_on(self, events: bytes, deltas: list[ModelOutputDelta]) -> bytes:
        """The events for the client, after what they say was recorded."""
        has_usage = False
        if deltas:
            if isinstance(deltas[-1], Failed) and self._must_replace(deltas[-1].error):
                raise self._failure(deltas, events)
            if self._continuation is not None:
                self._continuation.feed(deltas)
            self._record.observe(deltas)
            self.is_finished = self._reader.is_finished
            self._has_end_mark = self.is_finished and bool(events)  # else the end of the bytes was the end
            for delta in deltas:
                if type(delta) is UsageReported:
                    has_usage = True
        if not events:
            return b""
        if self._model is not None:
            events = self._model.feed(events)
            if self._model.is_done:
                self._model = None
        if b"data:" in events:  # not of comments alone
            self._first = self._first or events
            self._last = events
        if self._normalizer is not None:
            events = self._normalizer.feed(events)
        if self._hides_usage and has_usage:
            events = without_usage(events)
        return events if self._frame.is_plain else self._frame.wrap(events)

    def _closed(self, events: bytes) -> bytes:
        """The last events, with the end of the frame."""
        return events if self._frame.is_plain else self._frame.wrap(events) + self._frame.close()

    def _must_replace(self, error: ProviderError) -> bool:
        """Whether the bytes of an error must not pass: they quote our secret, are no event, or another target continues."""
        return self._continuation is not None or error.code == NOT_AN_ANSWER or self._scrub(error) is not error

    def _failure(self, deltas: list[ModelOutputDelta], events: bytes = b"") -> StreamFailed:
        """How the stream failed, with what came before that. Where another target may go on, its channel has written it."""
        *before, failed = deltas
        assert isinstance(failed, Failed)
        error, continuation = self._scrub(failed.error), self._continuation
        if continuation is None or self._translate is None or not continuation.accepts(error):
            return StreamFailed(error, self._pass_on(self._before_failure(events), before))
        following = self._following = self._translate()
        following.resume(continuation.shown, self._reader)
        return StreamFailed(error, following.write(before))

    def _before_failure(self, events: bytes) -> bytes:
        """The events before the one that is an error, or cannot be read."""
        passed = []
        for event in split_events(events):
            if any(isinstance(delta, Failed) for delta in self._wire.stream_reader().feed(event)):
                break
            passed.append(event)
        return b"".join(passed)


class Translate:
    """The stream in the client's format, with the names of its request.

    `restorer` puts the client's own names and arguments back into calls, where they can differ. `answer_id` is the id that the
    answer gets here, if it does not keep its own. `settings` are those of the request, where responses repeat them. `calls` reads
    calls that the model wrote into its text; `recording` keeps the answer. With a `continuation` another target may finish the
    answer: the next `begin` continues with its reply.
    """

    def __init__(
        self,
        frame: StreamFrame,
        record: Record,
        scrub: Scrub,
        restorer: CallRestorer | None,
        *,
        answer_id: str = "",
        hides_usage: bool = False,
        settings: Mapping[str, Any] | None = None,
        calls: EmbeddedCalls | None = None,
        recording: AnswerKeeper | None = None,
        continuation: Continuation | None = None,
    ) -> None:
        self.is_finished = False
        self._frame = frame
        self._wire = frame.wire
        self._record = record
        self._scrub = scrub
        self._writer = frame.wire.stream_writer(frame.model)
        self._restorer = restorer
        self._buffered = restorer.buffered if restorer is not None else {}
        self._answer_id = answer_id
        self._hides_usage = hides_usage  # a chat client that did not request it may fail on a chunk without choices
        self._settings = settings
        self._calls = calls
        self._recording = recording
        self._is_plain = frame.is_plain and recording is None
        self._passes_text = self._is_plain and calls is None
        self._continuation = continuation

    @property
    def losses(self) -> Sequence[Loss]:
        return self._writer.losses

    def resume(self, shown: list[ModelOutputDelta], reader: ResponseReader) -> None:
        """Continue a stream that `reader` reads until the next begins; the client has `shown` already."""
        self._reader = reader
        for delta in shown:
            self._writer.write(self._named(delta) if isinstance(delta, Started | Finished) else delta)

    def begin(self, reply: StreamReply) -> bytes:
        self.is_finished = False  # one that broke may have been
        self._reader = reply.reader
        deltas = reply.deltas
        if reply.unread and not self._reader.is_finished:
            deltas = [*deltas, *self._reader.feed(reply.unread)]
        return self.write(deltas)

    def feed(self, data: bytes) -> bytes:
        return b"" if self.is_finished else self.write(self._reader.feed(data))

    def end(self, trouble: TransportError | None) -> bytes:
        return b"" if self.is_finished else self.write(self._reader.close(trouble))

    def write(self, deltas: list[ModelOutputDelta]) -> bytes:
        """Deltas as the client gets them. Raises `StreamFailed`."""
        if self._continuation is not None:
            deltas = self._continuation.feed(deltas)
        if not deltas:
            return b""
        last, error = deltas[-1], None
        if type(last) is Failed:
            deltas, error = deltas[:-1], self._scrub(last.error)
            if not deltas:
                raise StreamFailed(error)
        self._record.observe(deltas)
        self.is_finished = self._reader.is_finished
        if self._calls is not None:
            deltas = [read for delta in deltas for read in self._calls.feed(delta)]
        if self._passes_text and type(last) is PartDelta and len(deltas) == 1 and not self._buffered:
            return self._writer.write_all(deltas)  # most events: nothing of them is named, restored or kept
        written = self._encoded(deltas)
        if error is not None:
            raise StreamFailed(error, written)  # in no variable: its frames hold the request, and would hold it
        return written

    def fail(self, error: ProviderError) -> bytes:
        return self._last(self._writer.write(Failed(error)))

    def close(self) -> bytes:
        return self._last(b"")

    def continued(self) -> Channel:
        """This channel: the next reply begins where the last one broke."""
        return self

    def _encoded(self, deltas: list[ModelOutputDelta]) -> bytes:
        is_text = True
        for place, delta in enumerate(deltas):
            kind = type(delta)
            if kind is not PartDelta:
                is_text = False
                if kind is Started or kind is Finished:
                    deltas = [*deltas[:place], self._named(delta), *deltas[place + 1 :]]  # type: ignore[arg-type]
        if self._hides_usage and not is_text:
            deltas = [delta for delta in deltas if type(delta) is not UsageReported]
        # Text stays as it is while no arguments are held back.
        if self._restorer is not None and (self._buffered or not is_text):
            deltas = self._restorer.deltas(deltas)
        written = self._writer.write_all(deltas)
        return written if self._is_plain else self._framed(deltas, written)

    def _framed(self, deltas: list[ModelOutputDelta], written: bytes) -> bytes:
        if self._recording is not None:
            self._recording.add(deltas, written)
        return self._frame.wrap(written)

    def _last(self, last: bytes) -> bytes:
        rest = self._calls.close() if self._calls is not None else []
        before = self._encoded(rest) if rest else b""
        last += self._writer.close()
        return before + (last if self._is_plain else self._framed([], last) + self._frame.close())

    def _named(self, delta: Started | Finished) -> Started | Finished:
        """A delta with the id and the model that the client knows, and with the settings of its request."""
        if isinstance(delta, Started):
            delta = structs.replace(delta, id=self._answer_id or delta.id, model=self._frame.model)
        # The end of an answer of another format has no settings of its own to complete.
        has_settings = isinstance(delta, Started) or self._wire.name in (delta.native or ())
        if self._settings is None or not has_settings:
            return delta
        return structs.replace(delta, native=self._wire.repeat_settings(delta.native, self._settings))


def without_usage(events: bytes) -> bytes:
    """Whole events without chunks that contain only usage."""
    if not _has_empty_choices(events):
        return events
    if b"\r" in events:
        return b"".join(event for event in split_events(events) if not _is_usage_alone(event))
    return b"\n\n".join([event for event in events.split(b"\n\n") if not _is_usage_alone(event)])


def _is_usage_alone(event: bytes) -> bool:
    if not _has_empty_choices(event):
        return False
    for read in SseReader().feed(event + b"\n\n"):
        try:
            chunk = msgspec.json.decode(read.data)
        except NOT_JSON:
            return False
        if not isinstance(chunk, dict) or chunk.get("choices") or not chunk.get("usage"):
            return False
    return True


def _is_object(data: bytes) -> bool:
    """Whether these bytes are a JSON object."""
    try:
        return isinstance(msgspec.json.decode(data), dict)
    except NOT_JSON:
        return False


def _first_event(events: bytes) -> bytes:
    """The first of some events that has data."""
    start = events.find(b"data:")
    if start < 0:
        return b""
    start = max(events.rfind(blank, 0, start) + len(blank) if blank in events[:start] else 0 for blank in _BLANK_LINES)
    ends = [at + len(blank) for blank in _BLANK_LINES if (at := events.find(blank, start)) >= 0]
    return events[start : min(ends)] if ends else events[start:]


def is_response_loss(loss: Loss) -> bool:
    """Whether a loss concerns the model's output. Echoed request fields and timestamps do not."""
    return loss.path.startswith(("parts", "others", "stop", "usage"))
