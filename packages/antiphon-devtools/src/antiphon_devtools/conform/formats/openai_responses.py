"""OpenAI Responses from both ends."""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon_devtools.conform.bodies import halves, json_event, objects, read_arguments, text_of
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
)
from antiphon_devtools.conform.formats import openai_chat
from antiphon_devtools.conform.formats.endpoint import Endpoint

name = "openai-responses"
endpoint = Endpoint("/v1/responses")
write_error = openai_chat.write_error  # the two APIs share their errors
error_problems = openai_chat.error_problems


def write_request(dialogue: Dialogue, model: str, streams: bool) -> dict[str, Any]:
    body: dict[str, Any] = {"model": model, "input": [item for turn in dialogue.turns for item in _items(turn)]}
    if dialogue.system:
        body["instructions"] = dialogue.system
    if dialogue.tools:
        body["tools"] = [
            {"type": "function", "name": tool, "description": f"The {tool}.", "parameters": schema, "strict": False}
            for tool, schema in dialogue.tools.items()
        ]
    if dialogue.tool_choice in ("auto", "none", "required"):
        body["tool_choice"] = dialogue.tool_choice
    elif dialogue.tool_choice:
        body["tool_choice"] = {"type": "function", "name": dialogue.tool_choice}
    if dialogue.schema is not None:
        body["text"] = {"format": {"type": "json_schema", "name": "answer", "schema": dialogue.schema, "strict": True}}
    given = dialogue.settings.given()
    if "max_tokens" in given:
        body["max_output_tokens"] = given["max_tokens"]
    if "effort" in given:
        body["reasoning"] = {"effort": given["effort"]}
    body |= {each: given[each] for each in ("temperature", "top_p") if each in given}
    return body | ({"stream": True} if streams else {})


def _items(turn: Turn) -> list[dict[str, Any]]:
    if turn.user is not None:
        content: list[dict[str, Any]] = [{"type": "input_text", "text": turn.user}]
        if turn.image:
            content.append({"type": "input_image", "image_url": f"data:image/png;base64,{PICTURE}", "detail": "auto"})
        return [{"type": "message", "role": "user", "content": content}]
    if turn.results:
        return [{"type": "function_call_output", "call_id": each.id, "output": each.text} for each in turn.results]
    items: list[dict[str, Any]] = []
    if turn.signature:
        summary = [{"type": "summary_text", "text": turn.thinking}]
        items.append({"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": turn.signature})
    if turn.assistant is not None:
        content = [{"type": "output_text", "text": turn.assistant, "annotations": []}]
        items.append({"type": "message", "role": "assistant", "content": content})
    return items + [_call(each) for each in turn.calls]


def _call(call: Call) -> dict[str, Any]:
    arguments = msgspec.json.encode(call.arguments).decode()
    return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments}


def read_request(body: dict[str, Any]) -> Contents:
    found = Contents()
    if isinstance(body.get("instructions"), str):
        found.texts.append(body["instructions"])
    if isinstance(body.get("input"), str):
        found.texts.append(body["input"])
    for item in objects(body.get("input")):
        match item.get("type", "message"):
            case "message":
                found.texts.append(text_of(item.get("content")))
                _read_images(item.get("content"), found)
            case "function_call":
                found.calls.append(_read_call(item))
            case "function_call_output":
                text = text_of(item.get("output"))
                found.texts.append(text)
                found.results.append(Result(str(item.get("call_id")), text))
                _read_images(item.get("output"), found)
            case "reasoning":
                found.signatures.append(str(item.get("encrypted_content")))
    for tool in objects(body.get("tools")):
        found.tools[str(tool.get("name"))] = tool.get("parameters")
    choice = body.get("tool_choice")
    if choice is not None:
        found.tool_choice = str(choice.get("name")) if isinstance(choice, dict) else str(choice)
    wanted = (body.get("text") or {}).get("format") if isinstance(body.get("text"), dict) else None
    if isinstance(wanted, dict) and wanted.get("type") != "text":
        found.schema = wanted.get("schema", wanted)
    fields = {"max_output_tokens": "max_tokens", "temperature": "temperature", "top_p": "top_p"}
    found.settings = {known: body[field] for field, known in fields.items() if body.get(field) is not None}
    effort = (body.get("reasoning") or {}).get("effort") if isinstance(body.get("reasoning"), dict) else None
    if effort:
        found.settings["effort"] = effort
    return found


def _read_images(content: Any, found: Contents) -> None:
    for part in objects(content):
        if part.get("type") == "input_image" and isinstance(part.get("image_url"), str):
            found.images.append(part["image_url"].rpartition(",")[2])


def _read_call(item: dict[str, Any]) -> Call:
    return Call(str(item.get("call_id")), str(item.get("name")), read_arguments(item.get("arguments")))


def _output(answer: Answer) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if answer.thinking:
        item: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": []}
        item["summary"] = [{"type": "summary_text", "text": answer.thinking}]
        items.append(item | ({"encrypted_content": answer.signature} if answer.signature else {}))
    if answer.text:
        part = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
        items.append({"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [part]})
    for place, call in enumerate(answer.calls):
        items.append({**_call(call), "id": f"fc_{place + 1}", "status": "completed"})
    return items


def write_answer(answer: Answer, model: str) -> dict[str, Any]:
    is_cut = answer.finish == "length"
    usage = answer.usage
    return {
        "id": "resp_conform1",
        "object": "response",
        "created_at": 1_700_000_000,
        "status": "incomplete" if is_cut else "completed",
        "background": False,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
        "instructions": None,
        "max_output_tokens": None,
        "model": model,
        "output": _output(answer),
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "store": False,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": {
            "input_tokens": usage.input,
            "input_tokens_details": {"cached_tokens": usage.cached},
            "output_tokens": usage.output,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning},
            "total_tokens": usage.input + usage.output,
        },
        "user": None,
        "metadata": {},
    }


