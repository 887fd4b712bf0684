"""Bodies of OpenAI Responses for tests: recorded and generated ones, and when two of them mean the same."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
from hypothesis import strategies as st

from antiphon.wire.delta import Assembler, ModelOutputDelta
from antiphon.wire.loss import Loss
from antiphon.wire.openai_responses.limits import ITEM_TYPES
from antiphon.wire.openai_responses.messages import CALL_IDS
from antiphon.wire.request import ModelRequest
from antiphon.wire.tools.names import safe_name
from support.corpus import CORPUS, accepted_requests, client_requests, recorded
from support.wire_formats import RESPONSES

write_request = RESPONSES.write_request
StreamReader = RESPONSES.stream_reader

FORMAT = "openai-responses"
_is_name = re.compile(r"[a-zA-Z0-9_-]{1,128}").fullmatch


def request_bodies() -> Iterator[dict[str, Any]]:
    """What the API accepted, the longest conversations, and what real programs send."""
    yield from accepted_requests(FORMAT)
    conversations = CORPUS / "conversations" / "openai_responses.jsonl"
    yield from (msgspec.json.decode(line)["request"] for line in conversations.read_bytes().splitlines())
    yield from client_requests(FORMAT)


def response_bodies() -> Iterator[dict[str, Any]]:
    for record in recorded(FORMAT):
        if record["status"] == 200 and isinstance(record["response"], dict):
            yield record["response"]


def all_streams() -> Iterator[tuple[str, bytes]]:
    """Every recorded stream with its id, as bytes; those kept as lists of events are written out."""
    for record in recorded(FORMAT):
        sse = record["sse"]
        if sse is not None:
            yield record["id"], sse.encode() if isinstance(sse, str) else written_out(sse)


def written_out(events: list[dict[str, Any]]) -> bytes:
    return b"".join(b"event: %b\ndata: %b\n\n" % (event["type"].encode(), dumped(event)) for event in events)


def events_of(data: bytes) -> list[dict[str, Any]]:
    lines = [line[5:].strip() for line in data.split(b"\n") if line.startswith(b"data:")]
    return [msgspec.json.decode(line) for line in lines if line != b"[DONE]"]


def dumped(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


Body = dict[str, Any]
Events = list[Body]
OBJECT = {"type": "object", "properties": {}}


def plain(body: Any) -> Any:
    """A written body as a client gets it."""
    return msgspec.json.decode(msgspec.json.encode(body))


def written(request: ModelRequest) -> tuple[Body, list[Loss]]:
    """The body of a request, and what it lost."""
    losses: list[Loss] = []
    return plain(write_request(request, losses)), losses


def read_all(data: bytes) -> list[ModelOutputDelta]:
    reader = StreamReader()
    return [*reader.feed(data), *reader.close()]


def assembled(deltas: list[ModelOutputDelta]) -> Assembler:
    assembler = Assembler()
    for delta in deltas:
        assembler.add(delta)
    return assembler


def without_nulls(value: Any) -> Any:
    """Null is the same as absent, and so are empty annotations and logprobs."""
    if isinstance(value, dict):
        return {
            key: without_nulls(inner)
            for key, inner in value.items()
            if inner is not None and not (key in ("annotations", "logprobs") and inner == [])
        }
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value


def normalised(body: dict[str, Any]) -> dict[str, Any]:
    """A request body in one form, by the normalisations in the header of `request.py` and by nothing else."""
    body = without_nulls(body)
    items = body.pop("input", [])
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    if items:
        body["input"] = [_normalised_item(item) for item in items]
    absent: tuple[tuple[str, Any], ...] = (("tools", []), ("model", ""), ("text", {}))
    return {name: value for name, value in body.items() if (name, value) not in absent}


def _normalised_item(item: Any) -> Any:
    if not isinstance(item, dict):
        return item
    kind, role = item.get("type"), item.get("role")
    if kind == "message" and role is not None:
        item = {key: value for key, value in item.items() if key != "type"}
    if kind == "function_call" and item.get("arguments") == "":
        item = {**item, "arguments": "{}"}
    text_kind = "output_text" if role == "assistant" else "input_text"
    for field in ("content", "output"):
        content = item.get(field)
        if field == "output" and content == []:
            item = {**item, "output": ""}
        elif isinstance(content, list) and len(content) == 1:
            only = content[0]
            if isinstance(only, dict) and len(only) == 2 and only.get("type") == text_kind:
                item = {**item, field: only.get("text", only)}
    return item


def made_legal(body: dict[str, Any]) -> dict[str, Any]:
    """The body as OpenAI takes it: stand-ins for ids and names it refuses, and what it cannot do without."""
    items = body.get("input")
    if isinstance(items, list):
        body = {**body, "input": [_with_legal_ids(item) for item in items]}
    tools = body.get("tools")
    if isinstance(tools, list):
        body = {**body, "tools": [_legal_tool(tool) for tool in tools]}
    text = body.get("text")
    wanted = text.get("format") if isinstance(text, dict) else None
    if isinstance(text, dict) and isinstance(wanted, dict) and wanted.get("type") == "json_schema":
        body = {**body, "text": {**text, "format": _named(wanted)}}
    return body


def _named(wanted: dict[str, Any]) -> dict[str, Any]:
    types = {"schema": dict, "name": str | None, "description": str | None, "strict": bool | None}
    if not all(isinstance(wanted.get(field), kind) for field, kind in types.items()):
        return wanted
    return {**wanted, "name": wanted.get("name") or "response"}


def _legal_tool(tool: Any) -> Any:
    if not isinstance(tool, dict) or not isinstance(tool.get("description"), str | None):
        return tool
    if tool.get("type") == "custom":
        return _with_legal_name(tool)
    parameters = tool.get("parameters")
    is_read = isinstance(parameters, dict | None) and isinstance(tool.get("strict"), bool | None)
    if tool.get("type") != "function" or not is_read or not isinstance(tool.get("name"), str):
        return tool
    if isinstance(parameters, dict) and parameters.get("type") is None:
        tool = {**tool, "parameters": {**parameters, "type": "object"}}
    return _with_legal_name(tool)


def _with_legal_ids(item: Any) -> Any:
    if not isinstance(item, dict):
        return item
    kind = item.get("type")
    if kind not in ("function_call", "custom_tool_call", "function_call_output", "custom_tool_call_output"):
        return item
    text = item.get({"function_call": "arguments", "custom_tool_call": "input"}.get(kind, "output"))
    is_result = kind.endswith("_output")
    is_read = isinstance(text, str) or (is_result and isinstance(text, list))
    if not isinstance(item.get("call_id"), str) or not is_read:
        return item
    if not is_result and not isinstance(item.get("name"), str):
        return item
    item = {**item, "call_id": CALL_IDS.to_wire(item["call_id"])}
    return item if is_result else _with_legal_name(item)


def _with_legal_name(tool: dict[str, Any]) -> dict[str, Any]:
    name = tool.get("name")
    return {**tool, "name": safe_name(name, 64)} if isinstance(name, str) and not _is_name(name) else tool


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_FIELDS = ["id", "status", "phase", "type", "role", "content", "text", "item", "summary", "detail", "name", "caller"]
keys = st.one_of(texts, st.sampled_from(_FIELDS))
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=5,
)


def mostly(right: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """What should be there, or now and then anything at all."""
    return st.one_of(right, right, right, json_values)


def objects(extra: bool = True, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with any of these fields, mostly as they should be, and with others."""
    known = st.fixed_dictionaries({}, optional={name: mostly(value) for name, value in fields.items()})
    return st.builds(
        lambda more, known_fields: {**more, **known_fields}, st.dictionaries(keys, json_values, max_size=1), known
    )


