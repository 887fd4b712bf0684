"""What running real programs through the gateway taught, in small: request shapes and habits of clients, each once a failure.

The programs themselves are run by `python -m clients` (see `tests/clients`); here are the shapes they send, cut down to what
matters, over real sockets to a strict upstream of each format.
"""

from __future__ import annotations

import socket
import warnings
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import msgspec
import pytest

from antiphon.parts import Text, ToolCallRequest, ToolCallResult, text_of
from antiphon.wire import FORMATS
from antiphon.wire.output import ModelOutput
from antiphon.wire.request import ModelRequest
from antiphon_gateway.access.client_keys import hash_key
from antiphon_gateway.config.settings import ClientKeySettings
from gateway.rig import MODELS, Client, Rig, path_of, rig
from gateway.strict_upstream import USAGE, text_answer

KEY, STRICT_KEY = "sk-programs", "sk-strict"
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
to_every_format = pytest.mark.parametrize("target", FORMATS)


@pytest.fixture(scope="module")
def gateway() -> Iterator[Rig]:
    keys = [
        ClientKeySettings(name="programs", key=hash_key(KEY), admin=True),
        ClientKeySettings(name="strict", key=hash_key(STRICT_KEY), strict=True),
    ]
    with rig(keys=keys) as running:
        yield running


@pytest.fixture
def client(gateway: Rig) -> Iterator[Client]:
    gateway.clear()
    with gateway.client(KEY) as client:
        yield client


def calls(*arguments: str) -> ModelOutput:
    """An answer that says a word and makes calls."""
    made = [ToolCallRequest("read_note", f"call_{number}", text) for number, text in enumerate(arguments)]
    return ModelOutput(parts=(Text("I read."), *made), stop_reason="tool_calls", id="answer-1", model="m", usage=USAGE)


CLAUDE_CODE: dict[str, Any] = {
    "max_tokens": 32000,
    "system": [
        {"type": "text", "text": "You work on code."},
        {"type": "text", "text": "Be short.", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
    ],
    "thinking": {"type": "adaptive"},
    "output_config": {"effort": "high"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "metadata": {"user_id": "user-1"},
    "tools": [
        {"name": "Read", "description": "Read a file.", "input_schema": SCHEMA},
        {"name": "WebSearch", "description": "Search.", "input_schema": SCHEMA, "defer_loading": True},
        {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"},
    ],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Read the note."}]},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"path": "n"}}],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_1",
                    "content": "the lamp is green",
                    "cache_control": {"type": "ephemeral"},
                }
            ],
        },
    ],
}
"""Adaptive thinking, deferred tools, and a turn of calls that lost its thinking."""

CODEX: dict[str, Any] = {
    "instructions": "You work on code.",
    "input": [
        {
            "type": "message",
            "role": "developer",
            "content": [{"type": "input_text", "text": "Sandbox: off."}],
            "id": "msg_1",
        },
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "Read the note."}],
            "id": "msg_2",
        },
        {
            "type": "function_call",
            "id": "fc_1",
            "status": "completed",
            "name": "exec_command",
            "arguments": '{"cmd":"cat n"}',
            "call_id": "call_1",
        },
        {"type": "function_call_output", "call_id": "call_1", "output": "the lamp is green", "id": "fco_1"},
    ],
    "tools": [
        {
            "type": "function",
            "name": "exec_command",
            "description": "Run a command.",
            "strict": False,
            "parameters": {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]},
        },
        {
            "type": "custom",
            "name": "apply_patch",
            "description": "Edit files.",
            "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "x"'},
        },
        {"type": "web_search", "external_web_access": False},
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"effort": "medium", "summary": "auto"},
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "thread-1",
    "client_metadata": {"installation": "one"},
}
"""Items with ids, a tool that takes text, one that the provider runs, and fields that only Codex sends."""

