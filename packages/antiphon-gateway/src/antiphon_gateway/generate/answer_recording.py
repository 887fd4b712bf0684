"""`AnswerRecording`: an answer that is streamed to its client, recorded as the object that requests which continue it need.

`WholeAnswer` assembles the object of a format from a stream of it; an answer in the background is shown by it while it grows.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from antiphon.wire import Format
from antiphon.wire.delta import Assembler, ModelOutputDelta
from antiphon.wire.output import ModelOutput
from antiphon.wire.streams.sse import SseReader


class WholeAnswer:
    """Assembles the answer that a stream of a format carries."""

    def __init__(self, wire: Format) -> None:
        self._wire = wire
        self._reader = wire.stream_reader()
        self._assembler = Assembler()

    def feed(self, data: bytes) -> bool:
        """Read more of the stream. Returns whether the answer is complete."""
        for delta in self._reader.feed(data):
            self._assembler.add(delta)
        return self._assembler.is_finished

    def encode(self) -> bytes:
        """The answer so far as an object of the format."""
        return self._wire.encode_response(self._assembler.output).data


class _Completed(Struct):
    response: msgspec.Raw


class AnswerRecording:
    """`output` is the whole answer, `body` the object that a client gets of it later.

    The last event of a Responses stream has the object. Where it does not (Interactions), the client's own stream is read.
    """

    def __init__(self, wire: Format) -> None:
        self.body = b""
        self._whole = None if wire.name == "openai-responses" else WholeAnswer(wire)
        self._assembler = Assembler()

    @property
    def output(self) -> ModelOutput:
        """The answer."""
        return self._assembler.output

    def add(self, deltas: list[ModelOutputDelta], written: bytes) -> None:
        """More of the answer, and what the client got of it."""
        for delta in deltas:
            self._assembler.add(delta)
        if self._whole is not None:
            if written and self._whole.feed(written):
                self.body = self._whole.encode()
        elif b"response.completed" in written or b"response.incomplete" in written:
            for event in SseReader().feed(written):
                if event.event in (b"response.completed", b"response.incomplete"):
                    self.body = bytes(msgspec.json.decode(event.data, type=_Completed).response)
