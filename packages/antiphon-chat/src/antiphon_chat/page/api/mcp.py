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


async def list_servers(request: ChatRequest) -> Response:
    """All servers; those that are switched on are started."""
    servers = _servers_of(request)
    await servers.wait_until_started(0.0)
    return _answer(servers)


async def add_server(request: ChatRequest) -> Response:
    """Store a server; a command is not run before it is confirmed."""
    servers = _servers_of(request)
    given = request.read(NewServer)
    await servers.add(given.name, given)
    return _answer(servers, 201)


async def change_server(request: ChatRequest) -> Response:
    """Change a server, switch it on or off, or set which of its calls need approval."""
    servers = _servers_of(request, request.id)
    await servers.change(request.id, request.read(ServerChange))
    return _answer(servers)


async def test_server(request: ChatRequest) -> Response:
    """Connect to a server and report what it has."""
    servers = _servers_of(request, request.id)
    report = await servers.test(request.id, request.read(Confirmation).confirm)
    return Response.json({"report": report, "servers": servers.views()})


async def remove_server(request: ChatRequest) -> Response:
    """Stop and remove a server."""
    servers = _servers_of(request, request.id)
    await servers.remove(request.id)
    return _answer(servers)


def _answer(servers: McpServers, status: int = 200) -> Response:
    return Response.json({"servers": servers.views()}, status)


def _servers_of(request: ChatRequest, name: str = "") -> McpServers:
    """The servers, where they can be changed; with a `name`, if that is one of the settings."""
    servers = request.chat.mcp
    if servers is None:
        raise ApiError("this page cannot change MCP servers; only the owner's `antiphon chat` can", 403, "forbidden")
    if name and name not in servers.settings.servers:
        raise ApiError(f"no MCP server {name[:40]!r} in the settings", 404, "not_found")
    return servers
