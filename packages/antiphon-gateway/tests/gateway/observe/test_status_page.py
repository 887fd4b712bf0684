"""The status page as HTML: no foreign text as markup, both languages, readable without seeing it."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.wire.output import ProviderError
from antiphon_gateway.observe.page.charts import format_duration, latency_plot, requests_plot
from antiphon_gateway.observe.page.html import PAGE_HEADERS
from antiphon_gateway.observe.page.status_page import PageView, status_page
from antiphon_gateway.observe.page.texts import TEXTS, Language, choose_language
from antiphon_gateway.observe.recent import (
    Activity,
    AttemptRecord,
    Minute,
    RecentRequests,
    RequestRecord,
)
from antiphon_gateway.observe.request_search import RequestFilter
from antiphon_gateway.observe.status import build_status
from gateway.observe.sample_status import NOW, status, trace

EVIL = "</title></style><script>alert('x')</script><img src=x onerror=\"y\">&amp;\x00\u202e"


class Page(HTMLParser):
    """Reads a page strictly enough: every element is closed in turn, and its text is kept."""

    VOID = frozenset({"meta", "br", "line", "rect", "path", "input"})

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(page.decode())
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def page_of(word: str, language: Language = "en") -> Page:
    recent = RecentRequests(clock=NOW.timestamp)
    recent.add(trace(status=502, error=ProviderError(word, "server"), usage=None, first_token=None))
    activity = recent.activity()
    activity.records[0] = RequestRecord(
        id=word,
        time=NOW,
        model=word,
        target=word,
        key=word,
        client_format=word,
        status=502,
        error=word,
        repairs=(word,),
        losses=(word,),
        fallbacks=(word,),
        attempts=(
            AttemptRecord(provider=word, model=word, credential=word, error=word),
            AttemptRecord(provider="second"),
        ),
    )
    search = RequestFilter(text=word[:1], key=word, model=word)
    view = PageView(language=language, token="t", has_session=True, search=search)
    page = Page(status_page(status(activity, word), view))
    assert not page.open
    return page


def test_foreign_text_is_escaped() -> None:
    plain, evil = page_of("word"), page_of(EVIL)
    assert [tag for tag, _ in plain.elements] == [tag for tag, _ in evil.elements]
    assert [sorted(attributes) for _, attributes in plain.elements] == [
        sorted(attributes) for _, attributes in evil.elements
    ]
    shown = EVIL.replace("\x00", "\N{REPLACEMENT CHARACTER}")
    assert evil.text.count(shown) >= plain.text.count("word") > 10
    hidden = [attributes.get("value") for tag, attributes in evil.elements if tag == "input"]
    assert hidden.count(shown) >= 3, "the values of the forms are the text as it is"


@given(st.text(min_size=1, max_size=30))
def test_any_text_leaves_the_page_whole(word: str) -> None:
    assert [tag for tag, _ in page_of(word).elements] == [tag for tag, _ in page_of("word").elements]


def test_the_content_policy_allows_only_the_style() -> None:
    body = status_page(status())
    style = re.search(rb"<style>(.*?)</style>", body, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1]).digest()).decode()
    policy = PAGE_HEADERS["content-security-policy"]
    assert f"style-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    page = page_of("word")
    assert not [tag for tag, _ in page.elements if tag in ("script", "link", "img", "iframe", "object")]
    assert {attributes["action"] for tag, attributes in page.elements if tag == "form"} == {
        "/status#requests",
        "/status/logout",
        "/status/credentials",
    }
    for _, attributes in page.elements:
        assert not [name for name in attributes if name == "style" or name.startswith("on")]


def test_the_page_can_be_read_without_seeing_it() -> None:
    page = page_of("word")
    ids = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    for tag, attributes in page.elements:
        for referred in (attributes.get("aria-labelledby") or "").split():
            assert referred in ids
        if tag == "svg":
            assert attributes["role"] == "img"
        if tag == "th":
            assert attributes["scope"] == "col"
        if tag == "table":
            assert attributes["aria-label"]
    assert ("html", {"lang": "en"}) in page.elements
    tables = sum(tag == "table" for tag, _ in page.elements)
    assert sum(tag == "thead" for tag, _ in page.elements) == tables >= 4


def test_the_page_shows_the_key_figures() -> None:
    text = page_of("word").text
    for expected in (
        "serving for 3 days",
        "rejected; the previous one is still active.",
        "line 3: word",
        "exhausted until 14:43:40",
        "cooling until 14:42:40 (30 s) for word",
        "1,234",
        "Not translated",
        "2 attempts",
        "$1.50",
        "failingunknown3",
        "$0.0012 + 1 calls unknown",
        "2 estimated",
        "Error rate100.0%",
        "Disable",
        "Log out",
    ):
        assert expected in text, expected


@pytest.mark.parametrize(
    ("model", "target", "expected_text"),
    [
        ("gpt-5", "openai/gpt-5", "gpt-5 at openai"),
        ("gpt-5", "openai/gpt-5-mini", "gpt-5 to openai/gpt-5-mini"),
        ("gpt-5", "", "gpt-5"),
        ("", "openai", "none to openai"),
    ],
)
def test_a_request_shows_its_attempts(model: str, target: str, expected_text: str) -> None:
    record = RequestRecord(id="1", time=NOW, model=model, target=target, seconds=1)
    page = Page(status_page(status(Activity([record], []))))
    assert f"200{expected_text}1.0 s" in page.text


def test_an_idle_gateway_has_a_page_too() -> None:
    quiet = build_status(
        version="1",
        started=NOW,
        now=NOW,
        seen=RecentRequests(clock=NOW.timestamp).activity(),
        credentials={},
        models={},
    )
    page = Page(status_page(quiet))
    for expected in ("No requests yet", "No provider needs a key", "No routes configured"):
        assert expected in page.text


@given(st.lists(st.lists(st.tuples(st.floats(0, 5000), st.sampled_from([200, 404, 502])), max_size=5), max_size=60))
def test_plots_stay_in_their_frame(minutes: list[list[tuple[float, int]]]) -> None:
    made = []
    for place, requests in enumerate(minutes):
        minute = Minute(int(NOW.timestamp()) // 60 * 60 + place * 60)
        for seconds, code in requests:
            minute.add(trace(started_at=0.0, finished_at=seconds or 1e-9, status=code))
        made.append(minute)
    bars, lines = ElementTree.fromstring(requests_plot(made)), ElementTree.fromstring(latency_plot(made))
    answered = sum(1 for requests in minutes for _ in requests)
    assert bars.findtext("desc", "").startswith(f"{answered} requests")
    for drawn in (bars, lines):
        _, _, width, height = map(float, drawn.attrib["viewBox"].split())
        for element in drawn.iter():
            for name, most in (
                ("x", width),
                ("y", height),
                ("cx", width),
                ("cy", height),
                ("y1", height),
                ("y2", height),
            ):
                assert 0 <= float(element.get(name, 0)) <= most, (element.tag, element.attrib)
    assert len(lines.findall("circle")) == 2 * sum(any(code == 200 for _, code in requests) for requests in minutes)


@pytest.mark.parametrize(
    ("seconds", "expected_text"),
    [
        (0, "0 ms"),
        (0.0008, "0.8 ms"),
        (0.0421, "42 ms"),
        (0.5, "0.50 s"),
        (1.234, "1.2 s"),
        (42.4, "42 s"),
        (300, "5 min"),
        (7300, "2 h"),
        (400_000, "4 days"),
    ],
)
def test_durations_are_readable(seconds: float, expected_text: str) -> None:
    assert format_duration(seconds) == expected_text


def test_both_languages_have_every_text_with_the_same_blanks() -> None:
    assert TEXTS["en"].keys() == TEXTS["zh"].keys()
    for name, english in TEXTS["en"].items():
        assert sorted(re.findall(r"{(\w+)}", english)) == sorted(re.findall(r"{(\w+)}", TEXTS["zh"][name])), name


def test_the_page_in_chinese_has_the_same_shape() -> None:
    english, chinese = page_of("word"), page_of("word", "zh")
    assert [tag for tag, _ in english.elements] == [tag for tag, _ in chinese.elements]
    for expected in ("已运行 3 天", "缓存命中率", "停用", "退出登录", "未知"):
        assert expected in chinese.text, expected


@pytest.mark.parametrize(
    ("accepted", "chosen", "language"),
    [
        ("", "", "en"),
        ("zh-CN,zh;q=0.9,en;q=0.8", "", "zh"),
        ("de-DE, en;q=0.5, zh;q=0.1", "", "en"),
        ("zh-CN", "en", "en"),
        ("en", "zh", "zh"),
        ("fr", "<script>", "en"),
    ],
)
def test_the_language_is_the_readers(accepted: str, chosen: str, language: str) -> None:
    assert choose_language(accepted, chosen) == language
