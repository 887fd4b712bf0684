"""A history with calls, in a request that declares no tools: some hosts of Anthropic's format refuse it (AN-31)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from antiphon.parts import Text, ToolCallRequest, ToolCallResult
from antiphon.repair import declare_called_tools
from antiphon.wire import FORMATS
from antiphon.wire.request import Message, ModelRequest, ToolDefinition
from gateway.rig import MODELS, Rig, rig

REFUSAL = "Requests which have `tool_use` or `tool_result` blocks in `messages` must define `tools`."
HISTORY = ModelRequest(
    messages=(
        Message("user", (Text("Rain?"),)),
        Message("assistant", (ToolCallRequest("weather", "call_1", '{"q":"rain"}'),)),
        Message("tool", (ToolCallResult("weather", "call_1", content=(Text("It rains."),)),)),
        Message("assistant", (ToolCallRequest("search", "call_2"), ToolCallRequest("weather", "call_3"))),
        Message("tool", (ToolCallResult("search", "call_2"), ToolCallResult("weather", "call_3"))),
        Message("user", (Text("Sum it up."),)),
    ),
    max_output_tokens=100,
)


@pytest.fixture(scope="module")
def gateway() -> Iterator[Rig]:
    with rig(models={MODELS["anthropic"]: [f"anthropic/{MODELS['anthropic']}"]}) as running:
        yield running


@pytest.fixture(autouse=True)
def clean(gateway: Rig) -> None:
    gateway.clear()


def assert_declared(body: dict[str, Any]) -> None:
    assert [(tool["name"], tool["input_schema"]["type"]) for tool in body["tools"]] == [
        ("weather", "object"),
        ("search", "object"),
    ]
    assert body["tool_choice"] == {"type": "none"}


@pytest.mark.parametrize("source", [name for name in FORMATS if name != "anthropic"])
def test_called_tools_are_declared_to_anthropic(gateway: Rig, source: str) -> None:
    with gateway.client() as client:
        got = client.ask(source, "to-anthropic", HISTORY, streams=False)
    assert (got.status, gateway.upstreams["anthropic"].refused) == (200, [])
    (sent,) = gateway.upstreams["anthropic"].bodies
    assert_declared(sent)
    assert got.headers["x-antiphon-repairs"] == "1; declared"


def test_body_of_an_anthropic_client_passes_and_is_repaired_once_it_is_refused(gateway: Rig) -> None:
    upstream = gateway.upstreams["anthropic"]
    with gateway.client() as client:
        assert client.ask("anthropic", MODELS["anthropic"], HISTORY, streams=False).status == 200
        assert "tools" not in upstream.bodies[-1], "the API itself accepts it"
        upstream.faults.append(upstream.error(400, "invalid_request", REFUSAL))
        got = client.ask("anthropic", MODELS["anthropic"], HISTORY, streams=False)
    assert got.status == 200
    assert_declared(upstream.bodies[-1])
    assert got.headers["x-antiphon-repairs"] == "1; declared"


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "anthropic"])
def test_other_formats_need_no_declaration(gateway: Rig, name: str) -> None:
    with gateway.client() as client:
        got = client.ask("anthropic", f"to-{name}", HISTORY, streams=False)
    assert "tools" not in gateway.upstreams[name].bodies[-1]
    assert "x-antiphon-repairs" not in got.headers


def test_tools_that_are_declared_stay() -> None:
    given = ModelRequest(messages=HISTORY.messages, tools=(ToolDefinition("other"),))
    assert declare_called_tools(given, "anthropic").request is given
    without_calls = ModelRequest(messages=HISTORY.messages[:1])
    assert declare_called_tools(without_calls, "anthropic").request is without_calls


def test_freeform_calls_are_declared_as_freeform_tools() -> None:
    call = ToolCallRequest("patch", "call_1", "*** Begin", freeform=True)
    request = ModelRequest(messages=(Message("assistant", (call,)), Message("tool", (ToolCallResult("", "call_1"),))))
    declared, actions = declare_called_tools(request, "anthropic")
    assert declared.tools == (ToolDefinition("patch", freeform=True),)
    assert [(action.kind, action.message) for action in actions] == [("declared", 0)]
    assert declare_called_tools(declared, "anthropic").request is declared
