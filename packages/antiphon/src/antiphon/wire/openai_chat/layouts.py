"""Three layouts of the same history as OpenAI messages.

One round of a tool loop is an assistant message with text and calls, and the results. Each layout rearranges neutral messages,
which `MessageListWriter` then writes; a legal sequence stays legal in all three.

- `merged` (the default): one assistant message with the text and all calls, then a tool message for each result;
- `per_part`: a message for each part; every call is followed at once by its own result (OC-03);
- `iterations`: text and calls in two assistant messages, and all messages of a round, results included, with a `name` such as
  `iteration_1` (OC-25).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import structs

from antiphon.errors import WireError
from antiphon.json_text import decode_json
from antiphon.parts import Part, ToolCallRequest, ToolCallResult
from antiphon.wire.loss import Loss, Losses
from antiphon.wire.openai_chat.dialects import Dialect, get_dialect
from antiphon.wire.openai_chat.message_writer import MessageListWriter
from antiphon.wire.request import Layout, Message


def write_messages(
    messages: Sequence[Message], losses: list[Loss], *, layout: Layout = "merged", dialect: str | Dialect = "openai"
) -> list[dict[str, Any]]:
    """A history as OpenAI messages, in one of three layouts."""
    arranged = arrange(messages, layout)
    host = structs.replace(get_dialect(dialect), writes_result_name=layout == "iterations")
    recorded = Losses()
    written = MessageListWriter(recorded, host).write(arranged)
    losses += recorded
    plain: list[dict[str, Any]] = decode_json(msgspec.json.encode(written))
    return plain


def arrange(messages: Sequence[Message], layout: Layout) -> list[Message]:
    """The messages in a layout. Raises `WireError` for another name."""
    if layout not in _LAYOUTS:
        raise WireError(f"unknown strategy {layout!r}; expected one of: {', '.join(_LAYOUTS)}")
    return list(_LAYOUTS[layout](messages))


def _per_part(messages: Sequence[Message]) -> Iterator[Message]:
    index = 0
    while index < len(messages):
        message = messages[index]
        index += 1
        if message.role != "assistant" or not any(map(_is_call, message.parts)):
            yield message
            continue
        run = index
        while index < len(messages) and any(map(_is_result, messages[index].parts)):
            index += 1
        yield from _split_turn(message, messages[run:index])


def _split_turn(message: Message, result_messages: Sequence[Message]) -> Iterator[Message]:
    """Each part of a turn as a message, each call followed by its result; other parts of the result messages follow."""
    pending: dict[str, deque[ToolCallResult]] = {}
    for result_message in result_messages:
        for part in result_message.parts:
            if isinstance(part, ToolCallResult):
                pending.setdefault(part.tool_call_id, deque()).append(part)
    for index, part in enumerate(message.parts):
        yield structs.replace(message, parts=(part,), native=message.native if index == 0 else None)
        if isinstance(part, ToolCallRequest):
            results = pending.get(part.tool_call_id)
            if results:
                yield Message("tool", (results.popleft(),))
    for result in (result for results in pending.values() for result in results):
        yield Message("tool", (result,))
    for result_message in result_messages:
        others = tuple(part for part in result_message.parts if not _is_result(part))
        if others:
            yield structs.replace(
                result_message, role="user" if result_message.role == "tool" else result_message.role, parts=others
            )


def _iterations(messages: Sequence[Message]) -> Iterator[Message]:
    number = 1
    for message in messages:
        name = message.name or f"iteration_{number}"
        if message.role == "assistant":
            other = tuple(part for part in message.parts if not _is_call(part))
            calls = tuple(part for part in message.parts if _is_call(part))
            if other or not calls:
                yield structs.replace(message, parts=other, name=name)
            if calls:
                yield structs.replace(message, parts=calls, name=name, native=None if other else message.native)
            number += 1
        elif message.role == "user" and not any(map(_is_result, message.parts)):
            yield structs.replace(message, name=name)
        else:
            # A result has no place for a participant; its name is the `name` of the tool message.
            parts = (
                structs.replace(part, tool_name=f"iteration_{number - 1}") if isinstance(part, ToolCallResult) else part
                for part in message.parts
            )
            yield structs.replace(message, parts=tuple(parts))


def _is_call(part: Part) -> bool:
    return isinstance(part, ToolCallRequest)


def _is_result(part: Part) -> bool:
    return isinstance(part, ToolCallResult)


_LAYOUTS: dict[str, Callable[[Sequence[Message]], Iterator[Message]]] = {
    "merged": iter,
    "per_part": _per_part,
    "iterations": _iterations,
}
