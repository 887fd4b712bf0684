"""`streams_only` of a provider: a host that refuses whole answers serves clients that do not stream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from antiphon.parts import Text, ToolCallRequest, text_of
from antiphon.wire import FORMATS
from antiphon.wire.output import ModelOutput
from antiphon.wire.request import Message, ModelRequest, ToolDefinition
from antiphon_gateway.access.client_keys import hash_key
from antiphon_gateway.config.settings import ClientKeySettings, LedgerSettings
from antiphon_gateway.ledger.database import open_operator_database
from gateway.observe.test_metering import rows_of
from gateway.rig import FAST, MODELS, Rig, rig
from gateway.strict_upstream import CLOSED, EMPTY, USAGE, cut, text_answer

pytestmark = pytest.mark.pairwise(1)
QUESTION = ModelRequest(messages=(Message("user", (Text("Is it raining?"),)),), max_output_tokens=500)
WITH_TOOLS = structs.replace(
    QUESTION,
    tools=(ToolDefinition("look", parameters={"type": "object", "properties": {"where": {"type": "string"}}}),),
)
CHAT = {"messages": [{"role": "user", "content": "Is it raining?"}]}


@pytest.fixture(scope="module")
def ledger_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ledger") / "ledger.db"
    open_operator_database(str(path)).close()
    return path


@pytest.fixture(scope="module")
def running(ledger_path: Path) -> Iterator[Rig]:
    models = {"with-fallback": [f"openai-chat/{MODELS['openai-chat']}", f"anthropic/{MODELS['anthropic']}"]}
    keys = [ClientKeySettings(name="alice", key=hash_key("sk-alice"))]
    ledger = LedgerSettings(address=str(ledger_path))
    settings: Any = {"streams_only": True, "retries": 1}
    with rig(structs.replace(FAST, hold_seconds=5.0), models=models, keys=keys, ledger=ledger, **settings) as gateway:
        yield gateway


@pytest.fixture
def gateway(running: Rig) -> Rig:
    running.clear()
    for upstream in running.upstreams.values():
        upstream.streams_only = True
    return running


def test_without_the_setting_such_a_host_refuses_whole_answers() -> None:
    with rig() as gateway, gateway.client() as client:
        gateway.upstreams["openai-chat"].streams_only = True
        got = client.ask("openai-chat", "to-openai-chat", QUESTION, streams=False)
    assert got.status == 400
    assert "Non-stream chat request" in got.error("openai-chat").message


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize("source", FORMATS)
def test_every_client_of_every_streams_only_host(gateway: Rig, source: str, target: str, streams: bool) -> None:
    with gateway.client("sk-alice") as client:
        got = client.ask(source, f"to-{target}", QUESTION, streams=streams)
    output = got.output(source, streams=streams)
    assert text_of(output.parts) == "echo: Is it raining?"
    assert gateway.upstreams[target].refused == []
    if not streams:
        assert got.headers["content-type"].startswith("application/json")
        assert output.model == f"to-{target}"
        assert output.usage is not None
        assert (output.usage.prompt_tokens, output.usage.completion_tokens) == (11, 7)


@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize("source", FORMATS)
def test_calls_are_whole(gateway: Rig, source: str, target: str) -> None:
    call = ToolCallRequest("look", "call_1", '{"where":"outside"}')
    gateway.upstreams[target].answer = lambda request: ModelOutput(
        parts=(call,), stop_reason="tool_calls", id="a", model=request.model, usage=USAGE
    )
    with gateway.client("sk-alice") as client:
        output = client.ask(source, f"to-{target}", WITH_TOOLS, streams=False).output(source, streams=False)
    (made,) = [part for part in output.parts if isinstance(part, ToolCallRequest)]
    assert (made.tool_name, msgspec.json.decode(made.arguments)) == ("look", {"where": "outside"})
    assert output.stop_reason == "tool_calls"


def test_other_clients(gateway: Rig) -> None:
    with gateway.client("sk-alice") as client:
        said = client.post("/api/chat", {"model": "to-anthropic", "stream": False, **CHAT}).json
        assert said["message"]["content"] == "echo: Is it raining?"
        assert (said["prompt_eval_count"], said["eval_count"]) == (11, 7)
        said = client.post("/v1/completions", {"model": "to-anthropic", "prompt": "Is it?", "max_tokens": 9}).json
        assert said["choices"][0]["text"] == "echo: Is it?"


def test_bodies_of_the_same_format_keep_their_fields(gateway: Rig) -> None:
    sent = {**CHAT, "user": "u-1", "service_tier": "auto"}
    with gateway.client("sk-alice") as client:
        got = client.ask("openai-chat", "to-openai-chat", sent, streams=False)
    assert got.status == 200
    (body,) = gateway.upstreams["openai-chat"].bodies
    expected = {"stream": True, "stream_options": {"include_usage": True}, "model": MODELS["openai-chat"], **sent}
    assert body == expected
    assert "x-antiphon-losses" not in got.headers


@pytest.mark.parametrize("source", FORMATS)
def test_refusal_before_the_stream(gateway: Rig, source: str) -> None:
    upstream = gateway.upstreams["openai-chat"]
    upstream.faults.append(upstream.error(404, "not_found", "no such model"))
    with gateway.client("sk-alice") as client:
        got = client.ask(source, "to-openai-chat", QUESTION, streams=False)
    assert got.status == 404
    assert "no such model" in got.error(source).message
    assert len(upstream.received) == 1


@pytest.mark.parametrize("target", FORMATS)
def test_broken_stream_is_tried_again(gateway: Rig, ledger_path: Path, target: str) -> None:
    """Nothing was shown yet, so an error in the stream is like one before it."""
    upstream = gateway.upstreams[target]
    with gateway.client("sk-alice") as client:
        begun = text_answer("It is", MODELS[target])
        for fault in (cut(120), EMPTY, CLOSED, upstream.error_in_stream("overloaded", "too busy", begun)):
            upstream.received.clear()
            upstream.faults.append(fault)
            got = client.ask("anthropic", f"to-{target}", QUESTION, streams=False)
            output = got.output("anthropic", streams=False)
            assert text_of(output.parts) == "echo: Is it raining?"
            assert len(upstream.received) == 2
            failed, answered = rows_of(ledger_path, got.headers["x-request-id"], 2)
            assert failed.outcome != answered.outcome == "ok"
            assert (answered.prompt_tokens, answered.completion_tokens, answered.metering) == (11, 7, "reported")


@pytest.mark.parametrize("source", FORMATS)
def test_broken_stream_without_another_attempt_is_an_error(gateway: Rig, source: str) -> None:
    upstream = gateway.upstreams["openai-chat"]
    begun = text_answer("It is", MODELS["openai-chat"])
    upstream.faults.extend([upstream.error_in_stream("server", "it broke", begun)] * 2)
    with gateway.client("sk-alice") as client:
        got = client.ask(source, "to-openai-chat", QUESTION, streams=False)
    assert got.status >= 500
    assert "it broke" in got.error(source).message
    assert b"It is" not in got.body


def test_next_target_answers_after_a_broken_stream(gateway: Rig) -> None:
    upstream = gateway.upstreams["openai-chat"]
    begun = text_answer("It is", MODELS["openai-chat"])
    upstream.faults.extend([upstream.error_in_stream("server", "it broke", begun)] * 2)
    with gateway.client("sk-alice") as client:
        got = client.ask("openai-chat", "with-fallback", QUESTION, streams=False)
    assert text_of(got.output("openai-chat", streams=False).parts) == "echo: Is it raining?"
    assert got.headers["x-antiphon-target"] == f"anthropic/{MODELS['anthropic']}"


def test_stored_answer_is_continued(gateway: Rig) -> None:
    with gateway.client("sk-alice") as client:
        first = client.post("/v1/responses", {"model": "to-anthropic", "input": "One."}).json
        second = {"model": "to-anthropic", "input": "Two.", "previous_response_id": first["id"]}
        assert client.post("/v1/responses", second).status == 200
    assert [message["role"] for message in gateway.upstreams["anthropic"].bodies[-1]["messages"]] == [
        "user",
        "assistant",
        "user",
    ]


def test_host_that_answers_whole_all_the_same(gateway: Rig) -> None:
    upstream = gateway.upstreams["openai-chat"]
    upstream.faults.append(upstream.spoken(text_answer("whole"), streams=False))
    with gateway.client("sk-alice") as client:
        got = client.ask("openai-chat", "to-openai-chat", QUESTION, streams=False)
    assert text_of(got.output("openai-chat", streams=False).parts) == "whole"
