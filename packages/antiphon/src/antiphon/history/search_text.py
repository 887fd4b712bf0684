"""The text of entries for full-text search: what is indexed, how a query matches, excerpts and titles.

SQLite's tokenizer splits at spaces, and Chinese, Japanese and Korean are written without them. So a run of such characters
is indexed as its overlapping pairs, and its last character alone: `今天下雨` becomes `今天 天下 下雨 雨`. A query of two or more
characters is then a phrase of pairs, and a query of one character a prefix of a pair.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

from msgspec import Struct

from antiphon.history.entries import (
    CompactionEntry,
    DebugLogEntry,
    HistoryEntry,
    ModelInputEntry,
    ModelOutputEntry,
    SetMemoryNotebookEntry,
    SetSystemInstructionEntry,
    ToolCallResultsEntry,
)
from antiphon.parts import Document, Part, Refusal, Text, ToolCallRequest, ToolCallResult
from antiphon.text import excerpt, one_line, shorten

_CJK = "\u3005\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_CJK_RUN = re.compile(f"[{_CJK}]+")
_TOKEN = re.compile(f"[{_CJK}]+|[^\\W{_CJK}]+")
_TERM = re.compile(r'"([^"]*)"|(\S+)')
_BARE_TOKEN = re.compile(r"[^\W_]+")
_ACCENTS = re.compile("[\u0300-\u036f]+")
_PHRASE = re.compile(r'"([^"]*)"(\*?)')
_TITLE_LENGTH = 60


def searchable_text(entry: HistoryEntry) -> str:
    """The words of an entry, for a search or a title. Reasoning is left out."""
    match entry:
        case ModelInputEntry() | ModelOutputEntry() | ToolCallResultsEntry():
            return "\n".join(_part_texts(entry.content))
        case SetSystemInstructionEntry():
            return entry.text
        case SetMemoryNotebookEntry():
            return entry.content
        case CompactionEntry():
            return entry.summary
        case DebugLogEntry():
            return entry.message
        case _:
            return ""


def _part_texts(parts: Iterable[Part]) -> Iterable[str]:
    for part in parts:
        match part:
            case Text() | Refusal():
                yield part.text
            case Document(name=name, text=text):
                yield f"{name}\n{text}".strip()
            case ToolCallRequest():
                yield f"{part.tool_name} {part.arguments}"
            case ToolCallResult():
                yield from _part_texts(part.content)
            case _:
                pass


def index_text(text: str) -> str:
    """The text as it is indexed."""
    return _CJK_RUN.sub(lambda run: f" {_pairs(run[0])} {run[0][-1]} ", normalize(text))


def _pairs(run: str) -> str:
    return " ".join(run[i : i + 2] for i in range(len(run) - 1))


def match_expression(query: str) -> str:
    """The query in the index's own language: every word must be there, words in quotes one after the other. Empty if no word."""
    return " AND ".join(
        phrase
        for quoted, bare in _TERM.findall(normalize(query))
        for phrase in _phrases(_TOKEN.findall(quoted or bare))
    )


def _phrases(tokens: list[str]) -> Iterable[str]:
    words: list[str] = []
    for token in tokens:
        if not _CJK_RUN.match(token):
            words.append(token)
            continue
        if words:
            yield _quote(words)
            words = []
        yield _quote([_pairs(token)]) if len(token) > 1 else f"{_quote([token])}*"
    if words:
        yield _quote(words)


def _quote(words: list[str]) -> str:
    return f'"{" ".join(words)}"'


def terms(query: str) -> list[str]:
    """The words and phrases of a query, as they would appear in a text."""
    return [found for quoted, bare in _TERM.findall(normalize(query)) if (found := (quoted or bare).strip())]


def matches(text: str, query: str) -> bool:
    """Whether the text has all the words and phrases of the query, read letter by letter."""
    low = normalize(text).casefold()
    return all(term.casefold() in low for term in terms(query))


def search_excerpt(text: str, query: str, width: int = 80) -> str:
    """A line of about `width` characters around the first place where the query is met."""
    line = one_line(normalize(text))
    low = line.casefold()
    places = [place for term in terms(query) if (place := low.find(term.casefold())) >= 0]
    start = max(0, min(places, default=0) - width // 3)
    return excerpt(line, start, start + width)


def default_title(text: str) -> str:
    """The beginning of a text, as the title of a conversation that has no other."""
    return shorten(one_line(text), _TITLE_LENGTH)


def normalize(text: str) -> str:
    """One form for letters that look alike: full-width and compatibility forms are folded."""
    return unicodedata.normalize("NFKC", text)


class Phrase(Struct, frozen=True):
    """Tokens that follow each other; of the last one perhaps only the beginning."""

    tokens: tuple[str, ...]
    is_prefix: bool

    def is_in(self, text: Sequence[str]) -> bool:
        *firsts, last = self.tokens
        for place in range(len(text) - len(firsts)):
            end = text[place + len(firsts)]
            if (end.startswith(last) if self.is_prefix else end == last) and list(
                text[place : place + len(firsts)]
            ) == firsts:
                return True
        return False


def query_phrases(query: str) -> list[Phrase]:
    """What a text must hold to be found."""
    return [
        Phrase(tuple(found), bool(star))
        for quoted, star in _PHRASE.findall(match_expression(query))
        if (found := _split(quoted))
    ]


def tokens(text: str) -> list[str]:
    """The tokens of a text, in order: pairs of Chinese characters, and words without case or accents."""
    return _split(index_text(text))


def _split(text: str) -> list[str]:
    bare = _ACCENTS.sub("", unicodedata.normalize("NFD", text.casefold()))
    return _BARE_TOKEN.findall(unicodedata.normalize("NFC", bare))
