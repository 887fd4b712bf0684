"""`Tavily`: a search of the web through Tavily's HTTP API (`POST /search`, a bearer key).

The request is the one its official client sends. Whatever comes back instead of results becomes a `ToolError` that tells the
model what to make of it: whether another try makes sense, or whether only the user can help. The service's own words are
added, short and without the key (law L10).
"""

from __future__ import annotations

import msgspec
from msgspec import Struct, field

from antiphon.errors import CredentialError, ToolError, TransportError
from antiphon.providers.credentials.secret import Credential, mask
from antiphon.providers.transport.aiohttp_transport import AiohttpTransport
from antiphon.providers.transport.request import HttpRequest, HttpResponse, Timeouts, Transport

TAVILY_URL = "https://api.tavily.com"

_LONGEST_ANSWER = 4_000_000
_TIMEOUTS = Timeouts(connect=10.0, read=30.0, total=40.0)
_HOPELESS = "Do not search again; answer with what you know, and say that you could not search"
_TOLD = {
    400: "the search service did not take this query; ask in other words",
    401: f"the search service refused its key: the user must check TAVILY_API_KEY. {_HOPELESS}",
    403: f"the search service does not allow this search. {_HOPELESS}",
    422: "the search service did not take this query; ask in other words",
    429: "too many searches in a short time; wait before you search again",
    432: f"the search plan's limit is used up: the user must raise it at Tavily. {_HOPELESS}",
    433: f"the pay-as-you-go limit for searches is used up: the user must raise it at Tavily. {_HOPELESS}",
}


class WebPage(Struct, frozen=True):
    """A page that was found."""

    url: str
    title: str | None = None
    content: str | None = None


class _Answer(Struct, frozen=True):
    results: list[WebPage] = field(default_factory=list)


class Tavily:
    """Searches the web with a key: the key itself, `env:NAME` or `file:PATH`."""

    def __init__(self, key: str, *, base_url: str = TAVILY_URL, transport: Transport | None = None) -> None:
        self._credential = Credential(secret=key)
        self._url = f"{base_url.rstrip('/')}/search"
        self._transport = transport or AiohttpTransport()

    async def search(self, query: str, max_results: int = 5) -> list[WebPage]:
        """The pages found, the best first. Raises `ToolError`."""
        try:
            key = self._credential.read()
        except CredentialError as error:
            raise ToolError(f"the search cannot be made: {error}", retry=False) from None
        request = HttpRequest(
            url=self._url,
            headers={
                "Content-Type": "application/json",
                "Authorization": f"Bearer {key}",
                "X-Client-Source": "antiphon",
            },
            body=[msgspec.json.encode({"query": query, "max_results": max_results})],
            timeouts=_TIMEOUTS,
        )
        try:
            response = await self._transport.send(request)
            try:
                body = await _read(response)
            finally:
                await response.aclose()
        except TransportError as error:
            raise ToolError(f"the search service cannot be reached: {error}") from None
        if response.status != 200:
            raise _refusal(response, body, key)
        try:
            return msgspec.json.decode(body, type=_Answer).results
        except msgspec.DecodeError:
            raise ToolError(f"{request.host} answered with something that is no search result; try again") from None


async def _read(response: HttpResponse) -> bytes:
    pieces: list[bytes] = []
    size = 0
    async for piece in response.body:
        pieces.append(piece)
        size += len(piece)
        if size > _LONGEST_ANSWER:
            raise ToolError("the search service answered with far too much; ask for fewer results", retry=False)
    return b"".join(pieces)


def _refusal(response: HttpResponse, body: bytes, key: str) -> ToolError:
    status = response.status
    told = _TOLD.get(status, f"the search service answered with status {status}; try again later")
    wait = response.headers.get("retry-after", "")
    if status == 429 and wait.isdecimal():
        told += f", at least {wait} s"
    said = _detail(body).replace(key, mask(key))
    return ToolError(f"{told} ({said})" if said else told, retry=status == 429 or status >= 500)


def _detail(body: bytes) -> str:
    """The service's own words: `{"detail": {"error": "…"}}`, or plain `detail`."""
    try:
        said = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return ""
    detail = said.get("detail") if isinstance(said, dict) else None
    words = detail.get("error") if isinstance(detail, dict) else detail
    return " ".join(words.split())[:200] if isinstance(words, str) else ""
