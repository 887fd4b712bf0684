"""The surfaces that play a turn of law L12: the loop, the conversation by hand, graph nodes, and a worker of runs.

Each is given a world and a stored conversation, plays as far as its ending says, and reports to the observed log which calls it
showed to a person as waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any, Literal

from msgspec import Struct

from antiphon.conversation import ApprovalNeeded, Conversation, LoopEvent, LoopFinished, RunLimits, ToolLoop
from antiphon.conversation.events import LIMIT_REASONS
from antiphon.conversation.turn import end_reason
from antiphon.errors import ConversationError, GraphError
from antiphon.graph import Conversations, LLMNode, ToolNode
from antiphon.history import AgentHistory, LiveContextInjectedEntry, Run
from antiphon.providers.call import ModelCallFailed
from antiphon.runs import RunRegistry, Runs, Worker
from antiphon.tools import ToolRegistry
from laws.conversation_simulation.crashing_store import Home
from laws.conversation_simulation.world import CLIENTS, Answer, Surface, World, agents, toolbox

ENDINGS = ("plays to the end", "stops after steps", "stops reading", "is interrupted", "crashes")
GRAPH_STEPS = 8
RETRIES = 1
"""How often a typed answer is requested again."""


class Ending(Struct, frozen=True):
    """How a play ends: `kind` is one of ENDINGS; `after` counts steps, events or appends.

    A crash comes after its entry is stored, or before; an interrupt cancels tools that run, or waits for them.
    """

    kind: str = ENDINGS[0]
    after: int = 1
    is_stored: bool = False
    on_interrupt: Literal["cancel", "await"] = "cancel"


class Report(Struct):
    """The typed answer that some plays want."""

    text: str


class Play(Struct, frozen=True):
    """What is played: the surface, whether a person speaks, the model's script, the end, and the decisions made before it."""

    surface: Surface
    person: str = "resumes"
    script: Sequence[Answer] = ()
    ending: Ending = Ending()
    limits: RunLimits = RunLimits()
    decider: Surface = Surface()
    decisions: Sequence[str] = ()
    content: Sequence[str] = ()
    output: type[Report] | None = None

    def words(self, *, is_waiting: bool) -> Sequence[str]:
        """What the person says, or nothing."""
        return ("Go.",) if self.person == "speaks" or (self.person != "resumes" and not is_waiting) else ()


async def play_loop(loop: ToolLoop, play: Play) -> list[LoopEvent]:
    """Run a turn, or continue it, and return the events of the loop."""
    ending = play.ending
    events: list[LoopEvent] = []
    steps = ending.after if ending.kind == "stops after steps" else None
    stream: Any = loop.stream(*play.content, steps=steps, output=play.output, output_retries=RETRIES)
    async with aclosing(stream):
        async for event in stream:
            events.append(event)
            if ending.kind == "stops reading" and len(events) >= ending.after:
                break
            if ending.kind == "is interrupted" and len(events) == ending.after:
                await loop.interrupt()
    return events


