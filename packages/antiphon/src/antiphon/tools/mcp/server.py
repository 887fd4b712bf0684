"""`McpServer`: an MCP server as a source of tools, resources and prompts.

    registry = ToolRegistry([weather, McpServer.stdio("npx", ["-y", "some-server"], name="files")])

It is started or connected to when its tools are first requested, and again if it has died and one of its tools is called. Rules:

- A tool is offered as `name__tool`. Server names have no double underscore and no underscore at their end, so two tools
  never share a name; what is too long for a provider, or has letters it does not accept, gets another name that is as unique.
- The effect of a tool comes from its annotations: read-only is `read`, idempotent is `idempotent`, everything else
  `once`. They are the server's own claims. For a server you do not trust, set `effect="once"`, which overrides them.
- A call that was running when the server died is an error result that states whether it may have been done. A call that
  cannot have been done, or may be done twice, is made once more over a new connection.
- Resources and prompts are read by the application (`read_resource`, `get_prompt`); with `resource_tools` the model can list and
  read resources too.
- A started server gets its own small environment: what you give it and the few variables a program needs (PATH, HOME, …). What
  you give it, and the headers of a server that is reached, appear in no log, error or repr.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack
from urllib.parse import urlsplit

from antiphon.closing import AsyncClosable
from antiphon.errors import InvalidTool, McpUnavailable, ToolError
from antiphon.history import HistoryEntry
from antiphon.parts import ResultPart, ToolCallResult
from antiphon.providers.keys.secret import scrub_text
from antiphon.threads import Threads
from antiphon.tools.context import ToolContext
from antiphon.tools.mcp.connection import (
    Connection,
    ConnectionLost,
    OpenTransport,
    StderrLog,
    first_cause,
    http_status,
    tool_called,
)
from antiphon.tools.mcp.content import (
    ElicitationHandler,
    McpPrompt,
    McpResource,
    describe_resources,
    prompt_entries,
    resource_part,
    to_prompt,
    to_resource,
    to_result,
)
from antiphon.tools.tool import Effect, Tool, ToolSettings
from antiphon.wire.tools.names import safe_name

if TYPE_CHECKING:
    from httpx2 import Auth
    from mcp.types import Tool as McpTool

T = TypeVar("T")
logger = logging.getLogger("antiphon.tools.mcp")
_IMPORTS = Threads("import", workers=1, waiting=128)

LONGEST_NAME = 64
_SERVER_NAME = re.compile(r"[A-Za-z](?:_?[A-Za-z0-9-])*")
_LEGAL = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
# The messages of the SDK that replace the response's status.
_SDK_FILLERS = frozenset({"Server returned an error response", "Not Found"})


CONNECT_TIMEOUT = 30.0


class McpSettings(ToolSettings, total=False):
    """How a server is used; those of `ToolSettings` hold for all its tools.

    `connect_timeout` is in seconds. `approve_destructive` lets a person decide about tools not marked as harmless. `on_change` is
    called when the server reports that its tools have changed. `on_elicitation` answers what the server asks the user while a
    tool runs; without it the server is not offered that. `resource_tools` adds two tools with which the model lists and reads
    resources.
    """

    connect_timeout: float
    approve_destructive: bool
    on_change: Callable[[], None] | None
    on_elicitation: ElicitationHandler | None
    resource_tools: bool


class McpServer(AsyncClosable):
    """An MCP server whose tools are offered. Make one with `stdio` or `http`; it is a `ToolSource`.

    `revision` counts the server's reports that its tools have changed, and `has_changed` is true until they are listed again.
    """

    def __init__(
        self,
        open_transport: OpenTransport,
        *,
        name: str,
        where: str,
        secrets: Sequence[str] = (),
        **settings: Unpack[McpSettings],
    ) -> None:
        check_server_name(name)
        self.name = name
        self.revision = 0
        """How often the server reported that its tools have changed."""
        self._listed_revision = 0
        self.on_change = settings.pop("on_change", None)
        self.on_disconnect: Callable[[], None] | None = None
        """Called when a connection that was up ended, other than by `aclose`: a server that died, or closed it."""
        self.is_retired = False
        """Whether it must not be started or reached any more."""
        self.where = where
        """What is started or reached, without credentials."""
        self.listed: Sequence[Tool] = ()
        """The tools it had when they were last listed."""
        self._on_elicitation = settings.pop("on_elicitation", None)
        self._resource_tools = settings.pop("resource_tools", False)
        self._subscribers: dict[str, list[Callable[[str], None]]] = {}
        self._open_transport = open_transport
        self._secrets = tuple(secrets)
        self._connect_timeout = settings.pop("connect_timeout", CONNECT_TIMEOUT)
        self._approve_destructive = settings.pop("approve_destructive", False)
        self._settings: ToolSettings = settings
        self._connection: Connection | None = None
        self._is_closed = False
        self._connecting = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._last_words: Callable[[], str] | None = None
        # The SDK's errors do not name the status of the HTTP response. By the tool that was called, "" for other requests.
        self._http_failures: dict[str, str] = {}

    @classmethod
    def stdio(
        cls,
        command: str,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        *,
        name: str,
        **settings: Unpack[McpSettings],
    ) -> McpServer:
        """A server that is started as a program and spoken to over its input and output."""
        if isinstance(args, str):
            raise InvalidTool(f"MCP server {name!r} has args={args!r}; expected a list of arguments")
        given = dict(env or {})
        server: McpServer

        @asynccontextmanager
        async def transport() -> AsyncIterator[tuple[Any, Any]]:
            from mcp import StdioServerParameters, stdio_client

            error_output = StderrLog(name, server._mask)
            server._last_words = error_output.tail
            parameters = StdioServerParameters(command=command, args=list(args), env=given, cwd=cwd)
            try:
                async with stdio_client(parameters, errlog=error_output.file) as streams:
                    error_output.close()  # the server has its own end by now
                    yield streams
            finally:
                error_output.close()

        server = cls(
            transport,
            name=name,
            where=f"the program {command!r}",
            secrets=list(given.values()),
            **settings,
        )
        return server

    @classmethod
    def http(
        cls,
        url: str,
        headers: Mapping[str, str] | None = None,
        *,
        name: str,
        auth: Auth | None = None,
        **settings: Unpack[McpSettings],
    ) -> McpServer:
        """A server that is reached over streamable HTTP. Credentials belong in `headers`.

        `auth` authorizes requests in another way, such as the SDK's `OAuthClientProvider`.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise McpUnavailable(f"MCP server {name!r} needs an http or https URL, such as http://127.0.0.1:8000/mcp")
        given = dict(headers or {})
        server: McpServer

        async def note_failure(response: Any) -> None:
            if not response.is_success:
                server._http_failures[tool_called(response.request)] = http_status(response.status_code)

        @asynccontextmanager
        async def transport() -> AsyncIterator[tuple[Any, Any]]:
            import httpx2
            from mcp.client.streamable_http import streamable_http_client

            # The tool's timeout limits how long an answer may take.
            timeout = httpx2.Timeout(settings.get("connect_timeout", CONNECT_TIMEOUT), read=None)
            hooks = {"response": [note_failure]}
            async with (
                httpx2.AsyncClient(headers=given, timeout=timeout, event_hooks=hooks, auth=auth) as client,
                streamable_http_client(url, http_client=client) as streams,
            ):
                yield streams

        port = f":{parts.port}" if parts.port else ""
        server = cls(
            transport,
            name=name,
            # A URL may carry credentials, in its query or before its host.
            where=f"{parts.scheme}://{parts.hostname}{port}{parts.path}",
            secrets=[*given.values(), *(word for value in given.values() for word in value.split()), parts.query],
            **settings,
        )
        return server

    async def tools(self) -> Sequence[Tool]:
        """The tools the server has now. Raises `McpUnavailable` if it cannot be started or reached."""
        await self._get_connection()
        revision = self.revision
        listed = await self._ask("list its tools", lambda link: link.list_tools())
        tools: list[Tool] = []
        for one in listed:
            try:
                tools.append(self._tool(one))
            except InvalidTool as error:
                logger.warning("MCP server %s offers a tool that cannot be used: %s", self.name, error)
        if self._resource_tools:
            tools += self._tools_for_resources({one.name for one in listed})
        self.listed, self._listed_revision = tools, revision
        return tools

    async def resources(self) -> Sequence[McpResource]:
        """The resources the server has now, and its templates. Raises `McpUnavailable`."""
        return [to_resource(one) for one in await self._ask("list its resources", lambda link: link.list_resources())]

    async def read_resource(self, uri: str) -> tuple[ResultPart, ...]:
        """The content of a resource as parts, to be sent to a model: `chat.add(*await server.read_resource(uri))`."""
        read = await self._ask(f"read the resource {uri}", lambda link: link.read_resource(uri))
        return tuple(resource_part(content) for content in read.contents)

    async def subscribe(self, uri: str, on_update: Callable[[str], None]) -> None:
        """Call `on_update` with the address when the resource changes, until `unsubscribe`; after a reconnection too."""
        if uri not in self._subscribers:
            await self._ask(f"report changes of {uri}", lambda link: link.watch(uri))
        self._subscribers.setdefault(uri, []).append(on_update)

    async def unsubscribe(self, uri: str) -> None:
        """Undo every `subscribe` for this address."""
        if self._subscribers.pop(uri, None) is not None:
            await self._ask(f"stop reporting changes of {uri}", lambda link: link.unwatch(uri))

    async def prompts(self) -> Sequence[McpPrompt]:
        """The prompts the server has prepared. Raises `McpUnavailable`."""
        return [to_prompt(one) for one in await self._ask("list its prompts", lambda link: link.list_prompts())]

    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> tuple[HistoryEntry, ...]:
        """A prompt with its arguments filled in, as entries: `chat.add(*await server.get_prompt("review"))`."""
        prompt = await self._ask(f"give the prompt {name}", lambda link: link.get_prompt(name, arguments or {}))
        return prompt_entries(prompt)

    async def _ask(self, what: str, request: Callable[[Connection], Awaitable[T]]) -> T:
        """The answer to a request that changes nothing: it is made once more if the connection is lost."""
        is_second_try = False
        while True:
            connection = await self._get_connection()
            try:
                return await request(connection)
            except ConnectionLost:
                if is_second_try:
                    raise McpUnavailable(
                        f"The connection to MCP server {self.name!r} was lost twice; it did not {what}"
                    ) from None
                is_second_try = True
            except Exception as error:  # whatever a foreign server answers
                raise McpUnavailable(f"MCP server {self.name!r} did not {what}: {self._words(error)}") from None

    def _tools_for_resources(self, taken: set[str]) -> list[Tool]:
        async def list_resources(_: dict[str, Any], __: ToolContext) -> str:
            return describe_resources(list(await self._as_tool(self.resources())))

        async def read_resource(arguments: dict[str, Any], _: ToolContext) -> ToolCallResult:
            return ToolCallResult("", "", content=await self._as_tool(self.read_resource(str(arguments["uri"]))))

        uri = {"type": "string", "description": "The address of a resource, as the list shows it."}
        reading = {"type": "object", "properties": {"uri": uri}, "required": ["uri"]}
        settings: ToolSettings = {**self._settings, "effect": "read", "needs_approval": False}
        return [
            Tool.from_schema(
                tool_name(self.name, name if name not in taken else f"{name}_of_server"),
                about,
                schema,
                handler,
                **settings,
            )
            for name, about, schema, handler in (
                ("list_resources", f"List what can be read from {self.name}.", {"type": "object"}, list_resources),
                ("read_resource", f"Read a resource of {self.name}.", reading, read_resource),
            )
        ]

    @staticmethod
    async def _as_tool(answer: Awaitable[T]) -> T:
        try:
            return await answer
        except McpUnavailable as error:
            raise ToolError(str(error)) from None

    @property
    def has_changed(self) -> bool:
        """Whether the server reported a change of its tools after they were last listed."""
        return self.revision != self._listed_revision

    @property
    def is_connected(self) -> bool:
        """Whether there is a live connection now."""
        return self._connection is not None and self._connection.is_alive

    def stderr_tail(self) -> str:
        """The last lines that a started server wrote to its standard error; call it when the server is gone."""
        return self._last_words() if self._last_words is not None else ""

    async def aclose(self) -> None:
        """End the connection; a started server is ended too. It is made again if a tool is called."""
        self._is_closed = True
        await self._disconnect()

    async def _disconnect(self) -> None:
        connection = self._connection
        if connection is not None:
            await connection.close()  # each caller waits for the end
            if self._connection is connection:
                self._connection = None

    def _tool(self, listed: McpTool) -> Tool:
        hints = listed.annotations
        is_read_only = bool(hints and hints.read_only_hint)
        hinted: Effect = "read" if is_read_only else "idempotent" if hints and hints.idempotent_hint else "once"
        settings = self._settings.copy()
        effect = settings.setdefault("effect", hinted)
        if effect == "once":  # such a tool is neither tried again nor remembered, whatever holds for the others
            settings.pop("retries", None)
            settings.pop("cache_seconds", None)
        else:
            settings.pop("reconcile", None)
        # The protocol: a tool is destructive unless it is marked as not.
        is_destructive = not is_read_only and not (hints and hints.destructive_hint is False)
        if self._approve_destructive and is_destructive:
            settings.setdefault("needs_approval", True)

        async def handler(arguments: dict[str, Any], context: ToolContext) -> ToolCallResult:
            return await self._call(listed.name, effect, arguments, context)

        description = listed.description or listed.title or (hints.title if hints else None) or ""
        return Tool.from_schema(
            tool_name(self.name, listed.name), description, dict(listed.input_schema), handler, **settings
        )

    async def _call(self, name: str, effect: Effect, arguments: dict[str, Any], context: ToolContext) -> ToolCallResult:
        is_second_try = False
        while True:
            try:
                connection = await self._get_connection()
                return to_result(await connection.call(name, arguments, context.progress))
            except McpUnavailable as error:
                raise ToolError(str(error)) from None
            except ConnectionLost as lost:
                if not self._is_closed and not is_second_try and (effect != "once" or not lost.was_sent):
                    is_second_try = True
                    continue
                raise ToolError(self._connection_lost_message(name, effect, lost)) from None
            except Exception as error:  # a protocol error, or an answer the SDK cannot make sense of
                logger.info("MCP server %s failed at %s: %s", self.name, name, type(error).__name__)
                raise ToolError(
                    f"MCP server {self.name!r} could not answer {name}: {self._words(error, name)}", retry=False
                ) from None

    def _connection_lost_message(self, name: str, effect: Effect, lost: ConnectionLost) -> str:
        words = f"The connection to MCP server {self.name!r} was lost while it ran {name}."
        if effect == "once" and lost.was_sent:
            return f"{words} It is not known whether it was done; it may have been, in part or as a whole."
        return f"{words} It may be called again."

    async def _get_connection(self) -> Connection:
        """A live connection, the one there is or a new one."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            # A connection lives and dies with the event loop it was made in.
            self._loop, self._connection, self._connecting = loop, None, asyncio.Lock()
        if self.is_retired:
            raise McpUnavailable(f"MCP server {self.name!r} was switched off or removed")
        self._is_closed = False
        async with self._connecting:
            if self._connection is None or not self._connection.is_alive:
                await self._disconnect()
                self._connection = await self._connect()
            return self._connection

    async def _connect(self) -> Connection:
        try:
            # The first import takes a second or two and must not block the event loop.
            await _IMPORTS.run(import_module, "mcp")
        except ImportError:
            raise McpUnavailable(
                f"MCP server {self.name!r} needs the MCP SDK; install it with: pip install 'antiphon[mcp]'"
            ) from None
        self._http_failures.clear()
        connection = Connection(
            self._open_transport,
            self._on_tools_changed,
            self._on_updated,
            self._on_elicitation,
            self._on_connection_end,
        )
        try:
            await connection.open(self._connect_timeout)
        except Exception as error:  # from no such program to no such protocol
            stderr = self.stderr_tail()
            raise McpUnavailable(
                f"MCP server {self.name!r} ({self.where}) cannot be used: {self._words(error)}"
                + (f"\nIt said: {stderr}" if stderr else "")
            ) from None
        for uri in self._subscribers:
            try:
                await connection.watch(uri)
            except Exception as error:  # a server that started again may not have it any more
                logger.warning("MCP server %s does not report changes of %s: %s", self.name, uri, self._words(error))
        return connection

    def _on_connection_end(self) -> None:
        if not self._is_closed and self.on_disconnect is not None:
            self.on_disconnect()

    def _on_updated(self, uri: str) -> None:
        for on_update in self._subscribers.get(uri, ()):
            try:
                on_update(uri)
            except Exception:
                logger.exception("on_update of %s, a resource of MCP server %s, failed", uri, self.name)

    def _on_tools_changed(self) -> None:
        self.revision += 1
        if self.on_change is None:
            return
        try:
            self.on_change()
        except Exception:
            logger.exception("on_change of MCP server %s failed", self.name)

    def _words(self, error: BaseException, tool: str = "") -> str:
        cause = first_cause(error) or error
        words = self._mask(str(cause)) or type(cause).__name__
        status = self._http_failures.pop(tool, "")
        if not status:
            return words
        return status if words in _SDK_FILLERS else f"{status}: {words}"

    def _mask(self, text: str) -> str:
        return scrub_text(text, self._secrets)

    def __repr__(self) -> str:
        return f"<McpServer {self.name} at {self.where}>"


def check_server_name(name: str) -> None:
    """Raise `InvalidTool` if a server cannot have this name."""
    if len(name) > LONGEST_NAME // 2 or not _SERVER_NAME.fullmatch(name):
        raise InvalidTool(
            f"an MCP server cannot be called {name!r}: its name begins the names of its tools, so it has a letter, then "
            f"letters, digits, hyphens and single underscores, and at most {LONGEST_NAME // 2} of them"
        )


def tool_name(server: str, tool: str) -> str:
    """The name under which a server's tool is offered: legal for every provider, and no other tool's."""
    name = f"{server}__{tool}"
    return name if len(name) <= LONGEST_NAME and _LEGAL.fullmatch(name) else safe_name(name, LONGEST_NAME)
