"""What a log must hold: the simplest model of it, fed with every entry that was stored.

It keeps a list of all entries, for every version the list of what was effective, and which system instruction and notebook were
set last by a person or an agent. Only a person's rollback takes such a setting back; a rollback that the library makes does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from msgspec import Struct, structs

from antiphon.history import (
    CompactionEntry,
    HistoryEntry,
    HumanDecisionEntry,
    ModelOutputEntry,
    RollbackEntry,
    SetMemoryNotebookEntry,
    SetSystemInstructionEntry,
    ShortenedResultsEntry,
    ToolCallFinishedEntry,
    ToolCallResultsEntry,
    ToolCallStartedEntry,
)
from antiphon.parts import ToolCallRequest, ToolCallResult


class Settings(Struct, frozen=True):
    """The system instruction and the notebook that must be in force. `own` is the instruction that no agent set."""

    system: str = ""
    notebook: str = ""
    own: str = ""


class CallFacts(Struct):
    """What the effective log says about one call."""

    call: ToolCallRequest
    output: int
    started: list[int] = []
    finished: ToolCallResult | None = None
    result: ToolCallResult | None = None
    decision: HumanDecisionEntry | None = None


class ObservedLog:
    """One conversation as it must be."""

    def __init__(self, conversation: str) -> None:
        self.id = conversation
        self.entries: list[HistoryEntry] = []
        self.is_person_rolling_back = False
        self.beginnings = 0
        """Grows with everything that may change the beginning of a request."""
        self.reported: dict[str, int] = {}
        """The calls that were reported as waiting for a person, and the version at which they first were."""
        self.required: dict[str, int] = {}
        """The calls that were made where they need a person, and the output that made them: nothing takes that back."""
        self._views: list[list[HistoryEntry]] = [[]]
        self._settings = [Settings()]

    @property
    def version(self) -> int:
        return len(self.entries)

    @property
    def effective(self) -> Sequence[HistoryEntry]:
        return self._views[-1]

    @property
    def settings(self) -> Settings:
        return self._settings[-1]

    def fork(self, conversation: str, at: int) -> ObservedLog:
        """The model of a fork."""
        fork = ObservedLog(conversation)
        fork.entries = self.entries[:at]
        fork._views = self._views[: at + 1]
        fork._settings = self._settings[: at + 1]
        fork.required = {call: output for call, output in self.required.items() if output <= at}
        fork.reported = {call: version for call, version in self.reported.items() if version <= at}
        return fork

    def observe(self, entry: HistoryEntry) -> None:
        """Take in an entry that was stored."""
        assert entry.sequence_number == len(self.entries) + 1, "L1: version grows by one"
        self.entries.append(entry)
        view, settings = self._views[-1], self._settings[-1]
        if isinstance(entry, RollbackEntry):
            kept = [one for one in view if one.sequence_number in entry.kept]
            self._views.append([*self._views[entry.to], *kept])
            if self.is_person_rolling_back:
                settings = reduce(_after, kept, self._settings[entry.to])
                self.reported = {call: version for call, version in self.reported.items() if version <= entry.to}
        else:
            self._views.append([*view, entry])
            settings = _after(settings, entry)
        if settings != self._settings[-1] or isinstance(entry, RollbackEntry | CompactionEntry | ShortenedResultsEntry):
            self.beginnings += 1
        self._settings.append(settings)

    def report(self, calls: Sequence[ToolCallRequest]) -> None:
        """Note that these calls were shown to a person as waiting for a decision."""
        for call in calls:
            self.reported.setdefault(call.tool_call_id, self.version)

    @property
    def waiting(self) -> list[str]:
        """The calls that were reported and not decided since."""
        facts = self.facts()
        return [call for call in self.reported if call in facts and not facts[call].decision and not facts[call].result]

    def facts(self) -> dict[str, CallFacts]:
        """What is known of every call that counts."""
        facts: dict[str, CallFacts] = {}
        for entry in self.effective:
            match entry:
                case ModelOutputEntry():
                    facts |= {call.tool_call_id: CallFacts(call, entry.sequence_number) for call in entry.tool_calls}
                case ToolCallStartedEntry(tool_call_id=name) if name in facts:
                    facts[name].started.append(entry.sequence_number)
                case ToolCallFinishedEntry(result=result) if result.tool_call_id in facts:
                    facts[result.tool_call_id].finished = result
                case ToolCallResultsEntry(results=results):
                    for result in results:
                        if result.tool_call_id in facts:
                            facts[result.tool_call_id].result = result
                case HumanDecisionEntry(tool_call_id=name) if name in facts:
                    facts[name].decision = entry
                case _:
                    pass
        return facts


def _after(settings: Settings, entry: HistoryEntry) -> Settings:
    if isinstance(entry, SetMemoryNotebookEntry):
        return structs.replace(settings, notebook=entry.content)
    if isinstance(entry, SetSystemInstructionEntry):
        if entry.metadata is not None and entry.metadata.source.startswith("agent:"):
            # An agent without instructions speaks under the conversation's own.
            return structs.replace(settings, system=entry.text or settings.own)
        return structs.replace(settings, system=entry.text, own=entry.text)
    return settings
