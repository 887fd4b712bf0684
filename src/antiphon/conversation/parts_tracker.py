"""`PartsTracker`: an answer while it comes in, and the one entry it becomes.

Deltas go in; `parts` is what was said so far. When the stream ends, or is interrupted, `entry` gives the `ModelOutputEntry`
for the log: one inference, one entry, whatever happened to it. An answer that was cut off is kept and says so in its stop reason.

Ids of calls are made unique here, once: some providers give none, some give the same twice, and a history in which every id
names one call needs no repair later.
"""

from __future__ import annotations

from collections.abc import Container

from msgspec import structs

from antiphon.history import EntryMetadata, ModelOutputEntry, Origin
from antiphon.parts import OutputPart, Text, Thinking, ToolCallRequest
from antiphon.wire.delta import Assembler, ModelOutputDelta
from antiphon.wire.output import ModelOutput, ProviderError

INTERRUPTED = "interrupted"
FAILED = "failed"


class PartsTracker:
    """Puts the deltas of one inference together."""

    def __init__(self) -> None:
        self._assembler = Assembler()
        self._output: ModelOutput | None = None

    def add(self, delta: ModelOutputDelta) -> None:
        """Take in the next delta."""
        self._assembler.add(delta)
        self._output = None

    @property
    def output(self) -> ModelOutput:
        """The answer as far as it was said."""
        if self._output is None:
            self._output = self._assembler.output
        return self._output

    @property
    def parts(self) -> tuple[OutputPart, ...]:
        """What was said so far, in order."""
        return self.output.parts

    @property
    def error(self) -> ProviderError | None:
        """Why the stream failed, if it did."""
        return self._assembler.error

    @property
    def is_finished(self) -> bool:
        """Whether the answer is complete."""
        return self._assembler.is_finished

    def entry(
        self,
        origin: Origin,
        used_ids: Container[str],
        *,
        duration: float | None = None,
        source: str = "",
        ended: str = "",
        error: str = "",
    ) -> ModelOutputEntry | None:
        """The entry for the log, or None if nothing was said. `ended` marks an answer that did not come to its own end."""
        output = self.output
        parts = tuple(part for part in output.parts if not _says_nothing(part)) if ended else output.parts
        if not parts and ended:
            return None
        metadata = EntryMetadata(source=source, duration=duration, usage=output.usage, error=error)
        return ModelOutputEntry(
            _with_unique_ids(parts, used_ids),
            ended or output.stop_reason,
            origin,
            metadata=metadata,
        )


def _says_nothing(part: OutputPart) -> bool:
    return type(part) in (Text, Thinking) and not part.text and not part.native  # type: ignore[union-attr]


def _with_unique_ids(parts: tuple[OutputPart, ...], used: Container[str]) -> tuple[OutputPart, ...]:
    """The parts, each call under an id that no other call of the history has."""
    taken: set[str] = set()
    result: list[OutputPart] | None = None
    for index, part in enumerate(parts):
        if type(part) is not ToolCallRequest:
            continue
        call_id = part.tool_call_id
        if not call_id or call_id in taken or call_id in used:
            stem, number = call_id or f"call_{part.tool_name}", 1
            while call_id in taken or call_id in used or not call_id:
                number += 1
                call_id = f"{stem}_{number}"
            result = list(parts) if result is None else result
            result[index] = structs.replace(part, tool_call_id=call_id)
        taken.add(call_id)
    return parts if result is None else tuple(result)