_PARTS = objects(
    type=st.sampled_from(["input_text", "output_text", "refusal", "input_image", "input_file", "input_audio", "later"]),
    text=texts,
    refusal=texts,
    image_url=st.sampled_from(["data:image/png;base64,AAAA", "https://a.example/b.png", "data:,x", ""]),
    file_id=texts,
    file_data=st.sampled_from(["data:text/plain;base64,aGk=", "data:application/pdf;base64,JVBERi0=", "AAAA"]),
    filename=texts,
    file_url=st.just("https://a.example/b.pdf"),
    input_audio=st.fixed_dictionaries({"data": texts, "format": st.sampled_from(["mp3", "wav", "ogg"])}),
    annotations=st.just([]) | st.lists(json_values, max_size=1),
)
_TEXT_PART = st.builds(
    lambda kind, text: {"type": kind, "text": text}, st.sampled_from(["input_text", "output_text"]), texts
)
_CONTENT = st.one_of(texts, st.lists(st.one_of(_TEXT_PART, mostly(_PARTS)), max_size=3))
_IDS = st.sampled_from(["msg_1", "msg_2", "fc_1", "fc_2", "rs_1", "rs_2", "ctc_1", "item_9"])
items = objects(
    type=st.sampled_from(["message", *ITEM_TYPES, "function_call", "reasoning", "function_call_output", "later_item"]),
    role=st.sampled_from(["user", "assistant", "system", "developer", "tool"]),
    content=_CONTENT,
    id=_IDS,
    status=st.sampled_from(["completed", "incomplete"]),
    call_id=st.sampled_from(["call_1", "call_2", "", "x" * 70]),
    name=st.sampled_from(["look", "look.up", "", "n" * 140]),
    arguments=st.sampled_from(["{}", "", '{"a": 1}', "{broken"]),
    input=texts,
    output=_CONTENT,
    summary=st.lists(objects(type=st.just("summary_text"), text=texts), max_size=2),
    encrypted_content=texts,
    execution=st.sampled_from(["client", "server"]),
    tools=st.just([]),
)


class Server:
    """A local stand-in for the API: gives the replies it was given, and keeps what it was asked."""

    def __init__(self) -> None:
        self.reply: bytes = b"{}"
        self.kind = "application/json"
        self.status = 200
        self.bodies: list[dict[str, Any]] = []
        self.url = ""


@contextmanager
def serving() -> Iterator[Server]:
    served = Server()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers.get("content-length", "0"))
            served.bodies.append(msgspec.json.decode(self.rfile.read(length)))
            self.send_response(served.status)
            self.send_header("content-type", served.kind)
            self.send_header("content-length", str(len(served.reply)))
            self.end_headers()
            self.wfile.write(served.reply)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the base class's
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        served.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
