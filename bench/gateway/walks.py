"""`python -m bench walks [--show]`: how a request walks through the gateway: calls of our functions, modules, changes of module.

Three walks through the gateway, each through real sockets with the ledger on, in one process whose own calls are counted by
`sys.setprofile`; a coroutine that is resumed counts again. The fewest of some warm runs are reported. `--show` lists the calls in
their order.

    small     a Chat Completions request and its whole answer, in one format
    stream    the same, streamed: 23 events that arrive together
    fallback  a stream from a Claude provider for a client of OpenAI: the first target fails with 500, the second answers

And one through the library:

    turn      two rounds and a tool call in a new SQLite store, with a reader of the events
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
from msgspec import Struct

import antiphon
import antiphon_gateway
from antiphon.providers.scripted import call
from antiphon_gateway.config.file import load_config
from antiphon_gateway.serve import serve
from bench.workload.streams import streams

RUNS, COUNTED = 12, 6
SETTLE_SECONDS = 0.03
"""After the answer: what is recorded a moment later belongs to the walk."""
CLIENT_KEY = "sk-of-the-walks-0123456789"
_ROOTS = {str(Path(package.__path__[0])): package.__name__ for package in (antiphon, antiphon_gateway)}
_ASKED = {"messages": [{"role": "user", "content": "Is it raining in Oslo?"}]}
WALKS: dict[str, dict[str, Any]] = {
    "small": {"model": "gpt-4o", **_ASKED},
    "stream": {"model": "gpt-4o", "stream": True, **_ASKED},
    "fallback": {"model": "claude-x", "stream": True, **_ASKED},
}

TURN = "turn"


class Walk(Struct, frozen=True):
    """The calls of one request, each as its module and function."""

    name: str
    calls: list[tuple[str, str]]

    @property
    def modules(self) -> int:
        """How many modules it touched."""
        return len({module for module, _ in self.calls})

    @property
    def changes(self) -> int:
        """How often it went from one module to another."""
        return sum(one != other for (one, _), (other, _) in zip(self.calls, self.calls[1:], strict=False))

    def __str__(self) -> str:
        functions = len(set(self.calls))
        return f"{self.name:9} {len(self.calls)} calls, {functions} functions, {self.modules} modules, {self.changes} changes"

    def lines(self) -> Iterator[str]:
        """The calls in order, under their modules."""
        last = ""
        for module, function in self.calls:
            if module != last:
                yield f"  {module}"
                last = module
            yield f"      {function}"


class _Counter:
    """A profile function that keeps the calls of our own functions."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        file = frame.f_code.co_filename
        root = next((root for root in _ROOTS if file.startswith(root)), None)
        if root is not None:
            module = _ROOTS[root] + file.removeprefix(root).removesuffix(".py").replace("/", ".")
            self.calls.append((module, frame.f_code.co_qualname))


async def count_walks(names: Iterable[str] = WALKS) -> list[Walk]:
    """Count the walks of these names."""
    async with _upstream() as upstream, _gateway(upstream) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            return [await _walk(name, reader, writer) for name in names]
        finally:
            writer.close()


