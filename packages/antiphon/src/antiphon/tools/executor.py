"""`ToolExecutor`: calls in, results out: one result for each call, in order, whatever the tools do (see `call_execution`).

Every failure is a result with text for the model. Only a cancellation and a failing observer are raised.

Calls run in parallel: at most `max_parallel` of one execution, and of one tool at most its `concurrency`. Async tools run on
the event loop, so one that never awaits blocks everything; plain functions run in threads, which cannot be stopped at a timeout.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self, TypedDict

from antiphon.errors import InvalidSetting
from antiphon.history import AgentHistory
from antiphon.parts import ToolCallRequest, ToolCallResult
from antiphon.tools.cache import ResultCache
from antiphon.tools.call_execution import CallExecution, CallObserver, CallOutcome
from antiphon.tools.hooks import Hook
from antiphon.tools.registry import ToolRegistry
from antiphon.tools.tool import ApprovalPolicy, Tool, has_valid_arguments, tool_policy

if TYPE_CHECKING:
    from antiphon.providers.client import ProviderClient

logger = logging.getLogger("antiphon.tools")


class ExecuteOptions(TypedDict, total=False):
    """What `ToolExecutor.execute` takes besides the calls."""

    observer: CallObserver | None
    conversation_id: str
    round: int
    keys: Callable[[ToolCallRequest], str] | None
    model: str | ProviderClient | None
    provider: ProviderClient | None
    history: AgentHistory | None
    approved: Collection[str]


class ToolExecutor:
    """Runs the calls of a model. `state` reaches tools as `ToolContext.state`; `on_call` gets the measures of each call.

    `grace` is how long an async tool may take to clean up after it was stopped. `approval` decides which calls need a person.
    """

    def __init__(
        self,
        registry: ToolRegistry,
        *,
        max_parallel: int = 8,
        max_result_chars: int = 100_000,
        cache: ResultCache | None = None,
        state: Any = None,
        on_call: Callable[[CallOutcome], None] | None = None,
        grace: float = 2.0,
        approval: ApprovalPolicy = tool_policy,
        hooks: Sequence[Hook] = (),
    ) -> None:
        for setting, value in (("max_parallel", max_parallel), ("max_result_chars", max_result_chars)):
            if value < 1:
                raise InvalidSetting(f"{setting}={value}: must be at least 1")
        if not callable(approval):
            raise InvalidSetting(
                f"approval={approval!r}: expected a function of tool and call, as ask_before_changes is"
            )
        _check_hooks(hooks)
        self.registry = registry
        self.max_parallel = max_parallel
        self.max_result_chars = max_result_chars
        self.cache = ResultCache() if cache is None else cache
        self.state = state
        self.on_call = on_call
        self.grace = grace
        self.approval = approval
        self.hooks = tuple(hooks)
        """What runs around every tool call, and around the model calls of a conversation with this executor."""

    def with_registry(self, registry: ToolRegistry) -> Self:
        """An executor of other tools under the same settings: state, callbacks, limits, cache and approval."""
        other: Self = object.__new__(type(self))
        vars(other).update(vars(self))
        other.registry = registry
        return other

    def needs_approval(self, tool: Tool | None, call: ToolCallRequest) -> bool:
        """Whether a person must allow a call of `tool`. A policy that fails is answered with yes.

        No person is asked about arguments that the tool refuses: such a call does not run, and the model reads why.
        """
        if self.approval is tool_policy and (tool is None or tool.needs_approval is False):  # most calls, twice a round
            return False
        try:
            needs_approval = bool(self.approval(tool, call))
        except Exception:
            logger.exception("the approval policy failed for %s, so the call needs approval", call.tool_name)
            needs_approval = True
        return needs_approval and (tool is None or has_valid_arguments(tool, call))

    def calls_for_approval(self, calls: Iterable[ToolCallRequest]) -> list[str]:
        """The ids of the calls that a person must allow first."""
        find_tool = self.registry.get
        return [call.tool_call_id for call in calls if self.needs_approval(find_tool(call.tool_name), call)]

    async def execute(
        self,
        calls: Sequence[ToolCallRequest],
        *,
        observer: CallObserver | None = None,
        conversation_id: str = "",
        round: int = 0,  # noqa: A002 - the word of the design
        keys: Callable[[ToolCallRequest], str] | None = None,
        model: str | ProviderClient | None = None,
        provider: ProviderClient | None = None,
        history: AgentHistory | None = None,
        approved: Collection[str] = (),
    ) -> list[ToolCallResult]:
        """Run the calls and give their results, in order. `keys` gives a call its idempotency key.

        `model`, `provider` and `history` are those of the conversation, for tools that ask. `approved` are the ids of calls that
        a person allowed as they are: no hook may change them.
        """
        loop = asyncio.get_running_loop()
        running: list[CallExecution] = []
        used: dict[str, int] = {}
        for call in calls:
            key = keys(call) if keys is not None else f"{conversation_id}:{call.tool_call_id}"
            # Two calls with one id are two calls; a tool that trusts the key must not take the second for the first.
            count = used[key] = used.get(key, 0) + 1
            if count > 1:
                key = f"{key}#{count}"
            tool = self.registry.get(call.tool_name)
            one = CallExecution(self, call, tool, key, observer, conversation_id, round, loop, model, provider, history)
            one.is_approved = call.tool_call_id in approved
            running.append(one)
        if len(running) == 1:
            return [await running[0].answer()]
        return await self._run_parallel(running) if running else []

    async def _run_parallel(self, running: list[CallExecution]) -> list[ToolCallResult]:
        semaphore = asyncio.Semaphore(self.max_parallel)

        async def answer(one: CallExecution) -> ToolCallResult:
            async with semaphore:
                return await one.answer()

        tasks = [asyncio.create_task(answer(one)) for one in running]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            pending = [task for task in tasks if not task.done()]
            for task in pending:
                task.cancel()
            if pending:
                await asyncio.wait(pending)
            # Read of every task, so that asyncio does not report those that are not raised here.
            failed = [task for task in tasks if not task.cancelled() and task.exception() is not None]
        if failed:
            failed[0].result()  # an observer that failed: its error comes before the cancellations it caused
        return [task.result() for task in tasks]


def _check_hooks(hooks: object) -> None:
    if not isinstance(hooks, Sequence) or not all(isinstance(hook, Hook) for hook in hooks):
        raise InvalidSetting(f"hooks={hooks!r}: expected a list of Hook objects")
