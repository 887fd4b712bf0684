"""The entries of the log: everything that happened in a conversation, each as a frozen value.

Two families, and the type checker keeps them apart:

- every entry is a `HistoryEntry` and can be appended to a history;
- those a model may see are also `ContextEntry`s (they have a role and content). Set-entries, debug logs, rollbacks, marks of
  started tools are not, so they cannot reach a provider.

`DecoratedContextEntry` is the mirror image: a `ContextEntry` that is not a `HistoryEntry`. It carries what is true only now
(the LiveScreen), so it is shown to the model and never written down.

An entry is made without a sequence number or a time; the history gives both when it is appended.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct

from antiphon.extensions import EXTENSIONS, load_part
from antiphon.parts import (
    InputPart,
    Native,
    OutputPart,
    Part,
    Text,
    Thinking,
    TokenUsage,
    ToolCallRequest,
    ToolCallResult,
    as_parts,
    text_of,
)


class HistoryEntryKind(StrEnum):
    """The kinds of entry this version knows."""

    SET_SYSTEM_INSTRUCTION = "set_system_instruction"
    SET_MEMORY_NOTEBOOK = "set_memory_notebook"
    MODEL_INPUT = "model_input"
    MODEL_OUTPUT = "model_output"
    TOOL_CALL_RESULTS = "tool_call_results"
    TOOL_CALL_STARTED = "tool_call_started"
    TOOL_CALL_FINISHED = "tool_call_finished"
    APPROVAL_REQUESTED = "approval_requested"
    HUMAN_DECISION = "human_decision"
    LIVE_CONTEXT_INJECTED = "live_context_injected"
    COMPACTION = "compaction"
    SHORTENED_RESULTS = "shortened_results"
    ROLLBACK = "rollback"
    DEBUG_LOG = "debug_log"


class ContextEntryRole(StrEnum):
    """Who speaks, in our own vocabulary and no provider's."""

    SYSTEM = "system"
    MODEL_INPUT = "model_input"
    MODEL_OUTPUT = "model_output"
    TOOL_RESULT = "tool_result"


class ContextEntry(Protocol):
    """What a model may see."""

    @property
    def role(self) -> ContextEntryRole: ...
    @property
    def content(self) -> tuple[Part, ...]: ...
    @property
    def tool_calls(self) -> tuple[ToolCallRequest, ...]: ...
    @property
    def live_screen(self) -> str | None: ...


class _Stored(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, repr_omit_defaults=True, gc=False):
    pass


class EntryMetadata(_Stored, frozen=True, kw_only=True):
    """What is known about an entry besides its content."""

    source: str = ""
    duration: float | None = None
    usage: TokenUsage | None = None
    argument_digest: str = ""
    error: str = ""
    extra: dict[str, Any] | None = None


class Origin(_Stored, frozen=True):
    """Who produced an output: the provider, the API (a wire format) and the model. Opaque reasoning goes back only there."""

    provider: str = ""
    format: str = ""
    model: str = ""

    @property
    def name(self) -> str:
        """`provider/model`, or the one of them that is known."""
        return "/".join(filter(None, (self.provider, self.model)))


class HistoryEntry(_Stored, frozen=True, kw_only=True, tag_field="kind"):
    """One thing that happened."""

    sequence_number: int = 0
    timestamp: datetime | None = None
    metadata: EntryMetadata | None = None

    @property
    def kind(self) -> str:
        """The kind of the entry, as it is stored; one of `HistoryEntryKind` unless a newer version wrote it."""
        return str(self.__struct_config__.tag)

    def to_messages(self) -> list[dict[str, Any]]:
        """The entry as messages of OpenAI Chat; empty for a mark, a note, a rollback.

        For a list that follows a history: `history.on_append(lambda entry: messages.extend(entry.to_messages()))`.
        """
        interchange: Any = load_part(EXTENSIONS, "interchange", "messages of provider formats")
        messages: list[dict[str, Any]] = interchange.write_entry(self)
        return messages

    def extra(self, name: str) -> Any:
        """What the metadata has under `name` in `extra`; None if they have nothing there."""
        metadata = self.metadata
        return metadata.extra.get(name) if metadata is not None and metadata.extra else None


