"""An errand runs at once and continues where its moment happens; in everything else it does what a task would do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from typing import Any

import pytest

from antiphon.providers.transport.errand import Errand, Moment

marker: ContextVar[str] = ContextVar("marker", default="")


def started(work: Coroutine[Any, Any, None]) -> Errand:
    errand = Errand(work, asyncio.get_running_loop())
    errand.go_on()
    return errand


def test_it_runs_inside_the_calls_that_wake_it() -> None:
    async def run() -> None:
        moments = [Moment(asyncio.get_running_loop()) for _ in range(2)]
        seen: list[str] = []

        async def work() -> None:
            marker.set("mine")
            seen.append("begun")
            for moment in moments:
                await moment
                seen.append(marker.get())

        loop = asyncio.get_running_loop()
        done = loop.create_future()

        def from_outside() -> None:  # where no task runs
            errand = Errand(work(), loop)
            errand.go_on()
            assert seen == ["begun"]
            moments[0].happen()
            assert seen == ["begun", "mine"]
            moments[0].happen()
            assert seen == ["begun", "mine"]
            moments[1].happen()
            assert errand.is_over
            assert marker.get() == ""
            done.set_result(None)

        loop.call_soon(from_outside)
        await asyncio.wait_for(done, 10)
        assert seen == ["begun", "mine", "mine"]

    asyncio.run(run())


def test_one_runs_at_a_time() -> None:
    async def run() -> None:
        seen: list[object] = []

        async def work() -> None:
            seen.append(asyncio.current_task())

        errand = started(work())  # this is a task, which runs
        assert seen == []
        await errand.ended()
        assert seen == [errand]

    asyncio.run(run())


async def _sleeps() -> None:
    await asyncio.sleep(60)


async def _waits() -> None:
    await Moment(asyncio.get_running_loop())


async def _awaits_a_task() -> None:
    await asyncio.create_task(asyncio.sleep(60))


@pytest.mark.parametrize("wait", [_sleeps, _waits, _awaits_a_task])
def test_it_is_cancelled_wherever_it_waits(wait: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        reported: list[int] = []

        async def work() -> None:
            try:
                await wait()
            except asyncio.CancelledError:
                reported.append(errand.cancelling())
                raise

        errand = started(work())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert errand.cancel()
        assert errand.cancel()
        await asyncio.wait_for(errand.ended(), 10)
        assert reported == [2]
        assert not errand.cancel()

    asyncio.run(run())


def test_one_that_was_cancelled_before_it_began_never_does() -> None:
    async def run() -> None:
        seen: list[int] = []

        async def work() -> None:
            seen.append(1)

        errand = started(work())
        errand.cancel()
        await errand.ended()
        assert seen == []

    asyncio.run(run())


@pytest.mark.parametrize("wait", [_sleeps, _waits, _awaits_a_task])
def test_a_timeout_inside_it_holds_and_it_continues(wait: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        seen: list[str] = []

        async def work() -> None:
            try:
                async with asyncio.timeout(0.01):
                    await wait()
            except TimeoutError:
                seen.append("late")
            await asyncio.sleep(0)
            seen.append(str(errand.cancelling()))

        errand = started(work())
        await asyncio.wait_for(errand.ended(), 10)
        assert seen == ["late", "0"]

    asyncio.run(run())


def test_uncaught_exceptions_are_reported_to_the_loop() -> None:
    async def run() -> None:
        reported: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

        async def work() -> None:
            raise ValueError("a mistake")

        errand = started(work())
        await errand.ended()
        assert [str(context["exception"]) for context in reported] == ["a mistake"]

    asyncio.run(run())


def test_a_moment_can_be_waited_for_by_a_task_too() -> None:
    async def run() -> None:
        moment = Moment(asyncio.get_running_loop())

        async def work() -> str:
            await moment
            return "gone on"

        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        moment.happen()
        moment.happen()
        assert await task == "gone on"
        left = asyncio.create_task(_waits())
        await asyncio.sleep(0)
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left

    asyncio.run(run())
