"""OpenAI Chat Completions from both ends."""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon_devtools.conform.bodies import error_of, halves, json_event, objects, read_arguments, sse, text_of
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

name = "openai-chat"
endpoint = Endpoint("/v1/chat/completions")
_FINISHES = ("stop", "length", "tool_calls", "content_filter", "function_call")


def write_request(dialogue: Dialogue, model: str, streams: bool) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    if dialogue.system:
        messages.append({"role": "system", "content": dialogue.system})
    for turn in dialogue.turns:
        messages += _messages(turn)
    body: dict[str, Any] = {"model": model, "messages": messages}
    if dialogue.tools:
        body["tools"] = [
            {"type": "function", "function": {"name": tool, "description": f"The {tool}.", "parameters": schema}}
            for tool, schema in dialogue.tools.items()
        ]
    if dialogue.tool_choice in ("auto", "none", "required"):
        body["tool_choice"] = dialogue.tool_choice
    elif dialogue.tool_choice:
        body["tool_choice"] = {"type": "function", "function": {"name": dialogue.tool_choice}}
    if dialogue.schema is not None:
        named = {"name": "answer", "schema": dialogue.schema, "strict": True}
        body["response_format"] = {"type": "json_schema", "json_schema": named}
    names = {"effort": "reasoning_effort"}
    body |= {names.get(each, each): value for each, value in dialogue.settings.given().items()}
    if streams:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


def _messages(turn: Turn) -> list[dict[str, Any]]:
    if turn.user is not None:
        if not turn.image:
            return [{"role": "user", "content": turn.user}]
        picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}}
        return [{"role": "user", "content": [{"type": "text", "text": turn.user}, picture]}]
    if turn.results:
        return [{"role": "tool", "tool_call_id": each.id, "content": each.text} for each in turn.results]
    message: dict[str, Any] = {"role": "assistant", "content": turn.assistant}
    if turn.calls:
        message["tool_calls"] = [_call(each) for each in turn.calls]
    elif turn.assistant is None:
        message["content"] = ""
    return [message]


def _call(call: Call) -> dict[str, Any]:
    arguments = msgspec.json.encode(call.arguments).decode()
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def read_request(body: dict[str, Any]) -> Contents:
    found = Contents()
    for message in objects(body.get("messages")):
        content = message.get("content")
        text = text_of(content)
        if message.get("role") == "tool":
            found.results.append(Result(str(message.get("tool_call_id")), text))
        for part in objects(content):
            url = (part.get("image_url") or {}).get("url") if part.get("type") == "image_url" else None
            if isinstance(url, str):
                found.images.append(url.rpartition(",")[2])
        found.texts.append(text)
        found.calls += [_read_call(each) for each in objects(message.get("tool_calls"))]
    for tool in objects(body.get("tools")):
        function = tool.get("function") or {}
        found.tools[str(function.get("name"))] = function.get("parameters")
    choice = body.get("tool_choice")
    if isinstance(choice, str):
        found.tool_choice = choice
    elif isinstance(choice, dict):
        found.tool_choice = str((choice.get("function") or {}).get("name"))
    wanted = body.get("response_format")
    if isinstance(wanted, dict):
        found.schema = (wanted.get("json_schema") or {}).get("schema", wanted)
    fields = {
        "max_tokens": "max_tokens",
        "max_completion_tokens": "max_tokens",
        "temperature": "temperature",
        "top_p": "top_p",
        "stop": "stop",
        "reasoning_effort": "effort",
    }
    found.settings = {known: body[field] for field, known in fields.items() if body.get(field) is not None}
    return found


def _read_call(call: dict[str, Any]) -> Call:
    function = call.get("function") or {}
    return Call(str(call.get("id")), str(function.get("name")), read_arguments(function.get("arguments")))


def write_answer(answer: Answer, model: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None, "refusal": None}
    if answer.thinking:
        message["reasoning_content"] = answer.thinking
    if answer.calls:
        message["tool_calls"] = [_call(each) for each in answer.calls]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": answer.finish}
    head = {"id": "chatcmpl-conform1", "object": "chat.completion", "created": 1_700_000_000, "model": model}
    return {**head, "choices": [choice], "usage": _usage(answer.usage)}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def write_events(answer: Answer, model: str, *, has_usage: bool = True) -> list[bytes]:
    head = {"id": "chatcmpl-conform1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": model}
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": answer.thinking}] if answer.thinking else []
    deltas += [{"content": piece} for piece in answer.pieces]
    for place, call in enumerate(answer.calls):
        whole = _call(call)
        pieces = halves(whole["function"]["arguments"])
        whole["function"] = {"name": call.name, "arguments": ""}
        deltas.append({"tool_calls": [{"index": place, **whole}]})
        deltas += [{"tool_calls": [{"index": place, "function": {"arguments": piece}}]} for piece in pieces]
    chunks = [{**head, "choices": [{"index": 0, "delta": each, "finish_reason": None}]} for each in deltas]
    chunks.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": answer.finish}]})
    if has_usage:
        chunks.append({**head, "choices": [], "usage": _usage(answer.usage)})
    return [*map(json_event, chunks), sse("[DONE]")]