def write_events(answer: Answer, model: str, *, has_usage: bool = True) -> list[bytes]:
    del has_usage  # it is always sent
    whole = write_answer(answer, model)
    begun = {**whole, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    for place, item in enumerate(whole["output"]):
        at = {"item_id": item["id"], "output_index": place}
        kind = item["type"]
        empty = {**item, **{"message": {"content": []}, "reasoning": {"summary": []}}.get(kind, {"arguments": ""})}
        empty |= {"status": "in_progress"} if kind != "reasoning" else {}
        events.append({"type": "response.output_item.added", "output_index": place, "item": empty})
        if kind == "message":
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            inside = {**at, "content_index": 0}
            events.append({"type": "response.content_part.added", **inside, "part": part})
            events += [
                {"type": "response.output_text.delta", **inside, "delta": piece, "logprobs": []}
                for piece in answer.pieces
            ]
            events.append({"type": "response.output_text.done", **inside, "text": answer.text, "logprobs": []})
            events.append({"type": "response.content_part.done", **inside, "part": item["content"][0]})
        elif kind == "reasoning":
            inside = {**at, "summary_index": 0}
            part = {"type": "summary_text", "text": ""}
            events.append({"type": "response.reasoning_summary_part.added", **inside, "part": part})
            events.append({"type": "response.reasoning_summary_text.delta", **inside, "delta": answer.thinking})
            events.append({"type": "response.reasoning_summary_text.done", **inside, "text": answer.thinking})
            events.append({"type": "response.reasoning_summary_part.done", **inside, "part": item["summary"][0]})
        else:
            events += [
                {"type": "response.function_call_arguments.delta", **at, "delta": piece}
                for piece in halves(item["arguments"])
            ]
            done = {"type": "response.function_call_arguments.done", **at, "arguments": item["arguments"]}
            events.append(done | {"name": item["name"]})
        events.append({"type": "response.output_item.done", "output_index": place, "item": item})
    events.append({"type": f"response.{whole['status']}", "response": whole})
    return [json_event({**event, "sequence_number": number}, event["type"]) for number, event in enumerate(events)]


def cut_places(events: list[bytes]) -> int:
    return len(events) - 1


def error_event(message: str) -> bytes:
    event = {"type": "error", "code": "server_error", "message": message, "param": None, "sequence_number": 3}
    return json_event(event, "error")


def read_answer(body: dict[str, Any]) -> Reply:
    reply = Reply()
    if body.get("object") != "response" or not isinstance(body.get("id"), str):
        reply.problems.append("id must be a string and object 'response'")
    status = body.get("status")
    if status == "failed" or body.get("error"):
        reply.error = str(body.get("error"))
        return reply
    if status not in ("completed", "incomplete"):
        reply.problems.append(f"status {status!r} of a finished response")
    for item in objects(body.get("output")):
        match item.get("type"):
            case "message":
                if item.get("role") != "assistant" or not isinstance(item.get("content"), list):
                    reply.problems.append("an output message needs role 'assistant' and a list as content")
                kinds = {part.get("type") for part in objects(item.get("content"))}
                if not kinds <= {"output_text", "refusal"}:
                    reply.problems.append(f"content of an output message has types {sorted(map(str, kinds))}")
                reply.text += text_of(item.get("content"))
            case "function_call":
                if not item.get("call_id") or not isinstance(item.get("arguments"), str):
                    reply.problems.append("a function_call needs a call_id and arguments as a string")
                reply.calls.append(_read_call(item))
            case "reasoning":
                reply.thinking += text_of(item.get("summary")) or text_of(item.get("content"))
                if item.get("encrypted_content"):
                    reply.signatures.append(str(item["encrypted_content"]))
            case other:
                reply.problems.append(f"output item of unknown type {other!r}")
    reason = (body.get("incomplete_details") or {}).get("reason")
    reply.finish = "length" if reason == "max_output_tokens" else "tool_calls" if reply.calls else "stop"
    reply.usage = openai_chat.read_usage(body.get("usage"), "input_tokens", "output_tokens")
    reply.is_complete = status in ("completed", "incomplete")
    return reply


def read_events(events: list[Event]) -> Reply:
    text, arguments, final = "", dict[int, str](), Reply()
    number = -1
    problems: list[str] = []
    for event in events:
        if event.data == "[DONE]":
            continue
        value = msgspec.json.decode(event.data)
        kind = value.get("type")
        if event.name and event.name != kind:
            problems.append(f"event {event.name!r} carries type {kind!r}")
        if isinstance(value.get("sequence_number"), int):
            if value["sequence_number"] <= number:
                problems.append("sequence_number does not grow")
            number = value["sequence_number"]
        if kind in ("error", "response.failed"):
            final.error = str(value.get("message") or value.get("error") or (value.get("response") or {}).get("error"))
            break
        if kind == "response.output_text.delta":
            text += value.get("delta") or ""
        elif kind == "response.function_call_arguments.delta":
            index = value.get("output_index", -1)
            arguments[index] = arguments.get(index, "") + (value.get("delta") or "")
        elif kind in ("response.completed", "response.incomplete"):
            final = read_answer(value.get("response") or {})
            if text != final.text:
                problems.append("the text of the deltas is not the text of the final response")
            sent = [read_arguments(each) for each in arguments.values()]
            if sent != [call.arguments for call in final.calls]:
                problems.append("the arguments of the deltas are not those of the final response")
    final.text = final.text or text
    final.problems += dict.fromkeys(problems)
    return final
