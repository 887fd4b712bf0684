"""The messages of a request, read and written.

Reading: what no part holds is kept as native extras. A message of unknown shape stays whole:
`Message("unknown", (Native(FORMAT, it),))`.

Writing: a message with results becomes one tool message per result, then a message with the other parts. Media that only a user
message may hold (OC-30) is deferred: a marker stays in its position, and a user message after the tool messages has it. No other
message is moved, so a legal sequence stays legal and later messages change nothing (L9).

Normalisations: a single text is a string; null, absent and empty content are the same, written as "" where null is refused
(OC-10); a missing `tool_call_id` is empty; an empty `name` is absent; other content of a tool message becomes its JSON text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from antiphon.parts import Native, Part, Refusal, Text, Thinking, ToolCallRequest, ToolCallResult, ToolExecutionStatus
from antiphon.wire import FORMATS
from antiphon.wire.capabilities import Capabilities
from antiphon.wire.loss import Losses
from antiphon.wire.openai_chat import FORMAT
from antiphon.wire.openai_chat.assistant import MEDIA, AssistantWriter, read_assistant
from antiphon.wire.openai_chat.content import canonical_json, read_part
from antiphon.wire.openai_chat.dialects import Dialect
from antiphon.wire.openai_chat.limits import MAX_PARTICIPANT_NAME, PARTICIPANT_NAMES, legal_participant_name
from antiphon.wire.openai_chat.shapes import (
    ROLE_SHAPES,
    AssistantShape,
    FunctionShape,
    TextPart,
    ToolShape,
    UserShape,
)
from antiphon.wire.provenance import LEGACY_FUNCTION, with_source
from antiphon.wire.request import Message
from antiphon.wire.request_writer import ListWriter
from antiphon.wire.shapes import Loose, extend
from antiphon.wire.shared_openai import OPENAI, collapse_text, mark_failed

_SUCCESS = ToolExecutionStatus.SUCCESS
_WIRE_ORIGINS = (*FORMATS, OPENAI)
_BETWEEN_TOOL_AND_USER = {"role": "assistant", "content": "OK."}
_More = dict[str, Any] | None
_Functions = dict[str, str]  # the ids of legacy function calls by name


_ROLES: dict[type, str] = {shape: role for role, shape in ROLE_SHAPES.items()}


def read_messages(entries: list[Any]) -> list[Message]:
    """The messages of a request."""
    messages: list[Message] = []
    functions: _Functions = {}
    parts: tuple[Any, ...]
    for index, entry in enumerate(entries):
        shape: Any = entry
        more, message = None, None
        if type(entry) is Loose:
            shape, more = entry.shape, entry.more
        kind = type(shape)
        if kind is AssistantShape:
            if more is None:
                read = read_assistant(shape, None, index)
                message = None if read is None else Message("assistant", tuple(read))
            else:
                message = _read_loose_assistant(shape, more, index, functions)
        elif kind is ToolShape:
            content, call_id, name = shape.content, shape.tool_call_id, shape.name
            if type(call_id) is not str:
                call_id = "" if call_id is None else canonical_json(call_id)
            parts = (Text(content),) if type(content) is str else _result_parts(content)
            result = ToolCallResult(name if type(name) is str else "", call_id, _SUCCESS, parts)
            message = Message("tool", (result,), None, {FORMAT: more} if more else None)
        elif kind in _ROLES:
            content = shape.content
            parts = (Text(content),) if type(content) is str else tuple(map(read_part, content or ()))
            message = Message(_ROLES[kind], parts, shape.name, {FORMAT: more} if more else None)
        elif kind is FunctionShape:
            message = _read_function(shape, more, index, functions)
        if message is None:
            value = entry.value if type(entry) is Loose else msgspec.to_builtins(entry)
            message = Message("unknown", (Native(FORMAT, value),))
        messages.append(message)
    return messages


def _read_loose_assistant(
    shape: AssistantShape, more: dict[str, Any], index: int, functions: _Functions
) -> Message | None:
    """An assistant message with further fields; None if it has no known shape."""
    name = more.pop("name", None)
    read = read_assistant(shape, more, index)
    if read is None or type(name) not in (str, type(None)):
        return None
    functions |= {part.tool_name: part.tool_call_id for part in read if _is_legacy_call(part)}
    return Message("assistant", tuple(read), name, {FORMAT: more} if more else None)


def _is_legacy_call(part: Part) -> bool:
    return type(part) is ToolCallRequest and part.source is LEGACY_FUNCTION


def _read_function(shape: FunctionShape, more: _More, index: int, functions: _Functions) -> Message:
    """A result of the legacy API, which has the name of its function instead of an id."""
    name, call_id, source = shape.name, shape.tool_call_id, None
    if type(name) is not str or not name:  # it has no function to name
        name, call_id = "", canonical_json(call_id or f"call_function_{index}")
    else:
        source = LEGACY_FUNCTION
        if call_id is not None:
            more = {**(more or {}), "tool_call_id": call_id}
        call_id = functions.get(name, f"call_function_{index}")
    result = ToolCallResult(name, call_id, _SUCCESS, _result_parts(shape.content), source=source)
    return Message("tool", (result,), None, {FORMAT: more} if more else None)


def _result_parts(content: Any) -> tuple[Any, ...]:
    """The content of a tool message; anything that is not content becomes its JSON text."""
    if type(content) is str:
        return (Text(content),)
    if content is None or content is UNSET:
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


class MessageListWriter(ListWriter):
    """Writes the messages of one request.

    `model` limits the media. `accepts_system` is False for models without a system role (OC-02). `thinking_enabled`: the request
    asks for thinking.
    """

    def __init__(
        self,
        losses: Losses,
        dialect: Dialect,
        model: Capabilities | None = None,
        *,
        accepts_system: bool = True,
        thinking_enabled: bool = False,
    ) -> None:
        self.entries, self.losses = [], losses
        self._dialect = dialect
        self._roles = {
            "user": "user",
            "system": "system" if accepts_system else "user",
            "developer": ("developer" if dialect.has_developer_role else "system") if accepts_system else "user",
        }
        self._text_shapes: dict[str, Any] = {"assistant": AssistantShape}
        """What a message of one plain text is, by its role."""
        if dialect.accepts_user_after_tool:
            self._text_shapes |= {role: ROLE_SHAPES[role] for role, sent in self._roles.items() if role == sent}
        self._deferred: list[Any] = []
        self._legal_id = dialect.id_rule.to_wire
        self._result_name = PARTICIPANT_NAMES.to_wire if dialect.writes_result_name else None
        self._reasoning_placeholder = (
            dialect.reasoning_field if dialect.requires_reasoning and thinking_enabled else None
        )
        self.assistant = AssistantWriter(losses, dialect, self._deferred, model)

    def write(self, messages: Sequence[Message]) -> list[Any]:
        """All messages of a request."""
        for index, message in enumerate(messages):
            self.add(index, message)
        self.settle()
        return self.entries

    def add(self, index: int, message: Message) -> None:
        """Write one message."""
        losses, role, parts = self.losses, message.role, message.parts
        losses.message = index
        if len(parts) == 1 and message.native is None and message.name is None and not self._deferred:
            only: Any = parts[0]
            if type(only) is Text:
                if only.native is None and role in self._text_shapes:
                    self.entries.append(self._text_shapes[role](only.text))
                    return
            elif type(only) is ToolCallResult and (role == "tool" or role == "user"):
                losses.part = 0
                self._add_result(only, {})
                losses.part = -1
                return
        if message.native is not None:
            losses.report_extras(message.native, FORMAT, OPENAI)
        if self._deferred and not any(type(part) is ToolCallResult for part in message.parts):
            self.settle()
        if role == "assistant":
            self._add_assistant(message)
        elif role == "tool" or role in self._roles:
            self._add_other(message)
        else:
            self._add_unknown(message)

    def helpers(self) -> tuple[object, ...]:
        return (self.assistant,)

    def settle(self) -> None:
        """Write the media that were deferred."""
        if self._deferred:
            self._append(UserShape(self._deferred[:]))
            self._deferred.clear()  # the assistant writer has the same list

    def _add_unknown(self, message: Message) -> None:
        part = message.parts[0] if len(message.parts) == 1 else None
        if isinstance(part, Native) and part.origin == FORMAT:
            self.entries.append(part.data)
            return
        if isinstance(part, Native):  # a message of another format: what can be read of it
            self.losses.part = 0
            content = self.assistant.write(part)
            self.losses.part = -1
            if content:
                self._append(UserShape(collapse_text(content, "text")))
            return
        self.losses.add("role", f'unknown role "{message.role}"; sent as user', "role")
        self._add_other(Message("user", message.parts, message.name, message.native))

    def _name(self, message: Message) -> str | None:
        """The name of a participant, as the API accepts it."""
        name = message.name
        if name is not None and PARTICIPANT_NAMES.to_wire(name) != name:
            name = legal_participant_name(name)
            limit = f"name contains characters OpenAI rejects or exceeds {MAX_PARTICIPANT_NAME}"
            self.losses.add("name", f'{limit}; sent as "{name}" (OC-25)', "name")
        return name or None

    def _append(self, written: Any) -> None:
        if not self._dialect.accepts_user_after_tool and self.entries:
            last: Any = self.entries[-1]
            is_user = type(written) is UserShape or (type(written) is dict and written.get("role") == "user")
            if is_user and (type(last) is ToolShape or (type(last) is dict and last.get("role") == "tool")):
                self.entries.append(dict(_BETWEEN_TOOL_AND_USER))
        self.entries.append(written)

    def _add_other(self, message: Message) -> None:
        """A message of a user, system or tool: results first, then the other parts."""
        losses, writer = self.losses, self.assistant
        content: list[Any] = []
        role = self._roles.get(message.role, "user")
        extras = {} if message.native is None else _own_extras(message)
        if role != message.role and message.role == "system":
            losses.add("role", "model has no system role; sent as user (OC-02)", "role")
        has_results = False
        part: Any
        for part in message.parts:
            losses.part += 1
            kind = type(part)
            if kind is Text and part.native is None:
                content.append(TextPart(part.text))
            elif kind is ToolCallResult:
                self._add_result(part, {} if has_results else extras)
                has_results = True
            elif isinstance(part, Refusal):
                losses.add("refusal", "refusals are allowed only in assistant messages; sent as text")
                more = losses.take_extras(part.native, OPENAI, FORMAT)
                content.append({"type": "text", "text": part.text, **more})
            elif kind in MEDIA and role != "user" and not self._dialect.allows_media_in_any_role:
                content += writer.defer_media(part, f"a {role} message")
            else:
                content += writer.write(part)
        losses.part = -1
        if has_results or message.role == "tool":
            if not content:
                if message.name is not None:
                    losses.add("name", "a tool message has no participant name; dropped", "name")
                return
            extras = {}
        if self._deferred and role == "user":
            content = [*self._deferred, *content]
            self._deferred.clear()
        name = None if message.name is None else self._name(message)
        written = ROLE_SHAPES[role](collapse_text(content, "text") if content else "", name)
        self._append(extend(written, extras) if extras else written)

    def _add_result(self, part: ToolCallResult, extras: dict[str, Any]) -> None:
        content: Any = part.content[0] if len(part.content) == 1 else None
        if type(content) is Text and content.native is None and part.status is _SUCCESS:
            content = content.text
        else:
            content = self._result_content(part)
        name, call_id, source = part.tool_name, part.tool_call_id, part.source
        if part.native is not None:
            part = with_source(part)
            source = part.source
            extras = {**self.losses.take_extras(part.native, OPENAI, FORMAT), **extras}
        result: Any
        if source is not None and source == LEGACY_FUNCTION and call_id not in self.assistant.converted_legacy_calls:
            result = FunctionShape(self._dialect.name_rule.to_wire(name), None, content or None)
        else:
            sent = self._result_name(name) if name and self._result_name is not None else None
            result = ToolShape(self._legal_id(call_id), sent, content)
        self.entries.append(extend(result, extras) if extras else result)

    def _result_content(self, part: ToolCallResult) -> Any:
        losses, content = self.losses, []
        for index, block in enumerate(part.content):
            losses.inner = index
            if type(block) in MEDIA and not self._dialect.allows_media_in_any_role:
                origin = f"the result of {part.tool_name or part.tool_call_id or 'a call'}"
                content += self.assistant.defer_media(block, origin)
            elif isinstance(block, Native) and block.origin not in _WIRE_ORIGINS:
                content.append({"type": "text", "text": canonical_json(block.data)})
            else:
                content += self.assistant.write(block)
        losses.inner = -1
        if part.status is not _SUCCESS:
            losses.add("status", 'no error flag in this format; "Error:" added to the text', "status")
            content = mark_failed(content, "text")
        return collapse_text(content, "text") if content else ""

    def _add_assistant(self, message: Message) -> None:
        written = self.assistant.request_message(message.parts)
        extras: dict[str, Any] = {}
        if self._reasoning_placeholder is not None and _has_calls(written):
            extras = {} if _has_field(written, self._reasoning_placeholder) else {self._reasoning_placeholder: ""}
        if message.name is not None and (name := self._name(message)):
            extras["name"] = name
        if message.native is not None:
            extras |= _own_extras(message)
        self.entries.append(extend(written, extras) if extras else written)
        if self.assistant.results:
            results, self.assistant.results = self.assistant.results, []
            for position, result in results:
                self.losses.part = position
                self._add_result(result, {})
            self.losses.part = -1


def _own_extras(message: Message) -> dict[str, Any]:
    """The extras of a message that this format has; the others are already reported."""
    native = message.native or {}
    return {**native.get(OPENAI, {}), **native.get(FORMAT, {})}


def _has_calls(written: Any) -> bool:
    return bool(written.get("tool_calls") if type(written) is dict else written.tool_calls)


def _has_field(written: Any, name: str) -> bool:
    return type(written) is dict and name in written
