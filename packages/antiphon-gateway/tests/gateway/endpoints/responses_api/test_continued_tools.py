"""Tools in namespaces and in `additional_tools` items, in conversations that are continued by `previous_response_id`.

Every turn must reach every upstream with all tools: over HTTP, where turns are stored, and over a WebSocket, as Codex asks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from antiphon.parts import ToolCallRequest
from antiphon.wire import FORMATS
from antiphon.wire.output import ModelOutput
from antiphon.wire.request import ModelRequest, ToolDefinition
from gateway.endpoints.responses_api.test_websocket import Connection
from gateway.rig import Rig, rig
from gateway.strict_upstream import USAGE, text_answer

pytest.importorskip("websockets")
pytest.importorskip("wsproto")

PARAMETERS = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}


def function(name: str) -> dict[str, Any]:
    return {"type": "function", "name": name, "parameters": PARAMETERS, "strict": False}


NAMESPACED = [{"type": "namespace", "name": "web", "description": "The web.", "tools": [function("search")]}]
ADDITIONAL = {"type": "additional_tools", "role": "developer", "tools": [function("exec")]}
OTHERS = [name for name in FORMATS if name != "openai-responses"]
Ask = Callable[..., dict[str, Any]]
"""Sends one request; gives the response object."""


@pytest.fixture(scope="module")
def gateway() -> Iterator[Rig]:
    with rig() as running:
        yield running


@pytest.fixture(params=["http", "websocket"])
def ask(gateway: Rig, request: pytest.FixtureRequest) -> Iterator[Ask]:
    gateway.clear()
    with ExitStack() as stack:
        if request.param == "http":
            client = stack.enter_context(gateway.client())

            def over_http(**fields: Any) -> dict[str, Any]:
                got = client.post("/v1/responses", fields)
                assert got.status == 200, got.body
                answered: dict[str, Any] = got.json
                return answered

            yield over_http
        else:
            connection = stack.enter_context(Connection(gateway))

            def over_websocket(**fields: Any) -> dict[str, Any]:
                connection.send(store=False, **fields)
                last = connection.turn()[-1]
                assert last["type"] == "response.completed", last
                answered: dict[str, Any] = last["response"]
                return answered

            yield over_websocket


_numbers = itertools.count()


def call_every_tool(request: ModelRequest) -> ModelOutput:
    calls = [
        ToolCallRequest(tool.name, f"toolu_{next(_numbers)}", '{"q": "rain"}')
        for tool in request.tools
        if isinstance(tool, ToolDefinition)
    ]
    if not calls:
        return text_answer("No tools.")
    return ModelOutput(parts=tuple(calls), stop_reason="tool_calls", id="a", model="m", usage=USAGE)


def calls_in(response: dict[str, Any]) -> list[tuple[str, str | None]]:
    return [(item["name"], item.get("namespace")) for item in response["output"] if item["type"] == "function_call"]


def results_of(response: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "function_call_output", "call_id": item["call_id"], "output": "rain"}
        for item in response["output"]
        if item["type"] == "function_call"
    ]


@pytest.mark.parametrize("name", OTHERS)
def test_tools_in_namespaces_reach_every_turn(gateway: Rig, ask: Ask, name: str) -> None:
    gateway.upstreams[name].answer = call_every_tool
    fields = {"model": f"to-{name}", "tools": NAMESPACED}
    first = ask(**fields, input="Rain?")
    second = ask(**fields, input=results_of(first), previous_response_id=first["id"])
    third = ask(**fields, input=results_of(second), previous_response_id=second["id"])
    assert [calls_in(answer) for answer in (first, second, third)] == [[("search", "web")]] * 3
    assert gateway.upstreams[name].refused == []


@pytest.mark.parametrize("name", OTHERS)
def test_tools_of_an_earlier_item_reach_later_turns(gateway: Rig, ask: Ask, name: str) -> None:
    gateway.upstreams[name].answer = call_every_tool
    model = f"to-{name}"
    first = ask(model=model, input=[ADDITIONAL, {"role": "user", "content": "Rain?"}])
    second = ask(model=model, input=results_of(first), previous_response_id=first["id"])
    third = ask(model=model, input=results_of(second), previous_response_id=second["id"])
    assert [calls_in(answer) for answer in (first, second, third)] == [[("exec", None)]] * 3
    assert gateway.upstreams[name].refused == []


@pytest.mark.parametrize("name", OTHERS)
def test_tools_of_the_request_that_continues_reach_the_model(gateway: Rig, ask: Ask, name: str) -> None:
    gateway.upstreams[name].answer = call_every_tool
    first = ask(model=f"to-{name}", input="Hello.")
    second = ask(
        model=f"to-{name}", input=[ADDITIONAL, {"role": "user", "content": "Rain?"}], previous_response_id=first["id"]
    )
    assert calls_in(second) == [("exec", None)]


@pytest.mark.parametrize("name", OTHERS)
def test_calls_in_a_namespace_keep_their_name_where_a_later_turn_has_no_tools(
    gateway: Rig, ask: Ask, name: str
) -> None:
    gateway.upstreams[name].answer = call_every_tool
    first = ask(model=f"to-{name}", input="Rain?", tools=NAMESPACED)
    ask(model=f"to-{name}", input=results_of(first), previous_response_id=first["id"])
    sent = gateway.upstreams[name].received[-1].body
    assert b'"web__search"' in sent


@pytest.mark.parametrize("name", OTHERS)
def test_codex_opens_a_websocket_without_a_question(gateway: Rig, name: str) -> None:
    """`generate: false` with no input, then the tools and the question."""
    gateway.clear()
    gateway.upstreams[name].answer = call_every_tool
    with Connection(gateway) as connection:
        connection.send(model=f"to-{name}", store=False, input=[], generate=False)
        opened = connection.turn()[-1]["response"]
        asked = [ADDITIONAL, {"role": "user", "content": "Rain?"}]
        last = connection.ask(f"to-{name}", asked, previous_response_id=opened["id"])
    assert calls_in(last["response"]) == [("exec", None)]
