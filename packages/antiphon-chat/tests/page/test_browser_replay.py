"""Replays in a real browser: started on the history page, watched, and shown as a table; on a phone and in Chinese too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import expect

from page.conftest import axe_violations
from page.rig import Browser, models, served
from page.test_replays import Weather, forecaster
from page.window import ON_BOTH, Window, window


def asked_about(browser: Browser, *cities: str) -> str:
    conversation = browser.create()
    for city in cities:
        browser.ask(conversation, city)
    return conversation


def start_replay(shown: Window, step: str, policy: str = "") -> None:
    """Start a replay from a step, with the model that the dialog proposes."""
    shown.button(f"Replay on another model from {step}").click()
    dialog = shown.page.get_by_role("dialog", name="Replay on another model")
    expect(dialog.get_by_role("combobox").first).to_have_value("fox")
    if policy:
        dialog.get_by_label("Calls that the log does not have").select_option(label=policy)
    dialog.get_by_role("button", name="Replay", exact=True).click()


@ON_BOTH
@pytest.mark.journey
def test_a_turn_is_replayed_on_another_model_and_both_are_in_a_table(
    tmp_path: Path, chromium: Chromium, screen: dict[str, Any], axe: str
) -> None:
    weather = Weather()
    offered = models(forecaster("owl"), forecaster("fox"))
    with (
        served(tmp_path / "chats.db", offered, tools=[weather.tool]) as browser,
        window(chromium, browser.port, **screen) as shown,
    ):
        shown.open(asked_about(browser, "Oslo", "Rome", "Bern"), "/history")
        start_replay(shown, "2")
        expect(shown.page.locator(".compared h2")).to_have_text(["owl", "fox"])
        expect(shown.page.locator(".side.second").last).to_contain_text("fox: rain in Bern")
        shown.page.get_by_text("Step by step").first.click()
        table = shown.page.get_by_role("table", name="Step by step")
        expect(table.get_by_role("columnheader")).to_have_text(
            ["owl (original)", "fox", "Turn 2: Rome", "Turn 3: Bern"]
        )
        expect(table.get_by_role("rowheader")).to_have_text(["2.1", "2.2", "3.1", "3.2", "all"])
        expect(shown.page.locator(".pair .typed")).to_have_text(["Rome", "Bern"])
        expect(shown.page.locator(".pair").last).to_contain_text("owl: rain in Bern")
        expect(table.get_by_text("(from the log)")).to_have_count(2)
        expect(table.locator("tfoot td").last).to_contain_text("4 rounds, 2 calls")
        assert weather.cities == ["Oslo", "Rome", "Bern"], "no tool ran again"
        assert shown.overflow <= 0
        shown.page.evaluate(axe)
        assert axe_violations(shown.page) == []
        shown.page.locator(".compared").last.get_by_role("link", name="Continue with this one").click()
        expect(shown.page.locator("#model .name")).to_have_text("fox")


def test_a_call_that_is_not_in_the_log_is_decided_on_the_page(tmp_path: Path, chromium: Chromium) -> None:
    weather = Weather()
    offered = models(forecaster("owl"), forecaster("fox", lambda city: "Paris" if city == "Rome" else city))
    with (
        served(tmp_path / "chats.db", offered, tools=[weather.tool]) as browser,
        window(chromium, browser.port) as shown,
    ):
        shown.open(asked_about(browser, "Rome", "Bern"), "/history")
        start_replay(shown, "1", "Wait for my decision")
        shown.page.get_by_text("Step by step").first.click()
        table = shown.page.get_by_role("table", name="Step by step")
        expect(table).to_contain_text("(waiting: not in the log)")
        expect(table).to_contain_text("Stopped: weather needs your decision.")
        expect(table).to_contain_text("other calls than the original")
        assert weather.cities == ["Rome", "Bern"]
        shown.page.locator(".side.second").get_by_role("button", name="Approve once", exact=True).click()
        expect(shown.page.locator(".side.second").last).to_contain_text("fox: rain in Bern")
        expect(table).not_to_contain_text("Stopped")
        assert weather.cities == ["Rome", "Bern", "Paris"]


def test_a_round_is_replayed_in_chinese(tmp_path: Path, chromium: Chromium) -> None:
    offered = models(forecaster("owl"), forecaster("fox"))
    with (
        served(tmp_path / "chats.db", offered, tools=[Weather().tool]) as browser,
        window(chromium, browser.port, locale="zh-CN") as shown,
    ):
        shown.open(asked_about(browser, "Oslo"), "/history")
        shown.button("从 1.2 起用其他模型重放").click()
        shown.page.get_by_role("dialog", name="用其他模型重放").get_by_role("button", name="重放", exact=True).click()
        shown.page.get_by_text("逐步对照").first.click()
        table = shown.page.get_by_role("table", name="逐步对照")
        expect(table.get_by_role("rowheader")).to_have_text(["1.2", "合计"])
        expect(shown.page.locator(".side.second")).to_contain_text("fox: rain in Oslo")
        expect(table).to_contain_text("第 1 轮：Oslo")
