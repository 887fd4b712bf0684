"""The runs client: submitting, deciding, cancelling, retrying and following, from any process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from antiphon.conversation import Conversation, ToolLoop, Turn
from antiphon.errors import ConversationError, RunStateError, TooManyRuns, UnknownConversation, UnknownRun
from antiphon.history import (
    AgentHistory,
    HistoryStore,
    HumanDecisionEntry,
    ModelInputEntry,
    Run,
    ToolCallResultsEntry,
)
from antiphon.providers.scripted import FunctionModel, ScriptedModel, call
from antiphon.runs import RunRegistry, Runs, Worker
from antiphon.tools import tool
from antiphon.wire.output import ProviderError
from runs.workers import Place
from support.planned_turns import results_in

ran: list[str] = []


@tool(needs_approval=True)
async def book_flight(to: str) -> str:
    """Book a flight."""
    ran.append(to)
    return f"booked: {to}"


def flights(*cities: str) -> RunRegistry:
    """A registry whose model wants to fly to all of these at once, and then says what came of it."""
    registry = RunRegistry()

    @registry.kind("trip", code=4, provider="airline")
    def trip(history: AgentHistory, run: Run) -> ToolLoop:
        def answer(context: object, options: object) -> object:
            results = [entry for entry in history.effective if isinstance(entry, ToolCallResultsEntry)]
            return str(results_in(results)) if results else [call("book_flight", to=city) for city in cities]

        return ToolLoop(Conversation(FunctionModel(answer), tools=[book_flight], history=history))  # type: ignore[arg-type]

    return registry


def play(store: HistoryStore, registry: RunRegistry) -> None:
    asyncio.run(Worker(store, registry).run(once=True))


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


def suspended(store: HistoryStore, registry: RunRegistry) -> Run:
    run = Runs(store, registry).submit("Fly me there.", kind="trip")
    play(store, registry)
    assert store.runs.get(run.id).state == "suspended"
    assert store.current_lease(run.conversation) is None, "no lease is held"
    return run


def test_submit_uses_code_and_provider_of_kind(place: Place) -> None:
    with place.open() as store:
        run = Runs(store, flights("Oslo")).submit("Fly.", kind="trip", title="Trip", options={"seat": "A1"})
        assert (run.kind, run.code, run.provider, run.options) == ("trip", 4, "airline", {"seat": "A1"})
        assert store.info(run.conversation).title == "Trip"
        plain = Runs(store).submit("Hello?", code=2, provider="x")
        assert (plain.kind, plain.code, plain.provider) == ("chat", 2, "x")


def test_invalid_submissions_raise(place: Place) -> None:
    with place.open() as store:
        runs = Runs(store, flights("Oslo"))
        with pytest.raises(RunStateError, match="the registry has trip"):
            runs.submit("Fly.", kind="walk")
        with pytest.raises(ConversationError, match="expected a string or part"):
            runs.submit(7, kind="trip")  # type: ignore[arg-type]
        with pytest.raises(UnknownConversation):
            runs.submit("Fly.", kind="trip", conversation="unknown-id")
        run = runs.submit("Fly.", kind="trip", max_waiting=1)
        with pytest.raises(TooManyRuns):
            runs.submit("Fly.", kind="trip", max_waiting=1)
        with pytest.raises(RunStateError, match=run.id):
            runs.submit("And back.", kind="trip", conversation=run.conversation)
        assert store.count() == 1


def test_approve_from_another_process(place: Place) -> None:
    registry = flights("Oslo")
    with place.open() as store:
        run = suspended(store, registry)
    with place.open() as store:
        (waiting,) = Runs(store).pending(run.id)
        assert waiting.tool_name == "book_flight"
        assert Runs(store).approve(run.id).display_state == "waiting"
        play(store, registry)
        assert store.runs.get(run.id).state == "done"
        assert "booked: Oslo" in Runs(store).answer(run.id)
    assert ran == ["Oslo"]


def test_deny_and_edit_calls(place: Place) -> None:
    registry = flights("Oslo", "Rome", "Lima")
    with place.open() as store:
        run = suspended(store, registry)
        runs = Runs(store)
        first, second, third = (each.tool_call_id for each in runs.pending(run.id))
        with pytest.raises(RunStateError, match=f"name one: {first}"):
            runs.approve(run.id)
        assert runs.deny(run.id, first, "too cold").state == "suspended", "two are not decided yet"
        assert runs.edit(run.id, {"to": "Bari"}, second).state == "suspended"
        assert runs.approve(run.id, third).state == "waiting"
        play(store, registry)
        results_seen = results_in(store.open(run.conversation).entries)
        assert "too cold" in results_seen[first]
        assert "booked: Bari" in results_seen[second]
        assert "booked: Lima" in results_seen[third]
    assert sorted(ran) == ["Bari", "Lima"]


@pytest.mark.parametrize("decision", ["approve", "deny", "edit"])
def test_repeated_decision_wakes_run(place: Place, decision: str) -> None:
    registry = flights("Oslo")
    with place.open() as store:
        run = suspended(store, registry)
        (waiting,) = Runs(store).pending(run.id)
        arguments = '{"to":"Bari"}' if decision == "edit" else None
        entry = HumanDecisionEntry(waiting.tool_call_id, decision, arguments=arguments)  # type: ignore[arg-type]
        store.open(run.conversation).append(entry)
        assert store.runs.get(run.id).state == "suspended"
        runs = Runs(store)
        if decision == "edit":
            woken = runs.edit(run.id, {"to": "Bari"}, waiting.tool_call_id)
        else:
            woken = getattr(runs, decision)(run.id, waiting.tool_call_id)
        assert woken.state == "waiting"
        decisions = [entry for entry in store.open(run.conversation).entries if isinstance(entry, HumanDecisionEntry)]
        assert len(decisions) == 1
        play(store, registry)
        assert store.runs.get(run.id).state == "done"


def test_contradicting_decision_raises(place: Place) -> None:
    registry = flights("Oslo", "Rome")
    with place.open() as store:
        run = suspended(store, registry)
        first, _ = Runs(store).pending(run.id)
        Runs(store).approve(run.id, first.tool_call_id)
        with pytest.raises(ConversationError, match="decided already"):
            Runs(store).deny(run.id, first.tool_call_id)
        with pytest.raises(ConversationError, match="is not pending approval"):
            Runs(store).approve(run.id, "call_of_nobody")


def test_decision_before_settle_wakes_run(place: Place) -> None:
    """A worker that is stuck between asking and settling, for longer than its lease: a person decides meanwhile."""
    decided: list[str] = []
    registry = RunRegistry()
    with place.open() as store:

        @registry.kind("trip")
        async def trip(history: AgentHistory, run: Run) -> AsyncIterator[ToolLoop]:
            model = FunctionModel(lambda *_: "Booked." if decided else [call("book_flight", to="Oslo")])
            loop = ToolLoop(Conversation(model, tools=[book_flight], history=history))
            yield loop
            if not decided:
                while store.current_lease(run.conversation) is not None:
                    time.sleep(0.05)
                decided.append(loop.pending[0].tool_call_id)
                ToolLoop(Conversation(history=store.open(run.conversation))).approve(decided[0])
                store.runs.wake(run.id)

        run = Runs(store, registry).submit("Fly.", kind="trip")
        asyncio.run(Worker(store, registry, lease_seconds=0.3, stuck_seconds=0.5).run(once=True))
        assert decided
        assert store.runs.get(run.id).state == "done"
    assert ran == ["Oslo"]


def test_cancel_of_idle_run_interrupts_turn(place: Place) -> None:
    registry = flights("Oslo")
    with place.open() as store:
        waiting = Runs(store).submit("Hello?")
        assert Runs(store).cancel(waiting.id, "never mind").reason == "never mind"
        assert Turn.of(store.open(waiting.conversation).snapshot()).ended == "interrupted"
        run = suspended(store, registry)
        assert Runs(store).cancel(run.id).state == "cancelled"
        history = store.open(run.conversation)
        assert not Turn.of(history.snapshot()).open_calls
        again = Runs(store, registry).submit("Fly.", kind="trip", conversation=run.conversation)
        play(store, registry)
        assert store.runs.get(again.id).state == "done"
        with pytest.raises(RunStateError, match="done"):
            Runs(store).approve(again.id)
    assert ran == []


def test_submit_closes_open_calls_of_finished_run(place: Place) -> None:
    """A canceller that died before it could close them."""
    registry = flights("Oslo")
    with place.open() as store:
        run = suspended(store, registry)
        store.runs.cancel(run.id)
        assert Turn.of(store.open(run.conversation).snapshot()).open_calls
        again = Runs(store, registry).submit("Where were we?", kind="trip", conversation=run.conversation)
        question = Turn.of(store.open(run.conversation).snapshot()).input
        assert isinstance(question, ModelInputEntry)
        assert question.content[0].text == "Where were we?"  # type: ignore[union-attr]
        play(store, registry)
        assert store.runs.get(again.id).state == "done"
    assert ran == []


def test_rejected_submit_closes_no_calls(place: Place) -> None:
    registry = flights("Oslo")
    with place.open() as store:
        run = suspended(store, registry)
        with pytest.raises(RunStateError, match=run.id):
            Runs(store).submit("Where were we?", conversation=run.conversation)
        assert len(Runs(store).pending(run.id)) == 1
        assert store.current_lease(run.conversation) is None


def test_late_cancel_leaves_newer_turn_alone(place: Place) -> None:
    registry = flights("Oslo")
    with place.open() as store:
        first = Runs(store, registry).submit("Fly.", kind="trip")
        store.runs.cancel(first.id)
        second = Runs(store, registry).submit("Fly again.", kind="trip", conversation=first.conversation)
        Runs(store).cancel(first.id)
        assert Turn.of(store.open(first.conversation).snapshot()).ended == ""
        assert store.runs.get(second.id).state == "waiting"


def test_retry_accepts_failed_runs_only(place: Place) -> None:
    registry = RunRegistry()
    script: list[object] = [ProviderError("no", "authentication"), "Yes."]

    @registry.kind("chat")
    def chat(history: AgentHistory, run: Run) -> ToolLoop:
        return ToolLoop(Conversation(ScriptedModel(script.pop(0)), history=history))  # type: ignore[arg-type]

    with place.open() as store:
        run = Runs(store).submit("Hello?")
        with pytest.raises(RunStateError, match="waiting"):
            Runs(store).retry(run.id)
        play(store, registry)
        assert store.runs.get(run.id).state == "failed"
        assert Runs(store).retry(run.id).state == "waiting"
        play(store, registry)
        assert store.runs.get(run.id).state == "done"
        with pytest.raises(RunStateError, match="done"):
            Runs(store).retry(run.id)
        with pytest.raises(UnknownRun):
            Runs(store).retry("unknown-id")
        asleep = suspended(store, flights("Oslo"))
        with pytest.raises(RunStateError, match="decide its pending calls"):
            Runs(store).retry(asleep.id)


def test_follow_yields_entries_until_run_is_over(place: Place) -> None:
    registry = flights("Oslo")

    @asynccontextmanager
    async def working(store: HistoryStore) -> AsyncIterator[None]:
        worker = Worker(store, registry)
        task = asyncio.ensure_future(worker.run())
        yield
        worker.stop()
        await task

    async def follow() -> None:
        with place.open() as store, place.open() as watched:
            chat = store.create()
            chat.append(ModelInputEntry.of("An earlier question"))
            run = Runs(store, registry).submit("Fly.", kind="trip", conversation=chat.id)
            events = []
            async with working(store):
                async for entry in Runs(watched).follow(run.id):
                    events.append(entry.kind)
                    if entry.kind == "model_output" and events.count("model_output") == 1:
                        await Runs(watched).wait(run.id, until_suspended=True)
                        Runs(watched).approve(run.id)
            assert events == [
                "model_input",
                "approval_requested",
                "model_output",
                "human_decision",
                "tool_call_started",
                "tool_call_results",
                "model_output",
            ]
            again = [entry.kind async for entry in Runs(watched).follow(run.id)]
            assert again == events

    asyncio.run(follow())
