"""Anthropic Messages from both ends."""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon_devtools.conform.bodies import (
    as_arguments,
    error_of,
    halves,
    json_event,
    objects,
    read_arguments,
    text_of,
)
from antiphon_devtools.conform.conversation import (
    PICTURE,
    Answer,
    Call,
    Contents,
    Dialogue,
    Event,
    Reply,
    Result,
    Turn,
    Usage,
)
from antiphon_devtools.conform.formats.endpoint import Endpoint

name = "anthropic"
endpoint = Endpoint("/v1/messages", "x-api-key", more_headers={"anthropic-version": "2023-06-01"})
_FINISHES = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
_BACK = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls"}
_OTHER_REASONS = ("pause_turn", "refusal", "model_context_window_exceeded")


def write_request(dialogue: Dialogue, model: str, streams: bool) -> dict[str, Any]:
    given = dialogue.settings.given()
    body: dict[str, Any] = {"model": model, "max_tokens": given.pop("max_tokens", 1024)}
    body["messages"] = [_message(turn) for turn in dialogue.turns]
    if dialogue.system:
        body["system"] = dialogue.system
    if dialogue.tools:
        body["tools"] = [
            {"name": tool, "description": f"The {tool}.", "input_schema": schema}
            for tool, schema in dialogue.tools.items()
        ]
    if dialogue.tool_choice:
        kinds = {"auto": "auto", "none": "none", "required": "any"}
        kind = kinds.get(dialogue.tool_choice)
        body["tool_choice"] = {"type": kind} if kind else {"type": "tool", "name": dialogue.tool_choice}
    config: dict[str, Any] = {}
    if dialogue.schema is not None:
        config["format"] = {"type": "json_schema", "schema": dialogue.schema}
    if "effort" in given:
        config["effort"] = given.pop("effort")
    if config:
        body["output_config"] = config
    if "stop" in given:
        body["stop_sequences"] = given.pop("stop")
    if any(turn.signature for turn in dialogue.turns):
        body |= {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 4096}
    return body | given | ({"stream": True} if streams else {})


def _message(turn: Turn) -> dict[str, Any]:
    if turn.user is not None:
        if not turn.image:
            return {"role": "user", "content": turn.user}
        source = {"type": "base64", "media_type": "image/png", "data": PICTURE}
        return {
            "role": "user",
            "content": [{"type": "text", "text": turn.user}, {"type": "image", "source": source}],
        }
    if turn.results:
        blocks = [{"type": "tool_result", "tool_use_id": each.id, "content": each.text} for each in turn.results]
        return {"role": "user", "content": blocks}
    return {"role": "assistant", "content": _assistant_blocks(turn)}


def _assistant_blocks(turn: Turn) -> list[dict[str, Any]]:
    """The blocks of a message of the assistant."""
    content: list[dict[str, Any]] = []
    if turn.signature:
        content.append({"type": "thinking", "thinking": turn.thinking, "signature": turn.signature})
    if turn.assistant is not None:
        content.append({"type": "text", "text": turn.assistant})
    return content + [_call(each) for each in turn.calls]


def _call(call: Call) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}


def read_request(body: dict[str, Any]) -> Contents:
    found = Contents()
    if body.get("system"):
        found.texts.append(text_of(body["system"]))
    for message in objects(body.get("messages")):
        content = message.get("content")
        if isinstance(content, str):
            found.texts.append(content)
        for block in objects(content):
            _read_block(block, found)
    for tool in objects(body.get("tools")):
        found.tools[str(tool.get("name"))] = tool.get("input_schema")
    choice = body.get("tool_choice")
    if isinstance(choice, dict):
        kind = choice.get("type")
        found.tool_choice = str(choice.get("name")) if kind == "tool" else {"any": "required"}.get(str(kind), str(kind))
    config = body.get("output_config") or {}
    found.schema = (config.get("format") or body.get("output_format") or {}).get("schema")
    fields = {
        "max_tokens": "max_tokens",
        "temperature": "temperature",
        "top_p": "top_p",
        "stop_sequences": "stop",
    }
    found.settings = {known: body[field] for field, known in fields.items() if body.get(field) is not None}
    if config.get("effort"):
        found.settings["effort"] = config["effort"]
    return found


