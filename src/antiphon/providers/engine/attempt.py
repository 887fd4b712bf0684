"""`UpstreamAttempt`: one request to a provider, how its response is judged, and what that means for the key.

The library reads it as deltas (`batches`): the last delta is always terminal, and an error status, a broken connection and an
HTML page are each a `Failed` event. The gateway takes the open response (`open`) and passes its bytes on. Closing early
closes the connection; after a complete response the last bytes are read too, so that the connection can be reused.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from urllib.parse import urljoin, urlsplit

from msgspec import structs

from antiphon.errors import TransportError
from antiphon.providers.call import Attempt
from antiphon.providers.engine.provider import Provider
from antiphon.providers.engine.response_reader import ResponseReader, error_from_status, error_from_transport
from antiphon.providers.engine.retry_after import retry_after
from antiphon.providers.retry import RetryPlan
from antiphon.providers.transport.request import HttpRequest, HttpResponse
from antiphon.wire import Format
from antiphon.wire.delta import Failed, ModelOutputDelta
from antiphon.wire.output import ProviderError

_MAX_ERROR_BYTES = 1024 * 1024
_DRAIN_SECONDS = 0.1
_REQUEST_IDS = ("x-request-id", "request-id", "apim-request-id", "x-ms-request-id", "x-goog-request-id", "x-tt-logid")


class UpstreamFailed(Exception):
    """A call, or one attempt of it, brought no answer."""

    def __init__(self, error: ProviderError) -> None:
        super().__init__(error.message)
        self.error = error


class UpstreamAttempt:
    """One attempt of `plan`. `status` and `headers` are set once the response head has arrived."""

    def __init__(self, provider: Provider, plan: RetryPlan, request: HttpRequest) -> None:
        self.status: int | None = None
        self.headers: Mapping[str, str] = {}
        self._provider = provider
        self._plan = plan
        self._request = request
        self._started_at = provider.clock()

    @property
    def should_retry(self) -> str | None:
        """The provider's own advice (`x-should-retry`)."""
        return self.headers.get("x-should-retry")

    @property
    def provider_request_id(self) -> str:
        """The provider's id of the request, for its support."""
        return next((self.headers[name] for name in _REQUEST_IDS if self.headers.get(name)), "")

    async def open(self) -> HttpResponse:
        """Send the request; the response if its status is a success. Raises `UpstreamFailed`."""
        try:
            response = await self._provider.transport.send(self._request)
        except TransportError as lost:
            raise UpstreamFailed(error_from_transport(lost)) from None
        self.status, self.headers = response.status, response.headers
        if 200 <= response.status < 300:
            return response
        try:
            error = await _read_error(self._provider.wire, self._request, response)
        finally:
            await response.aclose()
        raise UpstreamFailed(self.with_retry_after(error))

    async def batches(self) -> AsyncGenerator[list[ModelOutputDelta], None]:
        """The deltas, in batches as their bytes arrived; the last of them is terminal."""
        try:
            response = await self.open()
        except UpstreamFailed as failure:
            yield [Failed(failure.error)]
            return
        try:
            reader = ResponseReader(self._provider.wire)
            body = response.body
            while not reader.is_finished:
                try:
                    deltas = reader.feed(await anext(body))
                except StopAsyncIteration:
                    deltas = reader.close()
                except TransportError as error:
                    deltas = reader.close(error)
                if deltas:
                    last = deltas[-1]
                    if isinstance(last, Failed):
                        deltas[-1] = Failed(self.with_retry_after(last.error))
                    yield deltas
            await _drain(body)
        finally:
            await response.aclose()

    def with_retry_after(self, error: ProviderError) -> ProviderError:
        """The error with the delay that the provider asks for."""
        delay = retry_after(self.headers, error)
        return error if delay is None else structs.replace(error, retry_after=delay)

    def succeeded(self) -> None:
        """The provider answered."""
        if self._plan.lease is not None:
            self._plan.lease.succeeded()

    def failed(self, error: ProviderError) -> ProviderError:
        """Record why the attempt failed, for the plan and for the key. The error comes back without secrets."""
        error = self._plan.error = self._provider.scrub(error)
        if self._plan.lease is not None:
            self._plan.lease.failed(error)
        return error

    def release(self) -> None:
        """The attempt was abandoned. No effect after `succeeded` or `failed`."""
        if self._plan.lease is not None:
            self._plan.lease.release()

    def record(self, model: str) -> Attempt:
        """The attempt as reports show it."""
        return Attempt(
            provider=self._provider.name,
            model=model,
            credential=self._plan.lease.name if self._plan.lease is not None else "",
            status=self.status,
            seconds=self._provider.clock() - self._started_at,
            error=self._plan.error,
        )


async def _read_error(wire: Format, request: HttpRequest, response: HttpResponse) -> ProviderError:
    """The error that a response with an error status, or a redirect, contains."""
    if 300 <= response.status < 400:
        target = urlsplit(urljoin(request.url, response.headers.get("location", "")))
        return ProviderError(
            f"{request.host} redirects to {target.scheme}://{target.netloc.rpartition('@')[2]}{target.path}; "
            "keys are not sent there; if it is correct, use it as the base URL",
            "not_found",
            response.status,
            "redirected",
        )
    chunks: list[bytes] = []
    size = 0
    try:
        async for chunk in response.body:
            chunks.append(chunk)
            size += len(chunk)
            if size > _MAX_ERROR_BYTES:
                break
    except TransportError:
        pass  # the status is enough
    return error_from_status(wire, response.status, b"".join(chunks))


async def _drain(body: AsyncIterator[bytes]) -> None:
    """Read the rest if it arrives at once; otherwise the connection is closed."""
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for _ in body:
                pass
    except (TimeoutError, TransportError):
        pass
