"""Durable runs that are steered from elsewhere, and that wait for results from outside."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from antiphon.conversation import Conversation, ToolLoop
from antiphon.history import AgentHistory, ContextEntry, HistoryStore, ModelInputEntry, Run, SqliteStore
from antiphon.parts import text_of
from antiphon.providers.scripted import FunctionModel, call
from antiphon.runs import RunRegistry, Runs, Worker
from antiphon.runs.client import can_continue
from antiphon.tools import Settled, tool


def registry_of(answer: Any, *tools: Any) -> RunRegistry:
    registry = RunRegistry()

    @registry.kind("chat")
    def chat(history: AgentHistory, _: Run) -> ToolLoop:
        return ToolLoop(Conversation(FunctionModel(answer), tools=tools, history=history))

    return registry


def work(store: HistoryStore, registry: RunRegistry) -> None:
    asyncio.run(Worker(store, registry, lease_seconds=5).run(once=True))


def echo(context: Sequence[ContextEntry], _: Any) -> str:
    return f"You said: {text_of(context[-1].content)}"


def test_a_message_to_a_run_that_is_over_begins_another(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "runs.db") as store:
        registry, runs = registry_of(echo), Runs(store)
        run = runs.submit("Hello.")
        assert runs.steer(run.id, "In euros.", key="k").id == run.id
        work(store, registry)
        assert runs.answer(run.id) == "You said: In euros."
        assert runs.steer(run.id, "In euros.", key="k").id != run.id  # it is looked at, and found to be known
        work(store, registry)
        again = runs.steer(run.id, "And now?")
        assert again.id != run.id
        assert runs.steer(run.id, "At once.").id == again.id
        work(store, registry)
        assert runs.answer(again.id) == "You said: At once."
        texts = [text_of(e.content) for e in store.open(run.conversation).entries if isinstance(e, ModelInputEntry)]
        assert texts == ["Hello.", "In euros.", "And now?", "At once."]


def test_a_message_in_the_last_instant_of_a_run_is_not_forgotten(tmp_path: Path) -> None:
    """It comes after the loop has looked for the last time, and before the run is settled."""
    with SqliteStore(tmp_path / "runs.db") as store:
        registry, runs = registry_of(echo), Runs(store)
        run = runs.submit("Hello.")
        settle = store.runs.settle

        def late(*given: Any, **more: Any) -> Run:
            store.runs.settle = settle  # type: ignore[method-assign]
            Conversation(history=store.open(run.conversation)).steer("Wait!")
            return settle(*given, **more)

        store.runs.settle = late  # type: ignore[method-assign]
        work(store, registry)
        assert runs.answer(run.id) == "You said: Wait!"


def test_a_run_waits_for_a_result_and_continues_with_it(tmp_path: Path) -> None:
    @tool
    def order() -> Settled:
        "Order."
        return Settled.later()

    def answer(context: Sequence[ContextEntry], _: Any) -> Any:
        return call("order") if len(context) == 1 else "It is here."

    with SqliteStore(tmp_path / "runs.db") as store:
        registry, runs = registry_of(answer, order), Runs(store)
        run = runs.submit("Order it.")
        work(store, registry)
        waiting = store.runs.get(run.id)
        assert (waiting.state, waiting.reason) == ("suspended", "waiting for a result from outside")
        assert not can_continue(store, run.conversation)
        assert runs.pending(run.id) == ()
        (open_call,) = Conversation(history=store.open(run.conversation)).turn.open_calls
        assert runs.settle(run.id, open_call, "parcel 7").state == "waiting"
        work(store, registry)
        assert (store.runs.get(run.id).reason, runs.answer(run.id)) == ("answered", "It is here.")
