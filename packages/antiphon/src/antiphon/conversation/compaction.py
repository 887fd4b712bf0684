"""Compaction: a summary that replaces the earlier turns of a conversation that has grown too long (`CompactionEntry`).

The model is called aside (`Conversation.call_aside`), so that neither prompt nor answer is part of the conversation; hooks see
the call, and it counts for usage, limits and costs. An earlier summary is carried over whole. The offline model is not called:
the summary is then an extract, as it is for a conversation whose model does not answer or may not be called.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from antiphon.conversation.conversation import Conversation
from antiphon.conversation.events import CompactionNeeded
from antiphon.conversation.turn import starts_turn
from antiphon.errors import ConversationError
from antiphon.history import (
    AgentHistorySnapshot,
    CompactionEntry,
    EntryMetadata,
    HistoryEntry,
    ModelInputEntry,
    ModelOutputEntry,
    ToolCallResultsEntry,
)
from antiphon.history.transcript import entry_lines
from antiphon.providers.call import ModelCallFailed
from antiphon.providers.default_model import is_tour
from antiphon.text import one_line, shorten

logger = logging.getLogger(__name__)

_PROMPT = (
    "Summarise the conversation below for a model that will continue it: what the person wants, what was found and decided, the "
    "names, numbers, ids and dates that will be needed, and what is still open. If it begins with a summary of what came before "
    "that, keep what it says. Write in the language of the conversation, without preamble, at most 400 words."
)
_MAX_TRANSCRIPT_CHARS = 120_000
_MAX_SUMMARY_CHARS = 20_000
_MAX_LINE_CHARS = 300
_MAX_EXTRACT_CHARS = 6_000
_SPEAKERS = {ModelInputEntry: "Person", ModelOutputEntry: "Model", ToolCallResultsEntry: "Tools"}


async def compact(
    chat: Conversation, write: Callable[[Callable[[], CompactionEntry]], Awaitable[CompactionEntry]] | None = None
) -> CompactionEntry:
    """Replace all turns but the latest by a summary. Raises `ConversationError` if there is nothing to summarise.

    `write` runs the function that appends the entry, for example in a thread; by default it is called directly.
    """
    snapshot = chat.history.snapshot()
    up_to = compaction_end(snapshot)
    summary, problem = await summarize(chat, snapshot, up_to)
    metadata = EntryMetadata(error=problem) if problem else None

    def append() -> CompactionEntry:
        return chat.history.append(CompactionEntry(summary, up_to, metadata=metadata))

    return append() if write is None else await write(append)


async def compact_when_needed(chat: Conversation, event: CompactionNeeded) -> None:
    """A subscriber for `Conversation.on_compaction`: summarises the earlier turns, if there are any."""
    try:
        entry = await compact(chat)
    except ConversationError as reason:  # one long turn
        logger.info("[%s] %d tokens, and no earlier turn to summarise: %s", chat.id or "memory", event.tokens, reason)
    else:
        logger.info("[%s] summarised the entries up to %d", chat.id or "memory", entry.up_to)


def compaction_end(snapshot: AgentHistorySnapshot) -> int:
    """The last entry that a summary replaces: the one before the latest turn. Raises `ConversationError` if there is none."""
    done = snapshot.compaction.up_to if snapshot.compaction else 0
    questions = [entry.sequence_number for entry in snapshot.effective if starts_turn(entry)]
    up_to = questions[-1] - 1 if questions else 0
    if not any(number <= up_to and number > done for number in questions):
        raise ConversationError("there is nothing to summarise yet: only the latest turn exists, and it is kept")
    return up_to


async def summarize(chat: Conversation, snapshot: AgentHistorySnapshot, up_to: int) -> tuple[str, str]:
    """The effective entries up to `up_to` in a few words; and why these are an extract, if the model wrote none."""
    done = snapshot.compaction
    start = done.up_to if done is not None else 0
    entries = [entry for entry in snapshot.effective if start < entry.sequence_number <= up_to]
    texts = [line for entry in entries if (line := _line(entry))]
    problem = ""
    if not is_tour(chat.model):
        before = f"Before that: {_clip(done.summary, _MAX_SUMMARY_CHARS)}\n\n" if done is not None else ""
        transcript = "\n\n".join(texts)[-_MAX_TRANSCRIPT_CHARS:]
        try:
            answer = await chat.call_aside(before + transcript, purpose="summary", system=_PROMPT)
        except (ModelCallFailed, ConversationError) as error:
            problem = str(error)
        else:
            if text := answer.text.strip():
                return text, ""
            problem = "it is empty"
        logger.warning("no summary from the model, so an extract is made: %s", problem)
    earlier = _clip(done.summary, _MAX_EXTRACT_CHARS) if done is not None else ""
    return "\n".join(filter(None, (earlier, extract(texts)))), problem


def extract(texts: list[str]) -> str:
    """The beginning of every text, oldest first; if that is too much, only the latest."""
    lines = [shorten(one_line(text), _MAX_LINE_CHARS) for text in texts]
    size, kept = 0, 0
    for line in reversed(lines):
        size += len(line)
        if size > _MAX_EXTRACT_CHARS:
            break
        kept += 1
    left_out = [f"({len(lines) - kept} earlier entries are left out.)"] if kept < len(lines) else []
    return "\n".join([*left_out, *lines[len(lines) - kept :]])


def _clip(summary: str, most: int) -> str:
    """An earlier summary: whole, as those of a model are; of one that has grown too long, the beginning and the end."""
    if len(summary) <= most:
        return summary
    half = most // 2
    return f"{summary[:half].rstrip()}\n(…)\n{summary[-half:].lstrip()}"


def _line(entry: HistoryEntry) -> str:
    speaker = _SPEAKERS.get(type(entry))
    return f"{speaker}: {chr(10).join(entry_lines(entry))}" if speaker else ""
