"""`ProviderCall`: a call with all its attempts: other keys, retries, other targets, until one answers or none is left.

The only loop of its kind: the library's clients and every endpoint of the gateway call models through it. `prepare` makes the
request for a target when its turn comes, or raises `UpstreamFailed` if that target cannot take it; a refused request may be
prepared once more by `rewrite`. An attempt is over when its reply is judged: a stream is an answer from its first visible delta
on, a whole body once it was read. Nothing is sent again after that. After a failure a `RetryPlan` says whether the same target is
asked again, and then another one follows. Every attempt is in the report.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Protocol, TypeAlias

from msgspec import Struct, structs

from antiphon.errors import NoUsableCredential
from antiphon.providers.call import CallReport, Fallback, RetryScheduled
from antiphon.providers.engine.continuation import Continuation
from antiphon.providers.engine.reply import (
    EMPTY_RESPONSE,
    CallAttempt,
    DeltaReply,
    Outcome,
    Reply,
    UpstreamFailed,
    WholeReply,
    error_from_credential,
)
from antiphon.providers.keys.ring import KeyLease, KeyRing
from antiphon.providers.keys.target_health import CircuitPolicy, TargetHealth
from antiphon.providers.retry import RetryPlan, Upstream, fallback_targets
from antiphon.providers.routes import Target
from antiphon.wire.delta import Failed, ModelOutputDelta
from antiphon.wire.output import ProviderError

logger = logging.getLogger("antiphon.providers")

_CIRCUIT_OPEN = ProviderError("the circuit is open after failures in a row", "overloaded", code="circuit_open")
_NO_CIRCUITS = TargetHealth(CircuitPolicy(failures=0))


class TargetCall(Protocol):
    """A request prepared for one target. It may be sent several times, if it is repeatable."""

    @property
    def provider(self) -> Upstream: ...
    @property
    def is_repeatable(self) -> bool: ...
    @property
    def streams(self) -> bool: ...
    @property
    def takes_keys_in_order(self) -> bool: ...
    @property
    def preferred_key(self) -> str: ...
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

    _left: Sequence[Target] = ()
    """The target that is asked, and those that may follow."""
    _prepared: TargetCall | None = None
    """What is sent to that target; None if it is not prepared yet."""
    _plan: RetryPlan | None = None
    """What may still be tried with that request, once an attempt failed."""
    _failed: list[tuple[Target, KeyRing | None, ProviderError]] = []
    """The targets that were asked in vain, with their keys and errors."""
    _skipped: list[Target] = []
    """The targets that were left out because of their circuits."""
    _attempts_before_skip: int = 0
    _must_ask: bool = False
    _probe: int = 0
    _continuation: Continuation | None = None
    _broken_by: ProviderError | None = None

    async def reply(self) -> Reply:
        """The reply of the first target that answers. Raises `UpstreamFailed`, with the last error, if none does."""
        health, lease = self.health, None
        self._left = self._left or self.targets
        try:
            while True:
                target, *others = self._left
                prepared, plan = self._prepared, self._plan
                if prepared is None:
                    if health.is_watched and not self._must_ask and health.should_skip(target, others):
                        self._skipped.append(target)
                        self._attempts_before_skip = len(self.report.attempts)
                        self._skip(_CIRCUIT_OPEN)
                        continue
                    try:
                        prepared = await (self.prepare if self._continuation is None else self._prepare_rest)(target)
                    except UpstreamFailed as failure:
                        self._skip(failure.error)
                        continue
                    self._prepared = prepared
                    self._probe = health.begin(target) if health.is_watched or self._probe else 0
                upstream, total, lease = prepared.provider, prepared.provider.timeouts.total, None
                if plan is None:
                    began = 0.0 if total is None else upstream.clock()
                else:
                    lease, plan.lease = plan.lease, None
                if lease is None and upstream.keys is not None:
                    try:
                        lease = upstream.keys.acquire(
                            target.model, in_order=prepared.takes_keys_in_order, preferred=prepared.preferred_key
                        )
                    except NoUsableCredential as none:
                        plan = plan or RetryPlan(prepared, began, is_probe=bool(self._probe and others))
                        await self._wait_or_leave(plan, error_from_credential(none, "no_usable_credential"))
                        continue
                if self.on_send is not None:
                    self.on_send(self.report, target, lease)
                attempt = prepared.attempt(lease, total if plan is None else plan.time_left(), self.report)
                asked_at = time.monotonic()
                reply, error = await (
                    self._run_limited(attempt, upstream, target) if others and prepared.streams else attempt.run()
                )
                is_accepted = error is EMPTY_RESPONSE and self.accepts_empty and not others
                if reply is not None and (error is None or is_accepted):
                    attempt.succeeded(reply)
                    if health.is_watched:
                        health.on_answer(target, time.monotonic() - asked_at)
                    return reply
                plan = plan or RetryPlan(prepared, began, is_probe=bool(self._probe and others))
                await self._after_failure(plan, attempt, reply, error)
        except BaseException:
            if lease is not None:
                lease.release()
            health.release(self._left[0], self._probe)
            raise

    @property
    def may_continue(self) -> bool:
        """Whether another target is left that could finish an answer."""
        return len(self._left) > 1

    async def continued(self, continuation: Continuation, error: ProviderError) -> Reply:
        """The reply of the next target that answers, after the stream of the current one broke with `error`.

        Its deltas go through `continuation`. Raises `UpstreamFailed`, with the error of the first stream, if none can or does.
        """
        self._broken_by = self._broken_by or error
        if not continuation.accepts(error) or not self.may_continue:
            raise UpstreamFailed(self._broken_by)
        self._continuation = continuation
        self.health.on_failure(self._left[0], 0, error)
        try:
            self._leave(error, fallback_targets(error, self._left))
            return await self.reply()
        except UpstreamFailed:
            raise UpstreamFailed(self._broken_by) from None

    async def _prepare_rest(self, target: Target) -> TargetCall:
        """The request of a continuation: one that ends with the shown text, if the model can continue it."""
        continuation = self._continuation
        assert continuation is not None, "a stream broke"
        text = continuation.text.rstrip()
        prefilled = await self.prepare_prefix(target, text) if text and self.prepare_prefix is not None else None
        continuation.begin(is_prefilled=prefilled is not None)
        return prefilled or await self.prepare(target)

    async def _prepare_again(self, target: Target, error: ProviderError) -> TargetCall | None:
        """The request without what was refused: a prefix, or what `rewrite` finds."""
        continuation = self._continuation
        if continuation is not None and continuation.is_prefilled and error.kind == "invalid_request":
            continuation.begin(is_prefilled=False)
            return await self.prepare(target)
        return await self.rewrite(target, error) if self.rewrite is not None else None

    async def _after_failure(
        self, plan: RetryPlan, attempt: CallAttempt, reply: Reply | None, error: ProviderError | None
    ) -> None:
        """Choose what is sent after a failed attempt: the same request, another one for the target, or one for the next."""
        assert error is not None, "no reply without an error"
        health, target, others = self.health, self._left[0], self._left[1:]
        is_accepted = error is EMPTY_RESPONSE and self.accepts_empty
        error = attempt.failed(error)
        if reply is not None:
            await reply.aclose()
        health.on_failure(target, self._probe, error)
        rewritten = await self._prepare_again(target, error)
        if rewritten is not None:
            self._prepared, self._plan = rewritten, None
        elif plan.rotate(target.model, error):
            self._plan = plan
            self._log(error, "retrying with another key")
        else:
            is_skipped = health.is_watched and health.should_skip(target, others)
            advice = "false" if is_accepted or is_skipped else attempt.should_retry
            await self._wait_or_leave(plan, error, advice, is_logged=True)

    async def _wait_or_leave(
        self, plan: RetryPlan, error: ProviderError, advice: str | None = None, *, is_logged: bool = False
    ) -> None:
        """Wait before the same request is sent again, if that may help; else leave the target. See `may_retry` for `advice`."""
        target, others = self._left[0], fallback_targets(error, self._left)
        seconds = plan.delay(error, advice, has_others=bool(others))
        if is_logged:
            action = f"retrying in {seconds:.2f} s" if seconds is not None else "giving up"
            self._log(error, action, others if seconds is None else ())
        if seconds is None:
            self._failed.append((target, plan.upstream.keys, error))
            self._leave(error, others)
            return
        self._plan = plan
        began = time.monotonic()
        if self.on_retry is not None:
            at = datetime.now(UTC) + timedelta(seconds=seconds)
            self.on_retry(RetryScheduled(str(target), seconds, at, error))
        try:
            if seconds:
                await plan.upstream.sleep(seconds)
        finally:
            self.report.waiting_seconds += time.monotonic() - began

    def _skip(self, error: ProviderError) -> None:
        """The target cannot take the request at all. The error counts only if no target was asked before."""
        others = self._left[1:]
        self._leave(error if others or not self._failed else self._failed[-1][2], others)

    def _leave(self, error: ProviderError, others: Sequence[Target]) -> None:
        """Go on to the first of the others. Raises `UpstreamFailed` if there is none."""
        if not others:
            if not self._skipped or len(self.report.attempts) > self._attempts_before_skip:
                raise UpstreamFailed(self._with_applied_wait(error))
            # None of the others could be asked: trying is better than failing.
            others, self._skipped, self._must_ask = self._skipped, [], True
        if self._probe:  # without a usable key it has no result
            self.health.release(self._left[0], self._probe)
        self.report.fallbacks.append(Fallback(str(self._left[0]), str(others[0]), error))
        self._left, self._prepared, self._plan = others, None, None

    def _with_applied_wait(self, error: ProviderError) -> ProviderError:
        """The error with the wait that the next call really meets, if rate limits are the reason."""
        waits = [keys.retry_after(target.model) for target, keys, _ in self._failed if keys is not None]
        if error.kind != "rate_limit" or not waits:
            return error
        if self._failed[-1][1] is None:
            waits.append(error.retry_after or 0.0)
        soonest = min(waits)
        return structs.replace(error, retry_after=soonest if 0.0 < soonest < inf else None)

    async def _run_limited(self, attempt: CallAttempt, upstream: Upstream, target: Target) -> Outcome:
        """An attempt whose first visible output is waited for only so long, because another target is left."""
        own = upstream.timeouts.first_token
        limit = self.first_token if own is None else own
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

    async def _finished_elsewhere(self, reply: DeltaReply) -> AsyncGenerator[list[ModelOutputDelta], None]:
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
            try:
                following = await self.continued(continuation, failed.error)
            except UpstreamFailed as failure:
                yield [Failed(failure.error)]
                return
            assert not isinstance(following, WholeReply), "a stream was requested"
            reply = following

    def _log(self, error: ProviderError, action: str, others: Sequence[Target] = ()) -> None:
        if self.request_id is None:
            return
        if others:
            text = "request %s: %s failed (%s); falling back to %s"
            logger.warning(text, self.request_id, self._left[0], error, others[0])
        else:
            logger.info("[%s] %s: %s (%s); %s", self.request_id, self._left[0], error.message, error.kind, action)


async def _failed(error: ProviderError) -> AsyncGenerator[list[ModelOutputDelta], None]:
    yield [Failed(error)]
