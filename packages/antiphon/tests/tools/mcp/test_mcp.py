"""MCP servers as sources of tools: real ones, over stdio and streamable HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from antiphon.errors import InvalidTool, McpUnavailable
from antiphon.parts import Audio, Document, Image, Text, ToolCallRequest, ToolCallResult, ToolExecutionStatus
from antiphon.tools import CallOutcome, Tool, ToolContext, ToolExecutor, ToolRegistry, ToolSource
from antiphon.tools.mcp import McpServer
from antiphon.tools.mcp.server import tool_name
from support.waiting import until, until_async

pytest.importorskip("mcp")  # before the processes of the tests fork: each would import it
PROGRAM = Path(__file__).parent / "server_program.py"
SECRET = "sk-very-secret-7311"
FAILED, SUCCESS = ToolExecutionStatus.FAILED, ToolExecutionStatus.SUCCESS


# A server of an older protocol, written by hand: it starts fast, dies when asked, and says what no SDK would.
OLD_SERVER = """
import json, os, pathlib, sys

folder = pathlib.Path(sys.argv[1])
(folder / "process").write_text(str(os.getpid()))

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def tool(name, properties={}, **hints):
    return {"name": name, "inputSchema": {"type": "object", "properties": properties}, "annotations": hints}

PAGES = {
    None: ([tool("crash"), tool("crash_first", readOnlyHint=True), tool("odd", {"a": {"type": "nonsense"}})], "2"),
    "2": ([*map(tool, ["tell", "refuse", "nonsense", "silent"]), tool("wait", readOnlyHint=True)], None),
}

for line in sys.stdin:
    message = json.loads(line)
    method, params, number = message.get("method"), message.get("params") or {}, message.get("id")
    if number is None:
        continue
    if method == "initialize":
        info = {"name": "old", "version": "1"}
        capabilities = {"tools": {"listChanged": True}}
        send(id=number, result={"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": info})
    elif method == "tools/list":
        tools, cursor = PAGES[params.get("cursor")]
        send(id=number, result={"tools": tools, **({"nextCursor": cursor} if cursor else {})})
    elif method == "tools/call":
        name = params["name"]
        with (folder / "calls").open("a") as calls:
            calls.write(name + "\\n")
        if name == "crash" or name == "crash_first" and (folder / "calls").read_text().count(name) == 1:
            os._exit(3)
        if name == "tell":
            send(method="notifications/tools/list_changed")
        answers = {"nonsense": {"content": 5}, "silent": {"content": [], "isError": True}}
        if name == "wait":
            continue
        if name == "refuse":
            send(id=number, error={"code": -32000, "message": "out of order: " + os.environ["API_TOKEN"]})
        else:
            send(id=number, result=answers.get(name, {"content": [{"type": "text", "text": "alive"}]}))
    else:
        send(id=number, error={"code": -32601, "message": "no such method"})
