"""The page in a window of a real browser, as a person uses it: what they see, write and press."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, expect

expect.set_options(timeout=60_000)

DESKTOP: dict[str, Any] = {}
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
ON_BOTH = pytest.mark.parametrize("screen", [DESKTOP, PHONE], ids=["desktop", "phone"])
"""For what is laid out differently. Tests of what a page does run on one of them every day, and on the other in the long run."""
ON_DESKTOP = pytest.mark.parametrize(
    "screen", [DESKTOP, pytest.param(PHONE, marks=pytest.mark.slow)], ids=["desktop", "phone"]
)
ON_PHONE = pytest.mark.parametrize(
    "screen", [pytest.param(DESKTOP, marks=pytest.mark.slow), PHONE], ids=["desktop", "phone"]
)


class Window:
    """One tab. What the page does wrong by itself (errors, refusals of its policy) is in `faults`."""

    def __init__(self, page: Page, port: int) -> None:
        self.page = page
        self.root = f"http://127.0.0.1:{port}/chat/"
        self.faults: list[str] = []
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", self._record_error)

    def _record_error(self, message: ConsoleMessage) -> None:
        # A request that was refused or cut is reported by the browser too; the tests cause those on purpose.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.faults.append(message.text)

    def open(self, conversation: str = "", view: str = "") -> Window:
        self.page.goto(self.root + (f"#/c/{conversation}{view}" if conversation else ""))
        return self

    @property
    def box(self) -> Locator:
        return self.page.locator("#composer-text")

    @property
    def thread(self) -> Locator:
        return self.page.locator("#thread")

    @property
    def conversation(self) -> str:
        """The id of the conversation that is shown."""
        self.page.wait_for_function("location.hash.startsWith('#/c/')")
        return str(self.page.evaluate("location.hash.split('/')[2]"))

    def say(self, text: str) -> None:
        self.box.fill(text)
        self.box.press("Enter")

    def ask(self, text: str) -> None:
        """Say something and wait until the answer is there."""
        self.say(text)
        expect(self.thread.locator(".typed").last).to_have_text(text)
        self.rest()

    def rest(self) -> None:
        """Until nothing is being made."""
        expect(self.page.locator("body:not(.running)")).to_be_attached()
        expect(self.page.locator(".draft")).to_have_count(0)

    def sees(self, text: str) -> None:
        expect(self.thread).to_contain_text(text)

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    @property
    def overflow(self) -> int:
        """How many pixels the page is wider than its window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - innerWidth"))


@contextmanager
def window(chromium: Browser, port: int, **options: Any) -> Iterator[Window]:
    """A window of its own, with nothing kept from another; at its end the page must have done nothing wrong."""
    options = {"locale": "en-GB", "viewport": {"width": 1280, "height": 800}, "reduced_motion": "reduce", **options}
    context = chromium.new_context(**options)
    try:
        shown = Window(context.new_page(), port)
        yield shown
        assert not shown.faults, shown.faults
    finally:
        context.close()
