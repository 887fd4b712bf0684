"""An answer in the words of the request: names back, freeform calls freeform again, nothing else touched."""

from __future__ import annotations

import pytest

from antiphon.parts import Text, ToolCallRequest
from antiphon.wire import Assembler, ModelOutput, ModelOutputDelta, ModelRequest, ToolDefinition, formats
from antiphon.wire.delta import Finished, PartDelta, PartEnded, PartStarted, Started
from antiphon.wire.tools.call_restorer import CallRestorer
from antiphon.wire.tools.names import safe_name

REQUEST = ModelRequest(
    tools=(
        ToolDefinition("files/read", parameters={"type": "object"}),
        ToolDefinition("weather"),
        ToolDefinition("apply patch", freeform=True),
    )
)
SEEN = safe_name("files/read", 64)
PATCH = safe_name("apply patch", 128)


def test_names_and_freeform_calls_come_back() -> None:
    answer = ModelOutput(
        parts=(
            Text("look"),
            ToolCallRequest(SEEN, "a", '{"x":1}'),
            ToolCallRequest(PATCH, "b", '{"input": "*** Begin"}'),
        )
    )
    restored = CallRestorer(REQUEST).output(answer)
    assert restored.parts == (
        Text("look"),
        ToolCallRequest("files/read", "a", '{"x":1}'),
        ToolCallRequest("apply patch", "b", "*** Begin", freeform=True),
    )
    assert CallRestorer(REQUEST).output(restored) is restored


def test_the_same_in_a_stream() -> None:
    deltas: list[ModelOutputDelta] = [
        Started(),
        PartStarted(0, ToolCallRequest(PATCH, "b", "")),
        PartDelta(0, '{"input": "*** '),
        PartStarted(1, ToolCallRequest(SEEN, "a", "")),
        PartDelta(1, '{"x":1}'),
        PartDelta(0, 'Begin"}'),
        PartEnded(0),
        PartEnded(1),
        Finished("tool_calls"),
    ]
    restorer, assembler = CallRestorer(REQUEST), Assembler()
    for delta in deltas:
        for restored in restorer.delta(delta):
            assembler.add(restored)
    assert assembler.output.parts == (
        ToolCallRequest("apply patch", "b", "*** Begin", freeform=True),
        ToolCallRequest("files/read", "a", '{"x":1}'),
    )


def test_text_that_is_not_what_was_asked_for_is_kept_as_it_is() -> None:
    answer = ModelOutput(parts=(ToolCallRequest(PATCH, "b", '{"patch": 1'),))
    assert CallRestorer(REQUEST).output(answer).parts == (
        ToolCallRequest("apply patch", "b", '{"patch": 1', freeform=True),
    )


ODD = ToolDefinition("search", parameters={"type": "object", "properties": {"$filter": {"type": "string"}, "top": {}}})
WRAPPED = ToolDefinition("count", parameters={"type": "integer"})


def property_names(name: str, request: ModelRequest) -> list[str]:
    """The property names of the first tool, as a format declares them."""
    tool = formats[name].write_request(request).body["tools"][0]
    schema = tool["input_schema"] if name == "anthropic" else tool.get("parameters") or tool["function"]["parameters"]
    return list(schema["properties"])


def test_replaced_property_names_come_back() -> None:
    request = ModelRequest(model="claude-sonnet-4-5", tools=(ODD,))
    renamed, top = property_names("anthropic", request)
    assert renamed != "$filter"
    restorer = CallRestorer(request)
    assert not restorer.is_noop
    call = ToolCallRequest("search", "c", f'{{"{renamed}":"a eq 1","{top}":2}}')
    (restored,) = restorer.output(ModelOutput(parts=(call,))).parts
    assert restored == ToolCallRequest("search", "c", '{"$filter":"a eq 1","top":2}')


