"""Branches in a real browser: an answer again, an edited message, two models side by side; nothing is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import expect

from antiphon.providers.scripted import FunctionModel
from page.rig import models, served
from page.window import ON_BOTH, ON_DESKTOP, ON_PHONE, window
from support.waiting import until


def counting(name: str) -> FunctionModel:
    """A model that numbers its answers."""
    answers = iter(range(1, 100))
    return FunctionModel(lambda context, options: f"{name} says {next(answers)}.", name=name)


@ON_DESKTOP
@pytest.mark.journey
def test_an_answer_is_made_again_and_both_are_kept(tmp_path: Path, chromium: Chromium, screen: dict[str, Any]) -> None:
    with (
        served(tmp_path / "chats.db", models(counting("owl"))) as browser,
        window(chromium, browser.port, **screen) as shown,
    ):
        shown.open()
        shown.ask("hello")
        shown.sees("owl says 1.")
        first = shown.conversation
        shown.thread.locator(".message.output").last.hover()
        shown.button("Answer again").click()
        expect(shown.thread).to_contain_text("owl says 2.")
        expect(shown.thread.locator(".typed")).to_have_text(["hello"])
        switch = shown.page.get_by_role("navigation", name="Branch 2 of 2")
        switch.get_by_role("button", name="Previous branch").click()
        expect(shown.thread).to_contain_text("owl says 1.")
        assert shown.conversation == first
        if screen:
            shown.button("Menu").click()
        rows = shown.page.locator("#conversations > .conversation")
        expect(rows).to_have_count(1)  # the branch hangs below its conversation
        expect(rows.locator("> a")).to_contain_text("1 branch")
        expect(rows.get_by_role("list", name="Branches of hello").get_by_role("link")).to_have_count(1)
        if screen:
            shown.page.keyboard.press("Escape")
        expect(shown.page.get_by_role("navigation", name="Branch 1 of 2")).to_be_visible()
        assert shown.overflow <= 0


@ON_PHONE
def test_an_edited_message_is_a_branch(tmp_path: Path, chromium: Chromium, screen: dict[str, Any]) -> None:
    with (
        served(tmp_path / "chats.db", models(counting("owl"))) as browser,
        window(chromium, browser.port, **screen) as shown,
    ):
        shown.open()
        shown.ask("first")
        shown.ask("secnod")
        message = shown.thread.locator(".message.input").last
        message.hover()
        message.get_by_role("button", name="Edit", exact=True).click()
        message.get_by_role("textbox").fill("second")
        message.get_by_role("button", name="Send as a branch").click()
        expect(shown.thread.locator(".typed")).to_have_text(["first", "second"])
        shown.sees("owl says 3.")
        shown.page.get_by_role("button", name="Previous branch").click()
        expect(shown.thread.locator(".typed")).to_have_text(["first", "secnod"])
        shown.sees("owl says 2.")
        shown.page.get_by_role("button", name="Next branch").click()
        expect(shown.thread.locator(".typed")).to_have_text(["first", "second"])


@ON_BOTH
def test_two_models_answer_the_same_question_side_by_side(
    tmp_path: Path, chromium: Chromium, screen: dict[str, Any]
) -> None:
    with (
        served(tmp_path / "chats.db", models(counting("owl"), counting("fox"))) as browser,
        window(chromium, browser.port, **screen) as shown,
    ):
        shown.open()
        shown.ask("who are you?")
        shown.thread.locator(".message.output").last.hover()
        shown.button("Compare with another model").click()
        dialog = shown.page.get_by_role("dialog")
        expect(dialog.get_by_role("combobox")).to_have_value("fox")
        dialog.get_by_role("button", name="Answer again").click()
        columns = shown.page.locator(".compared")
        expect(columns).to_have_count(2)
        expect(columns.locator("h2")).to_have_text(["owl", "fox"])
        expect(shown.page.locator(".pair .typed")).to_have_text(["who are you?"])
        expect(shown.page.locator(".side .prose")).to_have_text(["owl says 1.", "fox says 1."])
        shown.button("Show the differences").click()
        expect(shown.page.locator(".side.second mark")).to_have_text(["fox"])
        assert shown.overflow <= 0
        columns.last.get_by_role("link", name="Continue with this one").click()
        expect(shown.page.locator("#model .name")).to_have_text("fox")
        shown.ask("go on")
        shown.sees("fox says 2.")


@ON_PHONE
def test_both_are_asked_and_a_resend_asks_only_the_one_that_refused(
    tmp_path: Path, chromium: Chromium, screen: dict[str, Any]
) -> None:
    with (
        served(tmp_path / "chats.db", models(counting("owl"), counting("fox"))) as browser,
        window(chromium, browser.port, **screen) as shown,
    ):
        first = browser.create(model="owl")
        browser.ask(first, "who are you?")
        branch = browser.api("POST", f"/conversations/{first}/branches", {"at": 1, "model": "fox"}, status=201)["id"]
        until(lambda: not browser.show(branch)["running"])
        shown.page.goto(f"{shown.root}#/compare/{first}/{branch}")
        answers = shown.page.locator(".side .prose")
        expect(answers).to_have_text(["owl says 1.", "fox says 1."])
        box = shown.page.get_by_role("textbox", name="Ask both")
        box.fill("and now?")
        box.press("Enter")
        expect(answers).to_have_text(["owl says 1.", "fox says 1.", "owl says 2.", "fox says 2."])
        expect(box).to_have_value("")
        refused = f"**/conversations/{branch}/turns"
        shown.page.route(refused, lambda route: route.fulfill(status=503, json={"error": {"message": "not now"}}))
        box.fill("and then?")
        box.press("Enter")
        expect(shown.page.locator("#notices")).to_contain_text("not now")
        expect(box).to_have_value("and then?")
        expect(answers).to_contain_text(["owl says 3."])
        shown.page.unroute(refused)
        box.press("Enter")
        expect(answers.last).to_have_text("fox says 3.")
        kinds = [[entry["kind"] for entry in browser.show(one)["entries"]] for one in (first, branch)]
        assert [log.count("model_input") for log in kinds] == [3, 3], "owl was asked once"
        assert shown.overflow <= 0
        box.fill("kept")
        shown.page.evaluate("document.getElementById('language').click()")
        expect(shown.page.get_by_role("textbox", name="同时问两个模型")).to_have_value("kept")
        expect(shown.page.locator(".ask-both").get_by_role("button", name="发送")).to_be_visible()


def test_a_branch_needs_a_message_and_a_model_that_may_be_used(tmp_path: Path) -> None:
    with served(tmp_path / "chats.db", models(counting("owl"))) as browser:
        conversation = browser.create()
        path = f"/conversations/{conversation}/branches"
        assert "no message" in browser.api("POST", path, {"at": 0}, status=400)["error"]["message"]
        browser.ask(conversation, "hello")
        browser.api("POST", path, {"at": 1, "model": "nothing/none"}, status=400)
        browser.api("POST", path, {"at": 99}, status=400)
        assert browser.api("GET", path) == {"points": []}
        assert browser.api("GET", "/conversations")["total"] == 1