async def _walk(name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Walk:
    body = msgspec.json.encode(WALKS[name])
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {CLIENT_KEY}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    counted: list[list[tuple[str, str]]] = []
    for run in range(RUNS):
        counter = _Counter()
        if run >= RUNS - COUNTED:
            sys.setprofile(counter)
        writer.write(head.encode() + body)
        answer = await _read_response(reader)
        await asyncio.sleep(SETTLE_SECONDS)
        sys.setprofile(None)
        assert b"Rain" in answer or b"word" in answer, answer[:300]
        if counter.calls:
            counted.append(counter.calls)
    return Walk(name, min(counted, key=len))


async def count_turn() -> Walk:
    """Count the walk of a turn of the library."""

    @antiphon.tool
    def look(city: str) -> str:
        "Look outside."
        return f"{city}: sun"

    counted: list[list[tuple[str, str]]] = []
    with tempfile.TemporaryDirectory(prefix="antiphon-walks-") as folder:
        for run in range(RUNS):
            model = antiphon.ScriptedModel(call("look", city="Oslo"), "It is sunny in Oslo.")
            chat = antiphon.Conversation(model, tools=[look], store=f"{folder}/{run}.db")
            counter = _Counter()
            sys.setprofile(counter)
            async for _ in antiphon.ToolLoop(chat).stream("Is it raining in Oslo?"):
                pass
            sys.setprofile(None)
            counted.append(counter.calls)
            await chat.aclose()
    return Walk(TURN, min(counted, key=len))


async def _read_response(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    assert b" 200 " in head.partition(b"\r\n")[0], head
    if b"chunked" not in head:
        length = next(line for line in head.split(b"\r\n") if line.startswith(b"content-length"))
        return await reader.readexactly(int(length.partition(b":")[2]))
    return await reader.readuntil(b"\r\n0\r\n\r\n")


@asynccontextmanager
async def _gateway(upstream: int) -> Any:
    with tempfile.TemporaryDirectory(prefix="antiphon-walks-") as name:
        config = Path(name) / "antiphon.toml"
        config.write_text(_CONFIG.format(folder=name, port=upstream))
        environ = {"CLIENT_KEY": CLIENT_KEY, "UPSTREAM_KEY": "none"}
        stop, ports = asyncio.Event(), asyncio.get_running_loop().create_future()
        loaded = load_config(config, environ=environ)
        serving = asyncio.create_task(serve(loaded, ready=ports.set_result, environ=environ, stop=stop))
        try:
            yield (await ports)[0]
        finally:
            stop.set()
            await serving


_PROVIDER = """
[[providers]]
name = "{name}"
format = "{format}"
base_url = "http://127.0.0.1:{{port}}/{name}"
keys = ["env:UPSTREAM_KEY"]
retries = 0
"""
_CONFIG = (
    """
[gateway]
port = 0
format_port = 0
client_keys = ["env:CLIENT_KEY"]
log_level = "error"
circuit_failures = 0
[ledger]
address = "{folder}/ledger.db"
"""
    + "".join(
        _PROVIDER.format(name=name, format=format_name)
        for name, format_name in (("chat", "openai-chat"), ("broken", "anthropic"), ("claude", "anthropic"))
    )
    + """
[[models]]
name = "gpt-*"
targets = ["chat/*"]
[[models]]
name = "claude-x"
targets = ["broken/claude-x", "claude/claude-x"]
"""
)


@asynccontextmanager
async def _upstream() -> Any:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
            body = await reader.readexactly(int(length.partition(b":")[2]))
            path = head.split(b" ")[1]
            if path.startswith(b"/broken"):
                writer.write(_response(_ERROR, b"500 Internal Server Error", b"application/json"))
            elif b'"stream":true' in body:
                format_name = "anthropic" if path.startswith(b"/claude") else "openai-chat"
                writer.write(_response(_STREAMS[format_name], b"200 OK", b"text/event-stream"))
            else:
                writer.write(_response(_WHOLE, b"200 OK", b"application/json"))
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


def _response(body: bytes, status: bytes, kind: bytes) -> bytes:
    return b"HTTP/1.1 %b\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b" % (status, kind, len(body), body)


_ERROR = b'{"type":"error","error":{"type":"api_error","message":"it is down"}}'
_STREAMS = streams([f"word{number} " for number in range(15)])
_WHOLE = msgspec.json.encode(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-4o",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Rain."}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 12, "completion_tokens": 11, "total_tokens": 23},
    }
)


def main(arguments: list[str]) -> int:
    """Print the walks."""
    named = [name for name in arguments if name in (*WALKS, TURN)] or [*WALKS, TURN]
    walks = asyncio.run(count_walks([name for name in named if name != TURN])) if named != [TURN] else []
    if TURN in named:
        walks.append(asyncio.run(count_turn()))
    for walk in walks:
        print(walk)
        if "--show" in arguments:
            print("\n".join(walk.lines()))
    return 0
