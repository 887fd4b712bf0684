"""A history as LangChain messages.

The messages show what LangChain's vocabulary can show. What it cannot (signatures, blocks of one provider, the exact text of a
call's arguments, where among the words a call stood) is told as a loss to whoever reads the messages, and carried along: the
first message of such an entry has the entry itself in its `additional_kwargs`, so that `from_langchain` gives back what was
there. An entry that messages show in full carries nothing. Messages that somebody changed on the way are read as they are, not
as they were.

Not carried, because it is the log's and not the talk's: sequence numbers, times, and what is known about an entry beside its
usage.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from antiphon.context import render_live_context
from antiphon.graph.content_blocks import CARRIED
from antiphon.graph.entry_messages import messages_of
from antiphon.graph.message_entries import entry_of, results_of
from antiphon.history import (
    AgentHistory,
    AgentHistorySnapshot,
    ContextEntry,
    HistoryEntry,
    ModelInputEntry,
    SetSystemInstructionEntry,
    ToolCallResultsEntry,
)
from antiphon.wire.loss import Loss

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage


class LangChainMessages(list["BaseMessage"]):
    """The messages, with word of what they do not show."""

    losses: tuple[Loss, ...] = ()


def to_langchain(
    history: AgentHistory | AgentHistorySnapshot | Iterable[HistoryEntry | ContextEntry],
) -> LangChainMessages:
    """The messages of a history as a model would see it now, or of the entries that are given."""
    losses: list[Loss] = []
    if isinstance(history, AgentHistory):
        history = history.snapshot()
    if isinstance(history, AgentHistorySnapshot):
        context = render_live_context(history)
        losses += (Loss(f"entries {left.sequence_numbers}", "entries", left.why) for left in context.left_out)
        history = context
    messages = LangChainMessages()
    before: HistoryEntry | ContextEntry | None = None
    for index, entry in enumerate(history):
        written = messages_of(entry, f"entries[{index}]", losses)
        if written and isinstance(entry, HistoryEntry) and not _is_shown(entry, written, before, not messages):
            carried = {"entry": msgspec.json.decode(msgspec.json.encode(bare(entry))), "messages": len(written)}
            written[0].additional_kwargs = {**written[0].additional_kwargs, CARRIED: carried}
        messages += written
        before = entry if written else before
    messages.losses = tuple(losses)
    return messages


def bare(entry: HistoryEntry) -> HistoryEntry:
    """An entry as a talk knows it: without its place in a log and what is known about it."""
    return msgspec.structs.replace(entry, sequence_number=0, timestamp=None, metadata=None)


def _is_shown(entry: HistoryEntry, written: list[Any], before: Any, is_first: bool) -> bool:
    """Whether the messages, read again, are the entry."""
    if isinstance(entry, ToolCallResultsEntry):
        return not isinstance(before, ToolCallResultsEntry) and bare(results_of(written, "", [])) == bare(entry)
    if isinstance(entry, ModelInputEntry | SetSystemInstructionEntry) and written[0].type == "system" and not is_first:
        return isinstance(entry, ModelInputEntry) and entry_of(written[0], False, "", []) == bare(entry)
    read = entry_of(written[0], is_first, "", [])
    return read is not None and bare(read) == bare(entry)
