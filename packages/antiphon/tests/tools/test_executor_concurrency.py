"""Calls at the same time: limits, threads, context variables, cancellation and forked processes."""

from __future__ import annotations

import asyncio
import contextvars
import os
import subprocess
import sys
import threading

import pytest

from antiphon.parts import ToolCallRequest
from antiphon.tools import Tool, ToolExecutor, ToolRegistry, tool
from tools.executor_calls import OK, Watcher, call, cancelled, run


class Crowd:
    """Counts how many are inside at once."""

    def __init__(self) -> None:
        self.inside = self.most = 0

    async def visit(self) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        await asyncio.sleep(0.005)
        self.inside -= 1


@pytest.mark.parametrize(("max_parallel", "concurrency", "most"), [(8, None, 8), (3, None, 3), (8, 2, 2), (1, 5, 1)])
def test_concurrency_limits(max_parallel: int, concurrency: int | None, most: int) -> None:
    crowd = Crowd()
    visit = tool(concurrency=concurrency)(crowd.visit)
    calls = [call("visit", call_id=f"call_{number}") for number in range(12)]
    results = run([visit], *calls, max_parallel=max_parallel)
    assert [result.status for result in results] == [OK] * 12
    assert crowd.most == most
    # The same tool again in another event loop.
    assert len(run([visit], *calls, max_parallel=max_parallel)) == 12


def test_the_concurrency_of_a_tool_holds_across_executions() -> None:
    crowd = Crowd()
    visit = tool(concurrency=1)(crowd.visit)

    async def main() -> None:
        executors = [ToolExecutor(ToolRegistry([visit])) for _ in range(4)]
        await asyncio.gather(*(executor.execute([call("visit")]) for executor in executors))

    asyncio.run(main())
    assert crowd.most == 1


def test_sync_tools_run_side_by_side_in_threads() -> None:
    together = threading.Barrier(3, timeout=30)

    @tool
    def meet() -> str:
        together.wait()
        return threading.current_thread().name

    results = run([meet], *(call("meet", call_id=f"call_{number}") for number in range(3)))
    assert len({result.result_markdown for result in results}) == 3


def test_a_thread_that_is_done_serves_again() -> None:
    @tool
    def count() -> int:
        return threading.active_count()

    async def main() -> list[int]:
        executor = ToolExecutor(ToolRegistry([count]))
        return [int((await executor.execute([call("count")]))[0].result_markdown) for _ in range(5)]

    first, *others = asyncio.run(main())
    assert max(others) <= first


def test_context_variables_reach_threads() -> None:
    user = contextvars.ContextVar("user", default="default")

    @tool
    def who() -> str:
        return user.get()

    async def main() -> str:
        user.set("mine")
        return (await ToolExecutor(ToolRegistry([who])).execute([call("who")]))[0].result_markdown

    assert asyncio.run(main()) == "mine"


def test_cancelling_stops_the_tools() -> None:
    ended: list[str] = []

    @tool
    async def hang(name: str) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(name)

    @tool
    async def quick() -> str:
        return "done"

    async def main() -> None:
        executor = ToolExecutor(ToolRegistry([hang, quick]))
        await cancelled(executor, call("hang", '{"name": "alone"}'))
        watcher = Watcher()
        calls = [call("hang", '{"name": "a"}', "1"), call("quick", call_id="2"), call("hang", '{"name": "b"}', "3")]
        await cancelled(executor, *calls, watcher=watcher)
        # What was finished before is known; what was cancelled is not called finished.
        assert [event[1] for event in watcher.events if event[0] == "finished"] == ["2"]

    asyncio.run(main())
    assert ended[0] == "alone"
    assert sorted(ended[1:]) == ["a", "b"]


def test_cancelling_does_not_wait_for_stubborn_tools_or_threads() -> None:
    release = threading.Event()

    @tool
    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                continue

    @tool
    def hang() -> None:
        release.wait(60)

    async def main() -> None:
        executor = ToolExecutor(ToolRegistry([stubborn, hang]), grace=0.05)
        await cancelled(executor, call("stubborn"), call("hang", call_id="call_2"))

    try:
        asyncio.run(main())
    finally:
        release.set()


@pytest.mark.parametrize("turns", range(4))
@pytest.mark.parametrize("count", [1, 2])
def test_cancelling_in_the_first_loop_turns_leaves_no_tasks(turns: int, count: int) -> None:
    @tool
    async def work() -> None:
        await asyncio.sleep(60)

    async def main() -> None:
        executor = ToolExecutor(ToolRegistry([work]))
        task = asyncio.ensure_future(executor.execute([call("work")] * count))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


@pytest.mark.parametrize("count", [1, 3])
def test_a_failing_observer_prevents_the_tool_call(count: int) -> None:
    ran: list[str] = []

    @tool
    async def work() -> None:
        ran.append("ran")
        await asyncio.sleep(60)

    class Full(Watcher):
        def started(self, call: ToolCallRequest, tool: Tool | None, idempotency_key: str) -> None:
            if call.tool_call_id == "call_0":
                raise OSError("the disk is full")

    calls = [call("work", call_id=f"call_{number}") for number in range(count)]
    with pytest.raises(OSError, match="the disk is full"):
        run([work], *calls, watcher=Full())
    assert len(ran) <= count - 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_threads_work_again_in_a_forked_child() -> None:
    code = """
import asyncio, os
from antiphon.parts import ToolCallRequest
from antiphon.tools import ToolExecutor, ToolRegistry, tool

@tool(timeout=20)
def plain():
    return "fine"

def run():
    return asyncio.run(ToolExecutor(ToolRegistry([plain])).execute([ToolCallRequest("plain", "1")]))[0].result_markdown

assert run() == "fine"
child = os.fork()
if child == 0:
    os._exit(0 if run() == "fine" else 1)
assert os.waitpid(child, 0)[1] == 0
"""
    ended = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
