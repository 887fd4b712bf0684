"""The API of the MCP settings: who may use it, what it shows, and that approvals hold for the tools of a server."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from antiphon_chat.shared.mcp.servers import McpServers
from page.chat_process import web_chat
from page.rig import Browser, served
from tools.mcp.test_mcp import OLD_SERVER

SECRET = "sk-sent-by-a-page-5"


@contextmanager
def chat_with_servers(folder: Path, **options: Any) -> Iterator[Browser]:
    servers = McpServers(folder / "data", restart_delays=(0.0,))
    with served(folder / "chats.db", tools=[servers], mcp=servers, **options) as browser:
        yield browser


@pytest.fixture
def command(tmp_path: Path) -> str:
    (tmp_path / "old_server.py").write_text(OLD_SERVER)
    return f"{sys.executable} {tmp_path / 'old_server.py'} {tmp_path}"


def server_of(browser: Browser, name: str = "old") -> Any:
    return next(one for one in browser.api("GET", "/mcp")["servers"] if one["name"] == name)


def test_a_server_is_added_confirmed_used_with_approval_and_removed(tmp_path: Path, command: str) -> None:
    with chat_with_servers(tmp_path) as browser:
        new = {"name": "old", "command": command, "variables": {"API_TOKEN": SECRET}}
        [added] = browser.api("POST", "/mcp", new, status=201)["servers"]
        assert (added["state"], added["where"], added["variables"]) == ("unconfirmed", command, ["API_TOKEN"])
        browser.api("PATCH", "/mcp/old", {"enabled": True}, status=409)
        browser.api("POST", "/mcp/old/test", {}, status=409)
        browser.api("PATCH", "/mcp/old", {"enabled": True, "confirm": "no digest"}, status=400)
        assert not (tmp_path / "process").exists()
        [running] = browser.api("PATCH", "/mcp/old", {"enabled": True, "confirm": added["digest"]})["servers"]
        assert running["state"] == "running"
        report = browser.api("POST", "/mcp/old/test", {})["report"]
        assert (report["error"], "old__tell" in str(report["tools"])) == ("", True)
        conversation = browser.create()
        assert browser.ask(conversation, "use old__tell")[-1].data["reason"] == "approval"
        assert not (tmp_path / "calls").exists()
        # The settings do not decide a call that is pending already (law L11).
        browser.api("PATCH", "/mcp/old", {"approval": "allow"})
        assert len(browser.show(conversation)["pending"]) == 1
        assert not (tmp_path / "calls").exists()
        other = browser.create()
        assert browser.ask(other, "use old__tell")[-1].data["reason"] == "answered"
        browser.api("PATCH", "/mcp/old", {"enabled": False})
        browser.ask(browser.create(), "use old__tell")
        assert (tmp_path / "calls").read_text().count("tell") == 1, "only the call that was allowed has run"
        everything = browser.request("GET", "/chat/api/mcp").body + browser.request("GET", "/chat/api/state").body
        assert SECRET.encode() not in everything
        assert browser.api("DELETE", "/mcp/old")["servers"] == []
        browser.api("DELETE", "/mcp/old", status=404)


def test_ask_asks_even_for_tools_that_the_settings_allow(tmp_path: Path, command: str) -> None:
    with chat_with_servers(tmp_path, asks_before_changes=True) as browser:
        [added] = browser.api("POST", "/mcp", {"name": "old", "command": command}, status=201)["servers"]
        browser.api("PATCH", "/mcp/old", {"enabled": True, "confirm": added["digest"], "approval": "allow"})
        assert browser.ask(browser.create(), "use old__tell")[-1].data["reason"] == "approval"


def test_only_the_owner_of_this_machine_can_use_it(tmp_path: Path, command: str) -> None:
    with served(tmp_path / "chats.db") as browser:  # as the page of a gateway is
        assert not browser.api("GET", "/state")["has_mcp"]
        for method, path in (("GET", ""), ("POST", ""), ("PATCH", "/old"), ("DELETE", "/old"), ("POST", "/old/test")):
            browser.api(method, f"/mcp{path}", {"name": "old", "command": command}, status=403)
    with chat_with_servers(tmp_path) as browser:
        body = json.dumps({"name": "old", "command": command}).encode()
        json_type = {"content-type": "application/json"}
        foreign = {**json_type, "x-antiphon-chat": "1", "origin": "https://evil.example"}
        rebound = {**json_type, "x-antiphon-chat": "1", "host": "evil.example"}
        for headers in (json_type, foreign, rebound, {"content-type": "text/plain", "x-antiphon-chat": "1"}):
            assert browser.request("POST", "/chat/api/mcp", body, headers, plain=True).status in (403, 415), headers
        assert browser.api("GET", "/mcp")["servers"] == []


def test_bad_input_is_refused_without_its_secrets(tmp_path: Path) -> None:
    with chat_with_servers(tmp_path) as browser:
        for body in (
            {"name": "a b", "command": "x"},
            {"name": "old"},
            {"name": "old", "command": f"https://me:{SECRET}@h/"},
            {"name": "old", "command": "http://h/", "headers": {"A": f"{SECRET}\n"}},
            {"name": "old", "command": "x", "variables": {"A": [SECRET]}},
            {"name": "old", "command": "x", "unknown": SECRET},
        ):
            refused = browser.request("POST", "/chat/api/mcp", body)
            assert refused.status == 400, body
            assert SECRET.encode() not in refused.body


def test_the_command_serves_the_settings_and_shows_what_the_command_line_gave(tmp_path: Path, command: str) -> None:
    with web_chat(tmp_path, "--mcp", command) as chat:
        state = chat.browser.api("GET", "/state")
        assert state["has_mcp"]
        [fixed] = chat.browser.api("GET", "/mcp")["servers"]
        assert (fixed["is_fixed"], fixed["state"]) == (True, "running")
        assert f"{fixed['name']}__tell" in str(fixed["tools"])
        chat.browser.api("DELETE", f"/mcp/{fixed['name']}", status=404)
    with web_chat(tmp_path, "--no-tools") as chat:
        assert not chat.browser.api("GET", "/state")["has_mcp"]
