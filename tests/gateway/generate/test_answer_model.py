"""The model in an answer is the one the client asked for, translated or passed on; right bytes stay as they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from antiphon.gateway.generate.answer_model import StreamModel, with_requested_model
from antiphon.wire import FORMATS
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
