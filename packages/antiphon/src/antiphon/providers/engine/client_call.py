"""`ClientCall`: a target that is any `ProviderClient`: a model in this process, a scripted one, a client of the user's own.

It is called once: such a client has no keys or retries that are known here. Its deltas are held until the first visible one, as
the bytes of a provider are. A client that writes no attempt into the report gets one; a stream without a terminal event was cut.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from time import perf_counter
from typing import ClassVar

from msgspec import structs

from antiphon.providers.call import Attempt, CallReport
from antiphon.providers.engine.reply import CUT_STREAM, EMPTY_RESPONSE, Outcome, Reply
from antiphon.providers.keys.ring import KeyLease
from antiphon.providers.retry import Upstream
from antiphon.providers.routes import Target
from antiphon.wire.delta import Failed, Finished, ModelOutputDelta, is_visible
from antiphon.wire.output import ProviderError


class ClientCall:
    """A call of a client: its one attempt, and the reply: the deltas `held` up to the first visible one, then the rest."""

    provider: ClassVar = Upstream()
    is_repeatable: ClassVar = False
    streams: ClassVar = True
    takes_keys_in_order: ClassVar = False
    preferred_key: ClassVar = ""
    should_retry: ClassVar = None

    def __init__(self, target: Target, deltas: AsyncIterator[ModelOutputDelta]) -> None:
        self._target = target
        self._deltas = deltas
        self._held: list[ModelOutputDelta] = []
        self._error: ProviderError | None = None
        self._is_recorded = False

    def attempt(self, lease: KeyLease | None, time_left: float | None, report: CallReport) -> ClientCall:
        """The one attempt."""
        del lease, time_left
        self._report = report
        self._recorded_before = len(report.attempts)
        self._started_at = perf_counter()
        return self

    async def run(self) -> Outcome:
        """Read up to the first visible delta, or to the end."""
        try:
            async for delta in self._deltas:
                self._held.append(delta)
                if is_visible(delta):
                    return self, None
        except BaseException:
            await self.aclose()
            raise
        finally:
            self._report.waiting_seconds += perf_counter() - self._started_at
        if not any(isinstance(delta, Finished | Failed) for delta in self._held):
            self._held.append(Failed(CUT_STREAM))
        failed = next((delta for delta in self._held if isinstance(delta, Failed)), None)
        return self, EMPTY_RESPONSE if failed is None else failed.error

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
                        self.failed(delta.error)
                yield [delta]
            if not has_ended:
                self.failed(CUT_STREAM)
                yield [Failed(CUT_STREAM)]
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Leave the client's stream."""
        if isinstance(self._deltas, AsyncGenerator):
            await self._deltas.aclose()
        self.close()


async def failed_deltas(error: ProviderError) -> AsyncIterator[ModelOutputDelta]:
    """Those of a client that could not be set up."""
    yield Failed(error)
