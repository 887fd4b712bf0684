"""An attempt runs in a task of its own: its timeouts, scopes and cancellations stay in it, and it ends at its deadline."""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest

from antiphon.parts import ToolCallRequest, ToolExecutionStatus
from antiphon.threads import AttemptOutcome, run_attempt
from antiphon.tools import ToolContext, tool
from antiphon.tools.executor import ToolExecutor
from antiphon.tools.registry import ToolRegistry
from antiphon.tools.tool import FunctionTool

VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("VARIABLE", default="unset")


async def timed_out() -> str:
    try:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(60)
    except TimeoutError:
        return "went on"
    return "never"


async def waited_for() -> str:
    try:
        await asyncio.wait_for(asyncio.sleep(60), 0.01)
    except TimeoutError:
        return "went on"
    return "never"


async def scoped() -> str:
    with anyio.move_on_after(0.01):
        await anyio.sleep(60)
    return "went on"


async def grouped() -> str:
    async def fail() -> None:
        raise ValueError("a child failed")

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            await asyncio.sleep(60)
    except ExceptionGroup:
        return "went on"
    return "never"


async def gathered() -> str:
    await asyncio.gather(asyncio.sleep(0), asyncio.to_thread(int))
    return "went on"


async def ended(coroutine: Coroutine[Any, Any, Any], timeout: float | None = 30, grace: float = 1) -> AttemptOutcome:
    return await run_attempt(coroutine, timeout, grace)


async def stopped(coroutine: Coroutine[Any, Any, Any]) -> tuple[AttemptOutcome, int]:
    """What came of it, and how often the waiting task was cancelled."""
    task = asyncio.current_task()
    assert task is not None
    return await ended(coroutine), task.cancelling()


@pytest.mark.parametrize("work", [timed_out, waited_for, scoped, grouped, gathered])
def test_a_cancellation_inside_the_work_does_not_cancel_the_caller(
    work: Callable[[], Coroutine[Any, Any, str]],
) -> None:
    ending, cancelling = asyncio.run(stopped(work()))
    assert (ending.kind, ending.value) == ("done", "went on")
    assert not cancelling


async def cancels_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(60)


