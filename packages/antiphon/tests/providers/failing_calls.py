"""Calls whose attempts all fail: what is sent, waited for and prepared, as a trace. Time passes only in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from antiphon.providers.call import CallReport
from antiphon.providers.engine.provider_call import ProviderCall
from antiphon.providers.engine.reply import Outcome, Reply, UpstreamFailed
from antiphon.providers.keys.ring import KeyLease
from antiphon.providers.retry import Upstream
from antiphon.providers.routes import Target
from antiphon.wire.output import ProviderError

Failure = tuple[ProviderError, str | None, float]
"""An error, the provider's advice to retry, and how long the attempt took."""
Trace = list[tuple[str, Any]]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class FailingRequest:
    """A request for one target. Its attempts fail with what `next_failure` gives."""

    streams = is_repeatable = True
    takes_keys_in_order = False
    preferred_key = ""

    def __init__(self, provider: Upstream, clock: Clock, next_failure: Callable[[], Failure], trace: Trace) -> None:
        provider.sleep = self._sleep
        self.provider = provider
        self.clock = clock
        self.next_failure = next_failure
        self.trace = trace
        self.time_left: float | None = None

    async def _sleep(self, seconds: float) -> None:
        self.trace.append(("wait", seconds))
        self.clock.now += seconds

    def attempt(self, lease: KeyLease | None, time_left: float | None, report: CallReport) -> FailingAttempt:
        self.trace.append(("send", lease))
        self.time_left = time_left
        return FailingAttempt(self, lease)


class FailingAttempt:
    def __init__(self, request: FailingRequest, lease: KeyLease | None) -> None:
        self._request = request
        self._lease = lease
        self.should_retry: str | None = None

    async def run(self) -> Outcome:
        error, self.should_retry, seconds = self._request.next_failure()
        self._request.clock.now += seconds
        return None, error

    def succeeded(self, reply: Reply) -> None:
        raise AssertionError("every attempt fails")

    def failed(self, error: ProviderError) -> ProviderError:
        if isinstance(self._lease, KeyLease):
            self._lease.failed(error)
        return error

    def close(self) -> None:
        """Nothing is open."""


def call_in_vain(
    targets: Sequence[Target], requests: Sequence[FailingRequest | ProviderError], trace: Trace, **options: Any
) -> ProviderError:
    """Call the targets, each with its request or the error that keeps it from having one; the last error."""

    async def prepare(target: Target) -> FailingRequest:
        number = targets.index(target)
        trace.append(("next", number))
        request = requests[number]
        if isinstance(request, ProviderError):
            raise UpstreamFailed(request)
        return request

    try:
        asyncio.run(ProviderCall(targets, prepare, CallReport(), **options).reply())
    except UpstreamFailed as failure:
        trace.append(("give up", failure.error))
        return failure.error
    raise AssertionError("every attempt fails")
