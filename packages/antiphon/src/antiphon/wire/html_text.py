"""The text of an HTML page: proxies and wrong URLs answer with one instead of an error body. Linear in its length."""

from __future__ import annotations

import re

MAX_PAGE = 65_536
"""How many characters of a page are read."""

_is_page = re.compile(r"<(!doctype|html|head|body|title|h1|p)\b", re.IGNORECASE).search
_title = re.compile(r"<title\b", re.IGNORECASE).search
_hidden = re.compile(r"(script|style)\b", re.IGNORECASE).match
_ends = {name: re.compile(f"</{name}", re.IGNORECASE).search for name in ("script", "style", "title")}


def is_page(text: str) -> bool:
    """Whether a text is HTML."""
    return _is_page(text, 0, MAX_PAGE) is not None


def page_text(page: str) -> str:
    """The text of a page on one line, without tags, scripts and styles."""
    page = page[:MAX_PAGE]
    texts: list[str] = []
    position = 0
    while (start := page.find("<", position)) >= 0:
        texts.append(page[position:start])
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
        texts.append(page[position:])
    return " ".join(" ".join(texts).split())


def page_title(page: str) -> str:
    """The title of a page, or "" if it has none."""
    page = page[:MAX_PAGE]
    start = _title(page)
    end = _ends["title"](page, start.end()) if start is not None else None
    return page_text(page[start.start() : end.start()]) if start is not None and end is not None else ""
