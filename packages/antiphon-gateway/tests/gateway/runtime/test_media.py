"""Fetched media: which addresses are dialled, what is accepted, and what becomes of a part that is not available."""

from __future__ import annotations

import asyncio
import socket
from base64 import b64decode, b64encode
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import MediaFetchError
from antiphon.http.body import Governor
from antiphon.http.client.address_guard import AddressGuard, IpAddress, is_public
from antiphon.media_types import sniff_bytes
from antiphon.parts import Audio, Document, Image, Native, Part, Text, ToolCallResult
from antiphon.wire.loss import Loss
from antiphon.wire.request import Message, ModelRequest
from antiphon_gateway.errors import RequestRefused
from antiphon_gateway.runtime.media import FetchedMedia, MediaFetcher, MediaKinds, MediaLimits
from providers import scripted_server
from providers.scripted_server import Received, Reply
from support.cases import each_case

PNG = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
PDF = b"%PDF-1.7\n..."
WAV = b"RIFF\x24\0\0\0WAVEfmt "
PICTURE = Reply(body=PNG, content_type="image/png")
ANY_PORT = range(1, 65536)


class ScriptedServer(scripted_server.ScriptedServer):
    """One that waits for its last connections: here each request has its own, which ends just before the server does."""

    async def _serve(self) -> None:
        await super()._serve()
        await asyncio.sleep(0.02)


def is_loopback(address: IpAddress) -> bool:
    return address.is_loopback


def fetcher(limits: MediaLimits | None = None, **fields: Any) -> MediaFetcher:
    return MediaFetcher(limits, **{"allow": is_loopback, "ports": ANY_PORT, **fields})


class Names:
    """Look-ups with scripted answers; the last one repeats."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: Sequence[str]) -> None:
        self.asked: list[str] = []
        self._answers = list(answers)
        monkeypatch.setattr("antiphon.http.client.dial._lookup", self._look_up)

    async def addresses(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    async def _look_up(self, host: str, port: int, _: int) -> list[Any]:
        found = await self.addresses(host)
        return [(socket.AF_INET6 if ":" in text else socket.AF_INET, 1, 6, "", (text, port)) for text in found]


def fetch(fetcher: MediaFetcher, url: str) -> FetchedMedia:
    return asyncio.run(fetcher.fetch(url))


def refused(fetcher: MediaFetcher, url: str) -> str:
    with pytest.raises(MediaFetchError) as reason:
        fetch(fetcher, url)
    return str(reason.value)


PRIVATE = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.192",
    "192.0.2.1",
    "192.168.1.1",
    "198.18.0.1",
    "224.0.0.1",
    "224.0.1.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:8.8.8.8",
    "64:ff9b::127.0.0.1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fec0::1",
    "ff02::1",
]


@each_case("address", PRIVATE)
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize(
    "address",
    ["1.1.1.1", "8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2a00:1450::1", "64:ff9b::808:808"],
)
def test_addresses_that_are_public(address: str) -> None:
    assert is_public(ip_address(address))


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
def test_addresses_that_are_not_global_are_not_public(address: IPv4Address | IPv6Address) -> None:
    if not address.is_global or address.is_multicast:
        embeds = isinstance(address, IPv6Address) and str(address).startswith("64:ff9b::")
        assert embeds or not is_public(address)


LOOPBACKS = [
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0x7f.1",
    "017700000001",
    "0",
    "0.0.0.0",
    "127.000.000.001",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[0:0:0:0:0:ffff:127.0.0.1]",
    "[64:ff9b::127.0.0.1]",
    "localhost",
    "localhost.",
    "LOCALHOST",
    "１２７.０.０.１",
    "127。0。0。1",
]


@pytest.mark.parametrize("host", LOOPBACKS)
def test_no_spelling_of_this_machine_is_dialled(host: str) -> None:
    with ScriptedServer(PICTURE) as server:
        refused(MediaFetcher(ports=ANY_PORT), f"http://{host}:{server.port}/a.png")
        assert server.connections == 0


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://example.com/a.png", "only http and https"),
        ("file:///etc/passwd", "only http and https"),
        ("gs://bucket/a.png", "only http and https"),
        ("//example.com/a.png", "only http and https"),
        ("a.png", "only http and https"),
        ("", "only http and https"),
        ("http://", "the URL has no host"),
        ("http://:80/", "the URL has no host"),
        ("http://user:word@example.com/a.png", "a user name or password"),
        ("http://user@example.com/a.png", "a user name or password"),
        ("http://@example.com/a.png", "a user name or password"),
        ("http://example.com:22/a.png", "port 22"),
        ("http://example.com:8080/a.png", "port 8080"),
        ("http://example.com:99999/a.png", "invalid URL"),
        ("http://[::1/a.png", "invalid URL"),
    ],
)
def test_urls_that_are_refused_before_anything_is_looked_up(
    url: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = Names(monkeypatch, ["8.8.8.8"])
    assert why in refused(MediaFetcher(), url)
    assert names.asked == []


@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["8.8.8.8", "127.0.0.1"], ["::ffff:127.0.0.1"], ["no address"]])
def test_a_host_with_a_private_address_is_refused(addresses: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer(PICTURE) as server:
        names = Names(monkeypatch, addresses)
        reason = refused(MediaFetcher(ports=ANY_PORT), f"http://rebound.test:{server.port}/")
        assert reason == "the address is not public"
        assert server.connections == 0
        assert names.asked == ["rebound.test"]


def test_a_name_with_one_private_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    Names(monkeypatch, ["127.0.0.1", "10.0.0.1"])
    with ScriptedServer(PICTURE) as server:
        assert refused(fetcher(), f"http://rebound.test:{server.port}/") == "the address is not public"
        assert server.connections == 0


def test_a_name_is_looked_up_once_and_what_was_checked_is_dialled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that leads here for the check and elsewhere for the connection finds only one look-up to answer."""
    with ScriptedServer(PICTURE) as server:
        names = Names(monkeypatch, ["127.0.0.1"], ["10.0.0.1"])
        only_here = fetcher(allow=lambda address: str(address) == "127.0.0.1")
        assert fetch(only_here, f"http://rebound.test:{server.port}/a.png").data == PNG
        assert names.asked == ["rebound.test"]
        assert server.received[0].headers["host"] == f"rebound.test:{server.port}"