HAND_OFF = "hand_off"
"""Where the metadata of an agent's instruction say from whom it took over, and why."""


class SetSystemInstructionEntry(HistoryEntry, frozen=True, tag="set_system_instruction"):
    """From here on, this is the system instruction."""

    text: str

    @property
    def hand_off(self) -> dict[str, str] | None:
        """Of an agent's instruction: `from` whom it took over and the `reason`, if any. None if it was not a hand-off."""
        hand_off: dict[str, str] | None = self.extra(HAND_OFF)
        return hand_off


class SetMemoryNotebookEntry(HistoryEntry, frozen=True, tag="set_memory_notebook"):
    """From here on, this is the text of the memory notebook."""

    content: str


class DebugLogEntry(HistoryEntry, frozen=True, tag="debug_log"):
    """A note for people who inspect the history. No model sees it."""

    category: str
    message: str


class ModelInputEntry(HistoryEntry, frozen=True, tag="model_input"):
    """The input of the model. `channel`: who sent it (`user`, or an operator's `system`); `raw_input`: as it was typed."""

    content: tuple[InputPart, ...]
    channel: str = "user"
    raw_input: str | None = None

    @classmethod
    def of(cls, *content: InputPart | str, channel: str = "user") -> ModelInputEntry:
        """An input of these parts; plain strings become `Text`."""
        return cls(as_parts(content), channel)

    @property
    def role(self) -> ContextEntryRole:
        return ContextEntryRole.MODEL_INPUT

    @property
    def tool_calls(self) -> tuple[ToolCallRequest, ...]:
        return ()

    @property
    def live_screen(self) -> str | None:
        return None

    def with_live_screen(self, live_screen: str) -> DecoratedContextEntry:
        """This input as it is shown now, with what is on the LiveScreen; the entry itself stays as it is."""
        return DecoratedContextEntry(self, live_screen)


class ModelOutputEntry(HistoryEntry, frozen=True, tag="model_output"):
    """What one inference produced, in order: thinking, words and the calls it wants made."""

    content: tuple[OutputPart, ...]
    stop_reason: str = ""
    origin: Origin | None = None

    @classmethod
    def of(cls, *content: OutputPart | str, origin: Origin | None = None) -> ModelOutputEntry:
        """An output of these parts; plain strings become `Text`."""
        return cls(as_parts(content), origin=origin)

    @property
    def role(self) -> ContextEntryRole:
        return ContextEntryRole.MODEL_OUTPUT

    @property
    def tool_calls(self) -> tuple[ToolCallRequest, ...]:
        return tuple([part for part in self.content if type(part) is ToolCallRequest])

    @property
    def live_screen(self) -> str | None:
        return None

    @property
    def plan(self) -> str:
        """What the model thought before it answered."""
        return "".join(part.text for part in self.content if type(part) is Thinking)

    @property
    def response_markdown(self) -> str:
        """The text of the answer."""
        return text_of(self.content)


class ToolCallResultsEntry(HistoryEntry, frozen=True, tag="tool_call_results"):
    """The results of the calls of one output, in the order of its calls."""

    results: tuple[ToolCallResult, ...]
    overall_result: str = ""

    @property
    def role(self) -> ContextEntryRole:
        return ContextEntryRole.TOOL_RESULT

    @property
    def content(self) -> tuple[Part, ...]:
        """The results, and after them the overall result if there is one."""
        return (*self.results, Text(self.overall_result)) if self.overall_result else self.results

    @property
    def tool_calls(self) -> tuple[ToolCallRequest, ...]:
        return ()

    @property
    def live_screen(self) -> str | None:
        return None

    def with_live_screen(self, live_screen: str) -> DecoratedContextEntry:
        """These results as they are shown now, with what is on the LiveScreen; the entry itself stays as it is."""
        return DecoratedContextEntry(self, live_screen)


class ToolCallStartedEntry(HistoryEntry, frozen=True, tag="tool_call_started"):
    """A tool is about to run. If no result follows, the call may have half-run when the process stopped.

    `arguments` are what it runs with, if a hook changed those of the call; the digest in the metadata is always of what runs.
    """

    tool_name: str
    tool_call_id: str
    idempotency_key: str = ""
    arguments: str | None = None


