"""What is not sent yet, on the page in a real browser: drafts, queued messages, pictures and files."""

from __future__ import annotations

import base64
import random
import struct
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import expect

import antiphon as ap
from antiphon.parts import Image
from antiphon.providers import ProviderCallOptions
from antiphon.providers.scripted import call
from page.rig import Browser, Gate, served
from page.talking_chat import GATES, edit_in_fork, inputs, talking_chat
from page.window import Window, window
from support.waiting import SECONDS

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture
def gate() -> Gate:
    GATES["wait for me"] = Gate()
    return GATES["wait for me"]


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with talking_chat(tmp_path_factory.mktemp("chat") / "chats.db") as browser:
        yield browser


def test_unsent_text_is_kept(chromium: Chromium, chat: Browser) -> None:
    with window(chromium, chat.port) as shown:
        shown.open().ask("Hello")
        shown.page.route("**/turns", lambda route: route.abort())
        shown.say("Precious words")
        expect(shown.page.locator(".notice.wrong")).to_contain_text("Your draft is saved")
        expect(shown.box).to_have_value("Precious words")
        shown.page.reload()
        expect(shown.box).to_have_value("Precious words")


@pytest.mark.journey
def test_a_message_sent_during_an_answer_is_queued(chromium: Chromium, chat: Browser, gate: Gate) -> None:
    with window(chromium, chat.port) as shown:
        shown.open().say("wait for me")
        shown.sees("First half,")
        shown.say("and then this")
        expect(shown.page.locator("#queue")).to_contain_text("and then this")
        expect(shown.page.locator("#queue")).to_contain_text("sent after this answer")
        gate.open()
        shown.sees("You wrote: and then this")


def test_escape_stops_the_answer_and_sends_nothing(chromium: Chromium, chat: Browser, gate: Gate) -> None:
    with window(chromium, chat.port) as shown:
        shown.open().say("wait for me")
        shown.sees("First half,")
        shown.say("and then this")
        expect(shown.page.locator("#queue")).to_contain_text("and then this")
        shown.page.keyboard.press("Escape")
        shown.rest()
        expect(shown.page.locator("#queue")).to_be_hidden()
        expect(shown.box).to_have_value("and then this")
        shown.sees("Stopped. The partial answer is saved.")
        assert [each["content"][0]["text"] for each in inputs(chat, shown.conversation)] == ["wait for me"]
        gate.open()


def queue_with_picture(shown: Window, tmp_path: Path, words: str) -> None:
    (tmp_path / "dot.png").write_bytes(base64.b64decode(PIXEL))
    shown.page.locator("#files").set_input_files([tmp_path / "dot.png"])
    expect(shown.page.locator("#attachments li")).to_have_count(1)
    shown.say(words)
    expect(shown.page.locator("#queue")).to_be_visible()


def test_a_queued_message_is_sent_though_another_conversation_is_open(
    chromium: Chromium, chat: Browser, gate: Gate, tmp_path: Path
) -> None:
    with window(chromium, chat.port) as shown:
        shown.open().say("wait for me")
        shown.sees("First half,")
        busy = shown.conversation
        queue_with_picture(shown, tmp_path, "and then this")
        shown.box.fill("half a thought")
        shown.page.locator("#new-chat").click()
        expect(shown.box).to_have_value("")
        expect(shown.page.locator("#queue")).to_be_hidden()
        shown.ask("something else")
        assert shown.conversation != busy
        shown.page.locator("#files").set_input_files([tmp_path / "dot.png"])  # attached here, and not sent yet
        gate.open()
        deadline = time.monotonic() + SECONDS
        while len(inputs(chat, busy)) < 2:
            assert time.monotonic() < deadline, "the queued message was not sent"
            shown.page.wait_for_timeout(20)
        sent = inputs(chat, busy)[1]["content"]
        assert [part["type"] for part in sent] == ["text", "image"]
        shown.page.evaluate(f"location.hash = '#/c/{busy}'")
        shown.sees("You wrote: and then this")
        expect(shown.box).to_have_value("half a thought")
        expect(shown.page.locator("#attachments li")).to_have_count(0)
        shown.page.go_back()
        expect(shown.page.locator("#attachments li")).to_have_count(1)


