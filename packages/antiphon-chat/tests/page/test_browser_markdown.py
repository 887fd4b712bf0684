"""Markdown on the page while it streams: finished blocks stay, the open block is drawn, and code can be copied and scrolled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import expect

import antiphon as ap
from antiphon.providers import ProviderCallOptions
from page.rig import Browser, served
from page.window import ON_PHONE, window

GATE = threading.Event()
START = "# Title\n\nA **bold** word and $x^2$.\n\n- one\n- two `co"
REST = "de`\n\n```python\n" + "x = 1  # " + "long " * 60 + "\n```\n\n```mermaid\ngraph TD\n```\n"


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    async def answer(context: Sequence[Any], options: ProviderCallOptions) -> AsyncIterator[str]:
        yield START
        while not GATE.is_set():
            await asyncio.sleep(0.01)
        yield REST

    with served(tmp_path_factory.mktemp("markdown") / "chats.db", ap.FunctionModel(answer, name="writer")) as browser:
        yield browser


@ON_PHONE
def test_blocks_are_drawn_while_an_answer_streams(chromium: Chromium, chat: Browser, screen: dict[str, Any]) -> None:
    GATE.clear()
    with window(chromium, chat.port, **screen) as shown:
        shown.open().say("write")
        draft = shown.thread.locator(".draft .prose")
        expect(draft.locator("h2")).to_have_text("Title")
        expect(draft.locator("p math msup")).to_be_visible()
        expect(draft.locator("li").last).to_have_text("two `co")  # the open block, as far as it goes
        shown.page.reload()  # the events are sent again, from the start of the round
        expect(draft.locator("li").last).to_have_text("two `co")
        GATE.set()
        shown.rest()
        answer = shown.thread.locator(".message.output .prose")
        expect(answer.locator("li code")).to_have_text("code")
        code = answer.locator(".code").first
        expect(code.locator(".copy")).to_have_text("Copy")
        assert code.locator("pre").evaluate("node => node.scrollWidth > node.clientWidth")
        assert code.locator("pre").evaluate("node => getComputedStyle(node).scrollbarWidth") == "thin"
        expect(answer.locator(".code").last).to_contain_text("Mermaid viewer")
        assert shown.overflow <= 0
