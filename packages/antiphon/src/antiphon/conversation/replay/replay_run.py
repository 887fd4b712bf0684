"""Replay: answer a stored conversation again with another model, from a step on, and compare the two.

    comparison = await replay(history, "anthropic/claude-…", from_step=2)

The new model answers in a fork; the original is unchanged and both are kept. Messages that people sent after the fork are sent
again, turn by turn. Calls that the log has are answered from it (`recorded_results.py`), so nothing happens twice in the world.
A note at the fork says what was replayed, a copied message which entry it is from, a served result the same: everything that
continues a replay follows from the two logs.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeAlias

from msgspec import Struct, structs

from antiphon.conversation.approval import Decision
from antiphon.conversation.conversation import Conversation
from antiphon.conversation.events import LIMIT_REASONS, EndReason, LoopEvent
from antiphon.conversation.loop import ToolLoop
from antiphon.conversation.model_settings import SettingsLike
from antiphon.conversation.replay.comparison import REPLAY_NOTE, REPLAY_OF, Comparison, compare, copied_from
from antiphon.conversation.replay.recorded_results import (
    CALL_POLICIES,
    CallPolicy,
    RecordedExecutor,
    RecordedResults,
    served_calls,
)
from antiphon.conversation.run import RunLimits, RunResult
from antiphon.conversation.turn import (
    AGENT_CHANNEL,
    AGENT_PREFIX,
    CORRECTION_CHANNEL,
    EntryPosition,
    TurnIndex,
)
from antiphon.errors import ConversationError
from antiphon.history import (
    AgentHistory,
    AgentHistorySnapshot,
    DebugLogEntry,
    EntryMetadata,
    HistoryEntry,
    ModelInputEntry,
    ModelOutputEntry,
    SetMemoryNotebookEntry,
    SetSystemInstructionEntry,
)
from antiphon.parts import ToolCallRequest
from antiphon.providers.call import ProviderClient
from antiphon.tools.executor import ToolExecutor
from antiphon.tools.hooks import Hook
from antiphon.tools.registry import ToolLike, ToolRegistry
from antiphon.tools.tool import ApprovalPolicy

Decider: TypeAlias = Callable[[ToolCallRequest], "Decision | Awaitable[Decision | None] | None"]
"""Decides on a call that waits for a person; None leaves it waiting, and the replay stops there."""

_ENTRY = "entry:"
_CONTINUES = LIMIT_REASONS | {"answered", "max_hand_offs"}


class ReplayPlan(Struct, frozen=True):
    """Where a replay begins and what is sent again.

    `at` is the last entry of the fork, `first` the first step that the other model makes. `turns` has a group of entries for
    each turn: the first group belongs to the turn of the fork and is often empty, the others end with the turn's message.
    """

    at: int
    first: EntryPosition
    turns: tuple[tuple[HistoryEntry, ...], ...]


def plan_replay(snapshot: AgentHistorySnapshot, from_step: int | str = 1) -> ReplayPlan:
    """What a replay from this step does. Raises `ConversationError` for a step that the conversation does not have.

    A step is a turn (`2`), a round of a turn (`2.3`), or the step of an entry (`entry:17`).
    """
    places = TurnIndex()
    places.update(snapshot)
    first = _find_step(from_step, snapshot, places)
    effective = snapshot.effective
    turn_starts = [entry for entry in effective if _is_message(entry) and places[entry.sequence_number].turn]
    turns = sorted({places[entry.sequence_number].turn for entry in turn_starts})
    if first.turn not in turns:
        known = f"it has the turns {turns[0]} to {turns[-1]}" if turns else "it has no turns yet"
        raise ConversationError(f"no turn {first.turn} in this conversation; {known}")
    index = next((i for i, entry in enumerate(effective) if places[entry.sequence_number] >= first), len(effective))
    has_step = index < len(effective) and places[effective[index].sequence_number] == first
    if not has_step and first.round > 1:
        rounds = max(place.round for entry in effective if (place := places[entry.sequence_number]).turn == first.turn)
        raise ConversationError(f"no step {first.turn}.{first.round}: turn {first.turn} has {rounds} rounds")
    at = effective[index].sequence_number - 1 if index < len(effective) else snapshot.version
    return ReplayPlan(at, first, _turns_after(effective.since(index), first.turn, places))


def parse_step(step: int | str) -> EntryPosition | int:
    """The turn and round that a step names, or the number of the entry. Raises `ConversationError` if it names neither."""
    text = str(step).strip()
    if text.startswith(_ENTRY):
        return _number(text.removeprefix(_ENTRY), text)
    turn, _, round_number = text.partition(".")
    return EntryPosition(_number(turn, text), _number(round_number, text) if "." in text else 1)


def _find_step(step: int | str, snapshot: AgentHistorySnapshot, places: TurnIndex) -> EntryPosition:
    found = parse_step(step)
    if isinstance(found, EntryPosition):
        return found
    if found not in {entry.sequence_number for entry in snapshot.effective}:
        known = f"it has {snapshot.version} entries" if found > snapshot.version else "it was rolled back"
        raise ConversationError(f"no entry {found} to replay from; {known}")
    place = places[found]
    return EntryPosition(max(1, place.turn), max(1, place.round))


def _number(text: str, step: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) > 0):
        raise ConversationError(
            f"invalid step {step[:40]!r}: expected a turn (2), a round (2.3) or an entry (entry:17)"
        )
    return int(text)


def _turns_after(entries: Iterable[HistoryEntry], turn: int, places: TurnIndex) -> tuple[tuple[HistoryEntry, ...], ...]:
    """What people added, by turn. What came in the middle of a turn is sent at its beginning."""
    groups: list[list[HistoryEntry]] = [[]]
    later: list[HistoryEntry] = []
    for entry in entries:
        if isinstance(entry, ModelOutputEntry):
            groups[-1] += later
            later = []
        elif _is_message(entry) and places[entry.sequence_number].turn > turn:
            turn = places[entry.sequence_number].turn
            groups.append([*later, entry])
            later = []
        elif _is_addition(entry):
            later.append(entry)
    return tuple(map(tuple, groups))


def _is_message(entry: HistoryEntry) -> bool:
    return isinstance(entry, ModelInputEntry) and entry.channel not in (AGENT_CHANNEL, CORRECTION_CHANNEL)


def _is_addition(entry: HistoryEntry) -> bool:
    """Whether a person or a program added the entry, and not a model, a tool or an agent."""
    source = entry.metadata.source if entry.metadata is not None else ""
    if isinstance(entry, SetSystemInstructionEntry):
        return not source.startswith(AGENT_PREFIX)
    if isinstance(entry, SetMemoryNotebookEntry):
        return not source.startswith("tool:")
    return _is_message(entry)


class Replay:
    """One replay: the fork of a conversation that another model continues.

    Set it up with `start`, prepare the conversation with `equip`, and after each turn call `advance`. `run` does all of it;
    surfaces that show a turn while it runs use the parts.
    """

    def __init__(
        self,
        original: AgentHistory,
        from_step: int | str = 1,
        *,
        calls: CallPolicy = "log",
        max_turns: int | None = None,
    ) -> None:
        if calls not in CALL_POLICIES:
            raise ConversationError(f"unknown calls={calls!r}: expected one of {', '.join(CALL_POLICIES)}")
        if max_turns is not None and max_turns < 1:
            raise ConversationError(f"max_turns={max_turns}: must be at least 1")
        self.original = original
        self.plan = plan_replay(original.snapshot(), from_step)
        self.calls: CallPolicy = calls
        self._turns = self.plan.turns[:max_turns]
        self._branch: AgentHistory | None = None
        self._before: tuple[ToolRegistry, ToolExecutor] | None = None

    def start(self, model: str, branch: AgentHistory | None = None) -> AgentHistory:
        """Fork the conversation (or use `branch`, a fork at `plan.at`) and write down what is replayed with which model."""
        self._branch = branch = branch if branch is not None else self.original.fork(self.plan.at)
        step = f"{self.plan.first.turn}.{self.plan.first.round}"
        origin = self.original.id or "a conversation in memory"
        facts = {
            "conversation": self.original.id,
            "from": step,
            "at": self.plan.at,
            "model": model,
            "calls": self.calls,
        }
        branch.append(
            DebugLogEntry(
                "replay",
                f"Replay of {origin} from step {step} with {model}.",
                metadata=EntryMetadata(extra={REPLAY_NOTE: facts}),
            )
        )
        self._send(self._turns[0])
        return branch

    def equip(self, chat: Conversation) -> None:
        """Let the calls of `chat`, the conversation over the fork, be answered from the log. Its tools are open."""
        recorded = RecordedResults(self.original.snapshot(), self.plan.at)
        recorded.conversation = self.original.id
        later = chat.history.snapshot().entries.since(self.plan.at)
        served = served_calls(later)  # by a process that ran this replay before
        for entry in later if served else ():
            if isinstance(entry, ModelOutputEntry):
                for call in entry.tool_calls:
                    if call.tool_call_id in served:
                        recorded.take(call)
        self._before = chat.registry, chat.executor
        if missing := recorded.missing_tools(chat.registry):
            chat.registry = ToolRegistry([*chat.registry, *missing])
        chat.executor = RecordedExecutor(chat.executor.with_registry(chat.registry), recorded, self.calls)

    def release(self, chat: Conversation) -> None:
        """Let the calls of `chat` run as before `equip`: a person continues the conversation."""
        if self._before is not None:
            chat.registry, chat.executor = self._before
            self._before = None

    def advance(self) -> bool:
        """Send the next message again; False if all were. Call it when a turn is over."""
        rest = self._next_messages()
        self._send(rest)
        return bool(rest)

    @property
    def has_more(self) -> bool:
        """Whether a message is left to send again."""
        return bool(self._next_messages())

    def _next_messages(self) -> Sequence[HistoryEntry]:
        done = set(map(copied_from, self.branch.snapshot().entries.since(self.plan.at)))
        groups = ([entry for entry in group if entry.sequence_number not in done] for group in self._turns[1:])
        return next((group for group in groups if group), ())

    @staticmethod
    def continues_after(reason: EndReason) -> bool:
        """Whether the next turn follows: the last one ended with an answer, if only because of a limit."""
        return reason in _CONTINUES

    @property
    def branch(self) -> AgentHistory:
        """The fork."""
        if self._branch is None:
            raise ConversationError("the replay was not started; call start first")
        return self._branch

    async def run(
        self, loop: ToolLoop, *, decide: Decider | None = None, on_event: Callable[[LoopEvent], None] | None = None
    ) -> RunResult:
        """Run the turns of the fork to the end, or to where a person must decide or a model call fails."""
        while True:
            finished = await loop.run(on_event=on_event, check=False)
            if finished.reason == "approval" and decide is not None:
                decisions = [await _ask_decider(decide, call) for call in loop.pending]
                loop.decide(*(one for one in decisions if one is not None))
                if None not in decisions:
                    continue
            if not (self.continues_after(finished.reason) and self.advance()):
                return finished

    def _send(self, entries: Sequence[HistoryEntry]) -> None:
        for entry in entries:
            known = entry.metadata or EntryMetadata()
            extra = {**(known.extra or {}), REPLAY_OF: entry.sequence_number}
            metadata = EntryMetadata(source=known.source, extra=extra)
            self.branch.append(structs.replace(entry, sequence_number=0, timestamp=None, metadata=metadata))


async def _ask_decider(decide: Decider, call: ToolCallRequest) -> Decision | None:
    decision = decide(call)
    return await decision if inspect.isawaitable(decision) else decision


async def replay(
    history: AgentHistory,
    *models: str | ProviderClient,
    from_step: int | str = 1,
    tools: Iterable[ToolLike] | ToolRegistry = (),
    calls: CallPolicy = "log",
    decide: Decider | None = None,
    max_turns: int | None = None,
    limits: RunLimits | None = None,
    provider: ProviderClient | None = None,
    settings: SettingsLike | None = None,
    approval: ApprovalPolicy | None = None,
    hooks: Sequence[Hook] = (),
    on_event: Callable[[LoopEvent], None] | None = None,
) -> Comparison:
    """Answer a conversation again with each of `models`, from a step on, and compare them with the original.

    `from_step` is a turn (`2`), a round of a turn (`"2.3"`) or the step of an entry (`"entry:17"`). Results come from the log
    where the call is the same; `calls` is what happens to the others: `"log"` and `"ask"` stop the replay unless `decide`
    allows the call, `"run"` runs it with `tools` (approvals hold), `"skip"` reports to the model that there is no result.
    `max_turns` and `limits` limit the replay. Each model answers in a fork of its own in the store of `history`.
    """
    if not models:
        raise ConversationError("no model to replay with; give at least one")
    registry = tools if isinstance(tools, ToolRegistry) else ToolRegistry(tools)
    router = None
    if provider is None and any(isinstance(model, str) for model in models):
        from antiphon.providers.router import ProviderRouter

        provider = router = ProviderRouter.from_environment()
    branches = []
    try:
        await registry.open()
        for model in models:
            one = Replay(history, from_step, calls=calls, max_turns=max_turns)
            branch = one.start(model if isinstance(model, str) else model.name)
            chat = Conversation(
                model,
                tools=registry,
                history=branch,
                provider=provider,
                settings=settings,
                approval=approval,
                hooks=hooks,
            )
            one.equip(chat)
            await one.run(ToolLoop(chat, limits=limits), decide=decide, on_event=on_event)
            branches.append(branch)
    finally:
        if registry is not tools:
            await registry.aclose()
        if router is not None:
            await router.aclose()
    return compare(history, *branches)