PYDANTIC_AI_GEMINI: dict[str, Any] = {
    "contents": [
        {"role": "user", "parts": [{"text": "Read the note."}]},
        {
            "role": "model",
            "parts": [
                {"text": "I read."},
                {
                    "functionCall": {"id": "call_1", "name": "read_note", "args": {}},
                    "thoughtSignature": "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=",
                },
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": "call_1", "name": "read_note", "response": {"output": "the lamp is green"}}}
            ],
        },
    ],
    "tools": [
        {
            "functionDeclarations": [
                {
                    "name": "read_note",
                    "description": "Read the note.",
                    "parameters_json_schema": {"type": "object", "properties": {}, "additionalProperties": False},
                }
            ]
        }
    ],
    "toolConfig": {"functionCallingConfig": {"mode": "VALIDATED"}},
    "generationConfig": {"responseModalities": ["TEXT"]},
}
"""Fields in both spellings, a mode of calling that only Gemini has, and a signature that is none."""

AGENTS_JS_CHAT: dict[str, Any] = {
    "messages": [
        {"role": "user", "content": "Read the note."},
        {
            "role": "assistant",
            "content": [
                {
                    "type": "text",
                    "text": "I read.",
                    "role": "assistant",
                    "tool_calls": [],
                    "annotations": [],
                    "refusal": None,
                }
            ],
            "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "read_note", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "the lamp is green"},
    ],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "read_note",
                "description": "Read the note.",
                "parameters": {"type": "object", "properties": {}, "required": [], "additionalProperties": False},
                "strict": True,
            },
        }
    ],
    "stream_options": {"include_usage": True},
}
"""The fields of the message repeated in its text."""

SHAPES = {
    "claude-code": ("anthropic", CLAUDE_CODE),
    "codex": ("openai-responses", CODEX),
    "pydantic-ai": ("gemini", PYDANTIC_AI_GEMINI),
    "agents-js": ("openai-chat", AGENTS_JS_CHAT),
}


@to_every_format
@pytest.mark.parametrize("name", SHAPES)
def test_a_request_after_a_tool_arrives(gateway: Rig, client: Client, name: str, target: str) -> None:
    source, body = SHAPES[name]
    upstream = gateway.upstreams[target]
    got = client.ask(source, f"to-{target}", body, streams=True)
    assert text_of(got.output(source, streams=True).parts).startswith("echo: ")
    assert upstream.refused == []
    assert len(upstream.received) == 1
    request_seen = upstream.wire.read_request(upstream.received[0].body)
    results = [part for message in request_seen.messages for part in message.parts if isinstance(part, ToolCallResult)]
    assert ["the lamp is green" in text_of(result.content) for result in results] == [True]
    has_lost = source != target or name == "claude-code"
    assert ("x-antiphon-losses" in got.headers) == has_lost


def test_a_body_made_for_another_model_is_repaired_before_it_is_refused(gateway: Rig, client: Client) -> None:
    """Claude Code thinks adaptively on a name it does not know; the model of that name may not."""
    got = client.ask("anthropic", "to-anthropic", CLAUDE_CODE, streams=False)
    assert got.status == 200
    assert gateway.upstreams["anthropic"].refused == []
    assert gateway.upstreams["anthropic"].bodies[0].get("thinking", {}).get("type") != "adaptive"
    assert "thinking" in got.headers["x-antiphon-losses"]


def test_a_strict_key_gets_the_refusal_of_the_provider(gateway: Rig, client: Client) -> None:
    with gateway.client(STRICT_KEY) as strict:
        got = strict.ask("anthropic", "to-anthropic", CLAUDE_CODE, streams=False)
    assert got.error("anthropic").kind == "invalid_request"
    assert len(gateway.upstreams["anthropic"].refused) == 1


def test_a_body_that_another_model_takes_passes_untouched(gateway: Rig, client: Client) -> None:
    body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 5, "thinking": {"type": "disabled"}}
    client.ask("anthropic", "to-anthropic", body, streams=False)
    assert gateway.upstreams["anthropic"].bodies == [{**body, "model": MODELS["anthropic"], "stream": False}]


