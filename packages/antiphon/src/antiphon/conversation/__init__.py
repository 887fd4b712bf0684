"""One thread with models and tools, and the loop that runs its turns."""

from antiphon.conversation.agent import Agent, HandOff, hand_offs
from antiphon.conversation.approval import Decision, decide
from antiphon.conversation.conversation import Conversation
from antiphon.conversation.events import (
    AgentSwitched,
    ApprovalNeeded,
    CompactionNeeded,
    EndReason,
    EntryAppended,
    LoopEvent,
    LoopFinished,
    ModelSwitched,
    PartialOutput,
    RetryScheduled,
    RoundStarted,
    RoundUsage,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallFailed,
    ToolCallFinished,
    ToolCallProgress,
    ToolCallStarted,
)
from antiphon.conversation.loop import ToolLoop
from antiphon.conversation.message import PartsTracker
from antiphon.conversation.model_settings import ModelSettings
from antiphon.conversation.run import RunLimits, RunResult, RunTotals, SideAnswer
from antiphon.conversation.turn import Round, Turn, rounds_of

__all__ = [
    "Agent",
    "AgentSwitched",
    "ApprovalNeeded",
    "CompactionNeeded",
    "Conversation",
    "Decision",
    "EndReason",
    "EntryAppended",
    "HandOff",
    "LoopEvent",
    "LoopFinished",
    "ModelSettings",
    "ModelSwitched",
    "PartialOutput",
    "PartsTracker",
    "RetryScheduled",
    "Round",
    "RoundStarted",
    "RoundUsage",
    "RunLimits",
    "RunResult",
    "RunTotals",
    "SideAnswer",
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
    "hand_offs",
    "rounds_of",
]
