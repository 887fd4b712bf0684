"""Translated answers have every field that the real API's answers have, whole and streamed; wrong requests get its errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from antiphon.parts import Text, ToolCallRequest
from antiphon.wire.output import ModelOutput
from antiphon.wire.streams.sse import SseReader
from gateway.rig import Rig, path_of, rig
from gateway.strict_upstream import USAGE

RESPONSE_FIELDS = {
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "top_logprobs": 0,
    "max_tool_calls": None,
    "store": True,
    "service_tier": "default",
    "safety_identifier": None,
    "prompt_cache_key": None,
    "temperature": 1.0,
    "top_p": 1.0,
    "background": False,
    "previous_response_id": None,
    "truncation": "disabled",
    "parallel_tool_calls": True,
}
USAGE_FIELDS = {
    "input_tokens",
    "output_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "output_tokens_details",
    "server_tool_use",
}
MESSAGE_USAGE_FIELDS = USAGE_FIELDS | {"cache_creation", "service_tier", "inference_geo"}
TOOL = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}


@pytest.fixture(scope="module")
def gateway() -> Iterator[Rig]:
    with rig() as running:
        yield running


def with_call(_: Any) -> ModelOutput:
    call = ToolCallRequest("weather", "call_1", "{}")
    return ModelOutput(parts=(Text("I look."), call), stop_reason="tool_calls", id="a", model="m", usage=USAGE)


def ask(gateway: Rig, name: str, target: str, body: dict[str, Any], *, streams: bool) -> Any:
    """The answer, or the events of a stream."""
    gateway.clear()
    gateway.upstreams[target].answer = with_call
    with gateway.client() as client:
        got = client.ask(name, f"to-{target}", body, streams=streams)
    assert got.status == 200, got.body
    if not streams:
        return got.json
    return [msgspec.json.decode(event.data) for event in SseReader().feed(got.body) if event.data != b"[DONE]"]


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("target", ["openai-chat", "anthropic", "gemini"])
def test_every_responses_object_is_complete(gateway: Rig, target: str, streams: bool) -> None:
    answer = ask(gateway, "openai-responses", target, {"input": "Hi", "tools": [TOOL]}, streams=streams)
    responses = [event["response"] for event in answer if "response" in event] if streams else [answer]
    assert [body["status"] for body in responses] == (["in_progress"] * 2 if streams else []) + ["completed"]
    for body in responses:
        assert {name: body[name] for name in RESPONSE_FIELDS} == RESPONSE_FIELDS
        assert body["tools"] == [{**TOOL, "description": None, "strict": True}]
        assert isinstance(body["completed_at"], int) == (body["status"] == "completed")
        assert body["model"] == f"to-{target}"


@pytest.mark.parametrize("streams", [False, True])
def test_a_response_repeats_the_settings_of_its_request(gateway: Rig, streams: bool) -> None:
    given = {
        "instructions": "Be short.",
        "temperature": 0.5,
        "max_output_tokens": 100,
        "metadata": {"a": "b"},
        "store": False,
        "prompt_cache_key": "k",
        "reasoning": {"effort": "low"},
    }
    answer = ask(gateway, "openai-responses", "gemini", {"input": "Hi", **given}, streams=streams)
    for body in [event["response"] for event in answer if "response" in event] if streams else [answer]:
        expected = {**given, "reasoning": {"effort": "low", "summary": None}}
        assert {name: body[name] for name in given} == expected


@pytest.mark.parametrize("target", ["openai-chat", "openai-responses", "gemini"])
def test_a_whole_anthropic_message_is_complete(gateway: Rig, target: str) -> None:
    body = {"max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}]}
    message = ask(gateway, "anthropic", target, body, streams=False)
    assert (message["stop_details"], message["container"], message["model"]) == (None, None, f"to-{target}")
    assert message["usage"].keys() == MESSAGE_USAGE_FIELDS
    text, call = message["content"]
    assert text == {"type": "text", "text": "I look.", "citations": None}
    assert call["caller"] == {"type": "direct"}


@pytest.mark.parametrize("target", ["openai-chat", "openai-responses", "gemini"])
def test_a_streamed_anthropic_message_is_complete(gateway: Rig, target: str) -> None:
    body = {"max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}]}
    events = ask(gateway, "anthropic", target, body, streams=True)
    message = events[0]["message"]
    assert (message["stop_details"], message["container"], message["model"]) == (None, None, f"to-{target}")
    assert message["usage"].keys() == MESSAGE_USAGE_FIELDS
    started = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    assert started[0] == {"type": "text", "text": "", "citations": None}
    assert started[1]["caller"] == {"type": "direct"}
    end = next(event for event in events if event["type"] == "message_delta")
    assert end["delta"].keys() == {"stop_reason", "stop_sequence", "stop_details", "container"}
    assert end["usage"].keys() == USAGE_FIELDS


@pytest.mark.parametrize("target", ["openai-responses", "anthropic", "gemini"])
def test_a_chat_message_has_annotations_and_refusal(gateway: Rig, target: str) -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}]}
    message = ask(gateway, "openai-chat", target, body, streams=False)["choices"][0]["message"]
    assert (message["annotations"], message["refusal"]) == ([], None)
    first = ask(gateway, "openai-chat", target, body, streams=True)[0]["choices"][0]["delta"]
    assert (first["role"], first["refusal"]) == ("assistant", None)
    assert "annotations" not in first


def test_answer_fields_that_clients_send_back_are_no_losses(gateway: Rig) -> None:
    body: dict[str, Any] = {"max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}]}
    content = ask(gateway, "anthropic", "openai-chat", body, streams=False)["content"]
    result = {"type": "tool_result", "tool_use_id": content[1]["id"], "content": "rain"}
    question = {"role": "user", "content": "Hi"}
    messages = [question, {"role": "assistant", "content": content}, {"role": "user", "content": [result]}]
    gateway.clear()
    with gateway.client() as client:
        got = client.ask("anthropic", "to-openai-chat", {"max_tokens": 100, "messages": messages}, streams=False)
    assert got.status == 200, got.body
    assert "x-antiphon-losses" not in got.headers


@pytest.mark.parametrize("target", ["openai-chat", "openai-responses", "anthropic", "gemini"])
@pytest.mark.parametrize(
    ("name", "body", "words"),
    [
        ("anthropic", {"messages": [{"role": "user", "content": "Hi"}]}, "max_tokens: Field required"),
        ("gemini", {}, "contents is not specified"),
        ("openai-responses", {}, "One of 'input' or 'previous_response_id'"),
        ("gemini-interactions", {}, "input must be a string, a content"),
    ],
)
def test_a_missing_field_is_refused_in_the_words_of_the_api(
    gateway: Rig, name: str, body: dict[str, Any], words: str, target: str
) -> None:
    gateway.clear()
    with gateway.client() as client:
        got = client.post(path_of(name, f"to-{target}", streams=False), {**body, **model_field(name, target)})
    assert got.status == 400, got.body
    assert words in got.error(name).message


def model_field(name: str, target: str) -> dict[str, str]:
    return {} if name == "gemini" else {"model": f"to-{target}"}


@pytest.mark.parametrize("keeps", [False, True])
def test_the_phase_of_messages_is_carried_both_ways(gateway: Rig, keeps: bool) -> None:
    """`phase` is a field of OpenAI's messages: to its own API and back it stays, whether the gateway keeps the answer or not."""
    gateway.clear()
    upstream = gateway.upstreams["openai-responses"]
    extras = {"openai-responses": {"item": {"phase": "final_answer"}}}
    upstream.answer = lambda _: ModelOutput(
        parts=(Text("Four.", native=extras),), stop_reason="end", id="resp_1", model="m", usage=USAGE
    )
    earlier = {"type": "message", "role": "assistant", "phase": "commentary", "content": "I count."}
    with gateway.client() as client:
        fields: dict[str, Any] = {}
        if keeps:
            fields["conversation"] = client.post("/v1/conversations", {}).json["id"]
        body = {"model": "to-openai-responses", "input": [earlier, {"role": "user", "content": "And?"}], **fields}
        got = client.post("/v1/responses", body)
    assert got.json["output"][0]["phase"] == "final_answer"
    assert upstream.bodies[-1]["input"][0]["phase"] == "commentary"
