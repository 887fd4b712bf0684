"""The first minute without a key in a real browser: the card, the menu, a pasted key, a server on this machine."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import expect

from antiphon_chat.shared.setup.model_setup import ModelSetup
from page.rig import Browser, served
from page.window import DESKTOP, ON_BOTH, ON_PHONE, PHONE, window
from providers.scripted_server import Reply, ScriptedServer
from terminal.stored_chat import streamed

SECRET = "sk-pasted-by-a-person-0001"


def listing(*names: str) -> Reply:
    return Reply(body=json.dumps({"data": [{"id": name} for name in names]}).encode(), content_type="application/json")


@ON_PHONE
def test_the_card_offers_a_server_of_this_machine_and_the_menu_has_its_models(
    tmp_path: Path, chromium: Chromium, screen: dict[str, Any]
) -> None:
    with ScriptedServer(listing("llama3.2", "qwen3-coder"), Reply(body=streamed("Hello from here."))) as ollama:
        setup = ModelSetup({}, tmp_path, servers=[("ollama", ollama.url)])
        with served(tmp_path / "chats.db", setup=setup) as browser, window(chromium, browser.port, **screen) as shown:
            shown.open()
            rows = shown.page.locator(".source")
            expect(rows.locator(".name")).to_have_text(["ollama/llama3.2", "local/smollm2-135m", "guided tour"])
            expect(rows.first).to_contain_text("found on this machine · 2 models")
            expect(rows.nth(1)).to_contain_text("weak")
            expect(rows.nth(2)).to_have_attribute("aria-pressed", "true")
            assert shown.overflow <= 0
            rows.first.click()
            expect(rows.first).to_have_attribute("aria-pressed", "true")
            expect(shown.page.locator("#model .name")).to_have_text("llama3.2")
            shown.ask("hello")
            shown.sees("Hello from here.")
            shown.page.locator("#model").click()
            shown.page.get_by_role("combobox").fill("coder")
            option = shown.page.get_by_role("option").first
            expect(option).to_contain_text("qwen3-coder")
            option.click()
            expect(shown.page.locator("#model .name")).to_have_text("qwen3-coder")


@ON_BOTH
def test_the_menu_has_what_the_host_lists_with_window_and_price_and_the_exact_name_first(
    tmp_path: Path, chromium: Chromium, screen: dict[str, Any]
) -> None:
    with ScriptedServer(listing("gpt-4o", "gpt-5-mini", "gpt-5")) as server:
        environ = {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": "sk-secret-1"}
        setup = ModelSetup(environ, tmp_path / "data", servers=())
        with served(tmp_path / "chats.db", setup=setup) as browser, window(chromium, browser.port, **screen) as shown:
            shown.open()
            shown.page.locator("#model").click()
            options = shown.page.get_by_role("option")
            expect(options.filter(has_text="openai")).to_have_count(3)  # not gpt-5.5, which is preferred and not listed
            shown.page.get_by_role("combobox").fill("gpt-5")
            expect(options.first).to_contain_text("gpt-5 openai400k1.25 · 10.00")
            assert shown.overflow <= 0
            edges = shown.page.locator("#model-menu").bounding_box()
            assert edges, "the menu is there"
            assert 0 <= edges["x"] <= shown.page.evaluate("innerWidth") - edges["width"], "and no edge of it is cut"
            shown.page.keyboard.press("Enter")
            name = shown.page.locator("#model .name")
            expect(name).to_have_text("gpt-5")
            assert name.evaluate("(node) => node.scrollWidth <= node.clientWidth"), "the name is not cut"


@pytest.mark.parametrize(
    ("is_stored", "screen"),
    [
        (False, DESKTOP),
        (True, PHONE),
        pytest.param(False, PHONE, marks=pytest.mark.slow),
        pytest.param(True, DESKTOP, marks=pytest.mark.slow),
    ],
)
@pytest.mark.journey
def test_a_pasted_key_is_used_and_is_stored_only_if_asked(
    tmp_path: Path, chromium: Chromium, is_stored: bool, screen: dict[str, Any]
) -> None:
    replies = [listing("gpt-5.5", "gpt-5.5-mini"), Reply(body=streamed("Hello."))]
    with ScriptedServer(*replies) as server:
        setup = ModelSetup({"OPENAI_BASE_URL": f"{server.url}/v1"}, tmp_path / "data", servers=())
        with served(tmp_path / "chats.db", setup=setup) as browser, window(chromium, browser.port, **screen) as shown:
            shown.open()
            shown.button("Paste an API key").click()
            dialog = shown.page.get_by_role("dialog")
            dialog.get_by_label("Provider").select_option("openai")
            field = dialog.get_by_label("API key")
            expect(field).to_have_attribute("type", "password")
            field.fill(SECRET)
            if is_stored:
                dialog.get_by_role("checkbox").check()
            dialog.get_by_role("button", name="Use this key").click()
            expect(shown.page.locator("#model .name")).to_have_text("gpt-5.5")
            expect(shown.page.locator(".source").first).to_contain_text(
                "key stored on this machine" if is_stored else "OPENAI_API_KEY is set"
            )
            shown.ask("hello")
            shown.sees("Hello.")
            assert SECRET not in shown.page.content()
            kept = shown.page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])")
            assert SECRET not in kept
            conversation = shown.conversation
        assert server.received[1].headers["authorization"] == f"Bearer {SECRET}"
    file = tmp_path / "data" / "keys.json"
    assert file.exists() == is_stored
    assert not is_stored or stat.S_IMODE(file.stat().st_mode) == 0o600
    assert SECRET.encode() not in (tmp_path / "chats.db").read_bytes()
    assert conversation


def test_a_stored_key_is_removed_on_the_page(tmp_path: Path, chromium: Chromium) -> None:
    ModelSetup({}, tmp_path, servers=()).add_key("openai", SECRET, is_stored=True)
    setup = ModelSetup({"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}, tmp_path, servers=())
    with served(tmp_path / "chats.db", setup=setup) as browser, window(chromium, browser.port) as shown:
        shown.open()
        shown.page.locator("#model").click()
        shown.page.get_by_role("option", name="Paste an API key").click()
        shown.page.get_by_role("dialog").get_by_role("button", name="Remove").click()
        expect(shown.page.locator(".notice")).to_contain_text("Key of openai removed.")
    assert not (tmp_path / "keys.json").exists()


def test_the_card_is_in_chinese_for_a_chinese_reader(tmp_path: Path, chromium: Chromium) -> None:
    setup = ModelSetup({}, tmp_path, servers=())
    with (
        served(tmp_path / "chats.db", setup=setup) as browser,
        window(chromium, browser.port, locale="zh-CN") as shown,
    ):
        shown.open()
        expect(shown.page.locator(".sources h3")).to_have_text("选择模型")
        expect(shown.page.locator(".source").last).to_contain_text("不是模型，不需要密钥")
        expect(shown.button("粘贴 API 密钥")).to_be_visible()


def test_keys_are_refused_where_the_configuration_has_them_and_from_other_pages(tmp_path: Path) -> None:
    with served(tmp_path / "chats.db") as browser:
        sources = browser.api("GET", "/models")
        assert [source["kind"] for source in sources["sources"]] == ["gateway"]
        assert sources["key_providers"] == []
        browser.api("POST", "/keys", {"provider": "openai", "key": SECRET}, status=403)
    setup = ModelSetup({}, tmp_path, servers=())
    with served(tmp_path / "chats.db", setup=setup) as browser:
        body = json.dumps({"provider": "openai", "key": SECRET}).encode()
        foreign = {"content-type": "application/json", "origin": "https://evil.example"}
        assert browser.request("POST", "/chat/api/keys", body, foreign, plain=True).status == 403
        assert browser.request("POST", "/chat/api/keys", body, {"content-type": "text/plain"}, plain=True).status >= 400
        assert not setup.models.is_available("openai/gpt-5.5")
        refused = browser.request("POST", "/chat/api/keys", {"provider": "openai", "key": f"{SECRET} {SECRET}"})
        assert refused.status == 400
        assert SECRET.encode() not in refused.body
        unreadable = browser.request("POST", "/chat/api/keys", b'{"provider": "openai", "key": ["' + SECRET.encode())
        assert SECRET.encode() not in unreadable.body


def test_an_unused_browser_has_no_key(tmp_path: Path) -> None:
    setup = ModelSetup({}, tmp_path, servers=())
    with served(tmp_path / "chats.db", setup=setup) as browser:
        assert isinstance(browser, Browser)
        browser.api("DELETE", "/keys/openai", status=404)
        browser.api("DELETE", "/keys/nothing", status=400)
