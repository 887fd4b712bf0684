"""`probe_compaction`: what a model still knows of a conversation after a compaction.

Facts (ids, numbers, paths: words with a digit or a slash) are taken by rule from the entries that the compaction leaves out or
shortens. Each is looked for in what is shown afterwards, and in what `recall` returns for its entry, which must have all of them.
With a model, each is also asked for: before, after, and after with `recall`; an answer is right if it contains the fact.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from antiphon.context import Compaction
from antiphon.conversation import Conversation, ToolLoop
from antiphon.conversation.compaction import AutoCompaction
from antiphon.conversation.compaction.recall import recall
from antiphon.history import AgentHistory, HistoryEntry, ToolCallResultsEntry
from antiphon.history.search_text import searchable_text
from antiphon.history.transcript import entry_lines
from antiphon.providers.call import ProviderClient
from antiphon.tools.context import ToolContext

_FACT = re.compile(r"(?<![\w/.-])(?=[\w/.-]*[\d/])[\w][\w/.-]{3,60}(?<![.-])")
_BEFORE = 60
_OFFLINE = "offline/plain"


class Fact(Struct, frozen=True):
    """A word of an entry, with the text before it; `call` is the result of the entry that has it, `start` where it is."""

    entry: int
    call: int
    start: int
    before: str
    word: str

    @property
    def question(self) -> str:
        """The question that is asked for it."""
        return (
            f"Earlier in this conversation is the text “{self.before}” and directly after it a word that is missing here. Answer "
            "with that word alone."
        )


class CompactionReport(Struct, frozen=True):
    """How many of the `facts` are shown after the compaction, are one `recall` away, and were answered at each stage.

    `missing` are those that neither is the case of. Without a model nothing was `asked`.
    """

    facts: int
    shown: int
    recalled: int
    missing: tuple[str, ...]
    tokens_before: int
    tokens_after: int
    asked: bool = False
    right_before: int = 0
    right_after: int = 0
    right_with_recall: int = 0


async def probe_compaction(
    history: AgentHistory,
    *,
    token_limit: int,
    model: str | ProviderClient | None = None,
    compaction: Compaction | None = None,
    most: int = 20,
) -> CompactionReport:
    """Compact a copy of `history` to `token_limit` and look for at most `most` facts of it. The history stays as it is.

    Without a `model` no summaries are written and nothing is asked.
    """
    full = Conversation(model or _OFFLINE, history=AgentHistory(history.entries), tools=[recall])
    chat = Conversation(model or _OFFLINE, history=AgentHistory(history.entries), tools=[recall])
    await AutoCompaction(chat, token_limit, compaction or Compaction()).run()
    kept = {id(entry) for entry in chat.context()}
    gone = [entry for entry in full.context() if isinstance(entry, HistoryEntry) and id(entry) not in kept]
    facts = [fact for entry in gone for fact in _facts(entry)]
    facts = facts[:: max(1, -(-len(facts) // most))]
    text = "\n".join(part for entry in chat.context() for part in _texts(entry))
    shown = [fact for fact in facts if fact.word in text]
    tools = ToolContext(log=chat.history)
    recalled = [
        fact
        for fact in facts
        if fact.word in recall.function(tools, entry=fact.entry, call=fact.call, start=max(0, fact.start - _BEFORE))
    ]
    right = [0, 0, 0]
    for fact in facts if model is not None else ():
        for stage, asked in enumerate((full, chat)):
            answer = await asked.call_aside(fact.question, purpose="probe", context=asked.context(), tools=())
            right[stage] += fact.word in answer.text
        again = Conversation(model, history=AgentHistory(chat.history.entries), tools=[recall])
        right[2] += fact.word in (await ToolLoop(again).run(fact.question)).text
    known = {fact.word for fact in (*shown, *recalled)}
    return CompactionReport(
        len(facts),
        len(shown),
        len(recalled),
        tuple(fact.word for fact in facts if fact.word not in known),
        full.gauge.count(full.view().shown),
        chat.gauge.count(chat.view().shown),
        model is not None,
        *right,
    )


def _facts(entry: HistoryEntry) -> Iterator[Fact]:
    if isinstance(entry, ToolCallResultsEntry):
        texts = [result.result_markdown for result in entry.results]
    else:
        texts = ["\n".join(entry_lines(entry))]
    for call, text in enumerate(texts):
        for match in _FACT.finditer(text):
            start = match.start()
            yield Fact(entry.sequence_number, call, start, text[max(0, start - _BEFORE) : start], match[0])


def _texts(entry: object) -> Iterator[str]:
    if isinstance(entry, HistoryEntry):
        yield searchable_text(entry)
    else:
        for part in getattr(entry, "content", ()):
            yield getattr(part, "text", "")