def test_the_connected_address_is_checked() -> None:
    """Whatever was resolved and by whom: no socket is made for an address or a port that is not allowed."""
    guard = AddressGuard()
    for address in (("127.0.0.1", 80), ("::1", 80), ("fe80::1%eth0", 80), ("8.8.8.8", 22)):
        with pytest.raises(OSError):
            guard.check(*address)
    guard.check("8.8.8.8", 443)


def redirect(location: str, status: int = 302) -> Reply:
    return Reply(status=status, headers={"location": location}, content_type="text/plain")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_followed_without_our_headers(status: int) -> None:
    cookie = Reply(status=status, headers={"location": "/b.png", "set-cookie": "a=b"}, content_type="text/plain")
    with ScriptedServer(cookie, PICTURE) as server:
        assert fetch(fetcher(), f"{server.url}/a.png") == FetchedMedia("image/png", PNG)
        assert [received.target for received in server.received] == ["/a.png", "/b.png"]
        for received in server.received:
            assert received.method == "GET"
            assert not {"cookie", "authorization", "referer", "proxy-authorization"} & received.headers.keys()
            assert received.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("http://inside.test/", "not public"),
        ("http://10.0.0.1/", "not public"),
        ("http://[::ffff:10.0.0.1]/", "not public"),
        ("//169.254.169.254/latest/meta-data/", "not public"),
        ("file:///etc/passwd", "only http and https"),
        ("http://user:word@127.0.0.1/", "a user name"),
        ("http://[", "invalid URL"),
    ],
)
def test_a_redirect_is_guarded_like_the_first_address(location: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Names(monkeypatch, ["10.0.0.1"])
    with ScriptedServer(redirect(location)) as server:
        reason = refused(fetcher(), f"{server.url}/a.png")
        assert why in reason
        assert server.connections == 1


def test_redirects_end() -> None:
    with ScriptedServer(redirect("/again")) as server:
        assert "more than 3 redirects" in refused(fetcher(), server.url)
        assert len(server.received) == 4


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (Reply(body=PNG * 200, content_type="image/png"), "larger than 5000 bytes"),
        (Reply(body=PNG * 200, content_type="image/png", has_length=True), "larger than 5000 bytes"),
        (Reply(body=PNG, content_type="image/png", headers={"content-encoding": "gzip"}), "compressed"),
        (Reply(body=b"MZ\x90\0", content_type="image/png"), "not a picture, sound, PDF or text"),
        (Reply(body=b"", content_type="image/png"), "not a picture, sound, PDF or text"),
        (Reply(status=404, body=PNG, content_type="image/png"), "status 404"),
        (Reply(status=206, body=PNG, content_type="image/png"), "status 206"),
        (Reply(status=302, body=PNG, content_type="image/png"), "status 302"),
        (Reply(status=0), "cannot be reached"),
        (Reply(body=PNG, content_type="image/png", cut_after=20), "cannot be reached"),
        (Reply(hangs=True, status=0), "timed out"),
        (Reply(body=PNG, content_type="image/png", cut_after=20, hangs=True), "timed out"),
    ],
)
def test_refused_media_name_the_reason(reply: Reply, why: str) -> None:
    limits = MediaLimits(part_bytes=5000, seconds=0.5 if reply.hangs else 20)
    with ScriptedServer(reply) as server:
        assert why in refused(fetcher(limits), server.url)


