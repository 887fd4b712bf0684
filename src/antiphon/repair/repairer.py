"""`repair` makes the sequence of a request legal; `fix_tool_call_sequence` does the same for plain OpenAI messages.

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
from antiphon.repair.action import LOG_LEVELS, Action
from antiphon.repair.foreign_blocks import read_foreign_blocks
from antiphon.repair.sequence import has_stored_items, is_legal, restore_order
from antiphon.wire import formats
from antiphon.wire.request import Message, ModelRequest, server_state

logger = logging.getLogger("antiphon.repair")


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
        _log(actions, request_id)
    return Repaired(structs.replace(request, messages=tuple(messages)), actions)


def fix_tool_call_sequence(messages: list[dict[str, Any]], request_id: str = "") -> list[dict[str, Any]]:
    """Repair a plain list of OpenAI messages: calls, then their results, then what interrupted them.

    Legal messages come back as the same list; messages that need no change are the same dicts.
    """
    from antiphon.wire.openai_chat.layouts import write_messages
    from antiphon.wire.openai_chat.messages import read_messages

    try:
        neutral = read_messages(messages)
        fixed, actions = _repair_messages(neutral, "openai-chat", is_continued=False)
        if fixed is neutral:
            return messages
        originals = {id(message): original for message, original in zip(neutral, messages, strict=True)}
        result: list[dict[str, Any]] = []
        for message in fixed:
            original = originals.get(id(message))
            result += [original] if original is not None else write_messages([message], [])
    except Exception:
        logger.exception("%srepair failed; forwarding the messages unchanged", _prefix(request_id))
        return messages
    _log(actions, request_id)
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


def _log(actions: Sequence[Action], request_id: str) -> None:
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
