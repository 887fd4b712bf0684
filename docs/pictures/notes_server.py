"""A small MCP server for the picture of the settings page: notes that are kept while it runs."""

from __future__ import annotations

from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations

server = MCPServer("notes", version="1")
notes: list[str] = []


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def list_notes() -> list[str]:
    """List all notes."""
    return notes


@server.tool()
def add_note(text: str) -> str:
    """Add a note."""
    notes.append(text)
    return "added"


@server.tool()
def delete_notes() -> str:
    """Delete all notes."""
    notes.clear()
    return "deleted"


if __name__ == "__main__":
    server.run("stdio")
