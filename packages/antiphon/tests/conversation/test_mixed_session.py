"""One history, three providers over real sockets: Anthropic plans, OpenAI executes, Gemini reviews (seed 003).

The upstream checks every request against the rules of its format, as the providers do, and answers with a stream in that format.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from antiphon.conversation import Agent, Conversation, ToolLoop, rounds_of
from antiphon.parts import OutputPart, Text, Thinking, ToolCallRequest
from antiphon.providers.http_provider import HttpProviderClient
from antiphon.providers.router import ProviderRouter
from antiphon.tools import tool
from antiphon.wire import ModelOutput, formats
from antiphon.wire.delta import deltas_from_output
from providers.scripted_server import Received, Reply, ScriptedServer
from support.planned_turns import refusals

PATHS = {
    "/v1/messages": "anthropic",
    "/v1/chat/completions": "openai-chat",
    "/v1beta/models/": "gemini",
}
SIGNED = Thinking("Oslo first.", native={"anthropic": {"signature": "c2lnbmVk"}})


@tool(effect="read")
async def weather(city: str) -> str:
    "Current weather in a city."
    return f"Rain in {city}, 7 °C"


class Upstream:
    """Answers each format from its own list of answers, and keeps what it was sent."""

    def __init__(self, **answers: Sequence[Sequence[OutputPart]]) -> None:
        self.sent: list[tuple[str, str]] = []
        self.refused: list[str] = []
        self._answers = {name.replace("_", "-"): list(given) for name, given in answers.items()}

    def __call__(self, request: Received) -> Reply:
        name = next(name for path, name in PATHS.items() if request.target.startswith(path))
        self.sent.append((name, request.body.decode()))
        found = re.search(r"models/([^:]+):", request.target)
        options: dict[str, Any] = {"model": found[1]} if found else {}
        violations = formats[name].check_request(msgspec.json.decode(request.body), **options)
        if violations:
            self.refused += map(str, violations)
            return Reply(status=400, body=b'{"error": {"message": "refused"}}', content_type="application/json")
        parts = tuple(self._answers[name].pop(0))
        stop = "tool_calls" if any(isinstance(part, ToolCallRequest) for part in parts) else "end"
        writer = formats[name].stream_writer("m")
        output = ModelOutput(parts=parts, stop_reason=stop)  # type: ignore[arg-type]
        body = b"".join(writer.write(delta) for delta in deltas_from_output(output, 5))
        return Reply(body=body + writer.close(), piece=60)


def router(server: ScriptedServer) -> ProviderRouter:
    return ProviderRouter(
        {
            "anthropic": HttpProviderClient("anthropic", base_url=server.url, keys=["a-key"]),
            "openai": HttpProviderClient("openai", base_url=f"{server.url}/v1", keys=["a-key"]),
            "gemini": HttpProviderClient("gemini", base_url=server.url, keys=["a-key"]),
        },
        roles={
            "planner": "anthropic/claude-sonnet-4-5",
            "executor": "openai/gpt-4o",
            "reviewer": "gemini/gemini-2.5-pro",
        },
    )


def test_claude_plans_openai_executes_gemini_reviews() -> None:
    upstream = Upstream(
        anthropic=[
            [SIGNED, Text("I look first."), ToolCallRequest("weather", "toolu_1", '{"city": "Oslo"}')],
            [SIGNED, Text("Plan: ask for Bergen and Tromsø.")],
            [Text("And that was all.")],
        ],
        openai_chat=[
            [
                Text("Two at once."),
                ToolCallRequest("weather", "call_1", '{"city": "Bergen"}'),
                ToolCallRequest("weather", "call_2", '{"city": "Tromsø"}'),
            ],
            [Text("Rain everywhere.")],
        ],
        gemini=[[ToolCallRequest("weather", "", '{"city": "Oslo"}')], [Text("Approved.")]],
    )

    async def session() -> Conversation:
        with ScriptedServer(upstream) as server:
            async with router(server) as provider:
                chat = Conversation(provider=provider, tools=[weather])
                agents = [
                    Agent("planner", "Plan.", model="planner"),
                    Agent("executor", "Do.", model="executor"),
                    Agent("reviewer", "Check.", model="reviewer"),
                ]
                follows = {"planner": "executor", "executor": "reviewer"}
                loop = ToolLoop(chat, agents=agents, route=lambda agent, _: follows.get(agent.name))
                result = await loop.run("Where does it rain?")
                assert (result.reason, result.text) == ("answered", "Approved.")
                chat.model = "anthropic/claude-sonnet-4-5"
                assert str(await ToolLoop(chat).run("Is that all?")) == "And that was all."
                return chat

    chat = asyncio.run(session())
    assert upstream.refused == []
    assert [name for name, _ in upstream.sent] == [
        "anthropic",
        "anthropic",
        "openai-chat",
        "openai-chat",
        "gemini",
        "gemini",
        "anthropic",
    ]
    assert [(played.agent, len(played.calls)) for played in rounds_of(chat.history.snapshot()) if played.number] == [
        ("planner", 1),
        ("planner", 0),
        ("executor", 2),
        ("executor", 0),
        ("reviewer", 1),
        ("reviewer", 0),
        ("", 0),
    ]
    last = upstream.sent[-1][1]
    for expected in ("I look first.", "Plan: ask", "Two at once.", "Rain in Tromsø", "Rain everywhere.", "Approved."):
        assert expected in last, "one history, every model"
    assert len({call.tool_call_id for entry in chat.messages for call in entry.tool_calls}) == 4
    assert refusals(chat.history.snapshot()) == []


def test_a_signature_goes_back_only_to_the_model_that_made_it() -> None:
    answers: list[list[OutputPart]] = [[SIGNED, Text("Hm."), ToolCallRequest("weather", "toolu_1", '{"city": "Oslo"}')]]
    answers += [[Text("It rains.")]] * 3
    upstream = Upstream(anthropic=answers, openai_chat=[[Text("So it does.")]])

    async def session() -> None:
        with ScriptedServer(upstream) as server:
            async with router(server) as provider:
                chat = Conversation("anthropic/claude-sonnet-4-5", provider=provider, tools=[weather])
                await ToolLoop(chat).run("Rain?")
                chat.model = "anthropic/claude-opus-4-1"
                await ToolLoop(chat).run("Sure?")
                assert any(loss.what == "signature" for loss in chat.report.losses), "what is not sent is reported"
                chat.model = "openai/gpt-4o"
                await ToolLoop(chat).run("Really?")
                chat.model = "anthropic/claude-sonnet-4-5"
                await ToolLoop(chat).run("And you?")

    asyncio.run(session())
    assert upstream.refused == []
    assert ["c2lnbmVk" in body for _, body in upstream.sent] == [False, True, False, False, True]
