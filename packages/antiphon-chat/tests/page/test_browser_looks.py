"""The page for everybody: by keyboard, by screen reader, on a phone, in the dark, in Chinese."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

import pytest
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import expect

from page.conftest import axe_violations
from page.rig import Browser, served
from page.window import PHONE, Window, window
from support.repository import CHAT

PAGE = CHAT / "page" / "assets"
QUESTION = "Find out what IELTS band 7 needs, then make me a 4 week plan"


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Browser, str]]:
    with served(tmp_path_factory.mktemp("looks") / "chats.db", with_builtin=True, token_limit=20_000) as browser:
        conversation = browser.create()
        browser.ask(conversation, QUESTION)
        yield browser, conversation


@pytest.mark.journey
def test_a_conversation_by_keyboard_alone(chromium: Chromium, chat: tuple[Browser, str]) -> None:
    with window(chromium, chat[0].port) as shown:
        keyboard = shown.open().page.keyboard
        expect(shown.box).to_be_focused()
        keyboard.type("What can you do?")
        keyboard.press("Shift+Enter")
        keyboard.type("Tell me")
        expect(shown.box).to_have_value("What can you do?\nTell me")
        keyboard.press("Enter")
        expect(shown.thread.locator(".message.output")).not_to_have_count(0)
        shown.rest()
        keyboard.press("Alt+m")
        expect(shown.page.get_by_role("combobox")).to_be_focused()
        keyboard.press("Escape")
        expect(shown.page.locator("#model")).to_be_focused()
        keyboard.press("?")
        expect(shown.page.get_by_role("dialog")).to_contain_text("Keyboard shortcuts")
        keyboard.press("Escape")
        expect(shown.page.get_by_role("dialog")).to_have_count(0)
        keyboard.press("Alt+h")
        expect(shown.page.locator(".entry.chosen")).to_be_visible()
        keyboard.press("Alt+h")
        keyboard.press("/")
        expect(shown.box).to_be_focused()
        keyboard.press("Alt+k")
        expect(shown.page.locator("#search")).to_be_focused()
        keyboard.press("Alt+n")
        expect(shown.thread).to_contain_text("Your turn.")


def test_chips_and_plans_work_by_keyboard_and_have_labels(chromium: Chromium, chat: tuple[Browser, str]) -> None:
    browser, conversation = chat
    with window(chromium, browser.port) as shown:
        shown.open(conversation)
        chip = shown.thread.locator(".chip").first
        chip.locator("> summary").focus()
        shown.page.keyboard.press("Enter")
        expect(chip.locator(".inside")).to_contain_text("Details of")
        box = shown.page.get_by_role("checkbox", name="Check what you learned, and decide the next step", exact=True)
        box.focus()
        shown.page.keyboard.press("Space")
        expect(shown.thread.locator(".plan")).to_contain_text(re.compile(r"1 of \d done"))
        expect(box).to_be_focused()  # the card was redrawn while it had the focus
        expect(shown.page.locator("#meter")).to_contain_text("of 20k tokens")


def test_screen_readers_get_whole_blocks(chromium: Chromium, chat: tuple[Browser, str]) -> None:
    with window(chromium, chat[0].port) as shown:
        shown.open().ask("What can you do?")
        spoken = shown.page.locator("#spoken[aria-live=polite] p")
        assert all(len(words) > 5 for words in spoken.all_inner_texts()), "no letters one by one"
        expect(spoken).not_to_have_count(0)


def test_the_page_fits_a_phone(chromium: Chromium, chat: tuple[Browser, str]) -> None:
    browser, conversation = chat
    with window(chromium, browser.port, **PHONE) as shown:
        shown.open(conversation).sees("IELTS")
        assert shown.overflow <= 0
        expect(shown.page.locator("#sidebar")).to_be_hidden()
        shown.button("Menu").click()
        expect(shown.page.locator("#sidebar")).to_be_visible()
        shown.page.locator("#conversations a").first.click()
        expect(shown.page.locator("#sidebar")).to_be_hidden()
        send = shown.page.locator("#send").bounding_box()
        assert send is not None
        assert send["y"] + send["height"] <= 844


def test_dark_is_the_systems_choice_or_the_readers(chromium: Chromium, chat: tuple[Browser, str]) -> None:
    def paper(shown: Window) -> int:
        red: int = shown.page.evaluate("Number(getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0])")
        return red

    with window(chromium, chat[0].port, color_scheme="dark") as shown:
        shown.open()
        assert paper(shown) < 60
        shown.button("Light or dark").click()
        assert paper(shown) > 200
        shown.page.reload()
        assert paper(shown) > 200


def test_the_page_is_chinese_by_browser_language_and_by_choice(chromium: Chromium, chat: tuple[Browser, str]) -> None:
    browser, conversation = chat
    with window(chromium, browser.port, locale="zh-CN") as shown:
        shown.open(conversation).sees("已完成 ")
        expect(shown.page.locator("html")).to_have_attribute("lang", "zh")
        expect(shown.page.locator("#new-chat")).to_have_text("新对话")
        shown.page.locator("#language").click()
        expect(shown.page.locator("#new-chat")).to_have_text("New conversation")
        expect(shown.thread.locator(".plan")).to_contain_text(re.compile(r"of \d done"))


def test_axe_finds_no_violations(chromium: Chromium, chat: tuple[Browser, str], axe: str) -> None:
    browser, conversation = chat
    schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    with window(chromium, browser.port) as shown:
        shown.open(conversation)
        shown.page.evaluate(axe)
        for view in (f"#/c/{conversation}", f"#/c/{conversation}/history", "#/plans"):
            shown.page.evaluate("view => { location.hash = view; }", view)
            expect(shown.page.locator(".plan:visible, .rendered:visible").first).to_be_visible()
            shown.page.evaluate("document.querySelectorAll('main details').forEach(one => { one.open = true; })")
            for scheme in schemes:
                shown.page.emulate_media(color_scheme=scheme)
                assert not axe_violations(shown.page)
