"""The status page in a real browser: logging in, searching, switching a key, on a desktop and on a phone, in both languages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import Locator, Page, Route, expect

from antiphon_gateway.access.client_keys import hash_key
from antiphon_gateway.config.settings import ClientKeySettings
from antiphon_gateway.endpoints import keyless
from antiphon_gateway.endpoints.keyless import LoginAttempts
from gateway.rig import MODELS, Rig, rig
from page.conftest import axe_violations
from page.window import PHONE

ADMIN, USER = "sk-antiphon-the-admin-key-0001", "sk-antiphon-the-user-key-0002"
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"
HELLO = {"messages": [{"role": "user", "content": "Hello"}]}
OVERLAPPING_CELLS = """() => [...document.querySelectorAll("td")]
  .filter((cell) => cell.checkVisibility() && cell.scrollWidth > cell.clientWidth + 1).map((cell) => cell.textContent)"""
DESKTOP: dict[str, Any] = {"viewport": {"width": 1280, "height": 900}}


@pytest.fixture(scope="module")
def gateway() -> Iterator[Rig]:
    keys = (
        ClientKeySettings(name="chief", key=hash_key(ADMIN), admin=True),
        ClientKeySettings(name=HOSTILE, key=hash_key(USER)),
    )
    backup = {"with-backup": [f"anthropic/{MODELS['anthropic']}", f"openai-chat/{MODELS['openai-chat']}"]}
    with rig(models=backup, keys=keys) as running:
        anthropic = running.upstreams["anthropic"]
        with running.client(USER) as client:
            for _ in range(3):
                assert client.ask("openai-chat", "to-anthropic", HELLO, streams=True).status == 200
            anthropic.faults.append(anthropic.error(529, "overloaded", "Overloaded <b>today</b>"))
            assert client.ask("openai-chat", "with-backup", HELLO, streams=False).status == 200
            assert client.ask("openai-chat", HOSTILE, HELLO, streams=False).status == 404
            anthropic.faults.append(anthropic.error(500, "server", "It broke in a constructor"))
            assert client.ask("openai-chat", "to-anthropic", HELLO, streams=False).status == 502
        yield running


class Reader:
    """A person at the page. What the page does wrong by itself (errors, refusals of its policy) is in `faults`."""

    def __init__(self, page: Page, gateway: Rig) -> None:
        self.page = page
        self.url = f"{gateway.url}/status"
        self.faults: list[str] = []
        self.sent: list[str] = []
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", lambda message: self.faults.append(message.text) if _is_fault(message.text) else None)
        page.on("request", lambda request: self.sent.append(request.url))
        page.on("dialog", lambda dialog: self.faults.append(dialog.message))

    def log_in(self, key: str = ADMIN) -> None:
        if self.page.url != self.url:
            self.page.goto(self.url)
        self.page.get_by_label(re.compile("Admin key|管理员密钥")).fill(key)
        self.page.keyboard.press("Enter")

    @property
    def calls(self) -> Locator:
        return self.page.locator("ol.calls > li")

    def filter(self, words: str) -> None:
        self.page.get_by_label("Filter the calls").fill(words)

    @property
    def is_phone(self) -> bool:
        return bool(self.page.viewport_size == PHONE["viewport"])

    @property
    def overflow(self) -> int:
        return int(self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


def _is_fault(text: str) -> bool:
    return "Failed to load resource" not in text  # a wrong key is reported by the browser too


@pytest.fixture
def reader(
    chromium: Chromium, gateway: Rig, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Reader]:
    monkeypatch.setattr(keyless, "attempts", LoginAttempts())
    options = {"locale": "en-GB", "reduced_motion": "reduce", **DESKTOP, **getattr(request, "param", {})}
    context = chromium.new_context(**options)
    try:
        reader = Reader(context.new_page(), gateway)
        yield reader
        assert not reader.faults, reader.faults
        assert all(url.startswith((f"{gateway.url}/status", f"{gateway.url}/credentials")) for url in reader.sent)
        assert not [url for url in reader.sent if ADMIN in url], "no key in an address"
    finally:
        context.close()


@pytest.mark.journey
def test_logging_in_and_out(reader: Reader, gateway: Rig) -> None:
    page = reader.page
    reader.log_in("wrong")
    expect(page.get_by_role("alert")).to_contain_text("That key is not right. 9 tries left in this minute.")
    reader.log_in(USER)
    expect(page.get_by_role("alert")).to_contain_text("not an admin key")
    reader.log_in()
    expect(page.get_by_role("heading", name="Calls")).to_be_visible()
    assert page.url == f"{gateway.url}/status", "no key in the address"
    assert page.context.cookies() == []
    page.reload()
    expect(page.get_by_role("heading", name="Calls")).to_be_visible()
    other = page.context.new_page()
    other.goto(reader.url)
    expect(other.get_by_label("Admin key")).to_be_visible()  # the key is that of one tab
    other.close()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Admin key")).to_be_focused()
    page.reload()
    expect(page.get_by_label("Admin key")).to_be_visible()


def test_a_key_that_is_rejected_later_leads_to_the_login(reader: Reader) -> None:
    reader.log_in()
    expect(reader.calls.first).to_be_visible()
    reader.page.evaluate("sessionStorage.setItem('antiphon.admin', 'sk-antiphon-rotated')")
    reader.page.reload()
    expect(reader.page.get_by_label("Admin key")).to_be_focused()


@pytest.mark.parametrize("reader", [DESKTOP, PHONE], ids=["desktop", "phone"], indirect=True)
@pytest.mark.journey
def test_everything_is_shown_and_fits(reader: Reader) -> None:
    reader.log_in()
    page = reader.page
    for title in (re.compile("The last"), "Spend", "Targets", "Provider keys", "Models", "Calls"):
        expect(page.get_by_role("heading", name=title, exact=True).first).to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_have_text("One call failed in the last hour.")
    expect(page.locator("dl.figures")).to_contain_text("Read from cache")
    expect(page.locator("abbr", has_text="p95").first).to_have_attribute("title", re.compile("Nineteen of twenty"))
    assert reader.overflow <= 0
    assert page.evaluate(OVERLAPPING_CELLS) == []
    heads = page.locator("td .head:visible").all_inner_texts()  # on a phone each figure has its name above it
    assert {"Calls", "p50", "TTFT p50", "Key"} <= set(heads) if reader.is_phone else heads == []
    page.locator("ol.calls summary", has_text="tries").first.click()
    opened = page.locator("details[open] .inside")
    expect(opened).to_contain_text("overloaded: Overloaded <b>today</b>")
    expect(opened.get_by_role("table")).to_contain_text("env:KEY_ANTHROPIC")
    expect(opened).to_contain_text(HOSTILE)
    assert reader.overflow <= 0


@pytest.mark.parametrize("reader", [DESKTOP, PHONE], ids=["desktop", "phone"], indirect=True)
def test_large_numbers_fit(reader: Reader) -> None:
    """The gateway's own answer with an hour of much traffic, mostly without a known price."""
    large = {
        "calls": 123_456,
        "unpriced_calls": 98_765,
        "estimated_calls": 1_234,
        "cost": "12345.678",
        "requests": 98_765,
    }

    def enlarge(value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {key: enlarge(each, key) for key, each in value.items()}
        if isinstance(value, list):
            return [enlarge(each, name) for each in value]
        return large.get(name, 12_345.67 if name.endswith("seconds") else value)

    def answer(route: Route) -> None:
        response = route.fetch()
        route.fulfill(response=response, json=enlarge(response.json()))

    reader.page.route("**/status?format=json*", answer)
    reader.log_in()
    expect(reader.page.locator("dl.figures")).to_contain_text("$12,345.68")
    expect(reader.page.locator(".spenders").first).to_contain_text("+ 98,765 calls unknown")
    assert reader.overflow <= 0


def test_one_field_narrows_the_calls_down(reader: Reader) -> None:
    reader.log_in()
    page = reader.page
    expect(reader.calls.nth(5)).to_be_visible()
    reader.filter("it BROKE")
    expect(reader.calls).to_have_count(1)
    expect(reader.calls).to_contain_text("502")
    page.get_by_role("button", name="All").click()
    expect(reader.calls.nth(5)).to_be_visible()
    reader.filter("constructor")  # a name that every object of JavaScript has
    expect(reader.calls).to_contain_text("502")
    reader.filter("refused key:script")
    expect(reader.calls).to_have_count(1)
    page.get_by_role("button", name=re.compile("Second try")).click()
    expect(page.get_by_label("Filter the calls")).to_have_value("second")
    expect(reader.calls).to_have_count(1)
    expect(reader.calls).to_contain_text("answered by openai-chat/")
    reader.filter("model:no-such-model")
    expect(page.get_by_text("No request matches.")).to_be_visible()
    expect(page.get_by_text("No row of the ledger matches.")).to_be_visible()
    reader.filter("status:200")
    expect(page.get_by_role("heading", name="In the ledger")).to_be_visible()
    reader.filter("after:99:99")
    expect(page.get_by_text("No request matches.")).to_be_visible()


def test_new_calls_appear_by_themselves_and_what_is_open_stays(reader: Reader, gateway: Rig) -> None:
    reader.log_in()
    page = reader.page
    page.locator("ol.calls summary", has_text="It broke").first.click()
    expect(page.locator("details[open] .inside")).to_be_visible()
    count = int(page.locator("dl.figures .value").first.inner_text())
    with gateway.client(USER) as client:
        assert client.ask("openai-chat", "to-anthropic", HELLO, streams=False).status == 200
    expect(page.locator("dl.figures .value").first).to_have_text(str(count + 1))
    expect(page.locator("details[open] .inside")).to_contain_text("It broke")


def test_switching_a_key_off_and_on(reader: Reader) -> None:
    reader.log_in()
    page = reader.page
    row = page.get_by_role("row", name="env:KEY_GEMINI ").first
    row.get_by_role("button", name="Disable").click()
    expect(row).to_contain_text("disabled")
    expect(row.get_by_role("button", name="Enable")).to_be_focused()  # the table was drawn again
    row.get_by_role("button", name="Enable").click()
    expect(row).to_contain_text("healthy")


@pytest.mark.parametrize("reader", [{"locale": "zh-CN"}], indirect=True)
def test_the_page_is_chinese_by_browser_language_and_by_choice(reader: Reader) -> None:
    reader.log_in()
    page = reader.page
    expect(page.locator("html")).to_have_attribute("lang", "zh")
    expect(page.get_by_role("heading", name="调用记录")).to_be_visible()
    page.get_by_role("button", name="English").click()
    expect(page.get_by_role("heading", name="Calls")).to_be_visible()
    page.reload()
    expect(page.get_by_role("heading", name="Calls")).to_be_visible()


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_axe_finds_no_violations(chromium: Chromium, gateway: Rig, axe: str, size: dict[str, Any]) -> None:
    schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    for scheme in schemes:
        context = chromium.new_context(**size, color_scheme=scheme, reduced_motion="reduce", locale="en-GB")
        reader = Reader(context.new_page(), gateway)
        reader.page.goto(reader.url)
        expect(reader.page.get_by_label("Admin key")).to_be_visible()
        reader.page.evaluate(axe)
        assert not axe_violations(reader.page)
        reader.log_in()
        reader.page.locator("ol.calls summary").first.click()
        for details in reader.page.locator("details.numbers > summary").all():
            details.click()
        assert not axe_violations(reader.page)
        context.close()
