"""L7, the loop's part: killed at any entry, a turn is resumed; no tool that finished runs again, the model gets an honest report
of one that may have half-run."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import signal
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.conversation import Conversation, RunLimits, ToolLoop
from antiphon.history import (
    AgentHistory,
    HistoryEntry,
    SqliteStore,
    ToolCallFinishedEntry,
    ToolCallStartedEntry,
)
from antiphon.tools import ToolContext, tool
from antiphon.tools.call_runner import UNKNOWN_OUTCOME
from support.child_process import in_a_process
from support.examples import scaled
from support.planned_turns import (
    Killed,
    MortalJournal,
    Plan,
    World,
    calls_in,
    drained,
    last_reason,
    planned,
    refusals,
    results_in,
)

plans = st.lists(
    st.lists(st.sampled_from(["look", "put", "send", "trip"]), min_size=1, max_size=3), min_size=1, max_size=4
)
LIMIT_REASONS = RunLimits(max_rounds=10, max_failed_rounds=10, max_repeats=10)


def play_until(plan: Plan, world: World, limit: int) -> list[HistoryEntry]:
    """What is in the log of a process that is killed when it writes entry `limit` + 1."""
    journal = MortalJournal(limit)

    async def run() -> None:
        chat = Conversation(planned(plan), tools=world.tools(), history=AgentHistory(journal=journal))
        await drained(ToolLoop(chat, limits=LIMIT_REASONS), "Go.")

    with contextlib.suppress(Killed):
        asyncio.run(run())
    return journal.kept


@settings(max_examples=scaled(8))
@given(plans)
def test_a_turn_killed_at_any_entry_is_resumed(plan: Plan) -> None:
    whole = play_until(plan, World(), 10_000)
    for limit in range(1, len(whole)):
        world = World()
        kept = play_until(plan, world, limit)
        assert len(kept) == limit
        finished = set(results_in(kept)) | {
            entry.result.tool_call_id for entry in kept if isinstance(entry, ToolCallFinishedEntry)
        }
        started = {entry.tool_call_id: entry.tool_name for entry in kept if isinstance(entry, ToolCallStartedEntry)}
        before = world.began.copy()
        history = AgentHistory(kept)
        assert refusals(history.snapshot()) == []

        chat = Conversation(planned(plan), tools=world.tools(), history=history)
        events = asyncio.run(drained(ToolLoop(chat, limits=LIMIT_REASONS)))
        assert last_reason(events) == "answered"
        assert chat.messages[-1].content[0].text == "That is all."  # type: ignore[union-attr]

        results = results_in(list(history.entries))
        for call_id in finished:
            assert world.began[call_id] == before[call_id], "what finished runs no more"
        for call_id, name in started.items():
            if call_id not in finished and name in ("send", "trip"):
                assert world.began[call_id] <= 1
                assert results[call_id] == UNKNOWN_OUTCOME
            elif call_id not in finished:
                assert results[call_id] == f"done {call_id}"
        assert refusals(history.snapshot()) == []
        version = history.version
        assert last_reason(asyncio.run(drained(ToolLoop(chat, limits=LIMIT_REASONS)))) == "answered"
        assert history.version == version, "resuming what is over changes nothing"


def test_a_started_call_beyond_the_budget_is_not_reported_as_not_run() -> None:
    world, journal = World(), MortalJournal(4)  # the input, the output, and both calls started
    chat = Conversation(planned([["look", "put"]]), tools=world.tools(), history=AgentHistory(journal=journal))
    with contextlib.suppress(Killed):
        asyncio.run(drained(ToolLoop(chat), "Go."))
    assert [entry.kind for entry in journal.kept].count("tool_call_started") == 2
    history = AgentHistory(journal.kept)
    chat = Conversation(planned([["look", "put"]]), tools=world.tools(), history=history)
    asyncio.run(drained(ToolLoop(chat, max_calls=1)))
    (first, second) = calls_in(history.entries)
    results = results_in(history.entries)
    assert results[first] == f"done {first}", "what the budget allows runs again, under the same key"
    assert results[second] == UNKNOWN_OUTCOME, "it was started, so it may have run"


PLAN: Plan = [["look"], ["send", "look", "send"], ["send"], ["look", "look"], ["send"]]


def work_on(folder: Path, held: int | None, pipe: int) -> None:
    """Begin the turn or resume it; the trace has each call that began and ended. The call with the number `held` never ends."""
    numbers = itertools.count()
    with open(folder / "trace", "a", buffering=1) as trace, SqliteStore(folder / "chats.db") as store:

        def call(context: ToolContext, name: str) -> str:
            trace.write(f"began {name} {context.tool_call_id}\n")
            os.write(pipe, b"began\n")
            if next(numbers) == held:
                threading.Event().wait()
            time.sleep(0.002)
            trace.write(f"ended {name} {context.tool_call_id}\n")
            os.write(pipe, b"ended\n")
            return f"done {context.tool_call_id}"

        @tool(effect="read")
        def look(context: ToolContext) -> str:
            return call(context, "look")

        @tool(effect="once")
        def send(context: ToolContext) -> str:
            return call(context, "send")

        known = store.list()
        chat = Conversation(planned(PLAN), tools=[look, send], store=store, resume=known[0].id if known else None)
        os.write(pipe, b"ready\n")
        loop = ToolLoop(chat, max_rounds=10, max_repeats=10)
        asyncio.run(drained(loop) if known and chat.history.version else drained(loop, "Go."))
        os.write(pipe, b"over\n")


@pytest.mark.parametrize("seed", range(scaled(1)))
def test_kill_nine_at_random_instants_repeats_no_finished_call(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    trace = tmp_path / "trace"
    trace.touch()
    kills, is_over = 0, False
    while not is_over:
        kills += 1
        assert kills < 80, "the turn never ends"
        # The first is killed before a call that never ends, so in mid-turn however busy the machine is; each later one may get
        # further.
        held = chance.randrange(sum(map(len, PLAN))) if kills == 1 else None
        process, read_end = in_a_process(partial(work_on, tmp_path, held))
        with os.fdopen(read_end, "rb") as progress:
            assert progress.readline() == b"ready\n"
            said = b""
            for _ in range(chance.randrange(2 * kills) if held is None else held + 1):
                if (said := progress.readline()) == b"over\n":
                    break
            time.sleep(chance.uniform(0, 0.004))
            os.kill(process, signal.SIGKILL)
            is_over = (said + progress.read()).endswith(b"over\n")
        os.waitpid(process, 0)
    with SqliteStore(tmp_path / "chats.db") as store:
        history = store.open("last")
        results = results_in(list(history.entries))
        lines = [line.split() for line in trace.read_text().splitlines()]
        for call_id, text in results.items():
            began = lines.count(["began", "send", call_id])
            assert began <= 1, "what must not be done twice is not"
            if text == UNKNOWN_OUTCOME:
                continue
            assert lines.count(["ended", "send", call_id]) + lines.count(["ended", "look", call_id]) >= 1
        assert len(results) == 8
        assert refusals(history.snapshot()) == []
