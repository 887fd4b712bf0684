"""API handlers for the MCP servers of this machine's owner.

A server may be a command that runs on this machine, so the handlers work only where the chat has `McpServers`: `chat --web` has
them and serves this machine alone; the page of a gateway has none. Changes come from our own page only (`access.py`), and a
command is run only after its exact text was shown and its digest sent back. No response has a secret.
"""

from __future__ import annotations

from msgspec import Struct

from antiphon.http.messages import Response
from antiphon_chat.page.request import ApiError, ChatRequest
from antiphon_chat.shared.mcp.servers import McpServers
from antiphon_chat.shared.mcp.settings import ServerChange


class NewServer(ServerChange, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server, as the page sends it."""

    name: str

    def __repr__(self) -> str:
        return f"NewServer({self.name!r})"


class Confirmation(Struct, frozen=True, forbid_unknown_fields=True):
    """The digest of the command that was shown; empty if it was confirmed before."""

    confirm: str = ""


class McpApi:
    """Handles requests about MCP servers."""

    def __init__(self, servers: McpServers | None) -> None:
        self._servers = servers

    async def list(self, request: ChatRequest) -> Response:  # noqa: ARG002 - the signature of all handlers
        """All servers; those that are switched on are started."""
        servers = self._required()
        await servers.wait_until_started(0.0)
        return self._answer(servers)

    async def add(self, request: ChatRequest) -> Response:
        """Store a server; a command is not run before it is confirmed."""
        servers = self._required()
        given = request.read(NewServer)
        await servers.add(given.name, given)
        return self._answer(servers, 201)

    async def change(self, request: ChatRequest) -> Response:
        """Change a server, switch it on or off, or set which of its calls need approval."""
        servers = self._known(request)
        await servers.change(request.id, request.read(ServerChange))
        return self._answer(servers)

    async def test(self, request: ChatRequest) -> Response:
        """Connect to a server and report what it has."""
        servers = self._known(request)
        report = await servers.test(request.id, request.read(Confirmation).confirm)
        return Response.json({"report": report, "servers": servers.views()})

    async def remove(self, request: ChatRequest) -> Response:
        """Stop and remove a server."""
        servers = self._known(request)
        await servers.remove(request.id)
        return self._answer(servers)

    def _answer(self, servers: McpServers, status: int = 200) -> Response:
        return Response.json({"servers": servers.views()}, status)

    def _known(self, request: ChatRequest) -> McpServers:
        servers = self._required()
        if request.id not in servers.settings.servers:
            raise ApiError(f"no MCP server {request.id[:40]!r} in the settings", 404, "not_found")
        return servers

    def _required(self) -> McpServers:
        if self._servers is None:
            raise ApiError(
                "this page cannot change MCP servers; only the owner's `antiphon chat` can", 403, "forbidden"
            )
        return self._servers
