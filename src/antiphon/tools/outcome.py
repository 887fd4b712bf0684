"""What came of a call: `CallOutcome`, its measures, and `CallObserver`, who is told while it happens."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from antiphon.parts import ToolCallRequest, ToolCallResult, ToolExecutionStatus
from antiphon.tools.tool import Tool


class CallOutcome(Struct, frozen=True, kw_only=True, gc=False):
    """One call in numbers. `size` is in characters, as the model sees it; `error` is the first line of what went wrong."""

    tool_name: str
    tool_call_id: str
    status: ToolExecutionStatus
    seconds: float
    attempts: int = 0
    """How often the tool ran: 0 if it never did (unknown, refused, remembered)."""
    size: int = 0
    is_cached: bool = False
    is_truncated: bool = False
    error: str = ""


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
