"""An MCP server with resources, prompts and a question to the user, run as a program: `resource_program.py FOLDER`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.prompts.base import AssistantMessage, Message, UserMessage
from mcp.server.mcpserver.resolve import Elicit, Resolve
from pydantic import BaseModel, Field

server = MCPServer("library", version="1")
folder = Path(sys.argv[1])


@server.resource("notes://today", name="today", description="What happens today.", mime_type="text/plain")
def today() -> str:
    return "Rain."


@server.resource("notes://picture", name="picture", mime_type="image/png")
def picture() -> bytes:
    return b"png"


@server.resource("notes://{day}/plan", name="plan")
def plan(day: str) -> str:
    return f"Plan of {day}."


@server.resource("notes://crash", name="crash")
def crash() -> str:
    """Die the first time it is read."""
    mark = folder / "crashed"
    if not mark.exists():
        mark.write_text("")
        os._exit(3)
    return "alive"


@server.prompt(description="Review a text.")
def review(text: str, tone: str = "kind") -> list[Message]:
    return [
        UserMessage(f"Review this in a {tone} tone: {text}"),
        AssistantMessage("I will."),
        UserMessage("Begin."),
    ]


@server.tool()
async def change(context: Context[Any, Any]) -> str:
    """Change what happens today."""
    await context.notify_resource_updated("notes://today")
    return "changed"


class Order(BaseModel):
    size: str = Field(default="small")
    cups: int = Field(default=1)


def ask_for_order() -> Elicit[Order]:
    return Elicit("How much coffee?", Order)


@server.tool()
async def order(answer: Annotated[ElicitationResult[Order], Resolve(ask_for_order)]) -> str:
    """Order coffee."""
    return f"{answer.data.cups} {answer.data.size}" if answer.action == "accept" else answer.action


if __name__ == "__main__":
    server.run("stdio")
