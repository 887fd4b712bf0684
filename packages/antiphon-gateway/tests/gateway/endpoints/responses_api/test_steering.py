"""Steering over the WebSocket: input for a response in progress is answered by a successor, or comes back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import Raw, structs
from msgspec.json import encode

from antiphon.errors import WireError
from antiphon.http.body import Governor
from antiphon.parts import Text, ToolCallRequest, ToolCallResult
from antiphon.wire import FORMATS
from antiphon.wire.output import ModelOutput
from antiphon.wire.request import ModelRequest
from antiphon_gateway.endpoints.responses_api.steering import MAX_QUEUED, check_steer, read_steer
from gateway.endpoints.responses_api.test_websocket import Connection, output_text, recall
from gateway.rig import Rig, rig
from gateway.strict_upstream import USAGE, hang, text_answer

WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}


@pytest.fixture(scope="module")
def gateway() -> Iterator[Rig]:
    with rig() as running:
        yield running


@pytest.fixture
def connection(gateway: Rig) -> Iterator[Connection]:
    gateway.clear()
    with Connection(gateway) as opened:
        yield opened


def held(gateway: Rig, name: str) -> threading.Event:
    """The end of the next answer waits for the returned event."""
    gate = threading.Event()
    gateway.upstreams[name].faults.append(
        lambda reply: structs.replace(reply, piece=len(reply.body) - 40, body_gate=gate)
    )
    return gate


def started(connection: Connection, model: str, text: str, **fields: Any) -> str:
    """The id of a response in progress."""
    connection.send(model=model, input=text, store=False, **fields)
    event = connection.receive()
    while event["type"] != "response.created":
        event = connection.receive()
    return str(event["response"]["id"])


def steer(connection: Connection, response_id: str, given: Any, **fields: Any) -> None:
    connection.send(type="response.steer", previous_response_id=response_id, input=given, **fields)


def until(connection: Connection, kind: str) -> dict[str, Any]:
    event = connection.receive()
    while event["type"] != kind:
        event = connection.receive()
    return event


@pytest.mark.parametrize("name", FORMATS)
def test_a_successor_answers_what_was_queued(gateway: Rig, connection: Connection, name: str) -> None:
    gateway.upstreams[name].answer = recall
    gate = held(gateway, name)
    response_id = started(connection, f"to-{name}", "Tell me of Łódź.", instructions="Be brief.")
    steer(connection, response_id, "Kürzer bitte, 短一点")
    accepted = until(connection, "response.steer.accepted")
    gate.set()
    assert accepted["steer"]["previous_response_id"] == response_id
    first = until(connection, "response.completed")
    assert first["response"]["id"] == response_id
    created = until(connection, "response.created")
    assert created["response"]["previous_response_id"] == response_id
    last = until(connection, "response.completed")
    assert output_text(last).endswith("Kürzer bitte, 短一点")
    assert "Be brief." in output_text(last), "the settings are those of the response"


def call_first(request: ModelRequest) -> ModelOutput:
    parts = [part for message in request.messages for part in message.parts]
    if any(isinstance(part, ToolCallResult) for part in parts):
        return text_answer(" | ".join(part.text for part in parts if isinstance(part, Text)))
    call = ToolCallRequest("weather", "call_1", "{}")
    return ModelOutput(parts=(call,), stop_reason="tool_calls", id="a", model="m", usage=USAGE)


def test_input_waits_for_the_results_of_calls(gateway: Rig, connection: Connection) -> None:
    gateway.upstreams["anthropic"].answer = call_first
    gate = held(gateway, "anthropic")
    response_id = started(connection, "to-anthropic", "Rain?", tools=[WEATHER], stream_id="lane")
    steer(connection, response_id, [{"role": "user", "content": [{"type": "input_text", "text": "In Oslo."}]}])
    assert until(connection, "response.steer.accepted")["stream_id"] == "lane"
    gate.set()
    pending = until(connection, "response.steer.pending")
    stub = {"type": "function_call_output", "call_id": "call_1", "name": "weather"}
    assert (pending["reason"], pending["required_input"]) == ("waiting_for_required_input", [stub])
    result = {"type": "function_call_output", "call_id": "call_1", "output": "wet"}
    connection.send(
        model="to-anthropic",
        store=False,
        previous_response_id=response_id,
        input=[result],
        tools=[WEATHER],
        stream_id="lane",
    )
    assert "In Oslo." in output_text(until(connection, "response.completed"))
    steer(connection, response_id, "Too late")
    assert until(connection, "response.steer.failed")["error"]["code"] == "response_already_completed"


def test_input_comes_back_when_the_response_is_cancelled(gateway: Rig, connection: Connection) -> None:
    gateway.upstreams["anthropic"].faults.append(hang(after=-200))
    response_id = started(connection, "to-anthropic", "Never ends")
    steer(connection, response_id, "Stop?")
    accepted = until(connection, "response.steer.accepted")
    connection.send(type="response.cancel")
    failed = until(connection, "response.steer.failed")
    assert (failed["error"]["code"], failed["error"]["type"]) == ("response_not_active", "invalid_request_error")
    assert failed["steer"] == {**accepted["steer"], "input": "Stop?"}


def test_a_successor_that_is_refused_returns_the_input(gateway: Rig, connection: Connection) -> None:
    upstream, gate = gateway.upstreams["anthropic"], held(gateway, "anthropic")
    upstream.faults.append(upstream.error(400, "invalid_request", "too strange"))
    response_id = started(connection, "to-anthropic", "One")
    steer(connection, response_id, "Two")
    until(connection, "response.steer.accepted")
    gate.set()
    assert "too strange" in until(connection, "error")["error"]["message"]
    failed = until(connection, "response.steer.failed")
    assert (failed["error"]["code"], failed["steer"]["input"]) == ("successor_creation_failed", "Two")


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"previous_response_id": "resp_unknown", "input": "Hi"}, "response_not_found"),
        ({"input": "Hi"}, "invalid_input"),
        ({"previous_response_id": "resp_1", "input": []}, "invalid_input"),
        ({"previous_response_id": "resp_1", "input": "Hi", "stream_id": "lane"}, "invalid_input"),
    ],
)
def test_messages_that_cannot_be_queued_are_returned(connection: Connection, fields: dict[str, Any], code: str) -> None:
    connection.send(type="response.steer", **fields)
    failed = connection.receive()
    assert (failed["type"], failed["error"]["code"]) == ("response.steer.failed", code)
    assert failed["steer"]["input"] == fields.get("input")


def test_the_queue_is_bounded(gateway: Rig, connection: Connection) -> None:
    gateway.upstreams["anthropic"].faults.append(hang(after=-200))
    response_id = started(connection, "to-anthropic", "Never ends")
    for number in range(MAX_QUEUED + 1):
        steer(connection, response_id, f"{number}")
    assert until(connection, "response.steer.failed")["error"]["code"] == "too_many_pending_steers"


@pytest.mark.parametrize(
    "item",
    [
        "text",
        {"role": "assistant", "content": "Hi"},
        {"type": "function_call_output", "call_id": "c", "output": "x"},
        {"role": "user", "content": []},
        {"role": "user", "content": [{"type": "output_text", "text": "x"}]},
    ],
)
def test_only_messages_of_the_user_steer(item: Any) -> None:
    event = {"type": Raw(b'"response.steer"'), "previous_response_id": Raw(b'"r"'), "input": Raw(encode([item]))}
    steer = read_steer(event, Governor(0).hold())
    with pytest.raises(WireError, match=r"input\[0\]"):
        check_steer(event, steer)
