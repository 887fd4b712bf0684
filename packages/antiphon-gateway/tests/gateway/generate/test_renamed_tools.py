"""Tools whose names the provider does not accept, with a client and a provider of one format: calls keep the client's names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import structs

from antiphon.parts import ToolCallRequest
from antiphon.wire.output import ModelOutput
from antiphon.wire.request import ModelRequest, ToolDefinition
from antiphon_gateway.access.client_keys import hash_key
from antiphon_gateway.config.settings import ClientKeySettings
from gateway.rig import Rig, rig
from gateway.strict_upstream import text_answer

NAME = "my.read_file"
PLAIN_KEY, STRICT_KEY = "sk-plain-0123456789abcdef", "sk-strict-0123456789abcdef"
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
FUNCTION = {"name": NAME, "parameters": SCHEMA}
BODIES: dict[str, dict[str, Any]] = {
    "openai-chat": {
        "messages": [{"role": "user", "content": "go"}],
        "tools": [{"type": "function", "function": FUNCTION}],
    },
    "openai-responses": {"input": "go", "tools": [{"type": "function", **FUNCTION}]},
    "anthropic": {
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "go"}],
        "tools": [{"name": NAME, "input_schema": SCHEMA}],
    },
    "gemini": {
        "contents": [{"role": "user", "parts": [{"text": "go"}]}],
        "tools": [{"functionDeclarations": [{"name": NAME, "parametersJsonSchema": SCHEMA}]}],
    },
}


@pytest.fixture(scope="module")
def gateway() -> Iterator[Rig]:
    keys = [
        ClientKeySettings(name="plain", key=hash_key(PLAIN_KEY)),
        ClientKeySettings(name="strict", key=hash_key(STRICT_KEY), strict=True),
    ]
    with rig(keys=keys) as running:
        yield running


def call_the_tool(request: ModelRequest) -> ModelOutput:
    """Calls the tool by the name that the provider knows."""
    (tool,) = request.tools
    assert isinstance(tool, ToolDefinition)
    call = ToolCallRequest(tool.name, "call_2", '{"path":"a.txt"}')
    return structs.replace(text_answer(""), parts=(call,), stop_reason="tool_calls")


def sent_name(gateway: Rig, format_name: str) -> str:
    upstream = gateway.upstreams[format_name]
    (tool,) = upstream.wire.read_request(upstream.bodies[-1]).tools
    assert isinstance(tool, ToolDefinition)
    return tool.name


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("format_name", BODIES)
def test_calls_come_back_under_the_name_of_the_client(gateway: Rig, format_name: str, streams: bool) -> None:
    gateway.clear()
    upstream = gateway.upstreams[format_name]
    upstream.answer = call_the_tool
    with gateway.client(PLAIN_KEY) as client:
        got = client.ask(format_name, f"to-{format_name}", BODIES[format_name], streams=streams)
    assert upstream.refused == []
    (call,) = got.output(format_name, streams=streams).parts
    assert isinstance(call, ToolCallRequest)
    assert (call.tool_name, call.arguments) == (NAME, '{"path":"a.txt"}')
    if format_name == "gemini":  # it accepts the name, so nothing was renamed
        assert sent_name(gateway, format_name) == NAME
        assert "x-antiphon-losses" not in got.headers
    else:
        assert sent_name(gateway, format_name) != NAME
        assert "tools[0].name" in got.headers["x-antiphon-losses"]


def test_renamed_response_keeps_the_id_of_the_provider(gateway: Rig) -> None:
    """The provider has the response, so a client continues it by the provider's id."""
    gateway.clear()
    with gateway.client(PLAIN_KEY) as client:
        got = client.ask("openai-responses", "to-openai-responses", BODIES["openai-responses"], streams=False)
    assert got.json["id"] == "resp_answer-1"


def test_strict_key_is_refused_instead(gateway: Rig) -> None:
    gateway.clear()
    with gateway.client(STRICT_KEY) as client:
        got = client.ask("openai-chat", "to-openai-chat", BODIES["openai-chat"], streams=False)
        translated = client.ask("gemini", "to-anthropic", BODIES["gemini"], streams=False)
    assert (got.status, translated.status) == (400, 422)
    assert NAME in translated.error("gemini").message
    assert gateway.upstreams["openai-chat"].refused, "the name was sent as it is, and the provider refused it"
