"""L12: every law holds with all features on at once.

A state machine drives one conversation through random turns: agents that hand off, calls that need approval, freeform calls and
calls in text, invalid and deeply nested arguments, hooks that refuse, change and fail, typed answers, settings that change in
mid-turn, rollbacks, forks, compactions, interrupts, cut streams, and processes that die at any entry; played by loops of
different configuration, by hand, by graph nodes and by a worker, on different models. After each step L1, L4, L7, L8, L9 and L11
are checked against a model that trusts nothing but the entries that were stored and what the tools saw (see
`conversation_simulation`).
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from msgspec import Struct, structs

from antiphon import telemetry
from antiphon.conversation import Conversation, RunLimits, ToolLoop
from antiphon.history import AgentHistory, ShortenedResultsEntry
from antiphon.parts import Text, Thinking, ToolCallRequest
from antiphon.wire import FORMATS
from laws.conversation_simulation.crashing_store import Home
from laws.conversation_simulation.log import ObservedLog
from laws.conversation_simulation.surfaces import (
    ENDINGS,
    Ending,
    Play,
    Report,
    check_end,
    play_by_hand,
    play_graph,
    play_loop,
    play_run,
)
from laws.conversation_simulation.world import COMMON, HERE, HOOKS, Answer, Surface, World, agents
from support.examples import is_everyday, scaled
from support.planned_turns import Killed, refusals

DEEP = '{"text": ' + "[" * 5_000 + "]" * 5_000 + "}"
texts = st.sampled_from(["x", "small", "今天下雨吗", ""])
called = st.sampled_from([*COMMON, "pay", "wire", "send", "stamp", "sign", "ask_helper", "no_such_tool"])
hand_offs = st.sampled_from(["hand_off_to_plain", "hand_off_to_expert", "hand_off_to_desk"])
arguments = st.sampled_from(['{"text": "x"}', '{"text": "small"}', "{}", '{"text": "x"}', "", "{", '{"text": 5}', DEEP])
ids = st.sampled_from(["", "", "a", "b"])
typed = st.sampled_from(['{"answer": {"text": "x"}}', '{"answer": {"text": 5}}', "{}", "{"])
plain_calls = st.builds(ToolCallRequest, called, ids, arguments)
parts = st.one_of(
    plain_calls,
    st.builds(ToolCallRequest, st.sampled_from(["pay", "wire", "pay", "sign"]), ids, st.just('{"text": "x"}')),
    st.builds(ToolCallRequest, hand_offs, ids, st.just("{}")),
    st.builds(ToolCallRequest, called, ids, texts, st.just(True)),
    st.builds(ToolCallRequest, st.just("final_answer"), ids, typed),
    called.map(lambda name: Text(f'<tool_call>{{"name": "{name}", "arguments": {{"text": "e"}}}}</tool_call>')),
    st.builds(Text, texts),
    st.builds(Thinking, texts),
)
asides = st.none() | st.tuples(st.sampled_from(["system", "notebook"]), st.sampled_from(["aside 1", "aside 2"]))
answers = st.builds(
    Answer,
    st.lists(parts, min_size=1, max_size=3).map(tuple),
    st.sampled_from(["", "", "", "length", "paused", "malformed_call", "refusal"]),
    st.sampled_from(["finishes", "finishes", "finishes", "finishes", "is cut", "fails"]),
    asides,
)
surfaces = st.builds(Surface, st.sampled_from([True, True, False]), st.booleans(), st.sampled_from([HOOKS[0], *HOOKS]))
endings = st.builds(
    Ending,
    st.sampled_from([ENDINGS[0], ENDINGS[0], *ENDINGS]),
    st.integers(1, 9),
    st.booleans(),
    st.sampled_from(["cancel", "await"]),
)
plays = st.builds(
    Play,
    surfaces,
    st.sampled_from(["speaks if nothing waits", "speaks if nothing waits", "speaks", "resumes"]),
    st.lists(answers, min_size=1, max_size=4),
    endings,
    st.builds(RunLimits, max_rounds=st.integers(1, 4), max_calls=st.none() | st.integers(1, 4)),
    surfaces,
    st.lists(st.sampled_from(["approve", "approve", "deny", "edit", ""]), min_size=1, max_size=3),
    output=st.sampled_from([None, None, Report]),
)


class Counts(Struct):
    """What was done in a run of this law."""

    conversations: int = 0
    steps: int = 0
    entries: int = 0
    runs: int = 0
    decisions: int = 0
    crashes: int = 0


class Conversations(RuleBasedStateMachine):
    """One conversation, and everything that may happen to it."""

    address = ":memory:"
    counts = Counts()

    @initialize(system=st.sampled_from([None, "You are kind."]))
    def begin(self, system: str | None) -> None:
        self.world = HERE.world = World()
        self.home = Home(self.new_address(), self.world.observe)
        self.chats: dict[Any, Conversation] = {}
        self.model = FORMATS[0]
        self.counts.conversations += 1
        history = self.home.store.create()
        self.world.logs[history.id] = ObservedLog(history.id)
        self.settle_in(history)
        if system is not None:
            self.chat(Surface(), system=system)

    def new_address(self) -> str:
        return self.address

    # The process and what it has open.

    def settle_in(self, history: AgentHistory) -> None:
        """Continue this history, and with nothing that was open before."""
        self.history = self.world.history = history
        self.world.conversation = history.id
        self.chats.clear()

    @property
    def log(self) -> ObservedLog:
        return self.world.logs[self.world.conversation]

    def chat(self, surface: Surface, system: str | None = None) -> Conversation:
        if system is not None or (surface, self.model) not in self.chats:
            self.chats[surface, self.model] = self.world.chat(surface, self.history, self.model, system)
        return self.chats[surface, self.model]

    def loop(self, surface: Surface, play: Play | None = None) -> ToolLoop:
        play = play or Play(surface)
        how = play.ending.on_interrupt
        return ToolLoop(self.chat(surface), limits=play.limits, agents=agents(surface), on_interrupt=how)

    def restart(self) -> None:
        """The process is gone; another one opens the conversation. Every acknowledged entry is there."""
        self.world.process += 1
        self.home.restart()
        self.home.expire_lease(self.world.conversation)
        self.settle_in(self.home.store.open(self.world.conversation))

    # Turns.

    @contextmanager
    def played(self, play: Play) -> Iterator[Play]:
        """What is common to all surfaces: a person decides first, the model has its script, and the process may die."""
        self.world.begin_play(play.surface, play.script)
        waiting = self.log.waiting
        play = structs.replace(play, content=play.words(is_waiting=bool(waiting)))
        if waiting and not play.content:
            self.decide(play.decider, play.decisions)
        if play.ending.kind == "crashes":
            self.home.store.crash.arm(play.ending.after, is_stored=play.ending.is_stored)
        with suppress(Killed):
            yield play
        if self.home.store.crash.has_happened:
            self.counts.crashes += 1
            self.restart()
        self.home.store.crash.disarm()

    @rule(play=plays)
    def play_loop(self, play: Play) -> None:
        loop = self.loop(play.surface, play)
        with self.played(play) as play:
            events = asyncio.run(play_loop(loop, play))
            check_end(self.world, loop, events, play)

    @rule(play=plays)
    def play_by_hand(self, play: Play) -> None:
        chat = self.chat(play.surface)
        with self.played(play) as play:
            asyncio.run(play_by_hand(chat, play))

    @rule(play=plays)
    def play_graph(self, play: Play) -> None:
        with self.played(play) as play:
            self.world.history = None
            play_graph(self.world, self.home, play)
        self.settle_in(self.home.store.open(self.world.conversation))

    @rule(play=plays)
    def play_run(self, play: Play) -> None:
        with self.played(play) as play:
            if self.log.entries or play.content:
                play_run(self.world, self.home, play)
        self.settle_in(self.home.store.open(self.world.conversation))

    def decide(self, surface: Surface, decisions: Sequence[str]) -> None:
        """Decide some of the calls that wait, on any surface."""
        loop = self.loop(surface)
        for call, decision in zip(loop.pending, decisions, strict=False):
            self.counts.decisions += bool(decision)
            if decision == "approve":
                loop.approve(call.tool_call_id)
            elif decision == "deny":
                loop.deny(call.tool_call_id, "no")
            elif decision == "edit":
                loop.edit(call.tool_call_id, "edited" if call.freeform else {"text": "edited"})

    # What a person does in between.

    @rule(
        change=st.sampled_from(
            ["system", "notebook", "message", "order", "rollback", "clear", "fork", "compact", "shorten", "model"]
        ),
        text=st.sampled_from(["Be brief.", "Be kind.", ""]),
        back=st.integers(0, 12),
    )
    def change(self, change: str, text: str, back: int) -> None:
        """Do something to the conversation between two plays, wherever its turn stands."""
        at = max(0, self.history.version - back)
        if change == "system":
            self.history.set_system_instruction(text)
        elif change == "notebook":
            self.history.set_memory_notebook(text)
        elif change in ("message", "order"):
            self.chat(Surface()).add("By the way.", role="user" if change == "message" else "system")
        elif change in ("rollback", "clear"):
            self.log.is_person_rolling_back = True
            self.history.rollback(at) if change == "rollback" else self.chat(Surface()).clear()
            self.log.is_person_rolling_back = False
        elif change == "fork":
            fork = self.history.fork(at)
            self.world.fork(fork.id, self.log, at)
            self.settle_in(fork)
        elif change == "compact":
            self.history.compact("so far" if back % 3 else "", at, since=at // 2 if back % 2 else 0)
        elif change == "shorten":
            self.history.append(ShortenedResultsEntry(at // 2, at, 10 * (back % 2)))
        else:
            self.model = FORMATS[back % len(FORMATS)]

    @rule(surface=surfaces, system=st.none() | st.sampled_from(["You are new.", "Be brief."]))
    def reopen(self, surface: Surface, system: str | None) -> None:
        self.restart()
        self.chat(surface, system=system)

    # The laws.

    @invariant()
    def laws_hold(self) -> None:
        if not hasattr(self, "world"):
            return
        self.counts.steps += 1
        world, log, history = self.world, self.log, self.history
        if (history.system_instruction, history.memory_notebook) != (log.settings.system, log.settings.notebook):
            in_force = history.system_instruction, history.memory_notebook
            world.fault(f"settings: {in_force} are in force, and last set were {log.settings}")
        assert not world.faults, "\n".join(world.faults)
        assert history.version == log.version, "L1: the version counts the entries"
        assert list(history.entries) == log.entries, "L1: no entry changed"
        assert history.effective == log.effective
        assert refusals(history.snapshot()) == [], "L4"

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            self.bring_to_an_end()
            for log in self.world.logs.values():
                assert list(self.home.store.open(log.id).entries) == log.entries, "L1, L7: every entry is in the store"
                self.counts.entries += log.version
            self.counts.runs += sum(map(len, self.world.executions.values()))
        finally:
            self.home.store.close()

    def bring_to_an_end(self) -> None:
        """L8: whatever happened, a person who decides and resumes comes to the end of the turn."""
        if self.world.faults:
            return
        surface = Surface(has_agents=True)
        for _ in range(3):
            self.play_loop(Play(surface))
            self.decide(surface, ["approve"] * len(self.loop(surface).pending))
        assert not self.chat(surface).turn.open_calls, "L8: the turn waits forever"
        self.laws_hold()


class StoredConversations(Conversations):
    """The same in a file that another process opens."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()

    def new_address(self) -> str:
        return f"{self.folder.name}/chats.db"

    def teardown(self) -> None:
        super().teardown()
        self.folder.cleanup()


