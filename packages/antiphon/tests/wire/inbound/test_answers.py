"""Answers for clients of Ollama and of completions: whole and streamed they have, and lose, the same."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.parts import Image, Native, Text, Thinking, ToolCallRequest
from antiphon.wire import ModelOutput, ModelOutputDelta
from antiphon.wire.delta import Finished, PartDelta, PartEnded, PartExtended, PartStarted, Started
from antiphon.wire.inbound import CLIENT_ONLY, client_formats

EXTRAS: dict[str, Any] = {"anthropic": {"container": {"id": "c"}}}
CITED: dict[str, Any] = {"anthropic": {"citations": [{"cited_text": "x"}]}}
SIGNED: dict[str, Any] = {"anthropic": {"signature": "s"}}
ANSWER = ModelOutput(
    parts=(
        Thinking("Hm.", native=SIGNED),
        Text("Rain.", native=CITED),
        Image("image/png", "AAAA"),
        Native("anthropic", {"type": "server_tool_use"}),
    ),
    stop_reason="stop_sequence",
    stop_sequence="END",
    id="msg_1",
    model="m",
    format="anthropic",
    native=EXTRAS,
)
STREAM: list[ModelOutputDelta] = [
    Started("msg_1", "m", format="anthropic"),
    PartStarted(0, Thinking("")),
    PartDelta(0, "Hm."),
    PartExtended(0, SIGNED),
    PartEnded(0),
    PartStarted(1, Text("", native=CITED)),
    PartDelta(1, "Rain."),
    PartEnded(1),
    PartStarted(2, Image("image/png", "AAAA")),
    PartEnded(2),
    PartStarted(3, Native("anthropic", {"type": "server_tool_use"})),
    PartEnded(3),
    Finished("stop_sequence", "END", native=EXTRAS),
]


@pytest.mark.parametrize("name", CLIENT_ONLY)
def test_everything_that_a_client_cannot_read_is_reported(name: str) -> None:
    """L3, whole and streamed."""
    whole = {loss.path for loss in client_formats[name].write_response(ANSWER).losses}
    writer = client_formats[name].stream_writer("m")
    data = b"".join(map(writer.write, STREAM)) + writer.close()
    assert b"Rain." in data
    lost_thought = "parts[0]" if name == "openai-completions" else "parts[0].signature"
    assert whole == {lost_thought, "parts[1].citations", "parts[2]", "parts[3]", "native.container", "stop_sequence"}
    assert {loss.path for loss in writer.losses} == whole


CALLS = {'{"city":\n "Oslo"}': {"city": "Oslo"}, "null": {}, "": {}, '{"city": "Os': {"_raw": '{"city": "Os'}}


@pytest.mark.parametrize(("arguments", "expected"), CALLS.items())
def test_arguments_for_ollama_are_an_object_on_one_line(arguments: str, expected: dict[str, Any]) -> None:
    call = ToolCallRequest("weather", "c", arguments)
    output = ModelOutput(parts=(call,), stop_reason="tool_calls", model="m")
    body, losses = client_formats["ollama"].write_response(output)
    (written,) = body["message"]["tool_calls"]
    assert written["function"]["arguments"] == expected
    assert [loss.path for loss in losses] == (["parts[0].arguments"] if "_raw" in expected else [])
    writer = client_formats["ollama"].stream_writer("m")
    start = ToolCallRequest("weather", "c", "")
    deltas: list[ModelOutputDelta] = [Started(), PartStarted(0, start), PartDelta(0, arguments), PartEnded(0)]
    line = b"".join(map(writer.write, deltas))
    assert msgspec.json.decode(line)["message"]["tool_calls"] == [written]
    assert line.count(b"\n") == 1


def test_completions_have_the_fingerprint_of_a_chat() -> None:
    native = {"openai-chat": {"system_fingerprint": "fp_1", "choice": {"logprobs": None}}}
    output = ModelOutput(parts=(Text("Rain."),), stop_reason="end", model="m", format="openai-chat", native=native)
    body, losses = client_formats["openai-completions"].write_response(output)
    assert (body["system_fingerprint"], losses) == ("fp_1", [])
