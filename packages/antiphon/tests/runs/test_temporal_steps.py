"""The activities of a turn on Temporal, called as its worker calls them: what is in the log already is not done again."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("temporalio", reason="Temporal's SDK is not installed (pip install 'antiphon[temporal]')")

from temporalio.activity import ActivityCancellationDetails
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from antiphon.conversation import Conversation, RunLimits, ToolLoop
from antiphon.history import AgentHistory, Run, SqliteStore, ToolCallStartedEntry
from antiphon.providers.call import ProviderClient
from antiphon.providers.scripted import FunctionModel, ScriptedModel, call
from antiphon.runs import RunRegistry
from antiphon.runs.temporal import turn_activities
from antiphon.runs.temporal_workflow import (
    ASK_MODEL,
    CALL_OFF,
    LOOK,
    RUN_CALLS,
    Decision,
    Step,
    TurnStatus,
)
from antiphon.tools import Tool, tool
from antiphon.tools.call_runner import UNKNOWN_OUTCOME
from antiphon.wire.output import ProviderError
from support.planned_turns import World, planned, refusals, results_in

NAMES = {"": LOOK, "model": ASK_MODEL, "calls": RUN_CALLS, "approval": RUN_CALLS}


class Rig:
    """A stored conversation, and the activities that play it."""

    def __init__(
        self, store: SqliteStore, model: ProviderClient, tools: list[Tool], limits: RunLimits | None = None
    ) -> None:
        def build(history: AgentHistory, run: Run) -> ToolLoop:
            return ToolLoop(Conversation(model, tools=tools, history=history), limits=limits or RunLimits())

        self.store = store
        self.build = build
        chat = Conversation(store=store)
        chat.add("Go.")
        self.id = chat.id

    @property
    def history(self) -> AgentHistory:
        return self.store.open(self.id)

    def step(self, standing: TurnStatus | None = None, **options: Any) -> Step:
        return Step(self.id, "", {}, 0, 5.0, standing or TurnStatus(), **options)

    async def play(self, name: str, step: Step, environment: ActivityEnvironment | None = None) -> TurnStatus:
        activities = {function.__name__: function for function in turn_activities(self.store, self.build)}
        return await (environment or ActivityEnvironment()).run(activities[name], step)

    def played(self, standing: TurnStatus, **options: Any) -> TurnStatus:
        return asyncio.run(self.play(NAMES[standing.state], self.step(standing, **options)))


def test_missing_temporal_extra_is_named() -> None:
    code = "import sys; sys.modules['temporalio'] = None; import antiphon.runs.temporal"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.stderr.splitlines()[-1].endswith("install it with: pip install 'antiphon[temporal]'")


def failure(play: Callable[[], object]) -> ApplicationError:
    with pytest.raises(ApplicationError) as failed:
        play()
    return failed.value


def test_turn_runs_step_by_step(store: SqliteStore) -> None:
    world = World()
    rig = Rig(store, planned([["look"], ["put", "trip"]]), world.tools())
    states, standing = [], TurnStatus()
    while standing.state != "over":
        standing = rig.played(standing)
        states.append(standing.state)
        assert standing.version == rig.history.version
        assert store.current_lease(rig.id) is None
    assert states == ["model", "calls", "model", "calls", "model", "over"]
    assert (standing.reason, standing.rounds) == ("answered", 3)


def test_retried_step_is_not_repeated(store: SqliteStore) -> None:
    world, model = World(), planned([["look"], ["send", "send"]])
    rig = Rig(store, model, world.tools())
    standing = rig.played(TurnStatus())
    while standing.state != "over":
        after = rig.played(standing)
        began, version = world.began.copy(), rig.history.version
        again = rig.played(standing)
        assert (again.state, again.reason, again.version, again.rounds) == (
            after.state,
            after.reason,
            after.version,
            after.rounds,
        )
        assert (world.began, rig.history.version) == (began, version), "the work was in the log already"
        standing = after
    assert all(count == 1 for count in world.began.values())


def test_step_of_dead_worker_is_continued(store: SqliteStore) -> None:
    world = World()
    rig = Rig(store, planned([["send", "put"]]), world.tools())
    standing = rig.played(rig.played(TurnStatus()))
    for state in Conversation(history=rig.history).turn.open_calls.values():  # as if killed while both run
        key = f"{rig.id}:{state.call.tool_call_id}"
        rig.history.append(ToolCallStartedEntry(state.call.tool_name, state.call.tool_call_id, key))
    standing = rig.played(standing)
    results = list(results_in(rig.history.entries).values())
    assert results[0] == UNKNOWN_OUTCOME
    assert results[1].startswith("done")
    assert sum(world.began.values()) == 1
    assert refusals(rig.history.snapshot()) == []


def test_cut_off_answer_is_requested_again(store: SqliteStore) -> None:
    model = ScriptedModel(
        ProviderError("slow down", "rate_limit", retry_after=7.5), ProviderError("down", "server"), "Here."
    )
    rig = Rig(store, model, [])
    standing = rig.played(TurnStatus())
    first = failure(lambda: rig.played(standing))
    assert (first.type, first.non_retryable) == ("rate_limit", False)
    assert first.next_retry_delay is not None
    assert first.next_retry_delay.total_seconds() == 7.5
    second = failure(lambda: rig.played(standing))
    assert (second.type, second.next_retry_delay) == ("server", None)
    assert rig.played(standing).reason == "answered"
    assert store.current_lease(rig.id) is None


def test_permanent_errors_are_not_retried(store: SqliteStore) -> None:
    rig = Rig(store, ScriptedModel(ProviderError("no such key", "authentication")), [])
    failed = failure(lambda: rig.played(TurnStatus("model", version=1)))
    assert (failed.type, failed.non_retryable) == ("authentication", True)
    rig.id = "01arz3ndektsv4rrffq69g5fav"
    gone = failure(lambda: rig.played(TurnStatus("model", version=1)))
    assert (gone.type, gone.non_retryable) == ("UnknownConversation", True)


def test_leased_conversation_is_retried(store: SqliteStore) -> None:
    rig = Rig(store, ScriptedModel("Here."), [])
    lease = store.claim(rig.id, "another worker")
    assert lease is not None
    held = failure(lambda: rig.played(TurnStatus("model", version=1)))
    assert (held.type, held.non_retryable) == ("LeaseHeld", False)
    assert "another worker" in held.message
    store.release(lease)
    assert rig.played(TurnStatus("model", version=1)).reason == "answered"


def test_older_worker_rejects_newer_code(store: SqliteStore) -> None:
    rig = Rig(store, ScriptedModel("Here."), [])
    registry = RunRegistry()
    registry.kind("research", code=1)(rig.build)
    rig.build = registry  # type: ignore[assignment]
    for kind, code in (("poetry", 0), ("research", 2)):
        step = replace(rig.step(TurnStatus("model", version=1)), kind=kind, code=code)
        older = failure(lambda step=step: asyncio.run(rig.play(ASK_MODEL, step)))  # type: ignore[misc]
        assert (older.type, older.non_retryable) == ("RunConfigError", False)
    step = replace(rig.step(TurnStatus("model", version=1)), kind="research", code=1)
    assert asyncio.run(rig.play(ASK_MODEL, step)).reason == "answered"


def test_decisions_are_recorded_once(store: SqliteStore) -> None:
    @tool(needs_approval=True)
    def registry(to: str) -> str:
        "Book."
        return f"booked {to}"

    asked = [call("registry", to=town) for town in ("Oslo", "Bergen", "Moss")]
    rig = Rig(store, ScriptedModel(asked, "Done."), [registry])
    standing = rig.played(rig.played(rig.played(TurnStatus())))
    assert standing.state == "approval"
    first, second, third = standing.pending
    bad = [Decision("approve", "call_no"), Decision("edit", first, arguments={"to": "Narvik"})]
    after = rig.played(standing, decisions=[*bad, Decision("deny", second, "too far")])
    assert (after.state, after.pending) == ("approval", [third])
    assert "call 'call_no' is not pending approval" in after.note
    version = rig.history.version
    again = rig.played(standing, decisions=[Decision("edit", first, arguments={"to": "Narvik"})])
    assert (again.pending, again.note, rig.history.version) == ([third], "", version)
    contrary = rig.played(after, decisions=[Decision("approve", second)])
    assert "was decided already" in contrary.note
    last = rig.played(after, decisions=[Decision("approve", third)])
    assert (last.state, last.note) == ("model", "")
    results = list(results_in(rig.history.entries).values())
    assert ["booked Narvik" in results[0], "denied it: too far" in results[1], results[2]] == [
        True,
        True,
        "booked Moss",
    ]


def test_seconds_of_earlier_steps_count(store: SqliteStore) -> None:
    @tool(effect="read")
    async def slow() -> str:
        "Slow."
        await asyncio.sleep(0.2)
        return "done"

    model = FunctionModel(lambda _, options: "Enough." if options.settings.tool_choice else call("slow"))
    rig = Rig(store, model, [slow], RunLimits(max_seconds=0.5, max_rounds=50, max_repeats=0))
    status = rig.played(TurnStatus())
    while status.state != "over":
        status = rig.played(status)
    assert status.reason == "time_budget"


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
def test_cancel_ends_turn(store: SqliteStore, steps: int) -> None:
    world = World()
    rig = Rig(store, planned([["look", "send"], ["put"]]), world.tools())
    standing = TurnStatus("model", version=1)
    for _ in range(steps):
        standing = rig.played(standing)
    for _ in range(2):
        ended = asyncio.run(rig.play(CALL_OFF, rig.step(standing)))
        assert (ended.state, ended.reason, ended.version) == ("over", "interrupted", rig.history.version)
    assert rig.played(replace(ended, state="")).reason == "interrupted"
    assert refusals(rig.history.snapshot()) == []


@pytest.mark.parametrize(
    ("details", "reason"),
    [
        (ActivityCancellationDetails(cancel_requested=True), "interrupted"),
        (ActivityCancellationDetails(worker_shutdown=True), "left"),
        (ActivityCancellationDetails(timed_out=True), "left"),
    ],
    ids=["cancelled", "stopping", "late"],
)
def test_step_is_interrupted_or_handed_back(
    store: SqliteStore, details: ActivityCancellationDetails, reason: str
) -> None:
    running = asyncio.Event()

    @tool(effect="idempotent")
    async def long() -> str:
        "Takes long."
        running.set()
        await asyncio.sleep(60)
        return "done"

    rig = Rig(store, ScriptedModel([call("long")], "Over."), [long])
    standing = rig.played(rig.played(TurnStatus()))

    async def cut() -> TurnStatus:
        environment = ActivityEnvironment()
        playing = asyncio.ensure_future(rig.play(RUN_CALLS, rig.step(standing), environment))
        await running.wait()
        environment.cancel(details)
        return await playing

    if reason == "interrupted":
        assert asyncio.run(cut()).reason == "interrupted"
        assert "cancelled while it was running" in next(iter(results_in(rig.history.entries).values()))
    else:
        assert failure(lambda: asyncio.run(cut())).type == "Left"
        assert rig.history.entries[-1].kind == "tool_call_started", "the log ends as a kill would have left it"
        assert rig.played(TurnStatus()).state == "calls", "and the turn continues"
    assert store.current_lease(rig.id) is None