"""


class Bench(Struct):
    """An open registry with one server, its loop, and where the server leaves notes."""

    runner: asyncio.Runner
    server: McpServer
    registry: ToolRegistry
    folder: Path

    def call(self, name: str, **arguments: Any) -> ToolCallResult:
        return self.runner.run(self.calling(name, **arguments))

    async def calling(self, name: str, observer: Any = None, **arguments: Any) -> ToolCallResult:
        call = ToolCallRequest(name, "call-1", json.dumps(arguments))
        (result,) = await ToolExecutor(self.registry).execute([call], observer=observer)
        return result

    def noted(self, file: str) -> list[str]:
        path = self.folder / file
        return path.read_text().split() if path.exists() else []


def bench(server: McpServer, folder: Path) -> Iterator[Bench]:
    with asyncio.Runner() as runner:
        registry = ToolRegistry([server])
        runner.run(registry.open())
        yield Bench(runner, server, registry, folder)
        runner.run(registry.aclose())


@pytest.fixture(scope="module")
def stdio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("stdio")
    os.environ["OURS_ALONE"] = "and not the server's"
    server = McpServer.stdio(
        sys.executable,
        [str(PROGRAM), "stdio", str(folder)],
        {"API_TOKEN": SECRET},
        name="test",
        approve_destructive=True,
    )
    yield from bench(server, folder)
    del os.environ["OURS_ALONE"]


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Bench]:
    server = McpServer.stdio(
        sys.executable, ["-c", OLD_SERVER, str(tmp_path)], {"API_TOKEN": SECRET}, tmp_path, name="old"
    )
    yield from bench(server, tmp_path)


class HttpProcess(Struct):
    """The server as a program that listens."""

    folder: Path
    process: subprocess.Popen[bytes] | None = None
    port: str = "0"

    def start(self) -> None:
        noted = self.folder / "port"
        noted.unlink(missing_ok=True)
        self.process = subprocess.Popen([sys.executable, PROGRAM, "http", self.folder, self.port])
        until(noted.exists)
        until(lambda: noted.read_text().endswith("\n"))
        self.port = noted.read_text().strip()

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()


@pytest.fixture(scope="module")
def http_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpProcess]:
    process = HttpProcess(tmp_path_factory.mktemp("http"))
    process.start()
    yield process
    process.stop()


@pytest.fixture(scope="module")
def http(http_process: HttpProcess) -> Iterator[Bench]:
    url = f"http://127.0.0.1:{http_process.port}/mcp?key={SECRET}"
    server = McpServer.http(url, {"Authorization": f"Bearer {SECRET}"}, name="test", timeout=20.0)
    yield from bench(server, http_process.folder)


@pytest.fixture(params=["stdio", "http"])
def either(request: pytest.FixtureRequest) -> Bench:
    chosen: Bench = request.getfixturevalue(request.param)
    return chosen


def test_a_server_is_a_source_of_tools(stdio: Bench) -> None:
    assert isinstance(stdio.server, ToolSource)
    unusual = tool_name("test", "a.name with/letters " + "no provider takes " * 4)
    tools = {tool.name: (tool.effect, tool.needs_approval) for tool in stdio.registry}
    tools.pop("test__learned", None)  # by a later test, if the order is another
    assert tools == {
        "test__echo": ("read", False),
        "test__add": ("read", False),
        "test__fail": ("once", False),
        "test__everything": ("idempotent", True),
        "test__work": ("once", True),
        "test__traced": ("read", False),
        "test__crash": ("once", True),
        "test__crash_first": ("read", False),
        "test__process": ("once", True),
        "test__environment": ("once", True),
        "test__headers": ("once", True),
        "test__learn": ("once", True),
        unusual: ("once", True),
    }
    echo = stdio.registry.get("test__echo")
    assert echo is not None
    assert echo.description == "Say it again."
    assert echo.parameters["properties"]["text"]["type"] == "string"
    assert stdio.call(unusual).content == (Text("unusual"),)


def test_answers_become_parts(either: Bench) -> None:
    assert either.call("test__echo", text="你好").content == (Text("你好"),)
    (only,) = either.call("test__add", first=1, second=2).content  # its structured form repeats its text
    assert isinstance(only, Text)
    assert json.loads(only.text) == {"sum": 3}
    assert either.call("test__everything").content == (
        Text("words"),
        Image("image/png", "aW1n"),
        Audio("audio/wav", "c25k"),
        Text("[link](file:///a): a file"),
        Text("file:///b\ninside"),
        Document("application/pdf", "cGRm", name="file:///c"),
        Image("image/png", "cG5n"),
        Text("(file:///e: about 3 bytes of application/zip, which cannot be shown)"),
        Text("file:///f\ntext"),
        Text('{"answer": [42]}'),
    )


def test_a_failing_mcp_tool_gives_an_error_result(either: Bench) -> None:
    result = either.call("test__fail", why="no such thing")
    assert result.status is FAILED
    assert "no such thing" in result.result_markdown
    assert result.tool_call_id == "call-1"


def test_arguments_are_checked_before_the_server_sees_them(stdio: Bench) -> None:
    result = stdio.call("test__work", seconds="long")
    assert result.status is FAILED
    assert "seconds" in result.result_markdown
    assert stdio.noted("calls") == []


def test_concurrent_calls_get_their_own_answers(either: Bench) -> None:
    async def ask() -> list[ToolCallResult]:
        calls = [ToolCallRequest("test__echo", str(number), f'{{"text": "{number}"}}') for number in range(20)]
        return await ToolExecutor(either.registry).execute(calls)

    assert [result.result_markdown for result in either.runner.run(ask())] == [str(number) for number in range(20)]


def test_progress_is_passed_on(either: Bench) -> None:
    class Watching:
        def __init__(self) -> None:
            self.seen: list[tuple[str, float | None]] = []

        def started(self, call: ToolCallRequest, tool: Tool | None, key: str) -> None:
            pass

        def progress(self, call: ToolCallRequest, message: str, fraction: float | None) -> None:
            self.seen.append((message, fraction))

        def finished(self, call: ToolCallRequest, result: ToolCallResult, outcome: CallOutcome) -> None:
            pass

        def waits(self, call: ToolCallRequest) -> None:
            pass

    watching = Watching()
    result = either.runner.run(either.calling("test__work", watching, seconds=0.05))
    assert result.result_markdown == "worked"
    assert watching.seen[0] == ("begun", 0.25)


def test_a_call_that_is_cancelled_is_cancelled_at_the_server(either: Bench) -> None:
    async def give_up() -> None:
        begun = len(either.noted("calls"))
        task = asyncio.create_task(either.calling("test__work", seconds=60))
        await until_async(lambda: len(either.noted("calls")) > begun)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until_async(lambda: "work" in either.noted("cancelled"))

    either.runner.run(give_up())
    assert either.call("test__echo", text="still there").status is SUCCESS


def test_changes_of_the_tools_are_noticed(either: Bench) -> None:
    changes: list[None] = []
    either.server.on_change = lambda: changes.append(None)

    async def learn() -> None:
        await either.calling("test__learn")
        await until_async(lambda: either.server.has_changed)
        assert either.registry.get("test__learned") is None
        await either.registry.refresh()

    other = ToolRegistry([either.server])
    either.runner.run(other.open())
    either.runner.run(learn())
    assert changes
    assert not either.server.has_changed
    either.runner.run(other.open())
    assert "test__learned" in other, "another registry lists the tools again too"
    assert either.call("test__learned", text="hi").content == (Text("hi"),)


def test_a_started_server_gets_a_clean_environment(stdio: Bench) -> None:
    environment = json.loads(stdio.call("test__environment").result_markdown)
    assert environment["API_TOKEN"] == SECRET
    assert environment["PATH"] == os.environ["PATH"]
    assert "OURS_ALONE" not in environment


def test_headers_reach_the_server(http: Bench) -> None:
    assert http.call("test__headers").content == (Text(f"Bearer {SECRET}"),)


def test_a_call_reports_a_server_crash_and_the_next_restarts_it(old: Bench) -> None:
    result = old.call("old__crash")
    assert result.status is FAILED
    assert "lost while it ran crash" in result.result_markdown
    assert "may have been" in result.result_markdown
    assert old.noted("calls") == ["crash"]  # it is not run twice
    assert old.call("old__tell").content == (Text("alive"),)


def test_a_server_that_died_between_calls_is_started_again(old: Bench) -> None:
    async def mourn() -> None:
        os.kill(int(old.noted("process")[0]), signal.SIGKILL)
        connection = await old.server._get_connection()
        await until_async(lambda: not connection.is_alive)

    old.runner.run(mourn())
    assert old.call("old__tell").content == (Text("alive"),)


def test_a_call_that_only_reads_is_made_again(old: Bench) -> None:
    assert old.call("old__crash_first").content == (Text("alive"),)
    assert old.noted("calls") == ["crash_first", "crash_first"]


def test_an_older_server_is_understood(old: Bench) -> None:
    # Its tools come in two pages, and one of them cannot be offered to any model.
    assert set(old.registry.names) == {
        f"old__{name}" for name in ["crash", "crash_first", "tell", "refuse", "nonsense", "silent", "wait"]
    }
    assert not old.server.has_changed
    old.call("old__tell")
    old.runner.run(until_async(lambda: old.server.has_changed))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("refuse", "MCP server 'old' could not answer refuse: out of order: sk-…"),
        ("nonsense", "MCP server 'old' could not answer nonsense: "),
        ("silent", "The tool failed without saying why."),
    ],
)
def test_an_invalid_answer_is_an_error_result(old: Bench, name: str, words: str) -> None:
    result = old.call(f"old__{name}")
    assert result.status is FAILED
    assert result.result_markdown.startswith(words)
    assert SECRET not in result.result_markdown


def test_closing_ends_calls_that_run_and_makes_no_new_connection(old: Bench) -> None:
    async def close_meanwhile() -> ToolCallResult:
        task = asyncio.create_task(old.calling("old__wait"))
        await until_async(lambda: "wait" in old.noted("calls"))
        await old.server.aclose()
        return await task

    result = old.runner.run(close_meanwhile())
    assert result.status is FAILED
    assert "lost while it ran wait" in result.result_markdown
    assert old.noted("calls") == ["wait"]


def test_closing_ends_the_program(stdio: Bench) -> None:
    process = int(stdio.call("test__process").result_markdown)
    os.kill(process, 0)
    stdio.runner.run(stdio.server.aclose())
    stdio.runner.run(stdio.server.aclose())
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


@pytest.mark.parametrize(
    ("command", "script", "patience", "message"),
    [
        ("no-such-program-anywhere", "", 20.0, "No such file"),
        (
            sys.executable,
            "import os, sys; sys.exit('bad token ' + os.environ['API_TOKEN'])",
            20.0,
            "It said: bad token sk-…7311$",
        ),
        (sys.executable, "import sys; sys.stdin.read()", 0.2, "no answer within 0.2 s"),
    ],
)
def test_a_server_that_does_not_start_is_a_clear_error(
    command: str, script: str, patience: float, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server = McpServer.stdio(command, ["-c", script], {"API_TOKEN": SECRET}, name="broken", connect_timeout=patience)
    with pytest.raises(McpUnavailable, match=message) as raised:
        asyncio.run(server.tools())
    assert "'broken'" in str(raised.value)
    assert SECRET not in f"{raised.value!r} {server!r} {caplog.text}"


def test_a_registry_names_the_missing_server(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    server = McpServer.http("http://user:pass-9918@127.0.0.1:9/mcp", {"X-Key": SECRET}, name="absent")

    async def open_registry() -> None:
        async with ToolRegistry([server]):
            pass

    with pytest.raises(McpUnavailable, match=re.escape("'absent' (http://127.0.0.1:9/mcp) cannot be used")) as raised:
        asyncio.run(open_registry())
    assert SECRET not in f"{raised.value!r} {server!r} {caplog.text}"
    assert "pass-9918" not in f"{raised.value!r} {server!r}"


def test_without_the_sdk_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(McpUnavailable, match=r"antiphon\[mcp\]"):
        asyncio.run(McpServer.stdio("true", name="x").tools())


@pytest.mark.parametrize("name", ["", "_x", "x_", "a__b", "1st", "a b", "ä", "x" * 40, "a.b"])
def test_names_of_servers_that_would_not_keep_tools_apart_are_refused(name: str) -> None:
    with pytest.raises(InvalidTool, match="cannot be called"):
        McpServer.stdio("true", name=name)


def test_arguments_of_a_program_are_a_list() -> None:
    with pytest.raises(InvalidTool, match="args='some-server'; expected a list of arguments"):
        McpServer.stdio("npx", "some-server", name="x")


def test_an_invalid_url_is_refused() -> None:
    for url in ("", "localhost:80", "ftp://x/y"):
        with pytest.raises(McpUnavailable, match="http or https"):
            McpServer.http(url, name="x")


SERVER_NAMES = st.sampled_from(["a", "b", "a_b", "a-b", "ab", "a_a_a", "A1", "b-"])
TOOL_NAMES = st.text(st.sampled_from("ab_-./ é1"), min_size=1, max_size=80)


@given(st.lists(st.tuples(SERVER_NAMES, TOOL_NAMES), min_size=2, max_size=5, unique=True))
def test_names_are_legal_everywhere_and_kept_apart(pairs: list[tuple[str, str]]) -> None:
    names = [tool_name(server, tool) for server, tool in pairs]
    assert len(set(names)) == len(pairs)
    assert all(re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,63}", name) for name in names)


def test_settings_hold_for_every_tool_and_overrule_its_hints(http_process: HttpProcess) -> None:
    url = f"http://127.0.0.1:{http_process.port}/mcp"

    async def tools(**settings: Any) -> dict[str, Tool]:
        async with McpServer.http(url, name="x", **settings) as server:
            return {tool.name: tool for tool in await server.tools()}

    retrying = asyncio.run(tools(timeout=7.0, retries=2, cache_seconds=9.0))
    assert {tool.timeout for tool in retrying.values()} == {7.0}
    assert (retrying["x__echo"].retries, retrying["x__echo"].cache_seconds) == (2, 9.0)
    assert (retrying["x__fail"].retries, retrying["x__fail"].cache_seconds) == (0, None)
    distrusted = asyncio.run(tools(effect="once", needs_approval=True, approve_destructive=True))
    assert {(tool.effect, tool.needs_approval) for tool in distrusted.values()} == {("once", True)}


def test_a_server_serves_one_event_loop_after_the_other(http_process: HttpProcess) -> None:
    server = McpServer.http(f"http://127.0.0.1:{http_process.port}/mcp", name="x")

    async def ask() -> ToolCallResult:
        tools = {tool.name: tool for tool in await server.tools()}
        result: ToolCallResult = await tools["x__echo"].run({"text": "hi"}, ToolContext())
        return result  # and it is never closed

    assert asyncio.run(ask()).content == asyncio.run(ask()).content == (Text("hi"),)
    with asyncio.Runner() as one, asyncio.Runner() as other:
        assert one.run(ask()).content == other.run(ask()).content == one.run(ask()).content


def test_a_restarted_server_is_found_and_a_stopped_one_is_reported(http: Bench, http_process: HttpProcess) -> None:
    first = http.call("test__process")
    http_process.stop()
    http_process.start()
    second = http.call("test__process")  # `once`, and yet safe: no server received it
    assert second.status is SUCCESS
    assert second.content != first.content
    crashed = http.call("test__crash")
    assert crashed.status is FAILED
    assert "lost while it ran crash" in crashed.result_markdown
    result = http.call("test__process")
    assert result.status is FAILED
    assert "cannot be used" in result.result_markdown
    assert SECRET not in result.result_markdown
