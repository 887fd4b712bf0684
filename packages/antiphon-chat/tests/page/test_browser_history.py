"""The history view in a real browser: the log as a timeline, and each moment of it as every provider would be sent it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import expect

import antiphon as ap
from antiphon.history import ModelOutputEntry, Origin, SqliteStore
from antiphon.parts import Text, Thinking, ToolCallRequest, ToolCallResult
from page.rig import Browser, served
from page.window import PHONE, window

FORMATS = ["Anthropic Messages", "OpenAI Chat", "Gemini", "OpenAI Responses", "Gemini Interactions"]


def stored_conversation(path: Path) -> str:
    """A conversation with everything in it that one provider says and another cannot."""
    asked = ToolCallRequest("look", "call_1", '{"what": "left"}')
    with SqliteStore(path) as store:
        history = store.create(title="Herons")
        history.append(ap.ModelInputEntry.of("Where is the heron?"))
        proof = {"anthropic": {"signature": "c2lnbmVk"}}
        history.append(
            ModelOutputEntry(
                (Thinking("Left, or right?", native=proof), Text("I look."), asked),
                origin=Origin("anthropic", "anthropic", "claude-sonnet-5"),
            )
        )
        history.append(ap.ToolCallResultsEntry((ToolCallResult.of(asked, "a heron"),)))
        history.append(ModelOutputEntry.of("It stands on the left."))
        return str(history.id)


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Browser, str]]:
    path = tmp_path_factory.mktemp("history") / "chats.db"
    conversation = stored_conversation(path)
    with served(path) as browser:
        yield browser, conversation


@pytest.mark.journey
def test_the_log_is_a_timeline_next_to_each_providers_request(chromium: Chromium, chat: tuple[Browser, str]) -> None:
    browser, conversation = chat
    with window(chromium, browser.port, viewport={"width": 1440, "height": 900}) as shown:
        shown.open(conversation, "/history")
        entries = shown.page.locator(".entry")
        expect(entries.locator(".kind")).to_have_text(["ModelInput", "ModelOutput", "ToolCallResults", "ModelOutput"])
        columns = shown.page.locator(".rendered:visible")
        expect(columns.locator("h3")).to_have_text(FORMATS[:3])
        boxes = [columns.nth(position).bounding_box() for position in range(3)]
        assert all(box and box["x"] >= 0 and box["x"] + box["width"] <= 1440 for box in boxes), "side by side, in sight"

        entries.nth(1).locator("button").first.click()
        expect(entries.nth(1)).to_contain_text("Left, or right?")  # the entry is open, as it is stored
        expect(shown.page.locator(".scrub output")).to_have_text("Moment 2 of 4")
        new = columns.nth(1).locator(".turn-card.new")
        expect(new.first).to_contain_text("I look.")
        assert "Where is the heron?" not in new.all_inner_texts()
        tops = columns.evaluate_all(
            "all => all.map(one => one.querySelector('.turn-card.new').getBoundingClientRect().top)"
        )
        assert len(set(tops)) == 1, "what is new stands in one row"
        expect(columns.nth(1).locator(".mark.lost")).to_have_text("3 left out")
        differences = shown.page.locator(".differences")
        lost = differences.get_by_role("row", name=re.compile("^OpenAI Chat left out"))
        expect(lost.first).to_contain_text("signature")  # what only its origin understands is reported as a loss
        repaired = differences.get_by_role("row", name=re.compile("^OpenAI Chat repaired"))
        expect(repaired).to_contain_text("synthesised")  # at this moment the call has no result yet

        shown.page.locator('input[type="range"]').fill("4")
        expect(shown.page.locator(".scrub output")).to_have_text("Moment 4 of 4")
        expect(repaired).to_have_count(0)
        expect(columns.nth(2).locator(".turn-card.new").last).to_contain_text("It stands on the left.")


def test_earlier_entries_are_folded_in_all_columns_together(chromium: Chromium, chat: tuple[Browser, str]) -> None:
    browser, conversation = chat
    with window(chromium, browser.port) as shown:
        shown.open(conversation, "/history")
        columns = shown.page.locator(".rendered:visible")
        # A breakpoint of the prompt cache that moved leaves the message the same; Anthropic needs a last word of the user.
        expect(columns.locator(".turn-card.new:visible")).to_have_count(4)
        expect(columns.get_by_text("Where is the heron?")).to_have_count(0)
        columns.nth(1).locator(".same > summary").click()
        expect(columns.get_by_text("Where is the heron?")).to_have_count(3)


def test_a_column_shows_any_format(chromium: Chromium, chat: tuple[Browser, str]) -> None:
    browser, conversation = chat
    with window(chromium, browser.port) as shown:
        shown.open(conversation, "/history")
        shown.page.get_by_label("Format of column 2").select_option(label="Gemini Interactions")
        order = ["Anthropic Messages", "Gemini Interactions", "Gemini"]
        expect(shown.page.locator(".rendered:visible h3")).to_have_text(order)
        shown.page.reload()
        expect(shown.page.locator(".rendered:visible h3")).to_have_text(order)


def test_nothing_is_cut_off_in_narrow_columns(chromium: Chromium, chat: tuple[Browser, str]) -> None:
    browser, conversation = chat
    with window(chromium, browser.port, viewport={"width": 1280, "height": 800}) as shown:
        shown.open(conversation, "/history")
        columns = shown.page.locator(".rendered")
        expect(columns).to_have_count(len(FORMATS))
        assert columns.evaluate_all("(all) => all.filter((one) => one.scrollWidth > one.clientWidth).length") == 0


def test_arrows_move_through_the_timeline(chromium: Chromium, chat: tuple[Browser, str]) -> None:
    browser, conversation = chat
    with window(chromium, browser.port) as shown:
        shown.open(conversation, "/history")
        shown.page.locator('.entry[data-sequence="4"] button').first.focus()
        shown.page.keyboard.press("ArrowUp")
        shown.page.keyboard.press("ArrowUp")
        expect(shown.page.locator(".entry.chosen")).to_have_attribute("data-sequence", "2")
        expect(shown.page.locator('.entry[data-sequence="2"] > button')).to_be_focused()


def test_on_a_phone_the_providers_are_tabs(chromium: Chromium, chat: tuple[Browser, str]) -> None:
    browser, conversation = chat
    with window(chromium, browser.port, **PHONE) as shown:
        shown.open(conversation, "/history")
        tabs = shown.page.get_by_role("tab")
        expect(tabs).to_have_text(FORMATS)
        tabs.nth(2).click()
        expect(shown.page.locator(".rendered:visible h3")).to_have_text("Gemini")
        tabs.nth(2).press("ArrowLeft")
        expect(shown.page.locator(".rendered:visible h3")).to_have_text("OpenAI Chat")
        assert shown.overflow <= 0
