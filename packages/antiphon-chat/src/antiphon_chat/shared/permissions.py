"""The tools that a person always allows in a conversation: kept as notes in its log, as its model is.

Law L11: a call that needs approval runs only after a recorded one. Such a note is a recorded approval of all later calls of
one tool in this conversation; every surface reads it, and a rollback before it withdraws it. One that came with an import was not
given here and does not count. A call that was already asked about stays pending until it is decided.
"""

from __future__ import annotations

from antiphon.history import AgentHistory, AgentHistorySnapshot, DebugLogEntry, EntryMetadata
from antiphon.parts import ToolCallRequest
from antiphon.tools.tool import ApprovalPolicy, Tool, ask_before_changes, tool_policy

_ALLOWED = "chat_always_allowed"


def allow_always(history: AgentHistory, tool_name: str) -> None:
    """Allow all later calls of a tool in this conversation."""
    if tool_name not in always_allowed(history.snapshot()):
        extra = {_ALLOWED: tool_name}
        history.append(
            DebugLogEntry("permission", f"{tool_name} is always allowed.", metadata=EntryMetadata(extra=extra))
        )


def always_allowed(snapshot: AgentHistorySnapshot) -> frozenset[str]:
    """The tools whose calls need no approval any more."""
    imported = snapshot.imported
    return frozenset(
        name
        for entry in snapshot.effective
        if isinstance(name := entry.extra(_ALLOWED), str) and entry.sequence_number > imported
    )


def approval_policy(history: AgentHistory, *, asks_before_changes: bool) -> ApprovalPolicy:
    """Whether a call of this conversation needs approval."""
    asks = ask_before_changes if asks_before_changes else tool_policy

    def needs_approval(tool: Tool | None, call: ToolCallRequest) -> bool:
        return asks(tool, call) and call.tool_name not in always_allowed(history.snapshot())

    return needs_approval
