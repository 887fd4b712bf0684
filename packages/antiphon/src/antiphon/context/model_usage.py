"""Which model calls an entry is the record of, and the tokens they used.

An output is the record of the call that made it. Calls without an output of their own in this log (a call that failed after the
provider had counted tokens, the calls of an agent that works as a tool) are listed in the metadata of a `DebugLogEntry`, the call
for a side call (a summary, a title) too; one by one, because the price of a call can depend on its size.

Where a limit of tokens or money applies to a call and its provider did not report all it used, the entry has an estimate of the
rest: a limit that could not be checked would be none.
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
_ESTIMATED = "estimated_usage"


class ModelCallUsage(Struct, frozen=True):
    """One call: who answered, and its tokens; None if the provider did not report them."""

    origin: Origin
    usage: TokenUsage | None


def model_calls_of(entry: HistoryEntry) -> list[ModelCallUsage]:
    """The model calls that an entry records, with the estimate of what was not reported."""
    if isinstance(entry, ModelOutputEntry):
        usage = entry.metadata.usage if entry.metadata is not None else None
        return [ModelCallUsage(entry.origin or Origin(), _with_estimate(usage, estimated_usage(entry)))]
    listed = entry.extra(_MODEL_CALLS) if isinstance(entry, DebugLogEntry | CompactionEntry) else None
    calls = msgspec.convert(listed, list[ModelCallUsage]) if listed else []
    if calls and (estimated := estimated_usage(entry)) is not None:
        calls[-1] = ModelCallUsage(calls[-1].origin, _with_estimate(calls[-1].usage, estimated))
    return calls


def _with_estimate(usage: TokenUsage | None, estimated: TokenUsage | None) -> TokenUsage | None:
    return estimated if usage is None else usage if estimated is None else usage + estimated


def estimated_usage(entry: HistoryEntry) -> TokenUsage | None:
    """What the last call of an entry used by our own count and its provider did not report, if a limit needed it."""
    counted = entry.extra(_ESTIMATED)
    return TokenUsage(*counted) if isinstance(counted, list | tuple) else None


def estimate(usage: TokenUsage) -> dict[str, Any]:
    """What a provider did not report, as `extra` of the metadata of the call's entry."""
    return {_ESTIMATED: [usage.prompt_tokens, usage.completion_tokens]}


def with_model_calls(metadata: EntryMetadata, calls: Sequence[ModelCallUsage]) -> EntryMetadata:
    """`metadata` of an entry that records these calls, too."""
    listed: dict[str, Any] = {_MODEL_CALLS: msgspec.to_builtins(calls)}
    usage = sum((call.usage for call in calls if call.usage is not None), TokenUsage())
    return msgspec.structs.replace(metadata, usage=usage, extra={**(metadata.extra or {}), **listed})


def total_usage(entries: Iterable[HistoryEntry]) -> TokenUsage:
    """The tokens of all model calls that entries record, as far as providers reported them.

    `raw` has the sums of the providers' own figures, in the words of `format`; with several formats `format` is empty and `raw`
    has the figures of each by its name.
    """
    total, by_format = TokenUsage(), dict[str, dict[str, Any]]()
    for entry in entries:
        usage = entry.metadata.usage if entry.metadata is not None else None
        if usage is not None:
            total += usage
            if usage.raw is not None:
                by_format[usage.format] = _add_figures(by_format.get(usage.format, {}), usage.raw)
    if not by_format:
        return total
    name, raw = next(iter(by_format.items())) if len(by_format) == 1 else ("", by_format)
    return msgspec.structs.replace(total, raw=raw, format=name)


def _add_figures(total: dict[str, Any], added: dict[str, Any]) -> dict[str, Any]:
    """The sums of the numbers of two objects, also in objects inside them; of anything else the later value."""
    result = {**total, **added}
    for name in total.keys() & added.keys():
        before, value = total[name], added[name]
        if isinstance(before, dict) and isinstance(value, dict):
            result[name] = _add_figures(before, value)
        elif _is_number(before) and _is_number(value):
            result[name] = before + value
        elif value is None:
            result[name] = before
    return result


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
