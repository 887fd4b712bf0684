"""MCP servers as sources of tools (the extra `mcp`, on the official SDK).

server      `McpServer`: what is offered, under which names, with which effects
connection  one live connection and the task that owns it
content     what a server answered, as parts
stderr      what a started server says on the side
"""

from antiphon.tools.mcp.server import McpServer

__all__ = ["McpServer"]
