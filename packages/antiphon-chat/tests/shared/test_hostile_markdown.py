"""Markdown that tries to run script stays text: in the nodes that the page draws, and in the HTML file to share.

`packages/antiphon-chat/tests/page/test_browser_injection.py` draws the same cases in a real browser.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest

import antiphon as ap
from antiphon.history import ModelInputEntry, ModelOutputEntry
from antiphon_chat.shared.conversations.export import export
from antiphon_chat.shared.markdown import MATH_ATTRIBUTES, StreamedMarkdown, blocks_of
from shared.hostile_markdown import cases

CASES = cases()
EVERYDAY = CASES[::9]
TAGS = {
    *(
        "p",
        "span",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "ul",
        "ol",
        "li",
        "blockquote",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
    ),
    *(
        "em",
        "strong",
        "del",
        "br",
        "hr",
        "code",
        "sup",
        "pre",
        "a",
        "math",
        "mrow",
        "mi",
        "mo",
        "mn",
        "mtext",
        "ms",
        "mspace",
    ),
    *(
        "msup",
        "msub",
        "msubsup",
        "mfrac",
        "msqrt",
        "mroot",
        "mover",
        "munder",
        "munderover",
        "mtable",
        "mtr",
        "mtd",
        "mstyle",
    ),
    *("mpadded", "mphantom", "menclose", "mmultiscripts"),
}
PAGE_TAGS = TAGS | {
    "html",
    "head",
    "meta",
    "title",
    "style",
    "body",
    "main",
    "h1",
    "article",
    "footer",
    "div",
    "details",
    "summary",
}
ATTRIBUTES = {"class", "start", "href", "task", "language", *MATH_ATTRIBUTES}
# The page and the export follow web and mail addresses only; these must not even be in the nodes.
RUNS_SCRIPT = re.compile(r"^(javascript|vbscript|file|data(?!:image/(png|gif|jpeg|webp))):", re.IGNORECASE)


def as_a_browser_reads(address: str) -> str:
    """An address without what browsers ignore: control characters and spaces around it, tabs and new lines in it."""
    return re.sub(r"[\t\r\n]", "", address.strip("".join(map(chr, range(33)))))


def problems_in(node: Any) -> list[str]:
    """What is wrong with a node and those in it."""
    if isinstance(node, str):
        return []
    tag, attributes, *children = node
    found = [] if tag in TAGS else [f"tag {tag}"]
    found += [f"attribute {name} of {tag}" for name in attributes if name not in ATTRIBUTES]
    if RUNS_SCRIPT.match(as_a_browser_reads(str(attributes.get("href", "")))):
        found.append(f"address {attributes['href']}")
    return found + [problem for child in children for problem in problems_in(child)]


def check_nodes(texts: list[str]) -> None:
    wrong = {text: found for text in texts if (found := [one for node in blocks_of(text) for one in problems_in(node)])}
    assert wrong == {}, f"{len(wrong)} of {len(texts)} are not clean: {list(wrong.items())[:3]}"


def check_streamed(texts: list[str]) -> None:
    """The same while a text streams in, three characters at a time."""
    for text in texts:
        stream = StreamedMarkdown()
        for start in range(0, len(text), 3):
            stream.feed(text[start : start + 3])
            settled, opened = stream.draw()
            assert [one for node in (*settled, *opened) for one in problems_in(node)] == [], text[: start + 3]


class SharedPage(HTMLParser):
    """Reads a page as a parser that is not ours does, and notes what it must not have."""

    def __init__(self) -> None:
        super().__init__()
        self.problems: list[str] = []
        self.links = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in PAGE_TAGS:
            self.problems.append(f"tag {tag}")
        for name, value in attrs:
            if name.startswith("on") or name in ("style", "src", "srcdoc", "formaction"):
                self.problems.append(f"attribute {name}={value}")
            if name == "href":
                self.links += 1
                if not as_a_browser_reads(value or "").lower().startswith(("http://", "https://", "mailto:")):
                    self.problems.append(f"address {value}")

    def handle_comment(self, data: str) -> None:
        self.problems.append(f"comment {data}")

    def handle_pi(self, data: str) -> None:
        self.problems.append(f"instruction {data}")


def check_shared_page(texts: list[str]) -> None:
    store = ap.SqliteStore(":memory:")
    with store:
        history = store.create(title=texts[0])
        for text in texts:
            history.append(ModelInputEntry.of(text))
            history.append(ModelOutputEntry((ap.Text(text), ap.Thinking(text))))
        page = export("html", store.info(history.id), history.snapshot())
    reader = SharedPage()
    reader.feed(page.decode())
    assert reader.problems[:5] == []
    assert reader.links > 10, "the addresses that are allowed are links"


def test_nodes_are_clean() -> None:
    check_nodes(EVERYDAY)


def test_nodes_are_clean_while_the_text_streams_in() -> None:
    check_streamed(EVERYDAY[::20])


def test_a_shared_page_is_clean() -> None:
    check_shared_page(EVERYDAY)


@pytest.mark.slow
def test_all_cases_are_clean() -> None:
    assert len(CASES) >= 8_177
    check_nodes(CASES)
    check_shared_page(CASES)
    check_streamed(CASES[::10])


def test_the_judges_notice_script() -> None:
    assert not any(name.startswith("on") or name in ("style", "src", "href") for name in MATH_ATTRIBUTES)
    assert problems_in(["script", {}, "x"]) == ["tag script"]
    assert problems_in(["p", {}, ["a", {"href": " java\tscript:x"}, "y"]]) == ["address  java\tscript:x"]
    assert problems_in(["p", {"onclick": "x"}]) == ["attribute onclick of p"]
    reader = SharedPage()
    reader.feed("<p onclick=x><script></script><a href='javascript:x'>y</a>")
    assert len(reader.problems) == 3
