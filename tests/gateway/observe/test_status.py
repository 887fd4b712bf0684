"""The status page: bounded memory, the same from every worker, and no foreign text as markup."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.gateway.cluster.worker_snapshots import WorkerSnapshots
from antiphon.gateway.ledger.spend import SpendRow
from antiphon.gateway.observe.page.charts import format_duration, latency_plot, requests_plot
from antiphon.gateway.observe.page.html import PAGE_HEADERS
from antiphon.gateway.observe.page.status_page import PageView, status_answer, status_page
from antiphon.gateway.observe.page.texts import TEXTS, Language, choose_language
from antiphon.gateway.observe.recent import (
    MINUTES,
    Activity,
    AttemptRecord,
    Minute,
    RecentRequests,
    RequestRecord,
    percentile,
)
from antiphon.gateway.observe.request_search import RequestFilter, target_stats
from antiphon.gateway.observe.request_trace import RequestTrace
from antiphon.gateway.observe.spend_summary import SpendSummary
from antiphon.gateway.observe.status import ReloadResult, Status, build_status, status_json
from antiphon.history.entries import TokenUsage
from antiphon.providers.call import Attempt
from antiphon.providers.credentials.health import CredentialStatus, ModelStatus
from antiphon.providers.engine.target_health import CircuitStatus
from antiphon.providers.routes import Target
from antiphon.repair.action import Action
from antiphon.wire.loss import Loss
from antiphon.wire.output import ProviderError

NOW = datetime(2025, 11, 15, 14, 42, 10, tzinfo=UTC)
EVIL = "</title></style><script>alert('x')</script><img src=x onerror=\"y\">&amp;\x00\u202e"


def trace(**changes: object) -> RequestTrace:
    made = RequestTrace(
        request_id="01r", client_format="openai-chat", requested_model="claude-x", key="laptop", streams=True
    )
    made.provider, made.model, made.upstream_format, made.status = "anthropic", "claude-4", "anthropic", 200
    made.started_at, made.first_token, made.finished_at, made.waiting_seconds = 100.0, 100.5, 102.0, 1.999
    made.usage = TokenUsage(100, 20, 60, 0, 7, 120)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def status(seen: Activity | None = None, word: str = "claude-x") -> Status:
    error = ProviderError(f"slow down {word}", "rate_limit", 429)
    return build_status(
        version="0.1.0",
        started=NOW - timedelta(days=3),
        now=NOW,
        seen=seen or RecentRequests(clock=NOW.timestamp).activity(),
        credentials={
            "anthropic": [
                CredentialStatus(
                    name=word,
                    masked="sk-…wxyz",
                    state="exhausted",
                    weight=1,
                    seconds=90,
                    models={word: ModelStatus("cooling", 30)},
                    calls=1234,
                    failures=3,
                    last_error=error,
                )
            ]
        },
        models={word: ["anthropic/*", word]},
        config_file=word,
        circuits=[CircuitStatus(target=Target(word, word), state="open", seconds=20, last_error=error)],
        spend=SpendSummary(
            by_key=(
                SpendRow(key=word, calls=3, usage=TokenUsage(100, 20, 0, 0, 0, 120), cost=Decimal("1.5")),
                SpendRow(key="", calls=1, unpriced_calls=1, cost=None),
                SpendRow(key="failing", calls=3, failed_calls=1, unpriced_calls=2, cost=Decimal(0)),
            ),
            by_model=(SpendRow(model=word, provider=word, calls=4, unpriced_calls=1, cost=Decimal("0.00123")),),
            by_day=(SpendRow(day=NOW.date(), calls=4, estimated_calls=2, cost=Decimal(0)),),
            today=SpendRow(day=NOW.date(), calls=4, cost=Decimal("1.5")),
        ),
        reload=ReloadResult(time=NOW, is_applied=False, problems=(f"line 3: {word}",)),
    )


def test_a_record_has_the_facts_of_its_trace() -> None:
    record = RequestRecord.of(
        trace(
            repairs=[Action("moved", 3, "after its call")],
            losses=[Loss("messages[0]", "signature", "only anthropic can say it")],
            attempts=[
                Attempt(
                    provider="anthropic",
                    model="claude-4",
                    credential="sk-…wxyz",
                    error=ProviderError("no", "rate_limit"),
                ),
                Attempt(provider="anthropic", model="claude-4", status=200, seconds=1.5),
            ],
        )
    )
    assert (record.model, record.target, record.status) == ("claude-x", "anthropic/claude-4", 200)
    assert (record.seconds, record.first_token_seconds) == (2.0, 0.5)
    assert record.overhead_seconds == pytest.approx(0.001)
    assert (record.prompt_tokens, record.completion_tokens, record.cached_tokens, record.reasoning_tokens) == (
        100,
        20,
        60,
        7,
    )
    assert record.repairs == ("messages[3]: moved: after its call",)
    assert record.losses == ("messages[0]: signature: only anthropic can say it",)
    assert [attempt.error for attempt in record.attempts] == ["rate_limit: no", ""]
    assert not record.is_failed
    assert not record.is_refused


def test_a_record_is_always_small() -> None:
    huge = "x" * 100_000
    record = RequestRecord.of(
        trace(
            requested_model=huge,
            model=huge + "\ud800",
            error=ProviderError(huge, "server", native={"p": {"echo": huge}}),
            repairs=[Action("moved", n, huge) for n in range(10_000)],
            attempts=[Attempt(provider="p", model="m", error=ProviderError(huge, "server"))] * 10_000,
        )
    )
    assert record.repairs[-1] == "and 9980 more"
    assert len(status_json(status(Activity([record], [])))) < 25_000


@pytest.mark.parametrize(
    ("record", "is_refused", "is_failed"),
    [
        (RequestRecord(id="1", status=200), False, False),
        (RequestRecord(id="1", status=404, error="not_found: no"), True, False),
        (RequestRecord(id="1", status=499), True, False),
        (RequestRecord(id="1", status=429, error="rate_limit: yours"), True, False),
        (
            RequestRecord(id="1", status=429, error="rate_limit: theirs", attempts=(AttemptRecord(provider="p"),)),
            False,
            True,
        ),
        (RequestRecord(id="1", status=502, error="server: no"), False, True),
        (RequestRecord(id="1", status=200, error="stream_cut: it ended"), False, True),
    ],
)
def test_whose_fault_it_was(record: RequestRecord, is_refused: bool, is_failed: bool) -> None:
    assert (record.is_refused, record.is_failed) == (is_refused, is_failed)


def test_the_rings_are_bounded_and_the_hour_has_no_gaps() -> None:
    now = [NOW.timestamp()]
    recent = RecentRequests(most=5, clock=lambda: now[0])
    for number in range(200):
        recent.add(trace(request_id=str(number), status=500 if number % 4 == 0 else 200))
        now[0] += 60
    seen = recent.activity()
    assert [record.id for record in seen.records] == ["199", "198", "197", "196", "195"]
    assert [minute.start for minute in seen.minutes] == [
        int(now[0]) // 60 * 60 - 60 * back for back in range(59, -1, -1)
    ]
    assert sum(minute.requests for minute in seen.minutes) == 59
    assert sum(minute.failed for minute in seen.minutes) == 14
    assert len(recent._minutes) <= MINUTES


@given(st.lists(st.floats(min_value=0.002, max_value=900), min_size=1), st.sampled_from([0.5, 0.9, 0.95, 1.0]))
def test_percentiles_are_right_to_five_in_a_hundred(times: list[float], fraction: float) -> None:
    minute = Minute(0)
    for seconds in times:
        minute.add(trace(started_at=0.0, finished_at=seconds))
    exact = next(value for place, value in enumerate(sorted(times), 1) if place >= fraction * len(times))
    assert percentile(minute.seconds, fraction) == pytest.approx(exact, rel=0.05)


def test_percentiles_of_an_empty_list() -> None:
    assert percentile({}, 0.5) is None


def test_every_worker_reports_requests_of_all_workers(tmp_path: Path) -> None:
    now = [NOW.timestamp()]
    workers = [RecentRequests(snapshots=WorkerSnapshots(tmp_path), clock=lambda: now[0]) for _ in range(3)]
    for number, recent in enumerate(workers):
        for place in range(10):
            now[0] = NOW.timestamp() - 10 * place - number
            recent.add(trace(request_id=f"{number}-{place}", status=200 if place % 2 else 502))
        recent.share()
    now[0] = NOW.timestamp()
    views = [recent.activity() for recent in workers]
    assert views[0] == views[1] == views[2]
    assert [record.id for record in views[0].records[:4]] == ["0-0", "1-0", "2-0", "0-1"]
    assert sum(minute.requests for minute in views[0].minutes) == 30
    assert views[0].workers == 3
    (tmp_path / "recent-broken").write_bytes(b"{")
    assert workers[0].activity().workers == 3


def test_unchanged_records_are_not_written_again(tmp_path: Path) -> None:
    recent = RecentRequests(snapshots=WorkerSnapshots(tmp_path, "w"))
    recent.add(trace(request_id="1"))
    recent.share()
    (tmp_path / "recent-w").unlink()
    recent.share()
    assert not (tmp_path / "recent-w").exists()
    recent.add(trace(request_id="2"))
    recent.share()
    assert (tmp_path / "recent-w").exists()


def test_the_json_has_every_section() -> None:
    recent = RecentRequests(clock=NOW.timestamp)
    recent.add(trace())
    expected_text = json.loads(status_json(status(recent.activity())))
    assert expected_text["server"]["version"] == "0.1.0"
    assert expected_text["uptime_seconds"] == 3 * 86_400
    assert expected_text["server"]["reload"] == {
        "time": "2025-11-15T14:42:10Z",
        "is_applied": False,
        "problems": ["line 3: claude-x"],
    }
    credential = expected_text["credentials"][0]
    assert (credential["state"], credential["until"]) == ("exhausted", "2025-11-15T14:43:40Z")
    assert credential["resting"] == [{"model": "claude-x", "state": "cooling", "until": "2025-11-15T14:42:40Z"}]
    assert credential["last_error"] == "rate_limit: slow down claude-x"
    assert expected_text["models"] == [{"name": "claude-x", "targets": ["anthropic/*", "claude-x"]}]
    assert expected_text["minutes"][-1]["requests"] == 1
    assert expected_text["minutes"][-1]["p50_seconds"] == pytest.approx(2.0, rel=0.05)
    assert expected_text["minutes"][0]["p50_seconds"] is None
    assert expected_text["requests"][0]["id"] == "01r"


@pytest.mark.parametrize(
    ("accept", "wanted", "kind"),
    [
        ("text/html,application/xhtml+xml,*/*;q=0.8", "", "text/html"),
        ("*/*", "", "application/json"),
        ("", "", "application/json"),
        ("text/html", "json", "application/json"),
        ("*/*", "html", "text/html"),
    ],
)
def test_browsers_get_the_page_and_programs_json(accept: str, wanted: str, kind: str) -> None:
    answer = status_answer(status(), {"accept": accept}, {"format": wanted} if wanted else {})
    assert answer.headers["content-type"].startswith(kind)
    assert answer.headers["cache-control"] == "no-store"


class Page(HTMLParser):
    """Reads a page strictly enough: every element is closed in turn, and what stands in it is kept."""

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


RECORDS = [
    RequestRecord(id="01aaa", key="laptop", model="gpt-5", target="openai/gpt-5", status=200, seconds=1.0),
    RequestRecord(
        id="01bbb", key="phone", model="claude", target="openai/gpt-5", status=200, fallbacks=("a to b: overloaded",)
    ),
    RequestRecord(id="01ccc", key="phone", model="claude", target="a/c", status=502, error="server: It Broke"),
    RequestRecord(id="01ddd", key="", model="claude", target="a/c", status=200, error="stream_cut: it ended"),
    RequestRecord(id="01eee", key="", model="none", status=404, error="not_found: no"),
]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({}, "abcde"),
        ({"q": "01CCC"}, "c"),
        ({"q": "it broke"}, "c"),
        ({"q": "overloaded"}, "b"),
        ({"key": "phone"}, "bc"),
        ({"model": "gpt"}, "ab"),
        ({"status": "5"}, "c"),
        ({"outcome": "failed"}, "cd"),
        ({"outcome": "refused"}, "e"),
        ({"key": "phone", "outcome": "failed"}, "c"),
        ({"q": "nothing has this"}, ""),
    ],
)
def test_requests_are_found_by_what_a_reader_knows(query: dict[str, str], found: str) -> None:
    search = RequestFilter.of(query)
    assert "".join(record.id[-1] for record in RECORDS if search.matches(record)) == found
    listed = json.loads(status_json(status(Activity(RECORDS, [])), search))["requests"]
    assert "".join(record["id"][-1] for record in listed) == found


def test_the_numbers_of_each_target() -> None:
    openai, other = target_stats(RECORDS)
    assert (openai.target, openai.requests, openai.failed) == ("openai/gpt-5", 2, 0)
    assert (other.target, other.requests, other.failed, other.p50_seconds) == ("a/c", 2, 2, None)
