"""`WebSocket`: a client connection after its upgrade: frames in, messages to a session; messages out, frames.

wsproto reads and writes the frames. Checked here is what it leaves open: the size of a message, how often a client must show that
it is there (pings), and that a close is answered and ends. Nothing is compressed, so a small frame is never a large message.

The bytes of a message are held (`Governor`) from the first one on until the session gives them back. A client that does not read
is not read from either, so that the answers to what it sends cannot pile up.
"""

from __future__ import annotations

import asyncio
import binascii
from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from antiphon.http.body import Hold
from antiphon.http.messages import Response
from antiphon.http.server.application import Limits, Refusal

if TYPE_CHECKING:
    from wsproto.events import Event

VERSION = "13"
GOING_AWAY, TOO_BIG = 1001, 1009
CLOSE_SECONDS = 5.0
"""How long a client may take to answer a close."""


class SocketSession(Protocol):
    """What answers the messages of one WebSocket."""

    def on_message(self, data: bytes, hold: Hold) -> None:
        """A whole text message, in UTF-8. `hold` counts it until the session gives it back."""

    def on_refused(self, refusal: str) -> None:
        """A message that was not kept, because too many bytes wait."""

    def pause(self) -> None:
        """The client reads slowly."""

    def resume(self) -> None:
        """The client has caught up."""

    def finish(self) -> None:
        """Close the socket when nothing is being answered any more: the server shuts down."""

    def on_closed(self) -> None:
        """The client left. Nothing can be sent any more."""


