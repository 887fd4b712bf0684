"""Antiphon: one history, every model; every call answered.

`import antiphon as ap` loads nothing but this list; each name is imported when it is first used.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING

# An application that does not configure logging gets no line of ours on its standard error.
logging.getLogger("antiphon").addHandler(logging.NullHandler())

__version__ = "0.1.0"

if TYPE_CHECKING:
    from antiphon.context import LiveContext, LiveContextOptions, TokenCounter, TokenLedger, render_live_context
    from antiphon.conversation import (
        Agent,
        Bounds,
        Conversation,
        LoopEvent,
        LoopFinished,
        LoopResult,
        PartsTracker,
        ToolLoop,
        rounds_of,
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
    from antiphon.providers import (
        CredentialPool,
        FunctionModel,
        ModelCallFailed,
        ProviderCallOptions,
        ProviderClient,
        ProviderRouter,
        ScriptedModel,
    )
    from antiphon.tools import Tool, ToolContext, ToolError, ToolExecutor, ToolRegistry, tool
    from antiphon.wire import ModelRequest

_HOMES = {
    "antiphon.context": ("LiveContext", "LiveContextOptions", "TokenCounter", "TokenLedger", "render_live_context"),
    "antiphon.conversation": (
        "Agent",
        "Bounds",
        "Conversation",
        "LoopEvent",
        "LoopFinished",
        "LoopResult",
        "PartsTracker",
        "ToolLoop",
        "rounds_of",
    ),
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
    "antiphon.providers": (
        "CredentialPool",
        "FunctionModel",
        "ModelCallFailed",
        "ProviderCallOptions",
        "ProviderClient",
        "ProviderRouter",
        "ScriptedModel",
    ),
    "antiphon.tools": ("Tool", "ToolContext", "ToolError", "ToolExecutor", "ToolRegistry", "tool"),
    "antiphon.wire": ("ModelRequest",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Agent",
    "AgentHistory",
    "AgentHistorySnapshot",
    "AntiphonError",
    "Audio",
    "Bounds",
    "CompactionEntry",
    "ContextEntry",
    "ContextEntryRole",
    "Conversation",
    "CredentialPool",
    "DebugLogEntry",
    "DecoratedContextEntry",
    "Document",
    "EntryMetadata",
    "FunctionModel",
    "HistoryEntry",
    "HistoryStore",
    "Image",
    "LiveContext",
    "LiveContextOptions",
    "LoopEvent",
    "LoopFinished",
    "LoopResult",
    "ModelCallFailed",
    "ModelInputEntry",
    "ModelOutputEntry",
    "ModelRequest",
    "Native",
    "Part",
    "PartsTracker",
    "ProviderCallOptions",
    "ProviderClient",
    "ProviderRouter",
    "Refusal",
    "RollbackEntry",
    "ScriptedModel",
    "SqliteStore",
    "Text",
    "Thinking",
    "TokenCounter",
    "TokenLedger",
    "TokenUsage",
    "Tool",
    "ToolCallRequest",
    "ToolCallResult",
    "ToolCallResultsEntry",
    "ToolContext",
    "ToolError",
    "ToolExecutionStatus",
    "ToolExecutor",
    "ToolLoop",
    "ToolRegistry",
    "__version__",
    "render_live_context",
    "rounds_of",
    "tool",
]


if not TYPE_CHECKING:  # a type checker that saw this would take every misspelt name for a real one

    def __getattr__(name: str) -> object:
        if name not in _HOME_OF:
            raise AttributeError(f"module 'antiphon' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
        return value

    def __dir__() -> list[str]:
        return __all__
