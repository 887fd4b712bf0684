"""The official openai SDK through the gateway, where an upstream lacks what the SDK relies on: namespaces, and call indexes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from antiphon.parts import ToolCallRequest
from antiphon.wire.output import ModelOutput
from antiphon.wire.request import ModelRequest, ToolDefinition
from gateway.rig import Rig, rig
from gateway.strict_upstream import USAGE
from gateway.test_sdks import openai_client
from providers.scripted_server import Reply

PARAMETERS = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
NAMESPACED: list[Any] = [
    {
        "type": "namespace",
        "name": "web",
        "description": "The web.",
        "tools": [{"type": "function", "name": "search", "parameters": PARAMETERS, "strict": False}],
    },
    {"type": "function", "name": "search", "parameters": PARAMETERS, "strict": False},
]


@pytest.fixture(scope="module")
def gateway() -> Iterator[Rig]:
    with rig() as running:
        yield running


def call_every_tool(request: ModelRequest) -> ModelOutput:
    calls = [
        ToolCallRequest(tool.name, f"toolu_{number}", '{"query": "rain"}')
        for number, tool in enumerate(request.tools)
        if isinstance(tool, ToolDefinition)
    ]
    return ModelOutput(parts=tuple(calls), stop_reason="tool_calls", id="a", model="m", usage=USAGE)


@pytest.mark.parametrize("streams", [False, True])
def test_namespaced_tools_of_a_responses_client_reach_claude_and_come_back(gateway: Rig, streams: bool) -> None:
    gateway.clear()
    upstream = gateway.upstreams["anthropic"]
    upstream.answer = call_every_tool
    asked: dict[str, Any] = {"model": "to-anthropic", "input": "Rain?", "tools": NAMESPACED}
    with openai_client(gateway) as client:
        if streams:
            (done,) = (
                event for event in client.responses.create(**asked, stream=True) if event.type == "response.completed"
            )
            response = done.response
        else:
            response = client.responses.create(**asked)
    assert upstream.refused == []
    (sent,) = upstream.bodies
    assert [tool["name"] for tool in sent["tools"]] == ["web__search", "search"]
    calls = [(item.name, getattr(item, "namespace", None), json.loads(item.arguments)) for item in response.output]
    assert calls == [("search", "web", {"query": "rain"}), ("search", None, {"query": "rain"})]


def mistral_stream(*deltas: dict[str, Any]) -> bytes:
    """Chat chunks with whole calls that have no index, as Mistral sends them."""
    last = len(deltas) - 1
    chunks = [
        {
            "id": "c",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "m",
            "choices": [{"index": 0, "delta": delta, "finish_reason": "tool_calls" if number == last else None}],
        }
        for number, delta in enumerate(deltas)
    ]
    return b"".join(b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks) + b"data: [DONE]\n\n"


def test_calls_without_an_index_are_read_by_the_sdk(gateway: Rig) -> None:
    gateway.clear()
    calls = [
        {
            "id": f"call{number:05}",
            "type": "function",
            "function": {"name": "search", "arguments": f'{{"query": "{number}"}}'},
        }
        for number in range(2)
    ]
    body = mistral_stream({"role": "assistant", "content": ""}, {"tool_calls": calls})
    gateway.upstreams["openai-chat"].faults.append(lambda _: Reply(body=body, piece=31))
    tools: list[Any] = [{"type": "function", "function": {"name": "search", "parameters": PARAMETERS}}]
    question: list[Any] = [{"role": "user", "content": "Rain?"}]
    with (
        openai_client(gateway) as client,
        client.chat.completions.stream(model="to-openai-chat", messages=question, tools=tools) as stream,
    ):
        message = stream.get_final_completion().choices[0].message
    assert [(call.id, call.function.arguments) for call in message.tool_calls] == [
        ("call00000", '{"query": "0"}'),
        ("call00001", '{"query": "1"}'),
    ]