@pytest.mark.parametrize("comes_back", ["switch", "reload"])
def test_a_queued_message_is_there_when_one_comes_back(
    chromium: Chromium, chat: Browser, gate: Gate, tmp_path: Path, comes_back: str
) -> None:
    with window(chromium, chat.port) as shown:
        shown.open().say("wait for me")
        shown.sees("First half,")
        busy = shown.conversation
        queue_with_picture(shown, tmp_path, "and then this")
        if comes_back == "reload":
            shown.page.reload()
        else:
            shown.page.locator("#new-chat").click()
            expect(shown.page.locator("#queue")).to_be_hidden()
            shown.page.go_back()
        shown.sees("First half,")
        expect(shown.page.locator("#queue")).to_be_visible()
        gate.open()
        shown.sees("You wrote: and then this")
        (_, sent) = inputs(chat, busy)
        assert [part["type"] for part in sent["content"]] == ["text", "image"]


def test_an_unsent_draft_comes_back_to_its_own_conversation(chromium: Chromium, chat: Browser) -> None:
    with window(chromium, chat.port) as shown:
        shown.open().ask("Hello")
        first = shown.conversation
        held: list[Any] = []
        shown.page.route("**/turns", lambda route: held.append(route))
        with shown.page.expect_request("**/turns"):
            shown.say("Precious words")
        shown.page.locator("#new-chat").click()
        expect(shown.box).to_have_value("")
        held[0].abort()
        expect(shown.page.locator(".notice.wrong")).to_contain_text("Your draft is saved")
        expect(shown.box).to_have_value("")
        shown.page.evaluate(f"location.hash = '#/c/{first}'")
        expect(shown.box).to_have_value("Precious words")


def test_large_pictures_of_tools_are_shown_after_a_reload(chromium: Chromium, tmp_path: Path) -> None:
    picture = base64.b64encode(large_png()).decode()
    assert len(picture) > 100_000

    @ap.tool(effect="read")
    def draw() -> Image:
        "Draw a picture."
        return Image("image/png", picture)

    def answer(context: Sequence[Any], options: ProviderCallOptions) -> Any:
        return call("draw") if context[-1].role == "model_input" else "Drawn."

    with (
        served(tmp_path / "chats.db", ap.FunctionModel(answer, name="painter"), tools=[draw]) as browser,
        window(chromium, browser.port) as shown,
    ):
        shown.open().ask("Draw.")
        shown.sees("Drawn.")
        for _ in range(2):
            shown.thread.locator(".chip summary").click()
            drawn = shown.thread.locator(".chip img.picture")
            expect(drawn).to_have_count(1)
            shown.page.wait_for_function("document.querySelector('.chip img.picture').naturalWidth === 256")
            shown.page.reload()
            shown.sees("Drawn.")


def large_png() -> bytes:
    """A picture of noise, which does not compress."""
    rows = b"".join(b"\0" + random.Random(row).randbytes(256 * 3) for row in range(256))

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", 256, 256, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def test_pictures_files_and_long_texts_are_attached(chromium: Chromium, chat: Browser, tmp_path: Path) -> None:
    (tmp_path / "dot.png").write_bytes(base64.b64decode(PIXEL))
    (tmp_path / "notes.md").write_text("# Notes")
    (tmp_path / "Dockerfile").write_text("FROM scratch")  # text by its content, as in the terminal
    (tmp_path / "program.exe").write_bytes(b"MZ\x90\0")
    with window(chromium, chat.port) as shown:
        shown.open()
        names = ("dot.png", "notes.md", "Dockerfile", "program.exe")
        shown.page.locator("#files").set_input_files([tmp_path / name for name in names])
        expect(shown.page.locator(".notice.wrong")).to_contain_text("program.exe")
        shown.page.evaluate(
            "() => { const data = new DataTransfer(); data.setData('text/plain', 'long '.repeat(400000));"
            " document.getElementById('composer-text').dispatchEvent(new ClipboardEvent('paste',"
            " {clipboardData: data, cancelable: true, bubbles: true})); }"
        )
        expect(shown.page.locator("#attachments li")).to_have_count(4)
        shown.say("What is this?")
        shown.sees("You wrote: What is this?")
        expect(shown.thread.locator(".input img.picture")).to_have_count(1)
        shown.sees("notes.md")
        shown.sees("Dockerfile")
        shown.sees("pasted-4.txt")
        (sent,) = inputs(chat, shown.conversation)
        assert [part["type"] for part in sent["content"]] == ["text", "image", "document", "document", "document"]
        # Edited in a fork, the message keeps what was attached to it, long or not.
        original = shown.conversation
        edit_in_fork(shown, "And what is this?")
        (again,) = inputs(chat, shown.conversation)
        assert shown.conversation != original
        assert again["content"] == [{"type": "text", "text": "And what is this?"}, *sent["content"][1:]]
