"""Two workers, PostgreSQL and Valkey under every kind of request, while workers and the shared store are killed.

Every answer of the upstream has a number, which it reports as the tokens of the prompt: so each row of the ledger is one answer.
What client, upstream and ledger say of them is compared one by one: nothing is lost, nothing twice, everything has its cost, and
limits and budgets add up. In the end nothing is held. `HYPOTHESIS_PROFILE=nightly` runs it for five minutes.
"""

from __future__ import annotations

import http.client
import os
import random
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from antiphon.prices.table import PriceTable
from antiphon_gateway.ledger.database import open_operator_database
from antiphon_gateway.ledger.spend import spend
from gateway.ledger.test_soak import CONFIG, ENVIRONMENT, REQUESTS, CountingUpstream, counting_upstream
from gateway.served import ServedGateway, served_gateway
from support.examples import scaled
from support.valkey_server import ValkeyServer, running
from support.waiting import SECONDS, until

websockets = pytest.importorskip("websockets.sync.client")
pytest.importorskip("wsproto")
from websockets.exceptions import WebSocketException  # noqa: E402

CLIENTS = 5
LASTS = scaled(30)
"""Seconds."""
PAUSE = 4.0
"""Between two kills."""
NARROW, BUDGET = 600, 0.5
"""What the key `narrow` may ask a minute, and the key `thrifty` may spend a day."""
MOST_WAITING = 16 * 1024 * 1024
GATEWAY = f"""
shared = "{{shared}}"
max_buffered_bytes = {MOST_WAITING}
request_seconds = 8
"""
KEYS = {"open": "", "narrow": f"requests_per_minute = {NARROW}", "thrifty": f"budget_per_day = {BUDGET}"}
SECRETS = {name: f"sk-{name}-0123456789abcdef" for name in (*KEYS, "operator")}
ASK: dict[str, Any] = {"model": "model", "input": "Hi."}
JSON = {"content-type": "application/json"}
ENDED = ("completed", "failed", "cancelled", "incomplete")


class Sent(Struct):
    """What clients saw: the ids of answered requests, how each status came, and how many were in progress at a kill."""

    answered: list[str]
    """Requests that a provider answered, each once."""
    statuses: Counter[tuple[str, int]]
    """By key."""
    kinds: Counter[str]
    interrupted: int = 0


