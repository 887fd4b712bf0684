"""The card of what the tools did: calls, failures, cache hits and time of each tool, in the reader's language."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import expect

import antiphon as ap
from antiphon.history import SqliteStore
from antiphon_gateway.access.client_keys import hash_key
from antiphon_gateway.config.settings import ClientKeySettings
from page.conftest import axe_violations
from page.rig import Browser, served
from page.window import ON_PHONE, window


@ap.tool(effect="read", cache_seconds=60)
def search_web(query: str) -> str:
    "Search the web."
    return f"found {query}"


@ap.tool
def fetch(address: str) -> str:
    "Fetch a page."
    raise ValueError(f"{address} does not answer")


def converse(path: Path, *, tags: tuple[str, ...] = ()) -> None:
    """A conversation with two searches, one of them from the cache, and a failed fetch."""
    search, again, fetching = (
        ap.call("search_web", query="IELTS"),
        ap.call("search_web", query="IELTS"),
        ap.call("fetch", address="x"),
    )
    with SqliteStore(path) as store:
        model = ap.ScriptedModel(search, [again, fetching], "Done.")
        chat = ap.Conversation(model, tools=[search_web, fetch], history=store.create(tags=tags))
        ap.ToolLoop(chat).run_sync("Go.")


def test_the_tools_on_offer_are_listed(tmp_path: Path, chromium: Chromium) -> None:
    with (
        served(tmp_path / "chats.db", with_builtin=True) as browser,
        window(chromium, browser.port) as shown,
    ):
        shown.page.goto(f"{shown.root}#/mcp")
        offered = shown.page.get_by_role("region", name="Tools on offer").get_by_role("listitem")
        expect(offered).to_have_count(len(browser.api("GET", "/state")["tools"]))
        expect(offered.filter(has_text="search_web")).to_contain_text("only reads")


@ON_PHONE
@pytest.mark.journey
def test_each_tool_has_its_numbers(tmp_path: Path, chromium: Chromium, screen: dict[str, Any], axe: str) -> None:
    converse(tmp_path / "chats.db")
    with served(tmp_path / "chats.db") as browser, window(chromium, browser.port, **screen) as shown:
        shown.page.goto(f"{shown.root}#/mcp")
        card = shown.page.get_by_role("region", name="What the tools did")
        rows = card.locator("tbody tr")
        expect(rows).to_have_count(2)
        expect(rows.first.locator("th")).to_have_text("search_web")
        expect(rows.first.locator("td").nth(0)).to_have_text("2")
        expect(rows.first.locator("td").nth(1)).to_have_text("0")
        expect(rows.first.locator("td").nth(3)).to_have_text("1")
        expect(rows.first.locator("td").nth(4)).to_have_text(re.compile(r"\d m?s$"))
        expect(rows.last.locator("td").nth(1)).to_have_text("1")
        card.get_by_label("Period").select_option("1")
        expect(rows).to_have_count(2)
        assert shown.overflow <= 0
        shown.page.evaluate(axe)
        assert not axe_violations(shown.page)


def test_the_card_in_chinese(tmp_path: Path, chromium: Chromium, axe: str) -> None:
    converse(tmp_path / "chats.db")
    with served(tmp_path / "chats.db") as browser, window(chromium, browser.port, locale="zh-CN") as shown:
        shown.page.goto(f"{shown.root}#/mcp")
        card = shown.page.get_by_role("region", name="工具调用统计")
        expect(card.locator("thead")).to_contain_text("命中缓存")
        expect(card.locator("tbody tr").first).to_contain_text("search_web")
        shown.page.evaluate(axe)
        assert not axe_violations(shown.page)


def test_a_key_sees_its_own_conversations(tmp_path: Path) -> None:
    converse(tmp_path / "chats.db", tags=("owner:ann",))
    keys = [ClientKeySettings(name=name, key=hash_key(f"sk-{name}")) for name in ("ann", "bob")]
    with served(tmp_path / "chats.db", keys=keys) as browser:
        calls = {
            name: [tool["calls"] for tool in Browser(browser.port, f"sk-{name}").api("GET", "/tools")["tools"]]
            for name in ("ann", "bob")
        }
    assert calls == {"ann": [2, 1], "bob": []}
