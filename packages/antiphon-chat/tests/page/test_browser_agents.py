"""Agents on the page: each answer names the agent that gave it, while it streams, afterwards and in another tab."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser as Chromium
from playwright.sync_api import expect

import antiphon as ap
from antiphon_chat.shared.session import TurnSettings
from page.rig import served
from page.window import window


def test_page_shows_who_speaks(chromium: Chromium, tmp_path: Path) -> None:
    writer = ap.Agent("writer", "You write.")
    planner = ap.Agent("planner", "You plan.", hand_offs=[writer])
    model = ap.ScriptedModel(
        ["First a plan.", ap.call("hand_off_to_writer", reason="the plan is done")],
        "Here is the text.",
        "Another text.",
    )
    settings = TurnSettings(agents=(planner, writer))
    with (
        served(tmp_path / "chats.db", model, turns=lambda: settings) as browser,
        window(chromium, browser.port) as shown,
    ):
        shown.open().ask("Write me something.")
        names = shown.thread.locator(".message.output .who b")
        expect(names).to_have_text(["planner", "writer"])
        shown.sees("planner → writer: the plan is done")
        shown.ask("And again?")
        expect(names).to_have_text(["planner", "writer", "writer"])
        expect(shown.thread).not_to_contain_text("The system instruction changed")
        expect(shown.page.get_by_role("article", name="writer")).to_have_count(2)
        shown.page.reload()
        expect(names).to_have_text(["planner", "writer", "writer"])
        shown.sees("planner → writer: the plan is done")


def test_event_names_the_agent_before_it_speaks(tmp_path: Path) -> None:
    """The page draws the name with the first dots of an answer."""
    settings = TurnSettings(agents=(ap.Agent("planner", "You plan."),))
    with served(tmp_path / "chats.db", ap.ScriptedModel("Hi."), turns=lambda: settings) as browser:
        events = browser.ask(browser.create(), "Go.")
    assert [event.data["agent"] for event in events if event.name == "RoundStarted"] == ["planner"]
