"""Messages: `make_entry` makes an entry of one, checked by role before it reaches the log, and `PartsTracker` one of an
answer, of its deltas; `MessageList` adds and shows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Literal, TypeAlias

from msgspec import structs

from antiphon.context import LiveContext, LiveContextRenderer
from antiphon.conversation.inbox import put_result, put_steering
from antiphon.conversation.turn import kept_settings
from antiphon.errors import ConversationError
from antiphon.history import (
    AgentHistory,
    AgentHistorySnapshot,
    CompactionEntry,
    ContextEntry,
    ContextEntryRole,
    EntryMetadata,
    HistoryEntry,
    ModelInputEntry,
    ModelOutputEntry,
    Origin,
    RollbackEntry,
    SetMemoryNotebookEntry,
    SetSystemInstructionEntry,
    ToolCallResultsEntry,
)
from antiphon.parts import InputPart, OutputPart, Part, Text, Thinking, ToolCallRequest, ToolCallResult, as_parts
from antiphon.providers.call import ProviderCallOptions
from antiphon.wire.delta import Assembler

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]

ROLES = {
    "user": ContextEntryRole.MODEL_INPUT,
    "assistant": ContextEntryRole.MODEL_OUTPUT,
    "tool": ContextEntryRole.TOOL_RESULT,
    "system": ContextEntryRole.SYSTEM,
}
"""The providers' role names and ours."""


_MESSAGES = frozenset({ModelInputEntry, ModelOutputEntry, ToolCallResultsEntry})
_CHANGING = frozenset({RollbackEntry, CompactionEntry, SetSystemInstructionEntry, SetMemoryNotebookEntry})
_CHANGING_SUMMARISED = _CHANGING | {ToolCallResultsEntry}


def parse_role(role: str) -> ContextEntryRole:
    """The role by our name or by the providers'."""
    if role not in ROLES and role not in list(ContextEntryRole):
        raise ConversationError(f"unknown role {role!r}: expected {', '.join(ROLES)}")
    return ROLES[role] if role in ROLES else ContextEntryRole(role)


def make_entry(role: str, content: Sequence[Any]) -> HistoryEntry:
    """A message of `role` as an entry. Strings become text; a single entry is returned unchanged."""
    if len(content) == 1 and isinstance(content[0], HistoryEntry):
        return content[0]
    if role == "system":
        return SetSystemInstructionEntry("".join(map(_text, content)))
    parts: tuple[Any, ...] = as_parts(map(_part, content))
    if role == "tool":
        if not parts or not all(isinstance(part, ToolCallResult) for part in parts):
            raise ConversationError("a tool's message is made of ToolCallResult parts; see ToolCallResult.of(call, …)")
        return ToolCallResultsEntry(parts)
    if role not in ("user", "assistant"):
        raise ConversationError(f"unknown role {role!r}: expected {', '.join(ROLES)}")
    if not has_content(parts):
        raise ConversationError(f"empty {role} message")
    allowed: Any = InputPart if role == "user" else Part
    for part in parts:
        if not isinstance(part, allowed) or isinstance(part, ToolCallResult):
            raise ConversationError(f"a {type(part).__name__} cannot be part of a message of the {role}")
    return ModelInputEntry(parts) if role == "user" else ModelOutputEntry(parts)


def has_content(parts: Sequence[Part]) -> bool:
    """Whether a message has anything a model or a person could read."""
    return any(not isinstance(part, Text) or part.text for part in parts)


def make_entries(role: str, messages: Sequence[Any]) -> list[HistoryEntry]:
    """One message of `role`, entries, or messages as providers write them. Raises `ConversationError` before anything is
    appended."""
    if len(messages) > 1 and all(isinstance(message, HistoryEntry) for message in messages):
        return [make_entry(role, (message,)) for message in messages]
    if not any(isinstance(message, Mapping) for message in messages):
        return [make_entry(role, messages)]
    from antiphon.conversation.interchange import read_message

    if not all(isinstance(message, Mapping) for message in messages):
        raise ConversationError("give messages as mappings, or strings and parts, not both in one call")
    return [entry for message in messages for entry in read_message(message)]


class PartsTracker(Assembler):
    """Puts the deltas of one model call together. `replaced` are parts that a hook put in place of them."""

    replaced: tuple[OutputPart, ...] | None = None

    @property
    def final_parts(self) -> tuple[OutputPart, ...]:
        """The parts as the hooks left them."""
        return self.parts if self.replaced is None else self.replaced

    def entry(
        self, origin: Origin, used_ids: Set[str], metadata: EntryMetadata, ended: str = ""
    ) -> ModelOutputEntry | None:
        """The entry for the log, or None if the answer is empty. `ended` marks an answer that was not finished."""
        parts = self.parts if self.replaced is None else self.replaced
        if ended or (len(parts) == 1 and getattr(parts[0], "text", None) == ""):
            parts = tuple([part for part in parts if not _is_empty(part)])
            if ended and not parts:
                return None
        if ToolCallRequest in map(type, parts):
            parts = _with_unique_ids(parts, used_ids)
        return ModelOutputEntry(parts, ended or self.stop_reason, origin, metadata=metadata)


def _is_empty(part: OutputPart) -> bool:
    return type(part) in (Text, Thinking) and not part.text and not part.native  # type: ignore[union-attr]


