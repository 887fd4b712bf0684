"""Three ways to keep the same history as OpenAI messages.

Theory of operation. One round of a tool loop is an assistant message with text and calls, and the results. The strategies
differ in how many messages that makes; each is a rearrangement of neutral messages, which the one `MessageWriter` then
writes:

- `merged` (the default): one assistant message with the text and all calls, then a tool message for each result;
- `per_part`: a message for each part; every call stands alone and is followed at once by its own result, so that the
  sequence stays legal (OC-03);
- `iterations`: the text and the calls in two assistant messages, and each round's messages tagged with a `name` such as
  `iteration_1`. A name is legal for users and assistants (OC-25); tool messages belong to the calls above them.

A legal sequence stays legal in all three. Results that are no text are written as JSON with sorted keys, so that the same
result always gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import structs

from antiphon.parts import Part, ToolCallRequest, ToolCallResult
from antiphon.wire.loss import Loss
from antiphon.wire.openai_chat.dialects import Dialect, dialect_named
from antiphon.wire.openai_chat.message_writer import MessageWriter
from antiphon.wire.request import Message

Strategy: TypeAlias = Literal["merged", "per_part", "iterations"]


def write_messages(
    messages: Sequence[Message], losses: list[Loss], *, strategy: Strategy = "merged", dialect: str | Dialect = "openai"
) -> list[dict[str, Any]]:
    """A history as OpenAI messages, in one of three arrangements."""
    arranged = list(_ARRANGEMENTS[strategy](messages))
    host = structs.replace(dialect_named(dialect), names_results=False)
    return MessageWriter(losses, host).write(arranged)


def _per_part(messages: Sequence[Message]) -> Iterator[Message]:
    place = 0
    while place < len(messages):
        message = messages[place]
        place += 1
        if message.role != "assistant" or not any(map(_is_call, message.parts)):
            yield message
            continue
        run = place
        while place < len(messages) and any(map(_is_result, messages[place].parts)):
            place += 1
        yield from _one_by_one(message, messages[run:place])


def _one_by_one(message: Message, answers: Sequence[Message]) -> Iterator[Message]:
    """Each part of a turn as a message, each call followed by its result; what else was in the answers follows."""
    waiting: dict[str, list[ToolCallResult]] = {}
    for answer in answers:
        for part in answer.parts:
            if isinstance(part, ToolCallResult):
                waiting.setdefault(part.tool_call_id, []).append(part)
    for place, part in enumerate(message.parts):
        yield structs.replace(message, parts=(part,), native=message.native if place == 0 else None)
        if isinstance(part, ToolCallRequest):
            results = waiting.get(part.tool_call_id)
            if results:
                yield Message("tool", (results.pop(0),))
    for result in (result for results in waiting.values() for result in results):
        yield Message("tool", (result,))
    for answer in answers:
        rest = tuple(part for part in answer.parts if not _is_result(part))
        if rest:
            yield structs.replace(answer, role="user" if answer.role == "tool" else answer.role, parts=rest)


def _iterations(messages: Sequence[Message]) -> Iterator[Message]:
    number = 1
    for message in messages:
        name = message.name or f"iteration_{number}"
        if message.role == "assistant":
            spoken = tuple(part for part in message.parts if not _is_call(part))
            calls = tuple(part for part in message.parts if _is_call(part))
            if spoken or not calls:
                yield structs.replace(message, parts=spoken, name=name)
            if calls:
                yield structs.replace(message, parts=calls, name=name, native=None if spoken else message.native)
            number += 1
        elif message.role == "user" and not all(map(_is_result, message.parts)):
            yield structs.replace(message, name=name)
        else:
            yield message


def _is_call(part: Part) -> bool:
    return isinstance(part, ToolCallRequest)


def _is_result(part: Part) -> bool:
    return isinstance(part, ToolCallResult)


_ARRANGEMENTS: dict[str, Callable[[Sequence[Message]], Iterator[Message]]] = {
    "merged": iter,
    "per_part": _per_part,
    "iterations": _iterations,
}
