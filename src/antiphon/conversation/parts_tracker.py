"""`PartsTracker`: an answer while it comes in, and the one entry it becomes.

Deltas go in; `parts` is what was said so far. When the stream ends, or is interrupted, `entry` gives the `ModelOutputEntry`
for the log: one inference, one entry, whatever happened to it. An answer that was cut off is kept and says so in its stop reason.

Ids of calls are made unique here, once: some providers give none, some give the same twice, and a history in which every id
names one call needs no repair later.
"""

from __future__ import annotations

from collections.abc import Set

from msgspec import structs

from antiphon.history import EntryMetadata, ModelOutputEntry, Origin
from antiphon.parts import OutputPart, Text, Thinking, ToolCallRequest
from antiphon.wire.delta import Assembler

INTERRUPTED = "interrupted"
FAILED = "failed"


class PartsTracker(Assembler):
    """Puts the deltas of one inference together."""

    def entry(
        self, origin: Origin, used_ids: Set[str], metadata: EntryMetadata, ended: str = ""
    ) -> ModelOutputEntry | None:
        """The entry for the log, or None if nothing was said. `ended` marks an answer that did not come to its own end."""
        parts = self.parts
        if ended:
            parts = tuple(part for part in parts if not _says_nothing(part))
            if not parts:
                return None
        unique = _with_unique_ids(parts, used_ids)
        return ModelOutputEntry(unique, ended or self.stop_reason, origin, metadata=metadata)


def _says_nothing(part: OutputPart) -> bool:
    return type(part) in (Text, Thinking) and not part.text and not part.native  # type: ignore[union-attr]


def _with_unique_ids(parts: tuple[OutputPart, ...], used: Set[str]) -> tuple[OutputPart, ...]:
    """The parts, each call under an id that no other call of the history has."""
    ids = [part.tool_call_id for part in parts if type(part) is ToolCallRequest]
    if all(ids) and used.isdisjoint(ids) and len(ids) == len(set(ids)):
        return parts
    taken: set[str] = set()
    unique: list[OutputPart] = []
    for part in parts:
        if type(part) is ToolCallRequest:
            call_id = part.tool_call_id
            stem, number = call_id or f"call_{part.tool_name}", 1
            while not call_id or call_id in taken or call_id in used:
                number += 1
                call_id = f"{stem}_{number}"
            taken.add(call_id)
            part = structs.replace(part, tool_call_id=call_id)
        unique.append(part)
    return tuple(unique)
