"""The messages of a request, written.

Theory of operation. Writing is one pass with a little state; the plain shapes are written at once, everything else takes the
long way. A message with results among its parts becomes one tool message a result, and then a message with the rest.
Pictures, sounds and files that stand where only a user may show them (OC-30) are held back, a marker stays in their place,
and a user message after the run of tool messages shows them. No message is moved otherwise: a legal sequence gives a legal
sequence, and what follows a message does not change it (L9).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

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
from antiphon.wire.loss import Loss, lose_native, own_extras
from antiphon.wire.openai_chat.assistant import is_drawn, undrawn, write_thinking
from antiphon.wire.openai_chat.calls import DEPRECATED_NATIVE, is_deprecated, is_object, wrapped_calls, write_call
from antiphon.wire.openai_chat.content import FORMAT, SHARED, stable_text, write_part
from antiphon.wire.openai_chat.dialects import Dialect
from antiphon.wire.openai_chat.rules import SPEAKERS
from antiphon.wire.request import Message
from antiphon.wire.vendors import openai

_SUCCESS = ToolExecutionStatus.SUCCESS
_MEDIA = (Image, Audio, Document)
_WIRE_ORIGINS = ("openai-chat", "openai-responses", "anthropic", "gemini", "openai")
_SOUND = ("transcript", "expires_at")  # an answer has them; a history names the sound by its id
_FILLER = {"role": "assistant", "content": "OK."}
_NOT_SPOKEN = re.compile(r"[\s<|\\/>]+")


class MessageWriter:
    """Writes the messages of one request.

    `takes_system` is False for models that have no system role (OC-02), `thinks` tells that the request asks for thinking.
    """

    def __init__(
        self, losses: list[Loss], dialect: Dialect, *, takes_system: bool = True, thinks: bool = False
    ) -> None:
        self._losses = losses
        self._dialect = dialect
        self._legal_id, self._legal_name = dialect.id_rule.to_wire, dialect.name_rule.to_wire
        self._roles = {
            "user": "user",
            "system": "system" if takes_system else "user",
            "developer": ("developer" if dialect.has_developer_role else "system") if takes_system else "user",
        }
        self._written: list[Any] = []
        self._held: list[Any] = []
        self._filler = dialect.reasoning_field if dialect.needs_reasoning and thinks else None
        self._upgraded: set[str] = set()  # ids of function calls that had to become tool calls

    def write(self, messages: Sequence[Message]) -> list[Any]:
        add, legal_id, safe_name = self._written.append, self._legal_id, self._legal_name
        roles, repairs = self._roles, self._dialect.argument_repair
        fills, no_content = not self._dialect.takes_user_after_tool, self._dialect.null_content
        for place, message in enumerate(messages):
            role, parts = message.role, message.parts
            if message.native is None and message.name is None and not self._held and parts:
                part: Any = parts[0]
                if type(part) is Text and len(parts) == 1:
                    if part.native is None and (role == "assistant" or (roles.get(role) == role and not fills)):
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
                        if calls and self._filler is None:
                            add({"role": "assistant", "content": text, "tool_calls": calls})
                            continue
                elif type(part) is ToolCallResult and (role == "tool" or role == "user") and self._write_answers(parts):
                    continue
            self._write(place, message)
        self._show_held()
        return self._written

    def _write_answers(self, parts: tuple[Part, ...]) -> bool:
        """Write a message of nothing but results in words; False, and nothing done, if it is not that."""
        legal_id, names_results, answers = self._legal_id, self._dialect.names_results, []
        for part in parts:
            if type(part) is not ToolCallResult or part.native is not None or part.status is not _SUCCESS:
                return False
            content = part.content
            if len(content) != 1:
                return False
            (piece,) = content
            if type(piece) is not Text or piece.native is not None:
                return False
            name, said = part.tool_name, {"role": "tool", "tool_call_id": legal_id(part.tool_call_id)}
            if name and names_results:
                said["name"] = SPEAKERS.to_wire(name)
            said["content"] = piece.text
            answers.append(said)
        self._written += answers
        return True

    def _write(self, place: int, message: Message) -> None:
        path = f"messages[{place}]"
        role, native = message.role, message.native
        lose_native(self._losses, path, native, FORMAT, SHARED)
        if not any(type(part) is ToolCallResult for part in message.parts):
            self._show_held()
        if role == "assistant":
            self._write_assistant(path, message)
        elif role == "tool" or role in self._roles:
            self._write_plain(path, message)
        else:
            self._write_unknown(path, message)

    def _write_unknown(self, path: str, message: Message) -> None:
        if len(message.parts) == 1 and isinstance(message.parts[0], Native):
            self._written += write_part(message.parts[0], self._losses, path, self._dialect)
            return
        self._losses.append(Loss(f"{path}.role", "role", f"there is no role {message.role}; it speaks as user"))
        self._write_plain(path, Message("user", message.parts, message.name, message.native))

    def _speaker(self, path: str, message: Message, written: dict[str, Any]) -> None:
        name = message.name
        if name is None:
            return
        if SPEAKERS.to_wire(name) != name:
            self._losses.append(Loss(f"{path}.name", "name", "a name has no blanks, and at most 64 letters (OC-25)"))
            name = _NOT_SPOKEN.sub("_", name)[:64]
        if name:
            written["name"] = name

    def _add(self, written: dict[str, Any]) -> None:
        if written["role"] == "user" and not self._dialect.takes_user_after_tool and self._written:
            last = self._written[-1]
            if type(last) is dict and last.get("role") == "tool":
                self._written.append(dict(_FILLER))
        self._written.append(written)

    def _show_held(self) -> None:
        if self._held:
            held, self._held = self._held, []
            self._add({"role": "user", "content": held})

    def _hold(self, path: str, part: Any, origin: str) -> list[Any]:
        """Keep a picture, sound or file for a user message; what is left in its place is a marker."""
        written = write_part(part, self._losses, path, self._dialect)
        if not written or written[0]["type"] == "text":  # a document of words stays where it is
            return [{"type": "text", "text": words["text"]} for words in written]
        kind = type(part).__name__.lower()
        self._held += [{"type": "text", "text": f"[{kind} from {origin}]"}, *written]
        return [{"type": "text", "text": f"[{kind}: shown in the next user message]"}]

    def _write_plain(self, path: str, message: Message) -> None:
        """A message of a user, system or tool: results first, then the rest."""
        extras = own_extras(message.native, [], path, SHARED, FORMAT)  # what is lost was told before
        content: list[Any] = []
        role = self._roles.get(message.role, "user")
        if role != message.role and message.role == "system":
            self._losses.append(Loss(f"{path}.role", "role", "this model has no system role (OC-02)"))
        answers = False
        for index, part in enumerate(message.parts):
            where = f"{path}.parts[{index}]"
            if isinstance(part, ToolCallResult):
                self._write_result(where, part, extras if not answers else {})
                answers = True
            elif isinstance(part, Refusal):
                self._losses.append(Loss(where, "refusal", "only an assistant refuses; it is written as text"))
                more = own_extras(part.native, self._losses, where, SHARED, FORMAT)
                content.append({"type": "text", "text": part.text, **more})
            elif isinstance(part, _MEDIA) and role != "user" and not self._dialect.takes_media_anywhere:
                content += self._hold(where, part, f"a {role} message")
            else:
                content += write_part(part, self._losses, where, self._dialect)
        if answers or message.role == "tool":
            if not content:
                if message.name is not None:
                    self._losses.append(Loss(f"{path}.name", "name", "a tool's answer has no speaker"))
                return
            extras = {}
        if self._held and role == "user":
            content, self._held = [*self._held, *content], []
        said = {"role": role, "content": _compact(content) if content else "", **extras}
        self._speaker(path, message, said)
        self._add(said)

    def _write_result(self, path: str, part: ToolCallResult, extras: dict[str, Any]) -> None:
        content: list[Any] = []
        for index, piece in enumerate(part.content):
            where = f"{path}.content[{index}]"
            if isinstance(piece, _MEDIA) and not self._dialect.takes_media_anywhere:
                origin = f"the result of {part.tool_name or part.tool_call_id or 'a call'}"
                content += self._hold(where, piece, origin)
            elif isinstance(piece, Native) and piece.origin not in _WIRE_ORIGINS:
                content.append({"type": "text", "text": stable_text(piece.data)})
            else:
                content += write_part(piece, self._losses, where, self._dialect)
        if part.status is not _SUCCESS:
            self._losses.append(Loss(f"{path}.status", "status", "a failure is told in words only"))
            _tell_failure(content)
        if is_deprecated(part.native) and part.tool_call_id not in self._upgraded:
            name = self._legal_name(part.tool_name)
            said = {"role": "function", "name": name, "content": _compact(content) if content else None}
        else:
            said = {"role": "tool", "tool_call_id": self._legal_id(part.tool_call_id)}
            if part.tool_name and self._dialect.names_results:
                said["name"] = SPEAKERS.to_wire(part.tool_name)
            said["content"] = _compact(content) if content else ""
        if part.native is not None and part.native is not DEPRECATED_NATIVE:
            more = own_extras(part.native, self._losses, path, SHARED, FORMAT)
            said.update((key, value) for key, value in more.items() if key not in DEPRECATED_NATIVE[FORMAT])
        said.update(extras)
        self._written.append(said)

    def _write_assistant(self, path: str, message: Message) -> None:
        losses, dialect = self._losses, self._dialect
        said: dict[str, Any] = {"role": "assistant", "content": dialect.null_content}
        content: list[Any] = []
        calls: list[Any] = []
        results: list[tuple[str, ToolCallResult]] = []
        refusals = [part for part in message.parts if type(part) is Refusal]
        alone = len(refusals) == 1 and refusals[0].native is None
        made = [part for part in message.parts if type(part) is ToolCallRequest]
        is_function_call = len(made) == 1 and is_deprecated(made[0].native)  # then it may be written in the old way
        text_after_call = False
        for index, part in enumerate(message.parts):
            where = f"{path}.parts[{index}]"
            if isinstance(part, ToolCallRequest):
                if is_function_call:
                    name = self._legal_name(part.tool_name)
                    said["function_call"] = {"name": name, "arguments": part.arguments}
                else:
                    if is_deprecated(part.native):
                        self._upgraded.add(part.tool_call_id)
                    calls.append(write_call(part, losses, where, dialect))
            elif isinstance(part, Thinking):
                thought = write_thinking(part, said, losses, where, dialect)
                if thought is not None:
                    content.append(thought)
            elif isinstance(part, Refusal) and alone:
                said["refusal"] = part.text
            elif isinstance(part, ToolCallResult):
                results.append((where, part))
            elif isinstance(part, _MEDIA):
                self._write_shown(where, part, said, content)
            elif isinstance(part, Native) and (wrapped := wrapped_calls(part)) is not None:
                calls.extend(wrapped)
            else:
                text_after_call = text_after_call or bool(calls)
                written = write_part(part, losses, where, dialect)
                if type(part) is Text and part.native is not None:
                    said.update(_taken_out(written[0], said))
                content += written
        if text_after_call:
            losses.append(Loss(path, "order", "what was said between or after the calls is written before them"))
        if content:
            said["content"] = _compact(content)
        elif not calls and not any(map(said.get, ("function_call", "refusal", "audio"))):
            said["content"] = ""
        if calls:
            said["tool_calls"] = calls
            if self._filler is not None:
                said.setdefault(self._filler, "")
        self._speaker(path, message, said)
        said.update(own_extras(message.native, [], path, SHARED, FORMAT))
        self._written.append(said)
        for where, result in results:
            self._write_result(where, result, {})

    def _write_shown(self, path: str, part: Any, said: dict[str, Any], content: list[Any]) -> None:
        """What an assistant showed: sound by its id, pictures as OpenRouter takes them, the rest through a user message."""
        if isinstance(part, Audio) and part.file_id:
            more = own_extras(part.native, self._losses, path, SHARED, FORMAT)
            said["audio"] = {"id": part.file_id, **{key: more[key] for key in more if key not in _SOUND}}
        elif isinstance(part, Image) and is_drawn(part):
            for written in write_part(undrawn(part), self._losses, path, self._dialect):
                said.setdefault("images", []).append(written)
        elif self._dialect.takes_media_anywhere:
            content += write_part(part, self._losses, path, self._dialect)
        else:
            content += self._hold(path, part, "the assistant's answer")


def _taken_out(written: dict[str, Any], said: dict[str, Any]) -> dict[str, Any]:
    """What a text carries for its whole message: annotations. An object it was read from is dropped for its text."""
    written.pop("content", None)
    annotations = written.pop("annotations", None)
    return {"annotations": said.get("annotations", []) + annotations} if annotations else {}


def _compact(content: list[Any]) -> Any:
    """Content as a string if it is nothing but one text."""
    if len(content) == 1 and openai.is_plain_text(content[0], "text"):
        return content[0]["text"]
    return content


def _tell_failure(content: list[Any]) -> None:
    for place, piece in enumerate(content):
        if type(piece) is dict and type(piece.get("text")) is str:
            if not piece["text"].startswith("Error: "):
                content[place] = {**piece, "text": f"Error: {piece['text']}"}
            return
    content.insert(0, {"type": "text", "text": "Error: the call failed"})
