"""Messages and helpers that the tests of Chat Completions requests share."""

from __future__ import annotations

from typing import Any

from antiphon.parts import (
    Text,
    ToolCallRequest,
    ToolCallResult,
    ToolExecutionStatus,
)
from antiphon.wire.format import WriteOptions
from antiphon.wire.loss import Loss
from antiphon.wire.openai_chat.dialects import Dialect
from antiphon.wire.request import Message, ModelRequest
from support.wire_formats import CHAT
from wire.openai_chat.bodies import encoded

write_request = CHAT.write_request

FAILED = ToolExecutionStatus.FAILED

PNG = "data:image/png;base64,iVBORw0KGgo="

USER = Message("user", (Text("hi"),))


def written(request: ModelRequest, dialect: str | Dialect = "openai") -> tuple[dict[str, Any], list[Loss]]:
    losses: list[Loss] = []
    return encoded(write_request(request, losses, WriteOptions(dialect=dialect))), losses


def messages_of(*messages: Message, dialect: str = "openai") -> tuple[list[Any], list[Loss]]:
    body, losses = written(ModelRequest(messages=messages), dialect)
    return body["messages"], losses


CALLED = (Message("assistant", (ToolCallRequest("look", "c1"),)), Message("tool", (ToolCallResult("look", "c1"),)))
