"""Two gateway processes on one database: a change is seen by both, and a budget holds for both, also after a restart."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.parts import Text
from antiphon.wire.request import Message, ModelRequest
from antiphon.wire.streams.sse import SseReader
from antiphon_gateway.access.client_keys import hash_key
from gateway.rig import ENVIRONMENT, KEY, Client
from gateway.served import ServedGateway, config_text, served_gateway
from gateway.strict_upstream import StrictUpstream, hang
from support.valkey_server import running
from support.waiting import until

QUESTION = ModelRequest(messages=(Message("user", (Text("Is it raining?"),)),), max_output_tokens=500)
OPERATOR = "sk-operator-0123456789"
TOKENS_OF_ONE = 18
"""What each answer of the upstream reports."""


@pytest.fixture
def upstream() -> Iterator[StrictUpstream]:
    with StrictUpstream("openai-chat", [KEY.format("openai-chat")]) as upstream:
        yield upstream


def write_config(folder: Path, upstream: StrictUpstream, *, gateway: str = "", address: str = "") -> Path:
    text = config_text([upstream], {"gpt-4o": "openai-chat/gpt-4o"})
    text = text.replace("[gateway]\n", f"[gateway]\n{gateway}")
    text += f'[ledger]\naddress = "{address or folder / "ledger.db"}"\n'
    text += f'[[keys]]\nname = "operator"\nkey = "{hash_key(OPERATOR)}"\nadmin = true\n'
    path = folder / "antiphon.toml"
    path.write_text(text)
    return path


@contextlib.contextmanager
def hosts(config: Path) -> Iterator[tuple[ServedGateway, ServedGateway]]:
    """Two processes with the same configuration, each with ports of its own."""
    with served_gateway(config, environ=ENVIRONMENT) as one, served_gateway(config, environ=ENVIRONMENT) as two:
        yield one, two


def asked(served: ServedGateway, key: str, model: str = "gpt-4o") -> int:
    with contextlib.closing(Client(served.port, key)) as client:
        return client.ask("openai-chat", model, QUESTION, streams=False).status


def administered(served: ServedGateway, path: str, body: dict[str, Any]) -> Any:
    with contextlib.closing(Client(served.port, OPERATOR)) as client:
        got = client.post(path, body)
    assert got.status in (200, 201), got.body
    return got.json


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    is_sqlite = request.param == "sqlite"
    return str(tmp_path / "ledger.db") if is_sqlite else request.getfixturevalue("postgres")


def test_all_processes_learn_of_a_change(tmp_path: Path, upstream: StrictUpstream, address: str) -> None:
    with hosts(write_config(tmp_path, upstream, address=address)) as (one, two):
        key = administered(one, "/admin/keys", {"name": "a"})["key"]
        assert asked(one, key) == 200  # at once where it was made
        until(lambda: asked(two, key) == 200)
        administered(two, "/admin/keys/a/disable", {})
        assert asked(two, key) == 401
        until(lambda: asked(one, key) == 401)
        administered(one, "/admin/keys/a/enable", {})
        second = administered(two, "/admin/keys/a/rotate", {})["key"]  # reads what the other did
        assert (asked(two, key), asked(two, second)) == (401, 200)
        until(lambda: (asked(one, key), asked(one, second)) == (401, 200))
        for served in (one, two):
            with contextlib.closing(Client(served.port, OPERATOR)) as operator:
                assert len(operator.get("/admin/audit").json["changes"]) == 4


def test_all_workers_learn_of_a_change(tmp_path: Path, upstream: StrictUpstream) -> None:
    with served_gateway(write_config(tmp_path, upstream), "--workers", "2", environ=ENVIRONMENT) as served:
        key = administered(served, "/admin/keys", {"name": "a"})["key"]
        until(lambda: {asked(served, key) for _ in range(10)} == {200})
        administered(served, "/admin/keys/a/disable", {})
        until(lambda: {asked(served, key) for _ in range(10)} == {401})


def own_usage(served: ServedGateway, key: str, calls: int) -> Any:
    """What a client sees of its own usage, once so many calls are in the ledger."""
    with contextlib.closing(Client(served.port, key)) as client:
        got = client.get("/v1/usage")
    assert got.status == 200, (got.body, served.log[-5:])
    return got.json if got.json["day"]["calls"] == calls else None


@pytest.mark.parametrize(
    ("limit", "sharing"),
    [
        ("tokens_per_day", "ledger"),
        pytest.param("tokens_per_day", "store", marks=pytest.mark.slow),
        pytest.param("budget_per_month", "ledger", marks=pytest.mark.slow),
        ("budget_per_month", "store"),
    ],
)
def test_a_budget_holds_for_all_processes_and_after_a_restart(
    tmp_path: Path, upstream: StrictUpstream, sharing: str, limit: str
) -> None:
    allowed = 20 * TOKENS_OF_ONE if limit == "tokens_per_day" else 0.0005
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(running()) if sharing == "store" else None
        config = write_config(tmp_path, upstream, gateway=f'shared = "{server.address}"\n' if server else "")
        with hosts(config) as (one, two):
            key = administered(one, "/admin/keys", {"name": "a", limit: allowed})["key"]
            until(lambda: asked(two, key) != 401)
            until(lambda: asked(one, key) == 429)
            answered = len(upstream.received)
            assert answered > 5
            # The other process learns of it with the next exchange; a request for an unknown model costs nothing.
            until(lambda: asked(two, key, "unknown") == 429)
            assert [asked(served, key) for served in (one, two) * 5] == [429] * 10
            assert len(upstream.received) == answered
            usage = until(lambda: own_usage(one, key, answered))
            assert (usage["name"], usage["month" if "month" in limit else "day"][limit]) == ("a", allowed)
            assert usage["day"]["prompt_tokens"] + usage["day"]["completion_tokens"] == answered * TOKENS_OF_ONE
            one.stop()
            two.stop()
        if server is not None:
            server.ask("FLUSHALL")  # the ledger has it all
        with served_gateway(config, environ=ENVIRONMENT) as again:
            assert asked(again, key) == 429
            assert len(upstream.received) == answered


def test_a_worker_that_is_killed_ends_its_answers_everywhere(tmp_path: Path, upstream: StrictUpstream) -> None:
    body = {"model": "gpt-4o", "input": "Never ends", "background": True}
    with (
        hosts(write_config(tmp_path, upstream, gateway=f'state = "{tmp_path / "state.db"}"\n')) as (one, two),
        contextlib.closing(Client(two.port, OPERATOR)) as polling,
        ThreadPoolExecutor(2) as pool,
    ):

        def start(path: str) -> str:
            upstream.faults.append(hang(after=-200))
            with contextlib.closing(Client(one.port, OPERATOR)) as client:
                return f"{path}/{client.post(path, body).json['id']}"

        def follow(answer: str) -> list[Any]:
            with contextlib.closing(Client(two.port, OPERATOR)) as client:
                data = client.get(f"{answer}?stream=true").body
            return [msgspec.json.decode(event.data) for event in SseReader().feed(data)]

        answers = [start(path) for path in ("/v1/responses", "/v1beta/interactions")]
        following = [pool.submit(follow, answer) for answer in answers]
        until(lambda: len(upstream.received) == 2)
        time.sleep(2)
        for answer in answers:
            assert polling.get(answer).json["status"] in ("queued", "in_progress"), "its worker is alive"
        one.process.kill()
        response, interaction = [followed.result(30) for followed in following]
        failed = [polling.get(answer).json for answer in answers]
    number = len(response) - 1
    assert response[-1] == {"type": "response.failed", "sequence_number": number, "response": failed[0]}
    number = len(interaction) - 1
    assert interaction[-1] == {"event_type": "error", "event_id": str(number), "error": failed[1]["errors"][0]}
    assert min(len(response), len(interaction)) > 1, "the events before"
    for each in failed:
        assert each["status"] == "failed"
        assert "the process that generated this answer has ended" in str(each)
