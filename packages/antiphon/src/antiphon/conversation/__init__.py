"""One thread with models and tools, and the loop that plays its turns."""

from antiphon.conversation.agent import Agent, HandOff, hand_offs
from antiphon.conversation.approval import Decision, decide, pending_calls
from antiphon.conversation.conversation import Conversation
from antiphon.conversation.events import (
    AgentSwitched,
    ApprovalNeeded,
    CompactionNeeded,
    EndReason,
    LoopEvent,
    LoopFinished,
    ModelSwitched,
    PartialOutput,
    RetryScheduled,
    RoundStarted,
    RoundUsage,
    StepResult,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallFailed,
    ToolCallFinished,
    ToolCallProgress,
    ToolCallStarted,
)
from antiphon.conversation.loop import LoopResult, ToolLoop
from antiphon.conversation.model_settings import ModelSettings
from antiphon.conversation.recorded_call import PartsTracker
from antiphon.conversation.turn import Bounds, Round, Turn, rounds_of

__all__ = [
    "Agent",
    "AgentSwitched",
    "ApprovalNeeded",
    "Bounds",
    "CompactionNeeded",
    "Conversation",
    "Decision",
    "EndReason",
    "HandOff",
    "LoopEvent",
    "LoopFinished",
    "LoopResult",
    "ModelSettings",
    "ModelSwitched",
    "PartialOutput",
    "PartsTracker",
    "RetryScheduled",
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
    "hand_offs",
    "pending_calls",
    "rounds_of",
]
