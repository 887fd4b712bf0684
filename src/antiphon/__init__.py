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

if TYPE_CHECKING:  # what editors and type checkers see
    from antiphon.context import (
        LiveContext as LiveContext,
    )
    from antiphon.context import (
        LiveContextOptions as LiveContextOptions,
    )
    from antiphon.context import (
        TokenCounter as TokenCounter,
    )
    from antiphon.context import (
        TokenLedger as TokenLedger,
    )
    from antiphon.context import (
        render_live_context as render_live_context,
    )
    from antiphon.conversation import (
        Agent as Agent,
    )
    from antiphon.conversation import (
        AgentSwitched as AgentSwitched,
    )
    from antiphon.conversation import (
        ApprovalNeeded as ApprovalNeeded,
    )
    from antiphon.conversation import (
        Bounds as Bounds,
    )
    from antiphon.conversation import (
        CompactionNeeded as CompactionNeeded,
    )
    from antiphon.conversation import (
        Conversation as Conversation,
    )
    from antiphon.conversation import (
        Decision as Decision,
    )
    from antiphon.conversation import (
        EndReason as EndReason,
    )
    from antiphon.conversation import (
        LoopEvent as LoopEvent,
    )
    from antiphon.conversation import (
        LoopFinished as LoopFinished,
    )
    from antiphon.conversation import (
        LoopResult as LoopResult,
    )
    from antiphon.conversation import (
        ModelSettings as ModelSettings,
    )
    from antiphon.conversation import (
        ModelSwitched as ModelSwitched,
    )
    from antiphon.conversation import (
        PartialOutput as PartialOutput,
    )
    from antiphon.conversation import (
        PartsTracker as PartsTracker,
    )
    from antiphon.conversation import (
        Round as Round,
    )
    from antiphon.conversation import (
        RoundStarted as RoundStarted,
    )
    from antiphon.conversation import (
        RoundUsage as RoundUsage,
    )
    from antiphon.conversation import (
        StepResult as StepResult,
    )
    from antiphon.conversation import (
        TextDelta as TextDelta,
    )
    from antiphon.conversation import (
        ThinkingDelta as ThinkingDelta,
    )
    from antiphon.conversation import (
        ToolCallFailed as ToolCallFailed,
    )
    from antiphon.conversation import (
        ToolCallFinished as ToolCallFinished,
    )
    from antiphon.conversation import (
        ToolCallProgress as ToolCallProgress,
    )
    from antiphon.conversation import (
        ToolCallStarted as ToolCallStarted,
    )
    from antiphon.conversation import (
        ToolLoop as ToolLoop,
    )
    from antiphon.conversation import (
        decide as decide,
    )
    from antiphon.conversation import (
        pending_calls as pending_calls,
    )
    from antiphon.conversation import (
        rounds_of as rounds_of,
    )
    from antiphon.errors import (
        AntiphonError as AntiphonError,
    )
    from antiphon.errors import (
        ApprovalPending as ApprovalPending,
    )
    from antiphon.errors import (
        InvalidOutput as InvalidOutput,
    )
    from antiphon.history import (
        AgentHistory as AgentHistory,
    )
    from antiphon.history import (
        AgentHistorySnapshot as AgentHistorySnapshot,
    )
    from antiphon.history import (
        ApprovalRequestedEntry as ApprovalRequestedEntry,
    )
    from antiphon.history import (
        CompactionEntry as CompactionEntry,
    )
    from antiphon.history import (
        ContextEntry as ContextEntry,
    )
    from antiphon.history import (
        ContextEntryRole as ContextEntryRole,
    )
    from antiphon.history import (
        DebugLogEntry as DebugLogEntry,
    )
    from antiphon.history import (
        DecoratedContextEntry as DecoratedContextEntry,
    )
    from antiphon.history import (
        EntryMetadata as EntryMetadata,
    )
    from antiphon.history import (
        HistoryEntry as HistoryEntry,
    )
    from antiphon.history import (
        HistoryEntryKind as HistoryEntryKind,
    )
    from antiphon.history import (
        HistoryStore as HistoryStore,
    )
    from antiphon.history import (
        HumanDecisionEntry as HumanDecisionEntry,
    )
    from antiphon.history import (
        LiveContextInjectedEntry as LiveContextInjectedEntry,
    )
    from antiphon.history import (
        ModelInputEntry as ModelInputEntry,
    )
    from antiphon.history import (
        ModelOutputEntry as ModelOutputEntry,
    )
    from antiphon.history import (
        RollbackEntry as RollbackEntry,
    )
    from antiphon.history import (
        SetMemoryNotebookEntry as SetMemoryNotebookEntry,
    )
    from antiphon.history import (
        SetSystemInstructionEntry as SetSystemInstructionEntry,
    )
    from antiphon.history import (
        SqliteStore as SqliteStore,
    )
    from antiphon.history import (
        TokenUsage as TokenUsage,
    )
    from antiphon.history import (
        ToolCallResultsEntry as ToolCallResultsEntry,
    )
    from antiphon.history import (
        ToolCallStartedEntry as ToolCallStartedEntry,
    )
    from antiphon.parts import (
        Audio as Audio,
    )
    from antiphon.parts import (
        Document as Document,
    )
    from antiphon.parts import (
        Image as Image,
    )
    from antiphon.parts import (
        Native as Native,
    )
    from antiphon.parts import (
        Part as Part,
    )
    from antiphon.parts import (
        Refusal as Refusal,
    )
    from antiphon.parts import (
        Text as Text,
    )
    from antiphon.parts import (
        Thinking as Thinking,
    )
    from antiphon.parts import (
        ToolCallRequest as ToolCallRequest,
    )
    from antiphon.parts import (
        ToolCallResult as ToolCallResult,
    )
    from antiphon.parts import (
        ToolExecutionStatus as ToolExecutionStatus,
    )
    from antiphon.providers import (
        CredentialPool as CredentialPool,
    )
    from antiphon.providers import (
        FunctionModel as FunctionModel,
    )
    from antiphon.providers import (
        ModelCallFailed as ModelCallFailed,
    )
    from antiphon.providers import (
        ProviderCallOptions as ProviderCallOptions,
    )
    from antiphon.providers import (
        ProviderClient as ProviderClient,
    )
    from antiphon.providers import (
        ProviderRouter as ProviderRouter,
    )
    from antiphon.providers import (
        ScriptedModel as ScriptedModel,
    )
    from antiphon.repair import (
        fix_tool_call_sequence as fix_tool_call_sequence,
    )
    from antiphon.tools import (
        Tool as Tool,
    )
    from antiphon.tools import (
        ToolContext as ToolContext,
    )
    from antiphon.tools import (
        ToolError as ToolError,
    )
    from antiphon.tools import (
        ToolExecutor as ToolExecutor,
    )
    from antiphon.tools import (
        ToolRegistry as ToolRegistry,
    )
    from antiphon.tools import (
        ask_before_changes as ask_before_changes,
    )
    from antiphon.tools import (
        tool as tool,
    )
    from antiphon.wire import (
        ModelOutputDelta as ModelOutputDelta,
    )
    from antiphon.wire import (
        ModelRequest as ModelRequest,
    )

