"""The pool of keys: its state machine step by step, its laws for any sequence of events, and that it keeps its secrets."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from antiphon.errors import CredentialError, NoUsableCredential
from antiphon.providers.keys.health import CooldownPolicy, CredentialStatus, KeyState
from antiphon.providers.keys.ring import KeyLease, KeyRing
from antiphon.providers.keys.secret import Credential, mask, read_headers, scrub
from antiphon.wire.output import ErrorKind, ProviderError
from support.examples import scaled

FIRST, SECOND, THIRD = "sk-first-key-000000aaaa", "sk-second-key-00000bbbb", "third-key-0000000000cccc"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def pool_of(*keys: str | Credential, waits: CooldownPolicy | None = None) -> tuple[KeyRing, Clock]:
    clock = Clock()
    return KeyRing(keys or (FIRST, SECOND), clock=clock, waits=waits), clock


def error(kind: ErrorKind, retry_after: float | None = None, message: str = "no") -> ProviderError:
    return ProviderError(message, kind, retry_after=retry_after)


def state(pool: KeyRing, place: int = 0) -> KeyState:
    return pool.status()[place].state


def test_keys_take_turns_by_weight_and_smoothly() -> None:
    pool, _ = pool_of(
        Credential(secret=FIRST, name="a", weight=5),
        Credential(secret=SECOND, name="b"),
        Credential(secret=THIRD, name="c"),
    )
    taken = [pool.acquire("m").name for _ in range(14)]
    assert taken[:7] == ["a", "a", "b", "a", "c", "a", "a"]
    assert Counter(taken) == {"a": 10, "b": 2, "c": 2}


def test_a_rate_limit_cools_the_key_for_that_model_alone() -> None:
    pool, clock = pool_of(FIRST)
    pool.acquire("large").failed(error("rate_limit", 20.0))
    with pytest.raises(NoUsableCredential, match=r"sk-…aaaa is rate limited for 20\.0 s; retry in 20\.0 s") as none:
        pool.acquire("large")
    assert none.value.retry_after == 20.0
    assert none.value.kind == "rate_limit"
    assert pool.acquire("small").secret == FIRST
    assert state(pool) == "healthy"
    assert pool.status()[0].models["large"].state == "cooling"
    clock.now += 20
    assert pool.status()[0].models["large"].state == "half_open"
    assert pool.acquire("large").is_probe


@pytest.mark.parametrize(
    ("kind", "expected", "reason"),
    [
        ("authentication", "healthy", "authentication"),
        ("billing", "exhausted", "billing"),
        ("permission", "healthy", "rate_limit"),
    ],
)
def test_key_states_after_each_kind_of_failure(kind: ErrorKind, expected: KeyState, reason: ErrorKind) -> None:
    pool, _ = pool_of(FIRST)
    pool.acquire("m").failed(error(kind))
    assert state(pool) == expected
    with pytest.raises(NoUsableCredential) as none:
        pool.acquire("m")
    assert none.value.kind == reason
    other_model_works = kind != "billing"
    if other_model_works:
        pool.acquire("other")
    else:
        with pytest.raises(NoUsableCredential):
            pool.acquire("other")


@pytest.mark.parametrize(
    "kind",
    ["server", "overloaded", "timeout", "stream_cut", "invalid_request", "context_length", "not_found", "unknown"],
)
def test_errors_of_the_request_do_not_cool_a_key(kind: ErrorKind) -> None:
    pool, _ = pool_of(FIRST)
    pool.acquire("m").failed(error(kind))
    assert state(pool) == "healthy"
    assert pool.acquire("m").secret == FIRST
    assert pool.status()[0].failures == 1


def test_a_probe_is_alone_and_its_success_heals() -> None:
    pool, clock = pool_of(FIRST)
    pool.acquire("m").failed(error("rate_limit", 5.0))
    clock.now += 5
    probe = pool.acquire("m")
    with pytest.raises(NoUsableCredential, match="is being probed by another call"):
        pool.acquire("m")
    probe.succeeded()
    assert not pool.acquire("m").is_probe
    assert pool.status()[0].models == {}


def test_a_probe_that_fails_cools_longer_up_to_a_bound() -> None:
    pool, clock = pool_of(FIRST, waits=CooldownPolicy(rate_limit=1.0, max_model_cooldown=6.0))
    waited = []
    lease = pool.acquire("m")
    for _ in range(5):
        lease.failed(error("rate_limit"))
        waited.append(pool.status()[0].models["m"].seconds)
        clock.now += waited[-1]
        lease = pool.acquire("m")
    assert waited == [1.0, 2.0, 4.0, 6.0, 6.0]


def test_calls_that_fail_together_count_once_and_the_latest_deadline_holds() -> None:
    pool, clock = pool_of(FIRST)
    together = [pool.acquire("m") for _ in range(5)]
    for wait, lease in zip((3.0, 9.0, 1.0, 2.0, 4.0), together, strict=True):
        lease.failed(error("rate_limit", wait))
    assert pool.status()[0].models["m"].seconds == 9.0
    clock.now += 9
    pool.acquire("m").failed(error("rate_limit", 1.0))
    assert pool.status()[0].models["m"].seconds == 18.0


def test_a_success_started_before_the_cooldown_does_not_end_it() -> None:
    pool, clock = pool_of(FIRST)
    before, limited = pool.acquire("m"), pool.acquire("m")
    limited.failed(error("rate_limit", 10.0))
    before.succeeded()
    assert pool.status()[0].models["m"].state == "cooling"
    clock.now += 10
    assert pool.acquire("m").is_probe


def test_a_probe_does_not_heal_what_was_prolonged_while_it_ran() -> None:
    pool, clock = pool_of(FIRST)
    limited, late = pool.acquire("m"), pool.acquire("m")
    limited.failed(error("rate_limit", 5.0))
    clock.now += 5
    probe = pool.acquire("m")
    late.failed(error("rate_limit", 30.0))
    probe.succeeded()
    assert pool.status()[0].models["m"].seconds == 30.0


def test_a_probe_that_was_given_up_or_lost_makes_room_for_another() -> None:
    pool, clock = pool_of(FIRST, waits=CooldownPolicy(probe=60.0))
    pool.acquire("m").failed(error("billing", 5.0))
    clock.now += 5
    pool.acquire("m").release()
    pool.acquire("m").failed(error("timeout"))
    lost = pool.acquire("m")
    clock.now += 60
    probe = pool.acquire("m")
    lost.succeeded()  # too late: the probe is another's now
    assert state(pool) == "half_open"
    probe.succeeded()
    assert state(pool) == "healthy"


def test_an_absurd_wait_is_bounded() -> None:
    pool, _ = pool_of(FIRST, waits=CooldownPolicy(max_retry_after=100.0))
    pool.acquire("m").failed(error("rate_limit", 1e9))
    assert pool.status()[0].models["m"].seconds == 100.0


def test_a_key_can_be_switched_off_and_on() -> None:
    pool, _ = pool_of(Credential(secret=FIRST, name="mine"))
    pool.acquire("m").failed(error("authentication"))
    pool.disable("mine")
    assert state(pool) == "disabled"
    with pytest.raises(NoUsableCredential, match="mine is disabled; replace a key or enable one") as none:
        pool.acquire("m")
    assert none.value.retry_after is None
    pool.enable("mine")
    assert state(pool) == "healthy"
    pool.acquire("m").succeeded()
    with pytest.raises(CredentialError, match="unknown key 'yours'; known keys: mine"):
        pool.enable("yours")


def test_a_refused_key_that_was_replaced_where_it_comes_from_is_a_new_key(tmp_path: Path) -> None:
    place = tmp_path / "key"
    place.write_text(f"{FIRST}\n")
    pool = KeyRing([f"file:{place}"])
    old = pool.acquire("m")
    stale = pool.acquire("m")
    old.failed(error("authentication"))
    with pytest.raises(NoUsableCredential, match=r"is rejected for 120\.0 s"):
        pool.acquire("m")
    place.write_text(SECOND)
    assert pool.acquire("m").secret == SECOND
    stale.failed(error("authentication"))
    assert state(pool) == "healthy"
    assert pool.status()[0].masked == "sk-…bbbb"


def test_secrets_are_read_from_literals_variables_and_files(tmp_path: Path) -> None:
    place = tmp_path / "key"
    place.write_text(f"  {SECOND}\n")
    pool = KeyRing([FIRST, f"file:{place}", "env:MINE"], environ={"MINE": THIRD})
    assert pool.secrets == (FIRST, SECOND, THIRD)
    assert repr(pool) == "KeyRing(sk-…aaaa, file:key, env:MINE)"


@pytest.mark.parametrize(
    ("secret", "message"),
    [
        ("env:NOT_SET", "environment variable NOT_SET is not set"),
        ("file:/nowhere/at/all", "cannot read the key file /nowhere/at/all: No such file"),
        ("file:~no-such-user/key", "cannot read the key file '~no-such-user/key': not a valid path"),
        ("file:a\0b", "not a valid path"),
        ("", "is empty"),
        ("sk-two-lines\r\nX-Evil: 1", "contains characters that an HTTP header cannot carry"),
        ("sk-schlüssel-000000", "contains characters that an HTTP header cannot carry"),
    ],
)
def test_an_unusable_secret_is_refused_without_showing_it(secret: str, message: str) -> None:
    with pytest.raises(CredentialError, match=message) as refused:
        KeyRing([secret], environ={})
    assert "Evil" not in str(refused.value)
    assert "schlüssel" not in str(refused.value)


def test_a_pool_without_keys_or_with_a_weightless_one_is_refused() -> None:
    with pytest.raises(CredentialError, match="at least one key"):
        KeyRing([])
    with pytest.raises(CredentialError, match=r"weight of key sk-…aaaa is 0"):
        Credential(secret=FIRST, weight=0)


def test_two_similar_keys_have_two_names() -> None:
    pool = KeyRing(["sk-one-0000000000-wxyz", "sk-two-0000000000-wxyz"])
    assert [status.name for status in pool.status()] == ["sk-…wxyz", "sk-…wxyz #2"]


@pytest.mark.parametrize(
    ("secret", "shown"),
    [("sk-abcdefghijklwxyz", "sk-…wxyz"), ("abcdefghijklmnop", "…mnop"), ("sk-short", "…"), ("", "…")],
)
def test_masking_shows_the_last_four_at_most(secret: str, shown: str) -> None:
    assert mask(secret) == shown


def test_a_key_repeated_in_an_error_is_scrubbed_everywhere() -> None:
    scrubbed = ProviderError(
        f"bad key {FIRST}!", "authentication", 401, FIRST, native={"openai-chat": {"deep": [{"key": f"x{FIRST}y"}]}}
    )
    pool, _ = pool_of(FIRST)
    pool.acquire("m").failed(scrubbed)
    shown = repr(pool.status())
    assert FIRST not in shown
    assert "bad key sk-…aaaa!" in shown
    clean = ProviderError("nothing here")
    assert scrub(clean, [FIRST]) is clean


def test_header_values_read_from_env_or_file_are_secret() -> None:
    headers = {"X-Team": "env:TEAM", "Authorization": "Basic dXNlcjpwYXNz", "X-Plain": "two words"}
    values, secrets = read_headers(headers, {"TEAM": "blue-team-pass"})
    assert values == {"x-team": "blue-team-pass", "authorization": "Basic dXNlcjpwYXNz", "x-plain": "two words"}
    assert secrets == ("blue-team-pass", "Basic dXNlcjpwYXNz", "dXNlcjpwYXNz")


def test_the_longest_secret_is_masked_first() -> None:
    scrubbed = scrub(ProviderError("bad: sk-abcdefgh-abcdefgh"), ["sk-abcdefgh", "sk-abcdefgh-abcdefgh"])
    assert scrubbed.message == "bad: sk-…efgh"


def test_threads_share_a_pool_fairly() -> None:
    pool = KeyRing([FIRST, SECOND])

    def use() -> None:
        for _ in range(200):
            pool.acquire("m").succeeded()

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(key.calls, key.successes) for key in pool.status()] == [(400, 400), (400, 400)]


NAMES, MODELS = ("a", "b", "c"), ("m", "n")
KINDS: list[ErrorKind] = ["rate_limit", "billing", "authentication", "permission", "server", "timeout"]


class PoolMachine(RuleBasedStateMachine):
    """Any events in any order: what must hold of the pool all the while."""

    leases = Bundle("leases")

    @initialize()
    def begin(self) -> None:
        self.clock = Clock()
        secrets = dict(zip(NAMES, (FIRST, SECOND, THIRD), strict=True))
        self.pool = KeyRing(
            [Credential(secret=secrets[name], name=name, weight=place + 1) for place, name in enumerate(NAMES)],
            clock=self.clock,
        )
        self.before = self.statuses()

    def statuses(self) -> dict[str, CredentialStatus]:
        return {status.name: status for status in self.pool.status()}

    def remember(self) -> None:
        self.before, self.at = self.statuses(), self.clock.now

    @rule(target=leases, model=st.sampled_from(MODELS))
    def acquire(self, model: str) -> tuple[KeyLease, str]:
        self.remember()
        lease = self.lease_or_when(model)
        if not isinstance(lease, KeyLease):
            if lease is None:
                assert all(key.state == "disabled" for key in self.before.values())
                return self.acquire_after_enabling(model)
            assert lease > 0
            if not self.is_probed():
                self.clock.now += lease * 0.999
                with pytest.raises(NoUsableCredential):
                    self.pool.acquire(model)
                lease *= 0.001
            lease = self.look_again(model, lease)
        key = self.before[lease.name]
        if "invalid" in (key.state, key.models[model].state if model in key.models else ""):
            assert lease.is_probe  # it was rejected some time ago, and no other key is left
            assert not any(other.state == "healthy" and model not in other.models for other in self.before.values())
            return lease, model
        assert key.state in ("healthy", "half_open")
        assert model not in key.models or key.models[model].state == "half_open"
        assert lease.is_probe == (key.state == "half_open" or model in key.models)
        return lease, model

    def lease_or_when(self, model: str) -> KeyLease | float | None:
        try:
            return self.pool.acquire(model)
        except NoUsableCredential as none:
            return none.retry_after

    def look_again(self, model: str, seconds: float) -> KeyLease:
        """The promise is kept, unless another call probes the key: when that ends is not known; at the latest it is lost."""
        until = self.clock.now + 601
        found: KeyLease | float | None = seconds
        while not isinstance(found, KeyLease):
            assert found is not None
            assert self.clock.now < until
            self.clock.now += found + 1e-6
            self.before = self.statuses()
            found = self.lease_or_when(model)
            assert isinstance(found, KeyLease) or self.is_probed()
        return found

    def is_probed(self) -> bool:
        """Whether a call that has not ended probes a key."""
        return any(cooldown.probe for key in self.pool._keys for cooldown in key.cooldowns.values())

    def acquire_after_enabling(self, model: str) -> tuple[KeyLease, str]:
        for name in NAMES:
            self.pool.enable(name)
        return self.pool.acquire(model), model

    @rule(lent=consumes(leases))
    def succeed(self, lent: tuple[KeyLease, str]) -> None:
        self.remember()
        lease, _ = lent
        lease.succeeded()
        after = self.statuses()[lease.name]
        if not lease.is_probe:
            assert after.models.keys() == self.before[lease.name].models.keys()
            assert after.state == self.before[lease.name].state

    @rule(lent=leases, kind=st.sampled_from(KINDS), wait=st.none() | st.floats(0.1, 1000))
    def fail(self, lent: tuple[KeyLease, str], kind: ErrorKind, wait: float | None) -> None:
        self.remember()
        lease, model = lent
        lease.failed(error(kind, wait))
        before, after = self.before[lease.name], self.statuses()[lease.name]
        if before.state != "disabled" and kind == "authentication":
            assert max(after.seconds, after.models[model].seconds if model in after.models else 0.0) >= 120.0 - 1e-6
        if kind in ("rate_limit", "permission"):
            assert after.models[model].seconds >= (wait or 0.0) - 1e-6
            assert {name: value for name, value in after.models.items() if name != model} == {
                name: value for name, value in before.models.items() if name != model
            }
        if kind == "billing":
            assert after.seconds >= (wait or 0.0) - 1e-6
        if kind in ("server", "timeout"):
            assert (after.state, after.models) == (before.state, before.models)
        for model_name, known in before.models.items():  # deadlines only move forward
            assert after.models[model_name].seconds >= known.seconds
        assert after.seconds >= before.seconds

    @rule(lent=leases)
    def release(self, lent: tuple[KeyLease, str]) -> None:
        self.remember()
        lent[0].release()
        assert self.statuses() == self.before

    @rule(seconds=st.floats(0.0, 2000.0))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule(name=st.sampled_from(NAMES), is_on=st.booleans())
    def switch(self, name: str, is_on: bool) -> None:
        (self.pool.enable if is_on else self.pool.disable)(name)
        assert self.statuses()[name].state == ("healthy" if is_on else "disabled")

    @invariant()
    def nothing_secret_is_shown(self) -> None:
        shown = repr(self.pool) + repr(self.pool.status())
        assert not any(secret in shown for secret in (FIRST, SECOND, THIRD))


PoolMachine.TestCase.settings = settings(max_examples=scaled(15), stateful_step_count=40, deadline=None)
TestPoolMachine = PoolMachine.TestCase


def test_the_only_key_is_tried_again_soon_after_a_rejection() -> None:
    pool, clock = pool_of(FIRST)
    pool.acquire("m").failed(error("authentication"))
    with pytest.raises(NoUsableCredential, match=r"is rejected for 120\.0 s; retry in 5\.0 s"):
        pool.acquire("m")
    clock.now += 5
    probe = pool.acquire("m")
    assert probe.is_probe
    with pytest.raises(NoUsableCredential, match="being probed"):
        pool.acquire("m")  # one at a time
    probe.succeeded()
    assert state(pool) == "healthy"
    assert not pool.acquire("m").is_probe


def test_the_only_key_that_is_rejected_again_waits_again() -> None:
    pool, clock = pool_of(FIRST)
    pool.acquire("m").failed(error("authentication"))
    for _ in range(3):
        clock.now += 5
        pool.acquire("m").failed(error("authentication"))
        clock.now += 4
        with pytest.raises(NoUsableCredential, match="is rejected"):
            pool.acquire("m")


def test_a_rejected_key_rests_while_another_one_works() -> None:
    pool, clock = pool_of()
    rejected = pool.acquire("m")
    rejected.failed(error("authentication"))
    clock.now += 60
    used = {pool.acquire("m").secret for _ in range(4)}
    assert len(used) == 1
    assert rejected.secret not in used


def test_a_disabled_or_limited_key_is_not_tried_early() -> None:
    pool, clock = pool_of(FIRST)
    pool.acquire("m").failed(error("authentication"))
    pool.disable(pool.status()[0].name)
    clock.now += 60
    with pytest.raises(NoUsableCredential, match="is disabled"):
        pool.acquire("m")
    pool.enable(pool.status()[0].name)
    pool.acquire("m").failed(error("rate_limit", retry_after=30))
    clock.now += 10
    with pytest.raises(NoUsableCredential, match="is rate limited"):
        pool.acquire("m")


def test_a_retry_uses_the_only_key_at_once() -> None:
    pool, _ = pool_of(FIRST)
    pool.acquire("m").failed(error("authentication"))
    with pytest.raises(NoUsableCredential, match="retry in 5"):
        pool.acquire("m")
    pool.retry_rejected()
    pool.acquire("m").failed(error("authentication"))
    with pytest.raises(NoUsableCredential):
        pool.acquire("m")
    two, _ = pool_of(FIRST, SECOND)
    two.acquire("m").failed(error("authentication"))
    two.retry_rejected()
    assert {two.acquire("m").name for _ in range(4)} == {"sk-…bbbb"}, "there is another key"
