"""`dial`: open a connection: resolve, check the address, connect, tunnel through a proxy, TLS.

The socket is connected to the address that was checked, so a name cannot resolve to another address in between. With several
addresses the next one is tried after 250 ms, or at once if one fails; the first that connects is used.

It returns a failure as a value, and runs in a task of its own: an exception that a future of asyncio keeps would keep the frames
in its traceback, and with them the request that wanted the connection.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain, zip_longest
from typing import Any, NamedTuple

from msgspec import Struct

from antiphon.http.client.address_guard import AddressBlocked, AddressGuard
from antiphon.http.client.connection import ClientConnection
from antiphon.http.client.environment import Proxy
from antiphon.http.client.request import Origin
from antiphon.http.client.response_parser import ResponseParser
from antiphon.http.decompress import Malformed
from antiphon.http.messages import MAX_HEAD_BYTES

NEXT_ADDRESS_SECONDS = 0.25


class Destination(NamedTuple):
    """Where a connection leads, and how: the key of idle connections."""

    origin: Origin
    tunnel: Proxy | None = None
    """A proxy that connects to the origin for us (CONNECT)."""
    is_proxy: bool = False
    """Whether the origin is itself a proxy, which gets requests with whole URLs."""
    unix_path: str = ""

    @property
    def uses_tls(self) -> bool:
        """Whether a connection needs TLS settings."""
        return not self.unix_path and self.origin.scheme == "https"


class DialFailure(Struct, frozen=True):
    """Why there is no connection: a code of `TransportError` and a detail."""

    code: str
    detail: str = ""


async def dial(
    destination: Destination,
    new_connection: Callable[[], ClientConnection],
    *,
    seconds: float | None,
    tls: ssl.SSLContext | None,
    guard: AddressGuard | None = None,
) -> ClientConnection | DialFailure:
    """A new connection, or why there is none. `tls` are the settings of a destination that `uses_tls`."""
    uses_proxy = destination.is_proxy or destination.tunnel is not None
    try:
        async with asyncio.timeout(seconds):
            return await _open(destination, new_connection, tls, guard)
    except TimeoutError:
        return DialFailure("connect_timeout")
    except AddressBlocked:
        return DialFailure("address_blocked")
    except ssl.SSLCertVerificationError as error:
        return DialFailure("tls_failed", error.verify_message)
    except ssl.SSLError as error:
        return DialFailure("tls_handshake_failed", (error.reason or "").replace("_", " ").lower())
    except UnicodeError:  # a name that is too long, or has an empty label
        return DialFailure("invalid_url")
    except OSError as error:
        if uses_proxy:
            return DialFailure("proxy_failed", error.strerror or "")
        if isinstance(error, socket.gaierror):
            return DialFailure("dns_failed")
        return DialFailure("connection_failed", error.strerror or "refused")


async def _open(
    destination: Destination,
    new_connection: Callable[[], ClientConnection],
    tls: ssl.SSLContext | None,
    guard: AddressGuard | None,
) -> ClientConnection:
    loop, origin = asyncio.get_running_loop(), destination.origin
    if destination.unix_path:
        _, connection = await loop.create_unix_connection(new_connection, destination.unix_path)
        return connection
    if destination.tunnel is not None:
        return await _open_tunnel(origin, destination.tunnel, new_connection(), tls)
    _, connection = await _connect(origin, new_connection, tls, guard)
    assert isinstance(connection, ClientConnection)
    return connection


async def _connect(
    origin: Origin,
    new_protocol: Callable[[], Any],
    tls: ssl.SSLContext | None,
    guard: AddressGuard | None = None,
) -> tuple[Any, Any]:
    sock = await _connected_socket(await _resolve(origin, guard), guard)
    is_secure = origin.scheme == "https"
    try:
        return await asyncio.get_running_loop().create_connection(
            new_protocol,
            sock=sock,
            ssl=tls if is_secure else None,
            server_hostname=origin.host if is_secure else None,
        )
    except BaseException:
        sock.close()
        raise


class _Address(NamedTuple):
    family: int
    place: tuple[Any, ...]


async def _resolve(origin: Origin, guard: AddressGuard | None) -> list[_Address]:
    host, port = origin.host, origin.port
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except (OSError, ValueError):
            continue
        return [_Address(family, (host, port))]  # needs no lookup
    found = await _lookup(host, port, 0 if guard is None else socket.AI_ADDRCONFIG)
    addresses = list(dict.fromkeys(_Address(family, place) for family, *_, place in found))
    if guard is not None:
        for address in addresses:
            guard.check(str(address.place[0]), port)
    return _alternating(addresses)


async def _lookup(host: str, port: int, flags: int) -> Sequence[Any]:
    return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)


def _alternating(addresses: Sequence[_Address]) -> list[_Address]:
    """Addresses of both families in turn, so that a family that does not work delays the other only once."""
    first = [address for address in addresses if address.family == addresses[0].family]
    others = [address for address in addresses if address.family != addresses[0].family]
    return [address for address in chain.from_iterable(zip_longest(first, others)) if address is not None]


async def _connected_socket(addresses: Sequence[_Address], guard: AddressGuard | None) -> socket.socket:
    """A socket connected to one of the addresses. Raises `OSError`."""
    if not addresses:
        raise socket.gaierror(socket.EAI_NONAME, "no address")
    attempts: list[asyncio.Task[socket.socket | OSError]] = []
    pending: set[asyncio.Task[socket.socket | OSError]] = set()
    winner: socket.socket | None = None
    failure: OSError | None = None
    waiting = list(addresses)
    try:
        while winner is None and (waiting or pending):
            if waiting:
                attempts.append(asyncio.ensure_future(_try_address(waiting.pop(0), guard)))
                pending.add(attempts[-1])
            delay = NEXT_ADDRESS_SECONDS if waiting else None
            done, pending = await asyncio.wait(pending, timeout=delay, return_when=asyncio.FIRST_COMPLETED)
            for attempt in done:
                outcome = attempt.result()
                if isinstance(outcome, OSError):
                    failure = outcome
                elif winner is None:
                    winner = outcome
    finally:
        for attempt in attempts:
            if not attempt.done():
                attempt.cancel()  # it closes its socket
            elif (
                not attempt.cancelled() and isinstance(other := attempt.result(), socket.socket) and other is not winner
            ):
                other.close()
    if winner is None:
        raise failure or OSError("refused")
    return winner


async def _try_address(address: _Address, guard: AddressGuard | None) -> socket.socket | OSError:
    """A connected socket, or why there is none, without a traceback."""
    if guard is not None:
        try:
            guard.check(str(address.place[0]), int(address.place[1]))
        except AddressBlocked:
            return AddressBlocked()
    try:
        sock = socket.socket(address.family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except OSError as error:  # the family is not available
        return error.with_traceback(None)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, address.place)
    except OSError as error:
        sock.close()
        return error.with_traceback(None)
    except BaseException:
        sock.close()
        raise
    return sock


async def _open_tunnel(
    origin: Origin, proxy: Proxy, connection: ClientConnection, tls: ssl.SSLContext | None
) -> ClientConnection:
    """A connection through a proxy that passes bytes on (CONNECT), with TLS to the origin inside."""
    assert tls is not None, "what is in a tunnel is encrypted"
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, _ = await _connect(proxy.origin, lambda: asyncio.StreamReaderProtocol(reader), tls)
    try:
        place = f"[{origin.host}]:{origin.port}" if ":" in origin.host else f"{origin.host}:{origin.port}"
        head = f"CONNECT {place} HTTP/1.1\r\nhost: {place}\r\n"
        if proxy.authorization:
            head += f"proxy-authorization: {proxy.authorization}\r\n"
        transport.write(f"{head}\r\n".encode())
        await _check_tunnel(reader)
        secure = await loop.start_tls(transport, connection, tls, server_hostname=origin.host)
    except BaseException:
        transport.abort()
        raise
    assert secure is not None
    connection.connection_made(secure)
    return connection


async def _check_tunnel(reader: asyncio.StreamReader) -> None:
    """Wait for a proxy's answer to CONNECT. Raises `OSError` if it is not the tunnel."""
    parser, status = ResponseParser(is_for_head=True), 0  # such an answer has no body
    with suppress(Malformed, ConnectionError):
        while not parser.has_head and (data := await reader.read(MAX_HEAD_BYTES)):
            parser.feed(data)
        status = 0 if parser.is_overfull else parser.status
    parser.close()
    if not 200 <= status < 300:
        raise OSError(0, f"it responded with status {status}" if status else "its response is not HTTP")
