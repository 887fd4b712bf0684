"""Gateways that share a store, as processes: what one learns the other knows, and whatever the store does no request fails."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from antiphon.parts import Text
from antiphon.wire.request import Message, ModelRequest
from antiphon_gateway.access.client_keys import hash_key
from antiphon_gateway.config.file import load_config
from gateway.rig import ENVIRONMENT, KEY, MODELS, Client, serving, variable_of
from gateway.served import ServedGateway, served
from gateway.strict_upstream import StrictUpstream
from support.valkey_server import Line, ValkeyServer, running
from support.waiting import until

CLIENT, TIGHT = "sk-antiphon-client-0123456789", "sk-antiphon-tight-0123456789"
FIRST, SECOND = KEY.format("anthropic"), KEY.format("gemini")
HELLO = ModelRequest(messages=(Message("user", (Text("Hello."),)),), max_output_tokens=50)
LIMIT = 12


@pytest.fixture
def server() -> Iterator[ValkeyServer]:
    with running() as server:
        yield server


@pytest.fixture
def upstream() -> Iterator[StrictUpstream]:
    with StrictUpstream("anthropic", [FIRST, SECOND]) as one:
        yield one


def config_of(folder: Path, upstream: StrictUpstream, shared: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "antiphon.toml"
    path.write_text(
        f"""
[gateway]
log = "json"
shared = "{shared}"

[[providers]]
name = "anthropic"
base_url = "{upstream.base_url}"
keys = ["env:{variable_of("anthropic")}", "env:{variable_of("gemini")}"]

[[models]]
name = "m"
targets = ["anthropic/{MODELS["anthropic"]}"]

[[keys]]
name = "client"
key = "{hash_key(CLIENT)}"
requests_per_minute = 100000
admin = true

