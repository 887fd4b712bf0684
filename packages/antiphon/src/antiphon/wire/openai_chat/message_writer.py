"""The messages of a request, written; `AssistantWriter` also writes those of answers and streams.

A message with results becomes one tool message per result, then a message with the other parts. Media that only a user message
may hold (OC-30) is deferred: a marker stays in its position, and a user message after the tool messages has it. No other
message is moved, so a legal sequence stays legal and later messages change nothing (L9). A single text is a string; empty content
is written as "" where null is refused (OC-10).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from antiphon.ids import new_id
from antiphon.parts import (
    Audio,
    Document,
    Image,
    Native,
    OutputPart,
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
from antiphon.wire.loss import Losses
from antiphon.wire.openai_chat import FORMAT
from antiphon.wire.openai_chat.content import (
    THINKING_BLOCK,
    PartWriter,
    canonical_json,
)
from antiphon.wire.openai_chat.dialects import REASONING_FIELDS, RESPONSE_DIALECT, Dialect
from antiphon.wire.openai_chat.limits import MAX_PARTICIPANT_NAME, PARTICIPANT_NAMES, legal_participant_name
from antiphon.wire.openai_chat.shapes import (
    ROLE_SHAPES,
    AssistantShape,
    FunctionShape,
    TextPart,
    ToolShape,
    UserShape,
)
from antiphon.wire.openai_chat.tools import (
    CallWriter,
    unreadable_calls,
)
from antiphon.wire.provenance import (
    GENERATED_IMAGE,
    LEGACY_FUNCTION,
    is_from,
    is_legacy_function,
    spelling_in,
    with_source,
)
from antiphon.wire.request import Message
from antiphon.wire.request_writer import ListWriter
from antiphon.wire.shapes import extend
from antiphon.wire.shared_openai import OPENAI, collapse_text, is_plain_text, mark_failed

_SUCCESS = ToolExecutionStatus.SUCCESS
_WIRE_ORIGINS = (*FORMATS, OPENAI)
_BETWEEN_TOOL_AND_USER = {"role": "assistant", "content": "OK."}
_AUDIO_OUTPUT_ONLY = ("transcript", "expires_at")  # a history names the audio by its id
MEDIA = (Image, Audio, Document)


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


class AssistantWriter(PartWriter):
    """Writes assistant messages: for responses as the model produced them, for requests as the host accepts them back.

    A request has a list of `deferred` media, which go to the next user message; a response has none.
    """

    def __init__(
        self,
        losses: Losses,
        dialect: Dialect = RESPONSE_DIALECT,
        deferred: list[Any] | None = None,
        model: Capabilities | None = None,
    ) -> None:
        super().__init__(losses, dialect, model)
        self.results: list[tuple[int, ToolCallResult]] = []
        """The results that were among the parts of the last message, each with its position."""
        self.write_call = CallWriter(losses, dialect).write
        self.converted_legacy_calls: set[str] = set()
        """The ids of function calls that were written as tool calls."""
        self._deferred = deferred

    def request_message(self, parts: tuple[Part, ...]) -> Any:
        """The message of earlier parts, as the host accepts it."""
        fields, content, calls = self._write_parts(parts, 0)
        text: Any
        if content:
            text = collapse_text(content, "text")
        elif calls or any(map(fields.get, ("function_call", "refusal", "audio"))):
            text = self.dialect.empty_content
        else:
            text = ""
        message: Any = AssistantShape(text, calls or None)
        return extend(message, fields) if fields else message

    def response_message(self, parts: tuple[OutputPart, ...], start: int = 0) -> dict[str, Any]:
        """The message of an answer; its parts are counted from `start`."""
        fields, content, calls = self._write_parts(parts, start)
        message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None, "annotations": []}
        message["content"] = fields.pop("content") if "content" in fields else _join_text(content)
        return {**message, **fields, **({"tool_calls": calls} if calls else {})}

    def _write_parts(self, parts: tuple[Any, ...], start: int) -> tuple[dict[str, Any], list[Any], list[Any]]:
        """Fields of the message, its content and calls."""
        losses, is_request = self.losses, self._deferred is not None
        fields: dict[str, Any] = {}
        content: list[Any] = []
        calls: list[Any] = []
        refusals: list[str] = []  # joined once
        text_after_call = False
        losses.part = start - 1
        for part in parts:
            losses.part += 1
            kind = type(part)
            if kind is Text:
                if calls:
                    text_after_call = True
                if part.native is None:
                    content.append(TextPart(part.text))
                else:
                    self._text_with_extras(part, fields, content)
            elif kind is ToolCallRequest:
                if not (part.native is None and part.source is None) and is_legacy_function(part):
                    if self._is_only_call(parts):
                        name = self.dialect.name_rule.to_wire(part.tool_name)
                        fields["function_call"] = {"name": name, "arguments": part.arguments}
                        continue
                    self.converted_legacy_calls.add(part.tool_call_id)
                calls.append(self.write_call(part))
            elif kind is Thinking:
                thinking = self.write_thinking(part, fields)
                if thinking is not None:
                    content.append(thinking)
            elif kind is Refusal and (not is_request or self._is_only_refusal(parts, part)):
                losses.take_extras(part.native, OPENAI, FORMAT)
                refusals.append(part.text)
                fields["refusal"] = part.text  # in its place among the fields
            elif kind is ToolCallResult:
                self.results.append((losses.part, part))
            elif kind in MEDIA:
                self._write_media(part, fields, content)
            elif kind is Native and (unreadable := unreadable_calls(part)) is not None:
                calls.extend(unreadable)
            else:
                text_after_call = text_after_call or bool(calls)
                content += self.write(part, is_fitted=True)
        losses.part = -1
        if len(refusals) > 1:
            fields["refusal"] = "".join(refusals)
        if text_after_call and is_request:
            losses.add("order", "text after a tool call was moved before the calls")
        return fields, content, calls

    @staticmethod
    def _is_only_call(parts: tuple[Any, ...]) -> bool:
        return sum(type(part) is ToolCallRequest for part in parts) == 1

    @staticmethod
    def _is_only_refusal(parts: tuple[Any, ...], refusal: Refusal) -> bool:
        return refusal.native is None and sum(type(part) is Refusal for part in parts) == 1

    def _text_with_extras(self, part: Text, fields: dict[str, Any], content: list[Any]) -> None:
        """Text whose annotations are a field of the message, or that is the object of an answer (`content`)."""
        (written,) = self.write(part)
        raw = written.pop("content", None)
        if raw is not None and self._deferred is None:
            fields["content"] = raw
        if type(written.get("annotations")) is list and (annotations := written.pop("annotations")):
            fields.setdefault("annotations", []).extend(annotations)
        content.append(written)

    def write_thinking(self, part: Thinking, message: dict[str, Any]) -> dict[str, Any] | None:
        """Put reasoning into the message's fields; Mistral's is returned, because it belongs to the content."""
        part, dialect = with_source(part), self.dialect
        native, spelled = part.native or {}, spelling_in(part, FORMAT)
        own = native.get(FORMAT)
        block: dict[str, Any] = {}
        is_own, is_state = is_from(part, FORMAT), own is not None and not spelled and not part.text
        if part.source == THINKING_BLOCK:
            block, own = own or {}, None
        if is_own and dialect.echoes_reasoning:
            field = None if is_state else spelled[0] if spelled else REASONING_FIELDS[0]
            message.update(own or {})
        else:
            field = self._reasoning_field(own or {}, spelled, message)
            if is_state:
                field = None
            elif field is None:
                reason = "reasoning can only be returned to the host that produced it; dropped"
                self.losses.add("thinking", reason)
                return None
        self.losses.report_extras(native, FORMAT, OPENAI)
        if field == "thinking":
            return {"type": "thinking", "thinking": [{"type": "text", "text": part.text}], **block}
        is_shown = part.text or is_own or dialect is not RESPONSE_DIALECT
        if field is not None and field != "reasoning_details" and is_shown:
            for name in (field, *spelled[1:]) if dialect.echoes_reasoning else (field,):
                message[name] = message.get(name, "") + part.text
        return None

    def _reasoning_field(self, own: dict[str, Any], spelled: Sequence[str], message: dict[str, Any]) -> str | None:
        """The field in which a host accepts reasoning; the state it accepts is put into the message."""
        for key, value in own.items():
            if key in self.dialect.reasoning_state_fields:
                message[key] = value
            else:
                self.losses.add(key, "host does not accept this reasoning field; dropped", key)
        if not self.dialect.reasoning_state_fields.isdisjoint(spelled[:1]):
            return "reasoning_details"  # its text is in the state, which follows
        return self.dialect.reasoning_field

    def _write_media(self, part: Any, fields: dict[str, Any], content: list[Any]) -> None:
        """Audio and generated images have fields of their own; a host may accept the rest only from a user."""
        is_request = self._deferred is not None
        part = with_source(part)
        if isinstance(part, Audio) and (part.file_id or not is_request):
            extras = self.losses.take_extras(part.native, OPENAI, FORMAT)
            if is_request:
                extras = {key: value for key, value in extras.items() if key not in _AUDIO_OUTPUT_ONLY}
            data = {"data": part.data} if part.data and not is_request else {}
            fields["audio"] = {"id": part.file_id or f"audio_{new_id()}", **data, **extras}
        elif isinstance(part, Image) and (part.source == GENERATED_IMAGE or not is_request):
            for written in self.write(part):
                fields.setdefault("images", []).append(written)
        elif self._deferred is None:
            self.losses.add("document", "a response cannot hold files; dropped")
        elif self.dialect.allows_media_in_any_role:
            content += self.write(part)
        else:
            content += self.defer_media(part, "the assistant's answer")

    def defer_media(self, part: Any, origin: str) -> list[Any]:
        """Keep an image, audio or file for the next user message; a marker stays in its position."""
        written = self.write(part)
        if not written or written[0]["type"] == "text":  # a text document stays where it is
            return [{"type": "text", "text": block["text"]} for block in written]
        kind = type(part).__name__.lower()
        assert self._deferred is not None
        self._deferred += [{"type": "text", "text": f"[{kind} from {origin}]"}, *written]
        return [{"type": "text", "text": f"[{kind}: shown in the next user message]"}]


def _join_text(content: list[Any]) -> Any:
    """The content of a response: one string, unless it has blocks other than plain text."""
    if not content:
        return None
    if all(type(block) is TextPart or is_plain_text(block, "text") for block in content):
        return "".join(block.text if type(block) is TextPart else block["text"] for block in content)
    return content