class Traffic(threading.Thread):
    """One client: requests of every kind, with one key."""

    def __init__(self, port: int, number: int, sent: Sent, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.key = list(KEYS)[number % len(KEYS)]
        self._port, self._sent, self._stop_asking = port, sent, stop
        self._chance = random.Random(number)
        self._headers = {**JSON, "authorization": f"Bearer {SECRETS[self.key]}"}
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        self._count = 0
        self.name = f"client-{number}"

    def run(self) -> None:
        kinds: list[Callable[[], None]] = [self.ask] * 12 + [self.pass_on, self.in_background, self.over_a_socket]
        while not self._stop_asking.is_set():
            kind = self._chance.choice(kinds)
            try:
                kind()
                self._sent.kinds[kind.__name__] += 1
            except (OSError, http.client.HTTPException, WebSocketException, msgspec.DecodeError):
                self._sent.interrupted += 1  # a worker was killed
                self._connection.close()
        self._connection.close()

    def ask(self) -> None:
        path, body = self._chance.choice(REQUESTS)
        status, _, request_id = self._exchange("POST", path, body)
        if status == 200:
            self._sent.answered.append(request_id)

    def pass_on(self) -> None:
        status, _, request_id = self._exchange("POST", "/v1/moderations", {"input": "Hi."})
        if status == 200:
            self._sent.answered.append(request_id)

    def in_background(self) -> None:
        status, answer, request_id = self._exchange("POST", "/v1/responses", {**ASK, "background": True})
        deadline = time.monotonic() + SECONDS
        while status == 200 and answer["status"] not in ENDED:
            assert time.monotonic() < deadline, f"it does not end: {answer}"
            time.sleep(0.05)
            try:
                asked, found, _ = self._exchange("GET", f"/v1/responses/{answer['id']}", None)
            except (OSError, http.client.HTTPException):
                self._connection.close()
                continue
            answer = found if asked == 200 else answer
        if status == 200 and answer["status"] == "completed":
            self._sent.answered.append(request_id)

    def over_a_socket(self) -> None:
        self._count += 1
        request_id, address = f"{self.name}-{self._count}", f"ws://127.0.0.1:{self._port}/v1/responses"
        headers = {"authorization": self._headers["authorization"], "x-request-id": request_id}
        with websockets.connect(address, additional_headers=headers, proxy=None, close_timeout=1) as socket:
            for number in (1, 2):
                socket.send(msgspec.json.encode({**ASK, "type": "response.create", "store": False}).decode())
                event: dict[str, Any] = {}
                while event.get("type") not in ("response.completed", "response.failed", "error"):
                    event = msgspec.json.decode(socket.recv(timeout=SECONDS))
                if event["type"] == "response.completed":
                    self._sent.answered.append(f"{request_id}-{number}")

    def _exchange(self, method: str, path: str, body: Any) -> tuple[int, Any, str]:
        data = None if body is None else msgspec.json.encode(body)
        self._connection.request(method, path, data, self._headers)
        response = self._connection.getresponse()
        found, status = response.read(), response.status
        self._sent.statuses[self.key, status] += 1
        if status in (402, 429):
            time.sleep(0.05)  # or little else than refusals is answered
        is_json = response.headers.get("content-type") == "application/json"
        return status, msgspec.json.decode(found) if is_json else {}, response.headers["x-request-id"]


class Row(Struct, array_like=True):
    """One row of the ledger."""

    request_id: str
    attempt: int
    key: str
    provider: str
    model: str
    status: int
    outcome: str
    metering: str
    prompt: int
    completion: int
    cost: int | None


def rows_of(address: str) -> list[Row]:
    """All rows; their sums per key are those of the days."""
    columns = (
        "request_id, attempt, key_name, provider, model_served, status, outcome, metering, prompt_tokens,"
        " completion_tokens, cost_nanodollars"
    )
    database = open_operator_database(address, create=False)
    try:
        rows = [Row(*row) for row in database.rows(f"SELECT {columns} FROM attempts")]
        sums = {row.key: (row.calls, row.usage.total_tokens, row.cost) for row in spend(database, ("key",))}
        for name, (calls, tokens, cost) in sums.items():
            own = [row for row in rows if row.key == name]
            assert (calls, tokens) == (len(own), sum(row.prompt + row.completion for row in own))
            assert int((cost or 0) * 1_000_000_000) == sum(row.cost or 0 for row in own)
        return rows
    finally:
        database.close()


def kill_in_turn(gateway: ServedGateway, shared: ValkeyServer, sent: Sent) -> Counter[str]:
    """Kill a worker or the store now and then, and read the configuration again in between; what was killed."""
    killed: Counter[str] = Counter()
    until_then = time.monotonic() + LASTS
    while time.monotonic() < until_then:
        before = len(sent.answered)
        time.sleep(PAUSE)
        until(lambda before=before: len(sent.answered) > before)
        gateway.process.send_signal(signal.SIGHUP)
        if killed.total() % 3 == 2:
            shared.kill()
            shared.start()
            killed["store"] += 1
        else:
            worker = gateway.workers[killed["worker"] % 2]
            os.kill(worker, signal.SIGKILL)
            until(lambda worker=worker: len({*gateway.workers} - {worker}) == 2)
            killed["worker"] += 1
    return killed


def scraped(port: int) -> dict[str, float]:
    """The metrics without labels."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    connection.request("GET", "/metrics", headers={"authorization": f"Bearer {SECRETS['operator']}"})
    text = connection.getresponse().read().decode()
    connection.close()
    return {name: float(value) for name, value in re.findall(r"^antiphon_(\w+) (\S+)$", text, re.MULTILINE)}


def check_that_nothing_is_held(port: int) -> None:
    """No request is in progress, no row waits, and each worker takes as much as at its start."""

    def is_idle() -> bool:
        now = scraped(port)
        return (now["requests_in_flight"], now["ledger_rows_pending"]) == (1, 0) and now["connections"] <= 2

    until(is_idle, "all requests have ended")
    body = msgspec.json.encode({**ASK, "store": False, "input": "x" * (MOST_WAITING // 5)})
    for _ in range(8):  # of two workers
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        connection.request("POST", "/v1/responses", body, {**JSON, "authorization": f"Bearer {SECRETS['open']}"})
        assert connection.getresponse().status == 200, "as many bytes as at the start may wait"
        connection.close()


def check_answers(rows: list[Row], upstream: CountingUpstream, sent: Sent, kills: int) -> Mapping[str, int]:
    """Client = upstream = ledger; what is missing was in progress at a kill. What was counted."""
    assert len({(row.request_id, row.attempt) for row in rows}) == len(rows), "no attempt has two rows"
    ok = Counter(row.request_id for row in rows if row.outcome == "ok")
    assert len(set(sent.answered)) == len(sent.answered)
    assert {name: ok[name] for name in sent.answered if ok[name] != 1} == {}, "each answer is in the ledger, once"
    reported = {row.prompt: row for row in rows if row.metering == "reported"}
    assert len(reported) == sum(row.metering == "reported" for row in rows), "no answer has two rows"
    for number, row in reported.items():
        assert (row.provider, row.completion) == upstream.answered[number]
        card = PriceTable().card(row.provider, row.model, "")
        assert row.cost == card.nanodollars((row.prompt, row.completion, 0, 0, 0, 0), 1), row
    unreported = len(upstream.answered) - len(reported)
    interrupted = [row for row in rows if row.outcome not in ("ok", "server", "overloaded")]
    assert unreported <= len(interrupted) <= 2 * CLIENTS * kills, "what has no row was in progress at a kill"
    assert {row.metering for row in interrupted} <= {"estimated", "free", "unknown"}
    asked = upstream.calls.total()
    assert asked <= len(rows) <= asked + 2 * CLIENTS * kills, "every request upstream has its row"
    failed = upstream.calls["first", 503] - sum(row.status == 503 for row in rows)
    assert 0 <= failed <= 2 * CLIENTS * kills
    return {"asked": asked, "rows": len(rows), "unreported": unreported, "interrupted": len(interrupted)}


def check_limits(rows: list[Row], sent: Sent, shared: ValkeyServer, seconds: float, kills: int) -> Mapping[str, Any]:
    """No key used more than it may, apart from what was in progress, and the shared counters say what the ledger says."""
    admitted = sum(count for (key, status), count in sent.statuses.items() if key == "narrow" and status != 429)
    assert admitted <= NARROW * (1 + seconds / 60 + kills), (
        "the bucket of a store that was killed is filled from copies"
    )
    spent = sum(row.cost or 0 for row in rows if row.key == "thrifty")
    assert sent.statuses["thrifty", 429] > 0, "the budget was used up"
    assert BUDGET * 1e9 <= spent < BUDGET * 1.2e9, "what was in progress when the budget was used up is little"
    day = shared.ask("HMGET", f"antiphon:spent:thrifty:{datetime.now(UTC):%Y-%m-%d}", "tokens", "nanos")
    lost = 0.2 * BUDGET * 1e9  # a process that is killed has not reported the last quarter of a second
    assert abs(int(day[1]) - spent) <= lost
    return {"admitted": admitted, "spent": spent / 1e9, "shared": int(day[1]) / 1e9}


@pytest.mark.slow
def test_client_upstream_and_ledger_agree_while_processes_are_killed(postgres: str, tmp_path: Path) -> None:
    environ = {**ENVIRONMENT, "XDG_DATA_HOME": str(tmp_path / "data"), "LEDGER": postgres}
    environ |= {f"{name.upper()}_KEY": secret for name, secret in SECRETS.items()}
    sent, stop = Sent([], Counter(), Counter()), threading.Event()
    with counting_upstream(7, slow=0.1) as upstream, running() as shared:
        config = tmp_path / "antiphon.toml"
        text = CONFIG.format(address="env:LEDGER", port=upstream.port, gateway=GATEWAY.format(shared=shared.address))
        for name, limits in {**KEYS, "operator": "admin = true"}.items():
            text += f'[[keys]]\nname = "{name}"\nkey = "env:{name.upper()}_KEY"\n{limits}\n'
        config.write_text(text.replace("retries = 1", 'retries = 1\npass_through = ["*"]'))
        with served_gateway(config, "--workers", "2", environ=environ) as gateway:
            began = time.monotonic()
            clients = [Traffic(gateway.port, number, sent, stop) for number in range(CLIENTS)]
            for client in clients:
                client.start()
            killed = kill_in_turn(gateway, shared, sent)
            stop.set()
            for client in clients:
                client.join(4 * SECONDS)
                assert not client.is_alive(), "a client did not end"
            seconds = time.monotonic() - began
            check_that_nothing_is_held(gateway.port)
            assert gateway.stop() == 0, gateway.log
            until(lambda: upstream.connections == 0, "the connections to the upstream are closed")
        rows = rows_of(postgres)
        counted = check_answers(rows, upstream, sent, killed.total())
        used = check_limits(rows, sent, shared, seconds, killed.total())
    print(
        f"{seconds:.0f} s, killed {dict(killed)}, sent {dict(sent.kinds)}, {len(sent.answered)} answered, {counted}, {used}"
    )
    print(dict(sent.statuses), f"{sent.interrupted} interrupted")
    assert not [line for line in gateway.log if "Traceback" in line or "internal error" in line]
