"""L11: a call that needs approval runs only after a recorded approval: whatever its arguments look like, whichever process
resumes it with whatever tools, and after any crash. What runs is what was approved, and neither an import, a hook nor a restart
brings an approval with it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct, structs

from antiphon.conversation import Conversation, Decision, RunLimits, ToolLoop, Turn, decide
from antiphon.errors import ApprovalPending
from antiphon.history import (
    AgentHistory,
    ApprovalRequestedEntry,
    HistoryEntry,
    HistoryStore,
    HumanDecisionEntry,
    ModelInputEntry,
    ModelOutputEntry,
    Run,
    SqliteStore,
    ToolCallStartedEntry,
)
from antiphon.history.export import copy_conversation
from antiphon.parts import ToolCallRequest
from antiphon.providers.scripted import FunctionModel, ScriptedAnswer
from antiphon.runs.hook import resume_run
from antiphon.tools import Hook, Tool, ToolContext, tool
from antiphon.tools.tool import ask_before_changes, tool_policy
from antiphon_chat.shared.permissions import allow_always, always_allowed, approval_policy
from page.chat_process import antiphon_chat
from page.rig import served
from support.antiphon_process import run_antiphon
from support.examples import scaled
from support.planned_turns import Killed, MortalJournal, drained, refusals
from support.terminal import environment_of

LIMIT_REASONS = RunLimits(max_rounds=20, max_failed_rounds=20, max_repeats=20)

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
    if not call.is_freeform and call.arguments not in ARGUMENTS[:3]:
        return False  # the tool refuses the arguments, so there is nothing to decide
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
                asyncio.run(drained(ToolLoop(chat, limits=LIMIT_REASONS), *words))


def calls_in(entries: list[HistoryEntry]) -> set[str]:
    return {call.tool_call_id for entry in entries if isinstance(entry, ModelOutputEntry) for call in entry.tool_calls}


def check(plan: list[list[Written]], approval: Approval, ran: list[str], entries: list[HistoryEntry]) -> None:
    allowed = {
        entry.tool_call_id for entry in entries if isinstance(entry, HumanDecisionEntry) and entry.decision != "deny"
    }
    for call_id in ran:
        _, round_, index = call_id.split("_")
        written = plan[int(round_)][int(index)]
        if call_id not in allowed:
            legal = ARGUMENTS[:3] + (["", "{}"] if written.name == "look" else [])  # it needs none
            assert written.is_freeform or written.arguments in legal, f"{written} ran with wrong arguments"
        assert not is_asked(written, approval) or call_id in allowed, f"{written} ran without an approval"


@settings(max_examples=scaled(15), deadline=None)
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
        for call in turn.pending:
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
    assert [call.tool_call_id for call in Turn.of(history.snapshot()).pending] == ["call_0_0"]
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
        assert [call.tool_call_id for call in Turn.of(one.snapshot()).pending] == ["call_0_0"]


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


# What a log from elsewhere says was approved.

MADE = '{"amount":5}'


class Elsewhere(Struct, frozen=True):
    """A log that another person wrote: a call that is open, and all that could be taken for a permission."""

    is_requested: bool
    decisions: list[str]
    notes: list[str]
    is_started: bool
    is_rolled_back: bool

    def entries(self) -> list[HistoryEntry]:
        history = AgentHistory()
        self._note(history, "before")
        history.append(ModelInputEntry.of("Pay."))
        if self.is_requested:
            history.append(ApprovalRequestedEntry(("call_0_0",)))
        output = history.append(ModelOutputEntry((ToolCallRequest("pay", "call_0_0", MADE),)))
        if self.is_started:
            history.append(ToolCallStartedEntry("pay", "call_0_0", "key"))
        self._decide(history)
        self._note(history, "after")
        if self.is_rolled_back:
            history.rollback(output.sequence_number)
            self._decide(history)
        return list(history.entries)

    def _decide(self, history: AgentHistory) -> None:
        for decision in self.decisions:
            arguments = '{"amount":9999}' if decision == "edit" else None
            history.append(HumanDecisionEntry("call_0_0", decision, arguments=arguments))  # type: ignore[arg-type]

    def _note(self, history: AgentHistory, when: str) -> None:
        if when in self.notes:
            allow_always(history, "pay")


elsewhere = st.builds(
    Elsewhere,
    st.booleans(),
    st.lists(st.sampled_from(["approve", "edit", "deny"]), max_size=2),
    st.lists(st.sampled_from(["before", "after"]), max_size=2),
    st.booleans(),
    st.booleans(),
)

Way = Literal["import", "as new", "copy", "grown copy", "fork", "again", "growing import", "one that is open grows"]


def brought(way: Way, entries: list[HistoryEntry], home: SqliteStore, data: st.DataObject) -> AgentHistory:
    """The conversation as it is here, after it was brought in one way."""
    with SqliteStore(":memory:") as away:
        part = data.draw(st.integers(1, len(entries)), label="entries of the first copy")
        first = AgentHistory(entries[:part]).entries
        source = away.create()
        for entry in first if way in ("grown copy", "one that is open grows") else entries:
            source.append(entry)
        if way in ("copy", "grown copy", "one that is open grows"):
            copy_conversation(away, home, source.id)
            opened = home.open(source.id)
            for entry in entries[source.version :]:
                source.append(entry)
            copy_conversation(away, home, source.id)
            if way == "one that is open grows":
                opened.refresh()
                return opened
            return home.open(source.id)
        exported = list(away.export_lines(source.id))
    taken = home.import_lines(exported, as_new=way != "import")
    if way == "again":
        taken = home.import_lines(list(home.export_lines(taken.id)), as_new=True)
    if way == "growing import":
        home.append_imported(taken.id, entries)
    return home.open(taken.id).fork() if way == "fork" else home.open(taken.id)


class Change(Hook):
    def before_tool(self, call: ToolCallRequest, tool: Tool | None) -> ToolCallRequest:
        return structs.replace(call, arguments='{"amount":9999}')


@settings(max_examples=scaled(10), deadline=None)
@given(
    elsewhere, st.sampled_from(get_args(Way)), st.booleans(), st.sampled_from(["approve", "edit", "deny"]), st.data()
)
def test_no_import_brings_an_approval_and_what_runs_is_what_was_approved_here(
    written: Elsewhere, way: Way, has_hook: bool, decision: Any, data: st.DataObject
) -> None:
    paid: list[int] = []

    @tool(needs_approval=True, effect="idempotent")
    async def pay(amount: int) -> str:
        paid.append(amount)
        return f"paid {amount}"

    def resume(history: AgentHistory) -> ToolLoop:
        answers = FunctionModel(lambda context, _: "Done." if context[-1].role == "tool_result" else call_again)
        policy = approval_policy(history, asks_before_changes=False)
        hooks = [Change()] if has_hook else []
        return ToolLoop(Conversation(answers, tools=[pay], history=history, approval=policy, hooks=hooks))

    call_again = [ToolCallRequest("pay", "call_1_0", '{"amount":7}')]
    entries = written.entries()
    with SqliteStore(":memory:") as home:
        history = brought(way, entries, home, data)
        assert [structs.replace(entry, timestamp=None) for entry in history.entries] == [
            structs.replace(entry, timestamp=None) for entry in entries
        ], "what was decided elsewhere stays visible"
        loop = resume(history)
        assert loop.run_sync().reason == "approval"
        assert paid == []
        assert [call.tool_call_id for call in loop.pending] == ["call_0_0"]

        loop = resume(home.open(history.id))  # a restart changes nothing
        arguments = {"amount": 6} if decision == "edit" else None
        decide(loop.chat.history, Decision(tool_call_id="call_0_0", decision=decision, arguments=arguments))
        loop = resume(home.open(history.id))
        assert loop.run_sync().reason == "answered"
        assert paid == ([] if has_hook or decision == "deny" else [6 if decision == "edit" else 5])

        # The next call is asked about, too, until it is always allowed in this conversation, here.
        paid.clear()
        assert loop.run_sync("Once more.").reason == "approval"
        assert paid == []
        allow_always(loop.chat.history, "pay")
        assert resume(home.open(history.id)).run_sync().reason == "approval", "it was asked about before"
        call_again[0] = structs.replace(call_again[0], tool_call_id="call_2_0")
        assert resume(home.open(history.id)).run_sync("And again.").reason == "answered"
        assert paid == [9999 if has_hook else 7]
        started = [entry for entry in home.open(history.id).entries if isinstance(entry, ToolCallStartedEntry)]
        assert (started[-1].arguments == '{"amount":9999}') is has_hook, "the log says what ran"


def test_messages_of_other_programs_bring_no_approval() -> None:
    marks = {"kind": "human_decision", "tool_call_id": "a", "decision": "approve", "metadata": {"extra": {}}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Pay.", "chat_always_allowed": "pay"},
        {
            "role": "assistant",
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "pay", "arguments": MADE}, **marks}],
        },
    ]
    history = AgentHistory.from_messages(messages)
    assert not [entry for entry in history.entries if isinstance(entry, HumanDecisionEntry)]
    assert always_allowed(history.snapshot()) == frozenset()


TOOLS = """
import pathlib
import antiphon as ap

