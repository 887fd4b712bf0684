"""Channels: however the bytes of a stream are cut, the client gets the same and the same is recorded."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.errors import TransportError
from antiphon.parts import OutputPart, Text, TokenUsage, ToolCallRequest, text_of
from antiphon.providers.engine.continuation import Continuation
from antiphon.providers.engine.reply import ResponseReader, StreamReply
from antiphon.wire import FORMATS, formats
from antiphon.wire.delta import Assembler, Failed, Finished, ModelOutputDelta, UsageReported, deltas_from_output
from antiphon.wire.output import ModelOutput, ProviderError
from antiphon.wire.request import ModelRequest
from antiphon.wire.tools.call_restorer import CallRestorer
from antiphon_gateway.generate.channels import Channel, Same, StreamFailed, Translate
from antiphon_gateway.generate.frame import StreamFrame
from antiphon_gateway.observe.record import Record
from support.examples import scaled

WORDS = ["rain ", "an error? ", 'she wrote "usage":{} ', "[DONE] ", "message_stop ", "\n\n", "data: {}", "ø"]
CALL = ToolCallRequest("weather", "call_1", '{"city": "Oslo", "why": "error"}')
CUT = TransportError("connection lost: the host closed the connection", "connection_lost")


class Response:
    """Nothing is left to be read of it."""

    status = 200
    headers: dict[str, str] = {}  # noqa: RUF012

    @property
    def body(self) -> None:
        return None

    async def aclose(self) -> None:
        pass


def written(name: str, words: list[str], ending: str, *, call: bool = True) -> bytes:
    """A stream of the format that says these words, and ends as it should, with an error, or not at all."""
    parts: tuple[OutputPart, ...] = (Text("".join(["Well, ", *words])), *((CALL,) if call else ()))
    output = ModelOutput(
        parts=parts, stop_reason="tool_calls" if call else "end", usage=TokenUsage(12, 34), id="id-1", model="m"
    )
    writer = formats[name].stream_writer("m")
    deltas = list(deltas_from_output(output, 5))
    if ending != "end":
        deltas = [delta for delta in deltas if not isinstance(delta, Finished | UsageReported)]
    if ending == "error":
        deltas.append(Failed(ProviderError("it is full", "overloaded")))
    data = b"".join(map(writer.write, deltas))
    return data if ending == "cut" else data + writer.close()


def same(
    name: str, record: Record, continuation: Continuation | None = None, *, scrubs: bool = False, model: str = "m"
) -> Same:
    """A channel for a stream that is passed on."""
    frame = StreamFrame(formats[name], model, 20.0)

    def scrub(error: ProviderError) -> ProviderError:
        return ProviderError("it is hidden", error.kind) if scrubs else error

    def translate() -> Translate:
        restorer = CallRestorer(ModelRequest())
        return Translate(frame, record, scrub, restorer, continuation=continuation)

    return Same(frame, record, scrub, continuation=continuation, translate=translate)


def begun(name: str, data: bytes, reader: ResponseReader | None = None) -> StreamReply:
    """A reply; an attempt has read these bytes of it."""
    reader = reader or ResponseReader(formats[name])
    deltas, response = reader.feed(data), Response()
    return StreamReply(reader, response, iter(()), held=[data], deltas=deltas)  # type: ignore[arg-type]


def play(channel: Channel, name: str, first: bytes, *pieces: bytes, ends: bool = True) -> bytes:
    """What a client gets of a stream that an attempt has read up to `first`, and that comes in pieces from there on."""
    got = b""
    try:
        got += channel.begin(begun(name, first))
        for piece in pieces:
            got += channel.feed(piece)
        return got + channel.end(None if ends else CUT) + channel.close()
    except StreamFailed as failure:
        return got + failure.data + (channel.fail(failure.error) or b"")


def read(name: str, data: bytes) -> Assembler:
    reader, assembler = formats[name].stream_reader(), Assembler()
    for delta in [*reader.feed(data), *reader.close()]:
        assembler.add(delta)
    return assembler


def border_after(stream: bytes, size: int) -> int:
    """The end of the event in which the byte `size` is."""
    blank = b"\r\n\r\n" if b"\r" in stream else b"\n\n"
    return stream.index(blank, size) + len(blank)


def cut_up(stream: bytes, data: st.DataObject) -> tuple[bytes, list[bytes]]:
    first = data.draw(st.integers(0, len(stream)))
    cuts = sorted({first, len(stream), *data.draw(st.lists(st.integers(first, len(stream)), max_size=8))})
    return stream[:first], [stream[start:end] for start, end in pairwise(cuts)]


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=scaled(20), deadline=None)
@given(
    words=st.lists(st.sampled_from(WORDS), max_size=30),
    ending=st.sampled_from(["end", "error"]),
    crlf=st.booleans(),
    continues=st.booleans(),
    data=st.data(),
)
def test_a_stream_passes_unchanged_and_its_end_is_found(
    name: str, words: list[str], ending: str, crlf: bool, continues: bool, data: st.DataObject
) -> None:
    stream = written(name, words, ending)
    if crlf:
        stream = stream.replace(b"\n", b"\r\n")
    first, pieces = cut_up(stream, data)
    record = Record(request_id="r")
    channel = same(name, record, Continuation() if continues and ending == "end" else None)
    assert play(channel, name, first, *pieces) == stream
    assert channel.is_finished
    if ending == "end":
        assert (record.error, record.usage and record.usage.total) == (None, 46)
    else:
        assert record.error is not None
        assert record.error.kind == "overloaded"


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=scaled(10), deadline=None)
@given(words=st.lists(st.sampled_from(WORDS), max_size=30), data=st.data())
def test_a_stream_that_is_cut_never_looks_complete(name: str, words: list[str], data: st.DataObject) -> None:
    stream = written(name, words, "cut")
    stream = stream[: data.draw(st.integers(0, len(stream)))]
    first, pieces = cut_up(stream, data)
    got = play(same(name, Record(request_id="r")), name, first, *pieces, ends=False)
    assert read(name, got).error is not None


@pytest.mark.parametrize("name", FORMATS)
def test_an_error_that_repeats_a_secret_is_replaced(name: str) -> None:
    stream = written(name, ["rain "] * 20, "error")
    border = border_after(stream, len(stream) // 2)
    got = play(same(name, Record(request_id="r"), scrubs=True), name, stream[:border], stream[border:])
    assert b"it is full" not in got
    error = read(name, got).error
    assert error is not None
    assert "hidden" in error.message


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("crlf", [False, True], ids=["LF", "CRLF"])
def test_an_event_passes_as_soon_as_its_last_byte_has_come(name: str, crlf: bool) -> None:
    stream = written(name, ["rain "] * 5, "end")
    if crlf and b"\r" not in stream:
        stream = stream.replace(b"\n", b"\r\n")
    border = border_after(stream, 0)
    channel = same(name, Record(request_id="r"))
    got = channel.begin(begun(name, stream[:border]))
    while border < len(stream):
        end = border_after(stream, border)
        for at in range(border, end):
            got += channel.feed(stream[at : at + 1])
        assert got == stream[:end]
        border = end


@pytest.mark.parametrize("name", FORMATS)
def test_an_event_that_cannot_be_read_is_replaced_by_an_error(name: str) -> None:
    stream = written(name, ["rain "] * 5, "end")
    border = border_after(stream, len(stream) // 2)
    damaged = b'data: {"id": "1", "choices": [{"delta": {"content": \n\n'
    got = play(same(name, Record(request_id="r")), name, stream[:border] + damaged, stream[border:])
    assert got.startswith(stream[:border])
    assert damaged not in got
    assert stream[border:] not in got
    error = read(name, got).error
    assert error is not None
    assert "invalid stream" in error.message


@pytest.mark.parametrize(
    ("name", "number"), [("openai-responses", "sequence_number"), ("gemini-interactions", "event_id")]
)
def test_an_error_after_a_comment_is_numbered_after_the_last_event(name: str, number: str) -> None:
    stream = written(name, ["rain "], "cut")
    got = play(same(name, Record(request_id="r")), name, stream, b": keep-alive\n\n", ends=False)
    numbers = [int(found) for found in re.findall(rb'"%b":"?(\d+)' % number.encode(), got)]
    assert numbers == list(range(len(numbers)))


@pytest.mark.parametrize("name", ["openai-chat", "anthropic"])
def test_text_between_markers_is_not_parsed(name: str) -> None:
    stream = written(name, ["rain "] * 200, "end")
    border = border_after(stream, 800)
    fed: list[bytes] = []

    class Noting(ResponseReader):
        def feed(self, data: bytes) -> list[ModelOutputDelta]:
            fed.append(data)
            return super().feed(data)

    record = Record(request_id="r")
    channel = same(name, record)
    got = channel.begin(begun(name, stream[:border], Noting(formats[name]))) + channel.feed(stream[border:])
    assert got == stream
    assert sum(map(len, fed)) < len(stream) // 2
    assert record.usage is not None
    text = "".join(["Well, ", *["rain "] * 200])
    assert len(text) * 0.9 < record.output_bytes < len(text) * 1.6, "an estimate, from the size of the events"


def test_events_after_the_end_mark_bring_no_second_one() -> None:
    stream = written("openai-chat", ["rain "] * 5, "end")
    assert stream.endswith(b"data: [DONE]\n\n")
    got = play(same("openai-chat", Record(request_id="r")), "openai-chat", b"", stream, b": more\n\n")
    assert got.count(b"[DONE]") == 1


@pytest.mark.parametrize("end", [b"data: [DONE]\n\n", b"data: [DONE]", b""])
def test_a_missing_end_mark_is_supplied(end: bytes) -> None:
    stream = written("openai-chat", ["rain "] * 5, "end").removesuffix(b"data: [DONE]\n\n")
    got = play(same("openai-chat", Record(request_id="r")), "openai-chat", stream, end)
    assert got.count(b"[DONE]") == 1
    assert got.startswith(stream)


BROKEN = {
    "cut": b"",
    "error": b'data: {"error": {"message": "overloaded", "type": "server_error"}}\n\n',
    "malformed": b'data: {"id": "1", "choices": [{"delta": {"content": \n\n',
}
CASES = [("openai-chat", how) for how in BROKEN] + [("anthropic", "cut"), ("gemini", "cut")]


@pytest.mark.parametrize(("name", "how"), CASES)
def test_another_target_continues_where_the_events_of_the_first_one_broke(name: str, how: str) -> None:
    words = ["rain ", "and ", "wind ", "ø "] * 10
    first, second = written(name, words, "cut", call=False), written(name, [*words, "again"], "end", call=False)
    continuation, record = Continuation(), Record(request_id="r")
    channel: Channel = same(name, record, continuation)
    border = border_after(first, 200)
    got = channel.begin(begun(name, first[:border])) + channel.feed(first[border:])
    assert got == first, "the upstream's own events, up to the break"
    with pytest.raises(StreamFailed) as caught:
        channel.feed(BROKEN[how]) + channel.end(CUT)
    got += caught.value.data
    assert how == "cut" or BROKEN[how] not in got
    channel = channel.continued()
    continuation.begin(is_prefilled=False)
    got += channel.begin(begun(name, second)) + channel.end(None) + channel.close()
    answer = read(name, got)
    assert answer.error is None
    assert text_of(answer.output.parts) == "".join(["Well, ", *words, "again"])
    assert channel.is_finished
