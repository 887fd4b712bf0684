"""Streams of Gemini, read, cut, written and put together."""

from __future__ import annotations

from antiphon.wire.delta import (
    Assembler,
    Failed,
    Finished,
    ModelOutputDelta,
    PartDelta,
    PartEnded,
    PartExtended,
    PartStarted,
    Started,
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


def check_grammar(deltas: list[ModelOutputDelta]) -> None:
    """stream := Started? ( part events | UsageReported )* ( Finished+ | Failed )"""
    is_open: dict[int, bool] = {}
    has_ended = has_failed = False
    for number, delta in enumerate(deltas):
        assert not has_failed
        if isinstance(delta, Started):
            assert number == 0
        elif isinstance(delta, PartStarted):
            assert delta.index == len(is_open)
            is_open[delta.index] = True
        elif isinstance(delta, PartDelta | PartExtended | PartEnded):
            assert is_open[delta.index]
            is_open[delta.index] = not isinstance(delta, PartEnded)
        elif isinstance(delta, Finished):
            has_ended = True
            assert not any(is_open.values())
        elif isinstance(delta, Failed):
            assert not has_ended
            has_failed = True
        assert not has_ended or isinstance(delta, Finished)
    assert has_ended or has_failed


def failure(deltas: list[ModelOutputDelta]) -> ProviderError | None:
    return deltas[-1].error if isinstance(deltas[-1], Failed) else None
