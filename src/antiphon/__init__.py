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
        LiveContextOptions as LiveContextOptions,
        TokenCounter as TokenCounter,
        TokenLedger as TokenLedger,
        render_live_context as render_live_context,
    )
    from antiphon.conversation import (
        Agent as Agent,
        AgentSwitched as AgentSwitched,
        ApprovalNeeded as ApprovalNeeded,
        Bounds as Bounds,
        CompactionNeeded as CompactionNeeded,
        Conversation as Conversation,
        Decision as Decision,
        EndReason as EndReason,
        LoopEvent as LoopEvent,
        LoopFinished as LoopFinished,
        LoopResult as LoopResult,
        ModelSettings as ModelSettings,
        ModelSwitched as ModelSwitched,
        PartialOutput as PartialOutput,
        PartsTracker as PartsTracker,
        Round as Round,
        RoundStarted as RoundStarted,
        RoundUsage as RoundUsage,
        StepResult as StepResult,
        TextDelta as TextDelta,
        ThinkingDelta as ThinkingDelta,
        ToolCallDelta as ToolCallDelta,
        ToolCallFailed as ToolCallFailed,
        ToolCallFinished as ToolCallFinished,
        ToolCallProgress as ToolCallProgress,
        ToolCallStarted as ToolCallStarted,
        ToolLoop as ToolLoop,
        Turn as Turn,
        decide as decide,
        pending_calls as pending_calls,
        rounds_of as rounds_of,
    )
    from antiphon.errors import (
        AntiphonError as AntiphonError,
        ApprovalPending as ApprovalPending,
        CallRefused as CallRefused,
        ConversationError as ConversationError,
        CredentialError as CredentialError,
        GraphError as GraphError,
        HistoryError as HistoryError,
        InvalidArguments as InvalidArguments,
        InvalidOutput as InvalidOutput,
        InvalidTool as InvalidTool,
        LeaseHeld as LeaseHeld,
        LeaseLost as LeaseLost,
        McpUnavailable as McpUnavailable,
        NoUsableCredential as NoUsableCredential,
        ProviderSetupError as ProviderSetupError,
        RoutingError as RoutingError,
        RunStateError as RunStateError,
        StoreError as StoreError,
        ToolError as ToolError,
        ToolWarning as ToolWarning,
        TransportError as TransportError,
        TurnLimitReached as TurnLimitReached,
        UnknownConversation as UnknownConversation,
        WireError as WireError,
        WriterConflict as WriterConflict,
    )
    from antiphon.history import (
        AgentHistory as AgentHistory,
        AgentHistorySnapshot as AgentHistorySnapshot,
        ApprovalRequestedEntry as ApprovalRequestedEntry,
        CompactionEntry as CompactionEntry,
        ContextEntry as ContextEntry,
        ContextEntryRole as ContextEntryRole,
        ConversationInfo as ConversationInfo,
        DebugLogEntry as DebugLogEntry,
        DecoratedContextEntry as DecoratedContextEntry,
        EntryMetadata as EntryMetadata,
        HistoryEntry as HistoryEntry,
        HistoryEntryKind as HistoryEntryKind,
        HistoryStore as HistoryStore,
        LiveContextInjectedEntry as LiveContextInjectedEntry,
        HumanDecisionEntry as HumanDecisionEntry,
        ModelInputEntry as ModelInputEntry,
        ModelOutputEntry as ModelOutputEntry,
        Origin as Origin,
        RollbackEntry as RollbackEntry,
        Run as Run,
        SearchHit as SearchHit,
        SetMemoryNotebookEntry as SetMemoryNotebookEntry,
        SetSystemInstructionEntry as SetSystemInstructionEntry,
        SqliteStore as SqliteStore,
        TokenUsage as TokenUsage,
        ToolCallFinishedEntry as ToolCallFinishedEntry,
        ToolCallResultsEntry as ToolCallResultsEntry,
        ToolCallStartedEntry as ToolCallStartedEntry,
    )
    from antiphon.history.location import (
        open_store as open_store,
    )
    from antiphon.history.postgres import (
        PostgresStore as PostgresStore,
    )
    from antiphon.parts import (
        Audio as Audio,
        Document as Document,
        Image as Image,
        InputPart as InputPart,
        Native as Native,
        OutputPart as OutputPart,
        Part as Part,
        Refusal as Refusal,
        Text as Text,
        Thinking as Thinking,
        ToolCallRequest as ToolCallRequest,
        ToolCallResult as ToolCallResult,
        ToolExecutionStatus as ToolExecutionStatus,
    )
    from antiphon.prices import (
        Cost as Cost,
        PriceOverride as PriceOverride,
        PriceTable as PriceTable,
        Spend as Spend,
        cost_of as cost_of,
        spend_of as spend_of,
    )
    from antiphon.providers import (
        CallReport as CallReport,
        CredentialPool as CredentialPool,
        FunctionModel as FunctionModel,
        HttpProviderClient as HttpProviderClient,
        ModelCallFailed as ModelCallFailed,
        ProviderCallOptions as ProviderCallOptions,
        ProviderClient as ProviderClient,
        ProviderRouter as ProviderRouter,
        ScriptedModel as ScriptedModel,
    )
    from antiphon.providers.scripted import (
        call as call,
    )
    from antiphon.repair import (
        fix_tool_call_sequence as fix_tool_call_sequence,
    )
    from antiphon.runs import (
        RunBook as RunBook,
        RunRetryPolicy as RunRetryPolicy,
        Runs as Runs,
        Worker as Worker,
    )
    from antiphon.tools import (
        ApprovalPolicy as ApprovalPolicy,
        CallOutcome as CallOutcome,
        Hook as Hook,
        HookedModelCall as HookedModelCall,
        Tool as Tool,
        ToolContext as ToolContext,
        ToolExecutor as ToolExecutor,
        ToolRegistry as ToolRegistry,
        ToolSettings as ToolSettings,
        ToolSource as ToolSource,
        ask_before_changes as ask_before_changes,
        tool as tool,
    )
    from antiphon.tools.mcp import (
        McpServer as McpServer,
    )
    from antiphon.wire import (
        Loss as Loss,
        ModelOutput as ModelOutput,
        ModelOutputDelta as ModelOutputDelta,
        ModelRequest as ModelRequest,
        OutputFormat as OutputFormat,
        ProviderError as ProviderError,
        Reasoning as Reasoning,
        ToolChoice as ToolChoice,
        ToolDefinition as ToolDefinition,
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
        "ToolCallDelta",
        "ToolCallFailed",
        "ToolCallFinished",
        "ToolCallProgress",
        "ToolCallStarted",
        "ToolLoop",
        "Turn",
        "decide",
        "pending_calls",
        "rounds_of",
    ),
    "antiphon.errors": (
        "AntiphonError",
        "ApprovalPending",
        "CallRefused",
        "ConversationError",
        "CredentialError",
        "GraphError",
        "HistoryError",
        "InvalidArguments",
        "InvalidOutput",
        "InvalidTool",
        "LeaseHeld",
        "LeaseLost",
        "McpUnavailable",
        "NoUsableCredential",
        "ProviderSetupError",
        "RoutingError",
        "RunStateError",
        "StoreError",
        "ToolError",
        "ToolWarning",
        "TransportError",
        "TurnLimitReached",
        "UnknownConversation",
        "WireError",
        "WriterConflict",
    ),
    "antiphon.history": (
        "AgentHistory",
        "AgentHistorySnapshot",
        "ApprovalRequestedEntry",
        "CompactionEntry",
        "ContextEntry",
        "ContextEntryRole",
        "ConversationInfo",
        "DebugLogEntry",
        "DecoratedContextEntry",
        "EntryMetadata",
        "HistoryEntry",
        "HistoryEntryKind",
        "HistoryStore",
        "LiveContextInjectedEntry",
        "HumanDecisionEntry",
        "ModelInputEntry",
        "ModelOutputEntry",
        "Origin",
        "RollbackEntry",
        "Run",
        "SearchHit",
        "SetMemoryNotebookEntry",
        "SetSystemInstructionEntry",
        "SqliteStore",
        "TokenUsage",
        "ToolCallFinishedEntry",
        "ToolCallResultsEntry",
        "ToolCallStartedEntry",
    ),
    "antiphon.history.location": ("open_store",),
    "antiphon.history.postgres": ("PostgresStore",),
    "antiphon.parts": (
        "Audio",
        "Document",
        "Image",
        "InputPart",
        "Native",
        "OutputPart",
        "Part",
        "Refusal",
        "Text",
        "Thinking",
        "ToolCallRequest",
        "ToolCallResult",
        "ToolExecutionStatus",
    ),
    "antiphon.prices": ("Cost", "PriceOverride", "PriceTable", "Spend", "cost_of", "spend_of"),
    "antiphon.providers": (
        "CallReport",
        "CredentialPool",
        "FunctionModel",
        "HttpProviderClient",
        "ModelCallFailed",
        "ProviderCallOptions",
        "ProviderClient",
        "ProviderRouter",
        "ScriptedModel",
    ),
    "antiphon.providers.scripted": ("call",),
    "antiphon.repair": ("fix_tool_call_sequence",),
    "antiphon.runs": (
        "RunBook",
        "RunRetryPolicy",
        "Runs",
        "Worker",
    ),
    "antiphon.tools": (
        "ApprovalPolicy",
        "CallOutcome",
        "Hook",
        "HookedModelCall",
        "Tool",
        "ToolContext",
        "ToolExecutor",
        "ToolRegistry",
        "ToolSettings",
        "ToolSource",
        "ask_before_changes",
        "tool",
    ),
    "antiphon.tools.mcp": ("McpServer",),
    "antiphon.wire": (
        "Loss",
        "ModelOutput",
        "ModelOutputDelta",
        "ModelRequest",
        "OutputFormat",
        "ProviderError",
        "Reasoning",
        "ToolChoice",
        "ToolDefinition",
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
