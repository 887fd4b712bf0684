"""A browser app of another origin calls the gateway with fetch: a real browser enforces CORS, allowed and refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from antiphon_gateway.access.client_keys import hash_key
from antiphon_gateway.config.settings import ClientKeySettings
from gateway.rig import FAST, Rig, rig
from providers.scripted_server import Reply, ScriptedServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

KEY = "sk-browser-0123456789"
BLANK = Reply(body=b"<!doctype html><title>app</title>", content_type="text/html", has_length=True)
FETCH = """async ([url, key, streams]) => {
  try {
    const response = await fetch(url, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json", "x-stainless-lang": "js" },
      body: JSON.stringify({ model: "to-anthropic", stream: streams, messages: [{ role: "user", content: "雨? Łódź?" }] }),
    });
    return { status: response.status, text: await response.text(), target: response.headers.get("x-antiphon-target") };
  } catch (error) {
    return { error: String(error) };
  }
}"""


@pytest.fixture
def app(chromium: Browser) -> Iterator[tuple[Page, str]]:
    """A page of an origin of its own."""
    with ScriptedServer(BLANK) as server:
        page = chromium.new_page()
        page.goto(server.url)
        yield page, server.url
        page.close()


def ask(page: Page, gateway: Rig, *, key: str = KEY, streams: bool = False) -> dict[str, Any]:
    got: dict[str, Any] = page.evaluate(FETCH, [f"{gateway.url}/v1/chat/completions", key, streams])
    return got


def test_an_allowed_page_reads_answers_streams_and_errors(app: tuple[Page, str]) -> None:
    page, origin = app
    keys = [ClientKeySettings(name="app", key=hash_key(KEY))]
    with rig(structs.replace(FAST, allowed_origins=(origin,)), keys=keys) as gateway:
        whole = ask(page, gateway)
        assert (whole["status"], whole["target"]) == (200, "anthropic/claude-sonnet-4-5")
        assert "雨? Łódź?" in whole["text"]
        assert "[DONE]" in ask(page, gateway, streams=True)["text"]
        refused = ask(page, gateway, key="sk-wrong")
        assert (refused["status"], "error" in refused["text"]) == (401, True)


@pytest.mark.parametrize("others", [(), ("http://localhost:1",)])
@pytest.mark.journey
def test_a_page_that_is_not_allowed_gets_nothing(app: tuple[Page, str], others: tuple[str, ...]) -> None:
    page, _ = app
    keys = [ClientKeySettings(name="app", key=hash_key(KEY))]
    with rig(structs.replace(FAST, allowed_origins=others), keys=keys) as gateway:
        assert "Failed to fetch" in ask(page, gateway)["error"]
        assert gateway.upstreams["anthropic"].received == []
