"""The MCP servers of a person's chat: what is stored about them, and the ones that run."""
