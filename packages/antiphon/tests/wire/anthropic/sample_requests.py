"""Messages, tools and helpers that the tests of Messages API requests share."""

from __future__ import annotations

from typing import Any

from antiphon.parts import (
    Part,
    Source,
    Text,
    Thinking,
    ToolCallRequest,
    ToolCallResult,
    ToolExecutionStatus,
)
from antiphon.wire import (
    Loss,
    Message,
    ModelRequest,
    ToolDefinition,
)
from antiphon.wire.format import WriteOptions
from support.wire_formats import ANTHROPIC
from wire.anthropic.bodies import (
    sent,
)

write_request = ANTHROPIC.write_request

NEW = "2026-10-21"

FAILED, SKIPPED = ToolExecutionStatus.FAILED, ToolExecutionStatus.SKIPPED

PNG = "iVBORw0KGgo="

MARK = {"cache_control": {"type": "ephemeral"}}

OWN = Source("anthropic")

ASK = Message("user", (Text("Is it raining in Oslo?"),))

ANSWER = Message("assistant", (Text("It is."),))

TOOL = ToolDefinition("weather", "Rain or not.", {"type": "object", "properties": {"city": {"type": "string"}}})

CALL = ToolCallRequest("weather", "toolu_1", '{"city":"Oslo"}')

RESULT = ToolCallResult("weather", "toolu_1", content=(Text("rain"),))

SIGNED = Thinking("Hm.", native={"anthropic": {"signature": "c2ln"}})


def request(*messages: Message, model: str = "claude-sonnet-4-5", **fields: Any) -> ModelRequest:
    return ModelRequest(messages=messages or (ASK,), model=model, **fields)


def written(wanted: ModelRequest, **options: Any) -> tuple[dict[str, Any], list[str]]:
    """The body as it is sent, and where something was lost."""
    losses: list[Loss] = []
    body = sent(write_request(wanted, losses, WriteOptions(**options)))
    return body, [loss.path for loss in losses]


def messages_of(*messages: Message, **fields: Any) -> tuple[Any, list[str]]:
    body, losses = written(request(*messages, **fields))
    return body["messages"], losses


def user(*parts: Part) -> Message:
    return Message("user", parts)


def model(*parts: Part) -> Message:
    return Message("assistant", parts)


def system(*parts: Part) -> Message:
    return Message("system", parts)


def text(words: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **fields}


SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "additionalProperties": False}

SERVER_CALL = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "rain"}}

PDF = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}

OLD, MIDDLE, LATE, LATEST, OTHER = (
    "claude-sonnet-4-5",
    "claude-opus-4-6",
    "claude-opus-4-8",
    "claude-fable-5",
    "kimi-k3",
)
