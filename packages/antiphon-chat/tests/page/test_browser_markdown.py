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
from antiphon.page.files import SANDBOX
from antiphon.providers import ProviderCallOptions
from page.conftest import axe_violations
from page.rig import Browser, served, until_finished
from page.window import ON_PHONE, window
from support.waiting import until

GATE = threading.Event()
START = "# Title\n\nA **bold** word and $x^2$.\n\n- one\n- two `co"
REST = "de`\n\n```python\n" + "x = 1  # " + "long " * 60 + "\n```\n"
DIAGRAM = "graph TD\n  A[Moon pulls] --> B{Near side?}\n  B -->|yes| C[Bulge]\n"
HOSTILE = """graph TD
  A["<img src=x onerror=parent.hurt=1>"] --> B
  click A href "javascript:parent.hurt=2"
  click B call alert(1)
"""
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    async def answer(context: Sequence[Any], options: ProviderCallOptions) -> AsyncIterator[str]:
        words = context[-1].content[-1].text
        if words.startswith("draw "):
            yield f"Here:\n\n```mermaid\n{words[5:]}\n```\n\nDone."
            return
        yield START
        while not GATE.is_set():
            await asyncio.sleep(0.01)
        yield REST

    with served(tmp_path_factory.mktemp("markdown") / "chats.db", ap.FunctionModel(answer, name="writer")) as browser:
        yield browser


@ON_PHONE
@pytest.mark.journey
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
        assert shown.overflow <= 0


def test_a_diagram_is_drawn_as_a_picture(chromium: Chromium, chat: Browser) -> None:
    conversation = chat.create()
    chat.ask(conversation, f"draw {DIAGRAM}")
    with window(chromium, chat.port) as shown:
        figure = shown.open(conversation).thread.locator(".code")
        picture = figure.get_by_role("img", name="Diagram (graph)")
        expect(picture).to_be_visible()
        until(lambda: bool(picture.evaluate("node => node.naturalWidth > 100")))
        expect(figure.locator("pre")).to_be_hidden()
        figure.get_by_role("button", name="Source").click()
        expect(figure.locator("pre")).to_contain_text("Near side?")
        expect(picture).to_be_hidden()
        figure.get_by_role("button", name="Diagram").click()
        before = picture.get_attribute("src")
        shown.button("Light or dark").click()
        expect(picture).not_to_have_attribute("src", str(before))


@pytest.mark.parametrize("text", ["graph TD\n  A[never", HOSTILE], ids=["no diagram", "hostile"])
@pytest.mark.journey
def test_a_diagram_can_do_nothing(chromium: Chromium, chat: Browser, text: str) -> None:
    conversation = chat.create()
    chat.ask(conversation, f"draw {text}")
    with window(chromium, chat.port) as shown:
        shown.open(conversation)
        drawn = shown.thread.locator("img.diagram")
        refused = shown.thread.get_by_text("not drawn")
        expect(drawn.or_(refused)).to_be_visible()
        assert shown.page.evaluate("window.hurt") is None
        frame = shown.page.locator("iframe")
        assert frame.get_attribute("sandbox") == "allow-scripts"
        assert frame.evaluate("node => node.contentDocument") is None, "it has an origin of its own"


def test_the_frame_of_diagrams_may_load_nothing_but_mermaid(chat: Browser) -> None:
    headers = chat.get("/chat/page/diagram/frame.html").headers
    assert headers["content-security-policy"] == SANDBOX
    assert headers["x-frame-options"] == "SAMEORIGIN"
    assert chat.get("/chat/").headers["x-frame-options"] == "DENY"


def test_a_picture_is_enlarged(chromium: Chromium, chat: Browser) -> None:
    conversation = chat.create()
    content = [{"type": "image", "media_type": "image/png", "data": PIXEL}, {"type": "text", "text": "draw x"}]
    before = chat.show(conversation)["last_event"]
    chat.api("POST", f"/conversations/{conversation}/turns", {"content": content}, status=202)
    with chat.events(conversation, before) as seen:
        until_finished(seen)
    with window(chromium, chat.port) as shown:
        shown.open(conversation).thread.get_by_title("See it large").click()
        expect(shown.page.get_by_role("dialog").locator("img")).to_be_visible()
        shown.page.keyboard.press("Escape")
        expect(shown.page.get_by_role("dialog")).to_have_count(0)


def test_headings_leave_out_no_level(chromium: Chromium, chat: Browser, axe: str) -> None:
    conversation = chat.create()
    chat.ask(conversation, "draw x\n```\n\n### First\n\n##### Deeper\n\n## Second\n\n```mermaid\nx")
    with window(chromium, chat.port) as shown:
        shown.open(conversation)
        tags = "all => all.map(one => `${one.localName} ${one.className}`)"
        headings = shown.thread.locator(".prose :is(h1, h2, h3, h4, h5, h6)")
        expect(headings).to_have_count(3)
        assert headings.evaluate_all(tags) == ["h2 level-3", "h3 level-5", "h3 level-2"]
        shown.page.evaluate(axe)
        assert not axe_violations(shown.page)
