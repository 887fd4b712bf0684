"""Messages and results from elsewhere: put into the inbox of a conversation, and taken into its log exactly once.

`steer` sends a message to a run that is going on, from any process: it is admitted before the next model call, begins no run, and
the limits go on. If the run is over, the message begins the next one. `settle` brings the result of a call from outside.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec
from msgspec import structs

from antiphon.conversation.turn import STEERING_CHANNEL, Turn
from antiphon.errors import ConversationError
from antiphon.history import AgentHistory, EntryMetadata, ModelInputEntry, ToolCallResultsEntry, encode_entry
from antiphon.history.journal import INBOX_KEY, Inbox, InboxItem
from antiphon.ids import new_id
from antiphon.parts import ToolCallRequest
from antiphon.tools.results import to_result

logger = logging.getLogger(__name__)


def put_steering(inbox: Inbox, entry: ModelInputEntry, key: str = "") -> str:
    """Put a message into an inbox and return its key. The same key again puts nothing. Raises `InvalidEntry`."""
    key = key or new_id()
    inbox.put(InboxItem(key, "steering", encode_entry(entry)))
    return key


def put_result(history: AgentHistory, tool_call_id: str, result: Any) -> None:
    """Put the result of an open call into the inbox: whatever a tool may return. Raises `ConversationError` for another call."""
    given = to_result(ToolCallRequest("", tool_call_id), result)
    try:
        body = msgspec.json.encode(given)
    except UnicodeEncodeError as error:
        raise ConversationError(f"call {tool_call_id!r} or its result is not Unicode: {error}") from error
    snapshot = history.stored_snapshot()  # the run may go on in another process
    open_calls = Turn.of(snapshot).open_calls
    if tool_call_id not in open_calls:
        for entry in reversed(snapshot.effective):
            if isinstance(entry, ToolCallResultsEntry) and any(
                one.tool_call_id == tool_call_id for one in entry.results
            ):
                raise ConversationError(f"call {tool_call_id!r} has a result already (entry {entry.sequence_number})")
        names = ", ".join(f"{call} ({state.call.tool_name})" for call, state in open_calls.items()) or "none"
        raise ConversationError(
            f"call {tool_call_id!r} is not open, so nothing waits for its result; open calls: {names}"
        )
    history.inbox.put(InboxItem(tool_call_id, "result", body))


def admit(history: AgentHistory, turn: Turn, channel: str = STEERING_CHANNEL) -> bool:
    """Append what waits in the inbox, and remove it; returns whether something was appended.

    `channel` is that of the first message: `user` begins a run.
    """
    known = {key for entry in history.entries if (key := entry.extra(INBOX_KEY))}
    is_new = False
    for item in history.inbox.items():
        if item.kind == "result":
            if item.key in turn.open_calls:
                continue  # it is taken when its call is looked at
            logger.warning("[%s] a result for call %s came too late, and is dropped", history.id or "memory", item.key)
        elif item.key not in known:
            entry = msgspec.json.decode(item.body, type=ModelInputEntry)
            extra = {INBOX_KEY: item.key}
            history.append(structs.replace(entry, channel=channel, metadata=EntryMetadata(extra=extra)))
            is_new, channel = True, STEERING_CHANNEL  # what follows the first belongs to the run that it began
        history.inbox.remove([item.key])
    return is_new
