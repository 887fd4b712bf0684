"""The model in an answer is the one the client asked for, translated or passed on; right bytes stay as they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from antiphon.wire import FORMATS
from antiphon_gateway.runtime.body_fields import StreamModel, with_requested_model
from gateway.rig import MODELS, Rig, rig
from gateway.strict_upstream import text_answer

ASKED: dict[str, dict[str, Any]] = {
    "openai-chat": {"messages": [{"role": "user", "content": "Hi"}]},
    "openai-responses": {"input": "Hi"},
    "anthropic": {"max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}]},
    "gemini-interactions": {"input": "Hi"},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
}


@pytest.fixture(scope="module")
def gateway() -> Iterator[Rig]:
    with rig() as running:
        yield running


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize("name", FORMATS)
def test_the_model_is_the_one_that_was_asked_for(gateway: Rig, name: str, target: str, streams: bool) -> None:
    gateway.clear()
    gateway.upstreams[target].answer = lambda _: text_answer("Hello.", MODELS[target])
    with gateway.client() as client:
        got = client.ask(name, f"to-{target}", ASKED[name], streams=streams)
    assert got.output(name, streams=streams).model == f"to-{target}"
    assert MODELS[target].encode() not in got.body


def test_a_whole_answer_with_the_right_name_is_the_same_object() -> None:
    body = b'{ "model" : "m", "choices": [] }'
    assert with_requested_model("openai-chat", body, "m") is body
    assert with_requested_model("openai-chat", b"{}", "m") == b"{}"


def test_only_the_outermost_model_of_a_whole_answer_is_replaced() -> None:
    body = b'{"content":[{"input":{"model":"upstream"}}],"model":"upstream"}'
    assert with_requested_model("anthropic", body, "m") == b'{"content":[{"input":{"model":"upstream"}}],"model":"m"}'
    inner = b'{"content":[{"input":{"model":"upstream"}}]}'
    assert with_requested_model("anthropic", inner, "m") is inner


def test_a_stream_is_searched_until_its_model_is_known() -> None:
    stream = StreamModel("openai-chat", 'my "model"')
    assert stream.feed(b'data: {"model":"","choices":[]}\n\n') == b'data: {"model":"","choices":[]}\n\n'
    first = stream.feed(b'data: {"model": "upstream-1","choices":[]}\n\n')
    assert first == b'data: {"model": "my \\"model\\"","choices":[]}\n\n'
    text = rb'data: {"choices":[{"delta":{"content":"\"model\": \"upstream-1\""}}]}' + b"\n\n"
    assert stream.feed(text) == text
    right = StreamModel("gemini", "g")
    assert right.feed(b'data: {"modelVersion":"g"}\n\n') == b'data: {"modelVersion":"g"}\n\n'
    assert right.is_done


@pytest.mark.parametrize(
    ("name", "call", "named"),
    [
        (
            "gemini",
            b'data: {"candidates":[{"content":{"parts":[{"functionCall":{"args":{"modelVersion":"up"}}}]}}],'
            b'"modelVersion":%b}\n\n',
            b'"up"',
        ),
        (
            "gemini-interactions",
            b'event: step.start\ndata: {"step":{"type":"function_call","arguments":{"model":"up"}}}\n\n'
            b'data: {"interaction":{"id":"i","model":%b},"event_type":"interaction.completed"}\n\n',
            b'"up"',
        ),
        (
            "openai-responses",
            b'event: response.created\ndata: {"type":"response.created","response":{"metadata":{"model":"up"},"model":%b}}\n\n',
            b'"up"',
        ),
    ],
)
def test_a_call_that_names_the_same_model_keeps_its_arguments(name: str, call: bytes, named: bytes) -> None:
    assert StreamModel(name, "asked").feed(call % named) == call % b'"asked"'
    same = StreamModel(name, "up")
    assert same.feed(call % named) == call % named
    assert same.is_done
    broken = b'data: {"modelVersion":"up","model":"up"\n\n'
    assert StreamModel(name, "asked").feed(broken) == broken


def test_a_whole_answer_is_not_taken_for_its_call() -> None:
    body = b'{"steps":[{"arguments":{"model":"asked"}}],"model":"up"}'
    got = with_requested_model("gemini-interactions", body, "asked")
    assert got == b'{"steps":[{"arguments":{"model":"asked"}}],"model":"asked"}'
    assert with_requested_model("gemini-interactions", got, "asked") is got
