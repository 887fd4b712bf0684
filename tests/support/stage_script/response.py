"""Responses: `{"bot": model, "lines": [blocks], "end": why, "letters": [in, out]}`."""

from __future__ import annotations

from typing import Any

from antiphon.errors import WireError
from antiphon.parts import TokenUsage, ToolCallRequest
from antiphon.wire.loss import Losses
from antiphon.wire.output import ModelOutput
from antiphon.wire.tools.call_ids import CallIdTracker
from support.stage_script import FORMAT
from support.stage_script.request import read_line, write_line


def read_response(body: dict[str, Any]) -> ModelOutput:
    """The answer in a body."""
    if type(body.get("lines")) is not list:
        raise WireError("lines: expected an array")
    calls = CallIdTracker(body.get("bot", ""))
    parts = tuple(read_line(line, calls) for line in body["lines"])
    letters = body.get("letters", [0, 0])
    return ModelOutput(
        parts=parts,
        stop_reason="tool_calls" if any(type(part) is ToolCallRequest for part in parts) else "end",
        model=body.get("bot", ""),
        usage=TokenUsage(prompt_tokens=letters[0], completion_tokens=letters[1]),
        format=FORMAT,
    )


def write_response(output: ModelOutput, losses: Losses) -> dict[str, Any]:
    """The body of an answer."""
    del losses
    usage = output.usage or TokenUsage()
    letters = [usage.prompt_tokens, usage.completion_tokens]
    return {"bot": output.model, "lines": [write_line(part) for part in output.parts], "letters": letters}