SNIFFED: list[tuple[bytes, str, str | None]] = [
    (PNG, "text/html", "image/png"),
    (PNG, "", "image/png"),
    (b"\xff\xd8\xff\xe0", "image/png", "image/jpeg"),
    (b"GIF89a", "", "image/gif"),
    (b"RIFF\0\0\0\0WEBPVP8 ", "", "image/webp"),
    (b"RIFF\0\0\0\0AVI LIST", "image/png", None),
    (WAV, "audio/x-wav", "audio/wav"),
    (b"BM\x06\0\0\0", "", "image/bmp"),
    (b"BM is a text", "text/plain", "text/plain"),
    (b"\0\0\0\x18ftypheic", "", "image/heic"),
    (b"\0\0\0\x18ftypavif", "", "image/avif"),
    (b"\0\0\0\x18ftypM4A ", "", "audio/mp4"),
    (b"\0\0\0\x18ftypisom", "audio/mp4", "audio/mp4"),
    (b"\0\0\0\x18ftypisom", "video/mp4", None),
    (b"\x1a\x45\xdf\xa3", "audio/webm", "audio/webm"),
    (b"\x1a\x45\xdf\xa3", "video/webm", None),
    (b"ID3\x04\0", "", "audio/mpeg"),
    (b"ID3 is a tag", "text/plain", "text/plain"),
    (b"\xff\xfb\x90\0", "", "audio/mpeg"),
    (b"\xff\xf1\x50\x80", "", "audio/aac"),
    (b"OggS\0", "", "audio/ogg"),
    (b"fLaC\0", "", "audio/flac"),
    (b"FORM\0\0\0\0AIFF", "", "audio/aiff"),
    (PDF, "application/octet-stream", "application/pdf"),
    ("Grüße".encode(), "text/markdown; charset=utf-8", "text/markdown"),
    (b"{}", "application/json", "text/plain"),
    (b"<svg/>", "image/svg+xml", "text/plain"),
    (b"<html>", "text/html", "text/html"),
    (b"<html>", "image/png", None),
    (b"words", "application/octet-stream", None),
    (b"words", "", "text/plain"),
    (b"wo\0rds", "text/plain", None),
    (b"\xff\xfew\0", "text/plain", None),
    (b"", "text/plain", None),
]


@each_case(("data", "declared", "kind"), SNIFFED)
def test_media_types_come_from_the_bytes(data: bytes, declared: str, kind: str | None) -> None:
    assert sniff_bytes(data, declared) == kind


@given(st.binary(max_size=40), st.sampled_from(["", "image/png", "text/plain", "audio/mp4", "x"]))
def test_any_bytes_have_a_supported_media_type_or_none(data: bytes, declared: str) -> None:
    kind = sniff_bytes(data, declared)
    assert kind is None or kind.startswith(("image/", "audio/", "text/")) or kind == "application/pdf"


