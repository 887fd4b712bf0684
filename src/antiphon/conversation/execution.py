"""`CallBatch`: the calls of one output while they run, written down so that a crash loses nothing and repeats nothing.

Before a tool runs, a `ToolCallStartedEntry` is in the log: if nothing follows it, the call may have half-run. When one of
several calls is done, a `ToolCallFinishedEntry` keeps its result until all of them become the one `ToolCallResultsEntry` that a
model sees. A single call needs no such entry: its results entry comes at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from msgspec import Struct

from antiphon.conversation.events import LoopEvent, ToolCallFailed, ToolCallFinished, ToolCallProgress, ToolCallStarted
from antiphon.history import AgentHistory, EntryMetadata, ToolCallFinishedEntry, ToolCallStartedEntry
from antiphon.parts import ToolCallRequest, ToolCallResult, ToolExecutionStatus
from antiphon.tools.executor import ToolExecutor
from antiphon.tools.outcome import CallOutcome
from antiphon.tools.tool import Tool


class CallBatch(Struct, eq=False):
    """Runs calls and observes them. `results` is what is known so far, by the id of the call.

    `missing` is how many calls of the output have no result yet.
    """

    history: AgentHistory
    executor: ToolExecutor
    conversation: str
    missing: int
    round: int
    emit: Callable[[LoopEvent], None] | None = None
    results: dict[str, ToolCallResult] = {}

    def run(self, calls: Sequence[ToolCallRequest]) -> Coroutine[Any, Any, list[ToolCallResult]]:
        """The results, in the order of the calls. Cancelled, it leaves in `results` what was finished by then."""
        return self.executor.execute(calls, observer=self, conversation_id=self.conversation, round=self.round)

    def started(self, call: ToolCallRequest, tool: Tool | None, idempotency_key: str) -> None:
        """Write down that a tool is about to run, before it does."""
        if tool is not None:
            digest = hashlib.sha256(call.arguments.encode("utf-8", "surrogatepass")).hexdigest()
            metadata = EntryMetadata(argument_digest=f"sha256:{digest}")
            self.history.append(
                ToolCallStartedEntry(call.tool_name, call.tool_call_id, idempotency_key, metadata=metadata)
            )
        if self.emit is not None:
            self.emit(ToolCallStarted(call, self.round))

    def progress(self, call: ToolCallRequest, message: str, fraction: float | None) -> None:
        """Pass on how far a tool is."""
        if self.emit is not None:
            self.emit(ToolCallProgress(call, message, fraction))

    def finished(self, call: ToolCallRequest, result: ToolCallResult, outcome: CallOutcome) -> None:
        """Keep a result; durably, if others are still to come."""
        self.results[call.tool_call_id] = result
        self.missing -= 1
        if self.missing > 0:
            self.history.append(ToolCallFinishedEntry(result, metadata=EntryMetadata(duration=outcome.seconds)))
        if self.emit is None:
            return
        if result.status is ToolExecutionStatus.SUCCESS:
            self.emit(ToolCallFinished(call, result, outcome.seconds, outcome.is_cached))
        else:
            self.emit(ToolCallFailed(call, result, outcome.seconds))
