"""Compaction: a summary that replaces the earlier turns of a conversation that has grown too long (`CompactionEntry`).

The model is called in a thread of its own, so that neither prompt nor answer is part of the conversation. The offline model is
not called: the summary is then an extract, as it is for a conversation whose model does not answer.
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
    HistoryEntry,
    ModelInputEntry,
    ModelOutputEntry,
    ToolCallResultsEntry,
)
from antiphon.history.transcript import entry_lines
from antiphon.providers.call import ModelCallFailed
from antiphon.providers.client import ProviderClient
from antiphon.text import one_line, shorten

logger = logging.getLogger(__name__)

_PROMPT = (
    "Summarise the conversation below for a model that will continue it: what the person wants, what was found and decided, the "
    "names, numbers, ids and dates that will be needed, and what is still open. Write in the language of the conversation, "
    "without preamble, at most 400 words."
)
_MAX_TRANSCRIPT_CHARS = 120_000
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
    summary = await summarize(snapshot, up_to, chat.client, chat.model)

    def append() -> CompactionEntry:
        return chat.history.compact(summary, up_to)

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
        raise ConversationError("there is nothing to sum up yet: only the latest turn exists, and it is kept")
    return up_to


async def summarize(snapshot: AgentHistorySnapshot, up_to: int, provider: ProviderClient, model: str) -> str:
    """The effective entries up to `up_to` in a few words."""
    entries = [entry for entry in snapshot.effective if entry.sequence_number <= up_to]
    before = snapshot.compaction
    if before is not None:
        entries = [entry for entry in entries if entry.sequence_number > before.up_to]
    texts = [f"Before that: {before.summary}"] if before is not None else []
    texts += [line for entry in entries if (line := _line(entry))]
    if model.partition("/")[0] != "offline":
        try:
            asking = Conversation(model, provider=provider, system=_PROMPT)
            asking.add("\n\n".join(texts)[-_MAX_TRANSCRIPT_CHARS:])
            if answer := (await asking.call_model()).response_markdown.strip():
                return answer
        except ModelCallFailed as failure:
            logger.warning("no summary from the model, so an extract is made: %s", failure)
    return extract(texts)


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


def _line(entry: HistoryEntry) -> str:
    speaker = _SPEAKERS.get(type(entry))
    return f"{speaker}: {chr(10).join(entry_lines(entry))}" if speaker else ""