def _with_unique_ids(parts: tuple[OutputPart, ...], used: Set[str]) -> tuple[OutputPart, ...]:
    """The parts, each call under an id that no other call of the history has."""
    if len(parts) == 1 and (only := parts[0].tool_call_id) and only not in used:  # type: ignore[union-attr]  # a call
        return parts
    ids = [part.tool_call_id for part in parts if type(part) is ToolCallRequest]
    if all(ids) and used.isdisjoint(ids) and len(ids) == len(set(ids)):
        return parts
    taken: set[str] = set()
    unique: list[OutputPart] = []
    for part in parts:
        if type(part) is ToolCallRequest:
            call_id = part.tool_call_id
            stem, number = call_id or f"call_{part.tool_name}", 1
            while not call_id or call_id in taken or call_id in used:
                number += 1
                call_id = f"{stem}_{number}"
            taken.add(call_id)
            part = structs.replace(part, tool_call_id=call_id)
        unique.append(part)
    return tuple(unique)


class MessageCount:
    """The number of messages of a growing history, at the cost of what is new."""

    def __init__(self) -> None:
        self._version = self._count = 0

    def update(self, snapshot: AgentHistorySnapshot, recount: Callable[[], int]) -> int:
        """The number at `snapshot`; `recount` is called where a new entry changes more than itself."""
        new = [entry for entry in snapshot.since(self._version) if type(entry) is not ModelOutputEntry or entry.content]
        kinds = list(map(type, new))
        # Late results restore an output that a summary replaced.
        changing = _CHANGING if snapshot.compaction is None else _CHANGING_SUMMARISED
        if changing.isdisjoint(kinds):
            self._count += sum(kind in _MESSAGES for kind in kinds)
        else:
            self._count = recount()
        self._version = snapshot.version
        return self._count


def _part(part: object) -> Any:
    if not isinstance(part, str | Part):
        raise ConversationError(f"not a message part: expected a string or part, got {type(part).__name__}")
    return part


def _text(part: object) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Text):
        return part.text
    raise ConversationError(f"a system instruction is text, not {type(part).__name__}")


class MessageList:
    """The messages of a thread: what a conversation has in it."""

    history: AgentHistory
    call_options: ProviderCallOptions

    def __init__(self, renderer: LiveContextRenderer) -> None:
        self._renderer = renderer
        self._message_count = MessageCount()

    def add(self, *content: Part | str | HistoryEntry | Mapping[str, Any], role: Role = "user") -> int:
        """Append a message and return how many there are. Strings become text; entries are appended as they are.

        A mapping is a message as providers write it: `{"role": "user", "content": "…"}`, in any provider format.
        """
        for entry in make_entries(role, content):
            self.history.append(entry)
        return self._message_count.update(self.history.snapshot(), lambda: len(self.messages))

    def steer(self, *content: InputPart | str, key: str = "") -> str:
        """Send a message to the run that is going on, from any thread or process, and return its key.

        It is taken into the log before the next model call, exactly once: the same `key` again changes nothing. It begins no run,
        so limits go on. If no run is going on, the next one begins with it: `ToolLoop(chat).run()`.
        """
        entry = make_entry("user", content)
        if not isinstance(entry, ModelInputEntry):
            raise ConversationError(f"steer() takes text or parts, not a {entry.kind} entry")
        return put_steering(self.history.inbox, entry, key)

    def settle(self, tool_call_id: str, result: Any) -> None:
        """Bring the result of a call from outside, for a tool that returned `Settled.later()`: whatever a tool may return.

        Any process may do that. It is taken into the log when the run continues (`ToolLoop(chat).run()`), once. Raises
        `ConversationError` if the call is not open: it has a result already, or there is none of that id.
        """
        put_result(self.history, tool_call_id, result)

    def clear(self, *, keep_notebook: bool = True) -> None:
        """Start again with the same system instruction and notebook. The log keeps the old entries; a rollback restores them."""
        self.history.rollback(0, "cleared", kept=kept_settings(self.history, keep_notebook=keep_notebook))

    @property
    def messages(self) -> tuple[ContextEntry, ...]:
        """The messages of the thread, the system message first, if there is one, as an immutable copy."""
        return tuple(
            entry
            for entry in self._render()
            if isinstance(entry, HistoryEntry) or entry.role is ContextEntryRole.SYSTEM
        )

    def to_messages(self, format: str = "openai-chat") -> list[dict[str, Any]]:  # noqa: A002
        """The thread in a provider's format, the system message first; Chat Completions in `call_options.strategy`."""
        strategy = self.call_options.strategy if format == "openai-chat" else "merged"
        return self.history.to_messages(format, strategy=strategy)

    def recent(self, count: int) -> tuple[ContextEntry, ...]:
        """The last `count` messages, or all if there are fewer."""
        if count < 0:
            raise ConversationError(f"count={count}: must not be negative")
        return self.messages[-count:] if count else ()

    def by_role(self, role: Role | ContextEntryRole) -> tuple[ContextEntry, ...]:
        """The messages of one role, by our name or by the providers' (`user`, `assistant`, `tool`, `system`)."""
        wanted = parse_role(role)
        return tuple(entry for entry in self.messages if entry.role is wanted)

    def _render(self) -> LiveContext:
        """The thread as the model sees it, without limits and live screen."""
        return self._renderer.render(self.history.snapshot())
