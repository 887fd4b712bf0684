"""Token counts of a conversation, from the best source available.

The sources, in order: usage reported by the API; a local tokenizer (extra `tokens`, works offline); characters divided by 2.5.
Each is a `TokenCounter` that returns a count or None. A `CounterChain` tries them in order; a counter that raises is logged and
skipped. A local tokenizer only estimates the counts of other vendors' models.

A `TokenLedger` caches counts by sequence number. Entries never change, so each is counted once.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Protocol

from antiphon.context.model_usage import total_usage
from antiphon.history import (
    AgentHistorySnapshot,
    ContextEntry,
    ContextEntryRole,
    DecoratedContextEntry,
    HistoryEntry,
    ModelInputEntry,
    ModelOutputEntry,
)
from antiphon.parts import Audio, Document, Image, Native, Part, Text, TokenUsage, ToolCallRequest, ToolCallResult

logger = logging.getLogger(__name__)

CHARACTERS_PER_TOKEN = 2.5
MEDIA_TOKENS = 1_000
"""Assumed cost of an image, audio or file without reported usage. Providers differ too much for a formula."""


class TokenCounter(Protocol):
    """Counts the tokens of an entry, if it can."""

    def count(self, entry: ContextEntry) -> int | None:
        """The number of tokens, or None if unknown."""


class ReportedUsage:
    """The usage the API reported for an output."""

    def count(self, entry: ContextEntry) -> int | None:
        if not isinstance(entry, ModelOutputEntry) or entry.metadata is None or entry.metadata.usage is None:
            return None
        return entry.metadata.usage.completion_tokens or None


class LocalTokenizer:
    """OpenAI's tokenizer, run locally. Returns None without the extra `tokens`; an estimate for other vendors."""

    def __init__(self, encoding: str = "o200k_base") -> None:
        self._encoding = encoding

    def count(self, entry: ContextEntry) -> int | None:
        tokenizer = _tokenizer(self._encoding)
        if tokenizer is None:
            return None
        texts: list[str] = []
        media = _collect_text(entry.content, texts)
        return len(tokenizer.encode_ordinary("\n".join(texts))) + media * MEDIA_TOKENS


@cache
def _tokenizer(encoding: str) -> Any:
    """Load the tokenizer on first use; it takes 0.1 s."""
    try:
        import splintr
    except ImportError:
        logger.info("no local tokenizer (install antiphon[tokens]); counting by characters")
        return None
    return splintr.Tokenizer.from_pretrained(encoding)


def count_text(text: str) -> int:
    """The tokens of a text: by the local tokenizer, else by its characters."""
    tokenizer = _tokenizer("o200k_base")
    return math.ceil(len(text) / CHARACTERS_PER_TOKEN) if tokenizer is None else len(tokenizer.encode_ordinary(text))


def estimate_tokens(text: str) -> float:
    """The tokens of a piece of a streamed text; not rounded, so that many small pieces add up."""
    tokenizer = _tokenizer("o200k_base")
    return len(text) / CHARACTERS_PER_TOKEN if tokenizer is None else len(tokenizer.encode_ordinary(text))


class CharacterEstimate:
    """Characters divided by 2.5: a rough estimate that is always available."""

    def count(self, entry: ContextEntry) -> int:
        texts: list[str] = []
        media = _collect_text(entry.content, texts)
        return math.ceil(len("".join(texts)) / CHARACTERS_PER_TOKEN) + media * MEDIA_TOKENS


class CounterChain:
    """Tries counters in order, and falls back to `CharacterEstimate`."""

    def __init__(self, counters: Iterable[TokenCounter] | None = None) -> None:
        self._counters = tuple(counters) if counters is not None else (ReportedUsage(), LocalTokenizer())
        self._estimate = CharacterEstimate()

    def count(self, entry: ContextEntry) -> int:
        for counter in self._counters:
            try:
                tokens = counter.count(entry)
            except Exception:
                logger.warning("token counter %r failed; using the next one", counter, exc_info=True)
                continue
            if tokens is not None:
                return tokens
        return self._estimate.count(entry)


_MAX_FIXED_COUNTS = 256


class TokenLedger:
    """The token counts of one history."""

    def __init__(self, counter: TokenCounter | None = None) -> None:
        self._counter = CounterChain([counter]) if counter is not None else CounterChain()
        self._counts: dict[int, tuple[HistoryEntry, int]] = {}
        self._tools: Sequence[object] = ()
        self._tools_tokens = 0
        self._fixed_counts: dict[tuple[Part, ...], int] = {}

    def tokens_of(self, entry: ContextEntry) -> int:
        """The tokens of an entry. One that does not change is counted once; a LiveScreen does not change the count."""
        logged = entry.entry if isinstance(entry, DecoratedContextEntry) else entry
        if not isinstance(logged, HistoryEntry) or not logged.sequence_number:
            return self._count_text(logged)
        known = self._counts.get(logged.sequence_number)
        if known is None or known[0] is not logged:  # results may be shown without their long text
            known = self._counts[logged.sequence_number] = (logged, self._counter.count(logged))
        return known[1]

    def _count_text(self, entry: ContextEntry) -> int:
        """The tokens of what is not in the log; the same content is counted once."""
        known = self._fixed_counts.get(entry.content)
        if known is None:
            if len(self._fixed_counts) >= _MAX_FIXED_COUNTS:
                self._fixed_counts.clear()
            known = self._fixed_counts[entry.content] = self._counter.count(entry)
        return known

    def fixed_tokens(self, context: Sequence[ContextEntry], screen: str | None, tools: Sequence[object]) -> int:
        """Tokens that a request has besides the messages: instruction and notebook, with which it begins, screen and tools."""
        if tools is not self._tools:
            self._tools, self._tools_tokens = (
                tools,
                sum(self._count_text(ModelInputEntry.of(str(tool))) for tool in tools),
            )
        tokens = self._tools_tokens
        for entry in context:
            if entry.role is not ContextEntryRole.SYSTEM:
                break
            tokens += self.tokens_of(entry)
        return tokens + (self._count_text(ModelInputEntry.of(screen)) if screen else 0)

    def usage(self, snapshot: AgentHistorySnapshot) -> TokenUsage:
        """Reported usage of all calls in the history, including rolled-back ones."""
        return total_usage(snapshot.entries)


def _collect_text(parts: Sequence[Part], texts: list[str]) -> int:
    """Append the texts of `parts` to `texts` and return the number of media parts."""
    media = 0
    for part in parts:
        if isinstance(part, Text):
            texts.append(part.text)
        elif isinstance(part, ToolCallResult):
            media += _collect_text(part.content, texts)
        elif isinstance(part, ToolCallRequest):
            texts += (part.tool_name, part.arguments)
        elif isinstance(part, Image | Audio):
            media += 1
        elif isinstance(part, Native):
            texts.append(str(part.data))
        else:
            texts.append(part.text)
            media += isinstance(part, Document) and not part.text
    return media