def cut_places(events: list[bytes]) -> int:
    """After how many events at most a cut answer is incomplete: all before the finish reason."""
    return next(place for place, event in enumerate(events) if b'"finish_reason":"' in event)


def write_error(status: int, message: str) -> dict[str, Any]:
    kind = "invalid_request_error" if status < 500 and status != 429 else "server_error"
    kind = "rate_limit_error" if status == 429 else kind
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


def error_event(message: str) -> bytes:
    return json_event(write_error(500, message))


def read_answer(body: dict[str, Any]) -> Reply:
    reply = Reply()
    if body.get("object") != "chat.completion":
        reply.problems.append(f"object is {body.get('object')!r}, not 'chat.completion'")
    if not isinstance(body.get("id"), str) or not isinstance(body.get("model"), str):
        reply.problems.append("id and model must be strings")
    choices = objects(body.get("choices"))
    if len(choices) != 1:
        reply.problems.append(f"{len(choices)} choices, not 1")
        return reply
    message = choices[0].get("message") or {}
    if message.get("role") != "assistant":
        reply.problems.append("choices[0].message.role is not 'assistant'")
    reply.text, reply.thinking = text_of(message.get("content")), _thinking(message)
    for call in objects(message.get("tool_calls")):
        _check_call(call, reply)
        reply.calls.append(_read_call(call))
    _finish(choices[0].get("finish_reason"), reply)
    reply.usage = read_usage(body.get("usage"))
    reply.is_complete = True
    return reply


def _thinking(message: dict[str, Any]) -> str:
    return str(message.get("reasoning_content") or message.get("reasoning") or "")


def _check_call(call: dict[str, Any], reply: Reply) -> None:
    if not isinstance(call.get("id"), str) or not call["id"] or call.get("type") != "function":
        reply.problems.append("a tool call needs an id and type 'function'")
    if not isinstance((call.get("function") or {}).get("arguments"), str):
        reply.problems.append("function.arguments must be a string")


def _finish(finish: Any, reply: Reply) -> None:
    reply.finish = str(finish or "")
    if finish not in _FINISHES:
        reply.problems.append(f"finish_reason {finish!r} is not a value of the API")


def read_usage(usage: Any, of_input: str = "prompt_tokens", of_output: str = "completion_tokens") -> Usage | None:
    """The tokens that an answer reports; the two APIs of OpenAI name them differently."""
    if not isinstance(usage, dict):
        return None
    cached = (usage.get(f"{of_input}_details") or {}).get("cached_tokens") or 0
    reasoning = (usage.get(f"{of_output}_details") or {}).get("reasoning_tokens") or 0
    return Usage(usage.get(of_input) or 0, cached, usage.get(of_output) or 0, reasoning)


def read_events(events: list[Event]) -> Reply:
    reply, calls, is_done = Reply(), dict[int, dict[str, Any]](), False
    for event in events:
        if event.data == "[DONE]":
            is_done = True
            continue
        chunk = msgspec.json.decode(event.data)
        if chunk.get("error"):
            reply.error = str(chunk["error"])
            return reply
        if chunk.get("object") != "chat.completion.chunk":
            reply.problems.append(f"object is {chunk.get('object')!r}, not 'chat.completion.chunk'")
        reply.usage = read_usage(chunk.get("usage")) or reply.usage
        for choice in objects(chunk.get("choices")):
            delta = choice.get("delta") or {}
            reply.text += delta.get("content") or ""
            reply.thinking += _thinking(delta)
            for fragment in objects(delta.get("tool_calls")):
                _add_fragment(calls, fragment, reply)
            if choice.get("finish_reason"):
                _finish(choice["finish_reason"], reply)
    for call in calls.values():
        _check_call(call, reply)
        reply.calls.append(_read_call(call))
    reply.is_complete = is_done and bool(reply.finish)
    return reply


def _add_fragment(calls: dict[int, dict[str, Any]], fragment: dict[str, Any], reply: Reply) -> None:
    index = fragment.get("index")
    if not isinstance(index, int):
        reply.problems.append("a tool call fragment needs an index")
        return
    function = fragment.get("function") or {}
    call = calls.setdefault(index, {"type": "function", "function": {"name": "", "arguments": ""}})
    if fragment.get("id"):
        if call.get("id", fragment["id"]) != fragment["id"]:
            reply.problems.append(f"two tool calls share index {index}")
        call["id"] = fragment["id"]
    call["function"]["name"] = call["function"]["name"] or function.get("name") or ""
    call["function"]["arguments"] += function.get("arguments") or ""


def error_problems(body: Any) -> list[str]:
    """What is wrong with the shape of an error. The SDKs read the message; many servers leave the other fields out."""
    return [] if error_of(body) else ["the body must be {error: {message, …}}"]
