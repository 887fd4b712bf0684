"""A body is read the same from bytes and from values, whatever is unusual in it; a scan has its calls and results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.errors import WireError
from antiphon.wire import FORMATS, ModelRequest, formats
from antiphon.wire.format import WriteOptions
from support.corpus import accepted_requests, client_requests
from support.examples import scaled

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
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_2",
                        "is_error": True,
                        "content": [{"type": "text", "text": "sun"}],
                    },
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
            {"role": "model", "parts": [{"text": "Hm.", "thought": True}, {"text": "Rain.", "thoughtSignature": "z"}]},
        ],
        "tools": [{"functionDeclarations": [{"name": "weather", "parametersJsonSchema": {"type": "object"}}]}],
        "generationConfig": {"temperature": 0.5},
    },
    "gemini-interactions": {
        "model": "gemini-2.5-flash",
        "system_instruction": "Be brief.",
        "input": [
            {"type": "user_input", "content": [{"type": "text", "text": "Rain?"}, {"type": "text", "text": "Sun?"}]},
            {"type": "model_output", "content": [{"type": "text", "text": "Let me see."}]},
            {"type": "function_call", "id": "call_1", "name": "weather", "arguments": {"city": "Oslo"}},
            {"type": "function_call", "id": "call_2", "name": "weather", "arguments": {}},
            {"type": "function_result", "call_id": "call_1", "name": "weather", "result": "rain"},
            {"type": "function_result", "call_id": "call_2", "result": "sun"},
            {"type": "model_output", "content": [{"type": "text", "text": "Rain"}]},
            {"type": "model_output", "content": [{"type": "text", "text": "and sun."}]},
        ],
        "tools": [{"type": "function", "name": "weather", "parameters": {"type": "object"}}],
        "generation_config": {"temperature": 0.5},
        "store": False,
    },
}
ODD = [None, "", "call_gm_0", "odd", 0, 1.5, True, [], {}, ["odd"], {"type": "odd"}, {"output": "{}"}]
odd_values = st.sampled_from(ODD).map(lambda value: msgspec.json.decode(msgspec.json.encode(value)))


def read(name: str, body: Any) -> ModelRequest | str:
    try:
        return formats[name].read_request(body)
    except WireError as error:
        return str(error)


def assert_same_from_bytes(name: str, body: Any) -> None:
    """A body gives one request, from bytes and from decoded JSON, and that one body again."""
    data = msgspec.json.encode(body)
    request = read(name, data)
    assert request == read(name, msgspec.json.decode(data))
    if isinstance(request, ModelRequest):
        assert formats[name].encode_request(request) == formats[name].encode_request(
            formats[name].read_request(msgspec.json.decode(data))
        )


@pytest.mark.parametrize("name", FORMATS)
def test_every_recorded_body_is_read_the_same_from_its_bytes(name: str) -> None:
    for body in (*accepted_requests(name), *client_requests(name), PLAIN[name]):
        assert_same_from_bytes(name, body)


UNUSUAL: dict[str, list[Any]] = {
    "openai-chat": [
        {"role": "assistant", "content": "x", "reasoning_content": "y"},
        {"role": "tool", "tool_call_id": "call_1", "content": {"a": 1}},
        {"role": "function", "name": "f", "content": "x"},
        {"role": "critic", "content": "x"},
        {"role": "user", "content": None},
        7,
    ],
    "anthropic": [
        {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "https://a.b/c.png"}}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_9", "name": "f", "input": []}]},
        {"role": "system", "content": "x"},
        {"role": "user", "content": "x", "odd": 1},
        7,
    ],
    "openai-responses": [
        {"role": "user", "content": [{"type": "input_image", "image_url": "https://a.b/c.png"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "odd": 1},
        {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "odd"}], "status": "completed"},
        {"type": "web_search_call", "id": "ws_1"},
        {"role": "critic", "content": "x"},
        7,
    ],
    "gemini": [
        {"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": "AAAA"}}]},
        {
            "role": "model",
            "parts": [{"functionCall": {"name": "f", "args": {}}}, {"text": "x", "mediaResolution": "y"}],
        },
        {"role": "user", "parts": [{"function_response": {"name": "weather", "response": {"output": "x"}}}]},
        {"parts": [{"text": "x"}]},
        7,
    ],
    "gemini-interactions": [
        {"type": "user_input", "content": [{"type": "image", "mime_type": "image/png", "data": "AAAA"}]},
        {"type": "thought", "signature": "proof", "summary": [{"type": "text", "text": "Hm."}]},
        {"type": "function_result", "call_id": "call_1", "result": [{"type": "text", "text": "x"}]},
        {"type": "google_search_call", "id": "s", "arguments": {"queries": ["x"]}},
        7,
    ],
}


@pytest.mark.parametrize("name", FORMATS)
def test_an_unusual_message_changes_no_other(name: str) -> None:
    key = formats[name].spec.messages_key
    plain = PLAIN[name][key]
    for unusual in UNUSUAL[name]:
        for position in range(len(plain) + 1):
            data = msgspec.json.encode({**PLAIN[name], key: [*plain[:position], unusual, *plain[position:]], "odd": 1})
            request = read(name, data)
            assert isinstance(request, ModelRequest)
            assert request == read(name, msgspec.json.decode(data))
            given = read(name, {**PLAIN[name], key: plain[:position]})
            assert isinstance(given, ModelRequest)
            whole = [message for message in given.messages if message.role != "assistant"]  # a turn may go on
            assert [message for message in request.messages if message in whole][: len(whole)] == whole


@pytest.mark.parametrize("name", FORMATS)
def test_a_misspelt_option_is_an_error_in_every_format(name: str) -> None:
    with pytest.raises(TypeError):
        formats[name].write_request(ModelRequest(), dialekt="mistral")  # type: ignore[call-arg]
    unsupported = {"dialect", "version", "model"} - formats[name].spec.options
    for option in unsupported:
        given: dict[str, Any] = {option: "x"}
        with pytest.raises(WireError, match=option):
            formats[name].build_request(ModelRequest(), WriteOptions(**given))


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Everything that can be changed in a body: a container, and a key or an index of it."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from places(value[key])


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=scaled(25))
@given(st.data())
def test_an_unusual_body_is_read_the_same_from_its_bytes(name: str, data: st.DataObject) -> None:
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
    assert_same_from_bytes(name, body)


@pytest.mark.parametrize(
    ("name", "body"),
    [
        (
            "openai-chat",
            {"choices": [{"message": {"content": "hi"}}], "usage": {"prompt_tokens": 3, "completion_tokens": 4}},
        ),
        ("anthropic", {"content": [{"type": "text", "text": "hi"}], "usage": {"input_tokens": 3, "output_tokens": 4}}),
        ("gemini", {"candidates": [], "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 4}}),
        ("openai-chat", {"choices": []}),
        ("anthropic", {"content": [], "usage": None}),
    ],
)
def test_scanned_usage_equals_that_of_the_whole_response(name: str, body: dict[str, Any]) -> None:
    wire = formats[name]
    assert wire.scan_usage(msgspec.json.encode(body)) == wire.read_response(body).usage


@pytest.mark.parametrize("name", ["openai-chat", "anthropic"])
@pytest.mark.parametrize("body", [b"{}", b'{"usage": {}}', b"[]", b"hello"])
def test_usage_of_an_invalid_response_is_an_error(name: str, body: bytes) -> None:
    with pytest.raises(WireError):
        formats[name].scan_usage(body)


@pytest.mark.parametrize("name", FORMATS)
def test_a_body_encodes_the_same_whether_read_as_bytes_or_values(name: str) -> None:
    unknown = {"zulu": 1, "alpha": 2}
    for body in ({**PLAIN[name], "safety_settings": []}, {**unknown, **PLAIN[name]}, {**PLAIN[name], **unknown}):
        in_reverse = dict(reversed(body.items()))
        encoded = {
            formats[name].encode_request(formats[name].read_request(given)).data
            for given in (body, in_reverse, msgspec.json.encode(body), msgspec.json.encode(in_reverse))
        }
        assert len(encoded) == 1
