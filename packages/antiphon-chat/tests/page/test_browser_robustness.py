"""The page when the browser or the page itself fails: blocked storage, and exceptions while something is drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import Route, expect

import antiphon as ap
from antiphon.providers import ProviderCallOptions
from page.rig import Browser, served
from page.window import Window, window
from support.repository import CHAT

PAGE = CHAT / "page" / "assets"
BLOCKED_STORAGE = """
for (const name of ["localStorage", "sessionStorage"])
  Object.defineProperty(window, name, { get() { throw new DOMException("blocked", "SecurityError"); } });
"""
FULL_STORAGE = """
Storage.prototype.setItem = () => { throw new DOMException("full", "QuotaExceededError"); };
"""


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    def answer(context: Sequence[Any], options: ProviderCallOptions) -> str:
        return f"Answer {sum(isinstance(entry, ap.ModelInputEntry) for entry in context)}."

    folder = tmp_path_factory.mktemp("robustness")
    with served(folder / "chats.db", ap.FunctionModel(answer, name="one")) as browser:
        yield browser


def replace_in_page(shown: Window, name: str, before: str, after: str) -> None:
    """Serve the file `name` of the page with one place changed."""
    assert (PAGE / name).read_text(encoding="utf-8").count(before) == 1, (name, before)

    def answer(route: Route) -> None:
        body = route.fetch().text()
        assert body.count(before) == 1, "the place is in the script of the whole page"
        route.fulfill(body=body.replace(before, after), content_type="text/javascript; charset=utf-8")

    shown.page.route("**/page/page.js*", answer)


@pytest.mark.parametrize("script", [BLOCKED_STORAGE, FULL_STORAGE], ids=["blocked", "full"])
def test_the_page_works_without_storage(chromium: Chromium, chat: Browser, script: str) -> None:
    with window(chromium, chat.port) as shown:
        shown.page.add_init_script(script)
        shown.open().ask("Hello")
        shown.sees("Answer 1.")
        shown.page.locator("#language").click()
        expect(shown.page.locator("#new-chat")).to_have_text("新对话")
        shown.page.locator("#appearance").click()
        expect(shown.page.locator("html[data-appearance]")).to_be_attached()
        # A draft is kept in memory while another conversation is open.
        shown.box.fill("not sent yet")
        shown.page.locator("#new-chat").click()
        expect(shown.box).to_have_value("")
        shown.page.go_back()
        expect(shown.box).to_have_value("not sent yet")


@pytest.mark.parametrize("address", ["#/c/%zz", "#/c/nothing-of-the-kind"])
def test_an_address_that_leads_nowhere_is_reported(chromium: Chromium, chat: Browser, address: str) -> None:
    with window(chromium, chat.port) as shown:
        shown.page.goto(shown.root + address)
        expect(shown.page.locator(".notice.wrong")).to_have_text("This conversation no longer exists.")
        shown.page.wait_for_function("location.hash === '#/'")
        expect(shown.page.locator(".welcome")).to_be_visible()


def test_an_entry_that_cannot_be_drawn_is_reported_and_the_others_are_shown(chromium: Chromium, chat: Browser) -> None:
    conversation = chat.create()
    chat.ask(conversation, "first")
    chat.ask(conversation, "second")
    with window(chromium, chat.port) as shown:
        replace_in_page(
            shown,
            "chat/messages.js",
            "  let chips = null;\n",
            '  if (entry.content[0].text === "Answer 1.") throw new Error("broken on purpose");\n  let chips = null;\n',
        )
        shown.open(conversation)
        shown.sees("second")
        shown.sees("Answer 2.")
        expect(shown.thread.locator(".remark")).to_have_text("Entry 2 cannot be shown.")
        expect(shown.page.locator(".notice.wrong")).to_contain_text("Error in this page: broken on purpose")
        assert any("broken on purpose" in fault for fault in shown.faults), "the console has it too"
        shown.faults.clear()


def test_an_exception_in_an_event_handler_is_reported_and_the_feed_continues(chromium: Chromium, chat: Browser) -> None:
    with window(chromium, chat.port) as shown:
        replace_in_page(
            shown,
            "chat/thread.js",
            "  _onTextDelta({ settled, open }) {",
            '  _onTextDelta({ settled, open }) {\n    throw new Error("bad delta");',
        )
        shown.open(chat.create())
        shown.ask("Hello")
        shown.sees("Answer 1.")
        expect(shown.page.locator(".notice.wrong").first).to_contain_text("Error in this page: bad delta")
        assert any("bad delta" in fault for fault in shown.faults)
        shown.faults.clear()


def test_an_unhandled_rejection_is_reported(chromium: Chromium, chat: Browser) -> None:
    with window(chromium, chat.port) as shown:
        shown.open()
        expect(shown.box).to_be_focused()
        shown.page.evaluate('void Promise.reject(new Error("lost"))')
        expect(shown.page.locator(".notice.wrong")).to_contain_text("Error in this page: lost")
        assert any("lost" in fault for fault in shown.faults)
        shown.faults.clear()
