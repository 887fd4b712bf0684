"""A body read as it is decoded is the request that the general way gives, whatever is in it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.errors import WireError
from antiphon.wire import FORMATS, ModelRequest, formats
from corpus import accepted_requests, client_requests

CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
MARK = {"type": "ephemeral"}
PLAIN: dict[str, dict[str, Any]] = {
    "openai-chat": {
        "model": "gpt-4o",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "developer", "content": [{"type": "text", "text": "In English."}]},
            {"role": "user", "content": [{"type": "text", "text": "Rain?"}, {"type": "odd"}]},
            {"role": "assistant", "content": None, "tool_calls": [CALL, {**CALL, "id": "call_2"}]},
            {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
            {"role": "tool", "tool_call_id": "call_2", "name": "weather", "content": "sun"},
            {"role": "assistant", "content": "Let me see.", "tool_calls": [{**CALL, "id": "call_3"}]},
            {"role": "tool", "tool_call_id": "call_3", "content": ""},
            {"role": "assistant", "content": "Rain and sun."},
        ],
        "tools": [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}],
        "temperature": 0.5,
        "thinking": {"type": "enabled"},
    },
    "openai-responses": {
        "model": "gpt-4o",
        "instructions": "Be brief.",
        "input": [
            {"role": "system", "content": "In English."},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Rain?"}]},
            {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"},
            {"type": "function_call", "call_id": "call_2", "name": "weather", "arguments": ""},
            {"type": "function_call_output", "call_id": "call_1", "output": "rain"},
            {"type": "function_call_output", "call_id": "call_2", "output": [{"type": "input_text", "text": "sun"}]},
            {"role": "assistant", "content": "Rain"},
            {"role": "assistant", "content": [{"type": "output_text", "text": "and sun."}]},
        ],
        "tools": [{"type": "function", "name": "weather", "parameters": {"type": "object"}}],
        "store": False,
    },
    "anthropic": {
        "model": "claude-sonnet-4-5",
        "max_tokens": 100,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": MARK}],
        "messages": [
            {"role": "user", "content": "Rain?"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "proof"},
                    {"type": "text", "text": "Let me see."},
                    {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}},
                    {"type": "tool_use", "id": "toolu_2", "name": "weather", "input": {}, "cache_control": MARK},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": "rain"},
                    {"type": "tool_result", "tool_use_id": "toolu_2", "is_error": True, "content": [{"type": "odd"}]},
                    {"type": "tool_result", "tool_use_id": "toolu_2", "cache_control": MARK},
                    {"type": "text", "text": "And?", "cache_control": MARK},
                ],
            },
        ],
        "tools": [{"name": "weather", "input_schema": {"type": "object"}}],
    },
    "gemini": {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [
            {"role": "user", "parts": [{"text": "Rain?"}]},
            {
                "role": "model",
                "parts": [
                    {"text": "Let me see."},
                    {"functionCall": {"name": "weather", "args": {"city": "Oslo"}}, "thoughtSignature": "proof"},
                    {"functionCall": {"id": "call_2", "name": "weather", "args": {}}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"name": "weather", "response": {"output": "rain"}}},
                    {"functionResponse": {"id": "call_2", "name": "weather", "response": {"error": "{}"}}},
                ],
            },
            {"role": "model", "parts": [{"text": "Rain."}]},
        ],
        "tools": [{"functionDeclarations": [{"name": "weather", "parametersJsonSchema": {"type": "object"}}]}],
        "generationConfig": {"temperature": 0.5},
    },
}
ODD = [None, "", "call_gm_0", "odd", 0, 1.5, True, [], {}, ["odd"], {"type": "odd"}, {"output": "{}"}]
odd_values = st.sampled_from(ODD).map(lambda value: msgspec.json.decode(msgspec.json.encode(value)))


def read(name: str, body: Any) -> ModelRequest | str:
    try:
        return formats[name].read_request(body)
    except WireError as error:
        return str(error)


def is_plain(name: str, data: bytes) -> bool:
    module = import_module(f"antiphon.wire.{name.replace('-', '_')}.request")
    return module.decode_request(data) is not None


@pytest.mark.parametrize("name", FORMATS)
def test_a_plain_body_is_told_as_one(name: str) -> None:
    data = msgspec.json.encode(PLAIN[name])
    assert is_plain(name, data)
    assert read(name, data) == read(name, msgspec.json.decode(data))
    extended = {**PLAIN[name], "unheard_of": 1}
    assert read(name, msgspec.json.encode(extended)) == read(name, extended)
    assert not is_plain(name, data[:-1])


@pytest.mark.parametrize("name", FORMATS)
def test_every_recorded_body_is_read_the_same_from_its_bytes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    bodies = plain = 0
    for body in (*accepted_requests(name), *client_requests(name)):
        data = msgspec.json.encode(body)
        assert read(name, data) == read(name, msgspec.json.decode(data))
        bodies += 1
        plain += is_plain(name, data)
    with capsys.disabled():
        print(f"\n  {name}: {bodies} bodies, {plain} of them plain", end="")
    assert plain > 10


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Everything that can be changed in a body: a container, and a key or an index of it."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from places(value[key])


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=300)
@given(st.data())
def test_a_body_with_something_odd_in_it_is_read_the_same_from_its_bytes(name: str, data: st.DataObject) -> None:
    body = msgspec.json.decode(msgspec.json.encode(PLAIN[name]))
    for _ in range(data.draw(st.integers(1, 2))):
        holder, key = data.draw(st.sampled_from(list(places(body))))
        match data.draw(st.sampled_from(["remove", "replace", "add"])):
            case "remove":
                del holder[key]
            case "replace":
                holder[key] = data.draw(odd_values)
            case _ if isinstance(holder, dict):
                more = data.draw(st.sampled_from(["id", "name", "type", "role", "content", "text", "output", "odd"]))
                holder[more] = data.draw(odd_values)
            case _:
                holder.insert(key, data.draw(odd_values))
    written = msgspec.json.encode(body)
    assert read(name, written) == read(name, msgspec.json.decode(written))
