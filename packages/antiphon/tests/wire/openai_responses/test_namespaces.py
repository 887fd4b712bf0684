"""Tools in namespaces and in items reach the models of other formats, and calls come back with their namespace."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.parts import ToolCallRequest
from antiphon.repair import repair
from antiphon.wire import Assembler, ModelOutput, ModelOutputDelta, ModelRequest, formats
from antiphon.wire.delta import Finished, PartDelta, PartEnded, PartStarted, Started
from antiphon.wire.request_writer import RequestEncoder
from antiphon.wire.tools.call_restorer import CallRestorer
from support.corpus import client_requests

OTHERS = ("openai-chat", "anthropic", "gemini")
SEARCH = {"type": "function", "name": "search", "description": "Find.", "parameters": {"type": "object"}}
EXEC = {"type": "custom", "name": "exec", "description": "Run code."}
BODY: dict[str, Any] = {
    "model": "gpt-6.1-sol",
    "tools": [{"type": "namespace", "name": "web", "description": "The web.", "tools": [SEARCH]}, SEARCH],
    "input": [
        {
            "type": "additional_tools",
            "role": "developer",
            "tools": [{"type": "namespace", "name": "functions", "description": "", "tools": [EXEC]}],
        },
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "Rain?"},
        {"type": "function_call", "call_id": "c1", "name": "search", "namespace": "web", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "rain"},
        {"type": "custom_tool_call", "call_id": "c2", "name": "exec", "namespace": "functions", "input": "1+1"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "2"},
        {"role": "user", "content": [{"type": "input_image", "file_id": "file_1", "detail": "auto"}]},
    ],
}


def request_of(body: dict[str, Any]) -> ModelRequest:
    return formats["openai-responses"].read_request(body)


def declared(name: str, body: dict[str, Any]) -> dict[str, str]:
    """The description of each tool in a written body, by name."""
    if name == "openai-chat":
        inner = [tool[tool["type"]] for tool in body.get("tools", ())]
        return {tool["name"]: tool.get("description", "") for tool in inner}
    if name == "anthropic":
        return {tool["name"]: tool.get("description", "") for tool in body.get("tools", ())}
    declarations = [entry for tool in body.get("tools", ()) for entry in tool["functionDeclarations"]]
    return {entry["name"]: entry.get("description", "") for entry in declarations}


@pytest.mark.parametrize("name", OTHERS)
def test_tools_of_namespaces_and_items_are_declared(name: str) -> None:
    written, losses = formats[name].write_request(request_of(BODY))
    tools = declared(name, written)
    assert list(tools) == ["web__search", "search", "functions__exec"]
    assert tools["web__search"] == "The web.\n\nFind."
    assert formats[name].check_request(written) == []
    assert not [loss for loss in losses if "namespace" in loss.path or "additional_tools" in loss.what], losses


@pytest.mark.parametrize("name", OTHERS)
def test_earlier_calls_have_the_declared_name(name: str) -> None:
    data = formats[name].encode_request(request_of(BODY)).data
    assert data.count(b"web__search") >= 2
    assert data.count(b"functions__exec") >= 2


@pytest.mark.parametrize("name", OTHERS)
def test_losses_name_the_message_of_the_original_request(name: str) -> None:
    losses = formats[name].write_request(request_of(BODY)).losses
    assert [loss.path for loss in losses if loss.path.startswith("messages[7]")]


def test_responses_itself_gets_the_body_unchanged() -> None:
    assert formats["openai-responses"].write_request(request_of(BODY)) == (BODY, [])


@pytest.mark.parametrize("name", OTHERS)
def test_a_later_item_with_tools_is_declared_when_a_conversation_grows(name: str) -> None:
    later = {"type": "additional_tools", "role": "developer", "tools": [{**SEARCH, "name": "later"}]}
    more = {**BODY, "input": [*BODY["input"], later, {"role": "user", "content": "Now?"}]}
    writer = RequestEncoder(formats[name])
    writer.write(request_of(BODY))
    assert "later" in declared(name, msgspec.json.decode(writer.write(request_of(more))))


def test_calls_come_back_with_name_and_namespace() -> None:
    restorer = CallRestorer(request_of(BODY))
    assert not restorer.is_noop
    calls = (
        ToolCallRequest("web__search", "c3", '{"q": 1}'),
        ToolCallRequest("functions__exec", "c4", '{"input": "2+2"}'),
        ToolCallRequest("search", "c5", "{}"),
    )
    body = formats["openai-responses"].write_response(restorer.output(ModelOutput(parts=calls))).body
    read = [(item["type"], item["name"], item.get("namespace"), item["call_id"]) for item in body["output"]]
    assert read == [
        ("function_call", "search", "web", "c3"),
        ("custom_tool_call", "exec", "functions", "c4"),
        ("function_call", "search", None, "c5"),
    ]
    assert body["output"][1]["input"] == "2+2"


def test_streamed_calls_come_back_with_name_and_namespace() -> None:
    restorer, writer = CallRestorer(request_of(BODY)), formats["openai-responses"].stream_writer("m")
    deltas: list[ModelOutputDelta] = [
        Started(id="id", model="m"),
        PartStarted(0, ToolCallRequest("functions__exec", "c4", "")),
        PartDelta(0, '{"input": "2+2"}'),
        PartEnded(0),
        Finished("tool_calls"),
    ]
    data = b"".join(writer.write(restored) for delta in deltas for restored in restorer.delta(delta)) + writer.close()
    reader, whole = formats["openai-responses"].stream_reader(), Assembler()
    for delta in (*reader.feed(data), *reader.close()):
        whole.add(delta)
    (call,) = whole.output.parts
    assert isinstance(call, ToolCallRequest)
    assert (call.tool_name, call.arguments, call.freeform) == ("exec", "2+2", True)
    assert (call.native or {})["openai-responses"]["namespace"] == "functions"


@pytest.mark.parametrize("name", OTHERS)
def test_every_recorded_client_request_keeps_its_tools(name: str) -> None:
    count = 0
    for body in client_requests("openai-responses"):
        holders: list[Any] = [body, *(item for item in body["input"] if isinstance(item, dict))]
        callable_tools = 0
        for holder in holders:
            for tool in holder.get("tools") or ():
                if isinstance(tool, dict) and tool.get("type") == "namespace":
                    holders.append(tool)
                callable_tools += isinstance(tool, dict) and tool.get("type") in ("function", "custom")
        written = formats[name].write_request(repair(request_of(body), name).request).body
        assert len(declared(name, written)) == callable_tools
        count += callable_tools > 0
    assert count > 3


def test_losses_name_the_tool_where_the_client_declared_it() -> None:
    hosted = {"type": "web_search"}
    named = {"type": "function", "name": "a b", "parameters": {"type": "object"}}
    body = {
        "model": "gpt-5",
        "tools": [{"type": "namespace", "name": "web", "tools": [SEARCH, named, hosted]}, hosted],
        "input": [
            {"type": "additional_tools", "role": "developer", "tools": [hosted]},
            {"role": "user", "content": "?"},
        ],
    }
    losses = formats["anthropic"].write_request(formats["openai-responses"].read_request(body)).losses
    paths = [loss.path for loss in losses if "tools" in loss.path]
    assert paths == ["tools[0].tools[1].name", "tools[0].tools[2]", "tools[1]", "messages[0].parts[0].tools[0]"]
