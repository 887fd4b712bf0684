"""A long answer as each provider streams it: 2,000 events, nearly all of them a word. The same in every run."""

from __future__ import annotations

import json
from typing import Any

import msgspec

EVENTS = 2_000
WORDS = [f"word{number} " for number in range(EVENTS - 10)]
GEMINI_ARRAY = "gemini, as an array"
OBJECT_BORDER = b",\r\n"


def streams() -> dict[str, bytes]:
    """The streams by the name of their format; Gemini's in both of its forms."""
    return {
        "openai-chat": _sent(_chat()) + b"data: [DONE]\n\n",
        "openai-responses": _named(_responses()),
        "anthropic": _named(_anthropic()),
        "gemini": _sent(_gemini()).replace(b"\n\n", b"\r\n\r\n"),
        GEMINI_ARRAY: b"[" + OBJECT_BORDER.join(json.dumps(chunk, indent=2).encode() for chunk in _gemini()) + b"\n]",
    }


def _sent(events: list[dict[str, Any]]) -> bytes:
    return b"".join(b"data: " + msgspec.json.encode(event) + b"\n\n" for event in events)


def _named(events: list[dict[str, Any]]) -> bytes:
    return b"".join(
        b"event: " + event["type"].encode() + b"\ndata: " + msgspec.json.encode(event) + b"\n\n" for event in events
    )


def _chat() -> list[dict[str, Any]]:
    def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o"}
        return {**head, "choices": [choice]}

    return [
        chunk({"role": "assistant", "content": ""}),
        *(chunk({"content": word}) for word in WORDS),
        chunk({}, "stop"),
    ]


def _responses() -> list[dict[str, Any]]:
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    response = {"id": "resp_1", "object": "response", "created_at": 1, "model": "gpt-4o", "output": []}
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
    said = {"type": "output_text", "text": "".join(WORDS), "annotations": []}
    whole = {**item, "status": "completed", "content": [said]}
    usage = {"input_tokens": 10, "output_tokens": 2_000, "total_tokens": 2_010}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {**response, "status": "in_progress"}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.content_part.added", **place, "part": {**said, "text": ""}},
        *({"type": "response.output_text.delta", **place, "delta": word} for word in WORDS),
        {"type": "response.output_text.done", **place, "text": said["text"]},
        {"type": "response.content_part.done", **place, "part": said},
        {"type": "response.output_item.done", "output_index": 0, "item": whole},
        {
            "type": "response.completed",
            "response": {**response, "status": "completed", "output": [whole], "usage": usage},
        },
    ]
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def _anthropic() -> list[dict[str, Any]]:
    message: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "claude"}
    usage = {"input_tokens": 10, "output_tokens": 1}
    return [
        {"type": "message_start", "message": {**message, "stop_reason": None, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}} for word in WORDS),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2_000}},
        {"type": "message_stop"},
    ]


def _gemini() -> list[dict[str, Any]]:
    def chunk(text: str, count: int, **more: str) -> dict[str, Any]:
        content = {"parts": [{"text": text}], "role": "model"}
        usage = {"promptTokenCount": 10, "candidatesTokenCount": count, "totalTokenCount": 10 + count}
        head = {"modelVersion": "gemini-2.5-flash", "responseId": "response-1"}
        return {"candidates": [{"content": content, **more, "index": 0}], "usageMetadata": usage, **head}

    return [*(chunk(word, count) for count, word in enumerate(WORDS)), chunk("", len(WORDS), finishReason="STOP")]
