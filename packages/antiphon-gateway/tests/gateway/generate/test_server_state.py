"""Requests that leave a part of the conversation at the server: passed on untouched to it, refused for any other."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from antiphon.parts import ToolCallRequest
from antiphon.wire import FORMATS, formats
from antiphon.wire.output import ModelOutput
from antiphon.wire.request import ModelRequest
from gateway.rig import FAST, MODELS, Rig, path_of, rig
from gateway.strict_upstream import USAGE, text_answer
from providers.scripted_server import Reply

RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny"}]}
THREAD = {"type": "continue", "previous_message_id": "msg_1"}
QUESTION = {"role": "user", "content": "And now?"}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "conversation": ("openai-responses", {"conversation": "conv_1", "input": [QUESTION]}),
    "conversation object": ("openai-responses", {"conversation": {"id": "conv_1"}, "input": [QUESTION]}),
    "prompt": ("openai-responses", {"prompt": {"id": "pmpt_1", "version": "2"}, "input": [QUESTION]}),
    "thread": ("anthropic", {"max_tokens": 100, "thread": THREAD, "messages": [RESULT]}),
    "previous_interaction_id": (
        "gemini-interactions",
        {
            "previous_interaction_id": "v1_1",
            "input": [{"type": "user_input", "content": [{"type": "text", "text": "?"}]}],
        },
    ),
    "cachedContent": (
        "gemini",
        {"cachedContent": "cachedContents/1", "contents": [{"role": "user", "parts": [{"text": "And now?"}]}]},
    ),
}
"""A request that names what its server has, and its format."""


@pytest.fixture(scope="module")
def gateway() -> Iterator[Rig]:
    models = {MODELS[name]: [f"{name}/{MODELS[name]}"] for name in FORMATS}
    for name in FORMATS:
        other = "anthropic" if name != "anthropic" else "openai-chat"
        models[f"{name}-then-another"] = [f"{name}/{MODELS[name]}", f"{other}/{MODELS[other]}"]
    with rig(models=models) as running:
        yield running


def body_of(case: str, model: str) -> tuple[str, bytes]:
    name, fields = CASES[case]
    named = fields if name == "gemini" else {"model": model, **fields}
    return name, msgspec.json.encode(named)


def answer_of(name: str) -> Reply:
    """A provider's answer to anything: the strict one does not know what the server has."""
    output = text_answer("Still sunny.")
    return Reply(body=formats[name].encode_response(output).data, content_type="application/json", has_length=True)


@pytest.mark.parametrize("case", CASES)
def test_the_server_that_has_it_gets_the_body_as_it_came(gateway: Rig, case: str) -> None:
    gateway.clear()
    name = CASES[case][0]
    _, body = body_of(case, MODELS[name])
    upstream = gateway.upstreams[name]
    upstream.faults.append(answer_of(name))
    with gateway.client() as client:
        got = client.post(path_of(name, MODELS[name], streams=False), body)
    assert got.status == 200, got.body
    assert upstream.received[0].body == body
    assert "x-antiphon-repairs" not in got.headers


@pytest.mark.parametrize("case", CASES)
def test_under_another_name_only_the_name_changes(gateway: Rig, case: str) -> None:
    gateway.clear()
    name, body = body_of(case, f"to-{CASES[case][0]}")
    upstream = gateway.upstreams[name]
    upstream.faults.append(answer_of(name))
    with gateway.client() as client:
        got = client.post(path_of(name, f"to-{name}", streams=False), body)
    assert got.status == 200, got.body
    named = {} if name == "gemini" else {"model": MODELS[name]}
    assert upstream.received[0].body == msgspec.json.encode({**msgspec.json.decode(body), **named})


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_any_other_server_is_not_asked(gateway: Rig, case: str, streams: bool) -> None:
    """Never an answer without the conversation: an error in the client's format, with the field and what to do."""
    gateway.clear()
    name, fields = CASES[case]
    for target in FORMATS:
        if target == name:
            continue
        body = fields if name == "gemini" else {"model": f"to-{target}", "stream": streams, **fields}
        with gateway.client() as client:
            got = client.post(path_of(name, f"to-{target}", streams=streams), body)
        assert got.status == 400, got.body
        error = got.error(name)
        assert error.kind == "invalid_request"
        assert error.message.startswith(f"{case.partition(' ')[0]}: ")
        assert "send" in error.message
        assert gateway.upstreams[target].received == []


