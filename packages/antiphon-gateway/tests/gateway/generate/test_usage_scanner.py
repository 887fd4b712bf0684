"""A scanned stream gives the same end as a full read, for any chunking."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.parts import OutputPart, Text, TokenUsage, ToolCallRequest
from antiphon.providers.engine.response_reader import ResponseReader, deltas_from_output
from antiphon.wire import formats
from antiphon.wire.delta import Failed, Finished, ModelOutputDelta, UsageReported
from antiphon.wire.output import ModelOutput, ProviderError
from antiphon_gateway.generate.usage_scanner import UsageScanner
from support.examples import at_least

SKIMMED = ("openai-chat", "anthropic")
WORDS = ["rain ", "an error? ", 'she wrote "usage":{} ', "[DONE] ", "message_stop ", "\n\n", "data: {}", "ø"]
CALL = ToolCallRequest("weather", "call_1", '{"city": "Oslo", "why": "error"}')


def written(name: str, words: list[str], ending: str) -> bytes:
    """A stream of the format that says these words, and ends as it should, with an error, or not at all."""
    parts: tuple[OutputPart, ...] = (Text("".join(["Well, ", *words])), CALL)
    output = ModelOutput(parts=parts, stop_reason="tool_calls", usage=TokenUsage(12, 34), id="id-1", model="m")
    writer = formats[name].stream_writer("m")
    deltas = list(deltas_from_output(output, 5))
    if ending != "end":
        deltas = [delta for delta in deltas if not isinstance(delta, Finished | UsageReported)]
    if ending == "error":
        deltas.append(Failed(ProviderError("it is full", "overloaded")))
    data = b"".join(map(writer.write, deltas))
    return data if ending == "cut" else data + writer.close()


def ending_of(deltas: list[ModelOutputDelta]) -> tuple[object, ...]:
    usage = [delta.usage.total for delta in deltas if isinstance(delta, UsageReported)][-1:]
    last = deltas[-1]
    return type(last), last.error.kind if isinstance(last, Failed) else "", usage


@pytest.mark.parametrize("name", SKIMMED)
@settings(max_examples=at_least(100), deadline=None)
@given(
    words=st.lists(st.sampled_from(WORDS), max_size=30),
    ending=st.sampled_from(["end", "error", "cut"]),
    crlf=st.booleans(),
    data=st.data(),
)
def test_scanned_usage_of_a_stream_equals_the_decoded_usage(
    name: str, words: list[str], ending: str, crlf: bool, data: st.DataObject
) -> None:
    stream = written(name, words, ending)
    if crlf:
        stream = stream.replace(b"\n", b"\r\n")
    begun = data.draw(st.integers(0, len(stream)))
    cuts = sorted({begun, len(stream), *data.draw(st.lists(st.integers(begun, len(stream)), max_size=8))})
    pieces = [stream[start:end] for start, end in pairwise(cuts)]

    whole = ResponseReader(formats[name])
    read = [*whole.feed(stream), *([] if whole.is_finished else whole.close())]

    reader = ResponseReader(formats[name])
    deltas = reader.feed(stream[:begun])
    skimmer = UsageScanner.create(reader, name, stream[:begun])
    for piece in pieces:
        if not skimmer.is_finished:
            deltas = [*deltas, *skimmer.feed(piece)]
    if not skimmer.is_finished:
        deltas = [*deltas, *skimmer.close()]
    assert ending_of(deltas) == ending_of(read)
    assert skimmer.is_finished


@pytest.mark.parametrize("name", SKIMMED)
def test_text_between_usage_fields_is_not_parsed(name: str) -> None:
    stream = written(name, ["rain "] * 200, "end")
    begun = stream.index(b"\n\n", 800) + 2
    reader = ResponseReader(formats[name])
    reader.feed(stream[:begun])
    skimmer = UsageScanner.create(reader, name, stream[:begun])
    assert isinstance(skimmer, UsageScanner)
    assert len(skimmer.feed(stream[begun:])) < 20


def test_a_stream_the_scanner_cannot_skim_is_decoded() -> None:
    reader = ResponseReader(formats["openai-chat"])
    assert UsageScanner.create(reader, "openai-chat", b'data: {"choices": [], "finish_reason" : null}\n\n') is reader
    assert UsageScanner.create(reader, "gemini", b'data: {"candidates": []}\n\n') is reader
