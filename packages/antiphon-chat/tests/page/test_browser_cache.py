"""The cache doctor in a real browser: marks in the history view and on the status page, on a desktop and on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import Page, expect

import antiphon as ap
from antiphon.history import EntryMetadata, ModelOutputEntry, Origin, SqliteStore
from antiphon.parts import Text, TokenUsage
from antiphon_gateway.config.settings import CacheDoctorSettings
from gateway.rig import Rig, rig
from gateway.strict_upstream import echo
from page.conftest import axe_violations
from page.rig import Browser, served
from page.window import PHONE, window
from support.installed import needs_devtools

RULES = "Answer in one sentence, and name the source of every number. " * 300
GPT = Origin("openai", "openai-chat", "gpt-5.5")
OLDER = Origin("openai", "openai-chat", "gpt-4.1")
CLAUDE = Origin("anthropic", "anthropic", "claude-sonnet-5")

pytestmark = needs_devtools


def stored_conversation(path: Path) -> str:
    """A first answer, one that read the cache, one after the instructions changed, and three of other models."""
    with SqliteStore(path) as store:
        history = store.create(title="Numbers")
        history.set_system_instruction(f"It is <b>10:01</b>. {RULES}")
        for number, (origin, cached) in enumerate(
            [(GPT, 0), (GPT, 3_968), (GPT, 0), (OLDER, 0), (CLAUDE, 0), (CLAUDE, 0)]
        ):
            if number == 2:
                history.set_system_instruction(f"It is <b>10:02</b>. {RULES}")
            history.append(ap.ModelInputEntry.of(f"Question {number}?"))
            usage = TokenUsage(prompt_tokens=4_000 + number, completion_tokens=2, cached_tokens=cached)
            metadata = EntryMetadata(usage=usage)
            history.append(ModelOutputEntry((Text("An answer."),), origin=origin, metadata=metadata))
        return str(history.id)


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Browser, str]]:
    path = tmp_path_factory.mktemp("cache") / "chats.db"
    conversation = stored_conversation(path)
    with served(path) as browser:
        yield browser, conversation


@pytest.fixture(scope="module")
def gateway() -> Iterator[Rig]:
    usage = TokenUsage(prompt_tokens=4_000, completion_tokens=2)
    with rig(cache_doctor=CacheDoctorSettings(enabled=True)) as running, running.client() as client:
        running.upstreams["anthropic"].answer = lambda request: structs.replace(echo(request), usage=usage)
        for system in (RULES, RULES, "X" + RULES):
            body = {
                "max_tokens": 9,
                "system": system,
                "cache_control": {"type": "ephemeral"},
                "messages": [{"role": "user", "content": "Is it raining in Oslo?"}],
            }
            assert client.ask("anthropic", "to-anthropic", body, streams=False).status == 200
        yield running


def overflow(page: Page) -> int:
    return int(page.evaluate("document.documentElement.scrollWidth - innerWidth"))


@pytest.mark.journey
def test_the_timeline_marks_what_was_read_and_what_was_lost(
    chromium: Chromium, chat: tuple[Browser, str], axe: str
) -> None:
    browser, conversation = chat
    with window(chromium, browser.port, viewport={"width": 1440, "height": 900}) as shown:
        shown.open(conversation, "/history")
        marks = shown.page.locator(".cache-mark")
        expect(marks).to_have_text(["99 % cached", "cache miss", "cache miss", "not cached"])
        missed = shown.page.locator('.entry[data-kind="model_output"]').nth(2)
        missed.locator("button").first.click()
        note = missed.locator(".cache-note")
        expect(note).to_contain_text("messages[0].content changed.")
        expect(note).to_contain_text("read: 0. Lost: 3,")
        expect(note.locator("code").first).to_contain_text("It is <b>10:01</b>.")
        expect(note.locator("code").last).to_contain_text("It is <b>10:02</b>.")
        shown.page.locator('.entry[data-kind="model_output"]').nth(3).locator("button").first.click()
        expect(note).to_have_count(0)
        expect(shown.page.locator(".cache-note")).to_contain_text("The model changed")
        shown.page.evaluate(axe)
        assert not axe_violations(shown.page)
        assert not shown.faults


def test_on_a_phone_in_chinese(chromium: Chromium, chat: tuple[Browser, str], axe: str) -> None:
    browser, conversation = chat
    with window(chromium, browser.port, locale="zh-CN", **PHONE) as shown:
        shown.open(conversation, "/history")
        expect(shown.page.locator(".cache-mark").nth(1)).to_have_text("缓存未命中")
        entry = shown.page.locator('.entry[data-kind="model_output"]').nth(2)
        entry.locator("button").first.click()
        expect(entry.locator(".cache-note")).to_contain_text("messages[0].content 变了。")
        assert overflow(shown.page) <= 0
        shown.page.evaluate(axe)
        assert not axe_violations(shown.page)


@pytest.mark.parametrize(
    ("language", "options", "words"),
    [
        ("en-GB", {}, ["cache miss", "system changed.", "First difference"]),
        ("zh-CN", PHONE, ["缓存未命中", "第一处不同"]),
    ],
)
def test_the_status_page_names_the_field(
    chromium: Chromium, gateway: Rig, axe: str, language: str, options: dict[str, Any], words: list[str]
) -> None:
    context = chromium.new_context(locale=language, **options)
    page = context.new_page()
    page.goto(f"{gateway.url}/status")
    missed = page.locator("ol.calls > li").filter(has_text=words[0]).first
    missed.locator("summary").click()
    for word in words:
        expect(missed).to_contain_text(word)
    assert overflow(page) <= 0
    page.evaluate(axe)
    assert not axe_violations(page)
    context.close()
