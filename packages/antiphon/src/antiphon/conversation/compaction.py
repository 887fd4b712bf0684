"""Compaction: a summary that replaces the earlier turns of a conversation that has grown too long (`CompactionEntry`).

The model is called aside (`call_aside`), so that neither prompt nor answer is part of the conversation. It is a call like every
other: hooks see it, and the entry has what it used, which counts for usage, limits and costs. An earlier summary is carried over
whole. The offline model is not called: the summary is then an extract, as it is for a conversation whose model does not answer or
may not be called.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from msgspec import Struct

from antiphon.context import LiveContextRenderer
from antiphon.context.model_usage import model_calls_of, with_model_calls
from antiphon.conversation.conversation import Conversation
from antiphon.conversation.events import CompactionNeeded
from antiphon.conversation.recorded_call import CallRecorder, RecordedCall
from antiphon.conversation.turn import starts_turn
from antiphon.errors import CallRefused, ConversationError
from antiphon.history import (
    AgentHistory,
    AgentHistorySnapshot,
    CompactionEntry,
    EntryMetadata,
    HistoryEntry,
    ModelInputEntry,
    ModelOutputEntry,
    ToolCallResultsEntry,
)
from antiphon.history.transcript import entry_lines
from antiphon.providers.call import ModelCallFailed, ProviderCallOptions
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
    summary = await summarize(chat, snapshot, up_to)

    def append() -> CompactionEntry:
        return chat.history.append(CompactionEntry(summary.text, up_to, metadata=summary.metadata))

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


async def summarize(chat: Conversation, snapshot: AgentHistorySnapshot, up_to: int) -> SideAnswer:
    """The effective entries up to `up_to` in a few words, and what the call for them used."""
    done = snapshot.compaction
    start = done.up_to if done is not None else 0
    entries = [entry for entry in snapshot.effective if start < entry.sequence_number <= up_to]
    texts = [line for entry in entries if (line := _line(entry))]
    metadata: EntryMetadata | None = None
    if not is_tour(chat.model):
        before = f"Before that: {_clip(done.summary, _MAX_SUMMARY_CHARS)}\n\n" if done is not None else ""
        transcript = "\n\n".join(texts)[-_MAX_TRANSCRIPT_CHARS:]
        answer = await call_aside(chat, _PROMPT, before + transcript, purpose="summary")
        if answer.text:
            return answer
        metadata = answer.metadata
        logger.warning(
            "no summary from the model, so an extract is made: %s", (metadata and metadata.error) or "it is empty"
        )
    earlier = _clip(done.summary, _MAX_EXTRACT_CHARS) if done is not None else ""
    return SideAnswer("\n".join(filter(None, (earlier, extract(texts)))), metadata)


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


class SideAnswer(Struct, frozen=True):
    """The text of the answer, empty if there is none; and the metadata of an entry that records the call, if one was made.

    `metadata.error` is why there is no answer: the provider failed, or a hook refused the call or withheld the answer.
    """

    text: str
    metadata: EntryMetadata | None


async def call_aside(chat: Conversation, system: str, text: str, *, purpose: str) -> SideAnswer:
    """Call the model of `chat` with these instructions and this message; `purpose` is what hooks see."""
    prompt = AgentHistory()
    prompt.set_system_instruction(system)
    prompt.append(ModelInputEntry.of(text))
    client, model = chat.resolve_model(chat.model_or_client)
    options = ProviderCallOptions(model=model, request_id=f"{chat.id or 'memory'}:{purpose}")
    answers: list[SideAnswer] = []

    def record(model_call: RecordedCall) -> None:
        entry = CallRecorder().entry(model_call, frozenset())
        made = entry.metadata or EntryMetadata()
        metadata = EntryMetadata(duration=made.duration, error=made.error)
        answer = entry.response_markdown.strip() if isinstance(entry, ModelOutputEntry) else ""
        answers.append(SideAnswer(answer, with_model_calls(metadata, model_calls_of(entry))))

    model_call = RecordedCall(client, LiveContextRenderer().render(prompt.snapshot()), options, record)
    model_call.conversation_id, model_call.purpose = chat.key, purpose
    model_call.hooks, model_call.usage = chat.executor.hooks, chat.usage
    try:
        await model_call.run(None)
    except (ModelCallFailed, CallRefused, ConversationError) as error:
        metadata = answers[-1].metadata if answers else EntryMetadata(error=str(error))
        return SideAnswer("", metadata)
    return answers[-1]
