"""Pages of HTML that come instead of error bodies: their words, in one pass."""

from __future__ import annotations

import pytest

from antiphon.providers.engine.reply import html_summary
from antiphon.wire import formats
from antiphon.wire.errors import MAX_PAGE, is_page, page_text, page_title

PAGE = """<!DOCTYPE html><html><head><title>502 Bad
 Gateway</title><style>p { color: red }</style><SCRIPT src="a">if (a < b) { go("</p>") }</Script ></head>
<body class="x"><h1>502</h1><p>The upstream &lt;gone&gt; did <b>not</b> answer.</p></body></html>"""


@pytest.mark.parametrize(
    ("page", "words"),
    [
        (PAGE, "502 Bad Gateway 502 The upstream &lt;gone&gt; did not answer."),
        ("<html>plain", "plain"),
        ("<html><p>cut <b", "cut"),
        ("<html><script>never ends", ""),
        ("<html><styles>shown</styles>", "shown"),
        ("no page", "no page"),
        ("", ""),
    ],
)
def test_the_text_of_a_page(page: str, words: str) -> None:
    assert page_text(page) == words


def test_a_page_is_known_and_has_a_title() -> None:
    assert is_page(PAGE)
    assert not is_page("a < b and c > d")
    assert page_title(PAGE) == "502 Bad Gateway"
    assert page_title("<html><body>") == ""
    assert "an HTML page with status 502: 502 Bad Gateway;" in html_summary(PAGE.encode(), 502)


@pytest.mark.parametrize(
    "piece", ["<", "<p ", "<script", "<script>", "<title>", "<style></", "</script", "x>", "<script></style>", "&"]
)
def test_no_page_costs_more_than_its_length(piece: str) -> None:
    page = "<html>" + piece * (1_000_000 // len(piece))
    assert len(page_text(page)) <= MAX_PAGE
    assert len(page_title(page)) <= MAX_PAGE
    assert len(html_summary(page.encode(), 502)) < 400
    for wire in formats.values():
        assert len(wire.read_error(page.encode(), 502).message) <= 2_000