async def raises_it() -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize("work", [cancels_itself, raises_it])
def test_a_cancellation_of_its_own_making_ends_only_the_work(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    ending, cancelling = asyncio.run(stopped(work()))
    assert ending.kind == "raised"
    assert isinstance(ending.error, asyncio.CancelledError)
    assert not cancelling


async def never_waits() -> str:
    VARIABLE.set("set in the work")
    return "done"


async def has_an_await() -> str:
    VARIABLE.set("set in the work")
    if VARIABLE.get() == "":
        await asyncio.sleep(0)
    return "done"


def never_waits_in_a_thread() -> str:
    return "done"


@functools.wraps(never_waits)
def returns_a_coroutine() -> Coroutine[Any, Any, str]:
    return has_an_await()


@pytest.mark.parametrize(
    ("function", "can_wait"),
    [(never_waits, False), (has_an_await, True), (never_waits_in_a_thread, True), (returns_a_coroutine, True)],
)
def test_only_an_async_function_without_await_needs_no_task(function: Callable[[], Any], can_wait: bool) -> None:
    """Also where the tool would not suspend, which is unknown before it runs."""
    made = tool(function)
    assert made.can_wait is can_wait

    async def main() -> tuple[str, bool, str]:
        others_ran: list[bool] = []
        VARIABLE.set("set by the caller")
        asyncio.get_running_loop().call_soon(others_ran.append, True)
        (result,) = await ToolExecutor(ToolRegistry([made])).execute([ToolCallRequest(made.name, "call_1")])
        assert result.status is ToolExecutionStatus.SUCCESS
        return result.result_markdown, bool(others_ran), VARIABLE.get()

    text, others_ran, variable = asyncio.run(main())
    assert (text, variable) == ("done", "set by the caller")
    if not can_wait:
        assert not others_ran, "it took a turn of the event loop"


@pytest.mark.parametrize("error", [ValueError("broken"), SystemExit(3), asyncio.CancelledError()])
def test_an_error_of_a_tool_that_never_waits_is_its_result(error: BaseException) -> None:
    @tool
    async def broken() -> str:
        raise error

    async def main() -> ToolExecutionStatus:
        (result,) = await ToolExecutor(ToolRegistry([broken])).execute([ToolCallRequest("broken", "call_1")])
        return result.status

    assert asyncio.run(main()) is ToolExecutionStatus.FAILED


class _Waiting(FunctionTool[[], Any]):
    async def call(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        await asyncio.sleep(0)
        return await super().call(arguments, context)


def test_a_subclass_with_a_call_of_its_own_may_wait() -> None:
    async def main() -> str:
        waiting = _Waiting(never_waits)
        (result,) = await ToolExecutor(ToolRegistry([waiting])).execute([ToolCallRequest("never_waits", "call_1")])
        return result.result_markdown

    assert asyncio.run(main()) == "done"


def test_context_variables_stay_with_the_work() -> None:
    async def sets() -> str:
        before = VARIABLE.get()
        VARIABLE.set("set in the work")
        await asyncio.sleep(0)
        assert VARIABLE.get() == "set in the work"
        return before

    async def main() -> list[str]:
        VARIABLE.set("set by the caller")
        values = [(await ended(sets(), None)).value for _ in range(2)]
        return [*values, VARIABLE.get()]

    assert asyncio.run(main()) == ["set by the caller"] * 3


def test_awaiting_a_foreign_object_is_an_error() -> None:
    class Odd:
        def __await__(self) -> Any:
            yield "nothing a loop knows"

    async def odd() -> None:
        await Odd()

    async def main() -> list[AttemptOutcome]:
        elsewhere = asyncio.new_event_loop()
        foreign = elsewhere.create_future()
        elsewhere.close()

        async def strays() -> None:
            await foreign

        return [await ended(odd()), await ended(strays())]

    for ending in asyncio.run(main()):
        assert ending.kind == "raised"
        assert isinstance(ending.error, RuntimeError)


def test_a_cancelled_caller_ends_the_work_first() -> None:
    steps: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            steps.append("cleaned up")

    async def main() -> None:
        waiting = asyncio.ensure_future(ended(work(), grace=5))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        steps.append("cancelled")

    asyncio.run(main())
    assert steps == ["cleaned up", "cancelled"]


def test_done_callbacks_of_the_current_task_are_called() -> None:
    finished: list[object] = []

    async def work() -> str:
        task = asyncio.current_task()
        assert task is not None
        task.add_done_callback(finished.append)
        task.add_done_callback(print)
        assert task.remove_done_callback(print) == 1
        await asyncio.sleep(0)
        return "done"

    async def main() -> None:
        assert (await ended(work(), None)).value == "done"
        await asyncio.sleep(0)
        assert len(finished) == 1

    asyncio.run(main())


@pytest.mark.parametrize("is_stubborn", [False, True])
def test_work_that_ignores_its_cancellation_is_left(is_stubborn: bool, caplog: pytest.LogCaptureFixture) -> None:
    waited: list[asyncio.Future[None]] = []

    async def waits() -> None:
        while True:
            waited.append(asyncio.get_running_loop().create_future())
            try:
                await waited[-1]
            except asyncio.CancelledError:
                if not is_stubborn:
                    raise

    async def main() -> AttemptOutcome:
        ending = await ended(waits(), timeout=0.01, grace=0.01)
        for _ in range(3):  # the task that was left ends in these turns
            await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return ending

    assert asyncio.run(main()).kind == "stopped"
    assert len(waited) == 1 + is_stubborn
    assert not caplog.records, "asyncio reports errors that nothing retrieved"
