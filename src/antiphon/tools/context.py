"""`ToolContext`: what a running tool can know about its call.

A tool gets it by annotating a parameter with `ToolContext`; the model never sees that parameter. It belongs to one
attempt: a retry gets another one, with the same idempotency key and the next `attempt`. Use an empty
`ToolContext()` to call a tool directly, as in tests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from antiphon.providers.client import ProviderClient
    from antiphon.tools.executor import ToolExecutor


class ToolContext(Struct, frozen=True, kw_only=True, eq=False):
    """The call a tool answers, and what the application gave along.

    `idempotency_key` is the same whenever this call is tried again, even by another process after a crash: hand it to a
    backend that knows such keys, and the work is done once. `attempt` counts from 1, `round` is the round of the loop. `model`
    and `provider` are those of the conversation, and `executor` runs its calls: for tools that ask a model themselves.
    """

    conversation_id: str = ""
    tool_call_id: str = ""
    idempotency_key: str = ""
    round: int = 0
    attempt: int = 1
    state: Any = None
    executor: ToolExecutor | None = None
    model: str | ProviderClient | None = None
    provider: ProviderClient | None = None
    reporter: Callable[[str, float | None], None] | None = None
    """Where `progress` goes; it may be called from any thread."""

    def progress(self, message: str, fraction: float | None = None) -> None:
        """Report progress to the observer of the call; `fraction` runs from 0 to 1. Callable from any thread, and never fails."""
        if self.reporter is not None:
            self.reporter(message, fraction)

    def __repr__(self) -> str:
        # The state is the application's, and may hold secrets (law L10).
        return f"ToolContext(tool_call_id={self.tool_call_id!r}, round={self.round}, attempt={self.attempt})"