_EXPORTS = {
    "antiphon.context": (
        "LiveContext",
        "LiveContextOptions",
        "TokenCounter",
        "TokenLedger",
        "render_live_context",
    ),
    "antiphon.conversation": (
        "Agent",
        "AgentSwitched",
        "ApprovalNeeded",
        "Bounds",
        "CompactionNeeded",
        "Conversation",
        "Decision",
        "EndReason",
        "LoopEvent",
        "LoopFinished",
        "LoopResult",
        "ModelSettings",
        "ModelSwitched",
        "PartialOutput",
        "PartsTracker",
        "Round",
        "RoundStarted",
        "RoundUsage",
        "StepResult",
        "TextDelta",
        "ThinkingDelta",
        "ToolCallFailed",
        "ToolCallFinished",
        "ToolCallProgress",
        "ToolCallStarted",
        "ToolLoop",
        "decide",
        "pending_calls",
        "rounds_of",
    ),
    "antiphon.errors": (
        "AntiphonError",
        "ApprovalPending",
        "InvalidOutput",
    ),
    "antiphon.history": (
        "AgentHistory",
        "AgentHistorySnapshot",
        "ApprovalRequestedEntry",
        "CompactionEntry",
        "ContextEntry",
        "ContextEntryRole",
        "DebugLogEntry",
        "DecoratedContextEntry",
        "EntryMetadata",
        "HistoryEntry",
        "HistoryEntryKind",
        "HistoryStore",
        "HumanDecisionEntry",
        "LiveContextInjectedEntry",
        "ModelInputEntry",
        "ModelOutputEntry",
        "RollbackEntry",
        "SetMemoryNotebookEntry",
        "SetSystemInstructionEntry",
        "SqliteStore",
        "TokenUsage",
        "ToolCallResultsEntry",
        "ToolCallStartedEntry",
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
    "antiphon.repair": ("fix_tool_call_sequence",),
    "antiphon.tools": (
        "Tool",
        "ToolContext",
        "ToolError",
        "ToolExecutor",
        "ToolRegistry",
        "ask_before_changes",
        "tool",
    ),
    "antiphon.wire": (
        "ModelOutputDelta",
        "ModelRequest",
    ),
}
_HOME_OF = {name: module for module, names in _EXPORTS.items() for name in names}

__all__ = ["__version__", *sorted(_HOME_OF)]


if not TYPE_CHECKING:  # a type checker that saw this would take every misspelt name for a real one

    def __getattr__(name: str) -> object:
        if name not in _HOME_OF:
            raise AttributeError(f"module 'antiphon' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
        return value

    def __dir__() -> list[str]:
        return __all__
