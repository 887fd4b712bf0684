"""Gemini generateContent from both ends. The API accepts camelCase and snake_case, so both are read."""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon_devtools.conform.bodies import as_arguments, error_of, json_event, objects, one_of, result_text, text_of
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

name = "gemini"
endpoint = Endpoint(
    "/v1beta/models/{model}:generateContent",
    "x-goog-api-key",
    streaming="/v1beta/models/{model}:streamGenerateContent?alt=sse",
)
_STATUSES = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND"}
_STATUSES |= {429: "RESOURCE_EXHAUSTED", 500: "INTERNAL", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED"}
_SETTINGS = {
    "max_tokens": ("maxOutputTokens", "max_output_tokens"),
    "temperature": ("temperature",),
    "top_p": ("topP", "top_p"),
    "stop": ("stopSequences", "stop_sequences"),
}
_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}


def write_request(dialogue: Dialogue, model: str, streams: bool) -> dict[str, Any]:
    del model, streams  # they are in the path
    names = {call.id: call.name for turn in dialogue.turns for call in turn.calls}
    body: dict[str, Any] = {"contents": [_content(turn, names) for turn in dialogue.turns]}
    if dialogue.system:
        body["systemInstruction"] = {"parts": [{"text": dialogue.system}]}
    if dialogue.tools:
        declared = [
            {"name": tool, "description": f"The {tool}.", _schema_field(schema): schema}
            for tool, schema in dialogue.tools.items()
        ]
        body["tools"] = [{"functionDeclarations": declared}]
    if dialogue.tool_choice:
        config: dict[str, Any] = {"mode": _MODES.get(dialogue.tool_choice, "ANY")}
        if dialogue.tool_choice not in _MODES:
            config["allowedFunctionNames"] = [dialogue.tool_choice]
        body["toolConfig"] = {"functionCallingConfig": config}
    given = dialogue.settings.given()
    settings = {_SETTINGS[each][0]: value for each, value in given.items() if each in _SETTINGS}
    if "effort" in given:
        settings["thinkingConfig"] = {"thinkingLevel": given["effort"].upper()}
    if dialogue.schema is not None:
        settings |= {"responseMimeType": "application/json", "responseJsonSchema": dialogue.schema}
    return body | ({"generationConfig": settings} if settings else {})


def _schema_field(schema: dict[str, Any]) -> str:
    """`parameters` is what most clients send; it has no word for closed objects."""
    return "parametersJsonSchema" if "additionalProperties" in schema else "parameters"


def _content(turn: Turn, names: dict[str, str]) -> dict[str, Any]:
    if turn.user is not None:
        parts: list[dict[str, Any]] = [{"text": turn.user}]
        if turn.image:
            parts.append({"inlineData": {"mimeType": "image/png", "data": PICTURE}})
        return {"role": "user", "parts": parts}
    if turn.results:
        return {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        "id": each.id,
                        "name": each.name or names.get(each.id, "weather"),
                        "response": {"output": each.text},
                    }
                }
                for each in turn.results
            ],
        }
    parts = []
    if turn.assistant is not None:
        part: dict[str, Any] = {"text": turn.assistant}
        parts.append(part | ({"thoughtSignature": turn.signature} if turn.signature and not turn.calls else {}))
    for place, call in enumerate(turn.calls):
        signature = call.signature or (turn.signature if place == 0 else "")
        parts.append(_call(call) | ({"thoughtSignature": signature} if signature else {}))
    return {"role": "model", "parts": parts}


def _call(call: Call) -> dict[str, Any]:
    return {"functionCall": {"id": call.id, "name": call.name, "args": call.arguments}}


def read_request(body: dict[str, Any]) -> Contents:
    found = Contents()
    system = one_of(body, "systemInstruction", "system_instruction")
    if isinstance(system, dict):
        found.texts.append(text_of(system.get("parts")))
    contents = body.get("contents")
    for content in objects([contents] if isinstance(contents, dict) else contents):
        for part in objects(content.get("parts")):
            _read_part(part, found)
    for tool in objects(body.get("tools")):
        for declared in objects(one_of(tool, "functionDeclarations", "function_declarations")):
            schema = one_of(declared, "parametersJsonSchema", "parameters_json_schema", "parameters")
            found.tools[str(declared.get("name"))] = schema
    config = one_of(one_of(body, "toolConfig", "tool_config"), "functionCallingConfig", "function_calling_config")
    if isinstance(config, dict):
        allowed = one_of(config, "allowedFunctionNames", "allowed_function_names") or []
        back = {mode: choice for choice, mode in _MODES.items()} | {"VALIDATED": "auto"}
        mode = back.get(str(config.get("mode")).upper(), "")
        found.tool_choice = allowed[0] if mode == "required" and len(allowed) == 1 else mode
    settings = one_of(body, "generationConfig", "generation_config") or {}
    there = {known: one_of(settings, *spellings) for known, spellings in _SETTINGS.items()}
    found.settings = {known: value for known, value in there.items() if value is not None}
    found.schema = one_of(
        settings, "responseJsonSchema", "response_json_schema", "responseSchema", "response_schema", "responseFormat"
    )
    return found


