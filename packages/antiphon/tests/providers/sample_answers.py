"""The same short answer in each format, as a stream and as one body; and a call that collects what a client says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from antiphon.history import ContextEntry, ModelInputEntry
from antiphon.parts import Text
from antiphon.providers.call import ProviderCallOptions, ProviderClient
from antiphon.wire.delta import Assembler, Failed, ModelOutputDelta
from antiphon.wire.output import ProviderError

PRESET_OF = {
    "openai-chat": "openai",
    "openai-responses": "openai-responses",
    "anthropic": "anthropic",
    "gemini": "gemini",
    "gemini-interactions": "gemini-interactions",
}


def events(*bodies: dict[str, Any] | str, named: bool = False) -> bytes:
    """Server-sent events with these bodies."""
    out = b""
    for body in bodies:
        data = body.encode() if isinstance(body, str) else msgspec.json.encode(body)
        name = f"event: {body['type']}\n".encode() if named and isinstance(body, dict) else b""
        out += name + b"data: " + data + b"\n\n"
    return out


_ITEM = {"type": "message", "id": "i", "role": "assistant", "content": [{"type": "output_text", "text": "Rain."}]}

STREAMS = {
    "openai-chat": events(
        {"id": "c", "choices": [{"index": 0, "delta": {"content": "Ra"}}]},
        {"id": "c", "choices": [{"index": 0, "delta": {"content": "in."}, "finish_reason": "stop"}]},
        "[DONE]",
    ),
    "openai-responses": events(
        {"type": "response.created", "response": {"id": "r"}},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {"type": "message", "id": "i", "content": []},
        },
        {"type": "response.output_text.delta", "item_id": "i", "output_index": 0, "content_index": 0, "delta": "Rain."},
        {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": [_ITEM]}},
        named=True,
    ),
    "anthropic": events(
        {"type": "message_start", "message": {"id": "m", "content": [], "usage": {"input_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Rain."}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
        named=True,
    ),
    "gemini": events(
        {"candidates": [{"content": {"role": "model", "parts": [{"text": "Ra"}]}, "index": 0}]},
        {
            "candidates": [
                {"content": {"role": "model", "parts": [{"text": "in."}]}, "finishReason": "STOP", "index": 0}
            ]
        },
    ),
    "gemini-interactions": events(
        {"event_type": "interaction.created", "interaction": {"id": "v1_1", "status": "in_progress"}},
        {"event_type": "step.start", "index": 0, "step": {"type": "model_output"}},
        {"event_type": "step.delta", "index": 0, "delta": {"type": "text", "text": "Ra"}},
        {"event_type": "step.delta", "index": 0, "delta": {"type": "text", "text": "in."}},
        {"event_type": "step.stop", "index": 0},
        {"event_type": "interaction.completed", "interaction": {"id": "v1_1", "status": "completed"}},
        "[DONE]",
    ),
}

WHOLES: dict[str, dict[str, Any]] = {
    "openai-chat": {
        "id": "c",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Rain."}, "finish_reason": "stop"}],
    },
    "openai-responses": {"id": "r", "object": "response", "status": "completed", "error": None, "output": [_ITEM]},
    "anthropic": {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": "Rain."}],
        "stop_reason": "end_turn",
    },
    "gemini": {"candidates": [{"content": {"role": "model", "parts": [{"text": "Rain."}]}, "finishReason": "STOP"}]},
    "gemini-interactions": {
        "id": "v1_1",
        "status": "completed",
        "steps": [{"type": "model_output", "content": [{"type": "text", "text": "Rain."}]}],
    },
}

QUESTION: Sequence[ContextEntry] = (ModelInputEntry((Text("Is it raining?"),)),)


async def deltas_from(
    client: ProviderClient,
    options: ProviderCallOptions | None = None,
    context: Sequence[ContextEntry] = QUESTION,
) -> list[ModelOutputDelta]:
    """Every delta of a call."""
    return [delta async for delta in client.call_model(context, options or ProviderCallOptions(model="m"))]


def text_of(deltas: Sequence[ModelOutputDelta]) -> str:
    """The text of a finished answer."""
    assembler = Assembler()
    for delta in deltas:
        assembler.add(delta)
    assert assembler.is_finished, deltas
    return "".join(part.text for part in assembler.output.parts if isinstance(part, Text))


def error_of(deltas: Sequence[ModelOutputDelta]) -> ProviderError:
    """Why an answer failed."""
    last = deltas[-1]
    assert isinstance(last, Failed), deltas
    assert sum(isinstance(delta, Failed) for delta in deltas) == 1
    return last.error