def test_a_failure_of_the_right_server_is_not_hidden_by_the_next_target(gateway: Rig) -> None:
    gateway.clear()
    for case, (name, _) in CASES.items():
        _, body = body_of(case, f"{name}-then-another")
        upstream = gateway.upstreams[name]
        upstream.faults.append(upstream.error(503, "overloaded", "try later"))
        with gateway.client() as client:
            got = client.post(path_of(name, f"{name}-then-another", streams=False), body)
        assert got.status in (503, 529), got.body
        assert "try later" in got.error(name).message


@pytest.mark.parametrize("target", ["anthropic", "openai-responses"])
@pytest.mark.parametrize("streams", [False, True])
def test_a_damaged_state_file_is_answered_and_recorded_with_503(tmp_path: Path, target: str, streams: bool) -> None:
    state = tmp_path / "responses.db"
    request = {"model": f"to-{target}", "input": "And now?", "previous_response_id": "resp_1", "stream": streams}
    with rig(structs.replace(FAST, state=str(state))) as gateway, gateway.client() as client:
        with closing(sqlite3.connect(state)) as database:
            database.execute("DROP TABLE answers")
        got = client.post("/v1/responses", msgspec.json.encode(request))
        assert got.status == 503, got.body
        error = got.json["error"]
        assert "a database of the gateway is not available" in error["message"]
        assert str(state) in error["message"]
        record = client.get("/status?format=json").json["requests"][0]
        assert (record["status"], record["attempts"]) == (503, [])
        assert "a database of the gateway is not available" in record["error"]


def weather_then_words(request: ModelRequest) -> ModelOutput:
    """A call of the tool, and after its result an answer that proves that the whole conversation is there."""
    roles = [message.role for message in request.messages]
    if not any(isinstance(part, ToolCallRequest) for message in request.messages for part in message.parts):
        call = ToolCallRequest("weather", "call_1", '{"city":"Oslo"}')
        return ModelOutput(parts=(call,), stop_reason="tool_calls", id="msg_of_call", model="m", usage=USAGE)
    return text_answer(f"{len(roles)} messages, {len(request.tools)} tool")


@pytest.mark.parametrize("target", [name for name in FORMATS if name != "anthropic"])
def test_the_official_tool_runner_continues_a_thread_with_another_model(gateway: Rig, target: str) -> None:
    """It sends only the result; refused with `thread_not_found`, it sends the whole history, and gets its answer."""
    anthropic = pytest.importorskip("anthropic")
    if not hasattr(anthropic.resources.beta.messages.Messages, "thread"):
        pytest.skip("this version of the client has no threads")
    gateway.clear()
    upstream = gateway.upstreams[target]
    upstream.answer = weather_then_words
    calls: list[str] = []

    @anthropic.beta_tool  # type: ignore[untyped-decorator]
    def weather(city: str) -> str:
        """Current weather in a city.

        Args:
            city: the city
        """
        calls.append(city)
        return "sunny"

    with anthropic.Anthropic(api_key="none", base_url=f"http://127.0.0.1:{gateway.port}", max_retries=0) as client:
        thread = client.beta.messages.thread(
            model=f"to-{target}",
            max_tokens=100,
            messages=[{"role": "user", "content": "What is the weather in Oslo?"}],
            tools=[weather],
        )
        last = None
        for message in thread.tool_runner():
            last = message
    assert calls == ["Oslo"]
    assert last is not None
    assert last.content[0].text == "3 messages, 1 tool"
    assert upstream.refused == []
    assert len(upstream.received) == 2
