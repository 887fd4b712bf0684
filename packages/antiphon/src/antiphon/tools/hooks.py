"""`Hook`: code around every model call and every tool call: it observes, changes or refuses them.

Hooks run in the order given before a call, and in reverse order after it. Methods may be sync or async. A hook that fails
refuses: a call that could not be checked is not made; an answer or a result that could not be checked is withheld, from the log,
the model and everything after. Without hooks, nothing here runs.

A `CallObserver` only looks on: each tool call is reported to it.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any, Protocol, TypeAlias, get_args

from msgspec import Struct

from antiphon.errors import CallRefused, ToolError
from antiphon.history import ContextEntry
from antiphon.parts import OutputPart, TokenUsage, ToolCallRequest, ToolCallResult, ToolExecutionStatus
from antiphon.tools.results import size_of
from antiphon.tools.tool import Tool
from antiphon.wire.request import ModelRequest, ToolDefinition

logger = logging.getLogger("antiphon.tools")

_OUTPUT_PARTS = get_args(OutputPart)


class HookedModelCall(Struct, kw_only=True):
    """A model call before it is made. A hook may set its fields; the log keeps the original messages."""

    model: str
    context: Sequence[ContextEntry]
    settings: ModelRequest
    tools: tuple[ToolDefinition, ...]
    usage: TokenUsage
    """What the conversation used so far."""
    purpose: str = ""
    """What a side call is for (`summary`); empty for a call of the conversation itself."""


class Hook:
    """Override what you need. Raise `CallRefused` around a model call, or `ToolError` around a tool call, to refuse it.

    With `holds_text = True` no listener sees an answer before `after_model` has let it pass: no text is streamed, and each answer
    comes whole.
    """

    holds_text: bool = False

    def before_model(self, call: HookedModelCall) -> Awaitable[None] | None:
        """Called before the model is; changes to `call` count."""

    def after_model(
        self, parts: tuple[OutputPart, ...]
    ) -> tuple[OutputPart, ...] | Awaitable[tuple[OutputPart, ...] | None] | None:
        """Called with a complete answer before it is recorded. Return other parts to replace them.

        A listener has seen the deltas already, unless the hook has `holds_text`. An answer that was cut off or interrupted cannot
        be checked: it is withheld.
        """

    def before_tool(
        self, call: ToolCallRequest, tool: Tool | None
    ) -> ToolCallRequest | Awaitable[ToolCallRequest | None] | None:
        """Called before a tool runs. Return the call with other arguments to change them; the log then has both.

        It may refuse a call that a person approved, and not change it: what was approved is what runs.
        """

    def after_tool(
        self, call: ToolCallRequest, result: ToolCallResult
    ) -> ToolCallResult | Awaitable[ToolCallResult | None] | None:
        """Called with the result before it is recorded. Return another one to replace it."""


Hooks: TypeAlias = tuple[Hook, ...]


async def run_before_model(hooks: Hooks, call: HookedModelCall) -> None:
    """Let the hooks see and change a model call. Raises `CallRefused`."""
    for hook in hooks:
        await _ask(hook, "before_model", call, otherwise="the model call is not made")


async def run_after_model(hooks: Hooks, parts: tuple[OutputPart, ...]) -> tuple[OutputPart, ...]:
    """The parts of an answer as the hooks leave them. Raises `CallRefused` if one refuses or fails: then it is withheld."""
    for hook in reversed(hooks):
        changed = await _ask(hook, "after_model", parts, otherwise="the answer is withheld")
        if changed is not None:
            parts = tuple(changed) if isinstance(changed, Iterable) else (changed,)
        if wrong := [part for part in parts if type(part) not in _OUTPUT_PARTS]:
            raise CallRefused(
                f"{_name(hook)}.after_model returned {wrong[0]!r}; expected parts of an answer, such as Text"
            )
    return parts


async def _ask(hook: Hook, method: str, given: object, *, otherwise: str) -> Any:
    """What a hook says of a model call. Raises `CallRefused` if it refuses or fails."""
    try:
        return await _value(getattr(hook, method)(given))
    except CallRefused:
        raise
    except Exception as error:
        logger.exception("%r failed in %s; %s", hook, method, otherwise)
        raise CallRefused(f"{_name(hook)}.{method} failed: {type(error).__name__}: {error}") from error


def checks_answers(hooks: Hooks) -> bool:
    """Whether one of them has an `after_model`, so that an answer must not be recorded without it."""
    return any(type(hook).after_model is not Hook.after_model for hook in hooks)


def holds_text(hooks: Hooks) -> bool:
    """Whether one of them must see an answer before a listener does."""
    return any(hook.holds_text for hook in hooks)


async def run_before_tool(hooks: Hooks, call: ToolCallRequest, tool: Tool | None) -> ToolCallRequest:
    """The call as the hooks leave it. Raises `ToolError` if one refuses or fails."""
    for hook in hooks:
        try:
            changed = await _value(hook.before_tool(call, tool))
        except (ToolError, CallRefused) as refusal:
            raise ToolError(str(refusal) or f"{call.tool_name} is not allowed.", retry=False) from refusal
        except Exception as error:
            logger.exception("%r failed before a call of %s, which is not run", hook, call.tool_name)
            raise ToolError(f"{call.tool_name} was not run: a check failed ({_name(hook)}).", retry=False) from error
        if changed is not None:
            if type(changed) is not ToolCallRequest:
                raise ToolError(f"{call.tool_name} was not run: {_name(hook)} returned no call.", retry=False)
            if (changed.tool_name, changed.tool_call_id) != (call.tool_name, call.tool_call_id):
                raise ToolError(f"{call.tool_name} was not run: a hook may change only its arguments.", retry=False)
            call = changed
    return call


async def run_after_tool(hooks: Hooks, call: ToolCallRequest, result: ToolCallResult) -> ToolCallResult:
    """The result as the hooks leave it. Raises `ToolError` if one fails: then the result is withheld."""
    for hook in reversed(hooks):
        try:
            changed = await _value(hook.after_tool(call, result))
        except Exception as error:
            logger.exception("%r failed after a call of %s, whose result is withheld", hook, call.tool_name)
            reason = str(error) if isinstance(error, ToolError | CallRefused) else f"a check failed ({_name(hook)})"
            raise ToolError(f"{call.tool_name} ran, but its result is withheld: {reason}.", retry=False) from error
        if changed is not None:
            if type(changed) is not ToolCallResult:
                reason = f"{_name(hook)} returned no result"
                raise ToolError(f"{call.tool_name} ran, but its result is withheld: {reason}.", retry=False)
            result = changed
    return result


def _name(hook: Hook) -> str:
    return type(hook).__name__


async def _value(returned: Any) -> Any:
    return await returned if inspect.isawaitable(returned) else returned


class CallOutcome(Struct, frozen=True, gc=False):
    """One call in numbers."""

    call: ToolCallRequest
    result: ToolCallResult
    seconds: float
    attempts: int = 0
    """How often the tool ran: 0 if it never did (unknown, refused, remembered)."""
    is_cached: bool = False
    is_truncated: bool = False
    traceback: str = ""
    """Where a tool failed; for the history and never for the model."""

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
    """Observes calls as they happen, on the event loop.

    Each call is `started` once, before anything of its tool runs, and `finished` once, unless it was cancelled. An error
    raised by `started` or `finished` (a history that cannot be written) ends the execution and reaches the caller.
    """

    def started(self, call: ToolCallRequest, tool: Tool | None, idempotency_key: str) -> None:
        """A call is about to run. `tool` is None if there is no tool of that name."""

    def progress(self, call: ToolCallRequest, message: str, fraction: float | None) -> None:
        """A running tool reports its progress."""

    def finished(self, call: ToolCallRequest, result: ToolCallResult, outcome: CallOutcome) -> None:
        """The call has its result, good or bad."""

    def waits(self, call: ToolCallRequest) -> None:
        """The tool has done its part; the result comes from outside (`Settled.later`). It is not `finished`."""
