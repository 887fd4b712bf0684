"""`Bounds`: what ends a turn that would not end by itself (law L8).

Every bound is looked at before the model is asked again. Past one, the model gets one last call in which it may call nothing, so
that it answers with what it has; it is told why on its LiveScreen, and the log keeps that.
"""

from __future__ import annotations

from msgspec import Struct

from antiphon.conversation.events import EndReason
from antiphon.conversation.turn import Turn
from antiphon.errors import ConversationError


class Bounds(Struct, frozen=True, kw_only=True):
    """How far a turn may go. `max_rounds` rounds of calls, `max_failed_rounds` in a row without a call that succeeded,
    `max_repeats` times the same calls with the same results; and budgets for the turn: tokens, seconds, calls."""

    max_rounds: int = 5
    max_failed_rounds: int = 2
    max_repeats: int = 2
    tokens: int | None = None
    seconds: float | None = None
    calls: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_rounds", "max_failed_rounds", "max_repeats", "tokens", "calls"):
            least = 0 if name == "max_repeats" else 1  # 0 repeats: they are not looked for
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConversationError(f"{name} must be at least {least}, and it is {value}")
        if self.seconds is not None and self.seconds <= 0:
            raise ConversationError(f"seconds must be above 0, and it is {self.seconds}")

    def reached(self, turn: Turn, seconds: float) -> EndReason | None:
        """The bound that a turn has come to, if it has."""
        if turn.rounds >= self.max_rounds:
            return "max_rounds"
        if turn.failed_rounds >= self.max_failed_rounds:
            return "failed_rounds"
        if turn.repeats >= self.max_repeats > 0:
            return "repeated_calls"
        if self.tokens is not None and turn.usage.total >= self.tokens:
            return "token_budget"
        if self.calls is not None and turn.calls >= self.calls:
            return "call_budget"
        if self.seconds is not None and seconds >= self.seconds:
            return "time_budget"
        return None

    def told(self, reason: EndReason, turn: Turn) -> str:
        """What the model is told of the bound."""
        said = {
            "max_rounds": f"All {self.max_rounds} rounds of tool calls are used.",
            "failed_rounds": f"{turn.failed_rounds} rounds in a row brought no tool call to success.",
            "repeated_calls": "The same calls were made again and again with the same results.",
            "token_budget": f"The budget of {self.tokens} tokens is used.",
            "time_budget": f"The budget of {self.seconds:g} seconds is used." if self.seconds else "",
            "call_budget": f"The budget of {self.calls} tool calls is used.",
        }[reason]
        return f"{said} No tool can be called any more in this turn: answer now with what you have, and say what is missing."