def _read_part(part: dict[str, Any], found: Contents) -> None:
    signature = one_of(part, "thoughtSignature", "thought_signature")
    if signature:
        found.signatures.append(str(signature))
    if isinstance(part.get("text"), str):
        found.texts.append(part["text"])
    data = one_of(part, "inlineData", "inline_data")
    if isinstance(data, dict):
        found.images.append(str(data.get("data")))
    call = one_of(part, "functionCall", "function_call")
    if isinstance(call, dict):
        arguments = as_arguments(call.get("args") or {})
        found.calls.append(Call(str(call.get("id") or ""), str(call.get("name")), arguments))
    result = one_of(part, "functionResponse", "function_response")
    if isinstance(result, dict):
        text = result_text(result.get("response"))
        found.texts.append(text)
        found.results.append(Result(str(result.get("id") or ""), text, str(result.get("name"))))


def _parts(answer: Answer) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    if answer.thinking:
        parts.append({"text": answer.thinking, "thought": True})
    parts += [{"text": piece} for piece in answer.pieces]
    for place, call in enumerate(answer.calls):
        signature = {"thoughtSignature": answer.signature or "c2ln"} if place == 0 else {}
        parts.append(_call(call) | signature)
    return parts


def write_answer(answer: Answer, model: str) -> dict[str, Any]:
    parts = [part for part in _parts(answer) if "text" not in part or part.get("thought")]
    if answer.text:
        parts.insert(int(bool(answer.thinking)), {"text": answer.text})
    return _response(answer, model, parts, is_last=True)


def _response(answer: Answer, model: str, parts: list[dict[str, Any]], *, is_last: bool) -> dict[str, Any]:
    usage = answer.usage
    candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "index": 0}
    if is_last:
        candidate["finishReason"] = "MAX_TOKENS" if answer.finish == "length" else "STOP"
    counts = {
        "promptTokenCount": usage.input,
        "candidatesTokenCount": usage.output - usage.reasoning,
        "totalTokenCount": usage.input + usage.output,
    }
    counts |= {"cachedContentTokenCount": usage.cached} if usage.cached else {}
    counts |= {"thoughtsTokenCount": usage.reasoning} if usage.reasoning else {}
    return {"candidates": [candidate], "usageMetadata": counts, "modelVersion": model, "responseId": "conform1"}


def write_events(answer: Answer, model: str, *, has_usage: bool = True) -> list[bytes]:
    del has_usage  # it is always sent
    parts = _parts(answer)
    return [
        _event(_response(answer, model, [part], is_last=place == len(parts) - 1)) for place, part in enumerate(parts)
    ]


def _event(value: dict[str, Any]) -> bytes:
    """The API ends its lines with CR and LF."""
    return json_event(value).replace(b"\n", b"\r\n")


def cut_places(events: list[bytes]) -> int:
    return len(events) - 1


def write_error(status: int, message: str) -> dict[str, Any]:
    return {"error": {"code": status, "message": message, "status": _STATUSES.get(status, "INTERNAL")}}


def error_event(message: str) -> bytes:
    return _event(write_error(503, message))


def read_answer(body: dict[str, Any]) -> Reply:
    reply = _read_chunk(body, Reply())
    if not reply.finish:
        reply.problems.append("candidates[0].finishReason is missing")
    reply.is_complete = bool(reply.finish)
    return reply


def _read_chunk(body: dict[str, Any], reply: Reply) -> Reply:
    if body.get("error"):
        reply.error = str(body["error"])
        return reply
    candidates = objects(body.get("candidates"))
    if len(candidates) > 1:
        reply.problems.append(f"{len(candidates)} candidates, not 1")
    for candidate in candidates[:1]:
        content = candidate.get("content") or {}
        if content and content.get("role") != "model":
            reply.problems.append("candidates[0].content.role is not 'model'")
        for part in objects(content.get("parts")):
            if part.get("thoughtSignature"):
                reply.signatures.append(str(part["thoughtSignature"]))
            if isinstance(part.get("text"), str):
                if part.get("thought"):
                    reply.thinking += part["text"]
                else:
                    reply.text += part["text"]
            call = part.get("functionCall")
            if isinstance(call, dict):
                if not isinstance(call.get("args", {}), dict):
                    reply.problems.append("functionCall.args must be an object")
                    continue
                reply.calls.append(Call(str(call.get("id") or ""), str(call.get("name")), call.get("args") or {}))
        if candidate.get("finishReason"):
            reason = candidate["finishReason"]
            reply.finish = {"MAX_TOKENS": "length", "STOP": "stop"}.get(reason, str(reason))
    if reply.finish == "stop" and reply.calls:
        reply.finish = "tool_calls"
    usage = body.get("usageMetadata")
    if isinstance(usage, dict):
        reasoning = usage.get("thoughtsTokenCount") or 0
        output = (usage.get("candidatesTokenCount") or 0) + reasoning
        reply.usage = Usage(
            usage.get("promptTokenCount") or 0, usage.get("cachedContentTokenCount") or 0, output, reasoning
        )
    return reply


def read_events(events: list[Event]) -> Reply:
    reply = Reply()
    for event in events:
        if event.data == "[DONE]":
            reply.problems.append("the API sends no [DONE]")
            continue
        _read_chunk(msgspec.json.decode(event.data), reply)
        if reply.error:
            return reply
    reply.is_complete = bool(reply.finish)
    return reply


def error_problems(body: Any) -> list[str]:
    """What is wrong with the shape of an error."""
    error = error_of(body)
    if not error:
        return ["the body must be {error: {code, message, status}}"]
    is_right = isinstance(error.get("code"), int) and isinstance(error.get("status"), str)
    return [] if is_right else ["error.code must be a number and error.status a string"]
