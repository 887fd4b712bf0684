"""The connection to an MCP server: transport, session, subscriptions, and the end of its stderr for error messages."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import threading
import warnings
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias, TypeVar

import msgspec

from antiphon.tools.mcp.content import ElicitationHandler, McpElicitation

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult, GetPromptResult, Prompt, ReadResourceResult, Resource, ResourceTemplate, Tool


logger = logging.getLogger("antiphon.tools.mcp")

T = TypeVar("T")

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

    def __init__(
        self,
        open_transport: OpenTransport,
        on_change: Callable[[], None],
        on_update: Callable[[str], None],
        on_elicitation: ElicitationHandler | None = None,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        self._open_transport = open_transport
        self._on_end = on_end
        self._on_change = on_change
        self._on_update = on_update
        self._on_elicitation = on_elicitation
        self._watching: dict[str, asyncio.Task[None]] = {}
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
                self._watch_transport(),
                message_handler=self._on_message,
                client_info=Implementation(name="antiphon", version=__version__),
                elicitation_callback=self._ask if self._on_elicitation is not None else None,
            ) as client:
                self._ready.set_result(client)
                listening = self._loop.create_task(self._listen(client), name="mcp changes")
                try:
                    await self._over.wait()
                finally:
                    listeners = {listening, *self._watching.values()}
                    for task in listeners:
                        task.cancel()
                    await asyncio.wait(listeners)
        finally:
            self._over.set()
            if self._on_end is not None and self._ready.done():
                self._on_end()

    @asynccontextmanager
    async def _watch_transport(self) -> AsyncIterator[tuple[Any, Any]]:
        """The transport, telling us when nothing more will come from it."""
        async with self._open_transport() as (reading, writing):
            yield _WatchedStream(reading, self._over.set), writing

    async def _on_message(self, message: Any) -> None:
        from mcp.types import ResourceUpdatedNotification, ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification):
            self._on_change()
        elif isinstance(message, ResourceUpdatedNotification):
            self._on_update(str(message.params.uri))

    async def _ask(self, context: Any, params: Any) -> Any:  # noqa: ARG002 - the SDK's names
        """Pass a question of the server to the user."""
        from mcp.types import ElicitResult

        assert self._on_elicitation is not None, "it is offered only then"
        question = McpElicitation(
            message=params.message,
            schema=getattr(params, "requested_schema", None) or {},
            url=str(getattr(params, "url", "") or ""),
        )
        answer = self._on_elicitation(question)
        if inspect.isawaitable(answer):
            answer = await answer
        if answer is None:
            return ElicitResult(action="decline")
        return ElicitResult(action="accept", content={**question.defaults, **answer} or None)

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

    async def watch(self, uri: str) -> None:
        """Call `on_update` when the resource changes. Returns once the server has confirmed."""
        from mcp.client.subscriptions import ListenNotSupportedError

        client = self._ready.result()
        confirmed: asyncio.Future[None] = self._loop.create_future()
        task = self._loop.create_task(self._watch(client, uri, confirmed), name="mcp resource")
        try:
            await confirmed
        except ListenNotSupportedError:
            await self._answer(_without_warning(client.session.subscribe_resource, uri))
        else:
            self._watching[uri] = task

    async def unwatch(self, uri: str) -> None:
        """Undo `watch`."""
        task = self._watching.pop(uri, None)
        if task is None:
            await self._answer(_without_warning(self._ready.result().session.unsubscribe_resource, uri))
            return
        task.cancel()
        await asyncio.wait({task})

    async def _watch(self, client: Client, uri: str, confirmed: asyncio.Future[None]) -> None:
        try:
            async with client.listen(resource_subscriptions=[uri]) as changes:
                confirmed.set_result(None)
                async for _ in changes:
                    pass  # each change is also a message, which `_on_message` gets whatever the protocol's version
        except Exception as error:  # the protocol is older, or the server refused, or the stream was lost
            if not confirmed.done():
                confirmed.set_exception(error)
            else:
                logger.debug("an MCP server stopped reporting changes of a resource: %s", type(error).__name__)

    async def list_tools(self) -> list[Tool]:
        """All tools the server has."""
        return await self._all_pages("tools", self._ready.result().list_tools)

    async def list_resources(self) -> list[Resource | ResourceTemplate]:
        """All resources and templates of the server; none if it has no resources."""
        client = self._ready.result()
        if client.server_capabilities.resources is None:
            return []
        resources: list[Any] = await self._all_pages("resources", client.list_resources)
        return [*resources, *await self._all_pages("resource_templates", client.list_resource_templates)]

    async def read_resource(self, uri: str) -> ReadResourceResult:
        """The content of a resource."""
        return await self._answer(self._ready.result().read_resource(uri))

    async def list_prompts(self) -> list[Prompt]:
        """All prompts of the server; none if it has no prompts."""
        client = self._ready.result()
        return (
            [] if client.server_capabilities.prompts is None else await self._all_pages("prompts", client.list_prompts)
        )

    async def get_prompt(self, name: str, arguments: Mapping[str, str]) -> GetPromptResult:
        """A prompt with its arguments filled in."""
        return await self._answer(self._ready.result().get_prompt(name, dict(arguments)))

    async def _all_pages(self, field: str, fetch: Callable[..., Awaitable[Any]]) -> list[Any]:
        """A list of the server, page by page."""
        listed: list[Any] = []
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            page = await self._answer(fetch(cursor=cursor, cache_mode="refresh"))
            listed += getattr(page, field)
            cursor = page.next_cursor
            if not cursor:
                return listed
        logger.warning("an MCP server lists its %s without end; %d were taken", field, len(listed))
        return listed

    async def call(
        self, name: str, arguments: dict[str, Any], on_progress: Callable[[str, float | None], None]
    ) -> CallToolResult:
        """Call a tool. Raises `ConnectionLost`, or what the server answered instead of a result."""

        async def report(progress: float, total: float | None, message: str | None) -> None:
            on_progress(message or "", min(1.0, max(0.0, progress / total)) if total else None)

        return await self._answer(self._ready.result().call_tool(name, arguments, progress_callback=report))

    async def _answer(self, request: Awaitable[T]) -> T:
        """The answer to a request. Raises `ConnectionLost`, or what the server answered instead."""
        from mcp.shared.exceptions import MCPError

        self._in_flight += 1
        try:
            return await request
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


def _without_warning(request: Callable[[str], T], uri: str) -> T:
    """Call what the SDK deprecates: older servers know nothing else."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return request(uri)


def first_cause(error: BaseException | None) -> BaseException | None:
    """The first single exception in a group, or the exception itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def tool_called(request: Any) -> str:
    """The tool that an HTTP request calls, or "" if it calls none."""
    try:
        body = msgspec.json.decode(request.content)
    except (msgspec.DecodeError, RuntimeError, RecursionError):  # no body, or one that was streamed
        return ""
    called = body.get("params", {}).get("name") if isinstance(body, dict) and body.get("method") == "tools/call" else ""
    return called if isinstance(called, str) else ""


def http_status(code: int) -> str:
    """A status as a person reads it: `HTTP 401 Unauthorized`."""
    try:
        return f"HTTP {code} {HTTPStatus(code).phrase}"
    except ValueError:
        return f"HTTP {code}"


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
