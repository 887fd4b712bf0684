"""Antiphon: one history, every model; every call answered.

`import antiphon as ap` loads nothing but this list; each name is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from antiphon.context import (
        LiveContext,
        LiveContextOptions,
        TokenCounter,
        TokenLedger,
        render_live_context,
    )
    from antiphon.errors import AntiphonError
    from antiphon.history import (
        AgentHistory,
        AgentHistorySnapshot,
        CompactionEntry,
        ContextEntry,
        ContextEntryRole,
        DebugLogEntry,
        DecoratedContextEntry,
        EntryMetadata,
        HistoryEntry,
        HistoryStore,
        ModelInputEntry,
        ModelOutputEntry,
        RollbackEntry,
        SqliteStore,
        TokenUsage,
        ToolCallResultsEntry,
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
        ToolExecutionStatus,
    )

_HOMES = {
    "antiphon.context": ("LiveContext", "LiveContextOptions", "TokenCounter", "TokenLedger", "render_live_context"),
    "antiphon.errors": ("AntiphonError",),
    "antiphon.history": (
        "AgentHistory",
        "AgentHistorySnapshot",
        "CompactionEntry",
        "ContextEntry",
        "ContextEntryRole",
        "DebugLogEntry",
        "DecoratedContextEntry",
        "EntryMetadata",
        "HistoryEntry",
        "HistoryStore",
        "ModelInputEntry",
        "ModelOutputEntry",
        "RollbackEntry",
        "SqliteStore",
        "TokenUsage",
        "ToolCallResultsEntry",
    ),
    "antiphon.parts": (
        "Audio",
        "Document",
        "Image",
        "Native",
        "Part",
        "Refusal",
        "Text",
        "Thinking",
        "ToolCallRequest",
        "ToolCallResult",
        "ToolExecutionStatus",
    ),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "AgentHistory",
    "AgentHistorySnapshot",
    "AntiphonError",
    "Audio",
    "CompactionEntry",
    "ContextEntry",
    "ContextEntryRole",
    "DebugLogEntry",
    "DecoratedContextEntry",
    "Document",
    "EntryMetadata",
    "HistoryEntry",
    "HistoryStore",
    "Image",
    "LiveContext",
    "LiveContextOptions",
    "ModelInputEntry",
    "ModelOutputEntry",
    "Native",
    "Part",
    "Refusal",
    "RollbackEntry",
    "SqliteStore",
    "Text",
    "Thinking",
    "TokenCounter",
    "TokenLedger",
    "TokenUsage",
    "ToolCallRequest",
    "ToolCallResult",
    "ToolCallResultsEntry",
    "ToolExecutionStatus",
    "__version__",
    "render_live_context",
]


if not TYPE_CHECKING:  # a type checker that saw this would take every misspelt name for a real one

    def __getattr__(name: str) -> object:
        if name not in _HOME_OF:
            raise AttributeError(f"module 'antiphon' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
        return value

    def __dir__() -> list[str]:
        return __all__
