"""The contents of a request, read and written.

Gemini counts turns, not messages: adjacent contents of one role are one turn; the results of a step stand together, before other
user parts (GM-07); the history must not begin with a call (GM-05) and, for some models, not end with the model (GM-16). The
first call of each step carries a signature or a placeholder (GM-10). Every step gets the placeholder, not only those of the
current turn, so that a turn keeps its bytes when the next one begins (L9).

Results without ids are matched by order and name, so they are sorted by their calls. Contents of text, calls and text results
in camelCase are decoded into structs (`TypedContent`); all others are read from dictionaries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from antiphon.parts import Native, Part, Text, Thinking, ToolCallRequest, ToolCallResult
from antiphon.wire.capabilities import Capabilities
from antiphon.wire.gemini import FORMAT
from antiphon.wire.gemini.content import (
    SUCCESS,
    ContentWriter,
    WrittenPart,
    build_result,
    encode,
    is_call,
    is_result,
    read_part,
)
from antiphon.wire.gemini.native import field_spellings, gemini_extras, native_extras, split_fields
from antiphon.wire.loss import Loss, lose_native
from antiphon.wire.request import SYSTEM_NOTE_PREFIX, Message
from antiphon.wire.tool_calls import GENERATED_ID_PREFIX, OBJECT_START, CallIdTracker
from antiphon.wire.vendors.google import add_required_turns, has_mark, spelling_mark

FUNCTION_ROLE = "function"
"""The former role of contents with results; also the mark of a message that had it."""

CONTENT_FIELDS = field_spellings(("role", "parts"))

_ROLES = {"user": "user", "model": "assistant", "function": "tool", None: "user", "": "user"}
_FUNCTION_ROLE_MARK = spelling_mark(FUNCTION_ROLE)
_WIRE_ROLES = {"user": "user", "tool": "user", "assistant": "model"}


class _TypedCall(Struct, forbid_unknown_fields=True, gc=False):
    name: str
    args: dict[str, Any]
    id: str | None = None


class _TypedResult(Struct, forbid_unknown_fields=True, gc=False):
    name: str
    response: dict[str, Any]
    id: str | None = None


class _TypedPart(Struct, forbid_unknown_fields=True, gc=False, rename="camel"):
    text: str | UnsetType = UNSET
    function_call: _TypedCall | UnsetType = UNSET
    function_response: _TypedResult | UnsetType = UNSET
    thought_signature: str | UnsetType = UNSET
    thought: bool | UnsetType = UNSET


class TypedContent(Struct, forbid_unknown_fields=True, gc=False):
    """A content of text, calls and results in camelCase, as nearly all are."""

    role: Literal["user", "model"]
    parts: list[_TypedPart]


class MessageListReader:
    """Reads the contents of one request in order."""

    def __init__(self, _unread: dict[str, Any]) -> None:
        self.messages: list[Message] = []
        self._calls = CallIdTracker()
        self._previous_role = ""

    def add_generic(self, content: Any) -> None:
        """Add a content of plain JSON values."""
        raw_role = content.get("role") if type(content) is dict else 0
        role = _ROLES.get(raw_role) if raw_role is None or type(raw_role) is str else None
        if role is None:
            self.messages.append(Message("unknown", (Native(FORMAT, content),)))
            return
        parts = content.get("parts")
        native = None
        if raw_role is None or parts is None or len(content) != 2 or role == "tool":
            extras = split_fields(content, CONTENT_FIELDS)[1]
            native = native_extras(extras, _FUNCTION_ROLE_MARK if role == "tool" else None)
        if type(parts) is not list:
            parts = [] if parts is None else [parts]
        self._start_message(role)
        self.messages.append(Message(role, tuple([read_part(part, self._calls) for part in parts]), None, native))

    def add_typed(self, contents: Sequence[TypedContent]) -> bool:
        """Add typed contents; False as soon as one must be read generically.

        A single one is read without our calls first: if that fails, no result has taken its call.
        """
        if len(contents) == 1 and not MessageListReader({})._add_typed(contents):
            return False
        return self._add_typed(contents)

    def _add_typed(self, contents: Sequence[TypedContent]) -> bool:
        calls, add = self._calls, self.messages.append
        for content in contents:
            if content.role == "user":
                role = self._previous_role = "user"
            else:
                role = "assistant"
                self._start_message(role)
            parts: list[Part] = []
            for part in content.parts:
                text, call, result = part.text, part.function_call, part.function_response
                signature, thought = part.thought_signature, part.thought
                read: Part | None = None
                if result is not UNSET:
                    if text is UNSET and call is UNSET and signature is UNSET and thought is UNSET:
                        read = _read_typed_result(result, calls)
                elif call is not UNSET:
                    if text is UNSET and thought is UNSET:
                        read = _read_typed_call(call, signature, calls)
                elif text is not UNSET:
                    if signature is UNSET and thought is UNSET:
                        read = Text(text)
                    else:
                        extras = {} if signature is UNSET else {"thoughtSignature": signature}
                        if thought is True:
                            read = Thinking(text, native={FORMAT: extras})
                        else:
                            read = Text(text, native={FORMAT: extras} if extras else None)
                if read is None:
                    return False
                parts.append(read)
            add(Message(role, tuple(parts)))
        return True

    def finish(self) -> tuple[Message, ...]:
        return tuple(self.messages)

    def _start_message(self, role: str) -> None:
        if role == "assistant" and self._previous_role != "assistant":
            self._calls.start_step()
        self._previous_role = role


def _read_typed_call(call: _TypedCall, signature: str | UnsetType, calls: CallIdTracker) -> ToolCallRequest | None:
    name, wire_id = call.name, call.id
    if not name or (wire_id is not None and (not wire_id or wire_id.startswith(GENERATED_ID_PREFIX))):
        return None
    native = None if signature is UNSET else {FORMAT: {"thoughtSignature": signature}}
    return ToolCallRequest(name, calls.add_call(name, wire_id), encode(call.args).decode(), native=native)


def _read_typed_result(result: _TypedResult, calls: CallIdTracker) -> ToolCallResult | None:
    name, wire_id, response = result.name, result.id, result.response
    if not name or (wire_id is not None and (not wire_id or wire_id.startswith(GENERATED_ID_PREFIX))):
        return None
    if len(response) == 1:
        output = response.get("output")
        if type(output) is str and output[:1] not in OBJECT_START:
            call_id = calls.match_next(name, wire_id)
            if call_id is not None:
                return ToolCallResult(name, call_id, SUCCESS, (Text(output),))
    return build_result(name, wire_id, response, calls, (), {}, {})


def write_turns(
    messages: Sequence[Message], start: int, writer: ContentWriter, capabilities: Capabilities
) -> list[Any]:
    """The contents of the messages from `start`."""
    contents_writer = _ContentsWriter(writer)
    for index in range(start, len(messages)):
        message = messages[index]
        role = _WIRE_ROLES.get(message.role)
        writer.message = index
        if role is None or message.native is not None or message.name is not None:
            contents_writer.add_with_extras(message, index, role)
        else:
            contents_writer.add(role, message.parts)
    contents_writer.close()
    contents = contents_writer.contents
    add_required_turns(
        contents,
        start,
        capabilities,
        writer.losses,
        begins_with_call=bool(contents) and _is_model(contents[0]) and any(map(is_call, contents[0]["parts"])),
        is_model=_is_model,
        user_turn=_user_text,
        rules=("GM-05", "GM-16"),
    )
    return contents


def _user_text(text: str) -> dict[str, Any]:
    return {"role": "user", "parts": [{"text": text}]}


def _is_model(content: Any) -> bool:
    return isinstance(content, dict) and content.get("role") == "model" and isinstance(content.get("parts"), list)


def report_message_extras(message: Message, index: int, losses: list[Loss]) -> None:
    """Report the name and extras of a message that Gemini does not support."""
    if message.name is not None:
        losses.append(Loss(f"messages[{index}].name", "name", "Gemini does not support names of participants; dropped"))
    lose_native(losses, f"messages[{index}]", message.native, FORMAT)


class _ContentsWriter:
    """Builds the contents. The last one is open: messages of the same role are added to it."""

    __slots__ = ("_calls", "_late_at", "_late_results", "_parts", "_results", "_writer", "contents", "role")

    def __init__(self, writer: ContentWriter) -> None:
        self.contents: list[Any] = []
        self._writer = writer
        self.role = ""
        self._parts: list[Any] = []
        self._calls: list[ToolCallRequest] = []  # of the current step
        self._results: list[ToolCallResult] = []  # in the open content
        self._late_results: list[Any] = []  # written results that came after other parts, and where they belong
        self._late_at = 0

    def add(self, role: str, parts: tuple[Part, ...]) -> None:
        """Add parts to the open content, or start a new one for another role."""
        if role == self.role:
            written, results = self._write_parts(parts, self._calls)
            if written:
                self._append(written, results)
            return
        calls = [] if role == "model" else self._calls
        written, results = self._write_parts(parts, calls)
        if written:
            self._start_content(role, written, results)
            self._calls = calls

    def add_with_extras(self, message: Message, index: int, role: str | None) -> None:
        """A message with a name, extras or another role."""
        report_message_extras(message, index, self._writer.losses)
        if role is None:
            self._add_other_role(message, index)
            return
        if has_mark(message.native, FUNCTION_ROLE):
            role = FUNCTION_ROLE
        extras = gemini_extras(message.native)
        if not extras:
            self.add(role, message.parts)
            return
        before, count = self.role, len(self.contents)
        self.role = ""  # extras belong to this content only: not to the previous one,
        self.add(role, message.parts)
        if len(self.contents) == count:
            self.role = before
        else:
            self.contents[-1].update(extras)
            self.role = ""  # nor to the next

    def _start_content(self, role: str, written: list[Any], results: list[ToolCallResult]) -> None:
        """Start a content of another role."""
        if len(self._results) > 1 or self._late_results:
            self.close()
        self.role = role
        self._parts = written
        self._results = results
        self.contents.append({"role": role, "parts": written})

    def _write_parts(
        self, parts: tuple[Part, ...], calls: list[ToolCallRequest]
    ) -> tuple[list[Any], list[ToolCallResult]]:
        """The written parts and the results among them; calls are appended to `calls`."""
        writer = self._writer
        written: list[Any] = []
        results: list[ToolCallResult] = []
        for position, part in enumerate(parts):
            if type(part) is ToolCallResult:
                written.append(writer.result(part, position))
                results.append(part)
            elif type(part) is ToolCallRequest:
                written.append(writer.call(part, position, not calls))
                calls.append(part)
            elif type(part) is Text and part.native is None:
                written.append({"text": part.text})
            elif type(part) is Native and part.origin != FORMAT:
                written += writer.foreign(part, writer.path(position))
            else:
                other = writer.write(part, position)
                if other is not None:
                    written.append(other)
        after_results = writer.media_after_results
        if after_results:
            written += after_results
            after_results.clear()
        return written, results

    def _append(self, written: list[Any], results: list[ToolCallResult]) -> None:
        """Add to the open content; results stay together (GM-07)."""
        if results and not is_result(self._parts[-1]):
            if not self._late_results:
                places = range(len(self._parts), 0, -1)
                self._late_at = next((place for place in places if is_result(self._parts[place - 1])), 0)
            self._late_results += [part for part in written if is_result(part)]
            self._parts += [part for part in written if not is_result(part)]
        else:
            self._parts += written
        self._results += results

    def close(self) -> None:
        """End the open content: put results before other parts, and those without ids into the order of their calls."""
        if self._late_results:
            self._parts[self._late_at : self._late_at] = self._late_results
            self._late_results = []
        results, self._results = self._results, []
        if (
            len(results) > 1
            and results[0].tool_call_id.startswith(GENERATED_ID_PREFIX)
            and not _results_match_by_order(self._calls, results)
        ):
            _sort_results_by_call(self._parts, self._calls, results)

    def _add_other_role(self, message: Message, index: int) -> None:
        losses = self._writer.losses
        if message.role == "unknown":
            for position, part in enumerate(message.parts):
                if isinstance(part, Native) and part.origin == FORMAT:
                    self.close()
                    self.contents.append(part.data)
                    self.role = ""
                else:
                    reason = "message specific to another format; dropped"
                    losses.append(Loss(f"messages[{index}].parts[{position}]", "message", reason))
            return
        written, results = self._write_parts(message.parts, self._calls)
        note: WrittenPart | None = next((part for part in written if isinstance(part, dict) and "text" in part), None)
        is_system = message.role in ("system", "developer")
        if note is not None and is_system:
            written[written.index(note)] = {**note, "text": SYSTEM_NOTE_PREFIX + note["text"]}
        reason = f'unknown role "{message.role}"; sent as user'
        if is_system:
            reason = "Gemini accepts system messages only at the start; sent as a user note"
        losses.append(Loss(f"messages[{index}].role", message.role, reason))
        if written and self.role == "user":
            self._append(written, results)
        elif written:
            self._start_content("user", written, results)


def _results_match_by_order(calls: list[ToolCallRequest], results: list[ToolCallResult]) -> bool:
    """Whether a reader without ids would match each result to its call."""
    ids = CallIdTracker()
    call_ids = {ids.add_call(call.tool_name, None): call.tool_call_id for call in calls}
    return all(call_ids.get(ids.match_result(result.tool_name, None)[0]) == result.tool_call_id for result in results)


def _sort_results_by_call(parts: list[Any], calls: list[ToolCallRequest], results: list[ToolCallResult]) -> None:
    order = {call.tool_call_id: index for index, call in enumerate(calls)}
    indices = [index for index, part in enumerate(parts) if is_result(part)]
    if len(indices) != len(results):
        return  # some are native parts, which keep their position
    written = [parts[index] for index in indices]
    sorted_numbers = sorted(range(len(written)), key=lambda number: order.get(results[number].tool_call_id, len(order)))
    for index, number in zip(indices, sorted_numbers, strict=True):
        parts[index] = written[number]
