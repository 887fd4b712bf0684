"""An entry in a few readable lines, for people who look into a history."""

from __future__ import annotations

from collections.abc import Iterator

from antiphon.history.entries import (
    ApprovalRequestedEntry,
    CompactionEntry,
    DebugLogEntry,
    HistoryEntry,
    HumanDecisionEntry,
    LiveContextInjectedEntry,
    ModelInputEntry,
    ModelOutputEntry,
    OpaqueEntry,
    RollbackEntry,
    SetMemoryNotebookEntry,
    SetSystemInstructionEntry,
    ShortenedResultsEntry,
    ToolCallFinishedEntry,
    ToolCallResultsEntry,
    ToolCallStartedEntry,
)
from antiphon.parts import (
    Audio,
    Document,
    Image,
    Native,
    Part,
    Refusal,
    Text,
    Thinking,
    ToolCallRequest,
    ToolCallResult,
)


def entry_lines(entry: HistoryEntry) -> Iterator[str]:
    """The text of an entry. A line may hold line breaks of its own."""
    match entry:
        case ModelInputEntry() | ModelOutputEntry() | ToolCallResultsEntry():
            for part in entry.content:
                yield _part(part)
        case SetSystemInstructionEntry():
            if (hand_off := entry.hand_off) is not None:
                after = entry.metadata.source.partition(":")[2] if entry.metadata else ""
                reason = f": {hand_off['reason']}" if hand_off.get("reason") else ""
                yield f"{hand_off['from']} handed off to {after}{reason}"
            yield entry.text
        case SetMemoryNotebookEntry():
            yield entry.content
        case DebugLogEntry():
            yield f"{entry.category}: {entry.message}"
        case ToolCallStartedEntry():
            changed = "" if entry.arguments is None else f" with changed arguments: {entry.arguments}"
            yield f"{entry.tool_name} ({entry.tool_call_id}){changed}"
        case ToolCallFinishedEntry():
            yield _part(entry.result)
        case ApprovalRequestedEntry():
            yield f"{', '.join(entry.tool_call_ids)}{': ' + entry.reason if entry.reason else ''}"
        case HumanDecisionEntry():
            yield f"{entry.decision} {entry.tool_call_id}{': ' + entry.reason if entry.reason else ''}"
        case LiveContextInjectedEntry():
            yield f"on entry {entry.decorated}: {entry.live_screen}"
        case RollbackEntry():
            kept = f", keeping {', '.join(map(str, entry.kept))}" if entry.kept else ""
            yield f"back to version {entry.to}{kept}{': ' + entry.reason if entry.reason else ''}"
        case CompactionEntry():
            yield f"entries {max(1, entry.since)} to {entry.up_to}: {entry.summary or '(left out)'}"
        case ShortenedResultsEntry():
            yield f"results of the entries {entry.since} to {entry.up_to}, {entry.max_chars:,} characters of each"
        case OpaqueEntry():
            yield f"(written by a newer version: {entry.why})"
    if entry.metadata and entry.metadata.error:
        yield f"error: {entry.metadata.error}"
    for call, text in (entry.extra("tracebacks") or {}).items():
        yield f"traceback of {call}: {text}"


def _part(part: Part) -> str:
    match part:
        case Text():
            return part.text
        case Thinking():
            return f"(thinking) {part.text}"
        case Refusal():
            return f"(refusal) {part.text}"
        case ToolCallRequest():
            return f"→ {part.tool_name} {part.arguments}  ({part.tool_call_id})"
        case ToolCallResult():
            content = "\n".join(_part(inner) for inner in part.content)
            return f"← {part.tool_name} {part.status}  ({part.tool_call_id})  {content}"
        case Native():
            return f"({part.origin} block)"
        case Image() | Audio() | Document():
            where = part.url or part.file_id or f"{len(part.data) * 3 // 4:,} bytes"
            return f"({type(part).__name__.lower()} {part.media_type} {where})"
