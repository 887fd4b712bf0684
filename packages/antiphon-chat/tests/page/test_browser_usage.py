"""Tokens, cache hits and money on the page: per turn, and for the conversation."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import expect

from antiphon.history import EntryMetadata, ModelInputEntry, ModelOutputEntry, Origin, SqliteStore
from antiphon.parts import Text, TokenUsage
from antiphon_chat.shared.spending import format_money, spending_of
from page.rig import served
from page.window import ON_PHONE, window


def stored(path: Path, provider: str, model: str) -> tuple[str, str]:
    """A conversation of two turns, and what it cost."""
    with SqliteStore(path) as store:
        history = store.create(title="Costs")
        for number in range(2):
            history.append(ModelInputEntry.of(f"Question {number}"))
            usage = TokenUsage(12_000, 500, 9_000 if number else 0)
            history.append(
                ModelOutputEntry(
                    (Text(f"Answer {number}"),),
                    origin=Origin(provider, "openai-chat", model),
                    timestamp=datetime(2026, 7, 1, tzinfo=UTC),
                    metadata=EntryMetadata(usage=usage),
                )
            )
        return str(history.id), format_money(spending_of(history.entries).cost)


@ON_PHONE
@pytest.mark.journey
def test_each_turn_and_the_conversation_show_tokens_cache_and_money(
    tmp_path: Path, chromium: Chromium, screen: dict[str, Any]
) -> None:
    conversation, cost = stored(tmp_path / "chats.db", "openai", "gpt-4o")
    with served(tmp_path / "chats.db") as browser, window(chromium, browser.port, **screen) as shown:
        shown.open(conversation)
        used = shown.thread.locator(".used")
        expect(used.first).to_have_text("12,000 in · 500 out · $0.035")
        expect(used.last).to_contain_text("75 % from cache")
        shown.page.locator("#more summary").click()
        shown.page.locator("#usage").click()
        dialog = shown.page.get_by_role("dialog")
        expect(dialog).to_contain_text("24,000")
        expect(dialog).to_contain_text("9,000 (38 %)")
        expect(dialog).to_contain_text(cost)
        expect(dialog).to_contain_text("openai/gpt-4o")
        assert shown.overflow <= 0


def test_the_tour_has_no_price(tmp_path: Path, chromium: Chromium) -> None:
    with served(tmp_path / "chats.db") as browser, window(chromium, browser.port) as shown:
        shown.open().ask("hi")
        expect(shown.thread.locator(".used").first).to_contain_text("out")
        expect(shown.thread.locator(".used").first).not_to_contain_text("price")


def test_an_unknown_price_is_shown_as_unknown(tmp_path: Path, chromium: Chromium) -> None:
    conversation, _ = stored(tmp_path / "chats.db", "my-host", "my-model")
    with served(tmp_path / "chats.db") as browser, window(chromium, browser.port) as shown:
        shown.open(conversation)
        expect(shown.thread.locator(".used").first).to_have_text("12,000 in · 500 out · price unknown")
        expect(shown.page.locator("#meter .money")).to_have_count(0)
        shown.page.locator("#more summary").click()
        shown.page.locator("#usage").click()
        expect(shown.page.get_by_role("dialog")).to_contain_text("price unknown")