class ToolCallFinishedEntry(HistoryEntry, frozen=True, tag="tool_call_finished"):
    """One of several calls ended while others still run or wait. The results of all follow as one entry."""

    result: ToolCallResult


class ApprovalRequestedEntry(HistoryEntry, frozen=True, tag="approval_requested"):
    """These calls run only after a person allowed them (law L11), whatever the process that resumes the turn is set up to ask.

    It is written before the output that makes the calls, so that no crash and no rollback separates a call from it; or later,
    when a process with other settings finds that a call needs a person. `metadata.source` is the agent that made the calls.
    """

    tool_call_ids: tuple[str, ...]
    reason: str = ""


class HumanDecisionEntry(HistoryEntry, frozen=True, tag="human_decision"):
    """A person allowed a call, denied it, or changed its arguments."""

    tool_call_id: str
    decision: Literal["approve", "deny", "edit"]
    reason: str = ""
    arguments: str | None = None


class LiveContextInjectedEntry(HistoryEntry, frozen=True, tag="live_context_injected"):
    """What a call was shown beyond the log: the LiveScreen, and the entry it was shown with."""

    live_screen: str
    decorated: int


class RollbackEntry(HistoryEntry, frozen=True, tag="rollback"):
    """The history is again what it was at version `to`, except that the entries `kept` still count.

    Everything that came after `to` stays in the log. `kept` are sequence numbers after `to`, in ascending order.
    """

    to: int
    reason: str = ""
    kept: tuple[int, ...] = ()


class CompactionEntry(HistoryEntry, frozen=True, tag="compaction"):
    """A segment: for the model, a summary takes the place of the entries `since` to `up_to`. They stay in the log.

    Without a summary they are left out. The entries `kept` stay as they are, and so does a call that had no result yet. A segment
    takes the place of every earlier one that begins in its range; nothing before `since` changes (law L9).
    """

    summary: str
    up_to: int
    since: int = 0
    kept: tuple[int, ...] = ()
    native: Native | None = None
    """The provider's own block, if it made the summary; for every other model there is the text."""


class ShortenedResultsEntry(HistoryEntry, frozen=True, tag="shortened_results"):
    """For the model, each result of the entries `since` to `up_to` has at most `max_chars` characters; 0: a note only.

    The notes say how much is left out and how to get it back (`recall`). The entries `kept` stay as they are.
    """

    since: int
    up_to: int
    max_chars: int = 0
    kept: tuple[int, ...] = ()


class OpaqueEntry(HistoryEntry, frozen=True, tag="opaque"):
    """An entry a newer version wrote: kept as the bytes it came in, written back as them, shown to no model."""

    stored_kind: str
    raw: bytes
    why: str

    @property
    def kind(self) -> str:
        return self.stored_kind


KnownEntry: TypeAlias = (
    SetSystemInstructionEntry
    | SetMemoryNotebookEntry
    | DebugLogEntry
    | ModelInputEntry
    | ModelOutputEntry
    | ToolCallResultsEntry
    | ToolCallStartedEntry
    | ToolCallFinishedEntry
    | ApprovalRequestedEntry
    | HumanDecisionEntry
    | LiveContextInjectedEntry
    | RollbackEntry
    | CompactionEntry
    | ShortenedResultsEntry
)
"""Every entry this version reads and writes."""

Observation: TypeAlias = ModelInputEntry | ToolCallResultsEntry
"""What a model reacts to: the entries that can carry a LiveScreen."""

TITLES: Mapping[str, str] = MappingProxyType(
    {kind.value: "".join(word.capitalize() for word in kind.value.split("_")) for kind in HistoryEntryKind}
)
"""The terms a reader of a history sees: `model_input` is ModelInput."""


class DecoratedContextEntry(Struct, frozen=True):
    """An observation with what is on the LiveScreen at this moment. It is shown, and cannot be appended."""

    entry: Observation
    live_screen: str

    @property
    def role(self) -> ContextEntryRole:
        return self.entry.role

    @property
    def content(self) -> tuple[Part, ...]:
        return self.entry.content

    @property
    def tool_calls(self) -> tuple[ToolCallRequest, ...]:
        return ()
