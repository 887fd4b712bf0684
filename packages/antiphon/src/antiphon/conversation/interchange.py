"""Histories as lists of messages in a provider's format, and back.

`read_messages` turns messages (OpenAI Chat, OpenAI Responses, Anthropic or Gemini) into entries. The sequence is repaired first,
so that every call has its result; the report lists the repairs and what a history does not keep. `write_messages` is the reverse:
the effective history as a model would be sent it, in one of three strategies for OpenAI Chat.

`AgentHistory.from_messages`, `AgentHistory.to_messages` and `HistoryEntry.to_messages` are the public names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct, structs

from antiphon.context import render_live_context
from antiphon.context.live import RenderedContextEntry
from antiphon.conversation.message import has_content
from antiphon.errors import ConversationError, WireError
from antiphon.history import (
    AgentHistory,
    ContextEntry,
    ContextEntryRole,
    EntryMetadata,
    HistoryEntry,
    ModelInputEntry,
    ModelOutputEntry,
    Origin,
    SetSystemInstructionEntry,
    ToolCallResultsEntry,
)
from antiphon.model_name import ModelName
from antiphon.parts import InputPart, Part, Refusal, Text, Thinking, ToolCallRequest, ToolCallResult
from antiphon.providers.rendering import messages_of
from antiphon.repair import Action, Repaired, repair
from antiphon.repair.foreign_blocks import read_foreign_blocks
from antiphon.wire import formats
from antiphon.wire.loss import Loss
from antiphon.wire.openai_chat.layouts import write_messages as write_chat_messages
from antiphon.wire.request import Layout, Message, ModelRequest
from antiphon.wire.spec import detect_format

STRATEGIES: tuple[Layout, ...] = ("merged", "per_part", "iterations")
_OPERATORS = ("system", "developer")
_NOT_HISTORY = "a setting of the request, not part of a history"
_INSTRUCTION_KEYS = frozenset({"system", "instructions", "systemInstruction", "system_instruction"})


class MessagesRead(Struct, frozen=True):
    """Entries read from messages, with the repairs of their sequence and the losses."""

    entries: tuple[HistoryEntry, ...]
    repairs: tuple[Action, ...] = ()
    losses: tuple[Loss, ...] = ()


class MessageSource(Struct, frozen=True):
    """What a session file knows about a message: where it is, when it was written and which model wrote it."""

    path: str
    timestamp: datetime | None = None
    model: str = ""


class MessagesWritten(Struct, frozen=True):
    """A history as the part of a request body that holds messages and instruction, with the repairs and losses."""

    body: dict[str, Any]
    messages: list[dict[str, Any]]
    repairs: tuple[Action, ...] = ()
    losses: tuple[Loss, ...] = ()


def read_messages(
    messages: Iterable[Mapping[str, Any]] | Mapping[str, Any],
    format: str,  # noqa: A002 - as in the design
    model: str = "",
) -> MessagesRead:
    """Entries of a list of messages, or of a whole request body.

    `model` is who wrote the answers (`anthropic/claude-…`): its signatures are then sent back to it. Raises `WireError`.
    """
    wire = _format(format)
    key = wire.spec.messages_key
    given: object = messages
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise WireError(f"not {format} messages: expected a list of messages or a body, got {type(given).__name__}")
    if isinstance(messages, Mapping):
        body = dict(messages)
        if key not in body:
            guess = detect_format(body)
            hint = f"; it looks like {guess}" if guess else f"; expected an object with {key!r} or a list of messages"
            raise WireError(f"not {format} messages{hint}")
    else:
        body = {key: list(messages)}
        guess = detect_format(body)
        if guess is not None and guess != format:
            raise WireError(f"not {format} messages; they look like {guess}")
    request = wire.read_request(body)
    repaired, actions = _repair_for_history(structs.replace(request, native=None), format)
    reader = _EntryReader(format)
    reader.losses += [Loss(name, name, _NOT_HISTORY) for name in _settings_of(request, body, key)]
    for position, message in enumerate(repaired.messages):
        reader.add(message, MessageSource(f"messages[{position}]", model=model or request.model))
    return MessagesRead(tuple(reader.entries()), tuple(actions), tuple(reader.losses))


def read_dated_messages(
    messages: Sequence[tuple[Message, MessageSource]],
    format: str,  # noqa: A002 - as in the design
) -> MessagesRead:
    """Entries of messages that each have a time, a model and a place of their own, as session files have them."""
    request = ModelRequest(messages=tuple(message for message, _ in messages))
    repaired, actions = _repair_for_history(request, format, is_logged=False)
    sources = {id(message): source for message, source in messages}
    reader = _EntryReader(format)
    source = MessageSource("")
    for message in repaired.messages:
        source = sources.get(id(message), source)  # one that repair made has the place and time of the one before it
        reader.add(message, source)
    return MessagesRead(tuple(reader.entries()), tuple(actions), tuple(reader.losses))


def read_message(message: Mapping[str, Any]) -> list[HistoryEntry]:
    """Entries of one message in any provider format. Raises `ConversationError`."""
    format_name = _message_format(message)
    wire = formats[format_name]
    try:
        request = wire.read_request({wire.spec.messages_key: [dict(message)]})
    except WireError as error:
        raise ConversationError(f"not a message: {error}") from error
    reader = _EntryReader(format_name)
    for position, read in enumerate(read_foreign_blocks(request.messages, [])):
        reader.add(read, MessageSource(f"messages[{position}]"))
    entries = reader.entries()
    if not entries:
        raise ConversationError(f"empty {message.get('role', 'unknown')} message")
    return entries


def write_messages(history: AgentHistory, format: str = "openai-chat", strategy: Layout = "merged") -> MessagesWritten:  # noqa: A002
    """The effective history as messages of a format, as a model would be sent them now.

    `strategy` (OpenAI Chat only): `merged` has one assistant message per round; `per_part` one message per part, each call
    followed by its result; `iterations` gives the messages of each round a common name.
    """
    wire = _format(format)
    if strategy != "merged" and format != "openai-chat":
        raise WireError(f"strategy {strategy!r} exists for openai-chat only; {format} has one layout")
    losses: list[Loss] = []
    neutral: list[Message] = []
    for entry in render_live_context(history.snapshot()):
        neutral += _neutral_messages(entry, format, len(neutral), losses)
    request, actions = repair(ModelRequest(messages=tuple(neutral)), format)
    if format == "openai-chat":
        messages = _chat_messages(request.messages, losses, strategy)
        return MessagesWritten({"messages": messages}, messages, tuple(actions), tuple(losses))
    body, lost = wire.write_request(request)
    kept = {name: value for name, value in body.items() if name in _INSTRUCTION_KEYS or name == wire.spec.messages_key}
    return MessagesWritten(kept, list(body[wire.spec.messages_key]), tuple(actions), (*losses, *lost))


def write_entry(entry: HistoryEntry) -> list[dict[str, Any]]:
    """One entry as messages of OpenAI Chat; none for an entry without one. The rest of the history is not looked at."""
    shown: Any = entry
    if isinstance(entry, SetSystemInstructionEntry):
        shown = RenderedContextEntry(ContextEntryRole.SYSTEM, (Text(entry.text),))
    elif getattr(entry, "role", None) is None:
        return []
    return _chat_messages(_neutral_messages(shown, "openai-chat", 0, []), [], "merged")


def _neutral_messages(entry: ContextEntry, format: str, position: int, losses: list[Loss]) -> Sequence[Message]:  # noqa: A002
    if isinstance(entry, ModelOutputEntry) and not has_content(entry.content):
        return ()
    origin = entry.origin if isinstance(entry, ModelOutputEntry) and _fits(entry.origin, format) else None
    written, lost = messages_of(entry, origin or Origin(format=format), position)
    losses += lost
    return written


def _chat_messages(messages: Sequence[Message], losses: list[Loss], strategy: Layout) -> list[dict[str, Any]]:
    written = write_chat_messages(messages, losses, layout=strategy)
    plain: list[dict[str, Any]] = msgspec.json.decode(msgspec.json.encode(written))
    return plain


def _repair_for_history(request: ModelRequest, format_name: str, *, is_logged: bool = True) -> Repaired:
    """Repair by the rule of the format, or by a stricter one where that accepts a result before its call: a history does not."""
    called: set[str] = set()
    for message in request.messages:
        called.update(part.tool_call_id for part in message.parts if isinstance(part, ToolCallRequest))
        if any(isinstance(part, ToolCallResult) and part.tool_call_id not in called for part in message.parts):
            rule = formats[format_name].spec.sequence_rule
            return repair(request, format_name if rule.results_follow_calls else "gemini", is_logged=is_logged)
    return repair(request, format_name, is_logged=is_logged)


class _EntryReader:
    """Collects entries; the results of adjacent messages become one entry, in the order of their calls."""

    def __init__(self, format_name: str) -> None:
        self.losses: list[Loss] = []
        self._format = format_name
        self._entries: list[HistoryEntry] = []
        self._names: dict[str, str] = {}
        self._results: list[ToolCallResult] = []
        self._results_time: datetime | None = None
        self._has_instruction = False

    def add(self, message: Message, source: MessageSource) -> None:
        path, time = source.path, source.timestamp
        results = [part for part in message.parts if isinstance(part, ToolCallResult)]
        others = tuple(part for part in message.parts if not isinstance(part, ToolCallResult))
        self._results += (
            structs.replace(result, tool_name=self._names.get(result.tool_call_id) or result.tool_name)
            for result in results
        )
        if results:
            self._results_time = time
        if results and not others:
            return
        self._flush()
        if not has_content(others):
            self.losses.append(Loss(path, "empty message", "an empty message is not stored"))
            return
        metadata = self._metadata(message, path)
        if message.role == "assistant":
            self._names.update((p.tool_call_id, p.tool_name) for p in others if isinstance(p, ToolCallRequest))
            origin = _origin(self._format, source.model)
            self._entries.append(ModelOutputEntry(others, origin=origin, metadata=metadata, timestamp=time))
        elif message.role == "system" and not self._has_instruction and not self._entries:
            self._has_instruction = True
            instruction = self._instruction(others, path)
            self._entries.append(SetSystemInstructionEntry(instruction, metadata=metadata, timestamp=time))
        else:
            channel = message.role if message.role in _OPERATORS else "user"
            content = tuple(map(_input_part, others))
            self._entries.append(ModelInputEntry(content, channel, metadata=metadata, timestamp=time))

    def entries(self) -> list[HistoryEntry]:
        """The entries read so far."""
        self._flush()
        return self._entries

    def _flush(self) -> None:
        if self._results:
            self._entries.append(ToolCallResultsEntry(tuple(self._results), timestamp=self._results_time))
            self._results = []

    def _instruction(self, parts: Sequence[Part], path: str) -> str:
        for index, part in enumerate(parts):
            if not isinstance(part, Text):
                what = type(part).__name__.lower()
                self.losses.append(Loss(f"{path}.parts[{index}]", what, "a system instruction is text"))
            elif part.native:
                fields = ", ".join(name for extras in part.native.values() for name in extras)
                self.losses.append(Loss(f"{path}.parts[{index}]", fields, "a system instruction is text"))
        return "\n\n".join(part.text for part in parts if isinstance(part, Text))

    def _metadata(self, message: Message, path: str) -> EntryMetadata | None:
        extra: dict[str, Any] = {}
        if message.name is not None:
            extra["name"] = message.name
        if message.native:
            extra["native"] = message.native
        for name in extra:
            self.losses.append(Loss(f"{path}.{name}", name, "kept in the metadata of the entry, not sent to models"))
        return EntryMetadata(source="import", extra=extra) if extra else None


def _input_part(part: Part) -> InputPart:
    """A part of an input. What only a model writes becomes text, and its calls are not accepted."""
    if isinstance(part, Thinking | Refusal):
        return Text(part.text)
    if isinstance(part, ToolCallRequest | ToolCallResult):
        raise ConversationError(f"a {type(part).__name__} cannot be part of a message of the user")
    return part


def _format(name: str) -> Any:
    if name not in formats:
        raise WireError(f"unknown format {name!r}; expected one of: {', '.join(formats)}")
    return formats[name]


def _origin(format_name: str, model: str) -> Origin:
    provider, name = ModelName.parse(model)
    return Origin(provider, format_name, name)


def _fits(origin: Origin | None, format_name: str) -> bool:
    return origin is not None and origin.format == format_name


def _settings_of(request: ModelRequest, body: Mapping[str, Any], key: str) -> Iterator[str]:
    has_instruction = any(message.role == "system" for message in request.messages)
    for name, value in body.items():
        if name in (key, "model") or value is None or (has_instruction and name in _INSTRUCTION_KEYS):
            continue
        yield name


def _message_format(message: Mapping[str, Any]) -> str:
    if not {"role", "parts", "type"} & message.keys():
        raise ConversationError('not a message: expected an object such as {"role": "user", "content": "…"}')
    if "parts" in message:
        return "gemini"
    if "role" not in message or message.get("type") == "message":
        return detect_format({"input": [dict(message)]}) or "openai-responses"
    if message["role"] not in ("user", "assistant", "system", "developer", "tool", "function"):
        raise ConversationError(
            f"unknown role {message['role']!r}: expected user, assistant, system, developer or tool"
        )
    return detect_format({"messages": [dict(message)]}) or "openai-chat"
