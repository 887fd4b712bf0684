"""`TokenCache`: a token that expires, fetched when it is needed and replaced before it is too late.

A token is used until its last fifth, at most five minutes, begins. From then on the next request starts a refresh in the
background and uses the old token. Requests that find no valid token wait for one fetch together. A token that a host rejected is
discarded by its value, so many requests that were rejected at once cause one fetch.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context
from math import inf
from typing import Generic, TypeVar

from msgspec import Struct

from antiphon.errors import CredentialError
from antiphon.wire.output import ErrorKind

_MAX_LEAD_SECONDS = 300.0
_LEAD_SHARE = 0.2
_MAX_RECENT = 4
_RETRY_SECONDS = 10.0
"""How long a failed refresh is not repeated while the old token is valid."""

logger = logging.getLogger("antiphon.providers")

T = TypeVar("T")


class TokenError(CredentialError):
    """No token. `kind` is "authentication" if the credentials were refused or are missing, "server" if it may work later."""

    def __init__(self, message: str, kind: ErrorKind = "authentication") -> None:
        super().__init__(message)
        self.kind: ErrorKind = kind


class Fetched(Struct, Generic[T], frozen=True):
    """A token and for how many seconds it is valid."""

    value: T
    lifetime: float = inf


class _Held(Struct, Generic[T], frozen=True):
    value: T
    refresh_at: float
    expires_at: float


class TokenCache(Generic[T]):
    """The token that `fetch` gets. `name` is for the log. May be used from several event loops."""

    def __init__(
        self, name: str, fetch: Callable[[], Awaitable[Fetched[T]]], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._name = name
        self._fetch = fetch
        self._clock = clock
        self._held: _Held[T] | None = None
        self.recent: deque[T] = deque(maxlen=_MAX_RECENT)
        """The last tokens, which must not be shown: an error of a call that began with an old one may repeat it."""
        self._refresh: tuple[asyncio.AbstractEventLoop, asyncio.Task[T]] | None = None
        self._retry_at = -inf

    async def get(self) -> T:
        """A valid token. Raises `TokenError`."""
        held = self._held
        if held is not None:
            now = self._clock()
            if now < held.refresh_at:
                return held.value
            if now < held.expires_at:
                if now >= self._retry_at:
                    self._start_refresh()
                return held.value
        return await asyncio.shield(self._start_refresh())  # a caller that leaves does not end the fetch of the others

    def discard(self, value: T) -> None:
        """The host rejected this token: the next request gets another. No effect if it was replaced already."""
        if self._held is not None and self._held.value == value:
            self._held = None

    def _start_refresh(self) -> asyncio.Task[T]:
        loop = asyncio.get_running_loop()
        if self._refresh is not None and self._refresh[0] is loop and not self._refresh[1].done():
            return self._refresh[1]
        task = loop.create_task(self._fetch_token(), context=Context())
        task.add_done_callback(self._on_done)
        self._refresh = (loop, task)
        return task

    async def _fetch_token(self) -> T:
        try:
            fetched = await self._fetch()
        except Exception:
            self._retry_at = self._clock() + _RETRY_SECONDS
            raise
        now = self._clock()
        if fetched.lifetime <= 0:
            raise TokenError(f"{self._name}: the token has expired already; check the clock of this machine")
        lead = min(_MAX_LEAD_SECONDS, fetched.lifetime * _LEAD_SHARE)
        self._held = _Held(fetched.value, now + fetched.lifetime - lead, now + fetched.lifetime)
        self.recent.append(fetched.value)
        return fetched.value

    def _on_done(self, task: asyncio.Task[T]) -> None:
        """The error is read here too, because no request waits for a refresh in the background."""
        self._refresh = None
        if task.cancelled() or (error := task.exception()) is None:
            return
        if self._held is not None and self._clock() < self._held.expires_at:
            logger.warning("cannot refresh the token of %s: %s; using the old one until it expires", self._name, error)
