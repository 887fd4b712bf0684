"""What came of a call: `CallOutcome`, its measures, and `CallObserver`, who is told while it happens."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from antiphon.parts import ToolCallRequest, ToolCallResult, ToolExecutionStatus
from antiphon.tools.results import size_of
from antiphon.tools.tool import Tool


class CallOutcome(Struct, frozen=True, gc=False):
    """One call in numbers."""

    call: ToolCallRequest
    result: ToolCallResult
    seconds: float
    attempts: int = 0
    """How often the tool ran: 0 if it never did (unknown, refused, remembered)."""
    is_cached: bool = False
    is_truncated: bool = False

    @property
    def tool_name(self) -> str:
        return self.call.tool_name

    @property
    def tool_call_id(self) -> str:
        return self.call.tool_call_id

    @property
    def status(self) -> ToolExecutionStatus:
        return self.result.status

    @property
    def size(self) -> int:
        """How many characters the model gets to see."""
        return size_of(self.result.content)

    @property
    def error(self) -> str:
        """The first line of what went wrong; empty if nothing did."""
        if self.status is ToolExecutionStatus.SUCCESS:
            return ""
        return self.result.result_markdown.partition("\n")[0][:500]


class CallObserver(Protocol):
    """Who is told about calls as they happen, on the event loop.

    Each call is `started` once, before anything of its tool runs, and `finished` once, unless it was cancelled. An error
    raised by `started` or `finished` (a history that cannot be written) ends the execution and reaches whoever asked for it.
    """

    def started(self, call: ToolCallRequest, tool: Tool | None, idempotency_key: str) -> None:
        """A call is about to run. `tool` is None if there is no tool of that name."""

    def progress(self, call: ToolCallRequest, message: str, fraction: float | None) -> None:
        """A running tool tells how far it is."""

    def finished(self, call: ToolCallRequest, result: ToolCallResult, outcome: CallOutcome) -> None:
        """The call has its result, good or bad."""
