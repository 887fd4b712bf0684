"""What tools did, from the log: each call once, with its time, whatever became of it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import antiphon as ap
from antiphon.history import EntryMetadata, ToolCallFinishedEntry, ToolCallStartedEntry
from antiphon.tools.statistics import ToolMonitor, ToolStatistics


def counted(history: ap.AgentHistory) -> dict[str, ToolStatistics]:
    monitor = ToolMonitor()
    monitor.add(history.entries)
    return {tool.tool: tool for tool in monitor.tools}


def test_denied_call_was_not_run_and_the_other_keeps_its_time() -> None:
    @ap.tool(needs_approval=True)
    def delete(path: str) -> str:
        "Delete a file."
        return path

    @ap.tool
    def read(path: str) -> str:
        "Read a file."
        return path

    model = ap.ScriptedModel([ap.call("read", path="a"), ap.call("delete", path="a")], "Done.")
    chat = ap.Conversation(model, tools=[delete, read])
    loop = ap.ToolLoop(chat)
    waiting = loop.run_sync("Go.").pending
    assert counted(chat.history)["read"].calls == 1  # its result waits for the other
    loop.deny(waiting[0].tool_call_id, "no")

    async def resume() -> None:
        async for _ in loop.stream():
            pass

    asyncio.run(resume())
    tools = counted(chat.history)
    assert (tools["delete"].calls, tools["delete"].skipped, tools["delete"].timed) == (1, 1, 0)
    assert (tools["read"].calls, tools["read"].skipped, tools["read"].timed) == (1, 0, 1)


def test_calls_of_a_process_that_ended_are_unfinished() -> None:
    history = ap.AgentHistory()
    done, half = ap.ToolCallRequest("a", "c1", "{}"), ap.ToolCallRequest("b", "c2", "{}")
    history.append(ap.ModelInputEntry.of("Go."))
    history.append(ap.ModelOutputEntry.of(done, half))
    history.append(ToolCallStartedEntry("a", "c1"))
    history.append(ToolCallStartedEntry("b", "c2"))
    metadata = EntryMetadata(duration=1.5, extra={"cached": True})
    history.append(ToolCallFinishedEntry(ap.ToolCallResult.of(done, "x"), metadata=metadata))
    tools = counted(history)
    assert (tools["a"].calls, tools["a"].unfinished, tools["a"].cached, tools["a"].slowest) == (1, 0, 1, 1.5)
    assert (tools["b"].calls, tools["b"].unfinished, tools["b"].mean_seconds) == (1, 1, None)


def test_rolled_back_calls_ran_too() -> None:
    def look(word: str) -> str:
        "Look a word up."
        return word

    chat = ap.Conversation(ap.ScriptedModel(ap.call("look", word="a"), "Done."), tools=[look])
    ap.ToolLoop(chat).run_sync("Go.")
    chat.history.rollback(0)
    assert counted(chat.history)["look"].calls == 1


def test_calls_before_a_time_do_not_count() -> None:
    history = ap.AgentHistory()
    call = ap.ToolCallRequest("a", "c1", "{}")
    history.append(ap.ModelOutputEntry.of(call))
    history.append(ap.ToolCallResultsEntry((ap.ToolCallResult.of(call, "x"),)))
    monitor = ToolMonitor(since=datetime(2999, 1, 1, tzinfo=UTC))
    monitor.add(history.entries)
    assert monitor.tools == []
