"""`McpServers`: the MCP servers of a chat, as one source of tools that follows the settings without a restart.

Servers are started in the background when tools are first listed, and again after they ended: at most `RESTARTS` times in
`RESTART_WINDOW` seconds, then a server is reported as failed and its tools are withdrawn until a person starts it. A server that
cannot be used never prevents a turn. `revision` grows with every change, so that each registry lists the tools again before the
next round. A change of the settings file by another process is noticed there too.

Law L11: with `ask`, calls need a recorded approval like those of any tool; `never` withdraws the tool. Settings never decide a
call that is already pending.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from antiphon.errors import AntiphonError, InvalidTool
from antiphon.tools.registry import ToolLike
from antiphon.tools.tool import Effect, FunctionTool, Tool
from antiphon_chat.shared.mcp.settings import Approval, McpSettings, ServerChange, ServerSecrets, StoredServer

if TYPE_CHECKING:
    from antiphon.tools.mcp import McpServer

RESTARTS = 3
RESTART_WINDOW = 600.0
RESTART_DELAYS = (1.0, 5.0, 25.0)
CONNECT_SECONDS = 30.0

State = Literal["off", "unconfirmed", "starting", "running", "restarting", "failed", "idle"]


class ToolView(Struct, frozen=True):
    """A tool of a server, and whether its calls run. `approval` is empty where the server's setting applies."""

    name: str
    description: str
    effect: Effect
    approval: Approval | Literal[""] = ""


class ServerView(Struct, frozen=True, kw_only=True):
    """A server as it is shown: no secret is in it."""

    name: str
    kind: Literal["command", "address", "file"]
    where: str
    """The exact command, the address, or the file."""
    folder: str = ""
    variables: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    is_fixed: bool = False
    """Whether it was given on the command line, and cannot be changed here."""
    is_enabled: bool = True
    is_confirmed: bool = True
    digest: str = ""
    """What to send back to confirm the command."""
    approval: Approval | Literal[""] = ""
    state: State = "idle"
    error: str = ""
    restarts: int = 0
    tools: tuple[ToolView, ...] = ()


class ServerReport(Struct, frozen=True, kw_only=True):
    """What a test of a server found, or why it cannot be used."""

    tools: tuple[ToolView, ...] = ()
    resources: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    error: str = ""


