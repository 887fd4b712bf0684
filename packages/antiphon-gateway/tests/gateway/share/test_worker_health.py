"""Workers of one host share key health and circuits through their snapshots, without a shared store."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from antiphon.providers.keys.health import Health
from antiphon.providers.keys.ring import KeyRing
from antiphon.providers.keys.secret import Credential
from antiphon.providers.keys.target_health import CIRCUITS, CircuitPolicy, TargetHealth
from antiphon.providers.routes import Target
from antiphon.wire.output import ProviderError
from antiphon_gateway.share.state import sync_health
from antiphon_gateway.share.workers import WorkerFiles, WorkerHealth
from gateway.rig import ENVIRONMENT, KEY
from gateway.served import config_text, connected, served_gateway
from gateway.strict_upstream import StrictUpstream
from support.waiting import until

URL = "https://host/v1"
SECRETS = {"A": "sk-canary-secret-a", "B": "sk-canary-secret-b"}


class Worker:
    """One worker with two keys."""

    def __init__(self, folder: Path, name: str) -> None:
        self.now = 1000.0
        keys = [Credential(secret=f"env:{key}") for key in SECRETS]
        self.pool = KeyRing(keys, environ=SECRETS, clock=lambda: self.now)
        self.circuits = TargetHealth(CircuitPolicy(failures=1, seconds=60.0), clock=lambda: self.now)
        self.health = WorkerHealth(WorkerFiles(folder, name), lambda: {"host": self.pool.status()})

    def sources(self) -> list[tuple[str, str, Health]]:
        keys = [(URL, secret, health) for secret, health in self.pool.shared]
        return [*keys, (URL, CIRCUITS, self.circuits.circuits_of("host"))]

    def sync(self) -> None:
        asyncio.run(sync_health(self.health, self.sources))

    def states(self) -> dict[str, str]:
        return {status.name: status.state for status in self.pool.status()}


def workers(folder: Path) -> tuple[Worker, Worker]:
    return Worker(folder, "1-1"), Worker(folder, "2-2")


def test_a_rejected_key_and_an_open_circuit_are_known_to_the_other_worker(tmp_path: Path) -> None:
    one, two = workers(tmp_path)
    lease = one.pool.acquire("gpt-4o", preferred="env:A")
    lease.failed(ProviderError("wrong key", "authentication", status=401))
    one.circuits.on_failure(Target("host", "gpt-4o"), 0, ProviderError("down", "server"))
    for worker in (one, two):
        worker.sync()
    known, other = one.pool.status()[0], two.pool.status()[0]
    assert (other.state, other.models) == (known.state, known.models)
    assert [held.state for held in other.models.values()] == ["invalid"]
    assert two.pool.acquire("gpt-4o", preferred="env:A").name == "env:B"
    assert [str(circuit.target) for circuit in two.circuits.status()] == ["host/gpt-4o"]
    assert two.circuits.is_open(Target("host", "gpt-4o"))


def test_a_switch_reaches_the_other_worker_in_both_directions(tmp_path: Path) -> None:
    one, two = workers(tmp_path)
    one.pool.disable("env:B")
    for worker in (one, two):
        worker.sync()
    assert two.states()["env:B"] == "disabled"
    two.pool.enable("env:B")
    for worker in (two, one):
        worker.sync()
    assert one.states()["env:B"] == two.states()["env:B"] == "healthy"


def test_counts_of_all_workers_are_added_up_and_those_of_an_ended_one_are_left_out(tmp_path: Path) -> None:
    one, two = workers(tmp_path)
    for worker, count in ((one, 3), (two, 2)):
        for _ in range(count):
            worker.pool.acquire("gpt-4o", preferred="env:A").succeeded()
    two.pool.acquire("gpt-4o", preferred="env:A").failed(ProviderError("slow down", "overloaded", status=529))
    for worker in (one, two, one):
        worker.sync()
    first, _ = one.health.with_others({"host": one.pool.status()})["host"]
    assert (first.calls, first.successes, first.failures) == (6, 5, 1)
    assert first.last_error is not None
    assert first.last_error.message == "slow down"
    for file in tmp_path.iterdir():
        os.utime(file, (1000.0, 1000.0))
    one.sync()
    first, _ = one.health.with_others({"host": one.pool.status()})["host"]
    assert first.calls == 3


def test_no_secret_is_in_a_snapshot_and_an_unreadable_one_is_skipped(tmp_path: Path) -> None:
    one, two = workers(tmp_path)
    two.pool.disable("env:A")
    two.sync()
    written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"sk-canary" not in written
    (tmp_path / "health-3-3").write_bytes(b"not json")
    one.sync()
    assert one.states()["env:A"] == "disabled"


def test_a_switch_through_one_worker_of_a_gateway_is_the_same_at_all(tmp_path: Path) -> None:
    config = tmp_path / "antiphon.toml"
    with StrictUpstream("anthropic", [KEY.format("anthropic")]) as upstream:
        config.write_text(config_text([upstream], {"m": "anthropic/claude-sonnet-4-5"}))
        with served_gateway(config, "--workers", "2", environ=ENVIRONMENT) as running:
            body = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
            for _ in range(8):
                with connected(running.port) as client:
                    assert client.post("/v1/chat/completions", body).status == 200
            switch = {"provider": "anthropic", "credential": "env:KEY_ANTHROPIC", "enabled": False}
            with connected(running.port) as client:
                assert client.post("/credentials", switch).status == 200

            def rows() -> set[tuple[str, int]]:
                """What ten connections see, which the workers share."""
                seen = set()
                for _ in range(10):
                    with connected(running.port) as client:
                        (row,) = client.get("/credentials").json["credentials"]
                        seen.add((row["state"], row["calls"]))
                return seen

            assert until(lambda: rows() == {("disabled", 8)})

            def statuses() -> set[int]:
                seen = set()
                for _ in range(10):
                    with connected(running.port) as client:
                        seen.add(client.post("/v1/chat/completions", body).status)
                return seen

            # The connections above may all have reached one worker; the other merges the switch a second later.
            assert until(lambda: 200 not in statuses())
