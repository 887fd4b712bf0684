"""L11: a call that needs approval runs only after a recorded approval: whatever its arguments look like, whichever process
resumes it with whatever tools, and after any crash."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from antiphon.conversation import Bounds, Conversation, Decision, ToolLoop, Turn, decide, pending_calls
from antiphon.errors import ApprovalPending
from antiphon.history import (
    AgentHistory,
    HistoryEntry,
    HistoryStore,
    HumanDecisionEntry,
    ModelOutputEntry,
    Run,
    SqliteStore,
)
from antiphon.parts import ToolCallRequest
from antiphon.providers.scripted import FunctionModel, ScriptedAnswer
from antiphon.runs.hook import resume_run
from antiphon.tools import Tool, ToolContext, tool
from antiphon.tools.tool import ask_before_changes, tool_policy
from support.planned_turns import Killed, MortalJournal, drained, refusals

BOUNDS = Bounds(max_rounds=20, max_failed_rounds=20, max_repeats=20)

Approval = Literal["never", "always", "by arguments", "fails"]


def large(arguments: dict[str, Any]) -> bool:
    return bool(arguments["amount"] > 10)


def broken(arguments: dict[str, Any]) -> bool:
    raise RuntimeError(f"cannot judge {len(arguments)} arguments")


APPROVALS: dict[Approval, bool | Callable[[dict[str, Any]], bool]] = {
    "never": False,
    "always": True,
    "by arguments": large,
    "fails": broken,
}

ARGUMENTS = [
    '{"amount": 5}',
    '{"amount": 50}',
    '{"amount": "50"}',
    '{"amount": ',
    "[50]",
    "",
    "{}",
    '{"amount": ' + "[" * 20_000 + "]" * 20_000 + "}",
]


class Written(Struct, frozen=True):
    """A call as the model writes it."""

    name: str
    arguments: str
    is_freeform: bool = False


written_calls = st.builds(
    Written, st.sampled_from(["pay", "note", "look", "unknown"]), st.sampled_from(ARGUMENTS), st.booleans()
)
plans = st.lists(st.lists(written_calls, min_size=1, max_size=3), min_size=1, max_size=3)


def model(plan: list[list[Written]]) -> FunctionModel:
    """Makes the calls of the plan, round by round, and then answers; what was done it reads off the context."""

    def answer(context: Any, _: Any) -> ScriptedAnswer:
        done = sum(bool(entry.tool_calls) for entry in context)
        if done >= len(plan):
            return "That is all."
        return [
            ToolCallRequest(each.name, f"call_{done}_{index}", each.arguments, freeform=each.is_freeform)
            for index, each in enumerate(plan[done])
        ]

    return FunctionModel(answer)


class Office:
    """Tools of every effect, which note what ran. `approval` is what they are declared with."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def tools(self, approval: Approval) -> list[Tool]:
        needs = APPROVALS[approval]

        @tool(needs_approval=needs, effect="once")
        async def pay(amount: int | str, context: ToolContext) -> str:
            self.ran.append(context.tool_call_id)
            return f"paid {amount}"

        @tool(needs_approval=needs, effect="idempotent")
        async def note(amount: int | str, context: ToolContext) -> str:
            self.ran.append(context.tool_call_id)
            return f"noted {amount}"

        @tool(effect="read")
        async def look(context: ToolContext, amount: int | str = 0) -> str:
            self.ran.append(context.tool_call_id)
            return "seen"

        return [pay, note, look]


def is_asked(call: Written, approval: Approval) -> bool:
    """Whether the first process must ask before it runs a call: the law, stated again and simply."""
    if call.name not in ("pay", "note") or approval == "never":
        return False
    if approval in ("always", "fails"):
        return True
    return call.is_freeform or call.arguments != ARGUMENTS[0]


