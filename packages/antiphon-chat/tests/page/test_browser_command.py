"""What `antiphon chat` leaves in the store, shown by `antiphon chat --web` in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import expect

from page.chat_process import antiphon_chat, plans_of, web_chat
from page.window import window
from support.waiting import until


def test_the_page_opens_what_is_resumed(tmp_path: Path, chromium: Chromium) -> None:
    assert antiphon_chat(tmp_path, "-p", "say something memorable")[0] == 0
    with (
        web_chat(tmp_path, "--resume") as chat,
        window(chromium, chat.browser.port) as shown,
    ):
        shown.page.goto(chat.address)
        expect(shown.thread.locator(".typed")).to_have_text("say something memorable")


@pytest.mark.parametrize("decision", ["Create the plan", "Not now"])
@pytest.mark.journey
def test_an_approval_requested_in_the_terminal_is_decided_on_the_page(
    tmp_path: Path, chromium: Chromium, decision: str
) -> None:
    """Law L11: neither another surface nor one without --ask runs the call; a person decides."""
    code, _, err = antiphon_chat(tmp_path, "--ask", "-p", "make me a plan to learn Spanish")
    assert code == 1
    assert "create_plan needs approval" in err
    with web_chat(tmp_path, "--resume") as chat, window(chromium, chat.browser.port) as shown:
        conversation = chat.address.rpartition("/")[2]
        state = chat.browser.show(conversation)
        assert [call["tool_name"] for call in state["pending"]] == ["create_plan"]
        assert not state["unfinished"]
        shown.page.goto(chat.address)
        card = shown.page.locator(".approval")
        expect(card).to_contain_text("Create this plan?")
        expect(card.locator(".proposed li").first).to_contain_text("Write the goal down")
        expect(card.locator(".arguments")).to_be_hidden()  # the JSON is under "details"
        expect(shown.button("Resume")).to_have_count(0)
        # Continuing anyway runs nothing.
        chat.browser.api("POST", f"/conversations/{conversation}/resume")
        until(lambda: not chat.browser.show(conversation)["running"])
        assert len(chat.browser.show(conversation)["pending"]) == 1
        assert plans_of(tmp_path) == []
        shown.page.reload()
        card.get_by_role("button", name=decision, exact=True).click()
        expect(card).to_have_count(0)
        shown.rest()
        until(lambda: not chat.browser.show(conversation)["running"])
        assert chat.browser.show(conversation)["entries"][-1]["kind"] == "model_output"
    assert len(plans_of(tmp_path)) == (1 if decision == "Create the plan" else 0)
