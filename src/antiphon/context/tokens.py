"""How many tokens a conversation takes: asked of whoever knows best, once for each entry.

The order of knowing: what the API reported; else a local tokenizer (extra `tokens`, works offline); else characters divided
by 2.5. Each is a `TokenCounter` that answers or says it does not know (`None`); a `CounterChain` asks them in turn, and one
that fails is logged and passed over. Counts of other vendors' models by a local tokenizer are estimates.

A `TokenLedger` writes the answers down by sequence number. Entries never change, so nothing is counted twice.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Protocol

from antiphon.history import (
    AgentHistorySnapshot,
    ContextEntry,
    DecoratedContextEntry,
    HistoryEntry,
    ModelInputEntry,
    ModelOutputEntry,
    TokenUsage,
    ToolCallResultsEntry,
)
from antiphon.parts import Audio, Document, Image, Native, Part, Text, ToolCallRequest, ToolCallResult

logger = logging.getLogger(__name__)

CHARACTERS_PER_TOKEN = 2.5
MEDIA_TOKENS = 1_000
"""What a picture, sound or file is taken to cost where nobody reported it: providers differ by more than any formula."""


class TokenCounter(Protocol):
    """Somebody who may know how many tokens an entry takes."""

    def count(self, entry: ContextEntry) -> int | None:
        """The number of tokens, or None if this counter does not know."""


class ReportedUsage:
    """What the API said an output cost."""

    def count(self, entry: ContextEntry) -> int | None:
        if not isinstance(entry, ModelOutputEntry) or entry.metadata is None or entry.metadata.usage is None:
            return None
        return entry.metadata.usage.completion_tokens or None


class LocalTokenizer:
    """OpenAI's tokenizer on this machine. Without the extra `tokens` it does not know; for other vendors it estimates."""

    def __init__(self, encoding: str = "o200k_base") -> None:
        self._encoding = encoding

    def count(self, entry: ContextEntry) -> int | None:
        tokenizer = _tokenizer(self._encoding)
        if tokenizer is None:
            return None
        texts: list[str] = []
        media = _gather(entry.content, texts)
        return len(tokenizer.encode_ordinary("\n".join(texts))) + media * MEDIA_TOKENS


@cache
def _tokenizer(encoding: str) -> Any:
    """Loading takes a tenth of a second, so it is done once, and only when somebody counts."""
    try:
        import splintr
    except ImportError:
        logger.info("no local tokenizer (install antiphon[tokens]); counting by characters")
        return None
    return splintr.Tokenizer.from_pretrained(encoding)


class CharacterEstimate:
    """Characters divided by 2.5: never right, always there."""

    def count(self, entry: ContextEntry) -> int:
        texts: list[str] = []
        media = _gather(entry.content, texts)
        return math.ceil(len("".join(texts)) / CHARACTERS_PER_TOKEN) + media * MEDIA_TOKENS


class CounterChain:
    """Counters asked in turn, characters last whatever else is given."""

    def __init__(self, counters: Iterable[TokenCounter] | None = None) -> None:
        self._counters = tuple(counters) if counters is not None else (ReportedUsage(), LocalTokenizer())
        self._estimate = CharacterEstimate()

    def count(self, entry: ContextEntry) -> int:
        for counter in self._counters:
            try:
                tokens = counter.count(entry)
            except Exception:
                logger.warning("the token counter %r failed; asking the next one", counter, exc_info=True)
                continue
            if tokens is not None:
                return tokens
        return self._estimate.count(entry)


class TokenLedger:
    """The token counts of one history."""

    def __init__(self, counter: TokenCounter | None = None) -> None:
        self._counter = CounterChain([counter]) if counter is not None else CounterChain()
        self._counts: dict[int, int] = {}

    def tokens_of(self, entry: ContextEntry) -> int:
        """The tokens of an entry; an entry of the log is counted once, with or without a LiveScreen."""
        logged = entry.entry if isinstance(entry, DecoratedContextEntry) else entry
        if not isinstance(logged, HistoryEntry):
            return self._counter.count(logged)
        known = self._counts.get(logged.sequence_number)
        if known is None:
            known = self._counts[logged.sequence_number] = self._counter.count(logged)
        return known

    def context_tokens(self, snapshot: AgentHistorySnapshot) -> int:
        """The tokens the effective history takes: as last reported, plus what came since; or the sum of the counts."""
        start = snapshot.compaction.sequence_number if snapshot.compaction else 0
        up_to = snapshot.compaction.up_to if snapshot.compaction else 0
        tokens = 0
        for entry in reversed(snapshot.effective):
            if entry.sequence_number <= up_to:
                break
            if isinstance(entry, ModelInputEntry | ModelOutputEntry | ToolCallResultsEntry):
                if entry.sequence_number > start and (usage := _usage(entry)) and usage.prompt_tokens:
                    return tokens + usage.total
                tokens += self.tokens_of(entry)
        if snapshot.compaction is not None:
            tokens += self._counter.count(ModelInputEntry.of(snapshot.compaction.summary))
        return tokens

    def usage(self, snapshot: AgentHistorySnapshot) -> TokenUsage:
        """What all calls of the history cost together, rolled back or not, as far as it was reported."""
        return sum((usage for entry in snapshot.entries if (usage := _usage(entry))), TokenUsage())


def _usage(entry: HistoryEntry) -> TokenUsage | None:
    return entry.metadata.usage if entry.metadata else None


def _gather(parts: Sequence[Part], texts: list[str]) -> int:
    """Add the texts of `parts` to `texts`; how many media there are beside them."""
    media = 0
    for part in parts:
        if isinstance(part, Text):
            texts.append(part.text)
        elif isinstance(part, ToolCallResult):
            media += _gather(part.content, texts)
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
