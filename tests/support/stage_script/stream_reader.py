"""Streams: each event is one word of a line (`w`), a cue (`c`), or the end (`e`)."""

from __future__ import annotations

import msgspec

from antiphon.parts import Text, TokenUsage
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
from antiphon.wire.output import STREAM_CUT, ProviderError
from antiphon.wire.tools.call_ids import CallIdTracker
from support.stage_script import FORMAT
from support.stage_script.request import read_line


class StreamReader:
    """Reads one stream."""

    def __init__(self) -> None:
        self._rest = b""
        self._count = -1
        self._is_open = self._is_over = False
        self._calls = CallIdTracker()

    def feed(self, data: bytes) -> list[ModelOutputDelta]:
        *events, self._rest = (self._rest + data).split(b"\n\n")
        return [delta for event in events if event.startswith(b"data: ") for delta in self._read(event[6:])]

    def close(self) -> list[ModelOutputDelta]:
        return [] if self._is_over else [Failed(ProviderError(STREAM_CUT, "stream_cut"))]

    def _read(self, data: bytes) -> list[ModelOutputDelta]:
        event = msgspec.json.decode(data)
        out: list[ModelOutputDelta] = []
        if "bot" in event:
            return [Started(model=event["bot"], format=FORMAT)]
        if self._is_open and "w" not in event:
            out.append(PartEnded(self._count))
            self._is_open = False
        if "w" in event:
            if not self._is_open:
                self._count += 1
                self._is_open = True
                out.append(PartStarted(self._count, Text("")))
            out.append(PartDelta(self._count, event["w"]))
        elif "c" in event:
            self._count += 1
            out += [PartStarted(self._count, read_line(event["c"], self._calls)), PartEnded(self._count)]
        else:
            self._is_over = True
            letters = event["letters"]
            usage = TokenUsage(prompt_tokens=letters[0], completion_tokens=letters[1])
            out += [UsageReported(usage), Finished("tool_calls" if event["e"] == "cue" else "end")]
        return out
