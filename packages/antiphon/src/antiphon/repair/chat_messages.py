"""`fix_tool_call_sequence`: plain messages of Chat Completions, repaired without being translated."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import msgspec

from antiphon.json_text import decode_json
from antiphon.repair.action import Action
from antiphon.repair.repairer import log_actions, log_prefix, repair_sequence
from antiphon.repair.sequence import is_placeholder
from antiphon.wire.loss import Losses
from antiphon.wire.openai_chat import FORMAT
from antiphon.wire.openai_chat.dialects import PLAIN_DIALECT
from antiphon.wire.openai_chat.message_writer import MessageListWriter
from antiphon.wire.openai_chat.messages import read_messages
from antiphon.wire.openai_chat.request import READER
from antiphon.wire.request import Message

logger = logging.getLogger("antiphon.repair")


def fix_tool_call_sequence(messages: list[dict[str, Any]], request_id: str = "") -> list[dict[str, Any]]:
    """Repair a plain list of OpenAI messages: calls, then their results, then what interrupted them.

    Legal messages come back as the same list; messages that need no change are the same dicts. What is rewritten keeps
    every field; only the sequence is repaired, so media stay where the caller put them.
    """
    actions: list[Action] = []
    try:
        result = fix_chat_messages(messages, actions)
    except Exception:
        logger.exception("%srepair failed; forwarding the messages unchanged", log_prefix(request_id))
        return messages
    log_actions(actions, request_id)
    return result


def fix_chat_messages(messages: list[dict[str, Any]], actions: list[Action]) -> list[dict[str, Any]]:
    """`fix_tool_call_sequence` for callers that report themselves; `actions` gets the changes. Raises what readers raise."""
    given = _without_empty_calls(messages, actions)
    neutral = tuple(read_messages(READER.shapes_of(given)))
    fixed, more = repair_sequence(neutral, FORMAT, is_continued=False)
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
    writer, count = MessageListWriter(Losses(), PLAIN_DIALECT), 0
    result: list[dict[str, Any]] = []
    for message in messages:
        original = originals.get(id(message))
        if original is not None:
            result.append(original)
            continue
        entries = writer.write([message])[count:]
        count += len(entries)
        written = decode_json(msgspec.json.encode(entries))
        if written[0]["role"] == "tool" and is_placeholder(message.parts[0]):
            del written[0]["name"]  # the id says which call it answers
        result += written
    return result
