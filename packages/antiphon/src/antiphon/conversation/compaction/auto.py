"""Compaction of a conversation: what `CompactionPlanner` plans is done, and a model writes the summaries.

A summary is a side call (`Conversation.call_aside`): hooks see it, and it counts for usage, limits and costs. The model reads the
conversation up to the end of the range that is summarised, which is the beginning of what it read last, and so is cached; the
request for a summary comes after it. If no model answers, old results are cleared instead, and what is still too much is left
out: no extract poses as a summary. The originals stay in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import structs

from antiphon.context.compaction import CLAMP_SHARE, Compaction, CompactionPlanner, Step
from antiphon.context.view import SegmentText
from antiphon.conversation.compaction.token_check import IS_PINNED, PIN, PINNED
from antiphon.conversation.events import CompactionNeeded
from antiphon.conversation.turn import is_from_person, starts_turn
from antiphon.errors import ConversationError
from antiphon.history import (
    CompactionEntry,
    ContextEntry,
    ContextEntryRole,
    DebugLogEntry,
    ModelInputEntry,
    ModelOutputEntry,
    ToolCallResultsEntry,
)
from antiphon.parts import TokenUsage
from antiphon.prices import cost_of
from antiphon.providers.call import ModelCallFailed, ProviderClient
from antiphon.providers.default_model import is_tour
from antiphon.text import shorten
from antiphon.wire.request import ToolDefinition

if TYPE_CHECKING:
    from antiphon.conversation.conversation import Conversation

logger = logging.getLogger(__name__)

_RANGE = "The conversation has grown long. Write a summary of the entries {since} to {up_to} above, "
_PROMPT = (
    "for a model that will go on without them: the goal, what was decided and why, what was found, the exact names, paths, "
    "numbers, ids and dates that may be needed with the number of their entry, the state of the work, what comes next, and open "
    "questions."
)
_RULES = (
    " If there are summaries among them, keep what they say. Write in the language of the conversation, without preamble and "
    "without calling a tool, at most {words} words."
)
_OPERATORS = frozenset({"system", "developer"})
_MOST_STEPS = 12
_LEAST_CLEARED = 4_000
"""A conversation of fewer tokens is not made smaller to save money."""
_SAMPLE = 1_000
_WORDS_PER_TOKEN = 0.6
_CHARS_PER_TOKEN = 4


class AutoCompaction:
    """Brings the next request of a conversation within `limit` tokens; `notice`, `tools` and `model` are those of the request."""

    def __init__(
        self,
        chat: Conversation,
        limit: int,
        options: Compaction,
        notice: str = "",
        tools: Sequence[ToolDefinition] | None = None,
        model: str | ProviderClient | None = None,
    ) -> None:
        self._chat = chat
        self._limit = limit
        self._options = options
        self._notice = notice
        self._tools = tools
        self._model = model

    def prepare(self) -> None:
        """What needs no limit: new results that are too large are shortened before they are ever sent; what pays is cleared."""
        chat = self._chat
        entries, weigh = chat.history.effective, chat.gauge.ledger.tokens_of
        if not entries or type(entries[-1]) is not ToolCallResultsEntry:
            return
        if weigh(entries[-1]) > self._room() * CLAMP_SHARE and (step := self._planner().clamp()) is not None:
            chat.history.append(step.entry)
        prices = self._prices() if self._options.thrift == "clear" else None
        if prices is not None:
            cheaper = self._planner().cheaper(chat.history.snapshot().last_change, *prices)
            if cheaper is not None:
                chat.history.append(cheaper.entry)

    def _prices(self) -> tuple[float, float] | None:
        """The prices of tokens that are read from the cache, and of others; None if they are not known, or the same."""
        chat = self._chat
        origin = chat.last_origin
        if origin is None or chat.gauge.count(chat.view(self._model).shown) < _LEAST_CLEARED:
            return None
        samples = TokenUsage(_SAMPLE, 0, _SAMPLE), TokenUsage(_SAMPLE, 0, cache_write_tokens=_SAMPLE)
        read, write = (cost_of(one, origin.model, origin.provider, table=chat.prices) for one in samples)
        if read is None or write is None or read.total >= write.total:
            return None
        return float(read.total), float(write.total)

    async def run(self) -> bool:
        """Take one step after the other until the request fits; whether there was any."""
        can_summarize, after = True, None
        for number in range(_MOST_STEPS):
            step = (planner := self._planner()).next_step(can_summarize=can_summarize, after=after)
            if step is None:
                return number > 0
            is_done = await self._apply(step, planner.max_summary_tokens)
            can_summarize, after = is_done and can_summarize, step.tier if is_done else None
        return True

    async def summarize_now(self) -> CompactionEntry:
        """A segment for all turns but the latest; for a first turn, for all but its last rounds. It is not appended."""
        step = (planner := self._planner()).earlier_turns()
        if step is None or not isinstance(step.entry, CompactionEntry):
            raise ConversationError("there is nothing to summarise yet: the latest rounds are kept as they are")
        try:
            summary = await self._summarize(step.entry, planner.max_summary_tokens, is_limited=False)
        except ModelCallFailed as failure:
            raise ConversationError(f"no summary: {failure}") from failure
        return structs.replace(step.entry, summary=summary)

    def largest(self) -> str:
        """The largest piece of the request."""
        name, tokens = self._planner().largest()
        fixed = self._chat.fixed_tokens(self._notice, self._tools)
        return f"{name}, {tokens:,} tokens" if tokens >= fixed else f"the instruction and the tools, {fixed:,} tokens"

    async def _apply(self, step: Step, max_summary_tokens: int) -> bool:
        """Append the entry of a step; False if it wants a summary, and there is none."""
        chat, entry, name = self._chat, step.entry, self._chat.id or "memory"
        if isinstance(entry, CompactionEntry) and step.tier != "window":
            try:
                entry = structs.replace(entry, summary=await self._summarize(entry, max_summary_tokens))
            except (ModelCallFailed, ConversationError) as problem:
                logger.warning("[%s] no summary, so results are cleared or entries left out: %s", name, problem)
                return False
        chat.history.append(entry)
        logger.info("[%s] compaction: %s of the entries %d to %d", name, step.tier, entry.since, entry.up_to)
        return True

    async def _summarize(self, entry: CompactionEntry, max_tokens: int, *, is_limited: bool = True) -> str:
        """A summary of the entries of a range by a model. Raises `ModelCallFailed`, or `ConversationError` if there is none.

        `is_limited`: the request for it is within the limit, too. One that a person asks for is made in any case.
        """
        chat, options = self._chat, self._options
        model = self._model if options.model is None else options.model
        name = chat.model if model is None else model
        if isinstance(name, str) and is_tour(name):
            raise ConversationError("the offline model writes no summaries: choose another model")
        asked = _RANGE.format(since=max(1, entry.since), up_to=entry.up_to) + (options.prompt.strip() or _PROMPT)
        focus = f" Above all: {options.focus.strip()}" if options.focus.strip() else ""
        ask = asked + focus + _RULES.format(words=max(30, int(max_tokens * _WORDS_PER_TOKEN)))
        shown = chat.context(model=self._model).without_screen()
        # The beginning of what was sent last; another model has nothing cached, and reads the range alone.
        first = 0 if options.model is None else entry.since
        context = [one for one in shown if first <= _number(one) <= entry.up_to]
        messages = [one for one in context if one.role is not ContextEntryRole.SYSTEM]
        size = sum(map(chat.gauge.ledger.tokens_of, (*messages, ModelInputEntry.of(ask))))
        reading_room = self._reading_room()
        if is_limited and size > (self._room() if reading_room is None else reading_room):
            raise ConversationError("what a model would have to read is larger than the limit")
        for tools in (
            (self._tools, ()) if options.model is None else ((),)
        ):  # one that calls a tool is asked again without
            answer = await chat.call_aside(ask, purpose="summary", context=context, model=model, tools=tools)
            if text := answer.text.strip():
                return shorten(text, max_tokens * _CHARS_PER_TOKEN)
        raise ConversationError("the summary is empty")

    def _planner(self) -> CompactionPlanner:
        chat = self._chat
        return CompactionPlanner(
            chat.view(self._model),
            chat.gauge.ledger,
            self._room(),
            self._options,
            protected_entries(chat),
            self._reading_room(),
        )

    def _reading_room(self) -> int | None:
        """What another model that writes the summaries can read, by its window; None if it is the conversation's own."""
        if self._options.model is None:
            return None
        return self._chat.limit_of(self._options.model) or self._room()

    def _room(self) -> int:
        """What the entries of a request may take by our own count."""
        chat = self._chat
        fixed = chat.fixed_tokens(self._notice, self._tools)
        return chat.gauge.room(self._limit, chat.history.snapshot(), chat.view(self._model).shown, lambda: fixed)


