"""`MediaFetcher`: pictures, sound and files at URLs, fetched for targets that accept them only in the body.

The URLs come from clients, so every connection goes through an `AddressGuard`, redirects included, which are followed here,
one by one. Nothing of ours is sent: no cookies, no credentials, no proxy of the environment (which would connect in our place,
unguarded). The content is bounded in size and time and must not be compressed (a small body could become a huge one). Its type
comes from its first bytes, not from its header; only pictures, sound, PDF and text are accepted.

A part that cannot be fetched becomes a line of text in its place, so that the model knows of it, and a loss. The reason reveals
nothing about our own network. Fetched media are cached for a while: a client sends its whole conversation each time.
"""

from __future__ import annotations

import asyncio
import time
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Callable, Container, Iterator, Sequence
from typing import TypeAlias
from urllib.parse import urljoin, urlsplit

from msgspec import Struct, structs

from antiphon.errors import MediaFetchError, TransportError
from antiphon.http.body import Governor, Hold
from antiphon.http.client.address_guard import WEB_PORTS, AddressGuard, IpAddress
from antiphon.http.client.client import HttpClient
from antiphon.http.client.request import HttpRequest, HttpResponse, Timeouts
from antiphon.media_types import sniff_bytes
from antiphon.parts import Audio, Document, Image, Part, Text, ToolCallResult
from antiphon.wire.loss import Loss
from antiphon.wire.request import Message, ModelRequest
from antiphon_gateway.errors import RequestRefused, overloaded

Media: TypeAlias = Image | Audio | Document
MediaKinds: TypeAlias = tuple[type[Media], ...]

_REDIRECTS = (301, 302, 303, 307, 308)
_MEBIBYTE = 1024 * 1024
_HEADERS = {
    "accept": "image/*, audio/*, application/pdf, text/*",
    "accept-encoding": "identity",
    "user-agent": "antiphon",
    "connection": "close",  # another URL is most likely on another host
}
_TIMEOUTS = Timeouts(connect=None, read=None)  # the limits of the part and of the request bound it
_REASONS = {"address_blocked": "the address is not public", "invalid_url": "invalid URL"}
"""What a client may know of a failure; other messages may contain addresses and names of this network."""
_FAMILIES: dict[type, str] = {Image: "image", Audio: "audio"}


class MediaLimits(Struct, frozen=True, kw_only=True):
    """Limits of size and time for fetching and caching."""

    part_bytes: int = 20 * _MEBIBYTE
    request_bytes: int = 64 * _MEBIBYTE
    """For all parts of one request together."""
    seconds: float = 20.0
    """For one part, including its redirects."""
    request_seconds: float = 60.0
    """For all parts of one request."""
    redirects: int = 3
    at_once: int = 8
    """Connections of one request at the same time."""
    cache_bytes: int = 64 * _MEBIBYTE
    kept_seconds: float = 600.0


class FetchedMedia(Struct, frozen=True):
    """The content at a URL."""

    media_type: str
    data: bytes


