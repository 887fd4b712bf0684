"""Antiphon: one history, every model; every call answered.

`import antiphon as ap` loads nothing but this list, the names of everyday programs; each is imported when it is first used. All
others are in their packages: `antiphon.conversation`, `antiphon.history`, `antiphon.tools`, `antiphon.providers`,
`antiphon.context`, `antiphon.prices`, `antiphon.runs`, `antiphon.wire`, `antiphon.repair` and `antiphon.errors`.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING

# An application that does not configure logging gets no line of ours on its standard error.
logging.getLogger("antiphon").addHandler(logging.NullHandler())

__version__ = "0.2.0"

if TYPE_CHECKING:  # what editors and type checkers see
    from antiphon.context import (
        LiveContextOptions as LiveContextOptions,
        render_live_context as render_live_context,
    )
    from antiphon.conversation import (
        Agent as Agent,
        ApprovalNeeded as ApprovalNeeded,
        CompactionNeeded as CompactionNeeded,
        Conversation as Conversation,
        Decision as Decision,
        EndReason as EndReason,
        EntryAppended as EntryAppended,
        HandOff as HandOff,
        LoopEvent as LoopEvent,
        LoopFinished as LoopFinished,
        ModelSettings as ModelSettings,
        PartsTracker as PartsTracker,
        RoundStarted as RoundStarted,
        RunLimits as RunLimits,
        RunResult as RunResult,
        TextDelta as TextDelta,
        ThinkingDelta as ThinkingDelta,
        ToolCallFailed as ToolCallFailed,
        ToolCallFinished as ToolCallFinished,
        ToolCallStarted as ToolCallStarted,
        ToolLoop as ToolLoop,
    )
    from antiphon.errors import (
        AntiphonError as AntiphonError,
        ApprovalPending as ApprovalPending,
        CallRefused as CallRefused,
        InvalidOutput as InvalidOutput,
        ToolError as ToolError,
    )
    from antiphon.history import (
        AgentHistory as AgentHistory,
        CompactionEntry as CompactionEntry,
        ContextEntry as ContextEntry,
        DebugLogEntry as DebugLogEntry,
        EntryMetadata as EntryMetadata,
        HistoryEntry as HistoryEntry,
        HistoryStore as HistoryStore,
        HumanDecisionEntry as HumanDecisionEntry,
        ModelInputEntry as ModelInputEntry,
        ModelOutputEntry as ModelOutputEntry,
        Origin as Origin,
        RollbackEntry as RollbackEntry,
        SetMemoryNotebookEntry as SetMemoryNotebookEntry,
        SetSystemInstructionEntry as SetSystemInstructionEntry,
        SqliteStore as SqliteStore,
        ToolCallResultsEntry as ToolCallResultsEntry,
        register_entry as register_entry,
    )
    from antiphon.history.location import (
        open_store as open_store,
    )
    from antiphon.parts import (
        Audio as Audio,
        Document as Document,
        Image as Image,
        Native as Native,
        Refusal as Refusal,
        Text as Text,
        Thinking as Thinking,
        TokenUsage as TokenUsage,
        ToolCallRequest as ToolCallRequest,
        ToolCallResult as ToolCallResult,
        ToolExecutionStatus as ToolExecutionStatus,
    )
    from antiphon.providers import (
        FunctionModel as FunctionModel,
        ModelCallFailed as ModelCallFailed,
        ProviderClient as ProviderClient,
        ProviderRouter as ProviderRouter,
        ScriptedModel as ScriptedModel,
    )
    from antiphon.providers.scripted import (
        call as call,
    )
    from antiphon.repair import (
        repair_messages as repair_messages,
    )
    from antiphon.tools import (
        ApprovalPolicy as ApprovalPolicy,
        Hook as Hook,
        Settled as Settled,
        Tool as Tool,
        ToolContext as ToolContext,
        ToolExecutor as ToolExecutor,
        ToolRegistry as ToolRegistry,
        ToolSource as ToolSource,
        tool as tool,
    )
    from antiphon.tools.mcp import (
        McpServer as McpServer,
    )

_EXPORTS = {
    "antiphon.context": "LiveContextOptions render_live_context",
    "antiphon.conversation": """
        Agent ApprovalNeeded CompactionNeeded Conversation Decision EndReason EntryAppended HandOff LoopEvent
        LoopFinished ModelSettings PartsTracker RoundStarted RunLimits RunResult TextDelta ThinkingDelta ToolCallFailed
        ToolCallFinished ToolCallStarted ToolLoop
    """,
    "antiphon.errors": "AntiphonError ApprovalPending CallRefused InvalidOutput ToolError",
    "antiphon.history": """
        AgentHistory CompactionEntry ContextEntry DebugLogEntry EntryMetadata HistoryEntry HistoryStore
        HumanDecisionEntry ModelInputEntry ModelOutputEntry Origin RollbackEntry SetMemoryNotebookEntry
        SetSystemInstructionEntry SqliteStore ToolCallResultsEntry register_entry
    """,
    "antiphon.history.location": "open_store",
    "antiphon.parts": """
        Audio Document Image Native Refusal Text Thinking TokenUsage ToolCallRequest ToolCallResult ToolExecutionStatus
    """,
    "antiphon.providers": "FunctionModel ModelCallFailed ProviderClient ProviderRouter ScriptedModel",
    "antiphon.providers.scripted": "call",
    "antiphon.repair": "repair_messages",
    "antiphon.tools": "ApprovalPolicy Hook Settled Tool ToolContext ToolExecutor ToolRegistry ToolSource tool",
    "antiphon.tools.mcp": "McpServer",
}
_HOME_OF = {name: module for module, names in _EXPORTS.items() for name in names.split()}

__all__ = ["__version__", *sorted(_HOME_OF)]


if not TYPE_CHECKING:  # a type checker that saw this would take every misspelt name for a real one

    def __getattr__(name: str) -> object:
        if name not in _HOME_OF:
            raise AttributeError(f"module 'antiphon' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
        return value

    def __dir__() -> list[str]:
        return __all__
