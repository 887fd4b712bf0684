"""The connection to an MCP server: transport, session, content as parts, and the end of its stderr for error messages."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias

import msgspec

from antiphon.parts import Audio, Document, Image, ResultPart, Text, ToolCallResult, ToolExecutionStatus

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult, Tool


def to_result(answer: CallToolResult) -> ToolCallResult:
    """The answer, failed if the server marked it as an error. It has no call id: the caller adds it."""
    parts = [part for block in answer.content for part in _parts(block)]
    structured = answer.structured_content
    if structured is not None and not any(_says(part, structured) for part in parts):
        parts.append(Text(json.dumps(structured, ensure_ascii=False)))
    if answer.is_error:
        return ToolCallResult(
            "", "", ToolExecutionStatus.FAILED, tuple(parts) or (Text("The tool failed without saying why."),)
        )
    return ToolCallResult("", "", content=tuple(parts))


def _says(part: ResultPart, structured: Any) -> bool:
    """Whether a text is the JSON of `structured`, or of the one value it wraps."""
    if not isinstance(part, Text):
        return False
    alone = next(iter(structured.values())) if isinstance(structured, dict) and len(structured) == 1 else structured
    if part.text == alone:
        return True
    try:
        decoded = msgspec.json.decode(part.text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return bool(decoded in (structured, alone))


def _parts(block: Any) -> list[ResultPart]:
    match block.type:
        case "text":
            return [Text(block.text)] if block.text else []
        case "image":
            return [Image(block.mime_type, block.data)]
        case "audio":
            return [Audio(block.mime_type, block.data)]
        case "resource":
            return [_resource(block.resource)]
        case "resource_link":
            about = f": {block.description}" if block.description else ""
            return [Text(f"[{block.title or block.name}]({block.uri}){about}")]
        case _:
            return [Text(block.model_dump_json(by_alias=True, exclude_none=True))]


def _resource(resource: Any) -> ResultPart:
    media_type = resource.mime_type or ""
    text = getattr(resource, "text", None)
    if text is None and media_type.startswith("text/"):
        text = base64.b64decode(resource.blob).decode(errors="replace")
    if text is not None:
        return Text(f"{resource.uri}\n{text}")
    if media_type.startswith("image/"):
        return Image(media_type, resource.blob)
    if media_type.startswith("audio/"):
        return Audio(media_type, resource.blob)
    if media_type == "application/pdf":
        return Document(media_type, resource.blob, name=str(resource.uri))
    size = len(resource.blob) * 3 // 4
    return Text(f"({resource.uri}: about {size:,} bytes of {media_type or 'unknown type'}, which cannot be shown)")


logger = logging.getLogger("antiphon.tools.mcp")

_KEPT_LINES = 5
_LONGEST_LINE = 500


class StderrLog:
    """One end of a pipe for a server to write to, and its last lines."""

    def __init__(self, name: str, mask: Callable[[str], str]) -> None:
        self._name = name
        self._mask = mask
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        reading, writing = os.pipe()
        self.file: TextIO = os.fdopen(writing, "w")
        self._thread = threading.Thread(
            target=self._read, args=(os.fdopen(reading, errors="replace"),), name=f"stderr of {name}", daemon=True
        )
        self._thread.start()

    def _read(self, source: TextIO) -> None:
        with source:
            while line := source.readline(_LONGEST_LINE):
                line = self._mask(line.rstrip())
                logger.debug("%s: %s", self._name, line)
                self._lines.append(line)

    def close(self) -> None:
        """Let go of our end; what the server still writes is read all the same."""
        self.file.close()

    def tail(self) -> str:
        """The last lines, once the server is gone."""
        self._thread.join(timeout=0.5)
        return "\n".join(line for line in self._lines if line)


# The SDK logs tracebacks of what we report as an error: they are for applications that configured logging.
logging.getLogger("mcp").addHandler(logging.NullHandler())

OpenTransport: TypeAlias = Callable[[], AbstractAsyncContextManager[tuple[Any, Any]]]
"""Opens what messages go through: a stream to read and a stream to write, as the SDK's transports do."""

_LONGEST_GOODBYE = 10.0
_MOST_PAGES = 100


class ConnectionLost(Exception):
    """The connection ended before the answer came. `was_sent`: the call may have reached the server, and may have been done."""

    def __init__(self, was_sent: bool) -> None:
        super().__init__("the connection was lost")
        self.was_sent = was_sent


