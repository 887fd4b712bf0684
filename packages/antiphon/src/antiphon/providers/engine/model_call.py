"""`ModelCall`: a call with all its attempts: other keys, retries, other targets, until one answers or none is left.

The only loop of its kind: the library's clients and every endpoint of the gateway call models through it. `RetryPlan` decides
each step, this performs it. `prepare` makes the request for a target when its turn comes, or raises `UpstreamFailed` if that
target cannot take it; a refused request may be prepared once more by `rewrite`. An attempt is over when its reply is judged: a
stream is an answer from its first visible delta on, a whole body once it was read. Nothing is sent again after that. Every
attempt is in the report.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeAlias

from antiphon.providers.call import CallReport, RetryScheduled
from antiphon.providers.credentials.pool import Lease
from antiphon.providers.engine.continuation import Continuation
from antiphon.providers.engine.reply import EMPTY_RESPONSE, DeltaReply, Reply, StreamReply, UpstreamFailed, WholeReply
from antiphon.providers.engine.target_health import CircuitPolicy, TargetHealth
from antiphon.providers.retry import GiveUp, NextTarget, RetryPlan, RetrySettings, Send, Step, Wait
from antiphon.providers.routes import Target
from antiphon.wire.delta import Failed, ModelOutputDelta
from antiphon.wire.output import ProviderError

logger = logging.getLogger("antiphon.providers")

_CIRCUIT_OPEN = ProviderError("the circuit is open after failures in a row", "overloaded", code="circuit_open")
_NO_CIRCUITS = TargetHealth(CircuitPolicy(failures=0))


class CallAttempt(Protocol):
    """One attempt of a call. It writes itself into the report."""

    @property
    def should_retry(self) -> str | None: ...
    async def run(self) -> Reply: ...
    def succeeded(self, reply: Reply) -> None: ...
    def failed(self, error: ProviderError) -> ProviderError: ...
    def close(self) -> None: ...


class TargetCall(Protocol):
    """A request prepared for one target."""

    @property
    def settings(self) -> RetrySettings: ...
    @property
    def streams(self) -> bool: ...
    @property
    def sleep(self) -> Callable[[float], Awaitable[object]]: ...
    def attempt(self, lease: Lease | None, time_left: float | None, report: CallReport) -> CallAttempt: ...
    def judge(self, reply: Reply) -> ProviderError | None: ...


Prepare: TypeAlias = Callable[[Target], Awaitable[TargetCall]]
Rewrite: TypeAlias = Callable[[Target, ProviderError], Awaitable[TargetCall | None]]


PreparePrefix: TypeAlias = Callable[[Target, str], Awaitable[TargetCall | None]]


class ModelCall:
    """One call. `waiting_seconds` is the time spent waiting for providers.

    `accepts_empty`: an empty answer of the last target is an answer, as it came. `request_id` names the call in the log; without
    one nothing is logged. `first_token`: seconds until the first visible output of a stream, where another target is left.
    `health`: targets with an open circuit are skipped, and results are reported to it. `continues`: `batches` lets another
    target finish an answer whose stream broke; `prepare_prefix` makes a request that continues a text, if the model can.
    `on_retry` is called before each wait.
    """

    _probe = 0
    _attempt_seconds = 0.0
    _continuation: Continuation | None = None
    _broken_by: ProviderError | None = None
    _is_prefilled = False
    _skipped: tuple[Target, ...] = ()
    """The targets that were left out because of their circuits."""
    _attempts_before_skip = 0
    _must_ask = False

    def __init__(
        self,
        targets: Sequence[Target],
        prepare: Prepare,
        report: CallReport,
        *,
        rewrite: Rewrite | None = None,
        accepts_empty: bool = False,
        request_id: str | None = None,
        first_token: float | None = None,
        health: TargetHealth | None = None,
        continues: bool = False,
        prepare_prefix: PreparePrefix | None = None,
        on_retry: Callable[[RetryScheduled], None] | None = None,
    ) -> None:
        self.waiting_seconds = 0.0
        self._continues = continues
        self._prepare_prefix = prepare_prefix
        self._on_retry = on_retry
        self._plan = RetryPlan(targets, report.fallbacks)
        self._prepare = prepare
        self._report = report
        self._rewrite = rewrite
        self._accepts_empty = accepts_empty
        self._request_id = request_id
        self._first_token = first_token
        self._health = health if health is not None else _NO_CIRCUITS

    def reply(self) -> Coroutine[Any, Any, Reply]:
        """The reply of the first target that answers. Raises `UpstreamFailed`, with the last error, if none does."""
        return self._perform(self._plan.first())

    @property
    def may_continue(self) -> bool:
        """Whether another target is left that could finish an answer."""
        return bool(self._plan.others)

    async def continued(self, continuation: Continuation, error: ProviderError) -> Reply:
        """The reply of the next target that answers, after the stream of the current one broke with `error`.

        Its deltas go through `continuation`. Raises `UpstreamFailed`, with the error of the first stream, if none answers.
        """
        self._broken_by = self._broken_by or error
        self._continuation = continuation
        self._health.on_failure(self._plan.target, 0, error)
        try:
            return await self._perform(self._plan.leave(error))
        except UpstreamFailed:
            raise UpstreamFailed(self._broken_by) from None

    async def _prepare_for(self, target: Target) -> TargetCall:
        """The request of a continuation: one that ends with the shown text, if the model can continue it."""
        continuation = self._continuation
        assert continuation is not None, "a stream broke"
        text = continuation.text.rstrip()
        prefilled = await self._prepare_prefix(target, text) if text and self._prepare_prefix is not None else None
        continuation.begin(is_prefilled=prefilled is not None)
        self._is_prefilled = prefilled is not None
        return prefilled or await self._prepare(target)

    async def _prepare_again(self, target: Target, error: ProviderError) -> TargetCall | None:
        """The request without what was refused: a prefix, or what `rewrite` finds."""
        if self._is_prefilled and self._continuation is not None and error.kind == "invalid_request":
            self._is_prefilled = False
            self._continuation.begin(is_prefilled=False)
            return await self._prepare(target)
        return await self._rewrite(target, error) if self._rewrite is not None else None

    async def _perform(self, step: Step) -> Reply:
        plan, health = self._plan, self._health
        while True:
            if isinstance(step, NextTarget):
                if health.is_watched and not self._must_ask and health.should_skip(step.target, plan.others):
                    self._skipped = (*self._skipped, step.target)
                    self._attempts_before_skip = len(self._report.attempts)
                    step = plan.skip(_CIRCUIT_OPEN)
                    continue
                try:
                    prepare = self._prepare if self._continuation is None else self._prepare_for
                    prepared = await prepare(step.target)
                except UpstreamFailed as failure:
                    step = plan.skip(failure.error)
                    continue
                if health.is_watched or self._probe:
                    self._probe = health.begin(step.target)
                    step = plan.begin(prepared.settings, is_probe=bool(self._probe))
                else:
                    step = plan.begin(prepared.settings)
            if isinstance(step, Send):
                attempt = prepared.attempt(step.lease, plan.time_left(), self._report)
                reply, error = await self._run(prepared, attempt)
                if reply is not None and (error is None or self._is_accepted(error)):
                    attempt.succeeded(reply)
                    if health.is_watched:
                        health.on_answer(plan.target, self._attempt_seconds)
                    return reply
                assert error is not None, "no reply without an error"
                is_empty = error is EMPTY_RESPONSE
                error = attempt.failed(error)
                if reply is not None:
                    await reply.aclose()
                target = plan.target
                health.on_failure(target, self._probe, error)
                rewritten = await self._prepare_again(target, error)
                if rewritten is not None:
                    prepared = rewritten
                    step = plan.begin(prepared.settings)
                    continue
                should_retry = "false" if is_empty and self._accepts_empty else attempt.should_retry
                if health.is_watched and health.should_skip(target, plan.others):
                    should_retry = "false"
                step = plan.after(error, should_retry=should_retry)
                self._log(target, error, step)
            elif isinstance(step, Wait):
                await self._wait(prepared, step)
                step = plan.resume()
            elif isinstance(step, GiveUp):
                if not self._skipped or len(self._report.attempts) > self._attempts_before_skip:
                    raise UpstreamFailed(step.error)
                # None of the others could be asked: trying is better than failing.
                step = plan.return_to(self._skipped, step.error)
                self._skipped, self._must_ask = (), True

    async def batches(self) -> AsyncGenerator[list[ModelOutputDelta], None]:
        """The deltas of the answer, as the library reads them; the last is terminal, and `Failed` if no target answered."""
        try:
            reply = await self.reply()
        except UpstreamFailed as failure:
            return _failed(failure.error)
        assert not isinstance(reply, WholeReply), "a stream was requested"
        return self._finished_elsewhere(reply) if self._continues and self.may_continue else reply.batches()

    async def _finished_elsewhere(
        self, reply: StreamReply | DeltaReply
    ) -> AsyncGenerator[list[ModelOutputDelta], None]:
        """The deltas of the answer; if its stream breaks, the next target finishes it."""
        continuation = Continuation()
        while True:
            failed: Failed | None = None
            async with aclosing(reply.batches()) as batches:
                async for batch in batches:
                    deltas = continuation.feed(batch)
                    if deltas and isinstance(deltas[-1], Failed):
                        failed, deltas = deltas[-1], deltas[:-1]
                    if deltas:
                        yield deltas
                    if failed is not None:
                        break
            if failed is None:
                return
            if not continuation.accepts(failed.error) or not self.may_continue:
                yield [Failed(self._broken_by or failed.error)]
                return
            try:
                following = await self.continued(continuation, failed.error)
            except UpstreamFailed as failure:
                yield [Failed(failure.error)]
                return
            assert not isinstance(following, WholeReply), "a stream was requested"
            reply = following

    def _is_accepted(self, error: ProviderError) -> bool:
        """Whether an empty answer is taken as it came, because no target is left."""
        return error is EMPTY_RESPONSE and self._accepts_empty and not self._plan.has_next(error)

    async def _run(self, prepared: TargetCall, attempt: CallAttempt) -> tuple[Reply | None, ProviderError | None]:
        """The reply to one attempt, and why it is not an answer."""
        limit = None
        if prepared.streams and self._plan.others:
            limit = self._plan.first_token_limit(self._first_token)
        began = time.monotonic()
        try:
            if limit is None:
                reply = await attempt.run()
            else:
                async with asyncio.timeout(limit):
                    reply = await attempt.run()
        except UpstreamFailed as failure:
            return None, failure.error
        except TimeoutError:
            assert limit is not None, "only the limit raises it"
            message = f"no output from {self._plan.target} within {limit:g} s (first-token timeout)"
            return None, ProviderError(message, "timeout", code="first_token_timeout")
        except BaseException:
            attempt.close()
            self._health.release(self._plan.target, self._probe)
            raise
        finally:
            self._attempt_seconds = time.monotonic() - began
            self.waiting_seconds += self._attempt_seconds
        return reply, prepared.judge(reply)

    async def _wait(self, prepared: TargetCall, step: Wait) -> None:
        began, seconds = time.monotonic(), step.seconds
        if self._on_retry is not None:
            at = datetime.now(UTC) + timedelta(seconds=seconds)
            self._on_retry(RetryScheduled(str(self._plan.target), seconds, at, step.error))
        try:
            if seconds:
                await prepared.sleep(seconds)
        finally:
            self.waiting_seconds += time.monotonic() - began

    def _log(self, target: Target, error: ProviderError, step: Step) -> None:
        if self._request_id is None:
            return
        if isinstance(step, NextTarget):
            text = "request %s: %s failed (%s); falling back to %s"
            logger.warning(text, self._request_id, target, error, step.target)
            return
        action = "retrying with another key"
        if isinstance(step, Wait):
            action = f"retrying in {step.seconds:.2f} s"
        elif isinstance(step, GiveUp):
            action = "giving up"
        logger.info("[%s] %s: %s (%s); %s", self._request_id, target, error.message, error.kind, action)


async def _failed(error: ProviderError) -> AsyncGenerator[list[ModelOutputDelta], None]:
    yield [Failed(error)]
