"""`CallExecution`: one call on its way to its result.

Hooks may change it; then it is validated, looked up in the cache, run within its timeout, retried if its effect allows it, and
its return value becomes parts of bounded size. Every failure is a result with text for the model.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, structs

from antiphon.errors import ToolError
from antiphon.history import AgentHistory
from antiphon.parts import Text, ToolCallRequest, ToolCallResult, ToolExecutionStatus
from antiphon.telemetry import switch
from antiphon.tools.attempt import AttemptOutcome, run_at_once, run_attempt
from antiphon.tools.compiled_schema import preview_text
from antiphon.tools.context import Cancellation, ToolContext
from antiphon.tools.hooks import has_same_arguments, run_after_tool, run_before_tool
from antiphon.tools.results import exception_text, size_of, to_result, traceback_text, truncate_content
from antiphon.tools.settling import Settled
from antiphon.tools.tool import ConcurrencyLimit, Tool, read_arguments

if TYPE_CHECKING:
    from antiphon.providers.client import ProviderClient
    from antiphon.telemetry.spans import Telemetry
    from antiphon.tools.executor import ToolExecutor

logger = logging.getLogger("antiphon.tools")

LATER = ToolCallResult("", "", ToolExecutionStatus.SKIPPED, (Text("The result of this call comes later."),))
"""In place of a result that comes from outside (`Settled.later`)."""

INITIAL_BACKOFF = 0.2
MAX_BACKOFF = 5.0
NAMES_LISTED = 50
TEXT_FORM = 'A call in text is written as <tool_call>{"name": "…", "arguments": {…}}</tool_call>.'


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


class CallExecution(Struct, eq=False):
    """One call on its way to its result."""

    executor: ToolExecutor
    call: ToolCallRequest
    tool: Tool | None
    idempotency_key: str
    observer: CallObserver | None
    conversation_id: str
    round: int
    loop: asyncio.AbstractEventLoop
    model: str | ProviderClient | None = None
    provider: ProviderClient | None = None
    history: AgentHistory | None = None
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
        with active.tool_call(self.call, description, self.conversation_id) as span:
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
        if has_same_arguments(changed, call):
            return None
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
            context = ToolContext(
                conversation_id=self.conversation_id,
                tool_call_id=self.call.tool_call_id,
                idempotency_key=self.idempotency_key,
                round=self.round,
                attempt=self.attempts,
                state=self.executor.state,
                executor=self.executor,
                model=self.model,
                provider=self.provider,
                reporter=self._report if self.observer is not None else None,
                log=self.history,
                cancellation=(cancellation := Cancellation()) if tool.runs_in_thread else None,
            )
            began, timeout = time.perf_counter(), tool.timeout
            work = tool.call(arguments, context)
            if not tool.can_wait:
                ending = run_at_once(work)
            elif not tool.runs_in_thread:
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
            self.conversation_id,
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
