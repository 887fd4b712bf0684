"""`ToolExecutor`: calls in, results out: one result for each call, in order, whatever the tools do.

Hooks may change a call; then it is validated, looked up in the cache, run within its timeout, retried if its effect allows it,
and its return value becomes parts of bounded size. Every failure is a result with text for the model. Only a cancellation and a
failing observer are raised.

Calls run in parallel: at most `max_parallel` of one execution, and of one tool at most its `concurrency`. Async tools run on
the event loop, so one that never awaits blocks everything; plain functions run in threads, which cannot be stopped at a timeout.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self, TypedDict

from msgspec import Struct, structs

from antiphon.errors import InvalidSetting, ToolError
from antiphon.history import AgentHistory
from antiphon.parts import OutputPart, Text, ToolCallRequest, ToolCallResult, ToolExecutionStatus
from antiphon.telemetry import switch
from antiphon.threads import AttemptOutcome, run_at_once, run_attempt
from antiphon.tools.cache import ResultCache
from antiphon.tools.compiled_schema import preview_text
from antiphon.tools.context import Cancellation, ToolContext
from antiphon.tools.hooks import CallObserver, CallOutcome, Hook, run_after_tool, run_before_tool
from antiphon.tools.registry import ToolRegistry
from antiphon.tools.results import exception_text, to_result, traceback_text, truncate_content
from antiphon.tools.settling import Settled
from antiphon.tools.tool import (
    ApprovalPolicy,
    ConcurrencyLimit,
    Tool,
    has_valid_arguments,
    read_arguments,
    tool_policy,
)

if TYPE_CHECKING:
    from antiphon.providers.call import ProviderClient
    from antiphon.telemetry.spans import Telemetry

logger = logging.getLogger("antiphon.tools")

LATER = ToolCallResult("", "", ToolExecutionStatus.SKIPPED, (Text("The result of this call comes later."),))
"""In place of a result that comes from outside (`Settled.later`)."""

INITIAL_BACKOFF = 0.2
MAX_BACKOFF = 5.0
NAMES_LISTED = 50
TEXT_FORM = 'A call in text is written as <tool_call>{"name": "…", "arguments": {…}}</tool_call>.'


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

    def scope(
        self,
        conversation_id: str,
        round: int,  # noqa: A002 - the word of the design
        model: str | ProviderClient | None,
        provider: ProviderClient | None,
        history: AgentHistory | None,
    ) -> ToolContext:
        """What all calls of a conversation know; a context is this with the call and the attempt."""
        return ToolContext(
            conversation_id=conversation_id,
            round=round,
            state=self.state,
            executor=self,
            model=model,
            provider=provider,
            log=history,
        )

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

    def calls_for_approval(self, parts: Iterable[OutputPart]) -> list[str]:
        """The ids of the calls in an answer that a person must allow first."""
        find_tool = self.registry.get
        return [
            part.tool_call_id
            for part in parts
            if type(part) is ToolCallRequest and self.needs_approval(find_tool(part.tool_name), part)
        ]

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
        loop, scope = asyncio.get_running_loop(), self.scope(conversation_id, round, model, provider, history)
        running: list[ToolCallExecution] = []
        used: dict[str, int] = {}
        for call in calls:
            key = keys(call) if keys is not None else f"{conversation_id}:{call.tool_call_id}"
            # Two calls with one id are two calls; a tool that trusts the key must not take the second for the first.
            count = used[key] = used.get(key, 0) + 1
            if count > 1:
                key = f"{key}#{count}"
            tool, is_approved = self.registry.get(call.tool_name), call.tool_call_id in approved
            running.append(ToolCallExecution(self, call, tool, key, observer, scope, loop, is_approved))
        if len(running) == 1:
            return [await running[0].answer()]
        return await self._run_parallel(running) if running else []

    async def _run_parallel(self, running: list[ToolCallExecution]) -> list[ToolCallResult]:
        semaphore = asyncio.Semaphore(self.max_parallel)

        async def answer(one: ToolCallExecution) -> ToolCallResult:
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


class ToolCallExecution(Struct, eq=False):
    """One call on its way to its result."""

    executor: ToolExecutor
    call: ToolCallRequest
    tool: Tool | None
    idempotency_key: str
    observer: CallObserver | None
    scope: ToolContext
    loop: asyncio.AbstractEventLoop
    is_approved: bool = False
    attempts: int = 0
    is_cached: bool = False
    is_truncated: bool = False
    is_over: bool = False
    traceback: str = ""
    error_type: str = ""

    def answer(self) -> Coroutine[Any, Any, ToolCallResult]:
        """Run the call, when it is its turn, and give its result."""
        if self.tool is None or self.tool.slots is None:
            return self._answer() if switch.active is None else self._answer_in_span(switch.active)
        return self._run_in_slot(self.tool.slots)

    async def _run_in_slot(self, slots: ConcurrencyLimit) -> ToolCallResult:
        async with slots:
            return await (self._answer() if switch.active is None else self._answer_in_span(switch.active))

    async def _answer_in_span(self, active: Telemetry) -> ToolCallResult:
        description = "" if self.tool is None else self.tool.description
        with active.tool_call(self.call, description, self.scope.conversation_id) as span:
            result = await self._answer()
            span.finish(result, self.error_type, is_cached=self.is_cached)
        return result

    async def _answer(self) -> ToolCallResult:
        observer, on_call = self.observer, self.executor.on_call
        began = time.perf_counter()
        refusal = await self._let_hooks_change() if self.executor.hooks else None
        if observer is not None:
            observer.started(self.call, self.tool, self.idempotency_key)
        try:
            if refusal is not None:
                raise refusal
            result = await (self._run_with_hooks() if self.executor.hooks else self._run())
        except ToolError as error:
            self.error_type = type(error).__name__
            result = self._failure(str(error))
        finally:
            self.is_over = True
        if result is LATER and observer is not None:
            observer.waits(self.call)
            return result
        if observer is None and on_call is None:
            return result
        seconds = time.perf_counter() - began
        outcome = CallOutcome(
            self.call, result, seconds, self.attempts, self.is_cached, self.is_truncated, self.traceback
        )
        if observer is not None:
            observer.finished(self.call, result, outcome)
        if on_call is not None:
            try:
                on_call(outcome)
            except Exception:
                logger.exception("on_call failed for call %s of %s", self.call.tool_call_id, self.call.tool_name)
        return result

    async def _let_hooks_change(self) -> ToolError | None:
        """Let hooks change the call before the log says what runs; gives the reason if it may not run so (law L11)."""
        call = self.call
        try:
            changed = await run_before_tool(self.executor.hooks, call, self.tool)
        except ToolError as error:
            return error
        if changed.freeform == call.freeform and changed.canonical_arguments == call.canonical_arguments:
            return None  # however its JSON is spaced and ordered
        if self.is_approved:
            reason = "a person approved this call, and a hook changed its arguments afterwards"
        elif self.executor.needs_approval(self.tool, changed):
            reason = "a hook changed its arguments to ones that need a person's approval"
        else:
            self.call = changed
            return None
        logger.warning("%s was not run in call %s: %s", call.tool_name, call.tool_call_id, reason)
        return ToolError(f"{call.tool_name} was not run: {reason}.", retry=False)

    async def _run_with_hooks(self) -> ToolCallResult:
        try:
            result = await self._run()
        except ToolError as error:
            result = self._failure(str(error))
        return result if result is LATER else await run_after_tool(self.executor.hooks, self.call, result)

    def _run(self) -> Coroutine[Any, Any, ToolCallResult]:
        """The result on its way, bounded in size. Raises `ToolError` with words for the model if the tool cannot be run."""
        tool = self.tool
        if tool is None:
            raise ToolError(self._unknown_tool_error())
        arguments = read_arguments(tool, self.call)
        try:
            converted = tool.validate(arguments)
        except ToolError:
            raise
        except Exception as error:  # of a validator the application wrote
            logger.warning(
                "%s could not check the arguments of call %s", tool.name, self.call.tool_call_id, exc_info=error
            )
            words = exception_text(error)[:500]
            raise ToolError(f"{tool.name} could not check its arguments, and was not run: {words}") from error
        if tool.cache_seconds is None:
            return self._run_with_retries(tool, converted)
        return self._cached_result(tool, arguments, converted, tool.cache_seconds)

    async def _cached_result(
        self, tool: Tool, arguments: dict[str, Any], converted: dict[str, Any], seconds: float
    ) -> ToolCallResult:
        """The result of an equal call that was made a while ago, or else this one's, for others to be remembered."""
        cache = self.executor.cache
        key = cache.key(tool, arguments)
        cached = cache.get(key)
        if cached is not None:
            self.is_cached = True
            return structs.replace(cached, tool_call_id=self.call.tool_call_id)
        result = await self._run_with_retries(tool, converted)
        if result.status is ToolExecutionStatus.SUCCESS:
            cache.put(key, result, seconds)
        return result

    def _unknown_tool_error(self) -> str:
        registry, name = self.executor.registry, self.call.tool_name
        if not len(registry):
            return f"Unknown tool {preview_text(name)}: no tools are available. Answer without one."
        guess = f" Did you mean {' or '.join(meant)}?" if (meant := registry.near_misses(name)) else ""
        names = ", ".join(registry.names[:NAMES_LISTED])
        more = f" and {len(registry) - NAMES_LISTED} more" if len(registry) > NAMES_LISTED else ""
        form = "" if self.call.is_readable else f" {TEXT_FORM}"
        return f"Unknown tool {preview_text(name)}.{guess} The tools are: {names}{more}.{form}"

    async def _run_with_retries(self, tool: Tool, arguments: dict[str, Any]) -> ToolCallResult:
        """Run the tool, again as often as it allows."""
        while True:
            self.attempts += 1
            context, cancellation = self.scope, Cancellation() if tool.runs_in_thread else None
            if tool.needs_context:
                context = structs.replace(
                    context,
                    tool_call_id=self.call.tool_call_id,
                    idempotency_key=self.idempotency_key,
                    attempt=self.attempts,
                    reporter=self._report if self.observer is not None else None,
                    cancellation=cancellation,
                )
            began, timeout = time.perf_counter(), tool.timeout
            work = tool.call(arguments, context)
            if not tool.can_wait:
                ending = run_at_once(work)
            elif cancellation is None:
                ending = await run_attempt(work, timeout, self.executor.grace)
            else:
                try:
                    ending = await run_attempt(work, timeout, self.executor.grace)
                finally:  # a thread that still runs can ask
                    cancellation.is_set = True
            if ending.kind == "done":
                if isinstance(ending.value, Settled):
                    return self._settled(tool, ending.value)
                if timeout is not None and not ending.is_late and time.perf_counter() - began > timeout:
                    self._warn_of_blocking(tool, time.perf_counter() - began)
                return self._truncate(tool, to_result(self.call, ending.value))
            if self.attempts > tool.retries or not _can_retry(tool, ending):
                return self._truncate(tool, self._failure(self._describe_failure(tool, ending)))
            delay = min(MAX_BACKOFF, INITIAL_BACKOFF * 2 ** (self.attempts - 1))
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))

    def _settled(self, tool: Tool, settled: Settled) -> ToolCallResult:
        """The result of a tool that says itself what became of its call."""
        if settled.outcome == "later":
            return LATER
        if settled.outcome == "done":
            return self._truncate(tool, to_result(self.call, settled.value))
        words = "did nothing" if settled.outcome == "not_done" else "cannot tell what it did; its outcome is unknown"
        return self._failure(f"{tool.name} {words}.")

    def _truncate(self, tool: Tool, result: ToolCallResult) -> ToolCallResult:
        content = truncate_content(result.content, tool.max_result_chars or self.executor.max_result_chars)
        if content is result.content:
            return result
        self.is_truncated = True
        return structs.replace(result, content=content)

    def _describe_failure(self, tool: Tool, ending: AttemptOutcome) -> str:
        """Why it failed, for the model; and for the log, with all there is."""
        error = ending.error
        self.error_type = "timeout" if error is None else type(error).__name__
        if error is None:
            logger.warning("%s did not finish within %s s (call %s)", tool.name, tool.timeout, self.call.tool_call_id)
            return _timeout_message(tool)
        if isinstance(error, ToolError):
            logger.info("%s refused call %s: %s", tool.name, self.call.tool_call_id, error)
            return str(error) or f"{tool.name} failed without saying why."
        words = exception_text(error)
        self.traceback = traceback_text(error)
        logger.warning(
            "%s failed in call %s of conversation %r: %s",
            tool.name,
            self.call.tool_call_id,
            self.scope.conversation_id,
            words[:1_000],
            exc_info=error if len(words) < 10_000 else None,
        )
        if not isinstance(error, Exception):  # SystemExit, KeyboardInterrupt and their like
            return f"{tool.name} broke off before it was done ({type(error).__name__}). Part of its work may have been done."
        return f"{tool.name} failed: {words}"

    def _warn_of_blocking(self, tool: Tool, seconds: float) -> None:
        # It finished, and yet later than the deadline that should have stopped it: the loop could not run in between.
        if not tool.runs_in_thread:
            logger.warning(
                "%s held up the event loop, so that its timeout of %s s did nothing for %.1f s; make it a plain function",
                tool.name,
                tool.timeout,
                seconds,
            )

    def _failure(self, words: str) -> ToolCallResult:
        return ToolCallResult.of(self.call, words, status=ToolExecutionStatus.FAILED)

    def _report(self, message: str, fraction: float | None) -> None:
        """Pass on progress, from whatever thread it comes."""
        if _running_loop() is self.loop:
            self._forward_progress(message, fraction)
            return
        try:
            self.loop.call_soon_threadsafe(self._forward_progress, message, fraction)
        except RuntimeError:
            logger.debug("progress of %s after its event loop was closed", self.call.tool_name)

    def _forward_progress(self, message: str, fraction: float | None) -> None:
        if self.observer is None or self.is_over:
            return
        try:
            self.observer.progress(self.call, message, fraction)
        except Exception:
            logger.exception("the observer failed on progress of %s", self.call.tool_name)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:  # in a thread
        return None


def _can_retry(tool: Tool, ending: AttemptOutcome) -> bool:
    """Whether another try is safe and sensible: nothing of the last one still runs, and its error allows a retry."""
    if ending.kind == "stopped" and tool.runs_in_thread:
        return False
    error = ending.error
    if isinstance(error, ToolError):
        return error.retry
    return error is None or isinstance(error, Exception)


def _timeout_message(tool: Tool) -> str:
    late = f"{tool.name} did not finish within {tool.timeout:g} s"
    if tool.runs_in_thread:
        return f"{late}. It could not be stopped and may still be running; what it was asked to do may yet happen."
    if tool.effect == "read":
        return f"{late} and was stopped."
    return f"{late} and was stopped. Part of its work may have been done."
