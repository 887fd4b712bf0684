"""`ToolContext`: what a running tool can know about its call.

A tool gets it by annotating a parameter with `ToolContext`; the model never sees that parameter. It belongs to one
attempt: a retry gets another one, with the same idempotency key and the next `attempt`. Use an empty
`ToolContext()` to call a tool directly, as in tests.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias

from msgspec import Struct

from antiphon.context.model_usage import total_usage
from antiphon.errors import ToolError
from antiphon.history import AgentHistory, AgentHistorySnapshot, ModelInputEntry
from antiphon.parts import TokenUsage, text_of
from antiphon.telemetry import switch

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from antiphon.providers.call import ProviderClient
    from antiphon.tools.executor import ToolExecutor

    State = TypeVar("State", default=Any)
else:
    from typing import TypeVar

    State = TypeVar("State")


Language: TypeAlias = Literal["en", "zh"]

_CHINESE = re.compile(r"[\u3400-\u9fff]")
_LETTER = re.compile(r"[^\W\d_]")


class Cancellation(Struct):
    """Whether a call was given up: set by the executor, read by the tool in its thread."""

    is_set: bool = False


class ToolContext(Struct, Generic[State], frozen=True, kw_only=True, eq=False):
    """The call a tool answers, and what the application gave along. `ToolContext[MyState]` tells a type checker about `state`.

    `idempotency_key` is the same whenever this call is tried again, even by another process after a crash: hand it to a
    backend that knows such keys, and the work is done once. `attempt` counts from 1, `round` is the round of the loop. `model`
    and `provider` are those of the conversation, and `executor` runs its calls: for tools that ask a model themselves.
    """

    conversation_id: str = ""
    tool_call_id: str = ""
    idempotency_key: str = ""
    round: int = 0
    attempt: int = 1
    state: State = None  # type: ignore[assignment]  # the application gave none
    executor: ToolExecutor | None = None
    model: str | ProviderClient | None = None
    provider: ProviderClient | None = None
    reporter: Callable[[str, float | None], None] | None = None
    """Where `progress` goes; it may be called from any thread."""
    log: AgentHistory | None = None
    cancellation: Cancellation | None = None

    @property
    def history(self) -> AgentHistorySnapshot:
        """The conversation as it is now; empty if the tool was called directly."""
        return (self.log or AgentHistory()).snapshot()

    @property
    def usage(self) -> TokenUsage:
        """The tokens that the model calls of the conversation used so far."""
        return total_usage(self.history.entries)

    def language(self, *texts: str) -> Language:
        """The language of the conversation, as far as it is Chinese or not: that of the latest message that has words; without
        one, that of `texts`, which the call is about. A person reads what a tool returns, too."""
        if self.log is not None:
            for entry in reversed(self.log.snapshot().entries):
                if isinstance(entry, ModelInputEntry) and entry.channel not in ("system", "developer"):
                    words = text_of(entry.content)
                    if _LETTER.search(words):
                        return _language_of(words)
        return _language_of(" ".join(texts))

    @property
    def is_cancelled(self) -> bool:
        """Whether the call was given up, at its timeout or by an interruption. A plain function can ask and return early.

        An async tool gets `asyncio.CancelledError` instead.
        """
        return self.cancellation is not None and self.cancellation.is_set

    def raise_if_cancelled(self) -> None:
        """Raise `ToolError` if the call was given up."""
        if self.is_cancelled:
            raise ToolError("The call was given up.")

    @property
    def trace_headers(self) -> dict[str, str]:
        """Headers that continue the trace of this call in a service the tool calls (`traceparent`); empty if telemetry is off."""
        return switch.trace_headers()

    def progress(self, message: str, fraction: float | None = None) -> None:
        """Report progress to the observer of the call; `fraction` runs from 0 to 1. Callable from any thread, and never fails."""
        if self.reporter is not None:
            self.reporter(message, fraction)

    def __repr__(self) -> str:
        # The state is the application's, and may hold secrets (law L10).
        return f"ToolContext(tool_call_id={self.tool_call_id!r}, round={self.round}, attempt={self.attempt})"


def _language_of(text: str) -> Language:
    return "zh" if _CHINESE.search(text) else "en"
