"""`ProviderCall`: a call with all its attempts: other keys, retries, other targets, until one answers or none is left.

The only loop of its kind: the library's clients and every endpoint of the gateway call models through it. The first target is
asked directly; a `RetryPlan` exists only after a failure, and names each further step. `prepare` makes the request for a target
when its turn comes, or raises `UpstreamFailed` if that target cannot take it; a refused request may be prepared once more by
`rewrite`. An attempt is over when its reply is judged: a stream is an answer from its first visible delta on, a whole body once
it was read. Nothing is sent again after that. Every attempt is in the report.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Protocol, TypeAlias

from msgspec import Struct

from antiphon.errors import NoUsableCredential
from antiphon.providers.call import CallReport, RetryScheduled
from antiphon.providers.engine.continuation import Continuation
from antiphon.providers.engine.reply import (
    EMPTY_RESPONSE,
    DeltaReply,
    Outcome,
    Reply,
    StreamReply,
    UpstreamFailed,
    WholeReply,
)
from antiphon.providers.keys.ring import KeyLease
from antiphon.providers.keys.target_health import CircuitPolicy, TargetHealth
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
    async def run(self) -> Outcome:
        """The reply and why it is not an answer. The time that it waited is in the report."""

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
    def attempt(self, lease: KeyLease | None, time_left: float | None, report: CallReport) -> CallAttempt: ...


Prepare: TypeAlias = Callable[[Target], Awaitable[TargetCall]]
Rewrite: TypeAlias = Callable[[Target, ProviderError], Awaitable[TargetCall | None]]
PreparePrefix: TypeAlias = Callable[[Target, str], Awaitable[TargetCall | None]]


class ProviderCall(Struct, eq=False):
    """One call. The time spent waiting for providers is in the report."""

    targets: Sequence[Target]
    prepare: Prepare
    report: CallReport
    rewrite: Rewrite | None = None
    """Prepares a refused request once more."""
    accepts_empty: bool = False
    """Whether an empty answer of the last target is an answer, as it came."""
    request_id: str | None = None
    """Names the call in the log; without one nothing is logged."""
    first_token: float | None = None
    """Seconds until the first visible output of a stream, where another target is left."""
    health: TargetHealth = _NO_CIRCUITS
    """Targets with an open circuit are skipped, and results are reported to it."""
    continues: bool = False
    """Whether `batches` lets another target finish an answer whose stream broke."""
    prepare_prefix: PreparePrefix | None = None
    """Makes a request that continues a text, if the model can."""
    on_retry: Callable[[RetryScheduled], None] | None = None
    """Is called before each wait."""
    on_send: Callable[[CallReport, Target, KeyLease | None], None] | None = None
    """Is called before each attempt is sent."""

    _plan: RetryPlan | None = None
    _probe: int = 0
    _continuation: Continuation | None = None
    _broken_by: ProviderError | None = None
    _is_prefilled: bool = False
    _skipped: tuple[Target, ...] = ()
    """The targets that were left out because of their circuits."""
    _attempts_before_skip: int = 0
    _must_ask: bool = False

    async def reply(self) -> Reply:
        """The reply of the first target that answers. Raises `UpstreamFailed`, with the last error, if none does."""
        if self.health.is_watched:
            return await self._perform(self._new_plan().first())
        target, report = self.targets[0], self.report
        try:
            prepared = await self.prepare(target)
        except UpstreamFailed as failure:
            return await self._perform(self._new_plan().skip(failure.error))
        settings, lease = prepared.settings, None
        if settings.keys is not None:
            try:
                lease = settings.keys.acquire(
                    target.model, in_order=settings.takes_keys_in_order, preferred=settings.preferred_key
                )
            except NoUsableCredential:
                return await self._perform(self._new_plan().begin(settings), prepared)
        if self.on_send is not None:
            self.on_send(report, target, lease)
        at = 0.0 if settings.total is None else settings.clock()
        attempt = prepared.attempt(lease, settings.total, report)
        if len(self.targets) == 1 or not prepared.streams:
            reply, error = await attempt.run()
        else:
            reply, error = await self._run_limited(attempt, settings, target)
        if reply is not None and (error is None or self._is_accepted(error)):
            attempt.succeeded(reply)
            return reply
        plan = self._new_plan()
        plan.continue_from(settings, at)
        return await self._perform(await self._after(plan, attempt, reply, error), prepared)

    @property
    def may_continue(self) -> bool:
        """Whether another target is left that could finish an answer."""
        return len(self.targets) > 1 if self._plan is None else bool(self._plan.others)

    async def continued(self, continuation: Continuation, error: ProviderError) -> Reply:
        """The reply of the next target that answers, after the stream of the current one broke with `error`.

        Its deltas go through `continuation`. Raises `UpstreamFailed`, with the error of the first stream, if none answers.
        """
        plan = self._plan or self._new_plan()
        self._broken_by = self._broken_by or error
        self._continuation = continuation
        self.health.on_failure(plan.target, 0, error)
        try:
            return await self._perform(plan.leave(error))
        except UpstreamFailed:
            raise UpstreamFailed(self._broken_by) from None

    def _new_plan(self) -> RetryPlan:
        plan = self._plan = RetryPlan(self.targets, self.report.fallbacks)
        return plan

    async def _prepare_for(self, target: Target) -> TargetCall:
        """The request of a continuation: one that ends with the shown text, if the model can continue it."""
        continuation = self._continuation
        assert continuation is not None, "a stream broke"
        text = continuation.text.rstrip()
        prefilled = await self.prepare_prefix(target, text) if text and self.prepare_prefix is not None else None
        continuation.begin(is_prefilled=prefilled is not None)
        self._is_prefilled = prefilled is not None
        return prefilled or await self.prepare(target)

    async def _prepare_again(self, target: Target, error: ProviderError) -> TargetCall | None:
        """The request without what was refused: a prefix, or what `rewrite` finds."""
        if self._is_prefilled and self._continuation is not None and error.kind == "invalid_request":
            self._is_prefilled = False
            self._continuation.begin(is_prefilled=False)
            return await self.prepare(target)
        return await self.rewrite(target, error) if self.rewrite is not None else None

    async def _perform(self, step: Step | TargetCall, prepared: TargetCall | None = None) -> Reply:
        """Take one step after the other until a target answers. A request that was prepared once more is begun again."""
        plan, health = self._plan, self.health
        assert plan is not None, "something failed"
        while True:
            if isinstance(step, NextTarget):
                if health.is_watched and not self._must_ask and health.should_skip(step.target, plan.others):
                    self._skipped = (*self._skipped, step.target)
                    self._attempts_before_skip = len(self.report.attempts)
                    step = plan.skip(_CIRCUIT_OPEN)
                    continue
                try:
                    prepare = self.prepare if self._continuation is None else self._prepare_for
                    prepared = await prepare(step.target)
                except UpstreamFailed as failure:
                    step = plan.skip(failure.error)
                    continue
                self._probe = health.begin(step.target) if health.is_watched or self._probe else 0
                step = plan.begin(prepared.settings, is_probe=bool(self._probe))
            elif isinstance(step, Send):
                assert prepared is not None, "it is sent"
                if self.on_send is not None:
                    self.on_send(self.report, plan.target, step.lease)
                attempt, began = prepared.attempt(step.lease, plan.time_left(), self.report), time.monotonic()
                try:
                    limited = prepared.streams and bool(plan.others)
                    running = self._run_limited(attempt, prepared.settings, plan.target) if limited else attempt.run()
                    reply, error = await running
                except BaseException:
                    health.release(plan.target, self._probe)
                    raise
                if reply is not None and (error is None or self._is_accepted(error)):
                    attempt.succeeded(reply)
                    if health.is_watched:
                        health.on_answer(plan.target, time.monotonic() - began)
                    return reply
                step = await self._after(plan, attempt, reply, error)
            elif isinstance(step, Wait):
                assert prepared is not None, "it waits between two attempts"
                await self._wait(prepared, plan.target, step)
                step = plan.resume()
            elif isinstance(step, GiveUp):
                if not self._skipped or len(self.report.attempts) > self._attempts_before_skip:
                    raise UpstreamFailed(step.error)
                # None of the others could be asked: trying is better than failing.
                step = plan.return_to(self._skipped, step.error)
                self._skipped, self._must_ask = (), True
            else:
                prepared = step
                step = plan.begin(prepared.settings)

    async def _after(
        self, plan: RetryPlan, attempt: CallAttempt, reply: Reply | None, error: ProviderError | None
    ) -> Step | TargetCall:
        """What follows a failed attempt: a step of the plan, or the request prepared once more."""
        assert error is not None, "no reply without an error"
        health, target, is_empty = self.health, plan.target, error is EMPTY_RESPONSE
        error = attempt.failed(error)
        if reply is not None:
            await reply.aclose()
        health.on_failure(target, self._probe, error)
        rewritten = await self._prepare_again(target, error)
        if rewritten is not None:
            return rewritten
        should_retry = "false" if is_empty and self.accepts_empty else attempt.should_retry
        if health.is_watched and health.should_skip(target, plan.others):
            should_retry = "false"
        step = plan.after(error, should_retry=should_retry)
        self._log(target, error, step)
        return step

    async def _run_limited(self, attempt: CallAttempt, settings: RetrySettings, target: Target) -> Outcome:
        """An attempt whose first visible output is waited for only so long, because another target is left."""
        limit = self.first_token if settings.first_token is None else settings.first_token
        if limit is None:
            return await attempt.run()
        try:
            async with asyncio.timeout(limit):
                return await attempt.run()
        except TimeoutError:
            message = f"no output from {target} within {limit:g} s (first-token timeout)"
            return None, ProviderError(message, "timeout", code="first_token_timeout")

    async def batches(self) -> AsyncGenerator[list[ModelOutputDelta], None]:
        """The deltas of the answer, as the library reads them; the last is terminal, and `Failed` if no target answered."""
        try:
            reply = await self.reply()
        except UpstreamFailed as failure:
            return _failed(failure.error)
        assert not isinstance(reply, WholeReply), "a stream was requested"
        return self._finished_elsewhere(reply) if self.continues and self.may_continue else reply.batches()

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
        if error is not EMPTY_RESPONSE or not self.accepts_empty:
            return False
        return not (self._plan or RetryPlan(self.targets)).has_next(error)

    async def _wait(self, prepared: TargetCall, target: Target, step: Wait) -> None:
        began, seconds = time.monotonic(), step.seconds
        if self.on_retry is not None:
            at = datetime.now(UTC) + timedelta(seconds=seconds)
            self.on_retry(RetryScheduled(str(target), seconds, at, step.error))
        try:
            if seconds:
                await prepared.sleep(seconds)
        finally:
            self.report.waiting_seconds += time.monotonic() - began

    def _log(self, target: Target, error: ProviderError, step: Step) -> None:
        if self.request_id is None:
            return
        if isinstance(step, NextTarget):
            text = "request %s: %s failed (%s); falling back to %s"
            logger.warning(text, self.request_id, target, error, step.target)
            return
        action = "retrying with another key"
        if isinstance(step, Wait):
            action = f"retrying in {step.seconds:.2f} s"
        elif isinstance(step, GiveUp):
            action = "giving up"
        logger.info("[%s] %s: %s (%s); %s", self.request_id, target, error.message, error.kind, action)


async def _failed(error: ProviderError) -> AsyncGenerator[list[ModelOutputDelta], None]:
    yield [Failed(error)]
