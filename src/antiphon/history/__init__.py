"""The log: what happened in a conversation, typed, append-only and durable."""

from antiphon.history.agent_history import AgentHistory, Journal
from antiphon.history.codec import SCHEMA, decode_entry, encode_entry
from antiphon.history.entries import (
    ApprovalRequestedEntry,
    CompactionEntry,
    ContextEntry,
    ContextEntryRole,
    DebugLogEntry,
    DecoratedContextEntry,
    EntryMetadata,
    HistoryEntry,
    HistoryEntryKind,
    HumanDecisionEntry,
    LiveContextInjectedEntry,
    ModelInputEntry,
    ModelOutputEntry,
    Observation,
    OpaqueEntry,
    Origin,
    RollbackEntry,
    SetMemoryNotebookEntry,
    SetSystemInstructionEntry,
    ToolCallFinishedEntry,
    ToolCallResultsEntry,
    ToolCallStartedEntry,
)
from antiphon.history.lease import Lease, LeaseKeeper, hold_lease
from antiphon.history.run_table import Run, RunTable
from antiphon.history.snapshot import AgentHistorySnapshot, EntriesView
from antiphon.history.sqlite import SqliteStore
from antiphon.history.store import ConversationInfo, HistoryStore, SearchHit
from antiphon.history.usage import TokenUsage

__all__ = [
    "SCHEMA",
    "AgentHistory",
    "AgentHistorySnapshot",
    "ApprovalRequestedEntry",
    "CompactionEntry",
    "ContextEntry",
    "ContextEntryRole",
    "ConversationInfo",
    "DebugLogEntry",
    "DecoratedContextEntry",
    "EntriesView",
    "EntryMetadata",
    "HistoryEntry",
    "HistoryEntryKind",
    "HistoryStore",
    "HumanDecisionEntry",
    "Journal",
    "Lease",
    "LeaseKeeper",
    "LiveContextInjectedEntry",
    "ModelInputEntry",
    "ModelOutputEntry",
    "Observation",
    "OpaqueEntry",
    "Origin",
    "RollbackEntry",
    "Run",
    "RunTable",
    "SearchHit",
    "SetMemoryNotebookEntry",
    "SetSystemInstructionEntry",
    "SqliteStore",
    "TokenUsage",
    "ToolCallFinishedEntry",
    "ToolCallResultsEntry",
    "ToolCallStartedEntry",
    "decode_entry",
    "encode_entry",
    "hold_lease",
]
