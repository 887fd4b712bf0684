"""A whole answer as the deltas it would have been streamed in.

Models that have their answer at once (scripted, function and offline models; an upstream that answered a stream with one body)
are told like all the others: `unfolded` follows the grammar of `wire.delta`, and assembled the deltas equal the answer (law
L6). Parts come one after the other; those with text or arguments begin empty and grow by pieces of `chunk_size` characters,
or by one piece where it is None.
"""

from __future__ import annotations

from collections.abc import Sequence

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
