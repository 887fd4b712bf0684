"""Gemini Interactions from both ends. A conversation is a list of steps; `status` says why an answer ended."""

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
    result_text,
    sse,
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

name = "gemini-interactions"
endpoint = Endpoint("/v1beta/interactions", "x-goog-api-key")
_CODES = {400: "invalid_request", 401: "unauthenticated", 403: "permission_denied", 404: "not_found"}
_CODES |= {429: "resource_exhausted", 500: "internal", 503: "unavailable", 504: "deadline_exceeded"}
_FINISHES = {
    "completed": "stop",
    "requires_action": "tool_calls",
    "incomplete": "length",
    "budget_exceeded": "length",
}
_CHOICES = {"auto": "auto", "none": "none", "required": "any"}
_SETTINGS = {"max_tokens": "max_output_tokens", "temperature": "temperature", "top_p": "top_p"}
_SETTINGS |= {"stop": "stop_sequences", "effort": "thinking_level"}


def write_request(dialogue: Dialogue, model: str, streams: bool) -> dict[str, Any]:
    names = {call.id: call.name for turn in dialogue.turns for call in turn.calls}
    body: dict[str, Any] = {"model": model, "input": [step for turn in dialogue.turns for step in _steps(turn, names)]}
    if dialogue.system:
        body["system_instruction"] = dialogue.system
    if dialogue.tools:
        body["tools"] = [
            {"type": "function", "name": tool, "description": f"The {tool}.", "parameters": schema}
            for tool, schema in dialogue.tools.items()
        ]
    config: dict[str, Any] = {_SETTINGS[each]: value for each, value in dialogue.settings.given().items()}
    if dialogue.tool_choice:
        named = {"allowed_tools": {"mode": "any", "tools": [dialogue.tool_choice]}}
        config["tool_choice"] = _CHOICES.get(dialogue.tool_choice, named)
    if config:
        body["generation_config"] = config
    if dialogue.schema is not None:
        body["response_format"] = {"type": "text", "mime_type": "application/json", "schema": dialogue.schema}
    return body | ({"stream": True} if streams else {})


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _steps(turn: Turn, names: dict[str, str]) -> list[dict[str, Any]]:
    if turn.user is not None:
        content = [_text(turn.user)]
        if turn.image:
            content.append({"type": "image", "mime_type": "image/png", "data": PICTURE})
        return [{"type": "user_input", "content": content}]
    if turn.results:
        return [
            {
                "type": "function_result",
                "call_id": each.id,
                "name": each.name or names.get(each.id, "weather"),
                "result": each.text,
            }
            for each in turn.results
        ]
    steps: list[dict[str, Any]] = []
    if turn.signature:
        steps.append({"type": "thought", "signature": turn.signature, "summary": [_text(turn.thinking)]})
    if turn.assistant is not None:
        steps.append({"type": "model_output", "content": [_text(turn.assistant)]})
    return steps + [_call(each) for each in turn.calls]


def _call(call: Call) -> dict[str, Any]:
    return {"type": "function_call", "id": call.id, "name": call.name, "arguments": call.arguments}


def read_request(body: dict[str, Any]) -> Contents:
    found = Contents()
    if body.get("system_instruction"):
        found.texts.append(str(body["system_instruction"]))
    given = body.get("input")
    if isinstance(given, str):
        found.texts.append(given)
    for step in objects([given] if isinstance(given, dict) else given):
        _read_step(step, found)
    for tool in objects(body.get("tools")):
        if tool.get("type") == "function":
            found.tools[str(tool.get("name"))] = tool.get("parameters")
    config = body.get("generation_config") or {}
    choice = config.get("tool_choice")
    if isinstance(choice, dict):
        allowed = choice.get("allowed_tools") or {}
        names = allowed.get("tools") or []
        choice = names[0] if allowed.get("mode") == "any" and len(names) == 1 else allowed.get("mode")
    back = {written: known for known, written in _CHOICES.items()} | {"validated": "auto"}
    found.tool_choice = back.get(str(choice), str(choice or ""))
    found.settings = {known: config[field] for known, field in _SETTINGS.items() if config.get(field) is not None}
    wanted = body.get("response_format")
    for entry in objects([wanted] if isinstance(wanted, dict) else wanted):
        found.schema = entry.get("schema") or entry
    return found