[[keys]]
name = "tight"
key = "{hash_key(TIGHT)}"
requests_per_minute = {LIMIT}
"""
    )
    return path


@contextmanager
def gateways(folder: Path, upstream: StrictUpstream, shared: str, count: int = 2) -> Iterator[list[ServedGateway]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(served(config_of(folder / str(number), upstream, shared))) for number in range(count)
        ]


@contextmanager
def connected(gateway: ServedGateway | int, key: str = CLIENT) -> Iterator[Client]:
    client = Client(gateway if isinstance(gateway, int) else gateway.port, key)
    try:
        yield client
    finally:
        client.close()


def ask(gateway: ServedGateway, key: str = CLIENT) -> int:
    with connected(gateway, key) as client:
        return client.ask("anthropic", "m", HELLO, streams=False).status


def status(gateway: ServedGateway | int) -> Any:
    with connected(gateway) as client:
        return client.get("/status").json


def is_unavailable(gateway: ServedGateway) -> bool:
    return bool(status(gateway)["server"]["shared"]["is_away"])


def was_away(*gateways: ServedGateway) -> bool:
    """Whether a machine under load took an answer for lost: then each counts alone, and that is right."""
    return any("is unavailable" in line for gateway in gateways for line in gateway.log)


def resting(gateway: ServedGateway | int) -> list[bool]:
    """Of each key, whether it rests."""
    return [bool(row["resting"]) or row["state"] != "healthy" for row in status(gateway)["credentials"]]


def cool_one_key(gateway: ServedGateway, upstream: StrictUpstream) -> None:
    upstream.faults.append(upstream.error(429, "rate_limit", "slow down", **{"retry-after": "300"}))
    assert ask(gateway) == 200


def test_a_key_rejected_at_one_is_rejected_at_the_other(
    server: ValkeyServer, upstream: StrictUpstream, tmp_path: Path
) -> None:
    with gateways(tmp_path, upstream, server.address) as (one, two):
        upstream.faults.append(upstream.error(401, "authentication", "invalid x-api-key"))
        assert ask(one) == 200  # with the other key
        until(lambda: [row["resting"][:1] for row in status(two)["credentials"]] != [[], []])
        (row,) = [row for row in status(two)["credentials"] if row["resting"]]
        assert [held["state"] for held in row["resting"]] == ["invalid"]
        assert (row["state"], row["until"]) == ("invalid", row["resting"][0]["until"]), "the worst of its states"


def test_a_key_that_cools_at_one_cools_at_the_other_and_limits_hold_for_both(
    server: ValkeyServer, upstream: StrictUpstream, tmp_path: Path
) -> None:
    with Line(server) as line, gateways(tmp_path, upstream, line.address) as (one, two):
        cool_one_key(one, upstream)
        assert resting(one).count(True) == 1
        until(lambda: resting(two) == resting(one))
        upstream.received.clear()
        assert [ask(two) for _ in range(6)] == [200] * 6
        used = {request.headers["x-api-key"] for request in upstream.received}
        assert len(used) == 1

        got = [ask(gateway, TIGHT) for _ in range(LIMIT) for gateway in (one, two)]
        assert (got.count(200), got.count(429)) == (LIMIT, LIMIT) or was_away(one, two)

        shared = status(one)["server"]["shared"]
        assert (shared["address"], shared["is_away"], shared["reason"]) == (line.address, False, "")
        assert status(one)["server"]["shared"]["address"] == line.address
        with connected(one) as client:
            assert 'antiphon_shared_store_up{worker=""} 1' in client.get("/metrics").body.decode()
        # One that begins later knows it from the beginning.
        config = load_config(tmp_path / "0" / "antiphon.toml", ENVIRONMENT, overrides={"port": 0, "format_port": 0})
        with serving(config, ENVIRONMENT) as (port, _):
            assert resting(port) == resting(one)
        kept = server.ask("KEYS", "*")
    assert not any(secret in str(kept) for secret in (FIRST, SECOND, CLIENT, TIGHT))


def test_a_store_killed_under_load_fails_no_request_and_is_synced_when_back(
    server: ValkeyServer, upstream: StrictUpstream, tmp_path: Path
) -> None:
    is_over = threading.Event()
    wrong: list[int] = []
    counts = [0, 0]

    def load(number: int, gateway: ServedGateway) -> None:
        with connected(gateway) as client:
            while not is_over.is_set():
                got = client.ask("anthropic", "m", HELLO, streams=False).status
                counts[number] += 1
                if got != 200:
                    wrong.append(got)

    with gateways(tmp_path, upstream, server.address) as (one, two):
        clients = [threading.Thread(target=load, args=(number, gateway)) for number, gateway in enumerate((one, two))]
        for client in clients:
            client.start()
        try:
            until(lambda: all(counts))
            server.kill()
            until(lambda: is_unavailable(one) and is_unavailable(two))
            assert status(one)["server"]["shared"]["reason"]
            with connected(one) as asking:
                assert 'antiphon_shared_store_up{worker=""} 0' in asking.get("/metrics").body.decode()
            # What is learnt now is learnt by one alone.
            upstream.faults.append(upstream.error(429, "rate_limit", "slow down", **{"retry-after": "300"}))
            until(lambda: any(resting(one)) != any(resting(two)))
            server.start()
            until(lambda: not is_unavailable(one) and not is_unavailable(two))
            until(lambda: resting(one) == resting(two) and any(resting(one)))
            before = resting(one)
            server.ask("FLUSHALL")
            until(lambda: [key for key in server.ask("KEYS", "*") if ":key:" in key])
            assert resting(one) == resting(two) == before
            seen = list(counts)
            until(lambda: all(count > before for count, before in zip(counts, seen, strict=True)))
        finally:
            is_over.set()
            for client in clients:
                client.join(30)
        assert wrong == []
        log_lines = [[line for line in gateway.log if "the shared store" in line] for gateway in (one, two)]
        for lines in log_lines:  # once for each time
            assert ["is back;" in line for line in lines] == [False, True] * (len(lines) // 2), lines
        assert [one.stop(), two.stop()] == [0, 0]
    assert not any("Traceback" in line for gateway in (one, two) for line in gateway.log)


def test_a_gateway_begins_without_the_store_and_is_not_held_up_by_one_that_hangs(
    server: ValkeyServer, upstream: StrictUpstream, tmp_path: Path
) -> None:
    server.kill()
    with Line(server) as line, gateways(tmp_path, upstream, line.address, 1) as [gateway]:
        assert is_unavailable(gateway)
        cool_one_key(gateway, upstream)
        server.start()
        until(lambda: not is_unavailable(gateway))
        assert [key for key in server.ask("KEYS", "*") if ":key:" in key]

        assert ask(gateway, TIGHT) == 200
        line.hang()
        got = [ask(gateway, TIGHT) for _ in range(LIMIT + 2)]
        # Alone it counts on from what it knew.
        assert got == [200] * (LIMIT - 1) + [429] * 3
        until(lambda: is_unavailable(gateway))
        assert "no reply within" in status(gateway)["server"]["shared"]["reason"]
        line.resume()
        until(lambda: not is_unavailable(gateway))
        line.cut()
        assert ask(gateway) == 200
        until(lambda: not is_unavailable(gateway))


def test_workers_of_one_gateway_count_together(server: ValkeyServer, upstream: StrictUpstream, tmp_path: Path) -> None:
    config = config_of(tmp_path, upstream, server.address)
    with served(config, "--workers", "2") as gateway:
        until(lambda: len(gateway.workers) == 2)
        got = [ask(gateway, TIGHT) for _ in range(2 * LIMIT)]
        assert got.count(200) == LIMIT or was_away(gateway)
        cool_one_key(gateway, upstream)
        until(lambda: all(resting(gateway).count(True) == 1 for _ in range(8)))
        assert gateway.stop() == 0
