"""`StreamedResponse`: a response as far as it has arrived: its head, and its body as a `PausedBody`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from antiphon.http.body import Flow, PausedBody, copy_failure


class StreamedResponse(PausedBody):
    """A response that comes over the connection `flow`. With `is_whole` it has arrived when its body is complete."""

    status = 0
    headers: Mapping[str, str] = MappingProxyType({})

    def __init__(self, flow: Flow, *, is_whole: bool = False) -> None:
        self.length = None
        self._unread = b""
        self._flow = flow
        self._is_whole = is_whole

    @property
    def body(self) -> PausedBody:
        return self

    async def aclose(self) -> None:
        """Release it; closes the connection if the body was not read to the end."""
        self.abort()

    @property
    def has_arrived(self) -> bool:
        """Whether there is something to return. Raises `TransportError` if the response failed before its head."""
        if self._failure is not None and not self.status:
            raise copy_failure(self._failure)
        return bool(self.status) and (self.is_over or not self._is_whole)

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:
        """The head has arrived."""
        self.status, self.headers = status, headers
        if self._waiter is not None and not self._is_whole:
            self._wake()
