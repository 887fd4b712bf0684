"""`recall`: the tool by which a model reads again what a compaction left out of its context; the log has it all.

It is offered from the first call on, since a tool that comes later would change the beginning of every request. What it returns
is bounded, and may be left out again like any other result. What was rolled back is not shown.
"""

from __future__ import annotations

from typing import Annotated

from antiphon.errors import ToolError
from antiphon.history import AgentHistorySnapshot, ModelInputEntry, ModelOutputEntry, ToolCallResultsEntry
from antiphon.history.search_text import searchable_text
from antiphon.history.transcript import entry_lines
from antiphon.text import excerpt, one_line
from antiphon.tools.context import ToolContext
from antiphon.tools.registry import ToolRegistry
from antiphon.tools.tool import tool

MAX_CHARS = 4_000
"""How much of an entry is shown at once."""
_MAX_HITS = 8
_AROUND = 120

_Message = ModelInputEntry | ModelOutputEntry | ToolCallResultsEntry


@tool(effect="read")
def recall(
    context: ToolContext,
    entry: Annotated[int, "Number of the entry, as notes and summaries name it."] = 0,
    call: Annotated[int, "Which result of the entry, from 0 on."] = 0,
    start: Annotated[int, "The character to begin at."] = 0,
    search: Annotated[str, "Words to look for, instead of an entry."] = "",
) -> str:
    """Read again what was summarised or left out of this conversation: an entry by its number, or the entries with some words."""
    messages = _messages(context.history)
    if search.strip():
        return _search(messages, search)
    wanted = messages.get(entry)
    if wanted is None:
        raise ToolError(f"There is no message with the number {entry}; search for words instead.", retry=False)
    text = _text(wanted, call)
    shown = text[max(0, start) : max(0, start) + MAX_CHARS]
    rest = len(text) - max(0, start) - len(shown)
    more = f"\n[{rest:,} more characters: start={max(0, start) + len(shown)}]" if rest > 0 else ""
    return (shown or "(nothing)") + more


def offer_recall(registry: ToolRegistry) -> None:
    """Add the tool to those of a conversation, unless it has one of that name."""
    if recall.name not in registry:
        registry.add(recall)


def _messages(snapshot: AgentHistorySnapshot) -> dict[int, _Message]:
    return {entry.sequence_number: entry for entry in snapshot.effective if isinstance(entry, _Message)}


def _text(entry: _Message, call: int) -> str:
    if not isinstance(entry, ToolCallResultsEntry):
        return "\n".join(entry_lines(entry))
    if not 0 <= call < len(entry.results):
        raise ToolError(f"Entry {entry.sequence_number} has the results 0 to {len(entry.results) - 1}.", retry=False)
    return entry.results[call].result_markdown


def _search(messages: dict[int, _Message], search: str) -> str:
    """The entries that have all words, the latest first, with some text around the first of them."""
    words = search.lower().split()
    hits: list[str] = []
    for number, entry in reversed(messages.items()):
        text = searchable_text(entry)
        lower = text.lower()
        if all(word in lower for word in words):
            place = lower.find(words[0])
            found = excerpt(text, max(0, place - _AROUND), min(len(text), place + _AROUND))
            hits.append(f"entry {number}: {one_line(found)}")
            if len(hits) == _MAX_HITS:
                break
    return "\n".join(hits) or "No entry has all these words."
