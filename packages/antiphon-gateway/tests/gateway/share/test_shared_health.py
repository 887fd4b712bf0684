"""What processes know of keys comes to the same for all of them, whatever the order; through a real server, without a secret."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.providers.keys.health import CooldownPolicy
from antiphon.providers.keys.ring import KeyLease, KeyRing
from antiphon.providers.keys.secret import Credential
from antiphon.providers.keys.sharing import NO_COOLDOWNS, RETENTION_SECONDS, SharedHealth
from antiphon.wire.output import ErrorKind, ProviderError
from antiphon_gateway.config.references import parse_store_url
from antiphon_gateway.share.redis_state import RedisState, from_sorted_set, to_sorted_set
from antiphon_gateway.share.state import key_fingerprint, sync_health
from support.valkey_server import ValkeyServer, running

SECRET, OTHER = "sk-a-secret-that-stays-hidden-1111", "sk-another-secret-unseen-2222"
ADDRESS = "https://api.example/v1"

FACETS = st.sampled_from(["refused", "exhausted", "model gpt-5", "model with a space", "model "])
TIMES = st.dictionaries(FACETS, st.integers(1, 9).map(lambda second: second + 0.125), max_size=4)
STANDINGS = st.builds(
    SharedHealth, generation=st.integers(0, 2), is_disabled=st.booleans(), until=TIMES, cleared=TIMES
)  # few times and generations, so that they meet


# The law: standings are a join-semilattice.


@given(STANDINGS, STANDINGS, STANDINGS)
def test_joining_is_commutative_associative_and_idempotent(
    one: SharedHealth, two: SharedHealth, three: SharedHealth
) -> None:
    assert one.merge(two) == two.merge(one)
    assert one.merge(two).merge(three) == one.merge(two.merge(three))
    assert one.merge(one) is one
    assert one.merge(NO_COOLDOWNS) == one == NO_COOLDOWNS.merge(one)
    assert one.merge(two).merge(two) == one.merge(two)


@given(st.lists(STANDINGS, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_order_and_repetition_of_messages_do_not_matter(
    messages_sent: list[SharedHealth], chance: random.Random
) -> None:
    def merged(messages: list[SharedHealth]) -> SharedHealth:
        known = NO_COOLDOWNS
        for message in messages:
            known = known.merge(message)
        return known

    again = messages_sent + chance.choices(messages_sent, k=4)
    chance.shuffle(again)
    assert merged(again) == merged(messages_sent)


@given(STANDINGS, STANDINGS)
def test_a_join_is_never_less_than_what_was_joined(one: SharedHealth, two: SharedHealth) -> None:
    merge = one.merge(two)
    for known in (one, two):
        assert merge.generation >= known.generation
        if merge.generation == known.generation:
            assert merge.is_disabled >= known.is_disabled
            assert all(merge.until[facet] >= at for facet, at in known.until.items())
            assert all(merge.cleared[facet] >= at for facet, at in known.cleared.items())


@given(STANDINGS, STANDINGS)
def test_the_store_joins_as_we_do(one: SharedHealth, two: SharedHealth) -> None:
    """A sorted set to which both were added with `ZADD GT` is the join."""
    stored = dict(to_sorted_set(one, 1.0))
    for member, score in to_sorted_set(two, 2.0).items():
        stored[member] = max(score, stored.get(member, score))
    assert from_sorted_set(word for pair in stored.items() for word in pair) == one.merge(two)


@given(STANDINGS, st.integers(-(10**9), 10**9))
def test_a_time_that_goes_to_another_clock_and_back_is_the_same(standing: SharedHealth, milliseconds: int) -> None:
    offset = milliseconds / 1000
    assert standing.shift_clock(offset).shift_clock(-offset) == standing


# What pools do with it.


class Clock:
    def __init__(self) -> None:
        self.now = 10_000.0

    def __call__(self) -> float:
        return self.now


def named(secret: str) -> str:
    return key_fingerprint(secret, address=ADDRESS, key=b"k")


def error(kind: ErrorKind, retry_after: float | None = None) -> ProviderError:
    return ProviderError("no", kind, retry_after=retry_after)


def pools_of(count: int = 2) -> tuple[list[KeyRing], Clock]:
    clock = Clock()
    return [KeyRing([Credential(secret=SECRET, name="k")], clock=clock) for _ in range(count)], clock


def exported(ring: KeyRing) -> dict[str, SharedHealth]:
    return {named(secret): health.export() for secret, health in ring.shared}


def learn(ring: KeyRing, message: Mapping[str, SharedHealth]) -> None:
    for secret, health in ring.shared:
        if found := message.get(named(secret)):
            health.merge(found)


def tell(source: KeyRing, *targets: KeyRing) -> None:
    for target in targets:
        learn(target, exported(source))


def test_cooldowns_and_their_ends_are_shared() -> None:
    (one, two), clock = pools_of()
    one.acquire("m").failed(error("rate_limit", 20))
    tell(one, two)
    assert two.status()[0].models["m"].seconds == pytest.approx(20)
    two.acquire("other").succeeded()
    clock.now += 20
    probe = two.acquire("m")
    assert probe.is_probe
    probe.succeeded()
    tell(two, one)
    assert one.status()[0].models == {}
    tell(one, two)  # what is over is not shared again
    assert two.status()[0].models == {}


def test_a_recovery_does_not_end_a_longer_cooldown_of_another_process() -> None:
    (one, two), clock = pools_of()
    one.acquire("m").failed(error("rate_limit", 20))
    tell(one, two)
    clock.now += 20
    probe = two.acquire("m")
    one.acquire("m").failed(error("rate_limit", 60))  # the other one does not know
    probe.succeeded()
    tell(two, one)
    tell(one, two)
    for pool in (one, two):
        assert pool.status()[0].models["m"].seconds == pytest.approx(60)


def test_a_failure_after_a_shared_cooldown_doubles_it_except_for_running_calls() -> None:
    (one, two), clock = pools_of()
    under_way = two.acquire("m")
    one.acquire("m").failed(error("rate_limit", 8))
    tell(one, two)
    under_way.failed(error("rate_limit"))
    assert two.status()[0].models["m"].seconds == pytest.approx(8)
    clock.now += 8
    two.acquire("m").failed(error("rate_limit"))
    assert two.status()[0].models["m"].seconds == pytest.approx(16)
    clock.now += 16
    probe = two.acquire("m")
    one.acquire("m").failed(error("rate_limit", 40))
    tell(one, two)
    probe.failed(error("rate_limit"))
    assert two.status()[0].models["m"].seconds == pytest.approx(40)


def test_a_rejection_is_known_to_all_and_cleared_for_all_when_the_key_works() -> None:
    (one, two, three), clock = pools_of(3)
    for model in ("m", "n"):
        one.acquire(model).failed(error("authentication"))
    tell(one, two, three)
    assert [pool.status()[0].state for pool in (one, two, three)] == ["invalid"] * 3
    clock.now += CooldownPolicy().rejected
    assert [pool.status()[0].state for pool in (one, two, three)] == ["half_open"] * 3
    two.acquire("m").failed(error("authentication"))
    tell(two, one, three)
    assert [pool.status()[0].state for pool in (one, two, three)] == ["invalid"] * 3
    assert three.status()[0].seconds == pytest.approx(2 * CooldownPolicy().rejected)
    clock.now += 2 * CooldownPolicy().rejected
    three.acquire("m").succeeded()
    tell(three, two, one)
    assert [pool.status()[0].state for pool in (one, two, three)] == ["healthy"] * 3


def test_operator_changes_are_shared_and_disabling_wins() -> None:
    (one, two), _ = pools_of()
    one.acquire("m").failed(error("billing", 6000))
    tell(one, two)
    before = exported(one)
    two.enable("k")
    tell(two, one)
    learn(two, before)  # what comes late is of another time
    assert [pool.status()[0].state for pool in (one, two)] == ["healthy"] * 2
    one.acquire("m").failed(error("billing", 30))  # shorter than what was forgiven, and still shared
    tell(one, two)
    assert two.status()[0].seconds == pytest.approx(30)
    one.disable("k")
    two.enable("k")
    tell(one, two)
    tell(two, one)
    assert [pool.status()[0].state for pool in (one, two)] == ["disabled"] * 2
    one.enable("k")
    tell(one, two)
    assert two.status()[0].state == "healthy"


def test_a_replaced_secret_is_another_key() -> None:
    environ = {"KEY": SECRET}
    one, two = (KeyRing(["env:KEY"], environ=environ) for _ in range(2))
    one.acquire("m").failed(error("authentication"))
    tell(one, two)
    environ["KEY"] = OTHER
    assert two.acquire("m").secret == OTHER
    tell(one, two)
    assert two.status()[0].state == "healthy"
    assert exported(one).keys() != exported(two).keys()


def test_expired_cooldowns_and_invalid_names_are_not_shared() -> None:
    (one, _), clock = pools_of()
    for model in ("m", "x" * 300, "line\nbreak", "half \ud800"):
        one.acquire(model).failed(error("rate_limit", 5))
    assert set(exported(one)[named(SECRET)].until) == {"model m"}
    clock.now += 5
    one.acquire("m").succeeded()
    assert set(exported(one)[named(SECRET)].cleared) == {"model m"}
    clock.now += RETENTION_SECONDS
    assert exported(one) == {named(SECRET): NO_COOLDOWNS}


def test_a_key_that_another_process_rejected_is_not_probed_at_once() -> None:
    (one, two), clock = pools_of()
    outcome(one, "m", "authentication", 1)
    tell(one, two)
    assert not key_free(two, "m")
    clock.now += CooldownPolicy().retry_rejected
    assert key_free(two, "m")  # there is no other


EVENTS = st.lists(
    st.tuples(
        st.integers(0, 2),  # whose turn it is
        st.sampled_from(
            ["rate_limit", "billing", "authentication", "success", "tell", "wait", "disable", "enable", "reload"]
        ),
        st.sampled_from(["m", "n"]),
        st.integers(1, 40),
    ),
    max_size=40,
)


@given(EVENTS, st.randoms(use_true_random=False))
def test_all_processes_converge_after_any_events(
    events: list[tuple[int, str, str, int]], chance: random.Random
) -> None:
    pools, clock = pools_of(3)
    sent: list[dict[str, SharedHealth]] = []
    for place, event, model, number in events:
        pool = pools[place]
        if event == "wait":
            clock.now += number
        elif event == "tell":  # received late, twice or never
            sent.append(exported(pool))
            for message in chance.sample(sent, k=min(2, len(sent))):
                learn(pools[number % 3], message)
        elif event in ("disable", "enable"):
            getattr(pool, event)("k")
        elif event == "reload":
            pools[place] = KeyRing([Credential(secret=SECRET, name="k")], previous=pool)
        else:
            outcome(pool, model, event, number)
    _share_all(pools, chance)
    messages_sent = [exported(pool)[named(SECRET)] for pool in pools]
    assert (
        messages_sent[0].merge(messages_sent[1]).merge(messages_sent[2]).active
        == messages_sent[0].active
        == messages_sent[1].active
        == messages_sent[2].active
    )
    assert len({one.generation for one in messages_sent}) == len({one.is_disabled for one in messages_sent}) == 1
    clock.now += CooldownPolicy().retry_rejected  # counted from when a process learned of it
    free = {model: {key_free(pool, model) for pool in pools} for model in ("m", "n")}
    # A reload waives deadlines in its own process alone.
    assert all(len(times) == 1 for times in free.values()) or any(event == "reload" for _, event, _, _ in events)


def outcome(pool: KeyRing, model: str, event: str, seconds: int) -> None:
    from antiphon.errors import NoUsableCredential

    try:
        lease: KeyLease = pool.acquire(model)
    except NoUsableCredential:
        return
    if event == "success":
        lease.succeeded()
    else:
        lease.failed(error(event, seconds))  # type: ignore[arg-type]


def key_free(pool: KeyRing, model: str) -> bool:
    from antiphon.errors import NoUsableCredential

    try:
        pool.acquire(model).release()
    except NoUsableCredential:
        return False
    return True


def _share_all(pools: list[KeyRing], chance: random.Random) -> None:
    ways = [(one, other) for one in pools for other in pools if one is not other] * 2
    chance.shuffle(ways)
    for source, target in [*ways, *((one, other) for one in pools for other in pools)]:
        tell(source, target)


# Through a real server.


@pytest.fixture
def server() -> Iterator[ValkeyServer]:
    with running() as server:
        yield server


class Process(NamedTuple):
    store: RedisState
    pool: KeyRing

    async def sync(self) -> None:
        await sync_health(self.store, lambda: [(ADDRESS, secret, health) for secret, health in self.pool.shared])


@asynccontextmanager
async def sharing(server: ValkeyServer, *pools: KeyRing) -> AsyncIterator[list[Process]]:
    """Each pool as if in a process of its own."""
    found = []
    for pool in pools:
        store = RedisState(parse_store_url(server.address), timeout=10.0)
        await store.connect()
        found.append(Process(store, pool))
    try:
        yield found
    finally:
        for process in found:
            await process.store.aclose()


def fresh() -> KeyRing:
    return KeyRing([Credential(secret=SECRET, name="one"), Credential(secret=OTHER, name="two")])


def states(pool: KeyRing) -> list[str]:
    return [status.models["m"].state if status.models else status.state for status in pool.status()]


def test_key_health_is_shared_without_secrets(server: ValkeyServer) -> None:
    async def run() -> None:
        one, two, late = fresh(), fresh(), fresh()
        async with sharing(server, one, two, late) as (first, second, third):
            await first.sync()
            await second.sync()
            one.acquire("m").failed(error("rate_limit", 100))
            two.acquire("m").release()
            two.acquire("m").failed(error("authentication"))
            for standings in (first, second, first):
                await standings.sync()
            assert states(one) == states(two) == ["cooling", "invalid"]
            assert one.status()[0].models["m"].seconds == pytest.approx(two.status()[0].models["m"].seconds, abs=1)
            two.enable("two")
            one.disable("one")
            for standings in (second, first, second, third):
                await standings.sync()
            assert [pool.status()[0].state for pool in (one, two, late)] == ["disabled"] * 3
            assert [pool.status()[1].state for pool in (one, two, late)] == ["healthy"] * 3

    asyncio.run(run())
    kept = server.ask("KEYS", "*")
    messages_sent = " ".join([*kept, *(str(server.ask("ZRANGE", key, "0", "-1")) for key in kept if ":key:" in key)])
    assert len([key for key in kept if ":key:" in key]) == 2
    assert "model m" in messages_sent
    assert SECRET not in messages_sent
    assert OTHER not in messages_sent
    assert all(int(server.ask("TTL", key)) > 0 for key in kept)


def test_a_late_write_with_older_state_undoes_nothing(server: ValkeyServer) -> None:
    async def run() -> None:
        one = fresh()
        async with sharing(server, one, fresh()) as (first, _):
            store = first.store
            one.acquire("m").failed(error("rate_limit", 100))
            await first.sync()
            name = key_fingerprint(SECRET, address=ADDRESS, key=store.key)
            await store._write({name: SharedHealth(until={"model m": store.clock() + 1.0})})
            [score] = await store.execute([("ZSCORE", f"antiphon:key:{name}", "0 until model m")])
            assert float(score) > store.clock() + 50

    asyncio.run(run())


def test_no_reads_or_writes_without_changes(server: ValkeyServer) -> None:
    async def run() -> None:
        one, two = fresh(), fresh()
        one.acquire("m").failed(error("rate_limit", 100))
        async with sharing(server, one, two) as (first, second):
            store = first.store
            for _ in range(3):
                await first.sync()
                await second.sync()
            mark = await store.execute([("GET", "antiphon:mark")])
            before = int(server.ask("INFO", "stats")["total_commands_processed"])
            for _ in range(10):
                await first.sync()
                await second.sync()
            assert await store.execute([("GET", "antiphon:mark")]) == mark
            asked = int(server.ask("INFO", "stats")["total_commands_processed"]) - before
            assert asked < 20 + 10  # one GET each time, and what we ask ourselves

    asyncio.run(run())


def test_a_flushed_server_is_filled_again(server: ValkeyServer) -> None:
    async def run() -> None:
        one, two, late = fresh(), fresh(), fresh()
        one.acquire("m").failed(error("billing", 100))
        two.acquire("m").release()
        two.acquire("m").failed(error("rate_limit", 100))
        async with sharing(server, one, two, late) as (first, second, third):
            for standings in (first, second, first):
                await standings.sync()
            server.ask("FLUSHALL")
            await first.sync()
            await third.sync()
            assert states(late) == states(one) == states(two) == ["exhausted", "cooling"]

    asyncio.run(run())


def test_keys_for_another_address_or_with_another_password_are_others() -> None:
    names = {
        key_fingerprint(SECRET, address=address, key=key)
        for address in (ADDRESS, f"{ADDRESS}/v2")
        for key in (b"a", b"b")
    }
    assert len(names) == 4
    assert all(SECRET not in name and len(name) == 32 for name in names)


def test_fields_of_a_later_version_are_ignored() -> None:
    assert from_sorted_set(["0 until model m", "5.5", "0 blessed", "1", "nothing", "2"]) == SharedHealth(
        until={"model m": 5.5}
    )
