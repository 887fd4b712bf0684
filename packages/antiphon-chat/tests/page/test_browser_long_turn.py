"""A turn that outgrows its limit, in a real browser: a line says what was compacted, and the history shows it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import expect

import antiphon as ap
from antiphon.conversation import RunLimits
from antiphon.parts import ToolCallRequest
from antiphon.providers.scripted import FunctionModel, call
from antiphon_chat.shared.session import TurnSettings
from page.rig import served
from page.window import window

ROUNDS = 30


def read_page(page: int) -> str:
    "Read a page."
    return f"Page {page}: " + "lorem ipsum " * 80


class Reader:
    """Reads one page after the other; says what it is asked to sum up."""

    def __init__(self) -> None:
        self.page = 0

    def __call__(self, context: Sequence[ap.ContextEntry], options: object) -> str | ToolCallRequest:
        if "has grown long" in str(context[-1].content):
            return f"Pages up to {self.page} are read."
        self.page += 1
        return call("read_page", page=self.page) if self.page <= ROUNDS else "All pages are read."


@pytest.mark.journey
def test_a_long_turn_says_what_was_compacted_and_the_history_shows_it(chromium: Chromium, tmp_path: Path) -> None:
    settings = TurnSettings(token_limit=2_000, limits=RunLimits(max_rounds=ROUNDS + 5))
    model = FunctionModel(Reader())
    with (
        served(tmp_path / "chats.db", model, tools=[read_page], turns=lambda: settings) as browser,
        window(chromium, browser.port) as shown,
    ):
        conversation = browser.create(title="Pages")
        shown.open(conversation)
        shown.ask("Read all pages.")
        shown.sees("All pages are read.")
        live = shown.thread.locator(".remark").all_inner_texts()
        assert any(
            re.fullmatch(r"\d+ results shortened to notes for the model; the log keeps them", one) for one in live
        )
        summarised = shown.thread.locator(
            "details.remark", has_text=re.compile(r"^Entries \d+ to \d+ summarised")
        ).first
        summarised.locator("summary").click()
        expect(summarised).to_contain_text("are read.")
        shown.page.reload()
        shown.sees("All pages are read.")
        assert shown.thread.locator(".remark").all_inner_texts() == live, "stored, it reads the same"

        shown.open(conversation, "/history")
        columns = shown.page.locator(".rendered:visible")
        shortened = shown.page.locator(".entry[data-kind=shortened_results]").first
        shortened.locator("button").first.click()
        expect(shortened.locator(".kind")).to_have_text("ShortenedResults")
        expect(shortened.locator(".stored .json-name").filter(has_text=re.compile("^(since|up_to)$"))).to_have_count(2)
        notes = columns.nth(1).locator(".turn-card.new")
        expect(notes.first).to_contain_text(
            re.compile(r"characters of read_page left out; recall\(entry=\d+\) shows them")
        )
        segment = shown.page.locator(".entry[data-kind=compaction]").first
        segment.locator("button").first.click()
        expect(segment.locator(".kind")).to_have_text("Compaction")
        names = segment.locator(".stored .json-name")
        expect(names.filter(has_text=re.compile("^(summary|since|up_to)$"))).to_have_count(3)
        expect(columns.nth(1).locator(".turn-card.new").first).to_contain_text("are read.")