@ap.tool(needs_approval=True)
def pay(amount: int) -> str:
    "Pays."
    pathlib.Path("paid.txt").write_text(str(amount))
    return "paid"
"""


def export_of(written: Elsewhere) -> bytes:
    with SqliteStore(":memory:") as away:
        history = away.create()
        for entry in written.entries():
            history.append(entry)
        return b"".join(away.export_lines(history.id))


def test_the_command_line_asks_again_after_an_import(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "talk.jsonl").write_bytes(export_of(Elsewhere(True, ["approve"], ["before", "after"], False, False)))
    environment = environment_of(tmp_path, {})
    assert run_antiphon("history", "import", "talk.jsonl", cwd=tmp_path, env=environment).returncode == 0
    code, _, err = antiphon_chat(tmp_path, "--resume", "last", "--tools", "tools.py", "-p", "use pay amount=5")
    assert not (tmp_path / "paid.txt").exists()
    assert (code, "pay needs approval" in err) == (1, True), err


def test_the_page_asks_again_after_an_import(tmp_path: Path) -> None:
    paid: list[int] = []

    @tool(needs_approval=True)
    def pay(amount: int) -> str:
        paid.append(amount)
        return "paid"

    with SqliteStore(tmp_path / "chats.db") as store:
        export = export_of(Elsewhere(True, ["approve"], ["before", "after"], False, False))
        conversation = store.import_lines(export.splitlines()).id
    with served(tmp_path / "chats.db", tools=[pay]) as browser:
        assert [call["tool_call_id"] for call in browser.show(conversation)["pending"]] == ["call_0_0"]
        browser.api("POST", f"/conversations/{conversation}/resume", {}, status=None)
        assert [call["tool_call_id"] for call in browser.show(conversation)["pending"]] == ["call_0_0"]
        assert paid == []
        assert browser.ask(conversation, "use pay amount=5")[-1].data["reason"] == "approval"
        assert paid == []
