"""The MCP servers of a chat while it runs: real servers that are added, tested, limited, die and are removed."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from antiphon.errors import InvalidTool, McpUnavailable
from antiphon.parts import ToolCallRequest
from antiphon.tools import ToolExecutor, ToolRegistry
from antiphon.tools.builtin import with_memory
from antiphon.tools.tool import Tool, tool
from antiphon_chat.shared.mcp.servers import RESTARTS, McpServers, UnconfirmedCommand
from antiphon_chat.shared.mcp.settings import ServerChange
from antiphon_chat.shared.setup.own_tools import mcp_server
from support.repository import MCP_PROGRAMS
from support.waiting import until_async
from tools.mcp.test_mcp import OLD_SERVER, HttpProcess

PROGRAMS = MCP_PROGRAMS
SECRET = "sk-secret-of-a-person-7"


def old_server(folder: Path) -> str:
    """The command of a server that starts fast and dies when asked."""
    program = folder / "old_server.py"
    program.write_text(OLD_SERVER)
    return shlex.join([sys.executable, str(program), str(folder)])


@asynccontextmanager
async def opened(servers: McpServers) -> AsyncIterator[ToolRegistry]:
    async with ToolRegistry([servers]) as registry:
        yield registry


async def add(servers: McpServers, name: str, command: str, **change: object) -> None:
    """Add a server, confirm its command and switch it on."""
    view = await servers.add(name, ServerChange(command=command, **change))  # type: ignore[arg-type]
    await servers.change(name, ServerChange(enabled=True, confirm=view.digest if view.kind == "command" else ""))


def test_a_command_is_not_run_before_it_is_confirmed(tmp_path: Path) -> None:
    async def run() -> None:
        mark = tmp_path / "was-run"
        command = shlex.join([sys.executable, "-c", f"open({str(mark)!r}, 'w')"])
        servers = McpServers(tmp_path)
        async with opened(servers):
            view = await servers.add("files", ServerChange(command=command, enabled=True))
            assert (view.state, view.is_enabled, view.where) == ("unconfirmed", False, command)
            with pytest.raises(UnconfirmedCommand) as asked:
                await servers.change("files", ServerChange(enabled=True))
            assert command in str(asked.value)
            with pytest.raises(UnconfirmedCommand):
                await servers.test("files")
            with pytest.raises(InvalidTool, match="look at the command again"):
                await servers.test("files", "another digest")
            await servers.wait_until_started(1.0)
            assert not mark.exists()
            report = await servers.test("files", view.digest)
            assert mark.exists()
            assert "cannot be used" in report.error
            assert servers.view("files").state == "off"

    asyncio.run(run())


def test_the_test_of_a_server_lists_what_it_has_and_does_not_switch_it_on(tmp_path: Path) -> None:
    async def run() -> None:
        servers = McpServers(tmp_path / "data")
        command = shlex.join([sys.executable, str(PROGRAMS / "resource_program.py"), str(tmp_path)])
        async with opened(servers) as registry:
            view = await servers.add("library", ServerChange(command=command))
            report = await servers.test("library", view.digest)
            assert (report.error, report.prompts) == ("", ("review",))
            assert "library__change" in [one.name for one in report.tools]
            assert "notes://today" in report.resources
            assert [one.name for one in servers.view("library").tools] == [one.name for one in report.tools]
            await registry.open()
            assert registry.names == ()

    asyncio.run(run())


def test_an_error_has_the_end_of_stderr_and_no_secret(tmp_path: Path) -> None:
    async def run() -> None:
        program = "import os, sys; print('no licence for', os.environ['TOKEN'], file=sys.stderr); sys.exit(3)"
        servers = McpServers(tmp_path, restart_delays=(30.0,))
        async with opened(servers):
            change = ServerChange(command=shlex.join([sys.executable, "-c", program]), variables={"TOKEN": SECRET})
            view = await servers.add("files", change)
            report = await servers.test("files", view.digest)
            assert "no licence for" in report.error
            await servers.change("files", ServerChange(enabled=True))
            assert "no licence for" in servers.view("files").error
            assert servers.view("files").state == "restarting"
            assert [one.name for one in servers.problems()] == ["files"]
            assert SECRET not in report.error + repr(servers.views())
            missing = await servers.add("missing", ServerChange(command="/no/such/program"))
            assert "No such file" in (await servers.test("missing", missing.digest)).error

    asyncio.run(run())


def test_changes_reach_every_registry_before_its_next_round(tmp_path: Path) -> None:
    async def run() -> None:
        servers = McpServers(tmp_path / "data")
        async with opened(servers) as first, opened(servers) as second:
            await add(servers, "old", old_server(tmp_path))
            await first.open()
            await second.open()
            tools = {one.name: one for one in first}
            assert set(tools) == set(second.names)
            assert all(one.needs_approval is True for one in tools.values())
            await servers.change(
                "old", ServerChange(approval="allow", tools={"old__crash": "never", "old__tell": "ask"})
            )
            await first.open()
            assert "old__crash" not in first
            asks = {one.name for one in first if one.needs_approval}
            assert asks == {"old__tell"}
            other = McpServers(tmp_path / "data")  # as another process would
            await other.change("old", ServerChange(enabled=False))
            await first.open()
            await second.open()
            assert first.names == second.names == ()
            assert servers.view("old").state == "off"
            await other.aclose()

    asyncio.run(run())


def test_a_server_that_dies_is_restarted_a_few_times_and_then_reported(tmp_path: Path) -> None:
    async def run() -> None:
        servers = McpServers(tmp_path / "data", restart_delays=(0.0,))
        async with opened(servers) as registry:
            await add(servers, "old", old_server(tmp_path), approval="allow")
            for ended in range(1, RESTARTS + 1):
                await registry.open()
                executor = ToolExecutor(registry)
                [result] = await executor.execute([ToolCallRequest("old__crash", str(ended), "{}")])
                assert "not known whether it was done" in str(result.content)
                await until_async(lambda count=ended: servers.view("old").restarts == count)  # type: ignore[misc]
                await until_async(lambda: servers.view("old").state == "running")
            await executor.execute([ToolCallRequest("old__crash", "last", "{}")])
            await until_async(lambda: servers.view("old").state == "failed")
            assert "'old' ended" in servers.view("old").error
            await registry.open()
            assert registry.names == ()
            view = await servers.change("old", ServerChange(enabled=True))  # a person starts it again
            assert (view.state, view.restarts, view.error) == ("running", 0, "")
            await registry.open()
            assert "old__tell" in registry

    asyncio.run(run())


def test_a_server_that_was_switched_off_is_not_started_by_a_late_call(tmp_path: Path) -> None:
    async def run() -> None:
        servers = McpServers(tmp_path / "data")
        async with opened(servers) as registry:
            await add(servers, "old", old_server(tmp_path))
            await registry.open()
            late = registry.get("old__tell")
            assert late is not None
            process = (tmp_path / "process").read_text()
            await servers.remove("old")
            [result] = await ToolExecutor(ToolRegistry([late])).execute([ToolCallRequest(late.name, "1", "{}")])
            assert "was switched off or removed" in str(result.content)
            assert (tmp_path / "process").read_text() == process
            assert servers.views() == []

    asyncio.run(run())


def test_the_end_waits_for_a_server_that_was_switched_off(tmp_path: Path) -> None:
    """It was left to the event loop, which ends it halfway: its process could stay."""
    ended = tmp_path / "ended"
    program = tmp_path / "slow_to_end.py"
    program.write_text(OLD_SERVER + f"\nimport time\ntime.sleep(0.3)\nopen({str(ended)!r}, 'w')\n")

    async def run() -> None:
        servers = McpServers(tmp_path / "data")
        async with opened(servers):
            await add(servers, "old", shlex.join([sys.executable, str(program), str(tmp_path)]))
            await servers.change("old", ServerChange(enabled=False))
            assert not ended.exists()
        assert ended.exists()

    asyncio.run(run())


def test_an_address_is_reached_with_its_headers(tmp_path: Path) -> None:
    process = HttpProcess(tmp_path)
    process.start()

    async def run() -> None:
        servers = McpServers(tmp_path / "data")
        url = f"http://127.0.0.1:{process.port}/mcp?key={SECRET}"
        async with opened(servers) as registry:
            await add(servers, "web", url, headers={"Authorization": f"Bearer {SECRET}"}, approval="allow")
            await registry.open()
            [result] = await ToolExecutor(registry).execute([ToolCallRequest("web__headers", "1", "{}")])
            assert f"Bearer {SECRET}" in str(result.content)
            assert servers.view("web").where == f"http://127.0.0.1:{process.port}/mcp?…"
            assert SECRET not in repr(servers.views())

    try:
        asyncio.run(run())
    finally:
        process.stop()


def test_servers_and_files_of_the_command_line_are_fixed_entries(tmp_path: Path) -> None:
    @tool(effect="read")
    def time__now() -> str:
        """The time."""
        return "now"

    async def run() -> None:
        fixed = mcp_server(old_server(tmp_path))
        servers = McpServers(tmp_path / "data", [time__now, fixed])
        async with ToolRegistry([time__now, fixed, servers]):
            by_kind = {view.kind: view for view in servers.views()}
            assert all(view.is_fixed for view in by_kind.values())
            assert [one.name for one in by_kind["file"].tools] == ["time__now"]
            assert by_kind["command"].state == "running"
            assert "crash" in str(by_kind["command"].tools)
            with pytest.raises(InvalidTool, match="the command line has"):
                await servers.add(fixed.name, ServerChange(command="x"))
            with pytest.raises(InvalidTool, match="no MCP server"):
                await servers.remove(fixed.name)

    asyncio.run(run())


def test_a_notebook_registry_has_the_tools_of_a_source_once(tmp_path: Path) -> None:
    """A second conversation with the notebook tools copied the listed tools and their source, and failed."""
    from antiphon.history import AgentHistory

    async def run() -> None:
        servers = McpServers(tmp_path / "data")
        async with opened(servers) as registry:
            await add(servers, "old", old_server(tmp_path))
            await registry.open()
            notebook = with_memory(registry, AgentHistory())
            await notebook.open()
            assert {"old__tell", "read_memory"} <= set(notebook.names)

    asyncio.run(run())


def test_a_retired_server_cannot_be_reached() -> None:
    async def run() -> list[Tool]:
        server = mcp_server(f"{sys.executable} -c pass")
        server.is_retired = True
        return list(await server.tools())

    with pytest.raises(McpUnavailable, match="switched off or removed"):
        asyncio.run(run())
