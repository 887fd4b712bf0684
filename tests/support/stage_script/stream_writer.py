"""Writes the streams of `stream_reader`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from antiphon.parts import Text, TokenUsage, ToolCallRequest
from antiphon.wire.delta import (
    Failed,
    Finished,
    ModelOutputDelta,
    PartDelta,
    PartEnded,
    PartStarted,
    Started,
    UsageReported,
    whole_part,
)
from antiphon.wire.loss import Loss
from support.stage_script.request import write_line


def _event(value: Any) -> bytes:
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


class StreamWriter:
    """Writes one stream."""

    def __init__(self, model: str = "") -> None:
        self.losses: list[Loss] = []
        self._model = model
        self._usage = TokenUsage()
        self._texts: set[int] = set()
        self._calls: dict[int, tuple[ToolCallRequest, list[str]]] = {}
        self._is_over = False

    def write(self, delta: ModelOutputDelta) -> bytes:
        if self._is_over:
            return b""
        if isinstance(delta, Started):
            return _event({"bot": self._model or delta.model})
        if isinstance(delta, UsageReported):
            self._usage = delta.usage
        elif isinstance(delta, PartStarted) and isinstance(delta.part, Text):
            self._texts.add(delta.index)
            return _event({"w": delta.part.text}) if delta.part.text else b""
        elif isinstance(delta, PartStarted) and isinstance(delta.part, ToolCallRequest):
            self._calls[delta.index] = delta.part, []
        elif isinstance(delta, PartDelta) and delta.index in self._texts:
            return _event({"w": delta.text})
        elif isinstance(delta, PartDelta) and delta.index in self._calls:
            self._calls[delta.index][1].append(delta.text)
        elif isinstance(delta, PartEnded) and delta.index in self._calls:
            return _event({"c": write_line(whole_part(*self._calls[delta.index]))})
        elif isinstance(delta, Finished):
            self._is_over = True
            letters = [self._usage.prompt_tokens, self._usage.completion_tokens]
            return _event({"e": "cue" if delta.stop_reason == "tool_calls" else "end", "letters": letters})
        elif isinstance(delta, Failed):
            self._is_over = True
            return _event({"boo": delta.error.message})
        return b""

    def write_all(self, deltas: Iterable[ModelOutputDelta]) -> bytes:
        return b"".join(map(self.write, deltas))

    def resume(self, first: bytes, last: bytes) -> None:
        del first, last

    def close(self) -> bytes:
        return b""
