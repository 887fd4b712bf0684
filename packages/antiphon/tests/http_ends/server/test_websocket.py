"""`WebSocket`: damaged frames are read or end the connection, however their bytes are cut, and nothing stays held."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st
from wsproto import ConnectionType
from wsproto.connection import Connection
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, Pong, TextMessage

from antiphon.http.body import Governor, Hold
from antiphon.http.server.application import Limits
from antiphon.http.server.websocket import WebSocket
from support.damage import cut, damaged_bytes

MAX_BYTES = 60
TEXTS = st.text("a{}é中😀", max_size=30)
EVENTS = st.one_of(
    st.builds(TextMessage, data=TEXTS, message_finished=st.booleans()),
    st.builds(Ping, payload=st.binary(max_size=5)),
    st.just(Pong()),
    st.just(BytesMessage(data=b"\xff")),
    st.builds(CloseConnection, code=st.sampled_from([1000, 1001, 4000]), reason=TEXTS),
)


class Transport:
    """Where frames are written."""

    def __init__(self) -> None:
        self.has_closed = False

    def write(self, _: bytes) -> None:
        assert not self.has_closed

    def close(self) -> None:
        self.has_closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.has_closed


class Session:
    """Takes messages, and gives their bytes back."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []

    def on_message(self, data: bytes, hold: Hold) -> None:
        self.messages.append(data)
        hold.release()

    def on_closed(self) -> None:
        pass


@st.composite
def sent_frames(draw: st.DrawFn) -> bytes:
    """Frames of a client, up to a close."""
    client, sent = Connection(ConnectionType.CLIENT), b""
    for event in cast("list[Event]", draw(st.lists(EVENTS, min_size=1, max_size=5))):
        with suppress(TypeError):  # a binary message inside a text message
            sent += client.send(event)
        if isinstance(event, CloseConnection):
            break
    return sent


async def read(pieces: Sequence[bytes]) -> tuple[list[bytes], bool]:
    """The messages in these pieces, and whether the connection ends."""
    governor, transport, session = Governor(100_000), Transport(), Session()
    socket = WebSocket(
        cast("asyncio.Transport", transport),
        Limits(max_body_bytes=MAX_BYTES),
        governor.hold("key"),
        on_busy=lambda _: None,
    )
    socket.open(cast("Any", session))
    for piece in pieces:
        if not transport.has_closed:
            socket.feed(piece)
    ends = transport.has_closed or socket._is_closing
    socket.lost()
    assert governor.used == 0
    return session.messages, ends


@given(damaged_bytes(sent_frames()), st.data())
def test_damaged_frames_are_the_same_however_their_bytes_are_cut(stream: bytes, data: st.DataObject) -> None:
    assert asyncio.run(read([stream])) == asyncio.run(read(cut(stream, data)))


def test_a_ping_after_an_unwanted_message_is_not_answered() -> None:
    client = Connection(ConnectionType.CLIENT)
    sent = client.send(BytesMessage(data=b"\xff")) + client.send(Ping(payload=b"x"))
    assert asyncio.run(read([sent])) == ([], True)