def _read_step(step: dict[str, Any], found: Contents) -> None:
    match step.get("type"):
        case "user_input" | "model_output":
            for content in objects(step.get("content")):
                _read_step(content, found)
        case "text":
            found.texts.append(str(step.get("text")))
        case "image":
            found.images.append(str(step.get("data")))
        case "function_call":
            call = Call(str(step.get("id")), str(step.get("name")), as_arguments(step.get("arguments")))
            found.calls.append(call)
        case "function_result":
            value = step.get("result")
            text = result_text(value)
            found.texts.append(text)
            found.results.append(Result(str(step.get("call_id")), text, str(step.get("name") or "")))
            found.images += [str(each.get("data")) for each in objects(value) if each.get("type") == "image"]
        case "thought":
            found.signatures.append(str(step.get("signature")))


def write_answer(answer: Answer, model: str) -> dict[str, Any]:
    return {**_interaction(answer, model), "steps": _steps(answer.turn, {})}


def _interaction(answer: Answer, model: str) -> dict[str, Any]:
    """The object without its steps, as the last event of a stream has it."""
    usage = answer.usage
    return {
        "id": "v1_conform1",
        "object": "interaction",
        "model": model,
        "status": next(status for status, finish in _FINISHES.items() if finish == answer.finish),
        "created": "2026-01-01T00:00:00Z",
        "updated": "2026-01-01T00:00:01Z",
        "usage": {
            "total_input_tokens": usage.input,
            "total_cached_tokens": usage.cached,
            "total_output_tokens": usage.output - usage.reasoning,
            "total_thought_tokens": usage.reasoning,
            "total_tool_use_tokens": 0,
            "total_tokens": usage.input + usage.output,
        },
    }


def write_events(answer: Answer, model: str, *, has_usage: bool = True) -> list[bytes]:
    del has_usage  # it is always sent
    whole = _interaction(answer, model)
    begun = {each: whole[each] for each in ("id", "object", "model", "created")} | {"status": "in_progress"}
    events: list[dict[str, Any]] = [
        {"event_type": "interaction.created", "interaction": begun},
        {"event_type": "interaction.status_update", "interaction_id": whole["id"], "status": "in_progress"},
    ]
    for place, step in enumerate(write_answer(answer, model)["steps"]):
        shell: dict[str, Any] = {"type": step["type"]}
        match step["type"]:
            case "thought":
                deltas: list[dict[str, Any]] = [{"type": "thought_summary", "content": step["summary"][0]}]
                deltas.append({"type": "thought_signature", "signature": step["signature"]})
            case "model_output":
                deltas = [_text(piece) for piece in answer.pieces]
            case _:
                shell = {**step, "arguments": {}}
                pieces = halves(msgspec.json.encode(step["arguments"]).decode())
                deltas = [{"type": "arguments_delta", "arguments": piece} for piece in pieces]
        events.append({"event_type": "step.start", "index": place, "step": shell})
        events += [{"event_type": "step.delta", "index": place, "delta": each} for each in deltas]
        events.append({"event_type": "step.stop", "index": place})
    events.append({"event_type": "interaction.completed", "interaction": whole})
    written = [json_event({**each, "event_id": str(number)}, each["event_type"]) for number, each in enumerate(events)]
    return [*written, sse("[DONE]", "done")]


def cut_places(events: list[bytes]) -> int:
    """`interaction.completed` ends the answer; `[DONE]` after it adds nothing."""
    return len(events) - 2


def write_error(status: int, message: str) -> dict[str, Any]:
    return {"error": {"code": _CODES.get(status, "internal"), "message": message}}


def error_event(message: str) -> bytes:
    return json_event({"event_type": "error", **write_error(503, message)}, "error")


def read_answer(body: dict[str, Any]) -> Reply:
    reply = Reply()
    if not isinstance(body.get("id"), str) or body.get("object", "interaction") != "interaction":
        reply.problems.append("id must be a string and object 'interaction'")
    if not isinstance(body.get("steps"), list):
        reply.problems.append("steps must be a list")
    for step in objects(body.get("steps")):
        _read_answer_step(step, reply)
    _end(body, reply)
    return reply


