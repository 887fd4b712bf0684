"""L6, one line is one line: no stream that we write has a line separator inside a line, whatever the model said.

JSON allows U+2028, U+2029 and U+0085 unescaped; clients split there (`str.splitlines`, httpx's `iter_lines`, and every regular
expression whose dot stops at a line separator), and parse half an event.
"""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.parts import Refusal, Text, Thinking, TokenUsage, ToolCallRequest
from antiphon.wire import Assembler
from antiphon.wire.delta import (
    Failed,
    Finished,
    ModelOutputDelta,
    PartDelta,
    PartEnded,
    PartStarted,
    Started,
    UsageReported,
)
from antiphon.wire.inbound import CLIENT_ONLY, client_formats
from antiphon.wire.output import ProviderError
from support.examples import scaled

texts = st.text(alphabet='ab\u2028\u2029\u0085\x0b\x0c\x1c\x1d\x1e\r\n’漢😀"\\', max_size=8)
values = st.dictionaries(texts, texts, max_size=2)
arguments = st.one_of(
    values.map(lambda value: msgspec.json.encode(value).decode()),
    values.map(lambda value: msgspec.json.format(msgspec.json.encode(value), indent=2).decode()),
    texts,
)


@st.composite
def streams(draw: st.DrawFn) -> list[ModelOutputDelta]:
    """Deltas with separators wherever a model, a tool or a host may have put them."""
    deltas: list[ModelOutputDelta] = [Started(draw(texts), draw(texts), 1, "openai-chat")]
    for index in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from([Text, Thinking, Refusal, ToolCallRequest]))
        if kind is ToolCallRequest:
            call = ToolCallRequest(draw(texts), draw(texts), "", draw(st.booleans()))
            pieces = [draw(arguments)]
            deltas.append(PartStarted(index, call))
        else:
            pieces = draw(st.lists(texts, max_size=3))
            deltas.append(PartStarted(index, kind("")))
        deltas += [*(PartDelta(index, piece) for piece in pieces), PartEnded(index)]
    if draw(st.booleans()):
        deltas.append(Failed(ProviderError(draw(texts), "server", code=draw(texts))))
    else:
        deltas += [UsageReported(TokenUsage()), Finished("end", stop_sequence=draw(texts))]
    return deltas


def lines_of(data: bytes) -> list[bytes]:
    """The lines, by the only separators that a line of JSON can never contain."""
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").removesuffix(b"\n").split(b"\n")


@pytest.mark.parametrize("name", client_formats)
@settings(max_examples=scaled(20))
@given(deltas=streams(), model=texts)
def test_no_line_of_a_stream_contains_a_line_separator(name: str, deltas: list[ModelOutputDelta], model: str) -> None:
    writer = client_formats[name].stream_writer(model)
    data = b"".join([*map(writer.write, deltas), writer.close()])
    assert [line.encode() for line in data.decode().splitlines()] == lines_of(data)


@pytest.mark.parametrize("name", [name for name in client_formats if name not in CLIENT_ONLY])
def test_escaped_separators_are_the_same_text(name: str) -> None:
    said = "one\u2028two\u2029three\u0085four ’漢"
    wire = client_formats[name]
    writer, reader, assembler = wire.stream_writer("m"), wire.stream_reader(), Assembler()
    deltas: list[ModelOutputDelta] = [
        Started("a", "m", 1),
        PartStarted(0, Text("")),
        PartDelta(0, said),
        PartEnded(0),
        PartStarted(1, ToolCallRequest("f", "call_1", "")),
        PartDelta(1, msgspec.json.encode({"q": said}).decode()),
        PartEnded(1),
        Finished("tool_calls"),
    ]
    for delta in reader.feed(b"".join([*map(writer.write, deltas), writer.close()])):
        assembler.add(delta)
    text, made = assembler.output.parts
    assert isinstance(text, Text)
    assert text.text == said
    assert isinstance(made, ToolCallRequest)
    assert msgspec.json.decode(made.arguments) == {"q": said}
