"""Bodies of the Interactions API that its tests share: requests, and answers whole and streamed."""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.wire import Assembler, ModelOutput, formats
from antiphon.wire.delta import ModelOutputDelta

WIRE = formats["gemini-interactions"]
MODEL = "gemini-3.6-flash"


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def user(*contents: dict[str, Any] | str) -> dict[str, Any]:
    return {"type": "user_input", "content": [text(one) if isinstance(one, str) else one for one in contents]}


def output(*contents: dict[str, Any] | str) -> dict[str, Any]:
    return {**user(*contents), "type": "model_output"}


CALL = {"type": "function_call", "id": "call_1", "name": "weather", "arguments": {"city": "Oslo"}}
RESULT = {"type": "function_result", "call_id": "call_1", "name": "weather", "result": "rain"}
THOUGHT = {"type": "thought", "summary": [text("I need the weather.")], "signature": "c2lnbmF0dXJl"}
TOOL = {"type": "function", "name": "weather", "description": "The weather.", "parameters": {"type": "object"}}
IMAGE = {"type": "image", "data": "iVBORw0KGgo=", "mime_type": "image/png"}
SEARCH = {"type": "google_search_call", "id": "s1", "arguments": {"queries": ["rain"]}, "signature": "c2ln"}
FOUND = {
    "type": "google_search_result",
    "call_id": "s1",
    "result": [{"search_suggestions": "rain"}],
    "signature": "c2ln",
}
USAGE = {
    "total_tokens": 346,
    "total_input_tokens": 11,
    "input_tokens_by_modality": [{"modality": "text", "tokens": 11}],
    "total_cached_tokens": 3,
    "total_output_tokens": 90,
    "total_tool_use_tokens": 0,
    "total_thought_tokens": 245,
}

REQUESTS: dict[str, dict[str, Any]] = {
    "steps": {
        "model": MODEL,
        "system_instruction": "Be brief.",
        "input": [user("Rain?", IMAGE), THOUGHT, CALL, RESULT, output("It rains."), user("And now?")],
        "tools": [TOOL, {"type": "google_search"}, {"type": "mcp_server", "name": "docs", "url": "https://a.b/mcp"}],
    },
    "parameters": {
        "model": MODEL,
        "input": [user("Hi")],
        "tools": [TOOL],
        "generation_config": {
            "temperature": 0.5,
            "top_p": 0.9,
            "max_output_tokens": 100,
            "seed": 7,
            "stop_sequences": ["END"],
            "thinking_level": "low",
            "thinking_summaries": "auto",
            "tool_choice": {"allowed_tools": {"mode": "any", "tools": ["weather"]}},
            "speech_config": {"voice": "Kore"},
        },
        "response_format": {"type": "text", "mime_type": "application/json", "schema": {"type": "object"}},
        "response_modalities": ["text"],
        "service_tier": "flex",
        "labels": {"team": "a"},
        "safety_settings": [{"type": "harassment", "threshold": "block_none"}],
        "stream": True,
        "store": False,
    },
    "agent": {
        "agent": "deep-research-preview-04-2026",
        "input": [user("Why is the sky blue?")],
        "background": True,
        "store": True,
        "agent_config": {"type": "deep-research"},
        "environment": "remote",
    },
    "continued": {
        "model": MODEL,
        "previous_interaction_id": "v1_1",
        "input": [RESULT],
        "generation_config": {"seed": 1},
    },
    "media": {
        "model": MODEL,
        "input": [
            user(
                {"type": "image", "uri": "https://a.b/c.png", "mime_type": "image/png", "resolution": "low"},
                {"type": "image", "uri": "https://a.b/without-type"},
                {"type": "audio", "data": "UklGRg==", "mime_type": "audio/wav", "sample_rate": 16000},
                {"type": "document", "data": "JVBERi0=", "mime_type": "application/pdf"},
                {"type": "video", "uri": "https://www.youtube.com/watch?v=9hE5-98ZeCg"},
                {"type": "video", "data": "AAAA", "mime_type": "video/mp4", "processing": "static"},
                {"type": "image", "data": "_-8=", "mime_type": "image/png"},
            )
        ],
    },
    "steps of google's tools": {
        "model": MODEL,
        "input": [user("Rain?"), SEARCH, FOUND, output("Yes", {**text("No"), "annotations": []}), user("?")],
    },
    "outputs": {
        "model": MODEL,
        "input": [
            user("Draw"),
            output("Here", IMAGE, "it is"),
            output("and more"),
            {**output("x"), "error": {"code": 1}},
            user("?"),
        ],
    },
    "results": {
        "model": MODEL,
        "input": [
            user("Go"),
            *({**CALL, "id": f"call_{number}"} for number in range(1, 6)),
            {**RESULT, "call_id": "call_1", "result": {"degrees": 3}},
            {**RESULT, "call_id": "call_2", "result": [text("rain"), IMAGE]},
            {**RESULT, "call_id": "call_3", "is_error": True, "result": "no network"},
            {"type": "function_result", "call_id": "call_4", "result": [text("rain")]},
            {"type": "function_result", "call_id": "call_5", "result": [], "signature": "c2ln"},
        ],
    },
    "older clients": {
        "model": MODEL,
        "input": [user("Hi")],
        "response_mime_type": "application/json",
        "response_format": {"type": "object", "properties": {"a": {"type": "string"}}},
    },
    "formats": {
        "model": "gemini-3-pro-image",
        "input": [user("Draw")],
        "response_format": [{"type": "image", "mime_type": "image/png"}, {"type": "text", "mime_type": "text/plain"}],
    },
}
"""Requests that are written back as they came."""

