"""Work begins at once, and is a task of its own all the same: to timeouts, groups and scopes inside of it, and to who waits."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest

from antiphon.parts import ToolCallRequest, ToolExecutionStatus
from antiphon.providers.transport.errand import Moment
from antiphon.tools import tool
from antiphon.tools.executor import TaskOutcome, ToolExecutor, Work, run_with_timeout
from antiphon.tools.registry import ToolRegistry

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


async def ended(coroutine: Coroutine[Any, Any, Any], timeout: float | None = 30, grace: float = 1) -> TaskOutcome:
    work = Work(coroutine, asyncio.get_running_loop())
    return work.begin() or await run_with_timeout(work, timeout, grace)


async def stopped(coroutine: Coroutine[Any, Any, Any]) -> tuple[TaskOutcome, int]:
    """What came of it, and how often whoever waited was to be cancelled."""
    task = asyncio.current_task()
    assert task is not None
    return await ended(coroutine), task.cancelling()


@pytest.mark.parametrize("work", [timed_out, waited_for, scoped, grouped, gathered])
def test_what_happens_inside_stays_inside(work: Callable[[], Coroutine[Any, Any, str]]) -> None:
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


def test_work_that_never_waits_takes_no_turn_of_the_event_loop() -> None:
    seen: list[object] = []

    @tool
    async def quick() -> str:
        seen.append(asyncio.current_task())
        return "done"

    async def main() -> None:
        others_ran: list[bool] = []
        asyncio.get_running_loop().call_soon(others_ran.append, True)
        executor = ToolExecutor(ToolRegistry([quick]))
        (result,) = await executor.execute([ToolCallRequest("quick", "call_1")])
        assert result.status is ToolExecutionStatus.SUCCESS
        assert not others_ran
        assert asyncio.current_task() not in seen, "it was a task of its own"

    asyncio.run(main())


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


def test_waiting_for_what_cannot_be_waited_for_is_an_error_and_no_hang() -> None:
    class Odd:
        def __await__(self) -> Any:
            yield "nothing a loop knows"

    async def odd() -> None:
        await Odd()

    async def main() -> list[TaskOutcome]:
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
    told: list[object] = []

    async def work() -> str:
        task = asyncio.current_task()
        assert task is not None
        task.add_done_callback(told.append)
        task.add_done_callback(print)
        assert task.remove_done_callback(print) == 1
        await asyncio.sleep(0)
        return "done"

    async def main() -> None:
        assert (await ended(work(), None)).value == "done"
        await asyncio.sleep(0)
        assert len(told) == 1

    asyncio.run(main())


@pytest.mark.parametrize("is_stubborn", [False, True])
def test_work_that_awaits_a_wakeup_is_stopped_too(is_stubborn: bool) -> None:
    """As a tool does that asks a provider of its own."""
    waited: list[Moment] = []

    async def waits() -> None:
        while True:
            moment = Moment(asyncio.get_running_loop())
            waited.append(moment)
            try:
                await moment
            except asyncio.CancelledError:
                if not is_stubborn:
                    raise

    async def main() -> TaskOutcome:
        ending = await ended(waits(), timeout=0.01, grace=0.01)
        waited[-1].happen()  # and finds nobody
        return ending

    assert asyncio.run(main()).kind == "stopped"
    assert len(waited) == 1 + is_stubborn
