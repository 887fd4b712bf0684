"""While the chat waits for a provider, the page shows why and until when, also after a reload, and the turn can be stopped."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import expect

from antiphon.providers.http_provider import HttpProviderClient
from page.rig import Browser, served
from page.window import window
from providers.http_client import ERROR_429
from providers.scripted_server import Reply, ScriptedServer


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A chat with a model whose provider asks for 40 s, always."""
    limited = msgspec.structs.replace(ERROR_429, headers={"retry-after": "40"})
    store: Path = tmp_path_factory.mktemp("waits") / "chats.db"

    def reply(_: object) -> Reply:
        return limited

    with ScriptedServer(reply) as server:
        client = HttpProviderClient("openai", name="acme", base_url=f"{server.url}/v1", keys=["sk-1"])
        with served(store, client) as browser:
            yield browser


@pytest.mark.parametrize(
    ("locale", "waiting", "stop", "stopped"),
    [
        ("en-GB", r"acme asks to wait \d+ s; trying again at \d\d:\d\d:\d\d", "Stop", "Stopped."),
        ("zh-CN", r"acme 要求等待 \d+ s，将于 \d\d:\d\d:\d\d 重试", "停止", "已停止"),
    ],
    ids=["english", "chinese"],
)
@pytest.mark.journey
def test_a_wait_is_explained_and_can_be_stopped(
    chromium: Chromium, chat: Browser, locale: str, waiting: str, stop: str, stopped: str
) -> None:
    shown_wait = re.compile(waiting)
    with window(chromium, chat.port, locale=locale) as shown:
        shown.open().say("hello")
        expect(shown.thread.get_by_role("status")).to_contain_text(shown_wait)
        expect(shown.thread.get_by_role("status")).to_be_visible()
        shown.page.reload()
        expect(shown.thread.get_by_role("status")).to_contain_text(shown_wait)
        shown.button(stop).click()
        shown.sees(stopped)
        expect(shown.thread.get_by_text(shown_wait)).to_have_count(0)
