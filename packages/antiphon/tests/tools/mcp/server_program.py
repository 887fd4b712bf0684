"""A small MCP server for tests, run as a program: `server_program.py stdio FOLDER` or `server_program.py http FOLDER [PORT]`.

What the tests want to know of it, it writes into files in FOLDER: `calls` (a line for each call that has effects), `cancelled`,
and, over HTTP, `port` (once it listens there).
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)

server = MCPServer("test", version="1")
folder = Path(sys.argv[2])
READ = ToolAnnotations(read_only_hint=True)
HARMLESS = ToolAnnotations(destructive_hint=False)
IDEMPOTENT = ToolAnnotations(idempotent_hint=True)


def note(file: str, words: str) -> None:
    with (folder / file).open("a") as out:
        out.write(f"{words}\n")


@server.tool(annotations=READ)
def echo(text: str) -> str:
    """Say it again."""
    return text


@server.tool(annotations=READ)
def add(first: int, second: int) -> dict[str, int]:
    return {"sum": first + second}


@server.tool(annotations=HARMLESS)
def fail(why: str) -> str:
    raise ToolError(why)


@server.tool(annotations=IDEMPOTENT, structured_output=False)
def everything() -> CallToolResult:
    """One of each."""
    return CallToolResult(
        content=[
            TextContent(text="words"),
            ImageContent(data="aW1n", mime_type="image/png"),
            AudioContent(data="c25k", mime_type="audio/wav"),
            ResourceLink(name="link", uri="file:///a", description="a file"),
            EmbeddedResource(resource=TextResourceContents(uri="file:///b", text="inside", mime_type="text/plain")),
            EmbeddedResource(resource=BlobResourceContents(uri="file:///c", blob="cGRm", mime_type="application/pdf")),
            EmbeddedResource(resource=BlobResourceContents(uri="file:///d", blob="cG5n", mime_type="image/png")),
            EmbeddedResource(resource=BlobResourceContents(uri="file:///e", blob="emlw", mime_type="application/zip")),
            EmbeddedResource(resource=BlobResourceContents(uri="file:///f", blob="dGV4dA==", mime_type="text/csv")),
        ],
        structured_content={"answer": [42]},
    )


@server.tool()
async def work(context: Context[Any, Any], seconds: float) -> str:
    """Take a while, and tell of it."""
    note("calls", "work")
    try:
        await context.report_progress(1, 4, "begun")
        await anyio.sleep(seconds)
        await context.report_progress(4, 4, "done")
    except anyio.get_cancelled_exc_class():
        note("cancelled", "work")
        raise
    return "worked"


@server.tool()
def crash() -> str:
    """Die at once."""
    note("calls", "crash")
    os._exit(3)


@server.tool(annotations=READ)
def crash_first() -> str:
    """Die the first time."""
    note("calls", "crash_first")
    if (folder / "calls").read_text().count("crash_first") == 1:
        os._exit(3)
    return "alive"


@server.tool()
def process() -> int:
    return os.getpid()


@server.tool()
def environment() -> dict[str, str]:
    return dict(os.environ)


@server.tool()
def headers(context: Context[Any, Any]) -> str:
    return (context.headers or {}).get("authorization", "none")


@server.tool(annotations=READ)
def traced(context: Context[Any, Any]) -> str:
    note("traceparent", str((context.request_context.meta or {}).get("traceparent", "")))
    return "noted"


@server.tool()
async def learn(context: Context[Any, Any]) -> str:
    """Have another tool from now on."""
    server.add_tool(echo, name="learned")
    await context.notify_tools_changed()
    return "learned"


@server.tool(name="a.name with/letters " + "no provider takes " * 4)
def unusual() -> str:
    return "unusual"


async def over_http() -> None:
    listening = socket.create_server(("127.0.0.1", int(sys.argv[3]) if len(sys.argv) > 3 else 0))
    config = uvicorn.Config(server.streamable_http_app(), log_level="error", timeout_graceful_shutdown=1)
    note("port", str(listening.getsockname()[1]))
    await uvicorn.Server(config).serve(sockets=[listening])


if __name__ == "__main__":
    if sys.argv[1] == "http":
        asyncio.run(over_http())
    else:
        print("ready, with a secret:", os.environ.get("API_TOKEN"), file=sys.stderr)
        server.run("stdio")
