"""MCP servers as sources of tools, resources and prompts (the extra `mcp`, on the official SDK).

server      `McpServer`: what is offered, under which names, with which effects
connection  one live connection and the task that owns it; the end of a started server's stderr
content     answers, resources, prompts and questions in our own types
"""

from antiphon.tools.mcp.content import McpElicitation, McpPrompt, McpResource
from antiphon.tools.mcp.server import McpServer

__all__ = ["McpElicitation", "McpPrompt", "McpResource", "McpServer"]
