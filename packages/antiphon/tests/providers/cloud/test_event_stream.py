"""The frames of AWS: botocore decodes the same, wherever the bytes are cut; damaged bytes are an error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
from botocore.eventstream import EventStreamBuffer
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import TransportError
from antiphon.http.client.request import HttpResponse
from antiphon.providers.cloud.event_stream import EventStreamDecoder
from antiphon.providers.cloud.hosts import EventStreamResponse
from antiphon.wire import formats
from antiphon.wire.delta import Assembler
from providers.cloud.stand_in import EVENTS, FRAMES, chunk, exception, frame
from support.cases import each_case

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)


@given(
    frames=st.lists(
        st.tuples(st.dictionaries(NAMES, st.text(max_size=40), max_size=4), st.binary(max_size=300)), max_size=4
    ),
    cuts=st.lists(st.integers(1, 60), min_size=1, max_size=40),
)
def test_botocore_decodes_the_same(frames: list[tuple[dict[str, str], bytes]], cuts: list[int]) -> None:
    data = b"".join(frame(headers, payload) for headers, payload in frames)
    ours, theirs = EventStreamDecoder(), EventStreamBuffer()
    decoded = []
    at = 0
    for size in [*cuts, len(data)]:
        decoded += ours.feed(data[at : at + size])
        theirs.add_data(data[at : at + size])
        at += size
    expected = [({str(name): str(value) for name, value in one.headers.items()}, one.payload) for one in theirs]
    assert [(one.headers, one.payload) for one in decoded] == expected == frames
    assert not ours.has_partial_frame


def test_headers_of_other_types_are_skipped() -> None:
    import struct
    from zlib import crc32

    values = [b"\x00", b"\x01", b"\x02a", b"\x03ab", b"\x04abcd", b"\x05abcdefgh", b"\x06\x00\x02hi", b"\x08abcdefgh"]
    values.append(b"\x09" + b"u" * 16)
    names = b"".join(b"\x01n" + value for value in values) + b"\x01t\x07\x00\x02ok"
    start = struct.pack(">II", 16 + len(names), len(names))
    start += struct.pack(">I", crc32(start))
    data = start + names + struct.pack(">I", crc32(start + names))
    (decoded,) = EventStreamDecoder().feed(data)
    assert decoded.headers == {"t": "ok"}


@each_case("at", range(len(FRAMES[0])))
def test_a_changed_byte_is_noticed(at: int) -> None:
    damaged = bytearray(FRAMES[0] + FRAMES[1])
    damaged[at] ^= 0x20
    with pytest.raises(TransportError, match="malformed event stream"):
        EventStreamDecoder().feed(bytes(damaged))


def response_of(pieces: list[bytes]) -> EventStreamResponse:
    """A response that brings these pieces."""

    async def one_by_one() -> AsyncGenerator[bytes, None]:
        for piece in pieces:
            yield piece

    return EventStreamResponse(
        HttpResponse.of(200, {"content-type": "application/vnd.amazon.eventstream"}, one_by_one())
    )


class Collector:
    def __init__(self) -> None:
        self.data = b""
        self.ends: list[str] = []
        self.is_over = asyncio.Event()

    def on_body(self, data: bytes) -> None:
        self.data += data

    def on_complete(self) -> None:
        self.ends.append("complete")
        self.is_over.set()

    def on_failure(self, error: TransportError) -> None:
        self.ends.append(error.code)
        self.is_over.set()


async def iterated(pieces: list[bytes]) -> bytes:
    return b"".join([piece async for piece in response_of(pieces)])


async def delivered(pieces: list[bytes]) -> Collector:
    response, collector = response_of(pieces), Collector()
    first = await anext(response) if len(pieces) > 1 else b""
    collector.data = first
    response.deliver_to(collector)
    await asyncio.wait_for(collector.is_over.wait(), 10)
    return collector


@pytest.mark.parametrize("size", [1, 7, 64, 100_000])
def test_a_stream_is_what_anthropic_would_have_sent(size: int) -> None:
    data = b"".join(FRAMES)
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    events = asyncio.run(iterated(pieces))
    assert [line.removeprefix(b"data: ") for line in events.split(b"\n") if line.startswith(b"data")] == EVENTS
    collected = asyncio.run(delivered(pieces))
    assert (collected.data, collected.ends) == (events, ["complete"])
    assembler = Assembler()
    reader = formats["anthropic"].stream_reader()
    for delta in [*reader.feed(events), *reader.close()]:
        assembler.add(delta)
    assert assembler.is_finished
    assert assembler.output.parts[0].text == "Rain."  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("throttlingException", "rate_limit"),
        ("serviceUnavailableException", "overloaded"),
        ("modelTimeoutException", "timeout"),
        ("validationException", "invalid_request"),
        ("modelStreamErrorException", "server"),
        ("somethingNewException", "server"),
    ],
)
def test_an_exception_in_the_stream_is_an_error_of_that_kind(name: str, kind: str) -> None:
    events = asyncio.run(iterated([FRAMES[0], exception(name, "Please wait.")]))
    reader, assembler = formats["anthropic"].stream_reader(), Assembler()
    for delta in [*reader.feed(events), *reader.close()]:
        assembler.add(delta)
    assert assembler.error is not None
    assert (assembler.error.kind, assembler.error.message) == (kind, "Please wait.")


def test_an_end_inside_a_frame_is_a_lost_connection() -> None:
    with pytest.raises(TransportError, match="ended inside a frame"):
        asyncio.run(iterated([FRAMES[0], FRAMES[1][:-3]]))
    collected = asyncio.run(delivered([FRAMES[0], FRAMES[1][:-3]]))
    assert collected.ends == ["connection_lost"]


def test_damaged_frames_end_the_delivery_once() -> None:
    collected = asyncio.run(delivered([FRAMES[0], b"<html>not frames</html>", FRAMES[1]]))
    assert collected.ends == ["not_http"]


def test_an_event_with_a_number_that_no_float_holds_is_passed() -> None:
    event = b'{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","input":{"n":1e400}}}'
    assert asyncio.run(iterated([chunk(event)])) == b"event: content_block_start\ndata: " + event + b"\n\n"


def test_a_payload_that_is_nested_too_deep_is_not_an_event_stream(caplog: pytest.LogCaptureFixture) -> None:
    deep = b'{"bytes":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    headers = {":message-type": "event", ":event-type": "chunk"}
    collected = asyncio.run(delivered([frame(headers, deep)]))
    assert collected.ends == ["not_http"]
    assert not caplog.records