def _read_answer_step(step: dict[str, Any], reply: Reply) -> None:
    match step.get("type"):
        case "model_output":
            kinds = {content.get("type") for content in objects(step.get("content"))}
            if not kinds <= {"text", "image", "audio", "document", "video"}:
                reply.problems.append(f"content of a model_output has types {sorted(map(str, kinds))}")
            reply.text += text_of(step.get("content"))
        case "thought":
            reply.thinking += text_of(step.get("summary"))
            if step.get("signature"):
                reply.signatures.append(str(step["signature"]))
        case "function_call":
            if not step.get("id") or not isinstance(step.get("arguments"), dict):
                reply.problems.append("a function_call needs an id and an object as arguments")
                return
            reply.calls.append(Call(str(step["id"]), str(step.get("name")), step["arguments"]))
        case other:
            reply.problems.append(f"step of unknown type {other!r}")


def _end(body: dict[str, Any], reply: Reply) -> None:
    """The status and usage of a finished interaction."""
    status = body.get("status")
    if status in ("failed", "cancelled"):
        reply.error = str(body.get("errors") or status)
        return
    if status not in _FINISHES:
        reply.problems.append(f"status {status!r} of a finished interaction")
    reply.finish = _FINISHES.get(str(status), "")
    usage = body.get("usage")
    if isinstance(usage, dict):
        thoughts = usage.get("total_thought_tokens") or 0
        total = (usage.get("total_input_tokens") or 0) + (usage.get("total_tool_use_tokens") or 0)
        output = (usage.get("total_output_tokens") or 0) + thoughts
        reply.usage = Usage(total, usage.get("total_cached_tokens") or 0, output, thoughts)
    reply.is_complete = bool(reply.finish)


def read_events(events: list[Event]) -> Reply:
    reply, steps, fragments = Reply(), dict[int, dict[str, Any]](), dict[int, str]()
    open_steps: set[int] = set()
    ended: dict[str, Any] | None = None
    for place, event in enumerate(events):
        if event.data == "[DONE]":
            continue
        value = msgspec.json.decode(event.data)
        kind, index = value.get("event_type"), value.get("index", -1)
        if event.name and event.name != kind:
            reply.problems.append(f"event {event.name!r} carries event_type {kind!r}")
        if place == 0 and kind not in ("interaction.created", "error"):
            reply.problems.append("the stream must start with interaction.created")
        match kind:
            case "step.start":
                if index != len(steps):
                    reply.problems.append(f"step {index} starts out of order")
                steps[index] = dict(value.get("step") or {})
                open_steps.add(index)
            case "step.delta":
                if index not in open_steps:
                    reply.problems.append(f"a delta for step {index}, which is not open")
                _add_delta(steps.setdefault(index, {}), value.get("delta") or {}, fragments, index)
            case "step.stop":
                open_steps.discard(index)
            case "interaction.completed":
                ended = value.get("interaction") or {}
            case "error":
                reply.error = str(value.get("error"))
            case "interaction.created" | "interaction.status_update":
                pass
            case other:
                reply.problems.append(f"unknown event {other!r}")
    for index, step in steps.items():
        if fragments.get(index):
            step["arguments"] = read_arguments(fragments[index])
        _read_answer_step(step, reply)
    if ended is not None and not reply.error:
        if open_steps:
            reply.problems.append(f"step {min(open_steps)} has no step.stop")
        _end(ended, reply)
    return reply


def _add_delta(step: dict[str, Any], delta: dict[str, Any], fragments: dict[int, str], index: int) -> None:
    match delta.get("type"):
        case "arguments_delta":
            fragments[index] = fragments.get(index, "") + (delta.get("arguments") or "")
        case "thought_summary":
            step["summary"] = [*(step.get("summary") or ()), delta.get("content")]
        case "thought_signature":
            step["signature"] = delta.get("signature")
        case "text_annotation_delta":
            pass
        case _:
            step["content"] = [*(step.get("content") or ()), delta]


def error_problems(body: Any) -> list[str]:
    """What is wrong with the shape of an error. The code is a word; Google's front end sends its number instead."""
    error = error_of(body)
    if not error:
        return ["the body must be {error: {code, message}}"]
    return [] if isinstance(error.get("code"), str | int) else ["error.code must be a string"]