EVERY_KIND: MediaKinds = (Image, Audio, Document)


def by_path(received: Received) -> Reply:
    bodies = {
        "/a.png": PICTURE,
        "/a.wav": Reply(body=WAV, content_type="audio/wav"),
        "/a.pdf": Reply(body=PDF, content_type="application/pdf"),
        "/a.txt": Reply(body="Grüße".encode(), content_type="text/plain"),
        "/page": Reply(body=b"<html>Log in</html>", content_type="text/html"),
    }
    return bodies.get(received.target.partition("?")[0], Reply(status=404))


def base64(data: bytes) -> str:
    return b64encode(data).decode()


def request_of(*parts: Part) -> ModelRequest:
    return ModelRequest(messages=(Message("system", (Text("s"),)), Message("user", parts)))


def inlined(
    request: ModelRequest, fetcher: MediaFetcher, kinds: MediaKinds = EVERY_KIND
) -> tuple[ModelRequest, list[Loss]]:
    return asyncio.run(fetcher.inline_media(request, kinds))


def test_parts_become_what_they_point_to() -> None:
    extras = {"anthropic": {"cache_control": {"type": "ephemeral"}}}
    with ScriptedServer(by_path) as server:
        cases: list[tuple[Part, Part]] = [
            (Image(url=f"{server.url}/a.png", native=extras), Image("image/png", base64(PNG), native=extras)),
            (Image("image/jpeg", url=f"{server.url}/a.png"), Image("image/png", base64(PNG))),
            (Audio(url=f"{server.url}/a.wav"), Audio("audio/wav", base64(WAV))),
            (Document(url=f"{server.url}/a.pdf", name="n"), Document("application/pdf", base64(PDF), name="n")),
            (Document(url=f"{server.url}/a.txt"), Document("text/plain", text="Grüße")),
            (Document(url=f"{server.url}/a.png", native=extras), Image("image/png", base64(PNG), native=extras)),
            (Document(url=f"{server.url}/a.wav"), Audio("audio/wav", base64(WAV))),
            (Image(url="data:image/png;base64,AAAA"), Image(url="data:image/png;base64,AAAA")),
            (Image(file_id="file_1"), Image(file_id="file_1")),
            (Native("x", {}), Native("x", {})),
            (
                ToolCallResult("shot", "call_1", content=(Text("t"), Image(url=f"{server.url}/a.png"))),
                ToolCallResult("shot", "call_1", content=(Text("t"), Image("image/png", base64(PNG)))),
            ),
        ]
        request = request_of(*(before for before, _ in cases))
        found, losses = inlined(request, fetcher())
        assert losses == []
        assert found == request_of(*(after for _, after in cases))
        assert found.messages[0] is request.messages[0]
        assert sorted(received.target for received in server.received) == ["/a.pdf", "/a.png", "/a.txt", "/a.wav"]


def test_without_media_to_fetch_the_request_is_the_same_object() -> None:
    request = request_of(Image(url="http://example.com/a.png"), Text("t"))
    assert inlined(request, fetcher(), (Audio,)) == (request, [])
    assert inlined(request, fetcher(), ())[0] is request


def test_failed_fetches_leave_a_note_and_a_loss() -> None:
    with ScriptedServer(by_path) as server:
        request = request_of(
            Image(url=f"{server.url}/page"),
            Image(url=f"{server.url}/a.png"),
            ToolCallResult("t", "c", content=(Document(url=f"http://u:secret@{server.url[7:]}/x?token=secret"),)),
        )
        found, losses = inlined(request, fetcher())
    first, second, third = found.messages[1].parts
    assert first == Text(f"[image {server.url}/page could not be fetched: it is text/html]")
    assert second == Image("image/png", base64(PNG))
    assert isinstance(third, ToolCallResult)
    assert losses == [
        Loss("messages[1].parts[0]", "image", f"{server.url}/page was not fetched: it is text/html"),
        Loss(
            "messages[1].parts[2].content[0]",
            "document",
            f"{server.url}/x was not fetched: URLs with a user name or password are not fetched",
        ),
    ]
    assert "secret" not in str(found) + str(losses)


