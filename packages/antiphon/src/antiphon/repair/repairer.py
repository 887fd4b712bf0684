"""`repair` makes the sequence of a request legal; `fix_tool_call_sequence` does the same for plain OpenAI messages.

Repair is gentle (law L5): legal messages come back as the same object, repairing twice is repairing once, all content is kept,
and if repair itself fails, the original is forwarded and the failure is logged.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import structs

from antiphon.errors import WireError
from antiphon.parts import Text, ToolCallRequest
from antiphon.repair.action import LOG_LEVELS, Action
from antiphon.repair.foreign_blocks import read_foreign_blocks
from antiphon.repair.sequence import has_stored_items, is_legal, is_placeholder, restore_order
from antiphon.wire import formats
from antiphon.wire.loss import Losses
from antiphon.wire.request import TOOL_NAMESPACES, Message, ModelRequest, ToolChoice, ToolDefinition, server_state

if TYPE_CHECKING:
    from antiphon.wire.openai_chat.dialects import Dialect

logger = logging.getLogger("antiphon.repair")

_SYSTEM_TEXT = "You are a helpful assistant."
_SYSTEM_MESSAGE = Message("system", (Text(_SYSTEM_TEXT),))


class Repaired(NamedTuple):
    """A request with a legal sequence, and the changes (none: it is the same object)."""

    request: ModelRequest
    actions: list[Action]


def repair(
    request: ModelRequest,
    format: str,  # noqa: A002 - the design's word
    *,
    request_id: str = "",
    is_logged: bool = True,
) -> Repaired:
    """Make the sequence of a request legal for a format. Never raises for a request; logs with `request_id`.

    A caller that reports the actions itself turns the log line off by `is_logged`.
    """
    if format not in formats:
        raise WireError(f"unknown format {format!r}; expected one of: {', '.join(formats)}")
    try:
        messages, actions = _repair_messages(
            request.messages, format, is_continued=_server_has_history(request, format)
        )
    except Exception:
        logger.exception("%srepair failed; forwarding the request unchanged", _prefix(request_id))
        return Repaired(request, [])
    if messages is request.messages:
        return Repaired(request, actions)
    if is_logged:
        log_actions(actions, request_id)
    return Repaired(structs.replace(request, messages=tuple(messages)), actions)


def declare_called_tools(request: ModelRequest, format: str) -> Repaired:  # noqa: A002 - the design's word
    """Declare the tools that earlier calls name, for a request that has none; the model may call none of them.

    Bedrock, LiteLLM and others refuse such calls in Anthropic's format (AN-31), the API itself accepts them. So this is for
    bodies that are written in any case.
    """
    own = (request.native or {}).get(format, {})
    if request.tools or not formats[format].module.calls_need_tools or "mcp_servers" in own:
        return Repaired(request, [])
    flat = request
    if TOOL_NAMESPACES in (request.native or ()):
        from antiphon.wire.openai_responses.namespaces import flatten

        flat = flatten(request).request
    calls = [part for message in flat.messages for part in message.parts if type(part) is ToolCallRequest]
    if flat.tools or not calls:
        return Repaired(request, [])
    tools = {call.tool_name: ToolDefinition(call.tool_name, freeform=call.freeform) for call in reversed(calls)}
    declared = tuple(tools[name] for name in dict.fromkeys(call.tool_name for call in calls))
    position = next(
        at for at, it in enumerate(request.messages) if any(type(part) is ToolCallRequest for part in it.parts)
    )
    action = Action("declared", position, f"no tools, but calls of {', '.join(tool.name for tool in declared)[:200]}")
    return Repaired(structs.replace(request, tools=declared, tool_choice=ToolChoice("none")), [action])


def add_system_message(
    request: ModelRequest,
    format: str,  # noqa: A002 - the design's word
    dialect: str | Dialect | None,
) -> Repaired:
    """Put a system message first, for a host that refuses requests without one (CodeBuddy)."""
    if format != "openai-chat" or dialect is None:
        return Repaired(request, [])
    from antiphon.wire.openai_chat.dialects import get_dialect

    begins = bool(request.messages) and request.messages[0].role in ("system", "developer")
    if begins or not get_dialect(dialect).begins_with_system:
        return Repaired(request, [])
    action = Action("added", 0, f"the host requires a system message first: {_SYSTEM_TEXT}")
    return Repaired(structs.replace(request, messages=(_SYSTEM_MESSAGE, *request.messages)), [action])


def fix_tool_call_sequence(messages: list[dict[str, Any]], request_id: str = "") -> list[dict[str, Any]]:
    """Repair a plain list of OpenAI messages: calls, then their results, then what interrupted them.

    Legal messages come back as the same list; messages that need no change are the same dicts. What is rewritten keeps
    every field; only the sequence is repaired, so media stay where the caller put them.
    """
    actions: list[Action] = []
    try:
        result = fix_chat_messages(messages, actions)
    except Exception:
        logger.exception("%srepair failed; forwarding the messages unchanged", _prefix(request_id))
        return messages
    log_actions(actions, request_id)
    return result


def fix_chat_messages(messages: list[dict[str, Any]], actions: list[Action]) -> list[dict[str, Any]]:
    """`fix_tool_call_sequence` for callers that report themselves; `actions` gets the changes. Raises what readers raise."""
    from antiphon.wire.openai_chat.messages import read_messages
    from antiphon.wire.openai_chat.request import READER

    given = _without_empty_calls(messages, actions)
    neutral = tuple(read_messages(READER.shapes_of(given)))
    fixed, more = _repair_messages(neutral, "openai-chat", is_continued=False)
    actions += more
    return given if fixed is neutral else _write_plain(fixed, dict(zip(map(id, neutral), given, strict=True)))


def _without_empty_calls(messages: list[dict[str, Any]], actions: list[Action]) -> list[dict[str, Any]]:
    """The messages without empty lists of calls, which OpenAI rejects (OC-06); the same list if there are none."""
    changed: list[dict[str, Any]] | None = None
    position: int
    message: Any  # callers pass on what their clients sent
    for position, message in enumerate(messages):
        if isinstance(message, dict) and message.get("tool_calls") == []:
            changed = list(messages) if changed is None else changed
            rest = {name: value for name, value in message.items() if name != "tool_calls"}
            if rest.get("content") is None and not rest.get("function_call"):
                rest["content"] = ""
            changed[position] = rest
            actions.append(Action("dropped", position, "an empty list of tool_calls"))
    return messages if changed is None else changed


def _write_plain(messages: Sequence[Message], originals: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages as OpenAI's; those that have an original, by their identity, are that."""
    from antiphon.wire.openai_chat.dialects import PLAIN_DIALECT
    from antiphon.wire.openai_chat.messages import MessageListWriter

    writer, count = MessageListWriter(Losses(), PLAIN_DIALECT), 0
    result: list[dict[str, Any]] = []
    for message in messages:
        original = originals.get(id(message))
        if original is not None:
            result.append(original)
            continue
        entries = writer.write([message])[count:]
        count += len(entries)
        written = msgspec.json.decode(msgspec.json.encode(entries))
        if written[0]["role"] == "tool" and is_placeholder(message.parts[0]):
            del written[0]["name"]  # the id says which call it answers
        result += written
    return result


