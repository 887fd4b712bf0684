"""Streams of the Messages API for tests: building, assembling and checking them."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from antiphon.parts import Text, ToolCallRequest
from antiphon.wire import Assembler, ModelOutput, ModelOutputDelta
from antiphon.wire.streams.sse import SseReader
from support.wire_formats import ANTHROPIC
from wire.anthropic.bodies import without_nulls

StreamReader = ANTHROPIC.stream_reader
StreamWriter = ANTHROPIC.stream_writer


def read(*chunks: bytes) -> list[ModelOutputDelta]:
    reader = StreamReader()
    deltas = [delta for chunk in chunks for delta in reader.feed(chunk)]
    return deltas + reader.close()


def output_of(deltas: list[ModelOutputDelta]) -> ModelOutput:
    assembler = Assembler()
    for delta in deltas:
        assembler.add(delta)
    return assembler.output


def written(deltas: list[ModelOutputDelta]) -> tuple[bytes, list[str]]:
    writer = StreamWriter()
    data = b"".join([*(writer.write(delta) for delta in deltas), writer.close()])
    return data, [loss.path for loss in writer.losses]


def events_of(data: bytes) -> list[dict[str, Any]]:
    reader = SseReader()
    events = [event for event in reader.feed(data) + reader.close() if event.data != b"[DONE]"]
    return [json.loads(event.data) for event in events]


def assembled(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The answer that a stream tells, put together by its own grammar."""
    message: dict[str, Any] = {}
    pieces: dict[int, str] = {}
    for event in events:
        match event["type"]:
            case "message_start":
                message = without_nulls(event["message"])
            case "content_block_start":
                message["content"].append(dict(event["content_block"]))
                if event["content_block"]["type"] == "fallback":
                    message["model"] = event["content_block"]["to"]["model"]
            case "content_block_delta":
                grow(message["content"][event["index"]], event["delta"], pieces, event["index"])
            case "message_delta":
                message |= without_nulls(event["delta"])
                message["usage"] |= without_nulls(event["usage"])
                message |= {name: value for name, value in event.items() if name not in ("type", "delta", "usage")}
            case "message_stop":
                message |= {name: value for name, value in event.items() if name != "type"}
    for index, text in pieces.items():
        if text:
            message["content"][index]["input"] = parsed(text)
    return message


def parsed(text: str) -> Any:
    """The arguments of a call; as text if the limit of tokens cut them off."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def grow(block: dict[str, Any], delta: dict[str, Any], pieces: dict[int, str], index: int) -> None:
    match delta["type"]:
        case "text_delta":
            block["text"] += delta["text"]
        case "thinking_delta":
            block["thinking"] += delta["thinking"]
        case "signature_delta":
            block["signature"] = delta["signature"]
        case "citations_delta":
            block["citations"] = [*(block.get("citations") or []), delta["citation"]]
        case "input_json_delta":
            pieces[index] = pieces.get(index, "") + delta["partial_json"]
        case _:
            block.update({name: value for name, value in delta.items() if name != "type"})


def meaning(output: ModelOutput) -> Any:
    """An answer without the whitespace in its arguments, and without nulls in what is kept raw."""
    value = without_nulls(msgspec.json.decode(msgspec.json.encode(output)))
    for part in value.get("parts", ()):
        if part["type"] == "tool_call":
            part["arguments"] = parsed(part.get("arguments", "{}"))
    return value


def check_grammar(events: list[dict[str, Any]]) -> None:
    """One block at a time, counted from 0, between `message_start` and `message_delta message_stop`."""
    kinds = [event["type"] for event in events]
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]
    assert kinds.count("message_start") == kinds.count("message_delta") == kinds.count("message_stop") == 1
    opened = -1
    is_open = False
    for event in events[1:-2]:
        if event["type"] == "content_block_start":
            opened += 1
            assert not is_open
            is_open = True
        assert is_open
        assert event["index"] == opened
        is_open = event["type"] != "content_block_stop"
    assert not is_open


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, **fields}


def start(*content: Any, **usage: Any) -> dict[str, Any]:
    any_event = {"input_tokens": 9, "output_tokens": 1, **usage}
    return event(
        "message_start", message={"id": "msg_1", "model": "claude", "content": list(content), "usage": any_event}
    )


def block(index: int, **fields: Any) -> dict[str, Any]:
    return event("content_block_start", index=index, content_block=fields)


def delta(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    return event("content_block_delta", index=index, delta={"type": kind, **fields})


def stop(index: int) -> dict[str, Any]:
    return event("content_block_stop", index=index)


def finish(word: str | None = "end_turn", **usage: Any) -> dict[str, Any]:
    return event(
        "message_delta", delta={"stop_reason": word, "stop_sequence": None}, usage={"output_tokens": 5, **usage}
    )


STOP = event("message_stop")

PING = event("ping")

TEXT = {"type": "text", "text": ""}

WORDS = [block(0, **TEXT), delta(0, "text_delta", text="Rain."), stop(0)]

RAIN = Text("Rain.")

CALL = ToolCallRequest("weather", "toolu_1", '{"city": "Oslo"}')

TOOL_USE = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}

SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