INTERACTION: dict[str, Any] = {
    "id": "v1_abc",
    "object": "interaction",
    "model": MODEL,
    "status": "completed",
    "created": "2026-05-12T18:44:51Z",
    "updated": "2026-05-12T18:44:52Z",
    "steps": [THOUGHT, SEARCH, FOUND, output("It ", IMAGE, "rains."), output("Bye.")],
    "usage": USAGE,
    "service_tier": "standard",
}


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {**fields, "event_type": kind}


def delta(index: int, **fields: Any) -> dict[str, Any]:
    return event("step.delta", index=index, delta=fields)


EVENTS = [
    event("interaction.created", interaction={"id": "v1_abc", "status": "in_progress", "model": MODEL}),
    event("interaction.status_update", interaction_id="v1_abc", status="in_progress"),
    event("step.start", index=0, step={"type": "thought"}),
    delta(0, type="thought_summary", content=text("I need ")),
    delta(0, type="thought_summary", content=text("the weather.")),
    delta(0, type="thought_signature", signature="c2lnbmF0dXJl"),
    event("step.stop", index=0),
    event("step.start", index=1, step={"type": "model_output"}),
    delta(1, type="text", text="Let me "),
    delta(1, type="text", text="see."),
    delta(1, type="text_annotation_delta", annotations=[{"type": "url_citation", "url": "https://yr.no"}]),
    delta(1, **IMAGE),
    event("step.stop", index=1),
    event("step.start", index=2, step={**SEARCH, "arguments": {}}),
    delta(2, type="google_search_call", arguments=SEARCH["arguments"]),
    event("step.stop", index=2),
    event("step.start", index=3, step={**CALL, "arguments": {}}),
    delta(3, type="arguments_delta", arguments='{"city":'),
    delta(3, type="arguments_delta", arguments='"Oslo"}'),
    event("step.stop", index=3),
    event("step.start", index=4, step={**CALL, "id": "call_2"}),
    event("step.stop", index=4, usage={"total_tokens": 1}),
    event(
        "interaction.completed",
        interaction={
            "id": "v1_abc",
            "status": "requires_action",
            "model": MODEL,
            "usage": USAGE,
            "updated": "2026-05-12T18:44:52Z",
        },
    ),
]
"""The events of one stream, with everything that a stream may have."""

WHOLE: dict[str, Any] = {
    "id": "v1_abc",
    "model": MODEL,
    "status": "requires_action",
    "updated": "2026-05-12T18:44:52Z",
    "steps": [
        THOUGHT,
        output({**text("Let me see."), "annotations": [{"type": "url_citation", "url": "https://yr.no"}]}, IMAGE),
        SEARCH,
        CALL,
        {**CALL, "id": "call_2"},
    ],
    "usage": USAGE,
}
"""The same answer whole."""


def written_out(events: list[dict[str, Any]]) -> bytes:
    lines = [b"event: %b\ndata: %b\n\n" % (one["event_type"].encode(), msgspec.json.encode(one)) for one in events]
    return b"".join(lines) + b"event: done\ndata: [DONE]\n\n"


def read_stream(data: bytes, *cuts: int) -> list[ModelOutputDelta]:
    reader = WIRE.stream_reader()
    deltas: list[ModelOutputDelta] = []
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        deltas += reader.feed(data[start:end])
    return deltas + reader.close()


def assembled(deltas: list[ModelOutputDelta]) -> ModelOutput:
    assembler = Assembler()
    for one in deltas:
        assembler.add(one)
    assert assembler.error is None, assembler.error
    return assembler.output
