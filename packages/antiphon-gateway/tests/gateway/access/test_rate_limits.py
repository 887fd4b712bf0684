"""Limits: no client gets more in a minute than it may, and none waits longer than its Retry-After."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon_gateway.access.accounts import ClientAccounts
from antiphon_gateway.access.client_keys import ClientKey
from antiphon_gateway.share.counts import Buckets


class Clock:
    """A clock that is advanced by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class RateLimits:
    """The limits of clients in a process that counts alone."""

    def __init__(self, clock: Clock) -> None:
        self.buckets = Buckets(clock=clock)
        self._accounts = ClientAccounts(self.buckets)
        self.charge_tokens = self._accounts.charge

    def try_admit(self, client: ClientKey) -> float | None:
        """None if a request is admitted, else the seconds until it is."""
        reached = asyncio.run(self._accounts.limit_reached(client, costs=True))
        return None if reached is None else reached.wait


def test_requests_a_minute() -> None:
    clock = Clock()
    limits = RateLimits(clock)
    key = ClientKey(name="a", requests_per_minute=3)
    assert [limits.try_admit(key) for _ in range(3)] == [None] * 3
    assert limits.try_admit(key) == pytest.approx(20.0)
    clock.now += 19.0
    assert limits.try_admit(key) == pytest.approx(1.0)
    clock.now += 1.0
    assert limits.try_admit(key) is None
    assert limits.try_admit(key) == pytest.approx(20.0)


def test_tokens_are_a_debt_that_is_paid_by_waiting() -> None:
    clock = Clock()
    limits = RateLimits(clock)
    key = ClientKey(name="a", tokens_per_minute=600)
    assert limits.try_admit(key) is None
    limits.charge_tokens(key, 1800)
    wait = limits.try_admit(key)
    assert wait == pytest.approx(120.1)
    clock.now += 120.2
    assert limits.try_admit(key) is None


def test_a_rejected_request_is_not_charged() -> None:
    clock = Clock()
    limits = RateLimits(clock)
    key = ClientKey(name="a", requests_per_minute=2, tokens_per_minute=60)
    assert limits.try_admit(key) is None
    limits.charge_tokens(key, 60)
    for _ in range(5):
        assert limits.try_admit(key) == pytest.approx(1.0)
    clock.now += 1.0
    assert limits.try_admit(key) is None


def test_unlimited_means_unlimited_and_clients_do_not_share() -> None:
    limits = RateLimits(Clock())
    free, tight, other = (
        ClientKey(name="free"),
        ClientKey(name="tight", requests_per_minute=1),
        ClientKey(name="other", requests_per_minute=1),
    )
    limits.charge_tokens(free, 10**12)
    assert [limits.try_admit(free) for _ in range(1000)] == [None] * 1000
    assert (limits.try_admit(tight), limits.try_admit(other)) == (None, None)
    assert limits.try_admit(tight) is not None


def test_a_reload_keeps_what_was_used_and_changes_the_limit() -> None:
    clock = Clock()
    limits = RateLimits(clock)
    for _ in range(10):
        limits.try_admit(ClientKey(name="a", requests_per_minute=10))
    assert limits.try_admit(ClientKey(name="a", requests_per_minute=10, strict=True)) == pytest.approx(6.0)
    assert limits.try_admit(ClientKey(name="a", requests_per_minute=60)) == pytest.approx(1.0)
    clock.now += 3600.0
    tighter = ClientKey(name="a", requests_per_minute=2)
    assert [limits.try_admit(tighter) is None for _ in range(3)] == [True, True, False]


def test_full_buckets_that_are_idle_are_forgotten_and_no_others() -> None:
    clock = Clock()
    limits = RateLimits(clock)
    debtor, recent = ClientKey(name="debtor", tokens_per_minute=1), ClientKey(name="recent", requests_per_minute=600)
    assert limits.try_admit(debtor) is None
    limits.charge_tokens(debtor, 3)
    for number in range(1000):
        limits.try_admit(ClientKey(name=str(number), requests_per_minute=5, tokens_per_minute=5))
    clock.now += 61.0
    assert limits.try_admit(recent) is None
    clock.now += 1.0
    asyncio.run(limits.buckets.exchange())
    assert [*limits.buckets._buckets] == ["debtor:tokens", "recent:requests"]
    assert limits.try_admit(debtor) is not None
    clock.now += 180.0
    asyncio.run(limits.buckets.exchange())
    assert not limits.buckets._buckets


def test_a_clock_step_back_grants_no_requests() -> None:
    clock = Clock()
    limits = RateLimits(clock)
    key = ClientKey(name="a", requests_per_minute=1)
    limits.try_admit(key)
    clock.now -= 500.0
    assert limits.try_admit(key) == pytest.approx(60.0)


@given(
    st.integers(1, 20),
    st.integers(1, 500),
    st.lists(st.tuples(st.floats(0, 30), st.integers(0, 400)), max_size=60),
)
def test_admissions_never_exceed_the_limits(requests: int, tokens: int, steps: list[tuple[float, int]]) -> None:
    clock = Clock()
    limits = RateLimits(clock)
    key = ClientKey(name="a", requests_per_minute=requests, tokens_per_minute=tokens)
    began, admitted, spent, last = clock.now, 0, 0, 0
    for pause, cost in steps:
        clock.now += pause
        wait = limits.try_admit(key)
        if wait is None:
            admitted += 1
            last = cost
            spent += cost
            limits.charge_tokens(key, cost)
        else:
            assert wait > 0
            # A client that waits for Retry-After is admitted.
            clock.now += wait * (1 + 1e-9)
            assert limits.try_admit(key) is None
            admitted += 1
            last = 0
        minutes = (clock.now - began) / 60
        assert admitted <= requests * (1 + minutes) + 1e-6
        assert spent - last <= tokens * (1 + minutes) + 1e-6
