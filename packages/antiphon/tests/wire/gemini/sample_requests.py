"""Messages and helpers that the tests of Gemini requests share."""

from __future__ import annotations

from typing import Any

from antiphon.parts import (
    Part,
    Text,
    ToolCallResult,
    ToolExecutionStatus,
)
from antiphon.wire.format import WriteOptions
from antiphon.wire.loss import Loss
from antiphon.wire.request import Message, ModelRequest
from support.wire_formats import GEMINI
from wire.gemini.bodies import decoded

read_request = GEMINI.read_request
write_request = GEMINI.write_request

FAILED = ToolExecutionStatus.FAILED


def write(request: ModelRequest, **options: Any) -> tuple[dict[str, Any], list[Loss]]:
    losses: list[Loss] = []
    return decoded(write_request(request, losses, WriteOptions(**options))), losses


def written(*messages: Message, **options: Any) -> list[Any]:
    contents: list[Any] = write(ModelRequest(messages=messages), **options)[0]["contents"]
    return contents


def user(*parts: Part | str) -> Message:
    return Message("user", tuple(Text(part) if isinstance(part, str) else part for part in parts))


def model(*parts: Part | str) -> Message:
    return Message("assistant", tuple(Text(part) if isinstance(part, str) else part for part in parts))


def tool(*results: ToolCallResult) -> Message:
    return Message("tool", results)


def read_parts(*parts: Any, role: str = "user") -> tuple[Part, ...]:
    return read_request({"contents": [{"role": role, "parts": list(parts)}]}).messages[0].parts
