"""A conversation answered again by another model, and conversations beside each other."""

from antiphon.conversation.replay.comparison import Branch, ComparedStep, Comparison, Step, StepCall, compare
from antiphon.conversation.replay.recorded_results import CallPolicy
from antiphon.conversation.replay.replay_run import Replay, replay

__all__ = [
    "Branch",
    "CallPolicy",
    "ComparedStep",
    "Comparison",
    "Replay",
    "Step",
    "StepCall",
    "compare",
    "replay",
]
