"""`Settled`: what became of a call that was started and has no result.

A process can die after a tool has done its work and before the log has its result. Then `reconcile`, a function of the tool, is
asked, with the call as it ran and a context with the same idempotency key:

    @tool(effect="once", reconcile=find_payment)
    def pay(cents: int, context: ToolContext) -> str: ...

    async def find_payment(call: ToolCallRequest, context: ToolContext) -> Settled:
        receipt = await bank.find(context.idempotency_key)
        return Settled.done(f"paid, receipt {receipt}") if receipt else Settled.not_done()

It is asked under the lease of the conversation, and not before `settle_seconds` are over since the call was started: a request of
the process that died may still be on its way. If it fails, the outcome is unknown, as without it.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Literal, Self, TypeAlias

from msgspec import Struct

from antiphon.parts import ToolCallRequest
from antiphon.threads import TOOLS, run_attempt
from antiphon.tools.context import ToolContext

logger = logging.getLogger("antiphon.tools")

SETTLE_SECONDS = 5.0


class Settled(Struct, frozen=True):
    """What became of a call. Made by `done`, `not_done`, `unknown` and `later`."""

    outcome: Literal["done", "not_done", "unknown", "later"]
    value: Any = None

    @classmethod
    def done(cls, value: Any = "") -> Self:
        """It did its work, and this is what it returned."""
        return cls("done", value)

    @classmethod
    def not_done(cls) -> Self:
        """It did nothing: it is run, with the same idempotency key."""
        return cls("not_done")

    @classmethod
    def unknown(cls) -> Self:
        """It cannot be found out: the model reads that the outcome is unknown."""
        return cls("unknown")

    @classmethod
    def later(cls) -> Self:
        """The result comes from outside (`Conversation.settle`, `Runs.settle`); the run waits. A tool may return this, too."""
        return cls("later")


Reconcile: TypeAlias = Callable[[ToolCallRequest, ToolContext], Settled | Awaitable[Settled]]
"""Says what became of a call."""


async def ask_outcome(
    reconcile: Reconcile, call: ToolCallRequest, context: ToolContext, timeout: float | None, grace: float
) -> Settled:
    """What `reconcile` says about a call; unknown if it fails or takes longer than `timeout`."""
    ending = await run_attempt(_asked(reconcile, call, context), timeout, grace)
    if ending.kind == "done" and isinstance(ending.value, Settled):
        return ending.value
    why = (
        f"it returned {type(ending.value).__name__}, not Settled"
        if ending.kind == "done"
        else "it did not answer in time"
    )
    logger.warning(
        "what became of call %s of %s is unknown: its reconcile function failed%s",
        call.tool_call_id,
        call.tool_name,
        "" if ending.error is not None else f" ({why})",
        exc_info=ending.error,
    )
    return Settled.unknown()


async def _asked(reconcile: Reconcile, call: ToolCallRequest, context: ToolContext) -> Any:
    if inspect.iscoroutinefunction(reconcile):
        return await reconcile(call, context)
    settled = await TOOLS.run(reconcile, call, context)
    return await settled if inspect.isawaitable(settled) else settled
