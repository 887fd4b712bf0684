"""`Exchange`: one request to a provider and what came back, as deltas.

Deltas are given in the batches in which their bytes came, and the last of them is always a terminal one: a status of failure,
a connection that broke, a page of HTML, all are a `Failed` that says what it was. Who stops reading closes the connection; who
reads to the end leaves it to the next call, for which the few bytes behind the last delta are waited for a moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from urllib.parse import urljoin, urlsplit

from msgspec import structs

from antiphon.errors import TransportError
from antiphon.providers.engine.response_reader import AnswerReader, failure_of, refusal_of
from antiphon.providers.engine.retry_after import retry_after
from antiphon.providers.transport.request import HttpRequest, HttpResponse, Transport
from antiphon.wire import Format
from antiphon.wire.delta import Failed, ModelOutputDelta
from antiphon.wire.output import ProviderError

_MOST_REFUSAL = 1024 * 1024
"""So much of an error body is read; the rest says nothing new."""
_LINGER = 0.1
_REQUEST_IDS = ("x-request-id", "request-id", "apim-request-id", "x-ms-request-id", "x-goog-request-id", "x-tt-logid")


class Exchange:
    """One try. `status` and `headers` are known once something came back."""

    def __init__(self, transport: Transport, wire: Format, request: HttpRequest) -> None:
        self.status: int | None = None
        self.headers: Mapping[str, str] = {}
        self._transport = transport
        self._wire = wire
        self._request = request

    @property
    def provider_request_id(self) -> str:
        """What the provider calls the request, for whoever asks its support."""
        return next((self.headers[name] for name in _REQUEST_IDS if self.headers.get(name)), "")

    async def batches(self) -> AsyncGenerator[list[ModelOutputDelta], None]:
        """The deltas, the last of them terminal."""
        try:
            response = await self._transport.send(self._request)
        except TransportError as trouble:
            yield [Failed(failure_of(trouble))]
            return
        self.status, self.headers = response.status, response.headers
        try:
            if not 200 <= response.status < 300:
                yield [Failed(self._dated(await self._refusal(response)))]
                return
            reader = AnswerReader(self._wire)
            body = response.body
            while not reader.is_over:
                try:
                    deltas = reader.feed(await anext(body))
                except StopAsyncIteration:
                    deltas = reader.close()
                except TransportError as trouble:
                    deltas = reader.close(trouble)
                if deltas:
                    last = deltas[-1]
                    if isinstance(last, Failed):
                        deltas[-1] = Failed(self._dated(last.error))
                    yield deltas
            await _linger(body)
        finally:
            await response.aclose()

    async def _refusal(self, response: HttpResponse) -> ProviderError:
        if 300 <= response.status < 400:
            target = urlsplit(urljoin(self._request.url, response.headers.get("location", "")))
            return ProviderError(
                f"{self._request.host} redirects to {target.scheme}://{target.netloc.rpartition('@')[2]}{target.path}; "
                "keys are not sent there: if it is right, make it the base URL",
                "not_found",
                response.status,
                "redirected",
            )
        pieces: list[bytes] = []
        size = 0
        try:
            async for piece in response.body:
                pieces.append(piece)
                size += len(piece)
                if size > _MOST_REFUSAL:
                    break
        except TransportError:
            pass  # the status says enough
        return refusal_of(self._wire, response.status, b"".join(pieces))

    def _dated(self, error: ProviderError) -> ProviderError:
        """The error with the wait that the provider asked for."""
        wait = retry_after(self.headers, error)
        return error if wait is None else structs.replace(error, retry_after=wait)


async def _linger(body: AsyncIterator[bytes]) -> None:
    """Read what is left, if it comes at once: a connection that was read to the end can be used again."""
    try:
        async with asyncio.timeout(_LINGER):
            async for _ in body:
                pass
    except (TimeoutError, TransportError):
        pass  # it is closed instead
