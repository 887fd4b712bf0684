"""Your own tools in a chat: a Python file, an MCP server, both surfaces, approvals, and clear errors."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from antiphon.errors import InvalidTool
from antiphon.tools import ToolRegistry
from antiphon_chat.shared.mcp.settings import McpSettings, ServerChange
from antiphon_chat.shared.setup.own_tools import load_file, load_tools, mcp_server, own_tools
from page.chat_process import antiphon_chat, web_chat
from support.repository import MCP_PROGRAMS
from support.terminal import Terminal

MCP_PROGRAM = MCP_PROGRAMS / "server_program.py"
TOOLS = """
import antiphon as ap

@ap.tool(effect="read")
def shout(text: str) -> str:
    "Write a text in capitals."
    return text.upper()

@ap.tool
def save(text: str) -> str:
    "Save a text."
    return "saved"

def helper() -> None: ...
"""

TEAM = """
import antiphon as ap

@ap.tool(effect="read")
def shout(text: str) -> str:
    "Write a text in capitals."
    return text.upper()

@ap.tool(effect="read")
def today() -> str:
    "The date."
    return "Monday"

writer = ap.Agent("writer", "You write.", tools=[shout], description="Writes texts.")
planner = ap.Agent("planner", "You plan.", hand_offs=[writer])
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my_tools.py"
    path.write_text(TOOLS)
    return path


def test_the_tools_of_a_file(file: Path) -> None:
    assert [(tool.name, tool.effect) for tool in load_tools(file)] == [("shout", "read"), ("save", "once")]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (None, "no such file"),
        ("x = 1", "no tools; define functions with @antiphon.tool"),
        ("import antiphon\n\nraise KeyError('oh')", "KeyError: 'oh' (line 3)"),
        ("def f(:", "SyntaxError"),
    ],
)
def test_a_file_without_tools_is_refused_with_the_reason(tmp_path: Path, source: str | None, words: str) -> None:
    path = tmp_path / "my_tools.py"
    if source is not None:
        path.write_text(source)
    with pytest.raises(InvalidTool) as refused:
        load_tools(path)
    assert str(refused.value).startswith(f"--tools {path}: ")
    assert words in str(refused.value)


@pytest.fixture
def team(tmp_path: Path) -> Path:
    path = tmp_path / "team.py"
    path.write_text(TEAM)
    return path


def test_the_agents_of_a_file(team: Path) -> None:
    """The one to which no other hands off begins; a tool of an agent is its own."""
    own = load_file(team)
    assert [agent.name for agent in own.agents] == ["planner", "writer"]
    assert [tool.name for tool in own.tools] == ["today"]
    with pytest.raises(InvalidTool, match="two files define the agent planner, writer"):
        own_tools([team, team], [])
    team.write_text('import antiphon as ap\na = ap.Agent("a", hand_offs=["b"])')
    with pytest.raises(InvalidTool, match="the agent a may hand off to b"):
        load_file(team)


def test_agents_of_a_file_answer_in_the_terminal(tmp_path: Path, team: Path) -> None:
    code, out, err = antiphon_chat(
        tmp_path, "--tools", str(team), "-p", "use hand_off_to_writer, then shout text=hello"
    )
    assert (code, err) == (0, "")
    planner, _, writer = out.partition("\nwriter:\n")
    assert planner.startswith("planner:\n")
    assert "hand_off_to_writer" in planner
    assert "HELLO" in writer
    with Terminal(tmp_path, "chat", "--tools", str(team), columns=100, rows=40) as terminal:
        terminal.sees("Ctrl-D: quit")
        terminal.send("use hand_off_to_writer, then shout text=hello")
        screen = terminal.sees("✓ shout", "3 rounds")
        assert screen.index("▪ planner") < screen.index("planner → writer") < screen.index("▪ writer")
        terminal.send("hello")  # the writer is still active
        terminal.sees("1 round")
        assert terminal.text.count("▪ writer") == 2


def test_agent_whose_tool_has_a_name_that_is_taken_is_refused_at_the_start(tmp_path: Path, team: Path) -> None:
    team.write_text(
        "import antiphon as ap\n\ndef search_web(q: str) -> str:\n    'Mine.'\n    return q\n\n"
        "a = ap.Agent('a', tools=[search_web])\n"
    )
    for door in (("-p", "hi"), ("--web", "--port", "0")):
        code, _, err = antiphon_chat(tmp_path, "--tools", str(team), *door)
        assert code == 1
        assert "two tools called 'search_web'" in err


def test_the_command_of_an_mcp_server_is_read_like_a_shell_line(tmp_path: Path) -> None:
    async def names() -> tuple[str, ...]:
        async with ToolRegistry(
            own_tools([], [f"{sys.executable} '{MCP_PROGRAM}' stdio {tmp_path}"]).tools
        ) as registry:
            return registry.names

    assert any(name.endswith("echo") for name in asyncio.run(names()))
    for wrong in ("", "'not closed"):
        with pytest.raises(InvalidTool, match="--mcp"):
            mcp_server(wrong)


def test_own_tools_run_in_the_terminal_and_on_the_page_with_approvals(tmp_path: Path, file: Path) -> None:
    code, out, _ = antiphon_chat(tmp_path, "--tools", str(file), "-p", "use shout text=hello")
    assert code == 0
    assert "HELLO" in out
    code, _, err = antiphon_chat(tmp_path, "--tools", str(file), "--ask", "-p", "use save text=hello")
    assert code == 1
    assert "save needs approval" in err
    code, _, err = antiphon_chat(tmp_path, "--tools", str(tmp_path / "missing.py"), "-p", "hi")
    assert (code != 0, "no such file" in err) == (True, True)
    settings = McpSettings(tmp_path / "antiphon")
    broken = settings.add("broken", ServerChange(command="/no/such/program"))
    settings.change("broken", ServerChange(enabled=True, confirm=broken.digest))
    code, out, err = antiphon_chat(tmp_path, "--tools", str(file), "-p", "use shout text=hello")
    assert (code, "HELLO" in out, "No such file" in err) == (0, True, True), "a stored server that fails is reported"
    settings.remove("broken")
    mcp = f"{sys.executable} {MCP_PROGRAM} stdio {tmp_path}"
    with web_chat(tmp_path, "--tools", str(file), "--mcp", mcp, "--ask") as chat:
        tools = {tool["name"]: tool for tool in chat.browser.api("GET", "/state")["tools"]}
        assert tools["save"]["needs_approval"]
        assert not tools["shout"]["needs_approval"]
        assert any(name.endswith("echo") for name in tools)
        conversation = chat.browser.create()
        assert chat.browser.ask(conversation, "use save text=hello")[-1].data["reason"] == "approval"
