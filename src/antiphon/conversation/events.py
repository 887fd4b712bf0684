"""What a `ToolLoop` tells while it runs: one small frozen value for each thing that happens, in the order in which it does.

    turn     := calls? round* LoopFinished
    round    := AgentSwitched? RoundStarted CompactionNeeded? ModelSwitched? (TextDelta | ThinkingDelta)* RoundUsage? calls?
    calls    := (ToolCallStarted | ToolCallProgress | ToolCallFinished | ToolCallFailed)* ApprovalNeeded?

A turn that is resumed may begin with the calls of a round that began before. Exactly one `LoopFinished` ends a stream, and says
why; only a mistake of the caller or a store that cannot write ends it with an error instead.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from antiphon.history import TokenUsage
from antiphon.parts import ToolCallRequest, ToolCallResult
from antiphon.wire.output import ProviderError

EndReason: TypeAlias = Literal[
    "answered",
    "max_rounds",
    "failed_rounds",
    "repeated_calls",
    "token_budget",
    "time_budget",
    "call_budget",
    "max_hand_overs",
    "approval",
    "interrupted",
    "failed",
    "stepped",
]
"""Why a loop ended. `answered`: the model had nothing more to call. The budgets and bounds: the model answered with what it had.
`max_hand_overs`: the route would have led on. `approval`: a person must decide first. `failed`: the provider did not answer.
`stepped`: the steps that were asked for are played, and the turn goes on when it is resumed."""

BOUNDS = frozenset({"max_rounds", "failed_rounds", "repeated_calls", "token_budget", "time_budget", "call_budget"})
"""The reasons that are bounds, behind which the model gets one last call without tools."""


class RoundStarted(Struct, frozen=True, tag=True, gc=False):
    """The model is asked. Rounds count from 1 in each turn; `is_last` when it must answer without tools."""

    round: int
    model: str
    is_last: bool = False


class ModelSwitched(Struct, frozen=True, tag=True, gc=False):
    """This answer comes from another model than the one before."""

    before: str
    after: str


class TextDelta(Struct, frozen=True, tag=True, gc=False):
    """More words of the answer."""

    text: str


class ThinkingDelta(Struct, frozen=True, tag=True, gc=False):
    """More of the model's reasoning."""

    text: str


class RoundUsage(Struct, frozen=True, tag=True, gc=False):
    """What the round cost, and the turn so far."""

    usage: TokenUsage
    turn: TokenUsage


class ToolCallStarted(Struct, frozen=True, tag=True, gc=False):
    """A tool begins to run."""

    call: ToolCallRequest
    round: int


class ToolCallProgress(Struct, frozen=True, tag=True, gc=False):
    """A running tool says how far it is."""

    call: ToolCallRequest
    message: str
    fraction: float | None = None


class ToolCallFinished(Struct, frozen=True, tag=True, gc=False):
    """A call has its result."""

    call: ToolCallRequest
    result: ToolCallResult
    seconds: float = 0.0
    is_cached: bool = False


class ToolCallFailed(Struct, frozen=True, tag=True, gc=False):
    """A call came to nothing; its result says why, to the model too."""

    call: ToolCallRequest
    result: ToolCallResult
    seconds: float = 0.0


class ApprovalNeeded(Struct, frozen=True, tag=True, gc=False):
    """These calls wait for a person: `approve`, `deny` or `edit` each, in this process or a later one, and resume."""

    calls: tuple[ToolCallRequest, ...]


class CompactionNeeded(Struct, frozen=True, tag=True, gc=False):
    """The conversation takes more tokens than its limit. Whoever subscribed was told, and may have compacted it."""

    tokens: int
    limit: int


class AgentSwitched(Struct, frozen=True, tag=True, gc=False):
    """Another agent takes over."""

    before: str
    after: str


class LoopFinished(Struct, frozen=True, tag=True, gc=False):
    """The end of a turn, or of its steps. `text` is the model's last answer, `error` what the provider said if it `failed`."""

    reason: EndReason
    text: str = ""
    rounds: int = 0
    usage: TokenUsage = TokenUsage()
    error: ProviderError | None = None


LoopEvent: TypeAlias = (
    RoundStarted
    | ModelSwitched
    | TextDelta
    | ThinkingDelta
    | RoundUsage
    | ToolCallStarted
    | ToolCallProgress
    | ToolCallFinished
    | ToolCallFailed
    | ApprovalNeeded
    | CompactionNeeded
    | AgentSwitched
    | LoopFinished
)
