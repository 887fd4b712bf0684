"""How connections are opened: proxies, TLS with a private CA, IPv6, several addresses, the guard; on both event loops."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import time
from base64 import b64decode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from antiphon.errors import TransportError
from antiphon.http.client import dial as dial_module
from antiphon.http.client.address_guard import AddressGuard
from antiphon.http.client.client import HttpClient
from antiphon.http.client.request import HttpRequest, Timeouts
from http_ends.client.raw_host import CONTENT, LOOPS, WHOLE, RawHost, run_on, send, with_host

pytestmark = pytest.mark.parametrize("loop", LOOPS)
ACCOUNT = "me:pass word"
ESCAPED = "me:pass%20word"


class Certificates:
    """A private CA, and a certificate of this machine that it signed."""

    def __init__(self, folder: Path) -> None:
        self.ca, self.chain, self.key = folder / "ca.pem", folder / "chain.pem", folder / "key.pem"
        new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        names = folder / "names"
        names.write_text(
            "subjectAltName=IP:127.0.0.1,IP:::1,DNS:localhost\n"
            "basicConstraints=CA:FALSE\nauthorityKeyIdentifier=keyid\nkeyUsage=digitalSignature\n"
        )
        usage = ["-addext", "keyUsage=critical,keyCertSign"]
        request, ca_key = folder / "request.pem", folder / "ca_key.pem"
        issue = ["-CA", self.ca, "-CAkey", ca_key, "-CAcreateserial", "-extfile", names, "-days", "2"]
        for command in (
            [
                "req",
                "-x509",
                *new_key,
                "-days",
                "2",
                "-subj",
                "/CN=test CA",
                *usage,
                "-keyout",
                ca_key,
                "-out",
                self.ca,
            ],
            ["req", *new_key, "-subj", "/CN=host", "-keyout", self.key, "-out", request],
            ["x509", "-req", "-in", request, *issue, "-out", self.chain],
        ):
            subprocess.run(["openssl", *map(str, command)], check=True, capture_output=True)

    @property
    def server(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.chain, self.key)
        return context


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    try:
        return Certificates(tmp_path_factory.mktemp("tls"))
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("openssl is not available")


class HttpProxy:
    """A proxy on this machine: CONNECT, and whole URLs. `status` is what it answers to CONNECT; `account` is required."""

    def __init__(self, *, status: int = 200, account: str = "", answer: bytes = b"") -> None:
        self.requests: list[bytes] = []
        self._status, self._account, self._answer = status, account, answer

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.requests.append(head)
                authorization = head.lower().partition(b"proxy-authorization: basic ")
                given = head[len(authorization[0]) + len(authorization[1]) :].split(b"\r\n")[0]
                if self._account and b64decode(given).decode() != self._account:
                    writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")
                elif self._answer:
                    writer.write(self._answer)
                elif head.startswith(b"CONNECT "):
                    writer.write(b"HTTP/1.1 %d Done\r\n\r\n" % self._status)
                    if self._status == 200:
                        await self._tunnel(head.split()[1].decode(), reader, writer)
                        return
                else:
                    await self._forward(head, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _tunnel(self, place: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = place.rpartition(":")
        there, to_there = await asyncio.open_connection(host.strip("[]"), int(port))
        await asyncio.gather(_copy(reader, to_there), _copy(there, writer))

    async def _forward(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        url = head.split()[1].decode()
        place, _, path = url.removeprefix("http://").partition("/")
        host, _, port = place.rpartition(":")
        there, to_there = await asyncio.open_connection(host, int(port))
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)
        to_there.write(head.replace(url.encode(), b"/" + path.encode(), 1) + await reader.readexactly(length))
        writer.write(await there.readexactly(len(WHOLE)))
        to_there.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
    except ConnectionError:
        pass
    writer.close()


class Running:
    """A host and a proxy that run while a test uses them."""

    def __init__(
        self,
        proxy: HttpProxy,
        *,
        tls: ssl.SSLContext | None = None,
        proxy_tls: ssl.SSLContext | None = None,
        address: str = "127.0.0.1",
    ) -> None:
        self.host = RawHost([WHOLE], [WHOLE], [WHOLE])
        self.proxy = proxy
        self._tls, self._proxy_tls, self._address = tls, proxy_tls, address

    async def __aenter__(self) -> Running:
        self._servers = [
            await asyncio.start_server(self.host.serve, self._address, 0, ssl=self._tls),
            await asyncio.start_server(self.proxy.serve, "127.0.0.1", 0, ssl=self._proxy_tls),
        ]
        ports = [server.sockets[0].getsockname()[1] for server in self._servers]
        place = f"[{self._address}]" if ":" in self._address else self._address
        self.url = f"{'https' if self._tls else 'http'}://{place}:{ports[0]}/v1"
        self.proxy_place = f"127.0.0.1:{ports[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()
        await asyncio.sleep(0.01)  # the servers see that their connections have ended


def test_http_goes_through_a_proxy_with_the_whole_url(loop: str) -> None:
    async def work() -> None:
        async with Running(HttpProxy(account=ACCOUNT)) as running:
            client = HttpClient({"HTTP_PROXY": f"http://{ESCAPED}@{running.proxy_place}"})
            assert await send(client, running.url) == (200, CONTENT)
            assert await send(client, running.url) == (200, CONTENT)
            assert running.proxy.requests[0].startswith(f"POST {running.url} HTTP/1.1\r\n".encode())
            assert repr(client) == "<HttpClient with 1 connections>"
            await client.aclose()

    run_on(loop, work())


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("is_proxy_secure", [False, True], ids=["http proxy", "https proxy"])
def test_https_goes_through_a_tunnel(
    loop: str, certificates: Certificates, address: str, is_proxy_secure: bool
) -> None:
    async def work() -> None:
        proxy_tls = certificates.server if is_proxy_secure else None
        proxy = HttpProxy(account=ACCOUNT)
        async with Running(proxy, tls=certificates.server, proxy_tls=proxy_tls, address=address) as running:
            url = f"{'https' if is_proxy_secure else 'http'}://{ESCAPED}@{running.proxy_place}"
            client = HttpClient({"HTTPS_PROXY": url, "SSL_CERT_FILE": str(certificates.ca)})
            assert await send(client, running.url) == (200, CONTENT)
            assert await send(client, running.url) == (200, CONTENT)
            assert len(proxy.requests) == running.host.connections == 1  # the tunnel was reused
            place = running.url.removeprefix("https://").removesuffix("/v1")
            assert proxy.requests[0].startswith(f"CONNECT {place} HTTP/1.1\r\nhost: {place}\r\n".encode())
            assert b"proxy-authorization" not in running.host.requests[0].lower()
            await client.aclose()

    run_on(loop, work())


@pytest.mark.parametrize(
    ("proxy", "reason"),
    [
        ({"status": 403}, "status 403"),
        ({"account": "another:account"}, "status 407"),
        ({"answer": b"SSH-2.0-OpenSSH\r\n\r\n"}, "not HTTP"),
        ({"answer": b"HTTP/1.1 200 OK\r\n\r\nmore"}, "not HTTP"),
        ({"answer": b"HTTP/2.0 200 OK\r\n\r\n"}, "not HTTP"),
    ],
)
def test_a_proxy_that_refuses_a_tunnel_is_named(
    loop: str, certificates: Certificates, proxy: Mapping[str, Any], reason: str
) -> None:
    async def work() -> None:
        async with Running(HttpProxy(**proxy), tls=certificates.server) as running:
            client = HttpClient({"ALL_PROXY": f"{ESCAPED}@{running.proxy_place}"})
            with pytest.raises(TransportError) as caught:
                await send(client, running.url)
            assert caught.value.code == "proxy_failed"
            assert reason in str(caught.value)
            assert "pass" not in str(caught.value)
            assert running.host.connections == 0
            await client.aclose()

    run_on(loop, work())


@pytest.mark.parametrize("exempt", ["127.0.0.1", "other.test, 127.0.0.1", "*"])
def test_no_proxy_names_hosts_that_are_connected_directly(loop: str, exempt: str) -> None:
    async def work() -> None:
        async with Running(HttpProxy()) as running:
            client = HttpClient({"HTTP_PROXY": running.proxy_place, "NO_PROXY": exempt})
            assert await send(client, running.url) == (200, CONTENT)
            assert running.proxy.requests == []
            await client.aclose()

    run_on(loop, work())


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_tls_with_a_private_ca(loop: str, certificates: Certificates, address: str) -> None:
    async def trusted(client: HttpClient, url: str, host: RawHost) -> None:
        assert await send(client, url) == (200, CONTENT)
        assert await send(client, url) == (200, CONTENT)
        assert host.connections == 1

    async def untrusted(client: HttpClient, url: str, host: RawHost) -> None:
        with pytest.raises(TransportError, match="set SSL_CERT_FILE") as caught:
            await send(client, url)
        assert caught.value.code == "tls_failed"
        assert host.requests == []

    async def another_name(client: HttpClient, url: str, _: RawHost) -> None:
        port = url.rpartition(":")[2].partition("/")[0]
        with pytest.raises(TransportError) as caught:
            await send(client, f"https://127.0.0.2:{port}/")
        assert caught.value.code in ("tls_failed", "connection_failed")

    async def work() -> None:
        environ = {"SSL_CERT_FILE": str(certificates.ca)}
        for check, client in (
            (trusted, HttpClient(environ)),
            (untrusted, HttpClient({})),
            (another_name, HttpClient(environ)),
        ):
            await with_host(RawHost([WHOLE], [WHOLE]), check, client=client, address=address, tls=certificates.server)

    run_on(loop, work())


def test_a_host_that_does_not_speak_tls_is_named(loop: str) -> None:
    async def work(client: HttpClient, url: str, _: RawHost) -> None:
        with pytest.raises(
            TransportError, match=r"TLS handshake with 127\.0\.0\.1:\d+ failed \(.+\); check the base URL"
        ):
            await send(client, url.replace("http:", "https:"))

    class PlainHost(RawHost):
        async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            await reader.read(1000)
            writer.close()

    async def body() -> None:
        await with_host(PlainHost(), work)

    run_on(loop, body())


def test_ipv6(loop: str) -> None:
    async def work(client: HttpClient, url: str, host: RawHost) -> None:
        assert url.startswith("http://[::1]:")
        assert await send(client, url) == (200, CONTENT)
        assert host.requests[0].split(b"\r\n")[1].startswith(b"host: [::1]:")

    async def body() -> None:
        await with_host(RawHost([WHOLE]), work, address="::1")

    run_on(loop, body())


def test_a_unix_socket(loop: str, tmp_path: Path) -> None:
    async def work() -> None:
        host, place = RawHost([WHOLE]), str(tmp_path / "s")
        client = HttpClient({}, unix_path=place)
        with pytest.raises(TransportError) as caught:
            await send(client, "http://chat/")
        assert caught.value.code == "connection_failed"
        server = await asyncio.start_unix_server(host.serve, place)
        assert await send(client, "http://chat/") == (200, CONTENT)
        await client.aclose()
        server.close()

    run_on(loop, work())


def found(text: str, port: int) -> Any:
    """An address as a look-up finds it."""
    return (socket.AF_INET6 if ":" in text else socket.AF_INET, 1, 6, "", (text, port))


def resolving_to(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """Let every name resolve to these addresses."""

    async def lookup(_: str, port: int, __: int) -> list[Any]:
        return [found(text, port) for text in addresses]

    monkeypatch.setattr(dial_module, "_lookup", lookup)


def test_the_next_address_is_tried_at_once_if_one_fails(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    resolving_to(monkeypatch, "127.0.0.3", "127.0.0.2", "127.0.0.1")

    async def work(client: HttpClient, url: str, host: RawHost) -> None:
        assert await send(client, url.replace("127.0.0.1", "named.test")) == (200, CONTENT)
        assert host.connections == 1
        assert b"\r\nhost: named.test:" in host.requests[0]

    async def body() -> None:
        await with_host(RawHost([WHOLE]), work)

    run_on(loop, body())


def test_the_next_address_is_tried_while_one_does_not_answer(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    resolving_to(monkeypatch, "127.0.0.9", "127.0.0.1")
    monkeypatch.setattr(dial_module, "NEXT_ADDRESS_SECONDS", 0.01)
    left: list[bool] = []
    connect = dial_module._try_address

    async def never(address: Any, guard: Any) -> Any:
        if address.place[0] != "127.0.0.9":
            return await connect(address, guard)
        try:
            await asyncio.Event().wait()
        finally:
            left.append(True)

    monkeypatch.setattr(dial_module, "_try_address", never)

    async def work(client: HttpClient, url: str, _: RawHost) -> None:
        assert await send(client, url.replace("127.0.0.1", "named.test")) == (200, CONTENT)
        assert left == [True]

    async def body() -> None:
        await with_host(RawHost([WHOLE]), work)

    run_on(loop, body())


def test_all_addresses_fail(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    resolving_to(monkeypatch, "127.0.0.1", "::1")

    async def work() -> None:
        with pytest.raises(TransportError, match=r"cannot connect to named\.test:1") as caught:
            await send(HttpClient({}), "http://named.test:1/")
        assert caught.value.code == "connection_failed"

    run_on(loop, work())


@pytest.mark.parametrize(
    ("timeouts", "code"),
    [(Timeouts(connect=0.05), "connect_timeout"), (Timeouts(connect=9, total=0.05), "total_timeout")],
)
def test_connecting_takes_a_limited_time(
    loop: str, monkeypatch: pytest.MonkeyPatch, timeouts: Timeouts, code: str
) -> None:
    async def never(*_: object) -> Sequence[Any]:
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(dial_module, "_lookup", never)

    async def work() -> None:
        began = time.monotonic()
        with pytest.raises(TransportError) as caught:
            await send(HttpClient({}), "http://named.test/", timeouts)
        assert caught.value.code == code
        assert time.monotonic() - began < 9

    run_on(loop, work())


def test_leaving_while_connecting_leaves_nothing_open(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = []

    async def slow(host: str, *_: object) -> Sequence[Any]:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(host)
        return []

    monkeypatch.setattr(dial_module, "_lookup", slow)

    async def work() -> None:
        client = HttpClient({})
        task = asyncio.ensure_future(client.send(HttpRequest(url="http://named.test/")))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == ["named.test"]
        assert repr(client) == "<HttpClient with 0 connections>"

    run_on(loop, work())


def test_a_guard_is_asked_for_the_address_that_is_connected_to(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that resolves to an allowed address for the check has no second lookup in which it could resolve to another."""
    lookups: list[str] = []

    async def lookup(host: str, port: int, _: int) -> list[Any]:
        lookups.append(host)
        return [found("127.0.0.1" if len(lookups) == 1 else "127.0.0.2", port)]

    monkeypatch.setattr(dial_module, "_lookup", lookup)
    guard = AddressGuard(allow=lambda address: str(address) == "127.0.0.1", ports=range(65536))

    async def work(client: HttpClient, url: str, host: RawHost) -> None:
        named = url.replace("127.0.0.1", "named.test")
        assert await send(client, named) == (200, CONTENT)
        await client.aclose()
        with pytest.raises(TransportError) as caught:
            await send(client, named)
        assert caught.value.code == "address_blocked"
        assert lookups == ["named.test", "named.test"]
        assert host.connections == 1

    async def body() -> None:
        environ = {"HTTP_PROXY": "http://127.0.0.1:1"}  # would connect unguarded, so it is not used
        await with_host(RawHost([WHOLE], [WHOLE]), work, client=HttpClient(environ, guard=guard))

    run_on(loop, body())
