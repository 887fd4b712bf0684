"""Seed 002 on its page: each call is a line, what the search found is Markdown, and the plan is a card."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import expect

import antiphon as ap
from antiphon.providers.default_model import ModelChoice
from antiphon_chat.shared.models import ChatModels
from page.rig import served
from page.window import window
from providers.scripted_server import ScriptedServer
from seeds.test_seed_002 import plain_host, tool_host


@pytest.mark.parametrize("kind", [plain_host, tool_host], ids=["a host without tools", "a host with tools"])
@pytest.mark.journey
def test_search_then_plan_on_the_page(chromium: Chromium, tmp_path: Path, kind: Callable[..., ScriptedServer]) -> None:
    plan = {"tool": "create_plan", "title": "雅思 7 分", "goal": "三个月", "tasks": ["词汇", "真题"]}
    answers = [
        '好的，我先搜索<tool_call>{"tool": "search_web", "query": "IELTS"}</tool_call>',
        f"根据搜索结果，我来制定计划：<tool_call>{msgspec.json.encode(plan).decode()}</tool_call>请稍等",
        "计划已经做好。",
    ]
    with kind(*answers) as host:
        router = ap.ProviderRouter(
            default="ollama/doubao", environ={"OLLAMA_HOST": host.url, "OLLAMA_BASE_URL": host.url}
        )
        models = ChatModels(router, ModelChoice("ollama/doubao", "a host", "There is only this one."))
        with (
            served(tmp_path / "chats.db", models, with_builtin=True) as browser,
            window(chromium, browser.port) as shown,
        ):
            shown.open().ask("搜索 IELTS 备考方法，然后帮我制定一个3个月的学习计划")
            chips = shown.thread.locator(".chip")
            expect(chips).to_have_count(2)
            expect(chips.first).to_contain_text("Searched“IELTS”")
            chips.first.locator("> summary").click()
            expect(chips.first.locator(".result ol > li").first).to_be_visible()
            card = shown.thread.locator(".plan")
            expect(card).to_contain_text("雅思 7 分")
            expect(card.locator("li")).to_have_count(2)
            expect(shown.thread).to_contain_text("计划已经做好。")
            expect(shown.thread).not_to_contain_text("<tool_call>")
