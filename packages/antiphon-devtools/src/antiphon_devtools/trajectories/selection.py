"""The branches and turns of a conversation that become training examples or trajectories.

A branch is what was effective at one version of the log. The current one is the effective history; a rollback leaves the branch
before it abandoned. A branch is divided into turns, `TurnFilter` keeps or leaves out whole turns, and the rest is a `Trajectory`.

Branches and forks share their beginning. Turns that an earlier trajectory of the same export has are marked as copied, so that
formats which can say so keep them as context and exclude them from training.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from hashlib import sha256

from msgspec import Struct, structs

from antiphon.context.live import NOTEBOOK_TITLE
from antiphon.conversation.message import has_content
from antiphon.conversation.turn import Turn
from antiphon.errors import ConversationError
from antiphon.history import (
    AgentHistory,
    CompactionEntry,
    HistoryEntry,
    HumanDecisionEntry,
    LiveContextInjectedEntry,
    ModelInputEntry,
    ModelOutputEntry,
    OpaqueEntry,
    RollbackEntry,
    ToolCallResultsEntry,
    encode_entry,
)
from antiphon.history.snapshot import ActiveSettings
from antiphon.model_name import ModelName
from antiphon.parts import ToolExecutionStatus

BRANCHES = ("current", "abandoned", "all")
"""Which branches to export; a number instead is the branch at that version."""

_CUT_SHORT = frozenset({"length", "interrupted", "failed", "paused", "malformed_call"})
"""Stop reasons of answers that are not complete."""


class TrajectoryStep(Struct, frozen=True):
    """An input, an output or results, with the system text the model saw (instruction and notebook)."""

    entry: ModelInputEntry | ModelOutputEntry | ToolCallResultsEntry
    system: str


class TrajectoryTurn(Struct, frozen=True, kw_only=True):
    """One turn of a branch. `ended` is why it is not finished; empty if it ended with an answer."""

    number: int
    steps: tuple[TrajectoryStep, ...]
    ended: str = ""
    decisions: dict[str, HumanDecisionEntry] = {}
    """What people decided about calls, by the id of the call."""
    notes: tuple[str, ...] = ()
    """What the log has and no trajectory carries."""
    is_copied: bool = False
    """Whether an earlier trajectory of the same export has this turn."""

    @property
    def outputs(self) -> Iterator[ModelOutputEntry]:
        return (step.entry for step in self.steps if isinstance(step.entry, ModelOutputEntry))

    @property
    def results(self) -> Iterator[ToolCallResultsEntry]:
        return (step.entry for step in self.steps if isinstance(step.entry, ToolCallResultsEntry))


class TurnFilter(Struct, frozen=True, kw_only=True):
    """Which turns to keep. Every condition that is set must hold.

    `finished`: it ended with a complete answer. `approved`: a person approved or edited a call of it and denied none.
    `with_tools`: it has tool calls. `without_errors`: no call failed or was skipped. `model`: all its answers came from a model
    that matches this pattern, with or without the provider (`anthropic/*`, `gpt-*`).
    """

    finished: bool = False
    approved: bool = False
    with_tools: bool = False
    without_errors: bool = False
    model: str = ""

    def reason_against(self, turn: TrajectoryTurn) -> str:
        """Why a turn is left out; empty if it is kept."""
        if self.finished and turn.ended:
            return f"not finished ({turn.ended})"
        if self.approved and (reason := _approval_missing(turn)):
            return reason
        if self.with_tools and not any(output.tool_calls for output in turn.outputs):
            return "no tool calls"
        if self.without_errors and (failed := _failed_tool(turn)):
            return f"{failed} did not succeed"
        if self.model:
            others = [name for name in map(_model_of, turn.outputs) if not _matches(name, self.model)]
            if others:
                return f"answered by {others[0] or 'an unknown model'}"
        return ""


class Trajectory(Struct, frozen=True, kw_only=True):
    """A branch of a conversation, reduced to the turns to export."""

    conversation: str
    version: int
    """The version of the log whose effective entries these are."""
    turns: tuple[TrajectoryTurn, ...]
    is_current: bool = True
    title: str = ""
    parent: str | None = None
    notes: tuple[str, ...] = ()
    """Which turns were left out, and why."""

    @property
    def id(self) -> str:
        """Unique among the branches of all conversations; empty for a history that is not stored."""
        return f"{self.conversation}@{self.version}" if self.conversation else ""

    @property
    def model(self) -> str:
        """The model that answered last."""
        names = [_model_of(output) for turn in self.turns for output in turn.outputs]
        return next((name for name in reversed(names) if name), "")


def select_trajectories(
    history: AgentHistory,
    *,
    branch: str = "current",
    keep: TurnFilter | None = None,
    title: str = "",
    parent: str | None = None,
    exported: set[bytes] | None = None,
) -> list[Trajectory]:
    """The trajectories of a history, one for each selected branch. One without turns has nothing to export.

    `exported` remembers the entries of one export, over all its histories: turns in it are marked as copied. An entry of a fork
    equals that of its parent, number and time included. Raises `ConversationError` if there is no such branch.
    """
    keep = keep or TurnFilter()
    exported = set() if exported is None else exported
    found = []
    for version, is_current in _versions(history, branch):
        kept: list[TrajectoryTurn] = []
        notes: list[str] = []
        for turn in turns_of(_entries_at(history, version)):
            reason = keep.reason_against(turn)
            if reason:
                notes.append(f"turn {turn.number}: left out: {reason}")
                continue
            keys = {sha256(encode_entry(step.entry)).digest() for step in turn.steps}
            kept.append(structs.replace(turn, is_copied=keys <= exported))
            exported |= keys
        found.append(
            Trajectory(
                conversation=history.id,
                version=version,
                turns=tuple(kept),
                is_current=is_current,
                title=title,
                parent=parent,
                notes=tuple(notes),
            )
        )
    return found


def turns_of(entries: Sequence[HistoryEntry]) -> Iterator[TrajectoryTurn]:
    """The turns of effective entries. What is set before the first question belongs to the first turn."""
    settings = ActiveSettings()
    turn = Turn()
    collected: list[HistoryEntry] = []
    steps: list[TrajectoryStep] = []
    number = 1
    for entry in entries:
        settings = settings.after(entry)
        following = turn.apply(entry)
        if following is not turn:
            if steps:
                yield _finished_turn(number, turn, collected, steps)
                collected, steps, number = [], [], number + 1
            turn = following
        collected.append(entry)
        if isinstance(entry, ModelInputEntry | ModelOutputEntry | ToolCallResultsEntry) and not _is_empty(entry):
            steps.append(TrajectoryStep(entry, _system_text(settings)))
    if steps:
        yield _finished_turn(number, turn, collected, steps)


def _is_empty(entry: HistoryEntry) -> bool:
    return isinstance(entry, ModelOutputEntry) and not has_content(entry.content)


def _finished_turn(
    number: int, turn: Turn, entries: Sequence[HistoryEntry], steps: Sequence[TrajectoryStep]
) -> TrajectoryTurn:
    decisions = {entry.tool_call_id: entry for entry in entries if isinstance(entry, HumanDecisionEntry)}
    return TrajectoryTurn(
        number=number,
        steps=tuple(steps),
        ended=_why_unfinished(turn),
        decisions=decisions,
        notes=tuple(_not_carried(entries)),
    )


def _why_unfinished(turn: Turn) -> str:
    if turn.ended:
        return turn.ended
    if turn.open_calls:
        return "approval" if any(call.needs_approval for call in turn.open_calls.values()) else "calls without results"
    if turn.output is None or turn.has_calls:
        return "no answer"
    return turn.output.stop_reason if turn.output.stop_reason in _CUT_SHORT else ""


def _not_carried(entries: Iterable[HistoryEntry]) -> Iterator[str]:
    for entry in entries:
        where = f"entry {entry.sequence_number}"
        if isinstance(entry, CompactionEntry):
            yield f"{where}: summary: the entries it replaced are exported instead"
        elif isinstance(entry, LiveContextInjectedEntry):
            yield f"{where}: LiveScreen: shown to the model at that moment only; not part of the messages"
        elif isinstance(entry, OpaqueEntry):
            yield f"{where}: {entry.stored_kind}: written by a newer version"


def _system_text(settings: ActiveSettings) -> str:
    notebook = f"{NOTEBOOK_TITLE}\n{settings.memory_notebook}" if settings.memory_notebook else ""
    return "\n\n".join(text for text in (settings.system_instruction, notebook) if text)


def _versions(history: AgentHistory, branch: str) -> list[tuple[int, bool]]:
    """The versions whose effective entries are the selected branches, and whether each is the current one."""
    if branch.isdecimal():
        version = int(branch)
        name = f"conversation {history.id}".rstrip()
        if not 0 < version <= history.version:
            raise ConversationError(f"{name} has no version {version}; its versions are 1 to {history.version}")
        return [(version, version == history.version)]
    if branch not in BRANCHES:
        raise ConversationError(f"unknown branch {branch!r}; expected {', '.join(BRANCHES)} or the number of a version")
    current = (history.version, True)
    if branch == "current":
        return [current]
    abandoned = [(version, False) for version in _abandoned_versions(history)]
    return [current, *abandoned] if branch == "all" else abandoned


def _abandoned_versions(history: AgentHistory) -> list[int]:
    """The last version of each branch that a rollback left, without those that another branch continues."""
    rollbacks = [entry.sequence_number for entry in history.entries if isinstance(entry, RollbackEntry)]
    seen = {tuple(entry.sequence_number for entry in history.effective)}
    found: list[int] = []
    for version in reversed([number - 1 for number in rollbacks]):
        view = tuple(entry.sequence_number for entry in _entries_at(history, version))
        if any(longer[: len(view)] == view for longer in seen):
            continue
        seen.add(view)
        found.append(version)
    return sorted(found)


def _entries_at(history: AgentHistory, version: int) -> list[HistoryEntry]:
    return list(AgentHistory(history.entries[:version]).effective)


def _approval_missing(turn: TrajectoryTurn) -> str:
    denied = [entry for entry in turn.decisions.values() if entry.decision == "deny"]
    if denied:
        return f"call {denied[0].tool_call_id} was denied"
    return "" if turn.decisions else "no call was approved by a person"


def _failed_tool(turn: TrajectoryTurn) -> str:
    results = (result for entry in turn.results for result in entry.results)
    return next((result.tool_name for result in results if result.status is not ToolExecutionStatus.SUCCESS), "")


def _model_of(output: ModelOutputEntry) -> str:
    return output.origin.name if output.origin else ""


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(ModelName.parse(name).model, pattern)