def _read_block(block: dict[str, Any], found: Contents) -> None:
    match block.get("type"):
        case "text":
            found.texts.append(str(block.get("text")))
        case "image":
            found.images.append(str((block.get("source") or {}).get("data")))
        case "tool_use":
            call = Call(str(block.get("id")), str(block.get("name")), as_arguments(block.get("input")))
            found.calls.append(call)
        case "tool_result":
            text = text_of(block.get("content"))
            found.texts.append(text)
            found.results.append(Result(str(block.get("tool_use_id")), text))
            for part in objects(block.get("content")):
                if part.get("type") == "image":
                    _read_block(part, found)
        case "thinking":
            found.signatures.append(str(block.get("signature")))


def write_answer(answer: Answer, model: str) -> dict[str, Any]:
    return {
        "id": "msg_conform1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": _assistant_blocks(answer.turn),
        "stop_reason": _FINISHES[answer.finish],
        "stop_sequence": None,
        "usage": _usage(answer.usage),
    }


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input - usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
    }


def write_events(answer: Answer, model: str, *, has_usage: bool = True) -> list[bytes]:
    del has_usage  # it is always sent
    whole = write_answer(answer, model)
    usage = {**whole["usage"], "output_tokens": 1}
    begun = {**whole, "content": [], "stop_reason": None, "usage": usage}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": begun}, {"type": "ping"}]
    for place, block in enumerate(whole["content"]):
        match block["type"]:
            case "text":
                empty: dict[str, Any] = {"type": "text", "text": ""}
                deltas = [{"type": "text_delta", "text": piece} for piece in answer.pieces]
            case "thinking":
                empty = {"type": "thinking", "thinking": "", "signature": ""}
                deltas = [{"type": "thinking_delta", "thinking": block["thinking"]}]
                deltas.append({"type": "signature_delta", "signature": block["signature"]})
            case _:
                empty = {**block, "input": {}}
                pieces = ("", *halves(msgspec.json.encode(block["input"]).decode()))
                deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        events.append({"type": "content_block_start", "index": place, "content_block": empty})
        events += [{"type": "content_block_delta", "index": place, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": place})
    ended = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    events.append({"type": "message_delta", "delta": ended, "usage": {"output_tokens": answer.usage.output}})
    events.append({"type": "message_stop"})
    return [json_event(event, event["type"]) for event in events]


def cut_places(events: list[bytes]) -> int:
    """A stop reason ends the answer; message_stop after it adds nothing."""
    return len(events) - 2


def write_error(status: int, message: str) -> dict[str, Any]:
    kinds = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error"}
    kinds |= {429: "rate_limit_error", 529: "overloaded_error"}
    return {"type": "error", "error": {"type": kinds.get(status, "api_error"), "message": message}}


def error_event(message: str) -> bytes:
    return json_event(write_error(529, message), "error")


def read_answer(body: dict[str, Any]) -> Reply:
    reply = Reply()
    if body.get("type") != "message" or body.get("role") != "assistant" or not isinstance(body.get("id"), str):
        reply.problems.append("type must be 'message', role 'assistant', and id a string")
    for block in objects(body.get("content")):
        _read_answer_block(block, reply)
    _finish(body.get("stop_reason"), reply)
    reply.usage = _read_usage(body.get("usage"))
    reply.is_complete = True
    return reply


def _read_answer_block(block: dict[str, Any], reply: Reply) -> None:
    match block.get("type"):
        case "text":
            reply.text += str(block.get("text"))
        case "thinking":
            reply.thinking += str(block.get("thinking"))
            if block.get("signature"):
                reply.signatures.append(str(block["signature"]))
        case "redacted_thinking":
            pass
        case "tool_use":
            if not block.get("id") or not isinstance(block.get("input"), dict):
                reply.problems.append("a tool_use block needs an id and an object as input")
                return
            reply.calls.append(Call(str(block["id"]), str(block.get("name")), block["input"]))
        case other:
            reply.problems.append(f"content block of unknown type {other!r}")


def _finish(reason: Any, reply: Reply) -> None:
    reply.finish = _BACK.get(reason, str(reason or ""))
    if reason not in _BACK and reason not in _OTHER_REASONS:
        reply.problems.append(f"stop_reason {reason!r} is not a value of the API")


def _read_usage(usage: Any, before: Usage | None = None) -> Usage | None:
    if not isinstance(usage, dict):
        return before
    before = before or Usage(0, 0, 0, 0)
    cached = usage.get("cache_read_input_tokens")
    cached = before.cached if cached is None else cached
    fresh = usage.get("input_tokens")
    total = before.input if fresh is None else fresh + cached + (usage.get("cache_creation_input_tokens") or 0)
    reasoning = (usage.get("output_tokens_details") or {}).get("thinking_tokens") or 0
    return Usage(total, cached, usage.get("output_tokens") or before.output, reasoning)


def read_events(events: list[Event]) -> Reply:
    reply, blocks, open_block, is_stopped = Reply(), dict[int, dict[str, Any]](), -1, False
    fragments: dict[int, str] = {}
    for event in events:
        value: dict[str, Any] = {"type": "ping"} if event.data == "[DONE]" else msgspec.json.decode(event.data)
        kind = value.get("type")
        if event.name and event.name != kind and event.data != "[DONE]":
            reply.problems.append(f"event {event.name!r} carries type {kind!r}")
        index = value.get("index", -1)
        match kind:
            case "message_start":
                reply.usage = _read_usage((value.get("message") or {}).get("usage"))
            case "content_block_start":
                if open_block != -1 or index != len(blocks):
                    reply.problems.append(f"content block {index} starts out of order")
                open_block = index
                blocks[index] = dict(value.get("content_block") or {})
            case "content_block_delta":
                if index != open_block:
                    reply.problems.append(f"a delta for block {index}, which is not open")
                _add_delta(blocks.setdefault(index, {}), value.get("delta") or {}, fragments, index)
            case "content_block_stop":
                open_block = -1
            case "message_delta":
                _finish((value.get("delta") or {}).get("stop_reason"), reply)
                reply.usage = _read_usage(value.get("usage"), reply.usage)
            case "message_stop":
                is_stopped = True
            case "error":
                reply.error = str(value.get("error"))
            case "ping":
                pass
            case other:
                reply.problems.append(f"unknown event {other!r}")
    for index, block in blocks.items():
        if fragments.get(index):
            block["input"] = read_arguments(fragments[index])
        _read_answer_block(block, reply)
    if events and not reply.error and (msgspec.json.decode(events[0].data).get("type") != "message_start"):
        reply.problems.append("the stream must start with message_start")
    reply.is_complete = is_stopped and not reply.error and bool(reply.finish)
    return reply


def _add_delta(block: dict[str, Any], delta: dict[str, Any], fragments: dict[int, str], index: int) -> None:
    match delta.get("type"):
        case "text_delta":
            block["text"] = block.get("text", "") + delta.get("text", "")
        case "thinking_delta":
            block["thinking"] = block.get("thinking", "") + delta.get("thinking", "")
        case "signature_delta":
            block["signature"] = delta.get("signature", "")
        case "input_json_delta":
            fragments[index] = fragments.get(index, "") + delta.get("partial_json", "")


def error_problems(body: Any) -> list[str]:
    """What is wrong with the shape of an error."""
    error = error_of(body)
    if not error or body.get("type") != "error":
        return ["the body must be {type: 'error', error: {type, message}}"]
    return [] if isinstance(error.get("type"), str) else ["error.type must be a string"]