class McpServers:
    """The servers of the settings in `folder`, and those of the command line among `fixed`. A `ToolSource`."""

    def __init__(
        self,
        folder: Path | None,
        fixed: Sequence[ToolLike] = (),
        *,
        restart_delays: Sequence[float] = RESTART_DELAYS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = McpSettings(folder)
        self._fixed = fixed
        self._delays = restart_delays
        self._clock = clock
        self._running: dict[str, _Running] = {}
        self._retired: set[asyncio.Task[None]] = set()
        """The ends of servers that only `aclose` waits for."""
        self._listed: dict[str, tuple[ToolView, ...]] = {}
        """The tools that a server had when it was last listed."""
        self._revision = 0
        self._is_open = False

    # The source of tools.

    @property
    def revision(self) -> int:
        """Grows when the tools may have changed."""
        if self._is_open:
            self._follow_file()
        return self._revision

    async def tools(self) -> Sequence[Tool]:
        """The tools that are available now; servers that are not started yet are started, and not waited for."""
        self._is_open = True
        self._reconcile()
        taken = {tool.name for tool in self._fixed if isinstance(tool, Tool)}
        return [tool for running in self._running.values() for tool in running.offered() if tool.name not in taken]

    async def wait_until_started(self, seconds: float) -> None:
        """Start the servers, and wait until each is up or has failed, at most this long."""
        self._is_open = True
        self._reconcile()
        if starting := [running.task for running in self._running.values() if running.task is not None]:
            await asyncio.wait(starting, timeout=seconds)

    async def aclose(self) -> None:
        """End the servers."""
        self._is_open = False
        running, self._running = list(self._running.values()), {}
        await asyncio.gather(*(one.stop() for one in running), *self._retired)

    # What a person sees and changes.

    def views(self) -> list[ServerView]:
        """All servers: those of the command line first."""
        self._follow_file()
        return [*self._fixed_views(), *map(self._view, self.settings.servers.values())]

    def view(self, name: str) -> ServerView:
        """A stored server. Raises `InvalidTool`."""
        return self._view(self.settings.get(name))

    def problems(self) -> list[ServerView]:
        """The servers that failed or are being restarted."""
        return [view for view in self.views() if view.state in ("failed", "restarting")]

    async def add(self, name: str, change: ServerChange) -> ServerView:
        """Store a server. Raises `InvalidTool`."""
        self._follow_file()
        if name in (view.name for view in self._fixed_views()):
            raise InvalidTool(f"the command line has an MCP server {name!r}; choose another name")
        self.settings.add(name, change)
        return await self._changed(name)

    async def change(self, name: str, change: ServerChange) -> ServerView:
        """Change a server; it is started, stopped or restarted as needed. Raises `InvalidTool`."""
        self._follow_file()
        before = self.settings.get(name)
        if change.enabled and not before.is_confirmed and not change.confirm:
            raise UnconfirmedCommand(before)
        self.settings.change(name, change)
        return await self._changed(name, is_retry=bool(change.enabled))

    async def remove(self, name: str) -> None:
        """Stop a server and remove it with its secrets. Raises `InvalidTool`."""
        self._follow_file()
        self.settings.remove(name)
        self._listed.pop(name, None)
        await self._stop(name)
        self._revision += 1

    async def test(self, name: str, confirm: str = "") -> ServerReport:
        """Connect to a server, list what it has, and keep it running only if it is enabled. Raises `InvalidTool`."""
        self._follow_file()
        if confirm and not self.settings.get(name).is_confirmed:
            self.settings.change(name, ServerChange(confirm=confirm))
        server = self.settings.get(name)
        if not server.is_confirmed:
            raise UnconfirmedCommand(server)
        if server.is_enabled:
            await self._changed(name, is_retry=name not in self._running or self._running[name].state != "running")
            running = self._running[name]
            return (
                await self._report(server, running.server) if not running.error else ServerReport(error=running.error)
            )
        tested = _make_server(server, self._secrets(name))
        try:
            return await self._report(server, tested)
        finally:
            await tested.aclose()

    async def _report(self, stored: StoredServer, server: McpServer) -> ServerReport:
        try:
            tools = _tool_views(stored, await server.tools())
            resources = tuple(one.uri for one in await server.resources())
            prompts = tuple(one.name for one in await server.prompts())
        except AntiphonError as error:
            return ServerReport(error=str(error))
        self._listed[stored.name] = tools
        return ServerReport(tools=tools, resources=resources, prompts=prompts)

    # Running servers.

    def _follow_file(self) -> None:
        if self.settings.reload():
            self._revision += 1
            if self._is_open:
                self._reconcile()

    def _reconcile(self) -> None:
        """Start what the settings want and stop what they do not want any more; nothing is waited for."""
        for name, running in list(self._running.items()):
            stored = self.settings.servers.get(name)
            if stored is None or not stored.is_enabled or not running.is_same(stored, self._secrets(name)):
                del self._running[name]
                self._retire(running)
            else:
                running.stored = stored
        fixed = {view.name for view in self._fixed_views()}
        for name, stored in self.settings.servers.items():
            if stored.is_enabled and stored.is_confirmed and name not in self._running and name not in fixed:
                self._running[name] = _Running(stored, self._secrets(name), self._on_change, self._delays, self._clock)

    async def _changed(self, name: str, *, is_retry: bool = False) -> ServerView:
        """Let a change take effect, and wait until a server that is started is up or has failed."""
        self._revision += 1
        self._is_open = True
        if is_retry and name in self._running and self._running[name].state != "running":
            await self._stop(name)
        self._reconcile()
        if name in self._running and (task := self._running[name].task) is not None:
            await asyncio.wait([task], timeout=CONNECT_SECONDS + 5)
        return self.view(name)

    async def _stop(self, name: str) -> None:
        if (running := self._running.pop(name, None)) is not None:
            await running.stop()

    def _retire(self, running: _Running) -> None:
        """Prevent every further start, and end it without waiting."""
        running.server.is_retired = True
        ending = asyncio.create_task(running.stop())
        self._retired.add(ending)
        ending.add_done_callback(self._retired.discard)

    def _on_change(self, running: _Running) -> None:
        if running.listed:
            self._listed[running.stored.name] = _tool_views(running.stored, running.listed)
        self._revision += 1

    def _secrets(self, name: str) -> ServerSecrets:
        return self.settings.secrets.get(name, ServerSecrets())

    def _view(self, stored: StoredServer) -> ServerView:
        running = self._running.get(stored.name)
        state: State = "idle" if running is None else running.state
        if not stored.is_confirmed:
            state = "unconfirmed"
        elif not stored.is_enabled:
            state = "off"
        known = self._listed.get(stored.name, ())
        return ServerView(
            name=stored.name,
            kind="command" if stored.command else "address",
            where=stored.command_line or stored.url + ("?…" if self._secrets(stored.name).query else ""),
            folder=stored.folder,
            variables=stored.variables,
            headers=stored.headers,
            is_enabled=stored.is_enabled,
            is_confirmed=stored.is_confirmed,
            digest=stored.digest,
            approval=stored.approval,
            state=state,
            error=running.error if running is not None else "",
            restarts=len(running.ends) if running is not None else 0,
            tools=tuple(
                ToolView(one.name, one.description, one.effect, stored.tools.get(one.name, "")) for one in known
            ),
        )

    def _fixed_views(self) -> Iterator[ServerView]:
        """The servers and files of the command line."""
        if not self._fixed:
            return
        from antiphon.tools.mcp import McpServer

        files: dict[str, list[Tool]] = {}
        for one in self._fixed:
            if isinstance(one, FunctionTool):
                code = getattr(one.function, "__code__", None)
                files.setdefault(code.co_filename if code else one.name, []).append(one)
            elif isinstance(one, McpServer):
                yield ServerView(
                    name=one.name,
                    kind="address" if one.where.startswith("http") else "command",
                    where=one.where,
                    is_fixed=True,
                    state="running" if one.is_connected else "idle",
                    tools=tuple(ToolView(tool.name, tool.description, tool.effect) for tool in one.listed),
                )
        for file, tools in files.items():
            views = tuple(ToolView(tool.name, tool.description, tool.effect) for tool in tools)
            yield ServerView(name=Path(file).name, kind="file", where=file, is_fixed=True, state="running", tools=views)


class UnconfirmedCommand(InvalidTool):
    """A command that its owner has not seen and confirmed yet."""

    def __init__(self, server: StoredServer) -> None:
        super().__init__(
            f"MCP server {server.name!r} runs this command on your machine; confirm it: {server.command_line}"
        )


class _Running:
    """One server, from its start until it is stopped. Its start and its restarts are tasks."""

    def __init__(
        self,
        stored: StoredServer,
        secrets: ServerSecrets,
        on_change: Callable[[_Running], None],
        delays: Sequence[float],
        clock: Callable[[], float],
    ) -> None:
        self.stored = stored
        self.server = _make_server(stored, secrets)
        self.server.on_disconnect = self._on_disconnect
        self.server.on_change = self._relist
        self.state: State = "starting"
        self.error = ""
        self.listed: Sequence[Tool] = ()
        self.ends: deque[float] = deque()
        """When it ended, within the window."""
        self._is_connecting = False
        self._secrets = secrets
        self._on_change = on_change
        self._delays = delays
        self._clock = clock
        self.task: asyncio.Task[None] | None = asyncio.create_task(self._start(0.0))

    def is_same(self, stored: StoredServer, secrets: ServerSecrets) -> bool:
        """Whether these settings start the same thing."""
        return (self.stored.digest, self.stored.url, self._secrets) == (stored.digest, stored.url, secrets)

    def offered(self) -> Iterator[Tool]:
        """The tools that a model may call. Their approval is that of the settings now."""
        if self.state == "failed":
            return
        for tool in self.listed:
            approval = self.stored.approval_of(tool.name)
            tool.needs_approval = approval != "allow"
            if approval != "never":
                yield tool

    async def stop(self) -> None:
        """End it."""
        self.server.is_retired = True
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait([self.task])
        await self.server.aclose()

    async def _start(self, delay: float) -> None:
        await asyncio.sleep(delay)
        self._is_connecting = True
        try:
            self.listed = await self.server.tools()
        except AntiphonError as error:
            self._on_end(str(error))
        else:
            self.state, self.error = "running", ""
            self.task = None
        finally:
            self._is_connecting = False
        self._on_change(self)

    def _on_disconnect(self) -> None:
        """The server died, or closed the connection. A start that fails is reported by the start."""
        if self.server.is_retired or self._is_connecting or self.state == "failed":
            return
        if self.task is not None:  # a call was faster than the restart, and it died again
            self.task.cancel()
        tail = self.server.stderr_tail()
        self._on_end(f"MCP server {self.stored.name!r} ended" + (f"; its last output: {tail}" if tail else ""))
        self._on_change(self)

    def _on_end(self, error: str) -> None:
        now = self._clock()
        self.ends.append(now)
        while self.ends[0] <= now - RESTART_WINDOW:
            self.ends.popleft()
        self.error = error
        if len(self.ends) > RESTARTS:
            self.state, self.task = "failed", None
            self._closing = asyncio.create_task(self.server.aclose())
            return
        self.state = "restarting"
        delay = self._delays[min(len(self.ends), len(self._delays)) - 1]
        self.task = asyncio.create_task(self._start(delay))

    def _relist(self) -> None:
        if self.task is None and not self.server.is_retired:
            self.task = asyncio.create_task(self._start(0.0))


def _make_server(stored: StoredServer, secrets: ServerSecrets) -> McpServer:
    from antiphon.tools.mcp import McpServer

    if stored.url:
        url = stored.url + (f"?{secrets.query}" if secrets.query else "")
        return McpServer.http(url, secrets.headers, name=stored.name, connect_timeout=CONNECT_SECONDS)
    program, *arguments = stored.command
    return McpServer.stdio(
        program,
        arguments,
        secrets.variables,
        stored.folder or None,
        name=stored.name,
        connect_timeout=CONNECT_SECONDS,
    )


def _tool_views(stored: StoredServer, tools: Sequence[Tool]) -> tuple[ToolView, ...]:
    return tuple(ToolView(tool.name, tool.description, tool.effect, stored.tools.get(tool.name, "")) for tool in tools)
