"""Published MCP servers, as their packages install them."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from antiphon.parts import Image, Text, ToolCallRequest, ToolCallResult, ToolExecutionStatus
from antiphon.tools import ToolExecutor, ToolRegistry
from antiphon.tools.mcp import McpServer

FAILED, SUCCESS = ToolExecutionStatus.FAILED, ToolExecutionStatus.SUCCESS


@pytest.fixture(scope="module")
def public_servers(request: pytest.FixtureRequest) -> Path:
    """The public servers, installed once into the test cache."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not here")
    assert request.config.cache is not None
    folder = Path(request.config.cache.mkdir("mcp-servers"))
    programs = folder / "node_modules" / ".bin"
    wanted = ["everything", "filesystem", "memory"]
    if not all((programs / f"mcp-server-{name}").exists() for name in wanted):
        packages = [f"@modelcontextprotocol/server-{name}" for name in wanted]
        command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), *packages]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=180)
        except (subprocess.SubprocessError, OSError):
            pytest.skip("npm cannot install the public MCP servers here")
    return programs


@pytest.mark.slow
def test_public_servers(public_servers: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")

    async def ask() -> None:
        async with ToolRegistry(
            [
                McpServer.stdio(str(public_servers / "mcp-server-everything"), ["stdio"], name="every"),
                McpServer.stdio(str(public_servers / "mcp-server-filesystem"), [str(tmp_path)], name="files"),
                McpServer.stdio(
                    str(public_servers / "mcp-server-memory"),
                    env={"MEMORY_FILE_PATH": str(tmp_path / "memory.json")},
                    name="memory",
                ),
            ]
        ) as registry:
            executor = ToolExecutor(registry)

            async def call(name: str, **arguments: Any) -> ToolCallResult:
                (result,) = await executor.execute([ToolCallRequest(name, "1", json.dumps(arguments))])
                return result

            assert (await call("every__echo", message="hi")).content == (Text("Echo: hi"),)
            assert any(isinstance(part, Image) for part in (await call("every__get-tiny-image")).content)
            inside = await call("every__get-resource-reference", resourceType="Text", resourceId=1)
            assert "plaintext resource" in inside.result_markdown
            assert (await call("files__read_text_file", path=str(tmp_path / "a.txt"))).content == (Text("hello"),)
            refused = await call("files__read_text_file", path="/etc/hostname")
            assert refused.status is FAILED
            assert "denied" in refused.result_markdown
            city = {"name": "Oslo", "entityType": "city", "observations": ["cold"]}
            assert (await call("memory__create_entities", entities=[city])).status is SUCCESS
            assert "cold" in (await call("memory__search_nodes", query="Oslo")).result_markdown

    asyncio.run(ask())
