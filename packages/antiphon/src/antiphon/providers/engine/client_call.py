"""`ClientCall`: a target that is any `ProviderClient`: a model in this process, a scripted one, a client of the user's own.

It is called once: such a client has no keys or retries that are known here. Its deltas are held until the first visible one, as
the bytes of a provider are. A client that writes no attempt into the report gets one; a stream without a terminal event was cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from time import perf_counter

from msgspec import structs

from antiphon.history import ContextEntry
from antiphon.providers.call import Attempt, CallReport, ProviderCallOptions
from antiphon.providers.client import ProviderClient
from antiphon.providers.engine.reply import CUT_STREAM, EMPTY_RESPONSE, Outcome, Reply
from antiphon.providers.keys.ring import KeyLease
from antiphon.providers.retry import ONE_ATTEMPT
from antiphon.providers.routes import Target
from antiphon.wire.delta import Failed, Finished, ModelOutputDelta, is_visible
from antiphon.wire.output import ProviderError


class ClientCall:
    """A call of `client`, prepared. `client` may be an error: it could not be set up."""

    settings = ONE_ATTEMPT
    streams = True
    sleep: Callable[[float], Awaitable[object]] = staticmethod(asyncio.sleep)

    def __init__(
        self,
        target: Target,
        client: ProviderClient | ProviderError,
        context: Sequence[ContextEntry],
        options: ProviderCallOptions,
    ) -> None:
        self._target = target
        self._client = client
        self._context = context
        self._options = options

    def attempt(self, lease: KeyLease | None, time_left: float | None, report: CallReport) -> ClientAttempt:
        """The one attempt."""
        del lease, time_left
        if isinstance(self._client, ProviderError):
            deltas = _failed(self._client)
        else:
            deltas = self._client.call_model(self._context, self._options)
        return ClientAttempt(self._target, deltas, report)


class ClientAttempt:
    """The call, from its first delta to its last."""

    should_retry = None

    def __init__(self, target: Target, deltas: AsyncIterator[ModelOutputDelta], report: CallReport) -> None:
        self._target = target
        self._deltas = deltas
        self._report = report
        self._error: ProviderError | None = None
        self._recorded_before = len(report.attempts)
        self._is_recorded = False
        self._started_at = perf_counter()

    async def run(self) -> Outcome:
        """Read up to the first visible delta, or to the end."""
        reply = ClientReply(self, self._deltas)
        try:
            await reply.read_until_visible()
        except BaseException:
            await reply.aclose()
            raise
        finally:
            self._report.waiting_seconds += perf_counter() - self._started_at
        return reply, reply.problem

    def succeeded(self, reply: Reply) -> None:
        """It answered."""

    def failed(self, error: ProviderError) -> ProviderError:
        """It failed. If it is recorded already, because its stream was left, the record gets the error."""
        self._error = error
        if self._is_recorded:
            self.close()
        return error

    def close(self) -> None:
        """Write the attempt into the report, unless the client did; add the error if it has none."""
        attempts = self._report.attempts
        self._is_recorded = True
        if len(attempts) == self._recorded_before:
            seconds = perf_counter() - self._started_at
            attempts.append(Attempt(provider=self._target.provider, model=self._target.model, seconds=seconds))
        if self._error is not None and attempts[-1].error is None:
            attempts[-1] = structs.replace(attempts[-1], error=self._error)


class ClientReply:
    """The deltas of a client: `held` up to the first visible one, then the rest."""

    def __init__(self, attempt: ClientAttempt, deltas: AsyncIterator[ModelOutputDelta]) -> None:
        self._attempt = attempt
        self._deltas = deltas
        self._held: list[ModelOutputDelta] = []
        self._has_ended = False

    @property
    def problem(self) -> ProviderError | None:
        """Why a stream that has ended is not an answer."""
        if not self._has_ended:
            return None
        failed = next((delta for delta in self._held if isinstance(delta, Failed)), None)
        return EMPTY_RESPONSE if failed is None else failed.error

    async def read_until_visible(self) -> None:
        """Read up to the first visible delta. If there is none, the stream has ended."""
        async for delta in self._deltas:
            self._held.append(delta)
            if is_visible(delta):
                return
        self._has_ended = True
        if not any(isinstance(delta, Finished | Failed) for delta in self._held):
            self._held.append(Failed(CUT_STREAM))

    async def batches(self) -> AsyncGenerator[list[ModelOutputDelta], None]:
        """All deltas; the last is terminal."""
        try:
            held, self._held = self._held, []
            has_ended = isinstance(held[-1], Finished | Failed)
            yield held
            async for delta in self._deltas:
                if isinstance(delta, Finished | Failed):
                    has_ended = True
                    if isinstance(delta, Failed):
                        self._attempt.failed(delta.error)
                yield [delta]
            if not has_ended:
                self._attempt.failed(CUT_STREAM)
                yield [Failed(CUT_STREAM)]
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Leave the client's stream."""
        if isinstance(self._deltas, AsyncGenerator):
            await self._deltas.aclose()
        self._attempt.close()


async def _failed(error: ProviderError) -> AsyncIterator[ModelOutputDelta]:
    yield Failed(error)
