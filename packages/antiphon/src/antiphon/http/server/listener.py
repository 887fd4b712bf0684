"""`Listener`: one port with its connections and limits.

A process may have several, for one `Application` or for many, on ports or Unix sockets. A request is admitted on its head, first
by the application, then by content type and declared length; only then is its body read.

Limits and their statuses: connections 503; head 431; body 413, 408 when late, 503 above the budget of all bodies; whole request
504. A shutdown accepts nothing new, lets current requests finish for a while, then aborts the rest. `stop_on_signals` is how a
process that only serves is asked for one.

TLS is a certificate and its key in two PEM files, read again when they are renewed, into the context that is in use: connections
from then on get the new certificate, open ones are not touched. Files that do not belong together change nothing, so a
half-written renewal is harmless.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

from antiphon.errors import GatewayStartError
from antiphon.http.body import Governor
from antiphon.http.messages import ClientRequest
from antiphon.http.request_ids import new_request_ids
from antiphon.http.server.application import Application, Limits, Refusal, Traffic
from antiphon.http.server.connection import ServerConnection

_BACKLOG = 1024


class Listener:
    """One port, and what its connections share. `name` is its name in requests.

    `governor` and `traffic` are those of the process; `limits` may be replaced.
    """

    keep_alive_seconds = 75.0
    """How long a connection without a request is kept open, from the last byte of the response before."""
    _server: asyncio.Server | None = None

    def __init__(
        self,
        application: Application,
        name: str,
        limits: Limits | None = None,
        *,
        governor: Governor | None = None,
        traffic: Traffic | None = None,
    ) -> None:
        self.application = application
        self.name = name
        self.limits = limits or Limits()
        self.governor = governor or Governor(self.limits.max_buffered_bytes)
        self.traffic = traffic or Traffic()
        self.ids = new_request_ids()
        self.connections: set[ServerConnection] = set()

    async def open(self, sock: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        """Listen on a TCP or Unix socket."""
        loop, new_connection = asyncio.get_running_loop(), partial(ServerConnection, self)
        if sock.family == socket.AF_UNIX:
            self._server = await loop.create_unix_server(new_connection, sock=sock, backlog=_BACKLOG)
        else:
            self._server = await loop.create_server(
                new_connection,
                sock=sock,
                backlog=_BACKLOG,
                ssl=tls,
                ssl_handshake_timeout=None if tls is None else self.limits.header_seconds,
            )

    async def close(self, grace: float) -> None:
        """Accept nothing new, give current requests `grace` seconds, then abort the rest."""
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.drain()
        deadline = time.monotonic() + grace
        while any(one.listener is self for one in self.traffic.busy) and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        await asyncio.gather(*(connection.abort(1.0) for connection in list(self.connections)))

    def internal_error(self, request: ClientRequest) -> Refusal:
        """A defect of ours ended a request."""
        return Refusal(500, f"internal error; see the log for request {request.request_id}")

    def request_timeout(self) -> Refusal:
        """A request took too long."""
        return Refusal(504, f"request timed out after {self.limits.request_seconds:g} s", "request_seconds")

    def body_timeout(self) -> Refusal:
        """A body took too long."""
        return Refusal(408, f"request body not received within {self.limits.body_seconds:g} s", "body_seconds")

    def body_too_large(self, path: str, limit: int) -> Refusal:
        """The refusal of a body that is, or turns out to be, too large."""
        message = f"request body exceeds {limit:,} bytes"
        if limit == self.limits.max_body_bytes:
            return Refusal(413, message, "max_body_bytes")
        return Refusal(413, f"{message} (the most that {path[:200]} takes)")


def bind_socket(host: str, port: int) -> socket.socket:
    """A listening socket, or an error with the reason."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio sets TCP_NODELAY on every connection it accepts from this socket.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        raise GatewayStartError(
            f"cannot listen on {host}:{port}: {error.strerror}; use another port, or stop the other process"
        ) from None
    sock.setblocking(False)
    return sock


@contextmanager
def stop_on_signals(stop: asyncio.Event) -> Iterator[None]:
    """SIGTERM and SIGINT set `stop`; the second signal has its default effect."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)

    def stopped() -> None:
        stop.set()
        for known in signals:
            loop.remove_signal_handler(known)

    handled: list[signal.Signals] = []
    for known in signals:
        with suppress(NotImplementedError, RuntimeError, ValueError):  # not the main thread
            loop.add_signal_handler(known, stopped)
            handled.append(known)
    try:
        yield
    finally:
        for known in handled:
            loop.remove_signal_handler(known)


class ServerCertificate:
    """The certificate of this process. Raises `GatewayStartError` if the files cannot be used."""

    def __init__(self, certificate: str, key: str) -> None:
        self.context = _load(certificate, key)

    def reload(self, certificate: str, key: str) -> None:
        """Use other files, or new content of the same. Raises `GatewayStartError`, and keeps what is in use."""
        _load(certificate, key)  # into a context of its own first: a key that does not match would break the one in use
        self.context.load_cert_chain(certificate, key, password=_no_password)


def check_certificate(certificate: str, key: str) -> str:
    """What is wrong with a pair of files; empty if they can be used."""
    try:
        _load(certificate, key)
    except GatewayStartError as error:
        return str(error)
    return ""


def _load(certificate: str, key: str) -> ssl.SSLContext:
    for path in (certificate, key):
        try:
            with open(path, "rb") as file:
                file.read(1)
        except OSError as error:
            raise GatewayStartError(f"cannot read {path}: {error.strerror}") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", "") or ""
        if reason == "KEY_VALUES_MISMATCH":
            raise GatewayStartError(f"the key {key} does not belong to the certificate {certificate}") from None
        raise GatewayStartError(
            f"{certificate} and {key} are not a certificate and its key; both must be PEM files, the key without a password"
        ) from None
    return context


def _no_password() -> str:
    """Without it, OpenSSL would ask on the terminal."""
    return ""