class WebSocket:
    """One upgraded connection. `hold` counts what came of a message that is not whole.

    `on_busy` is called when the session starts to answer, and when nothing is left to answer.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        limits: Limits,
        hold: Hold,
        on_busy: Callable[[bool], None],
    ) -> None:
        from wsproto import ConnectionType
        from wsproto.connection import Connection

        self.set_busy = on_busy
        self._max_bytes = limits.max_body_bytes
        self._transport = transport
        self._protocol = Connection(ConnectionType.SERVER)
        self._session: SocketSession | None = None
        self._message = bytearray()
        self._hold = hold
        self._refusal = ""  # why the rest of the message is not kept
        self._unsent: list[Hold] = []  # of messages whose answers the client has not taken
        self._is_closing = self._is_paused = False
        self._ping_seconds = limits.ping_seconds
        self._is_alive = True
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(limits.ping_seconds, self._ping)

    def open(self, session: SocketSession) -> None:
        """Pass messages to `session` from now on."""
        self._session = session

    def feed(self, data: bytes) -> None:
        """Bytes from the client."""
        from wsproto.utilities import LocalProtocolError

        self._is_alive = True
        try:
            self._protocol.receive_data(data)
        except LocalProtocolError:
            return  # it was closed
        self._read_events()

    def _read_events(self) -> None:
        from wsproto.events import BytesMessage, CloseConnection, Ping, TextMessage

        for event in self._protocol.events():
            if isinstance(event, TextMessage):
                self._on_text(event.data, is_whole=event.message_finished)
            elif isinstance(event, Ping):
                if not self._is_closing:
                    self._send(event.response())
            elif isinstance(event, CloseConnection):
                self._on_close(event)
                return
            elif isinstance(event, BytesMessage):
                self.close(1003, "send text messages")
            if self._is_closing:
                self._drop_message()
            if self._is_paused:
                return  # the rest is read when the client has caught up

    def send_text(self, data: bytes) -> None:
        """Send a message. `data` is UTF-8."""
        from wsproto.events import TextMessage

        if not self._is_closing:
            self._send(TextMessage(data=data.decode()))

    def give_back(self, hold: Hold) -> None:
        """Give back what a message used, as soon as the client has taken the answers to it."""
        if self._is_paused:
            self._unsent.append(hold)
        else:
            hold.release()

    def close(self, code: int, reason: str = "") -> None:
        """Close the connection; the client gets some time to answer."""
        from wsproto.events import CloseConnection

        if self._is_closing:
            return
        self._is_closing = True
        self._send(CloseConnection(code=code, reason=reason))
        self._timer.cancel()
        self._timer = self._loop.call_later(CLOSE_SECONDS, self._transport.abort)

    def finish(self) -> None:
        """The server shuts down."""
        if self._session is not None:
            self._session.finish()

    def pause(self) -> None:
        """The client reads slowly."""
        self._is_paused = True
        self._transport.pause_reading()
        if self._session is not None:
            self._session.pause()

    def resume(self) -> None:
        """The client has caught up."""
        self._is_paused, self._is_alive = False, True
        self._release_unsent()
        if not self._transport.is_closing():
            self._transport.resume_reading()
        if self._session is not None:
            self._session.resume()
        if not self._is_paused:
            self._read_events()

    def lost(self) -> None:
        """The connection is closed."""
        self._is_closing, self._is_paused = True, False
        self._timer.cancel()
        self._drop_message()
        self._release_unsent()
        session, self._session = self._session, None
        if session is not None:
            session.on_closed()

    def _on_text(self, text: str, *, is_whole: bool) -> None:
        data = text.encode()
        if len(self._message) + len(data) > self._max_bytes:
            self.close(TOO_BIG, f"message exceeds {self._max_bytes:,} bytes (max_body_bytes)")
            return
        if not self._refusal and (refusal := self._hold.grow(len(data))):
            self._drop_message()
            self._refusal = refusal
        if not self._refusal:
            self._message += data
        if not is_whole or self._session is None or self._is_closing:
            return
        refusal, self._refusal = self._refusal, ""
        if refusal:
            self._session.on_refused(refusal)
            return
        message, self._message = bytes(self._message), bytearray()
        self._session.on_message(message, self._hold.move())

    def _drop_message(self) -> None:
        self._message = bytearray()
        self._hold.release()

    def _release_unsent(self) -> None:
        holds, self._unsent = self._unsent, []
        for hold in holds:
            hold.release()

    def _on_close(self, event: Event) -> None:
        """The client closes, or sent what is not a frame."""
        from wsproto.events import CloseConnection

        assert isinstance(event, CloseConnection)
        if not self._is_closing:
            self._is_closing = True
            code = event.code if event.code and event.code != 1005 else 1000
            self._send(CloseConnection(code=code))
        self._transport.close()

    def _ping(self) -> None:
        from wsproto.events import Ping

        if not self._is_alive and not self._is_paused:  # a client that takes no byte has another limit
            self._transport.abort()  # nothing came since the last ping
            return
        self._is_alive = False
        self._send(Ping())
        self._timer = self._loop.call_later(self._ping_seconds, self._ping)

    def _send(self, event: Event) -> None:
        if not self._transport.is_closing():
            self._transport.write(self._protocol.send(event))


def handshake(headers: Mapping[str, str]) -> Response | Refusal:
    """The answer to an upgrade: status 101, or why it is wrong."""
    try:
        from wsproto.utilities import generate_accept_token
    except ImportError:
        return Refusal(426, "WebSocket needs the package wsproto: pip install antiphon[websocket]; or send POST")
    if headers.get("sec-websocket-version") != VERSION:
        message = f"unsupported WebSocket version; send sec-websocket-version: {VERSION}"
        return Refusal(426, message, headers={"sec-websocket-version": VERSION})
    key = headers.get("sec-websocket-key", "")
    try:
        is_valid = len(b64decode(key, validate=True)) == 16
    except (binascii.Error, ValueError):
        is_valid = False
    if not is_valid:
        return Refusal(400, "sec-websocket-key: expected 16 bytes in base64")
    accept = generate_accept_token(key.encode()).decode()
    return Response(
        status=101, headers={"upgrade": "websocket", "connection": "Upgrade", "sec-websocket-accept": accept}
    )
