"""Asking a search tool, for its tests."""

from __future__ import annotations

import asyncio
from typing import Any

from antiphon.tools.context import ToolContext
from antiphon.tools.tool import Tool

KEY = "tvly-canary-0123456789abcdef"


async def asked(tool: Tool, query: str, **arguments: Any) -> str:
    text = await tool.run({"query": query, **arguments}, ToolContext())
    assert isinstance(text, str)
    return text


def ask(tool: Tool, query: str, **arguments: Any) -> str:
    return asyncio.run(asked(tool, query, **arguments))
