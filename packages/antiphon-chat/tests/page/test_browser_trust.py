"""Trust on the page: permissions, scrolling that follows, and errors that name the next step. Desktop and phone."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import expect

import antiphon as ap
from antiphon.history import SqliteStore
from antiphon.parts import text_of
from antiphon.providers import ProviderCallOptions
from antiphon.providers.scripted import call
from page.chat_process import web_chat
from page.rig import Browser, served
from page.window import ON_DESKTOP, ON_PHONE, Window, window
from providers.scripted_server import Reply, ScriptedServer
from shared.test_partial_answers import leave_partial
from terminal.stored_chat import streamed


@ap.tool(needs_approval=True)
def book_flight(to: str) -> str:
    "Book a flight."
    return f"booked: {to}"


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    async def answer(context: Sequence[Any], options: ProviderCallOptions) -> AsyncIterator[Any]:
        words = text_of(context[-1].content) if isinstance(context[-1], ap.ModelInputEntry) else ""
        if words.startswith("fly"):
            yield call("book_flight", to=words.split()[1])
        else:
            yield f"Answer to {words}\n\n" + "A line.\n\n" * 60 + "The end."

    model = ap.FunctionModel(answer, name="talker")
    with served(tmp_path_factory.mktemp("trust") / "chats.db", model, tools=[book_flight]) as browser:
        yield browser


@ON_DESKTOP
@pytest.mark.journey
def test_always_approving_a_tool_applies_to_this_conversation_only(
    chromium: Chromium, chat: Browser, screen: dict[str, Any]
) -> None:
    with window(chromium, chat.port, **screen) as shown:
        card = shown.open().thread.locator(".approval")
        shown.say("fly Oslo")
        expect(card.locator(".arguments")).to_contain_text('"to": "Oslo"')
        card.get_by_role("button", name="Always approve this tool").click()
        expect(card).to_have_count(0)
        shown.rest()
        shown.say("fly Rome")
        expect(shown.thread.locator(".chip[data-status=success]")).to_have_count(2)
        shown.rest()
        expect(card).to_have_count(0)
        assert shown.overflow <= 0
        shown.open().say("fly Bergen")  # another conversation
        expect(card).to_contain_text("Bergen")


IS_AT_END = """() => {
  const scroller = document.getElementById("thread").parentElement;
  return scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 5;
}"""


@ON_PHONE
def test_the_thread_follows_until_the_person_scrolls_and_sending_follows_again(
    chromium: Chromium, chat: Browser, screen: dict[str, Any]
) -> None:
    with window(chromium, chat.port, **screen) as shown:
        shown.open().ask("one")
        shown.page.wait_for_function(IS_AT_END)
        # Not the person: the thread keeps following.
        shown.page.evaluate("document.getElementById('thread').parentElement.scrollTop = 0")
        shown.ask("two")
        shown.page.wait_for_function(IS_AT_END)
        # The person: it stops, and the button leads back.
        latest = shown.button("Jump to latest")
        expect(latest).to_be_hidden()
        scroll_up(shown)
        expect(latest).to_be_visible()
        latest.click()
        shown.page.wait_for_function(IS_AT_END)
        expect(latest).to_be_hidden()
        scroll_up(shown)
        expect(latest).to_be_visible()
        shown.ask("three")
        shown.page.wait_for_function(IS_AT_END)


def scroll_up(shown: Window) -> None:
    shown.page.evaluate(
        """() => {
          const scroller = document.getElementById("thread").parentElement;
          scroller.dispatchEvent(new WheelEvent("wheel", { deltaY: -900 }));
          scroller.scrollTop -= 900;
        }"""
    )


@pytest.mark.parametrize(
    ("locale", "half", "texts"),
    [
        (
            "en-GB",
            "The answer was cut off",
            ("The model did not answer", "Status 401.", "Check the key in OPENAI_API_KEY", "Choose another model"),
        ),
        ("zh-CN", "已收到的内容已保存", ("模型未能回答", "状态码 401。", "请检查 OPENAI_API_KEY", "换一个模型")),
    ],
)
def test_an_error_names_the_model_and_the_next_step(
    chromium: Chromium, tmp_path: Path, locale: str, half: str, texts: tuple[str, ...]
) -> None:
    refusal = Reply(status=401, body=b'{"error": {"message": "bad key"}}', content_type="application/json")
    cut = Reply(body=streamed("Half an answer", "never"), cut_after=80)
    environment = {"OPENAI_API_KEY": "sk-secret-1", "ANTIPHON_MODEL": "openai/gpt-test"}
    with ScriptedServer(cut) as server:
        environment["OPENAI_BASE_URL"] = server.url
        with (
            web_chat(tmp_path, environment=environment) as served_chat,
            window(chromium, served_chat.browser.port, locale=locale) as shown,
        ):
            card = shown.thread.locator(".failed")
            shown.open().say("Hello")
            expect(card).to_contain_text(half)
            shown.sees("Half an answer")
            server.play(refusal)
            card.get_by_role("button").first.click()  # try again
            for text in (*texts, "openai/gpt-test", "bad key"):
                expect(card).to_contain_text(text)
            shown.page.reload()  # the reason is still there
            expect(card).to_contain_text("bad key")
            server.play(Reply(status=401, body=refusal.body.replace(b"bad", b"same"), content_type="application/json"))
            card.get_by_role(
                "button"
            ).first.click()  # at once: the provider is asked, although its only key was rejected
            expect(card).to_contain_text("same key")
            card.get_by_role("button", name=texts[3]).click()
            expect(shown.page.get_by_role("option", name=re.compile("guided tour|导览"))).to_be_visible()


@ON_DESKTOP
def test_text_that_was_streaming_when_the_server_was_killed_is_shown_as_cut(
    chromium: Chromium, tmp_path: Path, screen: dict[str, Any]
) -> None:
    with SqliteStore(tmp_path / "chats.db") as store:
        history = store.create()
        history.append(ap.ModelInputEntry.of("Hello?"))
        leave_partial(tmp_path, history, "Half ", "an **answer**")
    model = ap.ScriptedModel("The whole answer.", name="writer")
    with served(tmp_path / "chats.db", model) as browser, window(chromium, browser.port, **screen) as shown:
        shown.open(history.id).sees("Half an answer")
        expect(shown.thread.locator(".prose strong")).to_have_text("answer")
        shown.sees("This answer was cut off here.")
        shown.button("Resume").click()
        shown.sees("The whole answer.")
        log = browser.show(history.id)["entries"]
        assert "Half an **answer**" in [entry["content"][0]["text"] for entry in log if entry["kind"] == "model_output"]