@pytest.mark.parametrize("name", ["anthropic", "openai-chat", "openai-responses"])
def test_arguments_in_a_wrapped_root_come_back(name: str) -> None:
    request = ModelRequest(model="m", tools=(WRAPPED,))
    assert property_names(name, request) == ["value"]
    (restored,) = (
        CallRestorer(request).output(ModelOutput(parts=(ToolCallRequest("count", "c", '{"value": 3}'),))).parts
    )
    assert restored == ToolCallRequest("count", "c", "3")


def test_replaced_arguments_come_back_in_a_stream() -> None:
    request = ModelRequest(model="claude-sonnet-4-5", tools=(ODD, WRAPPED))
    renamed, _ = property_names("anthropic", request)
    restorer, whole = CallRestorer(request), Assembler()
    deltas: list[ModelOutputDelta] = [
        Started(),
        PartStarted(0, ToolCallRequest("search", "c", "")),
        PartDelta(0, f'{{"{renamed[:4]}'),
        PartStarted(1, ToolCallRequest("count", "d", "")),
        PartDelta(1, '{"value": [1]}'),
        PartDelta(0, f'{renamed[4:]}":1}}'),
        PartEnded(1),
        PartEnded(0),
        Finished("tool_calls"),
    ]
    for delta in deltas:
        for restored in restorer.delta(delta):
            whole.add(restored)
    assert [part.arguments for part in whole.output.parts if isinstance(part, ToolCallRequest)] == [
        '{"$filter":1}',
        "[1]",
    ]


def test_arguments_that_need_no_change_keep_their_text() -> None:
    restorer = CallRestorer(ModelRequest(tools=(ODD, WRAPPED)))
    for call in (
        ToolCallRequest("search", "c", '{ "top" : 2 }'),
        ToolCallRequest("search", "c", '{"top'),
        ToolCallRequest("count", "c", " 3 "),
        ToolCallRequest("count", "c", '{"value": 3, "more": 4}'),
    ):
        output = ModelOutput(parts=(call,))
        assert restorer.output(output) is output


LEGACY = formats["openai-chat"].read_request(
    {"model": "m", "messages": [], "functions": [{"name": "weather"}, {"name": "files.read"}]}
)


def test_calls_of_legacy_functions_are_answered_in_their_own_shape() -> None:
    answer = ModelOutput(parts=(ToolCallRequest("weather", "a", "{}"),), stop_reason="tool_calls")
    (choice,) = formats["openai-chat"].write_response(CallRestorer(LEGACY).output(answer)).body["choices"]
    assert choice["message"]["function_call"] == {"name": "weather", "arguments": "{}"}
    assert "tool_calls" not in choice["message"]
    assert choice["finish_reason"] == "function_call"


def test_streamed_call_of_a_legacy_function_has_its_own_shape() -> None:
    restorer, writer = CallRestorer(LEGACY), formats["openai-chat"].stream_writer("m")
    sent = safe_name("files.read", 64)
    deltas: list[ModelOutputDelta] = [
        Started(),
        PartStarted(0, ToolCallRequest(sent, "a", "")),
        PartDelta(0, "{}"),
        PartEnded(0),
        Finished("tool_calls"),
    ]
    data = b"".join(writer.write(restored) for delta in deltas for restored in restorer.delta(delta))
    assert b'"function_call":{"name":"files.read"' in data
    assert b"tool_calls" not in data
    assert b'"finish_reason":"function_call"' in data


def test_legacy_functions_are_called_one_at_a_time() -> None:
    """An answer of the legacy API has one call: other formats are asked for one, Chat Completions needs no switch."""
    named = ModelRequest(model="claude-sonnet-4-5", tools=LEGACY.tools, parallel_tool_calls=LEGACY.parallel_tool_calls)
    assert formats["anthropic"].write_request(named).body["tool_choice"]["disable_parallel_tool_use"] is True
    chat, losses = formats["openai-chat"].write_request(named)
    assert "parallel_tool_calls" not in chat
    assert not any(loss.path == "parallel_tool_calls" for loss in losses)
