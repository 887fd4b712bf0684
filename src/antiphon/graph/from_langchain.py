"""LangChain messages as entries of the log (see `message_entries` for how they are read, `to_langchain` for what they carry)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from antiphon.graph.content_blocks import CARRIED
from antiphon.graph.entry_messages import messages_of
from antiphon.graph.message_entries import entry_of, results_of
from antiphon.history import HistoryEntry, ModelOutputEntry
from antiphon.history.entries import KnownEntry
from antiphon.wire.loss import Loss

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage


class LangChainEntries(list[HistoryEntry]):
    """The entries, with word of what was not understood."""

    losses: tuple[Loss, ...] = ()


def from_langchain(messages: Iterable[BaseMessage]) -> LangChainEntries:
    """The entries that say what the messages say, ready to be appended to a history."""
    given = list(messages)
    entries, losses = LangChainEntries(), list[Loss]()
    at = 0
    while at < len(given):
        path = f"messages[{at}]"
        carried, length = _carried(given[at:])
        if carried is not None:
            entries.append(carried)
            at += length
        elif given[at].type == "tool":
            end = next((end for end in range(at + 1, len(given)) if not _goes_on(given[end])), len(given))
            entries.append(results_of(given[at:end], path, losses, _names(entries)))  # type: ignore[arg-type]
            at = end
        else:
            entry = entry_of(given[at], not entries, path, losses)
            if entry is not None:
                entries.append(entry)
            at += 1
    entries.losses = tuple(losses)
    return entries


def _names(entries: Sequence[HistoryEntry]) -> dict[str, str]:
    """The tools that the last answer calls, by the ids of its calls."""
    output = next((entry for entry in reversed(entries) if isinstance(entry, ModelOutputEntry)), None)
    return {call.tool_call_id: call.tool_name for call in output.tool_calls} if output is not None else {}


def _goes_on(message: BaseMessage) -> bool:
    """Whether a message belongs to the results before it."""
    return message.type == "tool" and CARRIED not in message.additional_kwargs


def _carried(messages: Sequence[BaseMessage]) -> tuple[HistoryEntry | None, int]:
    """The entry that a message carries, if the messages still say what it says; and how many they are."""
    carried = messages[0].additional_kwargs.get(CARRIED)
    if not isinstance(carried, dict):
        return None, 0
    try:
        entry: HistoryEntry = msgspec.convert(carried["entry"], KnownEntry)
        length = int(carried["messages"])
    except (msgspec.ValidationError, KeyError, TypeError, ValueError):
        return None, 0
    shown = [_shown(message) for message in messages_of(entry, "", [])]
    return (entry, length) if shown == [_shown(message) for message in messages[:length]] else (None, 0)


def _shown(message: BaseMessage) -> Any:
    """What a message says, without what hangs on it."""
    kept = ("type", "content", "tool_calls", "invalid_tool_calls", "tool_call_id", "status")
    return {name: getattr(message, name, None) for name in kept}
