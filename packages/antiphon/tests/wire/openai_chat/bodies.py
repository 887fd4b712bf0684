"""Bodies of Chat Completions for tests: recorded and generated ones, and when two of them mean the same."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

from antiphon.wire.delta import Assembler, ModelOutputDelta
from support.corpus import CORPUS, client_requests, recorded
from support.wire_formats import CHAT

StreamReader = CHAT.stream_reader

FORMAT = "openai-chat"
FILES = ("openai_chat", "openai_compatible")
OPENAI_HOSTS = ("openai", "azure")


def request_bodies() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """What a host accepted, the longest conversations, and what real programs send: vendor, id, body."""
    for name in FILES:
        for record in recorded(name):
            if (
                200 <= record["status"] < 300
                and isinstance(record["request"], dict)
                and "messages" in record["request"]
            ):
                yield record["vendor"], record["id"], record["request"]
        conversations = CORPUS / "conversations" / f"{name}.jsonl"
        for line in conversations.read_bytes().splitlines():
            record = msgspec.json.decode(line)
            yield record["vendor"], record["id"], record["request"]
    for place, body in enumerate(client_requests(FORMAT)):
        yield "openai", f"client {place}", body


def response_bodies() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for name in FILES:
        for record in recorded(name):
            if record["status"] == 200 and isinstance(record["response"], dict):
                yield record["vendor"], record["id"], record["response"]


def all_streams() -> Iterator[tuple[str, str, bytes]]:
    """Every recorded stream with its vendor and id, as bytes; those kept as lists of events are written out."""
    for name in FILES:
        for record in recorded(name):
            sse = record["sse"]
            if isinstance(sse, str):
                yield record["vendor"], record["id"], sse.encode()
            elif sse is not None:
                yield record["vendor"], record["id"], b"".join(event(chunk) for chunk in sse)


def event(value: Any) -> bytes:
    data = value if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False).encode()
    return b"data: " + data + b"\n\n"


def chunk(delta: Any = None, finish: Any = None, *, index: int = 0, **more: Any) -> dict[str, Any]:
    """A chunk of a stream with one choice."""
    choice = {"index": index, "delta": {} if delta is None else delta, "finish_reason": finish}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 7, "model": "m"}
    return {**head, "choices": [choice], **more}


def read_all(data: bytes, *sizes: int) -> list[ModelOutputDelta]:
    """The deltas of a stream that comes in pieces of these sizes, over and over."""
    reader = StreamReader()
    deltas: list[ModelOutputDelta] = []
    start = turn = 0
    while start < len(data):
        size = sizes[turn % len(sizes)] if sizes else len(data)
        deltas += reader.feed(data[start : start + size])
        start, turn = start + size, turn + 1
    return deltas + reader.close()


def assembled(deltas: list[ModelOutputDelta]) -> Assembler:
    assembler = Assembler()
    for delta in deltas:
        assembler.add(delta)
    return assembler


def encoded(body: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(body))


def without_nulls(value: Any) -> Any:
    """An object without its nulls; anything else as it is."""
    return {key: entry for key, entry in value.items() if entry is not None} if isinstance(value, dict) else value


def normalised(body: dict[str, Any]) -> dict[str, Any]:
    """A request body up to the documented normalisations."""
    body = without_nulls(body)
    if isinstance(body.get("stop"), str):
        body["stop"] = [body["stop"]]
    if ("max_tokens" in body) != ("max_completion_tokens" in body):
        body["tokens"] = body.pop("max_tokens", None) or body.pop("max_completion_tokens", None)
    if body.get("stream") is True and isinstance(body.get("stream_options", {}), dict):
        body["stream_options"] = {"include_usage": True, **body.get("stream_options", {})}
    if isinstance(body.get("tools"), list):
        body["tools"] = [normalised_tool(tool) for tool in body["tools"]]
    if body.get("tools") == []:
        del body["tools"]
    if body.get("tool_choice") == "any":
        body["tool_choice"] = "required"
    wanted = body.get("response_format")
    if isinstance(wanted, dict) and isinstance(wanted.get("json_schema"), dict):
        body["response_format"] = {**wanted, "json_schema": without_nulls(wanted["json_schema"])}
    body["messages"] = [normalised_message(message) for message in body["messages"]]
    return body


def normalised_tool(tool: Any) -> Any:
    if not isinstance(tool, dict) or tool.get("type", "function") not in ("function", "custom"):
        return tool
    tool = {"type": "function", **without_nulls(tool)}
    kind = tool["type"]
    return {**tool, kind: without_nulls(tool[kind])} if isinstance(tool.get(kind), dict) else tool


def normalised_message(message: Any) -> Any:
    if not isinstance(message, dict) or message.get("role") not in (
        "user",
        "system",
        "developer",
        "assistant",
        "tool",
        "function",
    ):
        return message
    message = without_nulls(message)
    content = message.get("content")
    if isinstance(content, list):
        content = [normalised_part(part) for part in content]
        if message["role"] == "assistant":
            content = lift_refusal(message, content)
        if len(content) == 1 and isinstance(content[0], dict) and set(content[0]) == {"type", "text"}:
            content = content[0]["text"] if content[0]["type"] == "text" else content
        message["content"] = content
    for key in ("annotations", "reasoning_details", "tool_calls", "content"):
        if message.get(key) == []:
            del message[key]
    for key in ("refusal", "reasoning", "reasoning_content"):
        if message.get(key) == "":
            del message[key]
    calls = message.get("tool_calls")
    if isinstance(calls, list) and message["role"] == "assistant":
        message["tool_calls"] = [normalised_call(call, place) for place, call in enumerate(calls)]
    if message["role"] == "tool":
        message.setdefault("tool_call_id", "")
    substitutes = ("tool_calls", "function_call", "refusal", "audio")
    if message["role"] != "function" and not (message["role"] == "assistant" and any(map(message.get, substitutes))):
        message.setdefault("content", "")
    return message


def lift_refusal(message: dict[str, Any], content: list[Any]) -> list[Any]:
    refusals = [part for part in content if isinstance(part, dict) and part.get("type") == "refusal"]
    if "refusal" not in message and len(refusals) == 1 and set(refusals[0]) == {"type", "refusal"}:
        message["refusal"] = refusals[0]["refusal"]
        return [part for part in content if part is not refusals[0]]
    return content


def normalised_part(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    kind = part.get("type")
    if kind not in ("text", "image_url", "input_audio", "file", "refusal", "thinking", "document_url"):
        return part
    part = without_nulls(part)
    if kind == "image_url" and isinstance(part.get("image_url"), str):
        part["image_url"] = {"url": part["image_url"]}
    if kind == "image_url" and isinstance(part.get("image_url"), dict):
        part["image_url"] = without_nulls(part["image_url"])
    return part


def normalised_call(call: Any, place: int) -> Any:
    if not isinstance(call, dict) or call.get("type") not in ("function", "custom", None, ""):
        return call
    call = {**without_nulls(call), "type": call.get("type") or "function"}
    if call.get("index") == place:
        del call["index"]
    kind = call["type"]
    if isinstance(call.get(kind), dict):
        called = without_nulls(call[kind])
        text = "arguments" if kind == "function" else "input"
        if isinstance(called.get(text), dict) and kind == "function":
            called[text] = msgspec.json.encode(called[text]).decode()
        call[kind] = {text: "", **called}
    return call


def normalised_answer(body: dict[str, Any]) -> dict[str, Any]:
    """A response body up to the documented normalisations."""
    body = {"object": "chat.completion", **without_nulls(body)}
    for key in ("id", "model"):
        if body.get(key) == "":
            del body[key]
    if isinstance(body.get("choices"), list):
        body["choices"] = [normalised_choice(choice, place) for place, choice in enumerate(body["choices"])]
    return body


def normalised_choice(choice: Any, place: int) -> Any:
    if not isinstance(choice, dict) or not isinstance(choice.get("message") or {}, dict):
        return choice
    choice = {"index": place, **without_nulls(choice)}
    if choice.get("finish_reason") == "":
        del choice["finish_reason"]
    message = {**without_nulls(choice.get("message") or {})}
    message.setdefault("role", "assistant")
    message = normalised_message(message) if message["role"] == "assistant" else message
    if message.get("content") == "":
        del message["content"]
    calls = message.get("tool_calls")
    for number, call in enumerate(calls if isinstance(calls, list) else ()):
        if isinstance(call, dict) and not call.get("id"):
            call["id"] = f"call_{number}"
    return {**choice, "message": message}


@contextmanager
def served(answers: dict[str, tuple[int, str, bytes]]) -> Iterator[str]:
    """A local server that answers a request for model `m` with status, content type and bytes; gives its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body in one piece, or each waits for the other's acknowledgement

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            status, kind, data = answers[body["model"]]
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_request(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
