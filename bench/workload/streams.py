"""A long answer as each provider streams it: 2,000 events or more, nearly all of them one word, and a tool call at the end.

The same in every run. Most answers of an agent end with a call, and a stream with one takes other roads than text alone.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

EVENTS = 2_000
GEMINI_ARRAY = "gemini, as an array"
OBJECT_BORDER = b",\r\n"


def words_of(events: int) -> list[str]:
    """The words of a stream with that many events."""
    return [f"word{number} " for number in range(events - 10)]


WORDS = words_of(EVENTS)
CALLED = {"name": "weather", "call_id": "call_1"}
ARGUMENTS = ('{"city":', '"Oslo",', '"days":', "3}")


def streams(words: list[str] = WORDS) -> dict[str, bytes]:
    """The streams by format; Gemini's also as a JSON array."""
    chunks = _gemini(words)
    return {
        "openai-chat": _sent(_chat(words)) + b"data: [DONE]\n\n",
        "openai-responses": _named(_responses(words)),
        "anthropic": _named(_anthropic(words)),
        "gemini": _sent(chunks).replace(b"\n\n", b"\r\n\r\n"),
        "gemini-interactions": _sent(_interaction(words)) + b"data: [DONE]\n\n",
        GEMINI_ARRAY: b"[" + OBJECT_BORDER.join(json.dumps(chunk, indent=2).encode() for chunk in chunks) + b"\n]",
    }


def _sent(events: list[dict[str, Any]]) -> bytes:
    return b"".join(b"data: " + msgspec.json.encode(event) + b"\n\n" for event in events)


def _named(events: list[dict[str, Any]]) -> bytes:
    return b"".join(
        b"event: " + event["type"].encode() + b"\ndata: " + msgspec.json.encode(event) + b"\n\n" for event in events
    )


def _chat(words: list[str]) -> list[dict[str, Any]]:
    def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o"}
        return {**head, "choices": [choice]}

    return [
        chunk({"role": "assistant", "content": ""}),
        *(chunk({"content": word}) for word in words),
        *map(chunk, chat_call()),
        chunk({}, "tool_calls"),
    ]


def chat_call() -> list[dict[str, Any]]:
    """The deltas of a tool call, as OpenAI sends them."""
    started = {"index": 0, "id": CALLED["call_id"], "type": "function"}
    first = {**started, "function": {"name": CALLED["name"], "arguments": ""}}
    pieces = [{"index": 0, "function": {"arguments": piece}} for piece in ARGUMENTS]
    return [{"tool_calls": [fragment]} for fragment in (first, *pieces)]


def _interaction(words: list[str]) -> list[dict[str, Any]]:
    interaction = {"id": "v1_1", "object": "interaction", "model": "gemini-3.6-flash", "status": "in_progress"}
    usage = {"total_input_tokens": 10, "total_output_tokens": len(words), "total_tokens": 10 + len(words)}
    return [
        {"interaction": interaction, "event_type": "interaction.created"},
        {"index": 0, "step": {"type": "model_output"}, "event_type": "step.start"},
        *({"index": 0, "delta": {"type": "text", "text": word}, "event_type": "step.delta"} for word in words),
        {"index": 0, "event_type": "step.stop"},
        {
            "index": 1,
            "step": {"type": "function_call", "id": CALLED["call_id"], "name": CALLED["name"]},
            "event_type": "step.start",
        },
        *(
            {"index": 1, "delta": {"type": "arguments_delta", "arguments": piece}, "event_type": "step.delta"}
            for piece in ARGUMENTS
        ),
        {"index": 1, "event_type": "step.stop"},
        {
            "interaction": {**interaction, "status": "requires_action", "usage": usage},
            "event_type": "interaction.completed",
        },
    ]


def _responses(words: list[str]) -> list[dict[str, Any]]:
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    response = {"id": "resp_1", "object": "response", "created_at": 1, "model": "gpt-4o", "output": []}
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
    text_part = {"type": "output_text", "text": "".join(words), "annotations": []}
    whole = {**item, "status": "completed", "content": [text_part]}
    call = {"id": "fc_1", "type": "function_call", **CALLED, "arguments": "", "status": "in_progress"}
    called = {**call, "arguments": "".join(ARGUMENTS), "status": "completed"}
    call_place = {"item_id": "fc_1", "output_index": 1}
    usage = {"input_tokens": 10, "output_tokens": 2_000, "total_tokens": 2_010}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {**response, "status": "in_progress"}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.content_part.added", **place, "part": {**text_part, "text": ""}},
        *({"type": "response.output_text.delta", **place, "delta": word} for word in words),
        {"type": "response.output_text.done", **place, "text": text_part["text"]},
        {"type": "response.content_part.done", **place, "part": text_part},
        {"type": "response.output_item.done", "output_index": 0, "item": whole},
        {"type": "response.output_item.added", "output_index": 1, "item": call},
        *({"type": "response.function_call_arguments.delta", **call_place, "delta": piece} for piece in ARGUMENTS),
        {"type": "response.function_call_arguments.done", **call_place, "arguments": called["arguments"]},
        {"type": "response.output_item.done", "output_index": 1, "item": called},
        {
            "type": "response.completed",
            "response": {**response, "status": "completed", "output": [whole, called], "usage": usage},
        },
    ]
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def _anthropic(words: list[str]) -> list[dict[str, Any]]:
    message: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "claude"}
    usage = {"input_tokens": 10, "output_tokens": 1}
    return [
        {"type": "message_start", "message": {**message, "stop_reason": None, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}} for word in words),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "tool_use", "id": CALLED["call_id"], "name": CALLED["name"], "input": {}},
        },
        *(
            {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": piece}}
            for piece in ARGUMENTS
        ),
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 2_000}},
        {"type": "message_stop"},
    ]


def _gemini(words: list[str]) -> list[dict[str, Any]]:
    def chunk(part: dict[str, Any], count: int, **more: str) -> dict[str, Any]:
        content = {"parts": [part], "role": "model"}
        usage = {"promptTokenCount": 10, "candidatesTokenCount": count, "totalTokenCount": 10 + count}
        head = {"modelVersion": "gemini-2.5-flash", "responseId": "response-1"}
        return {"candidates": [{"content": content, **more, "index": 0}], "usageMetadata": usage, **head}

    call = {"functionCall": {"name": CALLED["name"], "args": msgspec.json.decode("".join(ARGUMENTS))}}
    return [
        *(chunk({"text": word}, count) for count, word in enumerate(words)),
        chunk(call, len(words)),
        chunk({"text": ""}, len(words), finishReason="STOP"),
    ]
