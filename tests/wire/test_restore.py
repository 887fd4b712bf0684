"""An answer in the words of the request: names back, freeform calls freeform again, nothing else touched."""

from __future__ import annotations

from antiphon.parts import Text, ToolCallRequest
from antiphon.wire import Assembler, ModelOutput, ModelOutputDelta, ModelRequest, ToolDefinition
from antiphon.wire.delta import Finished, PartDelta, PartEnded, PartStarted, Started
from antiphon.wire.tool_calls import CallRestorer, safe_name

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
