"""`/mcp` at a real terminal: add, confirm, approve, test, limit and remove a server, in both languages."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path

import pytest

from antiphon.errors import ConversationError
from antiphon_chat.terminal.mcp_command import NewServer, read_new_server
from support.terminal import Terminal
from tools.mcp.test_mcp import OLD_SERVER

SECRET = "sk-typed-by-a-person-3"


@pytest.fixture
def command(tmp_path: Path) -> str:
    program = tmp_path / "old_server.py"
    program.write_text(OLD_SERVER)
    return f"{sys.executable} {program} {tmp_path}"


def test_a_server_is_added_used_with_approval_and_removed(tmp_path: Path, command: str) -> None:
    with Terminal(tmp_path, "chat", columns=200) as terminal:
        terminal.sees("Ctrl-D: quit")
        terminal.send("/mcp")
        terminal.sees("No MCP servers. Add one: /mcp add NAME COMMAND")
        terminal.send(f"/mcp add old --env API_TOKEN {command}")
        terminal.sees("value of API_TOKEN (not shown) ›")
        terminal.send(SECRET)
        terminal.sees("MCP server old runs this command on your machine:", command, "with the variables API_TOKEN")
        assert not (tmp_path / "process").exists()
        terminal.send("n")
        terminal.sees("Stored and switched off. Start it with /mcp enable old.")
        terminal.send("/mcp test old")
        terminal.sees("run it? y/n ›", again=True)
        terminal.send("y")
        terminal.sees("old: 7 tools, 0 resources, 0 prompts.", "old__tell once ask each time")
        terminal.send("/mcp enable old")
        terminal.sees("old: running · tools: 7")
        terminal.send("use old__tell")
        terminal.sees("Approve old__tell?")
        terminal.send("a")
        terminal.sees("alive")
        terminal.send("/mcp approval old__tell allow")
        terminal.sees("Calls of old__tell: always allow.")
        terminal.send("use old__tell now")
        terminal.sees("alive", again=True)
        terminal.send("/mcp approval old never")
        terminal.sees("Calls of old: never (not offered).")
        terminal.send("/tools")
        screen = terminal.sees("create_plan", "old__tell", again=True)
        assert "old__refuse" not in screen.rpartition("/tools")[2]
        terminal.send("/mcp")
        terminal.sees("old running · tools: 7 never (not offered)")
        terminal.send("/mcp enable nothing")
        terminal.sees("no MCP server 'nothing'; the stored ones are: old")
        terminal.send("/mcp nonsense")
        terminal.sees("usage: /mcp · /mcp add NAME")
        settings = tmp_path / "antiphon" / "mcp.json"
        assert stat.S_IMODE(settings.stat().st_mode) == 0o600
        assert json.loads(settings.read_text())["servers"][0]["tools"] == {"old__tell": "allow"}
        assert SECRET.encode() not in terminal.raw
        assert SECRET not in (tmp_path / "antiphon" / "input.history").read_text()
        terminal.send("/mcp remove old")
        terminal.sees("MCP server old removed.")
        terminal.send("/quit")
        assert terminal.ends() == 0
    assert not (tmp_path / "antiphon" / "mcp-secrets.json").exists()


def test_the_list_is_in_chinese_and_names_what_failed(tmp_path: Path) -> None:
    from antiphon_chat.shared.mcp.settings import McpSettings, ServerChange

    settings = McpSettings(tmp_path / "antiphon")
    server = settings.add("bad", ServerChange(command="/no/such/program"))
    settings.change("bad", ServerChange(confirm=server.digest, enabled=True))
    tools = tmp_path / "my_tools.py"
    tools.write_text('import antiphon as ap\n\n@ap.tool\ndef shout(text: str) -> str:\n    "Shout."\n    return text\n')
    with Terminal(
        tmp_path, "chat", "--tools", str(tools), columns=160, environment={"ANTIPHON_LANGUAGE": "zh"}
    ) as terminal:
        terminal.sees("cannot be used", "No such file")
        terminal.send("/mcp")
        screen = terminal.sees("my_tools.py", "来自命令行", "每次询问", "命令或地址").replace(" ", "")
        assert "正在重启" in screen or "失败" in screen
        terminal.send("/help")
        terminal.sees("列出或修改 MCP 服务器")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["t", "uvx", "time server"], NewServer("t", "uvx 'time server'", None, (), ())),
        (["t", "https://h/mcp?a=b"], NewServer("t", "https://h/mcp?a=b", None, (), ())),
        (
            ["t", "--env", "A", "--env", "B", "--folder", "/x", "run", "--env", "y"],
            NewServer("t", "run --env y", "/x", ("A", "B"), ()),
        ),
        (["t", "--header", "Authorization", "http://h/"], NewServer("t", "http://h/", None, (), ("Authorization",))),
    ],
)
def test_the_words_after_add(words: list[str], expected: NewServer) -> None:
    assert read_new_server(words) == expected


@pytest.mark.parametrize("words", [["t"], ["t", "--env", "A"], ["t", "--env", f"A={SECRET}", "run"]])
def test_words_that_make_no_server_are_refused(words: list[str]) -> None:
    with pytest.raises(ConversationError, match="usage") as refused:
        read_new_server(words)
    assert SECRET not in str(refused.value)