def check_end(world: World, loop: ToolLoop, events: Sequence[LoopEvent], play: Play) -> None:
    """L8: the turn ended within its limits, once, and says why where everybody can see it."""
    log = world.logs[world.conversation]
    for event in events:
        if isinstance(event, ApprovalNeeded):
            log.report(event.calls)
    if world.model_calls > (loop.limits.max_rounds + 1) * (1 if play.output is None else RETRIES + 1):
        world.fault(
            f"L8: the model was asked {world.model_calls} times in a turn of at most {loop.limits.max_rounds} rounds"
        )
    if play.ending.kind in ENDINGS[:2] and (missing := world.ended_calls - world.measured_calls):
        world.fault(f"on_call: missing calls {', '.join(sorted(missing))}")
    if play.ending.kind == "stops reading":
        return
    ends = [event for event in events if isinstance(event, LoopFinished)]
    if len(ends) != 1 or events[-1] is not ends[0]:
        world.fault(f"L8: the loop reported {len(ends)} ends")
        return
    reason, value = ends[0].reason, ends[0].output
    if value is not None and (play.output is None or not isinstance(value, play.output)):
        world.fault(f"output: the turn gave {value!r}, and a {play.output} was requested")
    reasons = {end_reason(entry) for entry in log.effective}
    if reason in LIMIT_REASONS and not (
        reason in reasons and any(isinstance(entry, LiveContextInjectedEntry) for entry in log.effective)
    ):
        world.fault(f"L8: the turn ended by {reason}, and the log does not say so")
    if reason == "interrupted" and reason not in reasons:
        world.fault("L8: the turn was interrupted, and the log does not say so")
    if reason == "approval" and not any(isinstance(event, ApprovalNeeded) for event in events):
        world.fault("L8: the turn waits for a person, and does not say for what")


async def play_by_hand(chat: Conversation, play: Play) -> None:
    """Call the model and its tools as code without a loop does."""
    if play.content and not chat.turn.open_calls:
        chat.add(*play.content)
    for _ in range(play.limits.max_rounds):
        turn = chat.turn
        try:
            if turn.open_calls:
                await chat.execute_tool_calls()
            elif turn.needs_model or turn.has_failed:  # an answer that was cut off is asked for again
                await chat.call_model()
        except (ModelCallFailed, ConversationError):
            return


def play_graph(world: World, home: Home, play: Play) -> None:
    """Let graph nodes play a turn as far as they lead."""
    registry = ToolRegistry(toolbox(play.surface))
    log = world.logs[world.conversation]
    options: dict[str, Any] = {"executor": world.executor(registry, play.surface), "embedded_calls": True}
    chats = Conversations(home.store, CLIENTS["anthropic"], tools=registry, limits=play.limits, **options)
    nodes = {"llm": LLMNode(chats), "tools": ToolNode(chats)}
    try:
        state: Any = {"conversation": world.conversation, "version": log.version}
        if play.content:
            state = chats.ask(*play.content, conversation=world.conversation)
        for _ in range(GRAPH_STEPS):
            lead = chats.next_node(state)
            if lead == "human":
                log.report(ToolLoop(chats.conversation(state)).pending)
            if lead not in nodes or not log.entries:
                break
            version = log.version
            try:
                state = nodes[lead].invoke(state)
            except (ModelCallFailed, GraphError):
                break
            if log.version == version:
                world.fault(f"L8: the graph goes to {lead}, which does nothing")
                break
    finally:
        chats.close()


def play_run(world: World, home: Home, play: Play) -> None:
    """Ask for a run, or wake the one that waits for a person, and let a worker play it."""
    runs, log = Runs(home.store), world.logs[world.conversation]
    run = _woken(home, log.id) if not play.content else None
    for other in home.store.runs.list():
        if not other.is_over and (run is None or other.id != run.id):
            home.store.runs.cancel(other.id)
    run = run or runs.submit(*play.content, conversation=log.id)
    for entry in home.store.open(log.id).entries[log.version :]:
        log.observe(entry)
    registry = RunRegistry()

    @registry.kind("chat")
    def build(history: AgentHistory, _: Run) -> ToolLoop:
        world.history = history
        chat = world.chat(play.surface, history, "openai-responses")
        return ToolLoop(chat, limits=play.limits, agents=agents(play.surface))

    asyncio.run(Worker(home.store, registry, slots=1).run(once=True))
    if home.store.crash.has_happened:
        return
    settled = home.store.runs.get(run.id)
    if settled.state == "suspended":
        log.report(runs.pending(run.id))


def _woken(home: Home, conversation: str) -> Run | None:
    suspended = [run for run in home.store.runs.list(conversation=conversation) if run.state == "suspended"]
    return home.store.runs.wake(suspended[0].id) if suspended else None
