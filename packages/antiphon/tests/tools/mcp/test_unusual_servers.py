"""Servers that answer in unusual ways: errors with a status, odd schemas, noise on standard error."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from antiphon.errors import McpUnavailable
from antiphon.parts import ToolCallRequest, ToolCallResult, ToolExecutionStatus
from antiphon.tools import ToolExecutor, ToolRegistry
from antiphon.tools.mcp import McpServer

FAILED, SUCCESS = ToolExecutionStatus.FAILED, ToolExecutionStatus.SUCCESS


class _SimpleMcp(BaseHTTPRequestHandler):
    """An MCP server that answers `failing` requests with `status`, and has one tool with a draft-7 tuple and no `$schema`."""

    status = 200
    failing: str | None = None

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method = message["method"]
        if self.failing in ("everything", method):
            self._answer(self.status, b'{"error": "invalid_token"}')
        elif method == "initialize":
            self._result(
                message,
                {
                    "protocolVersion": message["params"]["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "simple", "version": "1"},
                },
            )
        elif method == "tools/list":
            pair = {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]}
            schema = {"type": "object", "properties": {"pair": pair}}
            self._result(message, {"tools": [{"name": "tuple", "inputSchema": schema}]})
        elif method == "tools/call":
            text = json.dumps(message["params"]["arguments"])
            self._result(message, {"content": [{"type": "text", "text": text}]})
        elif "id" in message:
            error = {"code": -32601, "message": "Method not found"}
            self._answer(200, json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode())
        else:
            self._answer(202, b"")

    def do_GET(self) -> None:
        self._answer(405, b"")

    def do_DELETE(self) -> None:
        self._answer(200, b"")

    def _result(self, message: dict[str, Any], result: dict[str, Any]) -> None:
        self._answer(200, json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: Any) -> None:
        pass


@contextmanager
def simple_mcp(status: int = 200, failing: str | None = None) -> Iterator[McpServer]:
    handler = type("Handler", (_SimpleMcp,), {"status": status, "failing": failing})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as listener:
        serving = threading.Thread(target=listener.serve_forever)
        serving.start()
        try:
            headers = {"Authorization": "Bearer sesame-open"}
            yield McpServer.http(f"http://127.0.0.1:{listener.server_port}/mcp", headers, name="simple")
        finally:
            listener.shutdown()
            serving.join()


async def call_once(server: McpServer, arguments: dict[str, Any]) -> ToolCallResult:
    async with server:
        executor = ToolExecutor(ToolRegistry(await server.tools()))
        (result,) = await executor.execute([ToolCallRequest("simple__tuple", "1", json.dumps(arguments))])
        return result


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "HTTP 401 Unauthorized"),
        (403, "HTTP 403 Forbidden"),
        (404, "HTTP 404 Not Found"),
        (503, "HTTP 503 Service Unavailable"),
        (599, "HTTP 599"),
    ],
)
def test_errors_name_the_status_of_the_response(status: int, words: str) -> None:
    with simple_mcp(status, failing="everything") as server, pytest.raises(McpUnavailable) as refused:
        asyncio.run(server.tools())
    assert str(refused.value).endswith(f"cannot be used: {words}")
    with simple_mcp(status, failing="tools/list") as server, pytest.raises(McpUnavailable) as refused:
        asyncio.run(server.tools())
    assert words in str(refused.value)
    with simple_mcp(status, failing="tools/call") as server:
        result = asyncio.run(call_once(server, {"pair": ["a", 1]}))
    assert result.status is FAILED
    assert words in result.result_markdown
    assert "sesame" not in result.result_markdown


def test_a_tool_with_a_tuple_and_no_named_draft_is_usable() -> None:
    with simple_mcp() as server:
        result = asyncio.run(call_once(server, {"pair": ["a", 1]}))
        assert result.status is SUCCESS
        assert json.loads(result.result_markdown) == {"pair": ["a", 1]}
    with simple_mcp() as server:
        refused = asyncio.run(call_once(server, {"pair": ["a", "b"]}))
        assert refused.status is FAILED
        assert 'pair[1]: expected integer, got the string "b"' in refused.result_markdown


def test_an_odd_server_writes_nothing_to_standard_error() -> None:
    """A redirect makes the SDK log an unwanted traceback."""
    with simple_mcp(302, failing="everything") as server:
        url = server.where
        code = f"""
import asyncio
from antiphon.errors import McpUnavailable
from antiphon.tools.mcp import McpServer
try:
    asyncio.run(McpServer.http({url!r}, name="odd").tools())
except McpUnavailable as error:
    print(error)
"""
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert "cannot be used: HTTP 302 Found" in ended.stdout
    assert ended.stderr == ""
