"""`RunMeter`: compares what a run uses with its limits, also while an answer streams and over agents that work as tools.

The figures are those of the log (`RunTotals`) and of the calls that are in flight: there is nothing else to count. An agent that
works as a tool has a meter of its own whose `caller` is the meter of the run: it has its own limits and what is left of its
caller's, and what it uses counts for both at once.

Money is checked in three steps. Before a call, its prompt is priced, and the answer may be as long as what is left can pay
(`ModelCallAllowance.max_output_tokens`), so that the provider itself stops. While it streams, deltas are counted, and a call that
passes what is left is ended. And the price of one last answer is held back, so that a run ends with an answer; if not even that
can be paid, it ends without one and says so. A price that is not known is an error before the first call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from decimal import Decimal
from time import monotonic
from typing import Any, Self, TypeVar

from msgspec import structs

from antiphon.context.tokens import estimate_tokens
from antiphon.conversation.events import EndReason
from antiphon.conversation.run import RunLimits, RunTotals
from antiphon.conversation.turn import Turn
from antiphon.errors import CallRefused, ConversationError
from antiphon.history import Origin
from antiphon.parts import TokenUsage
from antiphon.prices import PriceTable, cost_of
from antiphon.wire.capabilities import capabilities_for
from antiphon.wire.delta import ModelOutputDelta, PartDelta, PartStarted, UsageReported
from antiphon.wire.request import ModelRequest

LAST_ANSWER_TOKENS = 1_000
"""How long a last answer may be: what is held back for it."""
_SHORTEST_ANSWER_TOKENS = 50
"""An answer that may not even be so long is not asked for."""
_LONG_ANSWER_TOKENS = 32_000
"""Longer than what a model writes unasked, where its own limit is not known."""
_SAMPLE_TOKENS = 1_000


class ModelCallAllowance:
    """What one call of a limited run may use, and what it has used by our own count."""

    __slots__ = ("_meter", "_price", "_reported", "_tokens", "has_shortened", "max_output_tokens", "prompt_tokens")

    def __init__(self, meter: RunMeter, prompt_tokens: int, price: ModelCallPrice | None, most: int | None) -> None:
        self._meter = meter
        self._price = price
        self._tokens = 0.0
        self._reported = 0
        self.prompt_tokens = prompt_tokens
        self.max_output_tokens = most
        """How many tokens of an answer the run can pay; None if money does not limit it."""
        self.has_shortened = False
        """Whether the answer may be shorter than it could be otherwise."""

    def shorten(self, settings: ModelRequest, model: str) -> ModelRequest:
        """The settings of the call, with an answer that the run can pay."""
        most = self.max_output_tokens
        longest = settings.max_output_tokens or capabilities_for(model, "").max_output_tokens or _LONG_ANSWER_TOKENS
        if most is None or most >= longest:
            return settings
        self.has_shortened = True
        return structs.replace(settings, max_output_tokens=most)

    def begin(self) -> None:
        """The call is made: from now on it counts for the run."""
        self._meter.in_flight.add(self)

    def end(self) -> None:
        """The log has what the call used."""
        self._meter.in_flight.discard(self)

    def can_go_on(self, delta: ModelOutputDelta) -> bool:
        """Count a delta of the answer; False if the run cannot pay for more."""
        kind: Any = type(delta)
        counted: Any = delta
        if kind is PartDelta:
            self._tokens += estimate_tokens(counted.text)
        elif kind is PartStarted:
            part = counted.part
            self._tokens += estimate_tokens(getattr(part, "text", "") or getattr(part, "arguments", ""))
        elif kind is UsageReported:
            self._reported = counted.usage.completion_tokens
        else:
            return True
        return self._price is None or self._meter.cost_left >= 0

    @property
    def cost(self) -> Decimal:
        """What the call has cost so far, by our count."""
        return Decimal(0) if self._price is None else self._price.prompt + self._price.per_token * self._output_tokens

    @property
    def _output_tokens(self) -> int:
        return max(self._reported, math.ceil(self._tokens))

    def missing_in(self, reported: TokenUsage | None, *, is_complete: bool) -> TokenUsage | None:
        """What the call used by our count and `reported` does not have; None if the provider reported it all."""
        reported = reported or TokenUsage()
        if is_complete and reported.total:
            return None
        prompt = 0 if reported.prompt_tokens else self.prompt_tokens
        missing = TokenUsage(prompt, max(0, self._output_tokens - reported.completion_tokens))
        return missing if missing.total else None


class ModelCallPrice:
    """The price of a call: of its prompt, and of each token of its answer. Of several targets, the highest."""

    __slots__ = ("per_token", "prompt")

    def __init__(self, prompt: Decimal, per_token: Decimal) -> None:
        self.prompt = prompt
        self.per_token = per_token

    @classmethod
    def of(
        cls, targets: Iterable[Origin], prices: PriceTable | None, prompt_tokens: int, cached_tokens: int
    ) -> ModelCallPrice:
        """Raises `ConversationError` if the price of a target is not known."""
        prompt = per_token = Decimal(0)
        for target in targets:
            cached = min(cached_tokens, prompt_tokens)
            asked, answered = (
                cost_of(TokenUsage(prompt_tokens, output, cached), target.model, target.provider, table=prices)
                for output in (0, _SAMPLE_TOKENS)
            )
            if asked is None or answered is None:
                raise ConversationError(
                    f"max_cost cannot be checked: the price of {target.name} is not known. Give it with "
                    f"Conversation(prices=PriceTable([PriceOverride(model={target.model!r}, input=…, output=…)])), in dollars "
                    "per million tokens, or leave max_cost out"
                )
            prompt = max(prompt, asked.total)
            per_token = max(per_token, (answered.total - asked.total) / _SAMPLE_TOKENS)
        return cls(prompt, per_token)

    def tokens_for(self, money: Decimal) -> int:
        """How long an answer may be that costs at most `money`; a free model has no end."""
        left = money - self.prompt
        if left < 0:
            return 0
        return int(left / self.per_token) if self.per_token else _ENDLESS


_ENDLESS = 1 << 40


class RunMeter:
    """Compares what a run uses with its limits. `caller` is the meter of the run in which an agent works as a tool.

    While such an agent works, what it uses is not yet in its caller's log: `children` are the meters of those agents.
    """

    def __init__(self, limits: RunLimits, totals: Callable[[], RunTotals], caller: RunMeter | None = None) -> None:
        self.limits = limits
        self.children: set[RunMeter] = set()
        self.seconds = limits.max_seconds
        """The time limit: the shortest that applies, or None."""
        self.limits_calls = limits.max_calls is not None
        self.limits_cost = limits.max_cost is not None
        self.counts_tokens = self.limits_cost or limits.max_tokens is not None
        """Whether calls that report no usage must be counted here."""
        if caller is not None:
            self.seconds = _least(self.seconds, caller.seconds)
            self.limits_calls = self.limits_calls or caller.limits_calls
            self.limits_cost = self.limits_cost or caller.limits_cost
            self.counts_tokens = self.counts_tokens or caller.counts_tokens
        self._limits_run = self.counts_tokens or self.limits_calls or self.seconds is not None
        self._totals = totals
        self._caller = caller
        self.in_flight: set[ModelCallAllowance] = set()
        """The calls of this run that the log does not have yet."""
        self._started = math.inf

    def __enter__(self) -> Self:
        """From now on, count for the caller's run."""
        if self._caller is not None:
            self._caller.children.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        """The caller's log has what was used."""
        if self._caller is not None:
            self._caller.children.discard(self)

    def start(self) -> None:
        """Start the clock, at what the log has of the run."""
        if self._started == math.inf:
            self._started = monotonic() - (self._totals().seconds if self.limits.max_seconds is not None else 0.0)

    @property
    def prices(self) -> PriceTable | None:
        """The prices of the run, if they are not the list prices."""
        return self._totals().prices

    # What is used, and what is left.

    @property
    def tokens(self) -> int:
        """The tokens of the run so far."""
        return self._totals().tokens + sum(child.tokens for child in self.children)

    @property
    def calls(self) -> int:
        """The tool calls of the run so far."""
        return self._totals().calls + sum(child.calls for child in self.children)

    @property
    def cost(self) -> Decimal:
        """What the run has cost so far, with the calls that are in flight."""
        cost = self._totals().spend.total
        for call in self.in_flight:
            cost += call.cost
        for child in self.children:
            cost += child.cost
        return cost

    @property
    def unpriced_calls(self) -> int:
        """The calls of the run whose cost is not known."""
        return self._totals().spend.unpriced_calls + sum(child.unpriced_calls for child in self.children)

    @property
    def cost_left(self) -> Decimal:
        """What is left of the money, below 0 if too much was used; infinite without a limit."""
        own = self.limits.max_cost
        left = Decimal("Infinity") if own is None else Decimal(str(own)) - self.cost
        return left if self._caller is None else min(left, self._caller.cost_left)

    @property
    def seconds_left(self) -> float | None:
        """What is left of the time; None if it has no limit."""
        own = self.limits.max_seconds
        left = None if own is None else self._started + own - monotonic()
        return left if self._caller is None else _least(left, self._caller.seconds_left)

    @property
    def calls_left(self) -> int | None:
        """What is left of the tool calls, below 0 if too many were made; None if they have no limit."""
        own = self.limits.max_calls
        left = None if own is None else own - self.calls
        return left if self._caller is None else _least(left, self._caller.calls_left)

    @property
    def has_hand_off_left(self) -> bool:
        """Whether another agent may take over in this run."""
        return self._totals().hand_offs < self.limits.max_hand_offs

    def exceeded(self, turn: Turn) -> tuple[EndReason, str] | None:
        """The limit that is reached, if any, and the text about it that the model sees."""
        limits = self.limits
        reason: EndReason | None = None
        if turn.rounds >= limits.max_rounds:
            reason = "max_rounds"
        elif turn.failed_rounds >= limits.max_failed_rounds:
            reason = "failed_rounds"
        elif turn.repeats >= limits.max_repeats > 0:
            reason = "repeated_calls"
        if reason is not None:
            return reason, limits.notice(reason, turn)
        return self.exceeded_by_run(turn) if self._limits_run else None

    def exceeded_by_run(self, turn: Turn) -> tuple[EndReason, str] | None:
        """The same, of the limits of the run alone."""
        if not self._limits_run:
            return None
        limits = self.limits
        reason: EndReason | None = None
        if limits.max_tokens is not None and self.tokens >= limits.max_tokens:
            reason = "token_budget"
        elif limits.max_cost is not None and (
            self.cost >= Decimal(str(limits.max_cost)) or self.unpriced_calls
        ):  # what cannot be counted may be too much
            reason = "cost_budget"
        elif limits.max_calls is not None and self.calls >= limits.max_calls:
            reason = "call_budget"
        elif limits.max_seconds is not None and monotonic() - self._started >= limits.max_seconds:
            reason = "time_budget"
        if reason is not None:
            return reason, limits.notice(reason, turn)
        return None if self._caller is None else self._caller.exceeded_by_run(turn)

    # One call.

    def allow(
        self, price: ModelCallPrice | None, prompt_tokens: int, *, keeps_last_answer: bool
    ) -> ModelCallAllowance | None:
        """What a call may use; None if the run cannot pay for it, or not for a last answer after it (`keeps_last_answer`)."""
        most: int | None = None
        if price is not None:
            held_back = price.prompt + price.per_token * LAST_ANSWER_TOKENS if keeps_last_answer else Decimal(0)
            most = price.tokens_for(self.cost_left - held_back)
            if most < _SHORTEST_ANSWER_TOKENS:
                return None
        return ModelCallAllowance(self, prompt_tokens, price, most)

    def allow_aside(
        self, purpose: str, turn: Turn, price: ModelCallPrice | None, prompt_tokens: int
    ) -> ModelCallAllowance | None:
        """What a side call may use; None if nothing limits it. Raises `CallRefused` if the run has nothing left for it."""
        if reached := self.exceeded_by_run(turn):
            raise CallRefused(f"no {purpose}: {reached[0]}: the run has come to its limit")
        if not self.counts_tokens:
            return None
        allowance = self.allow(price, prompt_tokens, keeps_last_answer=True)
        if allowance is None:
            raise CallRefused(f"no {purpose}: cost_budget: the run cannot pay for it")
        return allowance


N = TypeVar("N", int, float)


def _least(one: N | None, other: N | None) -> N | None:
    """The smaller of two limits, where None means that there is none."""
    return other if one is None else one if other is None else min(one, other)


current_meter: ContextVar[RunMeter | None] = ContextVar("current_meter", default=None)
"""The meter of the run whose tools are running here."""
