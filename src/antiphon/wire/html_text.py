"""The words of an HTML page: proxies and wrong addresses answer with one instead of an error body.

One pass over the page, whatever is in it: the pages of strangers must not cost more than their length.
"""

from __future__ import annotations

import re

LONGEST_PAGE = 65_536
"""How much of a page is looked at."""

_is_page = re.compile(r"<(!doctype|html|head|body|title|h1|p)\b", re.IGNORECASE).search
_title = re.compile(r"<title\b", re.IGNORECASE).search
_hidden = re.compile(r"(script|style)\b", re.IGNORECASE).match
_ends = {name: re.compile(f"</{name}", re.IGNORECASE).search for name in ("script", "style", "title")}


def is_page(text: str) -> bool:
    """Whether a text is HTML."""
    return _is_page(text, 0, LONGEST_PAGE) is not None


def page_text(page: str) -> str:
    """The words of a page in one line, without tags, scripts and styles."""
    page = page[:LONGEST_PAGE]
    words: list[str] = []
    position = 0
    while (start := page.find("<", position)) >= 0:
        words.append(page[position:start])
        end = page.find(">", start)
        if end < 0:
            break
        hidden = _hidden(page, start + 1)
        if hidden is None:
            position = end + 1
            continue
        close = _ends[hidden[1].lower()](page, end)
        position = page.find(">", close.end()) + 1 if close is not None else 0
        if not position:
            break
    else:
        words.append(page[position:])
    return " ".join(" ".join(words).split())


def page_title(page: str) -> str:
    """The title of a page, or "" if it has none."""
    page = page[:LONGEST_PAGE]
    start = _title(page)
    end = _ends["title"](page, start.end()) if start is not None else None
    return page_text(page[start.start() : end.start()]) if start is not None and end is not None else ""