class GoogleChat:
    """A chat of the official SDK, streamed, with one tool."""

    def __init__(self, gateway: Rig, target: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            genai: Any = pytest.importorskip("google.genai")
        types = self._types = genai.types
        reads = types.FunctionDeclaration(name="read_note", description="Read a note.", parameters_json_schema=SCHEMA)
        self._sdk = genai.Client(api_key=KEY, http_options=types.HttpOptions(base_url=gateway.url))
        config = types.GenerateContentConfig(tools=[types.Tool(function_declarations=[reads])])
        self._chat = self._sdk.chats.create(model=f"to-{target}", config=config)
        self.calls: list[Any] = []

    def say(self, message: Any) -> str:
        """The words of the answer; its calls are kept."""
        chunks = list(self._chat.send_message_stream(message))
        self.calls = [call for chunk in chunks for call in chunk.function_calls or ()]
        parts = [part for chunk in chunks for part in chunk.candidates[0].content.parts]
        return "".join(part.text or "" for part in parts)

    def answer_calls(self) -> str:
        make = self._types.Part.from_function_response
        return self.say([make(name=call.name, response={"output": "the lamp is green"}) for call in self.calls])

    def close(self) -> None:
        self._sdk.close()


def reported_repairs(client: Client) -> list[str]:
    """The repairs of the last request."""
    requests: list[dict[str, Any]] = client.request("GET", "/status", headers={"accept": "application/json"}).json[
        "requests"
    ]
    return list(max(requests, key=lambda request: str(request["time"]))["repairs"])


@to_every_format
@pytest.mark.parametrize("count", [1, 2])
def test_chats_of_the_google_sdk_keep_their_calls(gateway: Rig, client: Client, target: str, count: int) -> None:
    """They keep each chunk as a turn, and forget all of an answer that has a chunk without parts."""
    upstream = gateway.upstreams[target]
    upstream.answer = lambda _: calls(*['{"path":"n"}'] * count)
    with closing(GoogleChat(gateway, target)) as chat:
        assert chat.say("Read.") == "I read."
        assert len(chat.calls) == count
        upstream.answer = lambda _: text_answer("done")
        assert chat.answer_calls() == "done"
        upstream.answer = lambda _: text_answer("again")
        assert chat.say("And now?") == "again"
    request_seen = upstream.wire.read_request(upstream.received[-1].body)
    assert upstream.refused == []
    assert spoken_by(request_seen) == ["Read.", "I read.", *["call"] * count, *["result"] * count, "done", "And now?"]
    assert reported_repairs(client) == []


def spoken_by(request: ModelRequest) -> list[str]:
    """What a conversation holds, in its order; the pieces of a text as one."""
    spoken: list[str] = []
    roles: list[str] = []
    for message in request.messages:
        for part in message.parts:
            if isinstance(part, Text) and roles and roles[-1] == message.role and spoken[-1] not in ("call", "result"):
                spoken[-1] += part.text
                continue
            is_call = isinstance(part, ToolCallRequest)
            spoken.append(part.text if isinstance(part, Text) else "call" if is_call else "result")
            roles.append(message.role)
    return spoken


def raw_request(port: int, head: str, body: bytes) -> bytes:
    """What a client gets that writes its head by hand, and goes."""
    lines = [
        head,
        "Host: 127.0.0.1",
        f"Content-Length: {len(body)}",
        "Content-Type: application/json",
        "Connection: close",
    ]
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        return b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.mark.parametrize("names", [("User-Agent", "user-agent"), ("User-Agent",) * 3, ("user-agent",)])
def test_a_client_may_name_itself_twice(gateway: Rig, client: Client, names: tuple[str, ...]) -> None:
    """pydantic-ai sends its own User-Agent to Gemini beside the SDK's."""
    agents = "".join(f"\r\n{name}: one-{number}" for number, name in enumerate(names))
    prompt = 'a "\\r\\nuser-agent: x\\r\\nuser-agent: y" in the body'
    body = msgspec.json.encode({"contents": [{"role": "user", "parts": [{"text": prompt}]}]})
    head = f"POST {path_of('gemini', 'to-gemini', streams=False)} HTTP/1.1{agents}\r\nx-goog-api-key: {KEY}"
    got = raw_request(gateway.port, head, body)
    assert got.startswith(b"HTTP/1.1 200 OK\r\n")
    assert gateway.upstreams["gemini"].received[0].body == body


@pytest.mark.parametrize(("name", "status"), [("Host", 400), ("Content-Length", 400), ("Content-Type", 415)])
def test_a_second_header_that_decides_something_is_refused(
    gateway: Rig, client: Client, name: str, status: int
) -> None:
    head = f"POST {path_of('gemini', 'to-gemini', streams=False)} HTTP/1.1\r\n{name}: 2\r\nx-goog-api-key: {KEY}"
    assert raw_request(gateway.port, head, b"{}")[8:].startswith(b" %d " % status)