class Process:
    """A process that has one turn in its log: it runs until it is killed, is over, or waits for a person."""

    def __init__(
        self, plan: list[list[Written]], office: Office, kept: list[HistoryEntry], limit: int = 100_000
    ) -> None:
        self.journal = MortalJournal(limit)
        self.journal.kept = list(kept)
        self.history = AgentHistory(kept, journal=self.journal)
        self._plan = plan
        self._office = office

    def chat(self, approval: Approval, *, asks: bool = False) -> Conversation:
        policy = ask_before_changes if asks else tool_policy
        return Conversation(
            model(self._plan), tools=self._office.tools(approval), history=self.history, approval=policy
        )

    def run(self, approval: Approval, surface: str, *words: str, asks: bool = False) -> None:
        with contextlib.suppress(Killed, ApprovalPending):
            chat = self.chat(approval, asks=asks)
            if surface == "calls":
                asyncio.run(chat.execute_tool_calls())
            else:
                asyncio.run(drained(ToolLoop(chat, bounds=BOUNDS), *words))


def calls_in(entries: list[HistoryEntry]) -> set[str]:
    return {call.tool_call_id for entry in entries if isinstance(entry, ModelOutputEntry) for call in entry.tool_calls}


def check(plan: list[list[Written]], approval: Approval, ran: list[str], entries: list[HistoryEntry]) -> None:
    allowed = {
        entry.tool_call_id for entry in entries if isinstance(entry, HumanDecisionEntry) and entry.decision != "deny"
    }
    for call_id in ran:
        _, round_, index = call_id.split("_")
        written = plan[int(round_)][int(index)]
        assert not is_asked(written, approval) or call_id in allowed, f"{written} ran without an approval"


@settings(max_examples=40, deadline=None)
@given(
    plans,
    st.sampled_from(["always", "by arguments", "fails"]),
    st.lists(st.sampled_from(["loop", "calls"]), min_size=1, max_size=4),
    st.data(),
)
def test_no_process_runs_an_unapproved_call(
    plan: list[list[Written]], approval: Approval, surfaces: list[str], data: st.DataObject
) -> None:
    office = Office()
    limit = data.draw(st.integers(1, 12), label="killed at entry")
    process = Process(plan, office, [], limit)
    process.run(approval, "loop", "Go.")
    kept = process.journal.kept
    check(plan, approval, office.ran, kept)
    judged = calls_in(kept)  # by a process that asks; calls of one that does not ask are not judged
    for surface in surfaces:
        # It may have been set up without approval: what the first process asked for holds all the same.
        declared = data.draw(st.sampled_from([approval, "never"]), label="resumed with")
        before = list(office.ran)
        resumed = Process(plan, office, kept, len(kept) + data.draw(st.integers(0, 12), label="killed after"))
        resumed.run(declared, surface)
        kept = resumed.journal.kept
        if declared == approval:
            judged |= calls_in(kept)
        check(plan, approval, [call_id for call_id in office.ran[len(before) :] if call_id in judged], kept)
        turn = Turn.of(AgentHistory(kept).snapshot())
        for call in pending_calls(turn):
            decision: Any = data.draw(st.sampled_from(["approve", "deny", "edit", ""]), label="decided")
            if decision:
                new: dict[str, Any] | str = "1" if call.freeform else {"amount": 1}
                arguments = new if decision == "edit" else None
                history = AgentHistory(kept, journal=(journal := MortalJournal(100_000)))
                journal.kept = list(kept)
                decide(history, Decision(tool_call_id=call.tool_call_id, decision=decision, arguments=arguments))
                kept = journal.kept
        assert refusals(AgentHistory(kept).snapshot()) == []
    once = [call_id for call_id in office.ran if plan[int(call_id.split("_")[1])][int(call_id[-1])].name == "pay"]
    assert len(once) == len(set(once)), "a tool with effect 'once' ran twice"


PAYMENT = [[Written("pay", '{"amount": 5}')]]


@pytest.fixture
def suspended() -> tuple[Office, AgentHistory]:
    """A turn that `--ask` suspended, though the tool itself does not ask."""
    office = Office()
    process = Process(PAYMENT, office, [])
    process.run("never", "loop", "Go.", asks=True)
    assert office.ran == []
    return office, AgentHistory(process.journal.kept)