async def compact_when_needed(chat: Conversation, event: CompactionNeeded) -> None:
    """A subscriber for `Conversation.on_compaction`, for an engine that decides itself: does what `compaction="auto"` does."""
    await AutoCompaction(chat, event.limit, chat.compaction or Compaction()).run()


async def compact(
    chat: Conversation, write: Callable[[Callable[[], CompactionEntry]], Awaitable[CompactionEntry]] | None = None
) -> CompactionEntry:
    """Summarise all turns but the latest now. Raises `ConversationError` if there is nothing to summarise, or no summary.

    `write` runs the function that appends the entry, for example in a thread; by default it is called directly.
    """
    limit = chat.token_limit or chat.tokens * 2 + 1_000
    entry = await AutoCompaction(chat, limit, chat.compaction or Compaction()).summarize_now()

    def append() -> CompactionEntry:
        return chat.history.append(entry)

    return append() if write is None else await write(append)


def protected_entries(chat: Conversation) -> set[int]:
    """The entries that are never taken out.

    The last message of a person and the one that began the turn, those of operators, what is not answered yet, pinned entries,
    and results that their tool keeps.
    """
    protected: set[int] = set()
    unpinned: set[int] = set()
    is_answered = has_person = has_start = False
    for entry in reversed(chat.history.effective):
        if isinstance(entry, ModelOutputEntry):
            is_answered = True
        elif isinstance(entry, ModelInputEntry):
            is_last = not has_person and is_from_person(entry)
            is_start = not has_start and starts_turn(entry)
            if not is_answered or is_last or is_start or entry.channel in _OPERATORS:
                protected.add(entry.sequence_number)
            has_person, has_start = has_person or is_last, has_start or is_start
        elif isinstance(entry, ToolCallResultsEntry):
            if any(chat.keeps_result(result.tool_name) for result in entry.results):
                protected.add(entry.sequence_number)
        elif isinstance(entry, DebugLogEntry) and entry.category == PIN:
            number = entry.extra(PINNED)
            if number in unpinned or not entry.extra(IS_PINNED):
                unpinned.add(number)
            else:
                protected.add(number)
                unpinned.add(number)  # what was said of it before does not count
    return protected


def _number(entry: ContextEntry) -> int:
    """The number of the last entry that is shown here; 0 for an instruction."""
    if isinstance(entry, SegmentText):
        return entry.segment.up_to
    number: int = getattr(entry, "sequence_number", 0)
    return number
