"""The list of conversations in a real browser: groups, pins, tags, search with highlights, titles, and files to share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import expect

from antiphon.history import ModelInputEntry, ModelOutputEntry, SqliteStore
from antiphon.providers.scripted import FunctionModel
from page.rig import models, served
from page.window import ON_DESKTOP, ON_PHONE, Window, window

ATTACK = "<img src=x onerror=document.title='hacked'>"


NEIGHBOURS_ARE_DRAWN = """() => {
  const { height } = document.getElementById("scroller").getBoundingClientRect();
  const isFar = (one) => one.getBoundingClientRect().bottom < -height || one.getBoundingClientRect().top > 2 * height;
  return document.querySelector("#thread .message") && [...document.querySelectorAll(".far")].every(isFar);
}"""


def open_list(shown: Window) -> None:
    if shown.page.locator("#menu").is_visible():
        shown.page.locator("#menu").click()


@ON_PHONE
def test_pins_and_tags_order_the_list(tmp_path: Path, chromium: Chromium, screen: dict[str, Any]) -> None:
    with served(tmp_path / "chats.db") as browser:
        for title in ("First", "Second", "Third"):
            browser.create(title=title)
        second = browser.api("GET", "/conversations")["conversations"][1]["id"]
        with window(chromium, browser.port, **screen) as shown:
            shown.open(second)
            shown.page.locator("#more summary").click()
            shown.button("Pin").click()
            expect(shown.page.locator("#pin")).to_have_text("Unpin")
            shown.page.locator("#more summary").click()
            shown.button("Conversation").click()
            shown.page.get_by_role("dialog").get_by_label("Tags").fill("birds, trees")
            shown.button("Save").click()
            open_list(shown)
            listed = shown.page.locator("#conversations")
            expect(listed.locator("h2")).to_have_text(["Pinned", "Today"])
            expect(listed.locator("a .title")).to_have_text(["Second", "Third", "First"])
            shown.page.locator("#tags").get_by_role("button", name="trees").click()
            expect(listed.locator("a .title")).to_have_text(["Second"])
            expect(listed.locator("a .tag")).to_have_text(["birds", "trees"])
            shown.page.locator("#tags").get_by_role("button", name="All").click()
            expect(listed.locator("a .title")).to_have_count(3)


@ON_DESKTOP
@pytest.mark.journey
def test_a_search_leads_to_the_words_and_marks_them(tmp_path: Path, chromium: Chromium, screen: dict[str, Any]) -> None:
    with SqliteStore(tmp_path / "chats.db") as store:
        history = store.create("Herons")
        for number in range(30):
            history.append(ModelInputEntry.of(f"Question {number}"))
            text = "They sleep.\n\n" * 20 + "In **willow** trees." if number == 5 else "Yes.\n\n" * 20
            history.append(ModelOutputEntry.of(text))
    with served(tmp_path / "chats.db") as browser, window(chromium, browser.port, **screen) as shown:
        shown.open()
        open_list(shown)
        shown.page.locator("#search").fill("willow")
        expect(shown.page.locator("#conversations mark")).to_have_text("willow")
        shown.page.locator("#conversations a").first.click()
        shown.page.wait_for_function(NEIGHBOURS_ARE_DRAWN)
        expect(shown.thread.locator("strong", has_text="willow")).to_be_in_viewport()
        marked = shown.page.evaluate("[...CSS.highlights.get('found')].map((range) => range.toString())")
        assert marked == ["willow"]
        expect(shown.button("Jump to latest")).to_be_visible()


@ON_PHONE
@pytest.mark.journey
def test_a_shared_page_is_saved_and_runs_nothing(tmp_path: Path, chromium: Chromium, screen: dict[str, Any]) -> None:
    with SqliteStore(tmp_path / "chats.db") as store:
        history = store.create(f"Herons {ATTACK}")
        history.append(ModelInputEntry.of(f"Where? {ATTACK}"))
        history.append(ModelOutputEntry.of(f"**There** {ATTACK} [x](javascript:alert(1))\n\n```\n{ATTACK}\n```"))
        conversation = str(history.id)
    with served(tmp_path / "chats.db") as browser, window(chromium, browser.port, **screen) as shown:
        shown.open(conversation)
        files = {}
        for name, label in (("html", "Save a page to share"), ("md", "Save as Markdown"), ("json", "Save as JSON")):
            shown.page.locator("#more summary").click()
            with shown.page.expect_download() as download:
                shown.button(label).click()
            files[name] = tmp_path / f"saved.{name}"
            download.value.save_as(files[name])
        assert json.loads(files["json"].read_text())["entries"][0]["kind"] == "model_input"
        assert "**There**" in files["md"].read_text()
        page = shown.page.context.new_page()
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        page.goto(files["html"].as_uri())
        expect(page.locator("strong")).to_have_text("There")
        expect(page).to_have_title(f"Herons {ATTACK}")
        assert page.locator("script, img, a").count() == 0
        assert [url for url in requests if not url.startswith("file:")] == []
        assert page.evaluate("getComputedStyle(document.querySelector('main')).maxWidth") != "none", (
            "its own style is allowed"
        )


def test_the_model_writes_the_title_after_the_first_answer(tmp_path: Path, chromium: Chromium) -> None:
    def answer(context: Any, options: Any) -> str:
        return "Where herons sleep" if not options.tools and "Write a title" in str(context) else "In trees."

    with (
        served(tmp_path / "chats.db", models(FunctionModel(answer, name="owl")), writes_titles=True) as browser,
        window(chromium, browser.port) as shown,
    ):
        shown.open()
        shown.ask("tell me: where do they sleep?")
        expect(shown.page.locator("#title")).to_have_text("Where herons sleep")
        expect(shown.page.locator("#conversations .title").first).to_have_text("Where herons sleep")
        assert [entry["kind"] for entry in browser.show(shown.conversation)["entries"]] == [
            "model_input",
            "model_output",
            "debug_log",
        ], "the note has what the title used"


def test_a_title_that_a_person_gave_stays(tmp_path: Path) -> None:
    model = FunctionModel(lambda context, options: "Something else", name="owl")
    with served(tmp_path / "chats.db", models(model), writes_titles=True) as browser:
        named = browser.create(title="Mine")
        browser.ask(named, "hello")
        assert browser.show(named)["info"]["title"] == "Mine"


def test_bad_requests_about_conversations_are_refused(tmp_path: Path) -> None:
    with served(tmp_path / "chats.db") as browser:
        conversation = browser.create()
        error = browser.api("GET", f"/conversations/{conversation}/export?format=pdf", status=400)["error"]
        assert "jsonl, markdown, json, html" in error["message"]
        browser.api("PATCH", f"/conversations/{conversation}", {"tags": ["x" * 41]}, status=400)
        html = browser.get(f"/chat/api/conversations/{conversation}/export?format=html")
        assert html.headers["content-disposition"].startswith("attachment")
        assert html.headers["content-type"] == "application/octet-stream"


def test_a_conversation_is_imported_from_a_file(chromium: Chromium, tmp_path: Path) -> None:
    with served(tmp_path / "chats.db", with_builtin=True) as browser, window(chromium, browser.port) as shown:
        conversation = browser.create()
        browser.ask(conversation, "What can you do?")
        exported = tmp_path / "talk.jsonl"
        exported.write_bytes(browser.get(f"/chat/api/conversations/{conversation}/export").body)
        shown.open()
        shown.page.locator("#import-file").set_input_files(exported)
        shown.sees("What can you do?")
        assert conversation not in shown.page.url
        messages = tmp_path / "Rain in Oslo.json"
        messages.write_text('[{"role": "user", "content": "Rain?"}, {"role": "assistant", "content": "Yes, *rain*."}]')
        shown.page.locator("#import-file").set_input_files(messages)
        expect(shown.page.locator("#title")).to_have_text("Rain in Oslo")
        expect(shown.thread.locator(".message.output em")).to_have_text("rain")
        messages.write_text("not a conversation")
        shown.page.locator("#import-file").set_input_files(messages)
        expect(shown.page.locator("#notices")).to_contain_text("Rain in Oslo.json")