class MediaFetcher:
    """Fetches media. `allow` and `ports` are the guard's; `clock` is used for the age of cached media."""

    def __init__(
        self,
        limits: MediaLimits | None = None,
        *,
        allow: Callable[[IpAddress], bool] | None = None,
        ports: Container[int] = WEB_PORTS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits or MediaLimits()
        self._guard = AddressGuard(allow=allow, ports=ports)
        self._client = HttpClient({}, guard=self._guard, decompresses=False)
        self._clock = clock
        self._kept: OrderedDict[str, tuple[float, FetchedMedia]] = OrderedDict()
        self._kept_bytes = 0

    async def fetch(self, url: str) -> FetchedMedia:
        """The content at a URL. Raises `MediaFetchError` with the reason."""
        return await self._fetch_cached(url, _RequestBudget(self.limits))

    async def inline_media(
        self, request: ModelRequest, kinds: MediaKinds, hold: Hold | None = None
    ) -> tuple[ModelRequest, list[Loss]]:
        """The request with media of these kinds inlined, and the losses. The same object if there is none.

        `hold` counts what is fetched. Raises `RequestRefused`.
        """
        urls = {part.url: None for message in request.messages for part in _remote(message.parts, kinds)}
        if not urls:
            return request, []
        # Of its own while it is fetched: if the client leaves, its request gives back what it has before the fetching ends.
        counted = hold.another() if hold is not None else Governor().hold()
        try:
            found = await self._fetch_many(list(urls), _RequestBudget(self.limits, counted))
            if hold is not None:
                hold.take_over(counted)
        finally:
            counted.release()
        losses: list[Loss] = []
        messages: list[Message] = []
        for place, message in enumerate(request.messages):
            parts = tuple(
                _inlined(part, kinds, found, losses, f"messages[{place}].parts[{at}]")
                for at, part in enumerate(message.parts)
            )
            messages.append(message if parts == message.parts else structs.replace(message, parts=parts))
        return structs.replace(request, messages=tuple(messages)), losses

    async def _fetch_many(
        self, urls: list[str], allowance: _RequestBudget
    ) -> dict[str, FetchedMedia | MediaFetchError]:
        found: dict[str, FetchedMedia | MediaFetchError] = {}
        async with asyncio.TaskGroup() as group:
            turns = asyncio.Semaphore(self.limits.at_once)

            async def one(url: str) -> None:
                async with turns:
                    try:
                        found[url] = await self._fetch_cached(url, allowance)
                    except MediaFetchError as refused:
                        found[url] = refused

            for url in urls:
                group.create_task(one(url))
        if allowance.refusal:
            raise RequestRefused(overloaded(allowance.refusal))
        return found

    async def _fetch_cached(self, url: str, allowance: _RequestBudget) -> FetchedMedia:
        fetched = self._cached(url)
        if fetched is not None:
            allowance.take(len(fetched.data))
            return fetched
        try:
            async with asyncio.timeout_at(allowance.until(self.limits.seconds)):
                fetched = await self._fetch_following_redirects(url, allowance)
        except TimeoutError:
            raise MediaFetchError("timed out") from None
        except ValueError:  # a redirect to something that is not a URL
            raise MediaFetchError("invalid URL") from None
        except TransportError as error:
            raise MediaFetchError(_REASONS.get(error.code, "the host cannot be reached")) from None
        self._cache(url, fetched)
        return fetched

    async def _fetch_following_redirects(self, url: str, allowance: _RequestBudget) -> FetchedMedia:
        for _ in range(self.limits.redirects + 1):
            self._guard.check_url(url)
            request = HttpRequest(url=url, method="GET", headers=_HEADERS, timeouts=_TIMEOUTS)
            response = await self._client.send(request, follow=False)
            try:
                location = response.headers.get("location")
                if response.status not in _REDIRECTS or not location:
                    return await self._read(response, allowance)
            finally:
                response.abort()
            url = urljoin(url, location)
        raise MediaFetchError(f"more than {self.limits.redirects} redirects")

    async def _read(self, response: HttpResponse, allowance: _RequestBudget) -> FetchedMedia:
        if response.status != 200:
            raise MediaFetchError(f"the host responded with status {response.status}")
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise MediaFetchError("the response is compressed although no compression was requested")
        most = self.limits.part_bytes
        pieces: list[bytes] = []
        size = 0
        length = response.headers.get("content-length", "")
        if length.isdecimal() and int(length) > most:
            raise MediaFetchError(f"larger than {most} bytes")
        async for piece in response:
            pieces.append(piece)
            size += len(piece)
            if size > most:
                raise MediaFetchError(f"larger than {most} bytes")
            allowance.take(len(piece))
        data = b"".join(pieces)
        media_type = sniff_bytes(data, response.headers.get("content-type", ""))
        if media_type is None:
            raise MediaFetchError("it is not a picture, sound, PDF or text")
        return FetchedMedia(media_type, data)

    def _cached(self, url: str) -> FetchedMedia | None:
        known = self._kept.get(url)
        return known[1] if known is not None and known[0] > self._clock() else None

    def _cache(self, url: str, fetched: FetchedMedia) -> None:
        before = self._kept.pop(url, None)
        self._kept_bytes += len(fetched.data) - (len(before[1].data) if before is not None else 0)
        self._kept[url] = (self._clock() + self.limits.kept_seconds, fetched)
        while self._kept_bytes > self.limits.cache_bytes:
            _, (_, oldest) = self._kept.popitem(last=False)
            self._kept_bytes -= len(oldest.data)


class _RequestBudget:
    """The bytes and the time that remain for the parts of one request together."""

    def __init__(self, limits: MediaLimits, hold: Hold | None = None) -> None:
        self.refusal = ""
        """Why the server takes no more."""
        self._hold = hold
        self._left = limits.request_bytes
        self._deadline = asyncio.get_running_loop().time() + limits.request_seconds

    def until(self, seconds: float) -> float:
        """The deadline of an operation that starts now and may take that long. Raises `TimeoutError` if it has passed."""
        now = asyncio.get_running_loop().time()
        if now >= self._deadline:
            raise TimeoutError
        return min(now + seconds, self._deadline)

    def take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise MediaFetchError("the media of the request exceed the limit together")
        if self._hold is not None and (refusal := self._hold.grow(size)):
            self.refusal = refusal
            raise MediaFetchError(refusal)


def _remote(parts: Sequence[Part], kinds: MediaKinds) -> Iterator[Media]:
    """The media of these kinds that are at a URL."""
    for part in parts:
        if isinstance(part, ToolCallResult):
            yield from _remote(part.content, kinds)
        elif isinstance(part, kinds) and part.url and not part.url.startswith("data:"):
            yield part


def _inlined(
    part: Part,
    kinds: MediaKinds,
    found: dict[str, FetchedMedia | MediaFetchError],
    losses: list[Loss],
    path: str,
) -> Part:
    if isinstance(part, ToolCallResult):
        content = tuple(
            _inlined(inner, kinds, found, losses, f"{path}.content[{at}]") for at, inner in enumerate(part.content)
        )
        return part if content == part.content else structs.replace(part, content=content)
    remote = next(_remote((part,), kinds), None)
    if remote is None:
        return part
    part, fetched = remote, found[remote.url]
    what = type(part).__name__.lower()
    why = str(fetched) if isinstance(fetched, MediaFetchError) else _wrong_media_type(part, fetched)
    if why or isinstance(fetched, MediaFetchError):
        losses.append(Loss(path, what, f"{_redact_url(part.url)} was not fetched: {why}"))
        return Text(f"[{what} {_redact_url(part.url)} could not be fetched: {why}]")
    return _with_data(part, fetched)


def _wrong_media_type(part: Media, fetched: FetchedMedia) -> str:
    """Why the fetched content does not match the part's type; empty if it does. A document may be anything."""
    family = _FAMILIES.get(type(part))
    return f"it is {fetched.media_type}" if family and not fetched.media_type.startswith(f"{family}/") else ""


def _with_data(part: Media, fetched: FetchedMedia) -> Part:
    kind = fetched.media_type
    if kind.startswith("text/") and isinstance(part, Document):
        return structs.replace(part, url="", media_type=kind, text=fetched.data.decode())
    data = b64encode(fetched.data).decode()
    for media, family in _FAMILIES.items():
        if kind.startswith(f"{family}/") and not isinstance(part, media):
            return Image(kind, data, native=part.native) if media is Image else Audio(kind, data, native=part.native)
    return structs.replace(part, url="", media_type=kind, data=data)


def _redact_url(url: str) -> str:
    """A URL that can be shown: without the user, and without the query, which may contain secrets."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(no URL)"
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    return shown if len(shown) <= 200 else f"{shown[:199]}…"
