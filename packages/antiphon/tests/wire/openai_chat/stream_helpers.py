"""Streams of Chat Completions for tests: building, rewriting and checking them."""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.parts import (
    OutputPart,
    Source,
    Thinking,
    ToolCallRequest,
)
from antiphon.wire import format as wire_format
from antiphon.wire.delta import (
    ModelOutputDelta,
)
from antiphon.wire.output import ModelOutput
from antiphon.wire.provenance import spelling_in
from support.wire_formats import CHAT
from wire.openai_chat.bodies import FORMAT, chunk, event

StreamWriter = CHAT.stream_writer

DONE = event(b"[DONE]")

PNG = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


def stream(*chunks: Any, done: bool = True) -> bytes:
    return b"".join(map(event, chunks)) + (DONE if done else b"")


def without_spelling(output: ModelOutput) -> ModelOutput:
    """What rewriting a stream may change: which field reasoning comes in if it was Mistral's or OpenRouter's details."""
    parts: list[OutputPart] = []
    for part in output.parts:
        if isinstance(part, Thinking) and spelling_in(part, FORMAT)[:1] in (("thinking",), ("reasoning_details",)):
            part = msgspec.structs.replace(part, source=Source(FORMAT, ("reasoning_content",)))
        parts.append(part)
    others = tuple(map(without_spelling, output.others))
    return msgspec.structs.replace(output, parts=tuple(parts), others=others)


def rewritten(deltas: list[ModelOutputDelta]) -> tuple[bytes, wire_format.StreamWriter]:
    writer = StreamWriter()
    return b"".join(map(writer.write, deltas)) + writer.close(), writer


def call(name: str, call_id: str, arguments: str = "{}") -> ToolCallRequest:
    return ToolCallRequest(name, call_id, arguments)


def fragment(arguments: Any = "", name: Any = None, call_id: Any = None, index: Any = 0, **more: Any) -> dict[str, Any]:
    function = {} if name is None else {"name": name}
    piece: dict[str, Any] = {"function": {**function, "arguments": arguments}, **more}
    if index is not None:
        piece["index"] = index
    if call_id is not None:
        piece["id"] = call_id
    return piece


def calls(*fragments: dict[str, Any]) -> dict[str, Any]:
    return chunk({"tool_calls": list(fragments)})


USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
STOP = chunk({}, "stop")
