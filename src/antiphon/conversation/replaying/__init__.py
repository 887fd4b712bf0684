"""A conversation answered again by another model, and conversations beside each other."""

from antiphon.conversation.replaying.comparison import Branch, ComparedStep, Comparison, Step, StepCall, compare
from antiphon.conversation.replaying.recorded_results import CallPolicy
from antiphon.conversation.replaying.replay_run import Replay, replay

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
