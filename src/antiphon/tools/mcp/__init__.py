"""MCP servers as sources of tools (the extra `mcp`, on the official SDK).

server      `McpServer`: what is offered, under which names, with which effects
connection  one live connection and the task that owns it; answers as parts; the end of a started server's stderr
"""

from antiphon.tools.mcp.server import McpServer

__all__ = ["McpServer"]