def drive(machine: type[Conversations], examples: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Drive so many conversations, and print what was done."""
    counts = Conversations.counts = Counts()
    how = settings(
        max_examples=scaled(examples),
        stateful_step_count=20 if is_everyday() else 40,
        derandomize=is_everyday(),
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    logging.getLogger("antiphon").setLevel(logging.CRITICAL)  # which is undone after each test
    run_state_machine_as_test(machine, settings=how)
    assert counts.crashes, "no process died"
    assert counts.decisions, "there were no decisions"
    assert counts.runs > examples, "the tools hardly ran"
    with capsys.disabled():
        done = (f"{number:,} {what}" for what, number in structs.asdict(counts).items())
        print(f"\n  L12: {', '.join(done)} ", end="")


def test_every_law_holds_with_all_features_in_memory(capsys: pytest.CaptureFixture[str]) -> None:
    drive(Conversations, 12, capsys)


@pytest.fixture
def traced() -> Iterator[None]:
    """Spans are recorded, with all messages in them."""
    tracing = pytest.importorskip("opentelemetry.sdk.trace")
    telemetry.enable(tracer_provider=tracing.TracerProvider(), content=True)
    yield
    telemetry.disable()


@pytest.mark.usefixtures("traced")
def test_every_law_holds_with_all_features_in_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    drive(StoredConversations, 5, capsys)


@pytest.mark.slow
def test_every_law_holds_with_all_features_on_a_server(postgres: str, capsys: pytest.CaptureFixture[str]) -> None:
    class ServerConversations(Conversations):
        address = postgres

    drive(ServerConversations, 8, capsys)
