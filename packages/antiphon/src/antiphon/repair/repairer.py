"""`repair` makes the sequence of a request legal, if `is_legal` says that it is not.

Repair is gentle (law L5): legal messages come back as the same object, repairing twice is repairing once, all content is kept,
and if repair itself fails, the original is forwarded and the failure is logged.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec import structs

from antiphon.errors import WireError
from antiphon.parts import Native, Text, ToolCallRequest, ToolCallResult
from antiphon.repair.action import LOG_LEVELS, Action
from antiphon.repair.foreign_blocks import is_foreign_block, read_foreign_blocks
from antiphon.repair.sequence import restore_order
from antiphon.wire import formats
from antiphon.wire.request import Message, ModelRequest, ToolChoice, ToolDefinition, server_state
from antiphon.wire.rules.sequence import SequenceJudge
from antiphon.wire.spec import HostDialect, SequenceRule
from antiphon.wire.tools.namespaces import flatten

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
        # The server may have earlier messages, to whose calls results belong.
        is_continued = request.native is not None and server_state(request, format) is not None
        messages, actions = repair_sequence(request.messages, format, is_continued=is_continued)
    except Exception:
        logger.exception("%srepair failed; forwarding the request unchanged", log_prefix(request_id))
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
    if (
        request.tools
        or not formats[format].spec.calls_need_tools
        or not formats[format].spec.tool_parameters.isdisjoint(own)
    ):
        return Repaired(request, [])
    in_one_list = flatten(request)
    flat = request if in_one_list is None else in_one_list.request
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
    dialect: str | HostDialect | None,
) -> Repaired:
    """Put a system message first, for a host that refuses requests without one (CodeBuddy)."""
    host = formats[format].find_dialect(dialect) if dialect is not None else None
    begins = bool(request.messages) and request.messages[0].role in ("system", "developer")
    if begins or host is None or not host.begins_with_system:
        return Repaired(request, [])
    action = Action("added", 0, f"the host requires a system message first: {_SYSTEM_TEXT}")
    return Repaired(structs.replace(request, messages=(_SYSTEM_MESSAGE, *request.messages)), [action])


def repair_sequence(
    messages: Sequence[Message], format_name: str, *, is_continued: bool
) -> tuple[Sequence[Message], list[Action]]:
    """The messages in an order that the format accepts, and the changes; the same object if they are legal."""
    actions: list[Action] = []
    rule = formats[format_name].spec.sequence_rule
    if is_legal(messages, rule, is_continued=is_continued):
        return messages, actions
    read = read_foreign_blocks(messages, actions)
    if read is not messages and is_legal(read, rule, is_continued=is_continued):
        return read, actions
    keep_orphans = is_continued or has_stored_items(read, rule)
    return restore_order(read, rule, actions, keep_orphans=keep_orphans), actions


def is_legal(messages: Sequence[Message], rule: SequenceRule, *, is_continued: bool = False) -> bool:
    """Whether every call has exactly one result where the format requires it, and there are no blocks of other formats.

    Messages that are plainly in order need no judge. `is_continued`: the server has earlier messages, so a result may belong to
    a call that is not here.
    """
    if not is_continued and is_plain(messages):
        return True
    judge = SequenceJudge(rule, is_continued=is_continued)
    problems, has_order = judge.problems, rule.results_follow_calls
    for index, message in enumerate(messages):
        parts = message.parts
        if len(parts) == 1:
            part = parts[0]
            if type(part) is Text:
                if not is_continued and not (has_order and judge.pending):
                    continue  # text alone matters only between calls and their results
            elif (
                type(part) is ToolCallResult and message.role != "assistant" and judge.answer(part.tool_call_id, index)
            ):
                continue
        judge.turn(message.role == "assistant")
        for part in parts:
            if type(part) is ToolCallRequest:
                judge.call(part.tool_call_id, index)
            elif type(part) is ToolCallResult:
                judge.result(part.tool_call_id, index)
            elif type(part) is not Text and is_foreign_block(part):
                return False
            elif has_order and judge.pending:
                judge.other()
        if not parts and has_order:
            judge.other()
        if problems:
            return False
    return not judge.end(is_continued=has_stored_items(messages, rule))


def is_plain(messages: Sequence[Message]) -> bool:
    """Whether there is only text, calls with ids of their own, and directly after them their results in text.

    Such messages are legal in every format."""
    pending: set[str] = set()
    seen = {""}
    for message in messages:
        parts: Any = message.parts
        if message.role == "assistant":
            if pending:
                return False
            for part in parts:
                kind = type(part)
                if kind is ToolCallRequest:
                    call_id = part.tool_call_id
                    if call_id in seen:
                        return False
                    seen.add(call_id)
                    pending.add(call_id)
                elif kind is not Text:
                    return False
        elif parts:
            for part in parts:
                kind = type(part)
                if kind is ToolCallResult:
                    call_id = part.tool_call_id
                    if call_id not in pending:
                        return False
                    pending.remove(call_id)
                    for inner in part.content:
                        if type(inner) is not Text:
                            return False
                elif pending or kind is not Text:
                    return False
        elif pending:
            return False
    return not pending


def has_stored_items(messages: Sequence[Message], rule: SequenceRule) -> bool:
    """Whether a message refers to turns on the server, so that results may belong to calls that are not here."""
    return bool(rule.stored_items) and any(
        type(part) is Native and part.origin == rule.origin and _type_of(part.data) in rule.stored_items
        for message in messages
        for part in message.parts
    )


def _type_of(item: Any) -> Any:
    """The type of a native item; an `item_reference` may omit it."""
    return item.get("type", "item_reference" if "id" in item else "") if isinstance(item, dict) else ""


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
        log_prefix(request_id),
        summary,
        most_severe,
    )


def log_prefix(request_id: str) -> str:
    return f"[{request_id}] " if request_id else ""