def resumed_by_loop(chat: Conversation) -> None:
    asyncio.run(drained(ToolLoop(chat)))


def resumed_by_execute(chat: Conversation) -> None:
    with pytest.raises(ApprovalPending, match="call_0_0"):
        chat.execute_tool_calls_sync()


def resumed_by_the_call_alone(chat: Conversation) -> None:
    (state,) = chat.turn.open_calls.values()
    with pytest.raises(ApprovalPending):
        asyncio.run(chat.execute_tool_call(state.call))


@pytest.mark.parametrize("resume", [resumed_by_loop, resumed_by_execute, resumed_by_the_call_alone])
def test_a_process_without_approvals_leaves_a_pending_call_alone(
    suspended: tuple[Office, AgentHistory], resume: Callable[[Conversation], None]
) -> None:
    office, history = suspended
    chat = Conversation(model(PAYMENT), tools=office.tools("never"), history=history)
    version = history.version
    resume(chat)
    assert office.ran == []
    assert history.version == version
    assert [state.needs_approval for state in chat.turn.open_calls.values()] == [True]
    assert [call.tool_call_id for call in ToolLoop(chat).pending] == ["call_0_0"]


def test_a_process_without_the_tool_leaves_a_pending_call_alone(suspended: tuple[Office, AgentHistory]) -> None:
    office, history = suspended
    resumed_by_loop(Conversation(model(PAYMENT), history=history))
    assert [call.tool_call_id for call in pending_calls(Turn.of(history.snapshot()))] == ["call_0_0"]
    decide(history, Decision(tool_call_id="call_0_0", decision="approve"))
    resumed_by_loop(Conversation(model(PAYMENT), tools=office.tools("never"), history=history))
    assert office.ran == ["call_0_0"]


def test_a_queue_leaves_a_pending_call_alone(suspended: tuple[Office, AgentHistory]) -> None:
    office, history = suspended

    def build(history: AgentHistory, _: Run) -> ToolLoop:
        return ToolLoop(Conversation(model(PAYMENT), tools=office.tools("never"), history=history))

    with SqliteStore(":memory:") as store:
        stored = _stored(store, history)
        assert resume_run(store, stored.id, build) == "approval"
        assert office.ran == []
        decide(store.open(stored.id), Decision(tool_call_id="call_0_0", decision="approve"))
        assert resume_run(store, stored.id, build) == "answered"
        assert office.ran == ["call_0_0"]


def _stored(store: HistoryStore, history: AgentHistory) -> AgentHistory:
    stored = store.create()
    for entry in history.entries:
        stored.append(entry)
    return stored


def test_the_request_survives_forks_rollbacks_and_compaction(suspended: tuple[Office, AgentHistory]) -> None:
    office, history = suspended
    output = next(entry.sequence_number for entry in history.entries if entry.kind == "model_output")
    fork = history.fork(output)
    decide(history, Decision(tool_call_id="call_0_0", decision="approve"))
    history.rollback(output, "the approval is taken back")
    history.compact("A payment was asked for.", 1)
    for one in (fork, history):
        resumed_by_loop(Conversation(model(PAYMENT), tools=office.tools("never"), history=one))
        assert office.ran == []
        assert [call.tool_call_id for call in pending_calls(Turn.of(one.snapshot()))] == ["call_0_0"]


def test_a_tool_that_asks_only_in_the_process_that_resumes() -> None:
    office = Office()
    first = Process(PAYMENT, office, [], limit=2)
    first.run("never", "loop", "Go.")  # killed before it could start the call
    second = Process(PAYMENT, office, first.journal.kept)
    second.run("always", "loop")
    assert office.ran == []
    third = Process(PAYMENT, office, second.journal.kept)
    third.run("never", "loop")
    assert office.ran == [], "what the second process asked for holds for the third"