def _repair_messages(
    messages: Sequence[Message], format_name: str, *, is_continued: bool
) -> tuple[Sequence[Message], list[Action]]:
    actions: list[Action] = []
    rule = formats[format_name].module.sequence_rule
    if is_legal(messages, rule, is_continued=is_continued):
        return messages, actions
    read = read_foreign_blocks(messages, actions)
    if read is not messages and is_legal(read, rule, is_continued=is_continued):
        return read, actions
    keep_orphans = is_continued or has_stored_items(read, rule)
    return restore_order(read, rule, actions, keep_orphans=keep_orphans), actions


def _server_has_history(request: ModelRequest, format_name: str) -> bool:
    """Whether the server has earlier messages whose calls the results may belong to."""
    return request.native is not None and server_state(request, format_name) is not None


def log_actions(actions: Sequence[Action], request_id: str = "") -> None:
    """Log one line per repair."""
    if not actions:
        return
    most_severe = max(actions, key=lambda action: LOG_LEVELS[action.kind])
    counts = Counter(action.kind for action in actions)
    summary = ", ".join(f"{count} {kind}" for kind, count in counts.most_common())
    logger.log(
        LOG_LEVELS[most_severe.kind],
        "%srepaired the sequence: %s; such as %s",
        _prefix(request_id),
        summary,
        most_severe,
    )


def _prefix(request_id: str) -> str:
    return f"[{request_id}] " if request_id else ""
