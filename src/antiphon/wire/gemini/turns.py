"""Messages of any origin as the turns that Gemini takes.

Gemini counts turns, not messages: adjacent contents of one role become one; the results of a step stand together, before
whatever else the user says (GM-07); the history does not begin with a call (GM-05), and does not end with the model where
that is refused (GM-16). The first call of each step carries a signature or its stand-in (GM-10). The stand-in goes to every
step, not only to those of the current turn, so that a turn keeps its bytes when the next one begins (L9).

Calls without ids are told apart by order and name: results of such calls come in the order of the calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from antiphon.parts import Native, Part, Text, ToolCallRequest, ToolCallResult
from antiphon.wire.gemini.calls import MINTED, CallIds, is_call
from antiphon.wire.gemini.content import PartWriter, Written
from antiphon.wire.gemini.model_name import ModelTraits
from antiphon.wire.gemini.results import is_result
from antiphon.wire.gemini.spelling import FORMAT, extras_of, marked
from antiphon.wire.loss import Loss, lose_native
from antiphon.wire.request import Message

BEGINNING = "(the conversation so far)"
"""What the user is made to say where the history would begin with a call."""
CONTINUE = "(continue)"
"""What the user is made to say where the model would have the last word, or nobody a word at all."""
NOTE = "[system note] "
FUNCTION = "function"
"""The old role of contents that hold results; also the mark of a message that had it."""

_ROLES = {"user": "user", "tool": "user", "assistant": "model"}


def write_turns(messages: Sequence[Message], start: int, writer: PartWriter, traits: ModelTraits) -> list[Any]:
    """The contents for the messages from `start` on."""
    turns = _Turns(writer)
    for index in range(start, len(messages)):
        message = messages[index]
        role = _ROLES.get(message.role)
        writer.message = index
        if role is None or message.native is not None or message.name is not None:
            turns.add_odd(message, index, role)
        else:
            turns.add(role, message.parts)
    turns.close()
    contents = turns.contents
    if contents and _is_model(contents[0]) and any(map(is_call, contents[0]["parts"])):
        contents.insert(0, _said(BEGINNING))
    is_last_word = bool(contents) and _is_model(contents[-1])
    if not contents or (is_last_word and (len(contents) == 1 or traits.refuses_model_ending)):
        contents.append(_said(CONTINUE))
    return contents


def _said(text: str) -> dict[str, Any]:
    return {"role": "user", "parts": [{"text": text}]}


def _is_model(content: Any) -> bool:
    return isinstance(content, dict) and content.get("role") == "model" and isinstance(content.get("parts"), list)


def lose_message_extras(message: Message, index: int, losses: list[Loss]) -> None:
    """Report what a message says of itself that Gemini cannot say."""
    if message.name is not None:
        losses.append(Loss(f"messages[{index}].name", "name", f"{FORMAT} has no names for those who speak"))
    lose_native(losses, f"messages[{index}]", message.native, FORMAT)


class _Turns:
    """The contents so far. The last one is open: messages of its role are added to it."""

    __slots__ = ("_calls", "_parts", "_results", "_writer", "contents", "role")

    def __init__(self, writer: PartWriter) -> None:
        self.contents: list[Any] = []
        self._writer = writer
        self.role = ""
        self._parts: list[Any] = []
        self._calls: list[ToolCallRequest] = []  # of the step that is being made or answered
        self._results: list[ToolCallResult] = []  # in the open content, in their order

    def add(self, role: str, parts: tuple[Part, ...]) -> None:
        """Parts that somebody says: more of the open content, or a new one."""
        if role == self.role:
            written, results = self._written(parts, self._calls)
            if written:
                self._join(written, results)
            return
        calls = [] if role == "model" else self._calls
        written, results = self._written(parts, calls)
        if written:
            self._begin(role, written, results)
            self._calls = calls

    def add_odd(self, message: Message, index: int, role: str | None) -> None:
        """A message that says something of itself, or that neither the user nor the model says."""
        lose_message_extras(message, index, self._writer.losses)
        if role is None:
            self._add_other(message, index)
            return
        if marked(message.native, FUNCTION):
            role = FUNCTION
        extras = extras_of(message.native)
        if not extras:
            self.add(role, message.parts)
            return
        before, count = self.role, len(self.contents)
        self.role = ""  # what is said of this content is not said of the one before
        self.add(role, message.parts)
        if len(self.contents) == count:
            self.role = before
        else:
            self.contents[-1].update(extras)
            self.role = ""  # nor of the next

    def _begin(self, role: str, written: list[Any], results: list[ToolCallResult]) -> None:
        """A new content, of another role than the one before it."""
        if len(self._results) > 1:
            self.close()
        self.role = role
        self._parts = written
        self._results = results
        self.contents.append({"role": role, "parts": written})

    def _written(self, parts: tuple[Part, ...], calls: list[ToolCallRequest]) -> tuple[list[Any], list[ToolCallResult]]:
        """Parts as they are written, and the results among them; the calls are added to those of the step."""
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
            else:
                other = writer.write(part, position)
                if other is not None:
                    written.append(other)
        aside = writer.results.aside
        if aside:
            written += aside
            aside.clear()
        return written, results

    def _join(self, written: list[Any], results: list[ToolCallResult]) -> None:
        """More parts for the open content; results go to the results."""
        if results and not is_result(self._parts[-1]):
            end = max((place + 1 for place, part in enumerate(self._parts) if is_result(part)), default=0)
            self._parts[end:end] = [part for part in written if is_result(part)]
            self._parts += [part for part in written if not is_result(part)]
        else:
            self._parts += written
        self._results += results

    def close(self) -> None:
        """The open content is whole: see that the results in it can be told apart."""
        results, self._results = self._results, []
        if len(results) > 1 and results[0].tool_call_id.startswith(MINTED) and not _is_plain(self._calls, results):
            _sort_results(self._parts, self._calls, results)

    def _add_other(self, message: Message, index: int) -> None:
        losses = self._writer.losses
        if message.role == "unknown":
            for position, part in enumerate(message.parts):
                if isinstance(part, Native) and part.origin == FORMAT:
                    self.close()
                    self.contents.append(part.data)
                    self.role = ""
                else:
                    losses.append(
                        Loss(f"messages[{index}].parts[{position}]", "message", f"{FORMAT} has no such message")
                    )
            return
        written, results = self._written(message.parts, self._calls)
        note: Written | None = next((part for part in written if isinstance(part, dict) and "text" in part), None)
        if note is not None and message.role in ("system", "developer"):
            written[written.index(note)] = {**note, "text": NOTE + note["text"]}
        losses.append(
            Loss(f"messages[{index}].role", message.role, "after the beginning only the user and the model speak")
        )
        if written and self.role == "user":
            self._join(written, results)
        elif written:
            self._begin("user", written, results)


def _is_plain(calls: list[ToolCallRequest], results: list[ToolCallResult]) -> bool:
    """Whether a reader without ids would give each result to its call."""
    ids = CallIds()
    theirs = {ids.called(call.tool_name, None): call.tool_call_id for call in calls}
    return all(theirs.get(ids.answered(result.tool_name, None)[0]) == result.tool_call_id for result in results)


def _sort_results(parts: list[Any], calls: list[ToolCallRequest], results: list[ToolCallResult]) -> None:
    order = {call.tool_call_id: place for place, call in enumerate(calls)}
    places = [place for place, part in enumerate(parts) if is_result(part)]
    if len(places) != len(results):
        return  # some came as Gemini's own and stay where they are
    written = [parts[place] for place in places]
    name_list = sorted(range(len(written)), key=lambda number: order.get(results[number].tool_call_id, len(order)))
    for place, number in zip(places, name_list, strict=True):
        parts[place] = written[number]
