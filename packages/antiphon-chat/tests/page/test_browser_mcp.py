"""The page of MCP servers in a real browser, at both sizes: add, confirm, test, approve, limit, a server that dies, remove."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import expect

from antiphon.tools import tool
from antiphon_chat.shared.mcp.servers import McpServers
from antiphon_chat.shared.mcp.settings import McpSettings, ServerChange
from page.conftest import axe_violations
from page.rig import Browser, served
from page.window import ON_DESKTOP, ON_PHONE, Window, window
from support.repository import MCP_PROGRAMS
from tools.mcp.test_mcp import OLD_SERVER

SECRET = "sk-typed-on-the-page-4"
PROGRAMS = MCP_PROGRAMS


@tool(effect="read")
def shout(text: str) -> str:
    """Write a text in capitals."""
    return text.upper()


@contextmanager
def chat_with_servers(folder: Path) -> Iterator[Browser]:
    servers = McpServers(folder / "data", [shout], restart_delays=(0.0,))
    with served(folder / "chats.db", tools=[shout, servers], mcp=servers) as browser:
        yield browser


def old_command(folder: Path) -> str:
    (folder / "old_server.py").write_text(OLD_SERVER)
    return shlex.join([sys.executable, str(folder / "old_server.py"), str(folder)])


def store(folder: Path, name: str, command: str, **change: Any) -> None:
    settings = McpSettings(folder / "data")
    server = settings.add(name, ServerChange(command=command, **change))
    settings.change(name, ServerChange(enabled=True, confirm=server.digest if server.command else ""))


def open_servers(shown: Window) -> None:
    shown.open()
    if shown.page.locator("#menu").is_visible():
        shown.page.locator("#menu").click()
    shown.page.get_by_role("link", name="Tools").click()
    expect(shown.page.locator("#title")).to_have_text("Tools")


@ON_DESKTOP
@pytest.mark.journey
def test_a_server_is_added_confirmed_used_with_approval_and_removed(
    tmp_path: Path, chromium: Chromium, axe: str, screen: dict[str, Any]
) -> None:
    command = old_command(tmp_path)
    with chat_with_servers(tmp_path) as browser, window(chromium, browser.port, **screen) as shown:
        open_servers(shown)
        page = shown.page
        fixed = page.get_by_role("region", name="test_browser_mcp.py")
        expect(fixed).to_contain_text("from the command line")
        expect(fixed.get_by_role("button")).to_have_count(0)
        shown.button("Add a server").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Name", exact=False).first.fill("two words")
        dialog.get_by_label("Command or address").fill(command)
        dialog.get_by_role("button", name="Add a value").click()
        dialog.get_by_label("Environment variables: name").fill("API_TOKEN")
        value = dialog.get_by_label("Environment variables: value")
        expect(value).to_have_attribute("type", "password")
        value.fill(SECRET)
        page.evaluate(axe)
        assert axe_violations(page) == []
        dialog.get_by_role("button", name="Save").click()
        expect(page.get_by_role("alert")).to_contain_text("cannot be called 'two words'")
        expect(dialog.get_by_label("Command or address")).to_have_value(command)
        dialog.get_by_label("Name", exact=False).first.fill("old")
        dialog.get_by_role("button", name="Save").click()
        expect(dialog.locator("pre")).to_have_text(command)
        expect(dialog).to_contain_text("with the variables API_TOKEN")
        assert not (tmp_path / "process").exists()
        assert axe_violations(page) == []
        dialog.get_by_role("button", name="Run this command").click()
        card = page.get_by_role("region", name="old", exact=True)
        expect(card.locator(".state")).to_have_text("running")
        card.get_by_text("Tools (7)").click()
        card.get_by_label("Calls of old__refuse").focus()
        card.get_by_label("Calls of old__refuse").select_option("never")
        expect(card.get_by_label("Calls of old__refuse")).to_have_value("never")
        expect(card.get_by_label("Calls of old__refuse")).to_be_focused()
        assert axe_violations(page) == []
        assert shown.overflow <= 0
        page.goto(f"{shown.root}#/")
        shown.say("use old__tell")
        approval = page.locator(".approval")
        expect(approval).to_contain_text("Approve old__tell?")
        approval.get_by_role("button", name="Approve once").click()
        shown.sees("alive")
        page.goto(f"{shown.root}#/mcp")
        card.get_by_label("Calls", exact=True).select_option("allow")
        page.goto(f"{shown.root}#/")
        shown.ask("use old__tell")
        expect(page.locator(".approval")).to_have_count(0)
        page.goto(f"{shown.root}#/mcp")
        kept = page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])")
        assert SECRET not in page.content() + kept
        card.get_by_role("button", name="Remove").click()
        page.get_by_role("dialog").get_by_role("button", name="Remove").click()
        expect(card).to_have_count(0)


@pytest.mark.slow
def test_a_server_that_dies_is_shown_and_a_refused_command_is_not_run(tmp_path: Path, chromium: Chromium) -> None:
    store(tmp_path, "old", old_command(tmp_path), approval="allow")
    with chat_with_servers(tmp_path) as browser, window(chromium, browser.port) as shown:
        open_servers(shown)
        page = shown.page
        card = page.get_by_role("region", name="old", exact=True)
        expect(card.locator(".state")).to_have_text("running")
        conversation = browser.create()
        for _ in range(4):
            browser.ask(conversation, "use old__crash")
        expect(card.locator(".state")).to_have_text("failed")
        expect(card.locator(".problem")).to_contain_text("MCP server 'old' ended")
        card.get_by_role("button", name="Test").click()
        expect(card.locator(".report")).to_contain_text("Connected: 7 tools, 0 resources, 0 prompts.")
        expect(card.locator(".state")).to_have_text("running")
        card.get_by_role("button", name="Edit").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Command or address").fill("/no/such/program --flag")
        dialog.get_by_role("button", name="Save").click()
        expect(dialog.locator("pre")).to_have_text("/no/such/program --flag")
        dialog.get_by_role("button", name="Cancel").click()
        expect(card.locator(".state")).to_have_text("not confirmed")
        expect(card.get_by_role("checkbox")).not_to_be_checked()
        card.get_by_role("button", name="Test").click()
        dialog.get_by_role("button", name="Run this command").click()
        expect(card.locator(".problem")).to_contain_text("No such file or directory")


def test_the_page_is_used_with_the_keyboard_alone(tmp_path: Path, chromium: Chromium) -> None:
    store(tmp_path, "old", old_command(tmp_path))
    with chat_with_servers(tmp_path) as browser, window(chromium, browser.port) as shown:
        page = shown.page
        page.goto(f"{shown.root}#/mcp")
        card = page.get_by_role("region", name="old", exact=True)
        expect(card.locator(".state")).to_have_text("running")
        card.get_by_role("checkbox").focus()
        page.keyboard.press("Space")
        expect(card.locator(".state")).to_have_text("off")
        expect(card.get_by_role("checkbox")).to_be_focused()
        reached = set()
        for _ in range(5):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.textContent.trim().slice(0, 9)"))
        assert {"Test", "Edit", "Remove", "Tools (7)"} <= reached


@ON_PHONE
def test_an_address_and_the_page_in_chinese(tmp_path: Path, chromium: Chromium, screen: dict[str, Any]) -> None:
    store(tmp_path, "web", "http://127.0.0.1:9/mcp", headers={"Authorization": SECRET})
    with chat_with_servers(tmp_path) as browser, window(chromium, browser.port, locale="zh-CN", **screen) as shown:
        shown.page.goto(f"{shown.root}#/mcp")
        expect(shown.page.locator("#title")).to_have_text("工具")
        card = shown.page.get_by_role("region", name="web")
        expect(card).to_contain_text("使用请求头 Authorization")
        expect(card.locator(".state")).to_have_text("失败")
        card.get_by_role("button", name="编辑").click()
        dialog = shown.page.get_by_role("dialog")
        expect(dialog.get_by_label("请求头：名称")).to_have_value("Authorization")
        expect(dialog.get_by_label("请求头：值")).to_have_value("")
        expect(dialog.get_by_label("运行文件夹")).to_be_hidden()
        dialog.get_by_role("button", name="取消").click()
        assert shown.overflow <= 0
        assert SECRET not in shown.page.content()


def test_a_page_without_the_settings_shows_only_what_tools_did(tmp_path: Path, chromium: Chromium) -> None:
    with served(tmp_path / "chats.db") as browser, window(chromium, browser.port) as shown:
        shown.open()
        shown.page.locator("#to-mcp").click()
        expect(shown.page.locator("#title")).to_have_text("Tools")
        expect(shown.page.get_by_role("region", name="What the tools did")).to_contain_text("No tool calls")
        expect(shown.button("Add a server")).to_have_count(0)
