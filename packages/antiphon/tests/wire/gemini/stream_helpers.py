"""Streams of Gemini, read, cut, written and put together."""

from __future__ import annotations

from antiphon.wire.delta import (
    Assembler,
    Failed,
    ModelOutputDelta,
)
from antiphon.wire.output import ModelOutput, ProviderError
from support.wire_formats import GEMINI

StreamReader = GEMINI.stream_reader
StreamWriter = GEMINI.stream_writer


def read(*pieces: bytes) -> list[ModelOutputDelta]:
    reader = StreamReader()
    deltas = [delta for piece in pieces for delta in reader.feed(piece)]
    deltas += reader.close()
    assert reader.close() == []
    assert reader.feed(b"data: {}\n\n") == [], "nothing comes after the end"
    return deltas


def assembled(deltas: list[ModelOutputDelta]) -> ModelOutput:
    assembler = Assembler()
    for delta in deltas:
        assembler.add(delta)
    return assembler.output


def rewritten(deltas: list[ModelOutputDelta], model: str = "") -> bytes:
    writer = StreamWriter(model)
    return b"".join(map(writer.write, deltas)) + writer.close()


def failure(deltas: list[ModelOutputDelta]) -> ProviderError | None:
    return deltas[-1].error if isinstance(deltas[-1], Failed) else None
