"""L13 bounded, the gateway: whatever clients send, it keeps about as many bytes as `max_buffered_bytes` allows.

A table of attacks (`bench.memory.attacks`) against a gateway in a process of its own: bodies in tiny pieces, forms without a key,
messages of WebSockets, answers in the background, what is stored. Each sends several times the limit. The memory in use grows by
at most 1.5 times the limit, shrinks when the client has left, and another client is answered meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from bench.memory.attacks import ATTACKS, KEYS, STAYS, Provider, Victim, configuration, measure

from gateway.served import served_gateway
from support.waiting import until

pytest.importorskip("wsproto")
MIB = 1024 * 1024
SLACK = 14 * MIB
"""What the process takes for its first requests of a kind, and what the allocator keeps."""


@contextmanager
def attacked(folder: Path, limit: int) -> Iterator[Victim]:
    config = folder / "antiphon.toml"
    with Provider() as provider:
        config.write_text(configuration(provider, limit))
        with served_gateway(config, environ=KEYS) as gateway:
            yield Victim(gateway.port, gateway.process.pid, limit)


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    with attacked(tmp_path_factory.mktemp("gateway"), 4 * MIB) as running:
        yield running


def check(victim: Victim, name: str, *, rounds: int) -> None:
    growth = measure(victim, ATTACKS[name], rounds=rounds)
    copies = 4 * victim.piece  # of the one message that is worked on
    allowed = victim.limit * 3 // 2 + copies + SLACK
    assert growth.serves_another, "another client was not answered"
    assert growth.peak <= allowed, f"it grew by {growth.peak:,} bytes, more than {allowed:,}"
    left = victim.limit if name in STAYS else victim.limit // 2
    until(lambda: victim.memory - growth.before <= left + copies + SLACK, "memory is given back after the client left")


@pytest.mark.parametrize("name", ATTACKS)
def test_memory_is_bounded(victim: Victim, name: str) -> None:
    check(victim, name, rounds=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_memory_is_bounded_at_a_larger_limit_and_after_several_rounds(tmp_path: Path, name: str) -> None:
    with attacked(tmp_path, 48 * MIB) as victim:
        check(victim, name, rounds=4)
