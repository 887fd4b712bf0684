"""Which model calls an entry is the record of, and the tokens they used.

An output is the record of the call that made it. Calls without an output of their own in this log (a call that failed after the
provider had counted tokens, the calls of an agent that works as a tool) are listed in the metadata of a `DebugLogEntry`, the call
for a summary in those of its `CompactionEntry`; one by one, because the price of a call can depend on its size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from antiphon.history.entries import (
    CompactionEntry,
    DebugLogEntry,
    EntryMetadata,
    HistoryEntry,
    ModelOutputEntry,
    Origin,
)
from antiphon.parts import TokenUsage

_MODEL_CALLS = "model_calls"


class ModelCallUsage(Struct, frozen=True):
    """One call: who answered, and its tokens; None if the provider did not report them."""

    origin: Origin
    usage: TokenUsage | None


def model_calls_of(entry: HistoryEntry) -> list[ModelCallUsage]:
    """The model calls that an entry records."""
    if isinstance(entry, ModelOutputEntry):
        return [ModelCallUsage(entry.origin or Origin(), entry.metadata.usage if entry.metadata is not None else None)]
    listed = entry.extra(_MODEL_CALLS) if isinstance(entry, DebugLogEntry | CompactionEntry) else None
    return msgspec.convert(listed, list[ModelCallUsage]) if listed else []


def with_model_calls(metadata: EntryMetadata, calls: Sequence[ModelCallUsage]) -> EntryMetadata:
    """`metadata` of an entry that records these calls, too."""
    listed: dict[str, Any] = {_MODEL_CALLS: msgspec.to_builtins(calls)}
    usage = sum((call.usage for call in calls if call.usage is not None), TokenUsage())
    return msgspec.structs.replace(metadata, usage=usage, extra={**(metadata.extra or {}), **listed})


def total_usage(entries: Iterable[HistoryEntry]) -> TokenUsage:
    """The tokens of all model calls that entries record, as far as providers reported them."""
    used = (entry.metadata.usage for entry in entries if entry.metadata is not None and entry.metadata.usage)
    return sum(used, TokenUsage())
