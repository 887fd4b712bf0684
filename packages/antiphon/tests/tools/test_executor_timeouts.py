"""Tools that hang, block, ignore cancellation or fail: when a call is stopped, answered and retried."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from antiphon.parts import ToolCallRequest
from antiphon.tools import Tool, ToolContext, ToolError, ToolExecutor, ToolRegistry, tool
from antiphon.tools.executor import INITIAL_BACKOFF
from tools.executor_calls import FAILED, OK, Watcher, call, one


def test_an_async_tool_that_hangs_is_stopped() -> None:
    was_stopped = []

    @tool(timeout=0.05)
    async def hang() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            was_stopped.append(True)

    answer_text, outcome = one(hang)
    assert answer_text == "hang did not finish within 0.05 s and was stopped. Part of its work may have been done."
    assert was_stopped == [True]
    assert outcome.seconds >= 0.05


def test_a_tool_that_ignores_cancellation_is_stopped_anyway() -> None:
    steps: list[str] = []

    @tool(timeout=0.05)
    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                steps.append("cancelled")
            finally:
                steps.append("woken")

    answer_text, _ = one(stubborn, grace=0.05)
    assert "did not finish within 0.05 s and was stopped" in answer_text
    assert steps == ["cancelled", "woken", "woken"]


# Python complains when it collects a coroutine that ignores being closed; so it should.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_tool_that_ignores_close_is_abandoned() -> None:
    steps: list[int] = []

    @tool(timeout=0.05)
    async def immortal() -> None:
        while True:
            try:
                steps.append(1)
                await asyncio.sleep(0.01)
            except BaseException:  # the worst there is
                continue

    async def main() -> tuple[str, int]:
        executor = ToolExecutor(ToolRegistry([immortal]), grace=0.05)
        (result,) = await executor.execute([call("immortal")])
        done = len(steps)
        await asyncio.sleep(0.05)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return result.result_markdown, len(steps) - done

    answer_text, more = asyncio.run(main())
    assert "was stopped" in answer_text
    assert more == 0


def test_a_tool_that_ends_well_while_it_is_stopped_has_its_result(caplog: pytest.LogCaptureFixture) -> None:
    @tool(timeout=0.05)
    async def tidy() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "half of it"
        return "all of it"

    answer_text, outcome = one(tidy)
    assert (answer_text, outcome.status) == ("half of it", OK)
    assert "held up" not in caplog.text


def test_a_hanging_plain_function_is_answered_and_abandoned() -> None:
    release, ended = threading.Event(), threading.Event()

    @tool(timeout=0.05)
    def hang(context: ToolContext) -> None:
        release.wait(60)
        context.progress("too late for anybody")
        ended.set()

    watcher = Watcher()

    async def main() -> str:
        (result,) = await ToolExecutor(ToolRegistry([hang])).execute([call("hang")], observer=watcher)
        release.set()
        while not ended.is_set():
            await asyncio.sleep(0.001)
        await asyncio.sleep(0)
        return result.result_markdown

    assert asyncio.run(main()) == (
        "hang did not finish within 0.05 s. It could not be stopped and may still be running; "
        "what it was asked to do may yet happen."
    )
    assert [event[0] for event in watcher.events] == ["started", "finished"]


def test_an_abandoned_thread_blocks_neither_the_loop_nor_the_interpreter() -> None:
    code = """
import asyncio, time
from antiphon.parts import ToolCallRequest
from antiphon.tools import ToolExecutor, ToolRegistry, tool

@tool(timeout=0.05)
def hang():
    time.sleep(600)

print(asyncio.run(ToolExecutor(ToolRegistry([hang])).execute([ToolCallRequest("hang", "1")]))[0].status.value)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "failed\n"), ended.stderr


def test_a_tool_that_blocks_the_loop_is_answered_afterwards_and_named(caplog: pytest.LogCaptureFixture) -> None:
    @tool(timeout=0.02)
    async def block() -> str:
        time.sleep(0.1)
        return "done"

    assert one(block)[0] == "done"
    assert "block held up the event loop" in caplog.text


def test_an_observer_that_fails_in_several_calls_raises_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Full:
        def started(self, *_: object) -> None:
            raise OSError("the disk is full")

        def progress(self, *_: object) -> None: ...
        def finished(self, *_: object) -> None: ...
        def waits(self, *_: object) -> None: ...

    @tool
    async def look() -> str:
        return "seen"

    calls = [ToolCallRequest("look", f"call_{number}", "{}") for number in range(3)]
    with pytest.raises(OSError, match="disk is full"):
        asyncio.run(ToolExecutor(ToolRegistry([look])).execute(calls, observer=Full()))
    gc.collect()
    assert "never retrieved" not in caplog.text


def counted(failures: int, error: BaseException, **settings: Any) -> tuple[Tool, list[int]]:
    attempts: list[int] = []

    async def fetch(context: ToolContext) -> str:
        attempts.append(context.attempt)
        if len(attempts) <= failures:
            raise error
        return "fetched"

    return tool(**settings)(fetch), attempts


@pytest.mark.parametrize(
    ("error", "settings", "tries"),
    [
        (OSError("down"), {"effect": "read", "retries": 2}, 3),
        (OSError("down"), {"effect": "idempotent", "retries": 1}, 2),
        (OSError("down"), {"effect": "read"}, 1),
        (OSError("down"), {}, 1),
        (ToolError("busy"), {"effect": "read", "retries": 1}, 2),
        (ToolError("never", retry=False), {"effect": "read", "retries": 2}, 1),
        (SystemExit(), {"effect": "read", "retries": 2}, 1),
    ],
)
def test_retries(error: BaseException, settings: dict[str, Any], tries: int) -> None:
    fetch, attempts = counted(99, error, **settings)
    _, outcome = one(fetch)
    assert attempts == list(range(1, tries + 1))
    assert (outcome.attempts, outcome.status) == (tries, FAILED)


def test_a_retry_may_succeed_and_waits_a_little() -> None:
    fetch, attempts = counted(1, OSError("down"), effect="read", retries=3)
    answer_text, outcome = one(fetch)
    assert (answer_text, outcome.attempts, attempts) == ("fetched", 2, [1, 2])
    assert outcome.seconds >= INITIAL_BACKOFF * 0.4


def test_a_call_that_may_still_run_is_not_retried() -> None:
    release = threading.Event()

    @tool(effect="idempotent", retries=3, timeout=0.05)
    def hang() -> None:
        release.wait(60)

    try:
        _, outcome = one(hang)
    finally:
        release.set()
    assert outcome.attempts == 1
