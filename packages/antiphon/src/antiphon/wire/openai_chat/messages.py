"""The messages of a request, read and written.

Reading: text, calls and text results without other fields are typed entries; every other message is read field by field and
keeps what no part holds as native extras. A message of unknown shape stays whole: `Message("unknown", (Native(FORMAT, it),))`.

Writing: a message with results becomes one tool message per result, then a message with the other parts. Media that only a user
message may hold (OC-30) is deferred: a marker stays in its position, and a user message after the tool messages has it. No other
message is moved, so a legal sequence stays legal and later messages change nothing (L9).

Normalisations: a single text is a string; null, absent and empty content are the same, written as "" where null is refused
(OC-10); a missing `tool_call_id` is empty; an empty `name` is absent; other content of a tool message becomes its JSON text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from antiphon.parts import (
    Audio,
    Document,
    Image,
    Native,
    Part,
    Refusal,
    Text,
    Thinking,
    ToolCallRequest,
    ToolCallResult,
    ToolExecutionStatus,
)
from antiphon.wire import FORMATS
from antiphon.wire.capabilities import Capabilities
from antiphon.wire.codec.typed_reader import ANY_TEXT, EntryReader, OnlyTextBlock, call_with_id, result_with_id
from antiphon.wire.loss import Loss, lose_native, other_fields, own_extras
from antiphon.wire.openai_chat import FORMAT
from antiphon.wire.openai_chat.assistant import AssistantWriter, defer_media, read_assistant, read_blocks
from antiphon.wire.openai_chat.content import canonical_json, read_content, read_part, write_part
from antiphon.wire.openai_chat.dialects import Dialect
from antiphon.wire.openai_chat.limits import MAX_PARTICIPANT_NAME, PARTICIPANT_NAMES, legal_participant_name
from antiphon.wire.openai_chat.tools import is_object
from antiphon.wire.request import Message
from antiphon.wire.tool_calls import LEGACY_FUNCTION, LEGACY_FUNCTION_EXTRAS, is_legacy_function
from antiphon.wire.vendors.openai import OPENAI, collapse_text, mark_failed

_SUCCESS = ToolExecutionStatus.SUCCESS
_MEDIA = (Image, Audio, Document)
_WIRE_ORIGINS = (*FORMATS, OPENAI)
_BETWEEN_TOOL_AND_USER = {"role": "assistant", "content": "OK."}


class _Function(Struct, forbid_unknown_fields=True, gc=False):
    name: str
    arguments: str


class _Call(Struct, forbid_unknown_fields=True, gc=False):
    id: str
    type: Literal["function"]
    function: _Function


class _Assistant(Struct, forbid_unknown_fields=True, gc=False, tag_field="role", tag="assistant"):
    content: str | list[Any] | None = None
    tool_calls: list[_Call] | UnsetType = UNSET
    refusal: None = None


class _Result(Struct, forbid_unknown_fields=True, gc=False, tag_field="role", tag="tool"):
    tool_call_id: str
    content: str | list[Any]
    name: str | UnsetType = UNSET


class _User(Struct, forbid_unknown_fields=True, gc=False, tag_field="role", tag="user"):
    content: str | list[Any]


class _System(Struct, forbid_unknown_fields=True, gc=False, tag_field="role", tag="system"):
    content: str | list[Any]


class _Developer(Struct, forbid_unknown_fields=True, gc=False, tag_field="role", tag="developer"):
    content: str | list[Any]


TypedMessage = _Assistant | _Result | _User | _System | _Developer
_ROLES: dict[type, str] = {_User: "user", _System: "system", _Developer: "developer"}


class MessageListReader:
    """Reads the messages of one request."""

    def __init__(self, _unread: dict[str, Any]) -> None:
        self._messages: list[Message] = []
        self._functions: dict[str, str] = {}  # the ids of legacy function calls by name

    def add_typed(self, entries: Sequence[TypedMessage]) -> bool:
        """Add typed messages; False at the first that must be read generically."""
        add = self._messages.append
        for entry in entries:
            content: Any = entry.content
            if type(entry) is _Result:
                name = entry.name or ""  # UNSET is false
                result = (Text(content),) if type(content) is str else _result_parts(content)
                add(Message("tool", (ToolCallResult(name, entry.tool_call_id, _SUCCESS, result),)))
            elif type(entry) is _Assistant:
                if type(content) is str:
                    if entry.tool_calls is UNSET:
                        add(Message("assistant", (Text(content),)))
                        continue
                    parts: list[Any] = [Text(content)]
                else:
                    blocks = [] if content is None else read_blocks(content)
                    if blocks is None:
                        return False
                    parts = [*blocks]
                if entry.tool_calls is not UNSET:
                    for call in entry.tool_calls:
                        function = call.function
                        parts.append(ToolCallRequest(function.name, call.id, function.arguments))
                add(Message("assistant", tuple(parts)))
            elif type(content) is str:
                add(Message(_ROLES[type(entry)], (Text(content),)))
            else:
                add(Message(_ROLES[type(entry)], tuple(read_content(content))))
        return True

    def add_generic(self, message: Any) -> None:
        """Add a message of any shape."""
        self._messages.append(self._read(message, len(self._messages)))

    def finish(self) -> tuple[Message, ...]:
        """The messages in their order and grouping."""
        return tuple(self._messages)

    def _read(self, message: Any, index: int) -> Message:
        read = None
        role = message.get("role") if type(message) is dict else None
        if role in ("tool", "function"):
            return _read_result(message, index, self._functions)
        if role is not None and type(message.get("name")) in (str, type(None)):
            if role == "assistant":
                read = self._read_assistant(message, index)
            elif role in ("user", "system", "developer"):
                parts = _content_parts(message.get("content"))
                if parts is not None:
                    native = _extras(message, "role", "content", "name")
                    read = Message(role, tuple(parts), message.get("name"), native)
        return read or Message("unknown", (Native(FORMAT, message),))

    def _read_assistant(self, message: dict[str, Any], index: int) -> Message | None:
        read = read_assistant(message, index)
        if read is None:
            return None
        name = read.extras.pop("name", None)
        for part in read.parts:
            if type(part) is ToolCallRequest and is_legacy_function(part.native):
                self._functions[part.tool_name] = part.tool_call_id
        return Message("assistant", tuple(read.parts), name, {FORMAT: read.extras} if read.extras else None)


_entries = EntryReader(TypedMessage, MessageListReader)


def read_messages(messages: list[Any]) -> tuple[Message, ...]:
    """The messages of a list of decoded JSON."""
    return _entries.read(messages, {})


def _extras(message: dict[str, Any], *known: str) -> dict[str, dict[str, Any]] | None:
    extras = other_fields(message, known)
    return {FORMAT: extras} if extras else None


def _content_parts(content: Any) -> list[Any] | None:
    if type(content) is str:
        return [Text(content)]
    if content is None:
        return []
    return read_content(content) if type(content) is list else None


def _read_result(message: dict[str, Any], index: int, functions: dict[str, str]) -> Message:
    """A result, whatever the shape of the message: it must reach the model."""
    parts, call_id = _result_parts(message.get("content")), message.get("tool_call_id")
    name = message["name"] if type(message.get("name")) is str else ""
    if message["role"] == "function":
        if name:
            call_id = functions.get(name, f"call_function_{index}")
            result = ToolCallResult(name, call_id, _SUCCESS, parts, native=LEGACY_FUNCTION_EXTRAS)
            return Message("tool", (result,), None, _extras(message, "role", "content", "name"))
        call_id = call_id or f"call_function_{index}"
    if call_id is not None and type(call_id) is not str:
        call_id = canonical_json(call_id)
    extras = _extras(message, "role", "content", "name", "tool_call_id")
    return Message("tool", (ToolCallResult(name, call_id or "", _SUCCESS, parts),), None, extras)


def _result_parts(content: Any) -> tuple[Any, ...]:
    """The content of a tool message; anything that is not content becomes its JSON text."""
    if type(content) is str:
        return (Text(content),)
    if content is None:
        return ()
    if type(content) is not list:
        return (Text(canonical_json(content)),)
    return tuple([_result_part(part) for part in content])


def _result_part(part: Any) -> Any:
    if type(part) is not dict or type(part.get("type")) is not str:
        return Text(canonical_json(part))
    read = read_part(part)
    if isinstance(read, Thinking | Refusal):  # a result holds their text, or all of it as JSON
        return Text(read.text if read.native is None else canonical_json(part))
    return read


class ScannedMessage(Struct, forbid_unknown_fields=True, gc=False):
    """A message whose texts are not needed: only text, calls and text results."""

    role: Literal["user", "assistant", "tool", "system", "developer"]
    content: str | list[OnlyTextBlock] | None = None
    tool_calls: list[_Call] | UnsetType = UNSET
    tool_call_id: str | UnsetType = UNSET
    name: str | UnsetType = UNSET


_TEXT_MESSAGES = {role: Message(role, ANY_TEXT) for role in ("user", "assistant", "system", "developer")}


def scan_message(entry: ScannedMessage) -> Message | None:
    """The message with only the ids of its calls and results; None if the request must be read whole."""
    calls, call_id, role = entry.tool_calls, entry.tool_call_id, entry.role
    if role == "tool":
        if call_id is UNSET or calls is not UNSET or entry.content is None:
            return None
        return Message("tool", (result_with_id(call_id),))
    if call_id is not UNSET or entry.name is not UNSET:
        return None
    if calls is UNSET:
        return None if entry.content is None else _TEXT_MESSAGES[role]
    if role != "assistant" or not calls:
        return None
    return Message("assistant", tuple([call_with_id(call.id) for call in calls]))


class MessageListWriter:
    """Writes the messages of one request.

    `model` limits the media. `accepts_system` is False for models without a system role (OC-02). `thinking_enabled`: the request
    asks for thinking.
    """

    def __init__(
        self,
        losses: list[Loss],
        dialect: Dialect,
        model: Capabilities | None = None,
        *,
        accepts_system: bool = True,
        thinking_enabled: bool = False,
    ) -> None:
        self._model = model
        self._losses = losses
        self._dialect = dialect
        self._legal_id, self._legal_name = dialect.id_rule.to_wire, dialect.name_rule.to_wire
        self._roles = {
            "user": "user",
            "system": "system" if accepts_system else "user",
            "developer": ("developer" if dialect.has_developer_role else "system") if accepts_system else "user",
        }
        self._written: list[Any] = []
        self._deferred_media: list[Any] = []
        self._reasoning_placeholder = (
            dialect.reasoning_field if dialect.requires_reasoning and thinking_enabled else None
        )
        self._assistant = AssistantWriter(losses, dialect, self._deferred_media, model)

    def write(self, messages: Sequence[Message]) -> list[Any]:
        add, legal_id, safe_name = self._written.append, self._legal_id, self._legal_name
        roles, repairs = self._roles, self._dialect.parses_arguments
        splits_users, no_content = not self._dialect.accepts_user_after_tool, self._dialect.empty_content
        for index, message in enumerate(messages):
            role, parts = message.role, message.parts
            if message.native is None and message.name is None and not self._deferred_media and parts:
                part: Any = parts[0]
                if type(part) is Text and len(parts) == 1:
                    if part.native is None and (role == "assistant" or (roles.get(role) == role and not splits_users)):
                        add({"role": role, "content": part.text})
                        continue
                elif role == "assistant":
                    text, calls = no_content, []
                    for part in parts:
                        if type(part) is ToolCallRequest:
                            arguments = part.arguments
                            if part.native is not None or part.freeform or (repairs and not is_object(arguments)):
                                break
                            called = {"name": safe_name(part.tool_name), "arguments": arguments}
                            calls.append({"id": legal_id(part.tool_call_id), "type": "function", "function": called})
                        elif type(part) is Text and text is no_content and not calls and part.native is None:
                            text = part.text
                        else:
                            break
                    else:
                        if calls and self._reasoning_placeholder is None:
                            add({"role": "assistant", "content": text, "tool_calls": calls})
                            continue
                elif (
                    type(part) is ToolCallResult
                    and (role == "tool" or role == "user")
                    and self._write_text_results(parts)
                ):
                    continue
            self._write(index, message)
        self._write_deferred_media()
        return self._written

    def _write_text_results(self, parts: tuple[Part, ...]) -> bool:
        """Write a message of text results only; False, and nothing written, if it has other parts."""
        legal_id, writes_name, results = self._legal_id, self._dialect.writes_result_name, []
        for part in parts:
            if type(part) is not ToolCallResult or part.native is not None or part.status is not _SUCCESS:
                return False
            content = part.content
            if len(content) != 1:
                return False
            (text,) = content
            if type(text) is not Text or text.native is not None:
                return False
            name, result = part.tool_name, {"role": "tool", "tool_call_id": legal_id(part.tool_call_id)}
            if name and writes_name:
                result["name"] = PARTICIPANT_NAMES.to_wire(name)
            result["content"] = text.text
            results.append(result)
        self._written += results
        return True

    def _write(self, index: int, message: Message) -> None:
        path = f"messages[{index}]"
        role, native = message.role, message.native
        lose_native(self._losses, path, native, FORMAT, OPENAI)
        if not any(type(part) is ToolCallResult for part in message.parts):
            self._write_deferred_media()
        if role == "assistant":
            self._write_assistant(path, message)
        elif role == "tool" or role in self._roles:
            self._write_other(path, message)
        else:
            self._write_unknown(path, message)

    def _write_unknown(self, path: str, message: Message) -> None:
        part = message.parts[0] if len(message.parts) == 1 else None
        if isinstance(part, Native) and part.origin == FORMAT:
            self._written.append(part.data)
            return
        if isinstance(part, Native):  # a message of another format: what can be read of it
            content = write_part(part, self._losses, f"{path}.parts[0]", self._dialect, self._model)
            if content:
                self._add({"role": "user", "content": collapse_text(content, "text")})
            return
        self._losses.append(Loss(f"{path}.role", "role", f'unknown role "{message.role}"; sent as user'))
        self._write_other(path, Message("user", message.parts, message.name, message.native))

    def _write_name(self, path: str, message: Message, written: dict[str, Any]) -> None:
        name = message.name
        if name is None:
            return
        if PARTICIPANT_NAMES.to_wire(name) != name:
            name = legal_participant_name(name)
            limit = f"name contains characters OpenAI rejects or exceeds {MAX_PARTICIPANT_NAME}"
            reason = f'{limit}; sent as "{name}" (OC-25)'
            self._losses.append(Loss(f"{path}.name", "name", reason))
        if name:
            written["name"] = name

    def _add(self, written: dict[str, Any]) -> None:
        if written["role"] == "user" and not self._dialect.accepts_user_after_tool and self._written:
            last = self._written[-1]
            if type(last) is dict and last.get("role") == "tool":
                self._written.append(dict(_BETWEEN_TOOL_AND_USER))
        self._written.append(written)

    def _write_deferred_media(self) -> None:
        if self._deferred_media:
            self._add({"role": "user", "content": self._deferred_media[:]})
            self._deferred_media.clear()

    def _write_other(self, path: str, message: Message) -> None:
        """A message of a user, system or tool: results first, then the other parts."""
        extras = own_extras(message.native, [], path, OPENAI, FORMAT)  # already reported
        content: list[Any] = []
        role = self._roles.get(message.role, "user")
        if role != message.role and message.role == "system":
            self._losses.append(Loss(f"{path}.role", "role", "model has no system role; sent as user (OC-02)"))
        has_results = False
        for index, part in enumerate(message.parts):
            where = f"{path}.parts[{index}]"
            if isinstance(part, ToolCallResult):
                self._write_result(where, part, extras if not has_results else {})
                has_results = True
            elif isinstance(part, Refusal):
                self._losses.append(
                    Loss(where, "refusal", "refusals are allowed only in assistant messages; sent as text")
                )
                inner_extras = own_extras(part.native, self._losses, where, OPENAI, FORMAT)
                content.append({"type": "text", "text": part.text, **inner_extras})
            elif isinstance(part, _MEDIA) and role != "user" and not self._dialect.allows_media_in_any_role:
                content += defer_media(
                    self._deferred_media, part, f"a {role} message", self._losses, where, self._dialect, self._model
                )
            else:
                content += write_part(part, self._losses, where, self._dialect, self._model)
        if has_results or message.role == "tool":
            if not content:
                if message.name is not None:
                    self._losses.append(Loss(f"{path}.name", "name", "a tool message has no participant name; dropped"))
                return
            extras = {}
        if self._deferred_media and role == "user":
            content = [*self._deferred_media, *content]
            self._deferred_media.clear()  # the assistant writer has the same list
        written = {"role": role, "content": collapse_text(content, "text") if content else "", **extras}
        self._write_name(path, message, written)
        self._add(written)

    def _write_result(self, path: str, part: ToolCallResult, extras: dict[str, Any]) -> None:
        content: list[Any] = []
        for index, block in enumerate(part.content):
            where = f"{path}.content[{index}]"
            if isinstance(block, _MEDIA) and not self._dialect.allows_media_in_any_role:
                origin = f"the result of {part.tool_name or part.tool_call_id or 'a call'}"
                content += defer_media(
                    self._deferred_media, block, origin, self._losses, where, self._dialect, self._model
                )
            elif isinstance(block, Native) and block.origin not in _WIRE_ORIGINS:
                content.append({"type": "text", "text": canonical_json(block.data)})
            else:
                content += write_part(block, self._losses, where, self._dialect, self._model)
        if part.status is not _SUCCESS:
            self._losses.append(
                Loss(f"{path}.status", "status", 'no error flag in this format; "Error:" added to the text')
            )
            content = mark_failed(content, "text")
        if is_legacy_function(part.native) and part.tool_call_id not in self._assistant.converted_legacy_calls:
            name = self._legal_name(part.tool_name)
            result = {"role": "function", "name": name, "content": collapse_text(content, "text") if content else None}
        else:
            result = {"role": "tool", "tool_call_id": self._legal_id(part.tool_call_id)}
            if part.tool_name and self._dialect.writes_result_name:
                result["name"] = PARTICIPANT_NAMES.to_wire(part.tool_name)
            result["content"] = collapse_text(content, "text") if content else ""
        if part.native is not None and part.native is not LEGACY_FUNCTION_EXTRAS:
            inner_extras = own_extras(part.native, self._losses, path, OPENAI, FORMAT)
            result.update((key, value) for key, value in inner_extras.items() if key != LEGACY_FUNCTION)
        result.update(extras)
        self._written.append(result)

    def _write_assistant(self, path: str, message: Message) -> None:
        written, results = self._assistant.write(message.parts, f"{path}.")
        if "tool_calls" in written and self._reasoning_placeholder is not None:
            written.setdefault(self._reasoning_placeholder, "")
        self._write_name(path, message, written)
        written.update(own_extras(message.native, [], path, OPENAI, FORMAT))
        self._written.append(written)
        for where, result in results:
            self._write_result(where, result, {})
