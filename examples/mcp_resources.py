"""MCP: tools, resources and prompts of a server, in one conversation. Run with `--serve`, this file is the server."""

from __future__ import annotations

import asyncio
import sys

import antiphon as ap


def serve() -> None:
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("notes")

    @server.resource("notes://today")
    def today() -> str:
        return "Buy lamps."

    @server.prompt()
    def summarize(topic: str) -> str:
        return f"Summarize my notes about {topic}."

    @server.tool()
    def count_words(text: str) -> int:
        "Count the words of a text."
        return len(text.split())

    server.run("stdio")


async def main() -> None:
    async with ap.McpServer.stdio(sys.executable, [__file__, "--serve"], name="notes") as notes:
        print("resources:", [resource.uri for resource in await notes.resources()])
        print("prompts:", [prompt.name for prompt in await notes.prompts()])
        model = ap.ScriptedModel(ap.call("notes__count_words", text="Buy lamps."), "Two words: buy lamps.")
        chat = ap.Conversation(model, tools=[notes])
        chat.add(*await notes.read_resource("notes://today"))
        chat.add(*await notes.get_prompt("summarize", {"topic": "shopping"}))
        print("answer:", (await ap.ToolLoop(chat).run("How long is it?")).text)
        for entry in chat.by_role("tool"):
            print("result:", *(part.result_markdown for part in entry.content if isinstance(part, ap.ToolCallResult)))


if __name__ == "__main__":
    serve() if "--serve" in sys.argv else asyncio.run(main())
