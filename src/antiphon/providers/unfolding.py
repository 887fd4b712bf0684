"""A whole answer as the deltas it would have been streamed in.

Models that have their answer at once (scripted, function and offline models; an upstream that answered a stream with one body)
are told like all the others: `unfolded` follows the grammar of `wire.delta`, and assembled the deltas equal the answer (law
L6). Parts come one after the other; those with text or arguments begin empty and grow by pieces of `chunk_size` characters,
or by one piece where it is None.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from antiphon.parts import OutputPart, Refusal, Text, Thinking, ToolCallRequest
from antiphon.wire.delta import (
    Finished,
    ModelOutputDelta,
    PartDelta,
    PartEnded,
    PartStarted,
    Started,
    UsageReported,
)
from antiphon.wire.output import ModelOutput

_NO_TEXT = Text("")


def unfolded(output: ModelOutput, chunk_size: int | None = None) -> Iterator[ModelOutputDelta]:
    """The deltas of `output`, from `Started` to `Finished`."""
    yield Started(output.id, output.model, output.created, output.format, output.native)
    index = 0
    for candidate, answer in enumerate((output, *output.others)):
        for part in answer.parts:
            yield from unfolded_part(index, part, chunk_size, candidate)
            index += 1
    if output.usage is not None:
        yield UsageReported(output.usage)
    yield Finished(output.stop_reason, output.stop_sequence)
    for candidate, answer in enumerate(output.others, 1):
        yield Finished(answer.stop_reason, answer.stop_sequence, candidate, answer.native)


def unfolded_part(
    index: int, part: OutputPart, chunk_size: int | None = None, candidate: int = 0
) -> Iterator[ModelOutputDelta]:
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
    yield PartStarted(index, part, candidate)
    if words:
        if chunk_size is None:
            yield PartDelta(index, words)
        else:
            for start in range(0, len(words), chunk_size):
                yield PartDelta(index, words[start : start + chunk_size])
    yield PartEnded(index)
