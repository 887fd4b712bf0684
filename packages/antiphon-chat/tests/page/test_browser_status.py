"""The status page in a real browser: logging in, searching, switching a key, on a desktop and on a phone, in both languages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import Page, expect

from antiphon_gateway.access.client_keys import hash_key
from antiphon_gateway.config.settings import ClientKeySettings
from gateway.rig import MODELS, Rig, rig
from page.conftest import axe_violations
from page.window import PHONE

ADMIN, USER = "sk-antiphon-the-admin-key-0001", "sk-antiphon-the-user-key-0002"
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"
HELLO = {"messages": [{"role": "user", "content": "Hello"}]}
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
            anthropic.faults.append(anthropic.error(500, "server", "It broke"))
            assert client.ask("openai-chat", "to-anthropic", HELLO, streams=False).status == 502
        yield running


class Reader:
    """A person at the page. What the page does wrong by itself (errors, refusals of its policy) is in `faults`."""

    def __init__(self, page: Page, gateway: Rig) -> None:
        self.page = page
        self.url = f"{gateway.url}/status"
        self.faults: list[str] = []
        page.set_default_timeout(15_000)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", lambda message: self.faults.append(message.text) if _is_fault(message.text) else None)
        page.on("request", lambda request: self.faults.append(request.url) if not _is_own(request.url) else None)
        page.on("dialog", lambda dialog: self.faults.append(dialog.message))

    def log_in(self, key: str = ADMIN) -> None:
        self.page.goto(self.url)
        self.page.get_by_label(re.compile("Admin key|管理员密钥")).fill(key)
        self.page.keyboard.press("Enter")

    @property
    def overflow(self) -> int:
        return int(self.page.evaluate("document.documentElement.scrollWidth - innerWidth"))


def _is_fault(text: str) -> bool:
    # The browser reports the 401 of the login form and a missing icon as well.
    return "Failed to load resource" not in text


def _is_own(url: str) -> bool:
    return (
        url.partition("?")[0].partition("#")[0].endswith(("/status", "/status/login", "/status/logout", "/credentials"))
    )


@pytest.fixture
def reader(chromium: Chromium, gateway: Rig, request: pytest.FixtureRequest) -> Iterator[Reader]:
    options = {"locale": "en-GB", "reduced_motion": "reduce", **DESKTOP, **getattr(request, "param", {})}
    context = chromium.new_context(**options)
    try:
        reader = Reader(context.new_page(), gateway)
        yield reader
        assert not reader.faults, reader.faults
    finally:
        context.close()


def test_logging_in_and_out(reader: Reader, gateway: Rig) -> None:
    page = reader.page
    reader.log_in("wrong")
    expect(page.get_by_role("alert")).to_contain_text("This key is not known here")
    reader.log_in(USER)
    expect(page.get_by_role("alert")).to_contain_text("no admin rights")
    reader.log_in()
    expect(page.get_by_role("heading", name="Antiphon gateway")).to_be_visible()
    assert page.url == f"{gateway.url}/status", "no key in the address"
    [cookie] = [one for one in page.context.cookies() if one["name"] == "antiphon_session"]
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/status")
    assert page.evaluate("document.cookie") == ""
    page.reload()
    expect(page.get_by_role("heading", name="Recent requests")).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Admin key")).to_be_focused()
    page.go_back()
    page.goto(reader.url)
    expect(page.get_by_label("Admin key")).to_be_visible()


@pytest.mark.parametrize("reader", [DESKTOP, PHONE], ids=["desktop", "phone"], indirect=True)
def test_everything_is_shown_and_fits(reader: Reader) -> None:
    reader.log_in()
    page = reader.page
    for title in ("The last hour", "Spend, last 30 days", "Targets", "Credentials", "Models", "Recent requests"):
        expect(page.get_by_role("heading", name=title, exact=True)).to_be_visible()
    expect(page.locator("dl.figures")).to_contain_text("Error rate")
    expect(page.locator("dl.figures")).to_contain_text("Cache-hit rate")
    assert reader.overflow <= 0
    page.locator("ol.requests summary", has_text="fallback").first.click()
    opened = page.locator("details[open] .more")
    expect(opened).to_contain_text("overloaded: Overloaded <b>today</b>")
    expect(opened.get_by_role("table", name="Attempts")).to_contain_text("env:KEY_ANTHROPIC")
    expect(opened).to_contain_text(HOSTILE)
    assert reader.overflow <= 0


def test_searching_the_requests(reader: Reader) -> None:
    reader.log_in()
    page = reader.page
    rows = page.locator("ol.requests > li")
    expect(rows.nth(5)).to_be_visible()  # the requests of the sample, and the forms of this page that were sent before
    page.get_by_label("Text or request id").fill("it BROKE")
    page.get_by_role("button", name="Search").click()
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("502")
    page.get_by_role("link", name="Clear").click()
    expect(rows.nth(5)).to_be_visible()
    page.get_by_label("Client key").fill(HOSTILE)
    page.get_by_label("Outcome").select_option("refused")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Search").click()
    expect(rows).to_have_count(1)
    expect(page.get_by_label("Client key")).to_have_value(HOSTILE)
    page.get_by_label("Model", exact=True).fill("no such model")
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_text("No request matches.")).to_be_visible()
    expect(page.get_by_role("heading", name="In the ledger")).to_be_visible()
    expect(page.get_by_text("No row of the ledger matches.")).to_be_visible()


def test_switching_a_key_off_and_on(reader: Reader) -> None:
    reader.log_in()
    page = reader.page
    row = page.get_by_role("table", name="Credentials").get_by_role("row", name="env:KEY_GEMINI ").first
    row.get_by_role("button", name="Disable").click()
    expect(row).to_contain_text("disabled")
    row.get_by_role("button", name="Enable").click()
    expect(row).to_contain_text("healthy")


@pytest.mark.parametrize("reader", [{"locale": "zh-CN"}], indirect=True)
def test_the_page_is_chinese_by_browser_language_and_by_choice(reader: Reader) -> None:
    reader.log_in()
    page = reader.page
    expect(page.locator("html")).to_have_attribute("lang", "zh")
    expect(page.get_by_role("heading", name="最近的请求")).to_be_visible()
    page.get_by_role("link", name="English").click()
    expect(page.get_by_role("heading", name="Recent requests")).to_be_visible()
    page.goto(reader.url)
    expect(page.get_by_role("heading", name="Recent requests")).to_be_visible()


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_axe_finds_no_violations(chromium: Chromium, gateway: Rig, axe: str, size: dict[str, Any]) -> None:
    schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    for scheme in schemes:
        context = chromium.new_context(**size, color_scheme=scheme, reduced_motion="reduce")
        reader = Reader(context.new_page(), gateway)
        reader.page.goto(reader.url)
        reader.page.evaluate(axe)
        assert not axe_violations(reader.page)
        reader.log_in()
        expect(reader.page.get_by_role("heading", name="Recent requests")).to_be_visible()
        reader.page.locator("ol.requests summary").first.click()
        reader.page.locator("details.figures-table summary").click()
        reader.page.evaluate(axe)
        assert not axe_violations(reader.page)
        context.close()
