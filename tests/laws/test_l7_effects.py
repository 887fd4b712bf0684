"""L7, effects: killed at any point, what must happen once happens once; what others bring is taken into the log exactly once.

A truthful `reconcile` leaves no effect undone and none done twice. Messages that steer a run, and results from outside, are put
from another process, more than once, while the one that writes the log is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.conversation import Conversation, ToolLoop
from antiphon.history import AgentHistory, ContextEntry, HistoryEntry, ModelInputEntry, ToolCallStartedEntry
from antiphon.history.journal import MemoryInbox
from antiphon.history.location import open_store
from antiphon.parts import ToolCallRequest
from antiphon.providers.scripted import FunctionModel
from antiphon.tools import Settled, Tool, ToolContext, tool
from antiphon.tools.call_runner import UNKNOWN_OUTCOME
from support.child_process import in_a_process
from support.examples import scaled
from support.planned_turns import Killed, MortalJournal, drained, planned, refusals, results_in

Point = Literal["", "begun", "done", "recorded"]


class Bank:
    """Books payments by key, and can say which it booked. What it booked outlives a process that is killed."""

    def __init__(self) -> None:
        self.paid: Counter[str] = Counter()
        self.asked: list[str] = []
        self.answers: Callable[[str], Settled] | None = None

    def tools(self) -> list[Tool]:
        def find(call: ToolCallRequest, context: ToolContext) -> Settled:
            self.asked.append(call.tool_call_id)
            if self.answers is not None:
                return self.answers(context.idempotency_key)
            is_paid = self.paid[context.idempotency_key]
            return Settled.done(f"done {call.tool_call_id}") if is_paid else Settled.not_done()

        @tool(effect="once", reconcile=find, settle_seconds=0)
        async def pay(context: ToolContext) -> str:
            "Pays."
            self.paid[context.idempotency_key] += 1
            await asyncio.sleep(0)
            return f"done {context.tool_call_id}"

        return [pay]


def play(plan: list[list[str]], bank: Bank, journal: MortalJournal | AgentHistory, *content: str) -> Conversation:
    history = journal if isinstance(journal, AgentHistory) else AgentHistory(journal=journal)
    chat = Conversation(planned(plan), tools=bank.tools(), history=history)
    with contextlib.suppress(Killed):
        asyncio.run(drained(ToolLoop(chat, max_rounds=10, max_repeats=10), *content))
    return chat


def resume(plan: list[list[str]], bank: Bank, kept: Sequence[HistoryEntry], limit: int) -> AgentHistory:
    """What the next process leaves, which is killed at entry `limit` + 1."""
    journal = MortalJournal(limit)
    journal.kept = list(kept)
    play(plan, bank, AgentHistory(kept, journal=journal))
    return AgentHistory(journal.kept)


plans = st.lists(st.integers(1, 3).map(lambda count: ["pay"] * count), min_size=1, max_size=3)


@settings(max_examples=scaled(8))
@given(plans)
def test_a_payment_killed_at_any_entry_happens_once(plan: list[list[str]]) -> None:
    whole = MortalJournal(10_000)
    play(plan, Bank(), whole, "Go.")
    for limit in range(1, len(whole.kept)):
        bank, journal = Bank(), MortalJournal(limit)
        play(plan, bank, journal, "Go.")
        # And again while it is resumed: whatever `reconcile` found must hold for the next process too.
        history = resume(plan, bank, resume(plan, bank, journal.kept, limit + 2).entries, 10_000)
        results = results_in(history.entries)
        assert len(results) == sum(map(len, plan))
        assert all(text == f"done {call_id}" for call_id, text in results.items())
        assert set(bank.paid.values()) == {1}
        assert refusals(history.snapshot()) == []


def test_without_an_answer_the_outcome_is_unknown_and_nothing_is_repeated() -> None:
    def fails(_: str) -> Settled:
        raise OSError("the bank does not answer")

    wrong: Any = lambda _: "yes"  # noqa: E731 - what a careless function returns
    for answers in (fails, lambda _: Settled.unknown(), wrong):
        bank, journal = Bank(), MortalJournal(3)  # the input, the output, the start mark
        play([["pay"]], bank, journal, "Go.")
        assert isinstance(journal.kept[-1], ToolCallStartedEntry)
        bank.answers = answers
        history = resume([["pay"]], bank, journal.kept, 10_000)
        assert list(results_in(history.entries).values()) == [UNKNOWN_OUTCOME]
        assert set(bank.paid.values()) <= {1}


def test_a_fork_does_not_ask_about_calls_of_the_conversation_it_came_from(tmp_path: Path) -> None:
    with open_store(tmp_path / "chats.db") as store:
        bank, history = Bank(), store.create()

        def killed(_: HistoryEntry) -> None:
            raise Killed

        chat = Conversation(planned([["pay"]]), tools=bank.tools(), history=history)
        journal: Any = chat.history._journal
        write = journal.write
        journal.write = lambda entry, stored: write(entry, stored) if history.version < 3 else killed(entry)
        with contextlib.suppress(Killed):
            asyncio.run(drained(ToolLoop(chat), "Go."))
        fork = store.fork(history.id)
        play([["pay"]], bank, fork)
        assert bank.asked == []
        assert list(results_in(fork.entries).values()) == [UNKNOWN_OUTCOME]


def pay_in_a_process(folder: Path, point: Point) -> None:
    """Run or resume a payment; die at `point`. The ledger is a file with a line for each payment."""
    ledger = folder / "ledger"

    def die(here: Point) -> None:
        if here == point:
            os.kill(os.getpid(), signal.SIGKILL)

    def find(_: ToolCallRequest, context: ToolContext) -> Settled:
        is_paid = ledger.exists() and context.idempotency_key in ledger.read_text().split()
        return Settled.done("paid") if is_paid else Settled.not_done()

    @tool(effect="once", reconcile=find, settle_seconds=0)
    def pay(context: ToolContext) -> str:
        "Pays."
        die("begun")
        with open(ledger, "a") as file:
            file.write(context.idempotency_key + "\n")
        die("done")
        return "paid"

    with open_store(folder / "chats.db") as store:
        known = store.list()
        chat = Conversation(planned([["pay"]]), tools=[pay], store=store, resume=known[0].id if known else None)
        append = chat.history.append

        def dying(entry: Any, **options: Any) -> Any:
            appended = append(entry, **options)
            if entry.kind == "tool_call_results":
                die("recorded")
            return appended

        chat.history.append = dying  # type: ignore[method-assign]
        ToolLoop(chat).run_sync(*(["Go."] if not known else []))


@pytest.mark.parametrize("point", ["begun", "done", "recorded"])
def test_kill_nine_in_a_payment_pays_once(tmp_path: Path, point: Point) -> None:
    for step in (point, ""):
        process, pipe = in_a_process(lambda _, step=step: pay_in_a_process(tmp_path, step))  # type: ignore[misc]
        _, status = os.waitpid(process, 0)
        os.close(pipe)
        assert os.WIFSIGNALED(status) is bool(step)
    with open_store(tmp_path / "chats.db") as store:
        assert list(results_in(store.open("last").entries).values()) == ["paid"]
    assert len((tmp_path / "ledger").read_text().splitlines()) == 1


class MortalInbox(MemoryInbox):
    """Kills the writer of a journal when it removes what it has taken in."""

    def __init__(self) -> None:
        super().__init__()
        self.journal = MortalJournal(10_000)
        self.journal.inbox = self  # type: ignore[attr-defined]  # as the journal of a store has one
        self.is_mortal = True

    def remove(self, keys: Iterable[str]) -> None:
        if self.is_mortal:
            self.journal._limit = 0  # nothing more is written
            raise Killed
        super().remove(keys)

    def revived(self) -> AgentHistory:
        """What the next process finds."""
        self.is_mortal, self.journal._limit = False, 10_000
        return AgentHistory(self.journal.kept, journal=self.journal)


def steering(history: AgentHistory) -> list[str]:
    return [
        entry.content[0].text  # type: ignore[union-attr]
        for entry in history.entries
        if isinstance(entry, ModelInputEntry) and entry.channel == "steering"
    ]


def test_a_crash_between_admission_and_removal_admits_nothing_twice() -> None:
    inbox = MortalInbox()
    chat = Conversation(planned([]), history=AgentHistory(journal=inbox.journal))
    chat.add("Go.")
    chat.steer("Use euros.", key="k")
    with contextlib.suppress(Killed):
        ToolLoop(chat).run_sync()
    assert len(inbox.items()) == 1
    chat = Conversation(planned([]), history=inbox.revived())
    assert steering(chat.history) == ["Use euros."]
    assert ToolLoop(chat).run_sync().reason == "answered"
    assert chat.steer("Use euros.", key="k") == "k"  # its sender got no answer, and sends it again
    assert ToolLoop(chat).run_sync().reason == "answered"
    assert steering(chat.history) == ["Use euros."]
    assert inbox.items() == ()


def answer_until_steered(context: Sequence[ContextEntry], _: Any) -> Any:
    """A model that looks on until a message tells it to stop."""
    if any("stop" in str(getattr(part, "text", "")) for entry in context for part in entry.content):
        return "Stopped."
    return ToolCallRequest("look", f"call_{len(context)}", "{}")


def steered_in_a_process(place: str, conversation: str) -> None:
    @tool(effect="read")
    async def look() -> str:
        "Looks."
        await asyncio.sleep(0.002)
        return "nothing yet"

    with open_store(place) as store:
        chat = Conversation(FunctionModel(answer_until_steered), tools=[look], history=store.open(conversation))
        ToolLoop(chat, max_rounds=100_000, max_repeats=0).run_sync()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_kill_nine_at_random_instants_admits_every_message_once(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    place = request.getfixturevalue("postgres") if kind == "postgres" else str(tmp_path / "chats.db")
    chance = random.Random(5)
    with open_store(place) as store:
        history = store.create()
        history.append(ModelInputEntry.of("Look until I say so."))
        conversation, sent = history.id, 0
    for _ in range(12):
        process, pipe = in_a_process(lambda _: steered_in_a_process(place, conversation))
        deadline = time.monotonic() + chance.uniform(0.05, 0.25)
        with open_store(place) as store:
            chat = Conversation(planned([]), history=store.open(conversation))
            while time.monotonic() < deadline:
                sent += 1
                for _ in range(chance.randint(1, 2)):
                    chat.steer(f"message {sent}", key=f"key {sent}")
                time.sleep(chance.uniform(0, 0.02))
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(pipe)
    with open_store(place) as store:
        Conversation(planned([]), history=store.open(conversation)).steer("stop now", key="last")
    steered_in_a_process(place, conversation)
    with open_store(place) as store:
        history = store.open(conversation)
        assert sorted(steering(history)) == sorted(["stop now", *(f"message {n}" for n in range(1, sent + 1))])
        assert not history.inbox.items()
        assert refusals(history.snapshot()) == []


def later_tools() -> list[Tool]:
    @tool
    async def order(context: ToolContext) -> Settled:
        "Orders something that is delivered later."
        return Settled.later()

    return [order]


def test_a_result_from_outside_is_taken_once_and_a_crash_changes_nothing() -> None:
    inbox = MortalInbox()
    chat = Conversation(planned([["order"]]), tools=later_tools(), history=AgentHistory(journal=inbox.journal))
    assert ToolLoop(chat).run_sync("Order it.").reason == "waiting"
    version = chat.history.version
    assert ToolLoop(chat).run_sync().reason == "waiting"
    assert chat.history.version == version, "waiting changes nothing"
    (call,) = chat.turn.open_calls
    chat.settle(call, "delivered")
    with contextlib.suppress(Killed):
        ToolLoop(chat).run_sync()
    chat = Conversation(planned([["order"]]), tools=later_tools(), history=inbox.revived())
    assert ToolLoop(chat).run_sync().text == "That is all."
    assert results_in(chat.history.entries) == {call: "delivered"}
    assert inbox.items() == ()
