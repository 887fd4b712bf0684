"""`ForwardedRequest`: any request to a provider, whose response is passed on as it comes.

It goes through `ProviderCall` like a call of a model: keys, their health, retries. Keys are taken in order, because files belong
to the account of a key. A body that is sent while it arrives cannot be sent again, so such a request is made once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from msgspec import Struct, structs

from antiphon.errors import TransportError
from antiphon.http.body import read_bounded
from antiphon.http.client.request import HttpResponse
from antiphon.providers.call import CallReport
from antiphon.providers.engine.attempt import UpstreamAttempt, UpstreamRequest
from antiphon.providers.engine.reply import Outcome, StreamReply, UpstreamFailed
from antiphon.providers.engine.response_reader import ResponseReader, error_from_status, error_from_transport
from antiphon.providers.keys.ring import KeyLease
from antiphon.providers.retry import RetryPolicy, RetrySettings

_MAX_ERROR_BYTES = 1024 * 1024


class ErrorResponse(Struct, frozen=True):
    """A response with an error status, as the provider wrote it."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class ForwardedRequest(UpstreamRequest):
    """A request in `method` and `headers` as they came. `stream` is a body that arrives, of `stream_length` bytes if known."""

    method: str = "POST"
    stream: AsyncIterator[bytes] | None = None
    stream_length: int | None = None
    last_error: ErrorResponse | None = None
    """The last response with an error status."""

    @property
    def settings(self) -> RetrySettings:
        """What the provider allows, with its keys in order; one attempt for a body that cannot be repeated."""
        settings = structs.replace(super().settings, takes_keys_in_order=True)
        if self.stream is None and self.method in ("GET", "HEAD"):
            return settings
        return structs.replace(settings, policy=RetryPolicy(retries=0, rotations=0))

    def attempt(self, lease: KeyLease | None, time_left: float | None, report: CallReport) -> UpstreamAttempt:
        """Another attempt with this key."""
        made = self.provider.request(self.url, self.body, self.headers, lease, time_left)
        headers = dict(made.headers)
        if "content-type" not in (self.headers or {}):
            headers.pop("content-type", None)
        request = structs.replace(
            made, method=self.method, headers=headers, stream=self.stream, stream_length=self.stream_length
        )
        return _ForwardedAttempt(self, request, lease, report)


class _ForwardedAttempt(UpstreamAttempt):
    """An attempt that reads nothing: every response without an error status is passed on."""

    async def run(self) -> Outcome:
        """Send it. An error response is kept in the request."""
        prepared = self._prepared
        assert isinstance(prepared, ForwardedRequest)
        response: HttpResponse | None = None
        try:
            response = await self._provider.send(self._request, self._lease)
            self.status, self.headers = response.status, response.headers
            if response.status < 400:
                return StreamReply([], [], response.headers, ResponseReader(self._wire), response, self), None
            body = await read_bounded(response, _MAX_ERROR_BYTES)
        except TransportError as lost:
            if response is None:
                return None, error_from_transport(lost)
            body = b""
        except UpstreamFailed as failure:
            return None, failure.error
        except BaseException:
            self.close()
            raise
        await response.aclose()
        prepared.last_error = ErrorResponse(response.status, response.headers, body)
        return None, error_from_status(self._wire, response.status, body)