def test_a_private_address_gives_the_usual_error(monkeypatch: pytest.MonkeyPatch) -> None:
    Names(monkeypatch, ["10.1.2.3"])
    _, losses = inlined(request_of(Image(url="http://inside.test/a.png")), MediaFetcher())
    assert [loss.why for loss in losses] == ["http://inside.test/a.png was not fetched: the address is not public"]
    assert "10.1.2.3" not in str(losses)


def test_the_parts_of_a_request_share_an_allowance() -> None:
    with ScriptedServer(PICTURE) as server:
        request = request_of(*(Image(url=f"{server.url}/{number}.png") for number in range(5)))
        found, losses = inlined(request, fetcher(MediaLimits(request_bytes=3 * len(PNG), at_once=1)))
        assert len(losses) == 2
        assert all("exceed the limit together" in loss.why for loss in losses)
        assert sum(isinstance(part, Image) and bool(part.data) for part in found.messages[1].parts) == 3


def test_fetched_media_are_held_by_the_governor_and_refused_if_too_much_waits() -> None:
    governor = Governor(150)
    hold = governor.hold("client")
    with ScriptedServer(lambda _: PICTURE) as server:
        one, two = (request_of(*(Image(url=f"{server.url}/{n}.png") for n in range(count))) for count in (1, 3))
        asyncio.run(fetcher().inline_media(one, EVERY_KIND, hold))
        assert hold.size == len(PNG)
        with pytest.raises(RequestRefused, match="max_buffered_bytes"):
            asyncio.run(fetcher().inline_media(two, EVERY_KIND, hold))
    assert governor.used == hold.size == len(PNG), "what was fetched for nothing is given back"


def test_the_parts_of_a_request_share_their_time() -> None:
    with ScriptedServer(Reply(hangs=True, status=0)) as server:
        request = request_of(*(Image(url=f"{server.url}/{number}.png") for number in range(40)))
        _, losses = inlined(request, fetcher(MediaLimits(seconds=0.2, request_seconds=0.3, at_once=2)))
        assert len(losses) == 40
        assert server.connections < 10


def test_fetches_are_concurrent_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    running = most = 0

    class Counting(Names):
        async def addresses(self, host: str) -> Sequence[str]:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.01)
            running -= 1
            return ["127.0.0.1"]

    with ScriptedServer(PICTURE) as server:
        urls = [f"http://host{number}.test:{server.port}/a.png" for number in range(10)]
        limits = MediaLimits(at_once=3)
        Counting(monkeypatch)
        _, losses = inlined(request_of(*(Image(url=url) for url in urls)), fetcher(limits))
    assert losses == []
    assert most == 3


def test_fetched_media_are_cached_for_a_while() -> None:
    now = 0.0
    limits = MediaLimits(kept_seconds=60, cache_bytes=2 * len(PNG))
    with ScriptedServer(PICTURE) as server:
        keeping = fetcher(limits, clock=lambda: now)
        request = request_of(Image(url=f"{server.url}/a.png"))
        first, _ = inlined(request, keeping)
        again, _ = inlined(request, keeping)
        assert first == again
        assert len(server.received) == 1
        now = 61.0
        inlined(request, keeping)
        assert len(server.received) == 2
        for name in "bcd":
            fetch(keeping, f"{server.url}/{name}.png")
        assert keeping._kept_bytes == sum(len(fetched.data) for _, fetched in keeping._kept.values()) == 2 * len(PNG)
        inlined(request, keeping)
        assert len(server.received) == 6


def test_a_client_that_leaves_ends_the_fetching() -> None:
    with ScriptedServer(Reply(hangs=True, status=0)) as server:

        async def leave() -> None:
            task = asyncio.create_task(fetcher().inline_media(request_of(Image(url=f"{server.url}/a.png")), EVERY_KIND))
            while not server.received:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(leave())
        assert server.gone.wait(10)


def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer(PICTURE) as server, ScriptedServer(Reply(status=500)) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        assert fetch(fetcher(), f"{server.url}/a.png").data == PNG
        assert proxy.connections == 0