class Connection:
    """A connection that is made with `open`, used while it `is_alive`, and ended with `close`."""

    def __init__(self, open_transport: OpenTransport, on_change: Callable[[], None]) -> None:
        self._open_transport = open_transport
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        self._ready: asyncio.Future[Client] = self._loop.create_future()
        self._task = self._loop.create_task(self._live(), name="mcp connection")
        self._in_flight = 0

    @property
    def is_alive(self) -> bool:
        return self._ready.done() and not self._over.is_set() and not self._task.done()

    async def open(self, timeout: float) -> None:
        """Wait until it is up. Raises what prevented that, or `TimeoutError`."""
        either: set[asyncio.Future[Any]] = {self._ready, self._task}
        try:
            await asyncio.wait(either, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.close()
            raise
        if self._task.done():
            self._task.result()
            raise ConnectionError("the server closed the connection at once")
        if not self._ready.done():
            await self.close()
            raise TimeoutError(f"no answer within {timeout:g} s")

    async def close(self) -> None:
        """Close the connection: first by a clean shutdown, after a timeout by cancelling the task."""
        if self._loop is not asyncio.get_running_loop():
            return  # its loop is gone, and has taken the task with it
        self._over.set()
        if not self._ready.done():
            self._task.cancel()  # it is not up yet, and may never be
        await asyncio.wait({self._task}, timeout=_LONGEST_GOODBYE)
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=_LONGEST_GOODBYE)
        if self._task.done() and not self._task.cancelled() and (error := self._task.exception()) is not None:
            logger.debug("an MCP connection ended with %s", type(error).__name__)

    async def _live(self) -> None:
        from mcp import Client
        from mcp.types import Implementation

        from antiphon import __version__

        try:
            async with Client(
                self._watched(),
                message_handler=self._notified,
                client_info=Implementation(name="antiphon", version=__version__),
            ) as client:
                self._ready.set_result(client)
                listening = self._loop.create_task(self._listen(client), name="mcp changes")
                try:
                    await self._over.wait()
                finally:
                    listening.cancel()
                    await asyncio.wait({listening})
        finally:
            self._over.set()

    @asynccontextmanager
    async def _watched(self) -> AsyncIterator[tuple[Any, Any]]:
        """The transport, telling us when nothing more will come from it."""
        async with self._open_transport() as (reading, writing):
            yield _WatchedStream(reading, self._over.set), writing

    async def _notified(self, message: Any) -> None:
        from mcp.types import ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification):
            self._on_change()

    async def _listen(self, client: Client) -> None:
        """Subscribe to changes, where the protocol requires it; older servers notify without a subscription."""
        from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
        from mcp.shared.exceptions import MCPError

        tools = client.server_capabilities.tools
        if tools is None or not tools.list_changed:
            return
        try:
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self._on_change()
        except ListenNotSupportedError:
            pass
        except (MCPError, SubscriptionLost, TimeoutError) as error:
            logger.debug("an MCP server stopped reporting changes: %s", type(error).__name__)

    async def list_tools(self) -> list[Tool]:
        """All tools the server has, page by page."""
        client = self._ready.result()
        tools: list[Tool] = []
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            page = await client.list_tools(cursor=cursor, cache_mode="refresh")
            tools += page.tools
            cursor = page.next_cursor
            if not cursor:
                return tools
        logger.warning("an MCP server lists its tools without end; %d were taken", len(tools))
        return tools

    async def call(
        self, name: str, arguments: dict[str, Any], on_progress: Callable[[str, float | None], None]
    ) -> CallToolResult:
        """Call a tool. Raises `ConnectionLost`, or what the server answered instead of a result."""
        from mcp.shared.exceptions import MCPError

        async def report(progress: float, total: float | None, message: str | None) -> None:
            on_progress(message or "", min(1.0, max(0.0, progress / total)) if total else None)

        self._in_flight += 1
        try:
            return await self._ready.result().call_tool(name, arguments, progress_callback=report)
        except MCPError as error:
            lost = await self._loss(error)
            if lost is None:
                raise
            raise lost from error
        finally:
            self._in_flight -= 1

    async def _loss(self, error: Any) -> ConnectionLost | None:
        """The lost connection that an error means, if any. Servers use the SDK's code for other errors too, so the message
        decides."""
        from mcp.types import CONNECTION_CLOSED, INVALID_REQUEST

        if error.code == INVALID_REQUEST and error.message == "Session terminated":
            self._over.set()
            return ConnectionLost(was_sent=False)  # a server that does not know us has done nothing
        if error.code != CONNECTION_CLOSED:
            return None
        if error.message.startswith("SSE stream"):
            return ConnectionLost(was_sent=True)  # over HTTP each call has its own stream: the others may continue
        if error.message != "Connection closed" and not self._over.is_set():
            return None
        others = self._in_flight - 1
        self._over.set()
        await asyncio.wait({self._task}, timeout=_LONGEST_GOODBYE)
        # With other calls in flight we cannot know whose request could not be sent.
        return ConnectionLost(was_sent=bool(others) or not self._was_refused())

    def _was_refused(self) -> bool:
        import httpx2

        if not self._task.done() or self._task.cancelled():
            return False
        return isinstance(first_cause(self._task.exception()), httpx2.ConnectError)


def first_cause(error: BaseException | None) -> BaseException | None:
    """The first single exception in a group, or the exception itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class _WatchedStream:
    """A stream of messages that calls `on_end` when it ends."""

    def __init__(self, stream: Any, on_end: Callable[[], None]) -> None:
        self._stream = stream
        self._on_end = on_end

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> _WatchedStream:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            self._on_end()
            raise

    async def __aenter__(self) -> _WatchedStream:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *about: Any) -> Any:
        return await self._stream.__aexit__(*about)
