"""The log: what happened in a conversation, typed, append-only and durable."""

from antiphon.history.agent_history import AgentHistory
from antiphon.history.codec import SCHEMA, decode_entry, encode_entry, register_entry
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
    ShortenedResultsEntry,
    ToolCallFinishedEntry,
    ToolCallResultsEntry,
    ToolCallStartedEntry,
)
from antiphon.history.journal import Journal
from antiphon.history.lease import Lease, LeaseKeeper, hold_lease
from antiphon.history.snapshot import AgentHistorySnapshot, EntriesView
from antiphon.history.sql.runs import RunTable
from antiphon.history.sql.sqlite import SqliteStore
from antiphon.history.sql.store import HistoryStore
from antiphon.history.store import ConversationInfo, Run, RunState, SearchHit

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
    "RunState",
    "RunTable",
    "SearchHit",
    "SetMemoryNotebookEntry",
    "SetSystemInstructionEntry",
    "ShortenedResultsEntry",
    "SqliteStore",
    "ToolCallFinishedEntry",
    "ToolCallResultsEntry",
    "ToolCallStartedEntry",
    "decode_entry",
    "encode_entry",
    "hold_lease",
    "register_entry",
]
