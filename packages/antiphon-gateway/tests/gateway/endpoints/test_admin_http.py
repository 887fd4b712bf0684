"""`/admin/` over HTTP: the life of a client key, who may do it, the audit log, and what a client sees of its own usage."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from antiphon.parts import Text
from antiphon.wire import FORMATS
from antiphon.wire.request import Message, ModelRequest
from antiphon_gateway.access.client_keys import hash_key
from antiphon_gateway.config.settings import ClientKeySettings, LedgerSettings
from antiphon_gateway.ledger.database import OperatorDatabase
from gateway.rig import MODELS, Client, Got, Rig, rig
from support.waiting import until

QUESTION = ModelRequest(messages=(Message("user", (Text("Is it raining?"),)),), max_output_tokens=500)
OPERATOR = "sk-operator-0123456789"
KEYS = [
    ClientKeySettings(name="operator", key=hash_key(OPERATOR), admin=True),
    ClientKeySettings(name="client", key=hash_key("sk-client")),
]
PATHS = [
    ("GET", "/admin/keys"),
    ("POST", "/admin/keys"),
    ("GET", "/admin/keys/x"),
    ("PATCH", "/admin/keys/x"),
    ("DELETE", "/admin/keys/x"),
    ("POST", "/admin/keys/x/rotate"),
    ("POST", "/admin/keys/x/disable"),
    ("POST", "/admin/keys/x/enable"),
    ("GET", "/admin/audit"),
    ("GET", "/admin/spend"),
    ("GET", "/admin/credentials"),
    ("POST", "/admin/credentials"),
]


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Rig]:
    with rig(keys=KEYS, ledger=LedgerSettings(address=str(tmp_path / "ledger.db"))) as running:
        yield running


@pytest.fixture
def operator(gateway: Rig) -> Iterator[Client]:
    with gateway.client(OPERATOR) as client:
        yield client


def asked(gateway: Rig, key: str, name: str = "openai-chat", target: str = "") -> Got:
    with gateway.client(key) as client:
        return client.ask(name, target or f"to-{name}", QUESTION, streams=False)


def make(operator: Client, name: str, **rules: Any) -> dict[str, Any]:
    got = operator.post("/admin/keys", {"name": name, **rules})
    assert got.status == 201, got.body
    found: dict[str, Any] = got.json
    return found


def patch(operator: Client, reference: str, body: bytes) -> Got:
    return operator.request("PATCH", f"/admin/keys/{reference}", body)


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_only_an_admin_key_is_let_in(gateway: Rig, method: str, path: str) -> None:
    for key, status in {"": 401, "sk-wrong": 401, "sk-client": 403}.items():
        with gateway.client(key) as client:
            assert client.request(method, path, b"{}" if method != "GET" else None).status == status


def test_the_life_of_a_key(gateway: Rig, operator: Client) -> None:
    made = make(operator, "laptop", models=["to-openai-chat"], budget_per_day=5)
    secret = made["key"]
    assert made["fingerprint"] == hash_key(secret)[:15]
    assert asked(gateway, secret).status == 200
    assert asked(gateway, secret, "anthropic").status == 403
    shown = operator.get(f"/admin/keys/{made['id']}").json
    assert (shown["name"], shown["budget_per_day"], shown["models"]) == ("laptop", 5, ["to-openai-chat"])
    assert secret not in str(shown)
    assert operator.get("/admin/keys/laptop").json["id"] == made["id"]

    changed = patch(operator, "laptop", b'{"models": ["*"], "budget_per_day": null, "requests_per_minute": 1000}').json
    assert (changed["models"], changed["budget_per_day"], changed["requests_per_minute"]) == (["*"], None, 1000)
    assert asked(gateway, secret, "anthropic").status == 200
    dated = patch(operator, "laptop", b'{"expires": "2099-01-31"}').json
    assert (dated["expires"], dated["requests_per_minute"]) == ("2099-01-31T00:00:00Z", 1000)
    assert patch(operator, "laptop", b'{"expires": null}').json["expires"] is None

    assert operator.post("/admin/keys/laptop/disable", {}).json["disabled"] is True
    assert asked(gateway, secret).status == 401
    assert operator.post("/admin/keys/laptop/enable", {}).json["disabled"] is False
    assert asked(gateway, secret).status == 200

    graceful = operator.post("/admin/keys/laptop/rotate", {"grace_seconds": 600}).json
    assert graceful["old_key_until"]
    assert [asked(gateway, key).status for key in (secret, graceful["key"])] == [200, 200]
    sudden = operator.request("POST", "/admin/keys/laptop/rotate").json
    assert [asked(gateway, key).status for key in (secret, graceful["key"], sudden["key"])] == [401, 401, 200]

    assert operator.request("DELETE", "/admin/keys/laptop").json["deleted"] is True
    assert asked(gateway, sudden["key"]).status == 401
    assert operator.get("/admin/keys/laptop").status == 404

    log = operator.get("/admin/audit").json["changes"]
    actions = ["delete key", "rotate key", "rotate key", "enable key", "disable key", *["change key"] * 3, "create key"]
    assert [row["action"] for row in log] == actions
    assert {(row["operator"], row["peer"], row["target"]) for row in log} == {("operator", "127.0.0.1", "laptop")}
    assert log[-2]["details"]["budget_per_day"] is None
    assert log[-3]["details"]["expires"] == "2099-01-31T00:00:00Z"
    for key in (secret, graceful["key"], sudden["key"], hash_key(secret)):
        assert key not in str(log)


def test_a_tab_with_the_status_page_is_closed_when_its_key_is_rotated(gateway: Rig, operator: Client) -> None:
    old = make(operator, "second operator", admin=True)["key"]
    with gateway.client() as client:

        def is_open(key: str) -> bool:
            return client.get("/status", authorization=f"Bearer {key}").status == 200

        assert is_open(old)
        new = operator.post("/admin/keys/second%20operator/rotate", {"grace_seconds": 600}).json["key"]
        assert is_open(old), "the old key is accepted until its grace time ends"
        assert is_open(new)
        operator.request("POST", "/admin/keys/second%20operator/rotate")
        assert not is_open(old)
        assert not is_open(new)


@pytest.mark.parametrize("name", FORMATS)
def test_disabled_expired_and_rotated_keys_are_401_in_the_clients_own_shape(
    gateway: Rig, operator: Client, name: str
) -> None:
    disabled = make(operator, "off")["key"]
    operator.post("/admin/keys/off/disable", {})
    expired = make(operator, "old", expires="2020-01-01T00:00:00")["key"]
    rotated = make(operator, "new")["key"]
    operator.request("POST", "/admin/keys/new/rotate")
    deleted = make(operator, "gone")["key"]
    operator.request("DELETE", "/admin/keys/gone")
    expected = {
        disabled: "is disabled",
        expired: "expired at 2020-01-01T00:00:00Z",
        rotated: "invalid",
        deleted: "invalid",
    }
    for key, reason in expected.items():
        got = asked(gateway, key, name)
        assert got.status == 401
        assert got.error(name).kind == "authentication"
        assert reason in got.error(name).message


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b"{}", 400, "name: expected a line of text"),
        (b"[]", 400, "Expected `object`"),
        (b'{"name": "\xff"}', 400, "can't decode byte 0xff"),
        (b'{"name": " "}', 400, "name: expected a line of text"),
        (b'{"name": "a\\nb"}', 400, "name: expected a line of text"),
        (b'{"name": "team/blue"}', 400, "and no slash"),
        (b'{"name": ".."}', 400, "and no slash"),
        (b'{"name": 7}', 400, "name: expected a line of text"),
        (
            b'{"name": "x", "budget": 1}',
            400,
            "unknown field 'budget'; did you mean budget_per_day or budget_per_month?",
        ),
        (b'{"name": "x", "color": 1}', 400, "unknown field 'color'; a key has models, requests_per_minute,"),
        (b'{"name": "x", "tokens_per_day": 0}', 400, "tokens_per_day: must be at least 1"),
        (
            b'{"name": "x", "budget_per_day": -1, "strict": 1}',
            400,
            "day: must be more than 0; strict: expected true or",
        ),
        (b'{"name": "x", "budget_per_day": "5"}', 400, "budget_per_day: expected a number, got a string"),
        (b'{"name": "x", "models": null}', 400, "models: expected a list"),
        (b'{"name": "x", "models": ["a", 5]}', 400, "models[1]: expected a string"),
        (b'{"name": "x", "expires": "soon"}', 400, "expires: expected a date or time such as 2026-11-01 or"),
        (b'{"name": "x", "expires": 5}', 400, "expires: expected a date or time"),
        (
            b'{"name": "x", "expires": "9999-12-31T23:59:59-14:00"}',
            400,
            "expires: must be between the years 1 and 9999",
        ),
        (b'{"name": "client"}', 409, "in the configuration"),
        (b'{"name": "taken"}', 409, "exists already"),
    ],
)
def test_bad_input_is_refused_with_the_reason(operator: Client, body: bytes, status: int, reason: str) -> None:
    make(operator, "taken")
    got = operator.request("POST", "/admin/keys", body)
    assert got.status == status
    assert reason in got.json["error"]["message"]


def test_bad_changes_are_refused_and_change_nothing(operator: Client) -> None:
    made = make(operator, "a", tokens_per_day=5)
    for body, reason in {
        b'{"tokens_per_day": -5}': "tokens_per_day: must be at least 1",
        b'{"name": "b"}': "unknown field 'name'",
        b'{"disabled": 1}': "disabled: expected true or false",
        b"nonsense": "malformed",
        b'{"models": []}': "models: must not be empty",
    }.items():
        got = patch(operator, "a", body)
        assert got.status == 400, body
        assert reason in got.json["error"]["message"]
    assert patch(operator, "client", b'{"tokens_per_day": 5}').status == 409
    assert patch(operator, "unknown", b'{"tokens_per_day": 5}').status == 404
    assert operator.post("/admin/keys/a/rotate", {"grace_seconds": -1}).status == 400
    assert operator.get("/admin/keys?limit=0").status == 400
    assert operator.get("/admin/spend?by=color").status == 400
    assert operator.get("/admin/spend?since=yesterday").status == 400
    shown = operator.get("/admin/keys/a").json
    assert {name: shown[name] for name in made if name != "key"} == {
        name: value for name, value in made.items() if name != "key"
    }
    assert [row["action"] for row in operator.get("/admin/audit").json["changes"]] == ["create key"]


def test_keys_are_listed_in_pages(operator: Client) -> None:
    for number in range(5):
        make(operator, f"team {number}")
    names: list[str] = []
    after = ""
    pages = 0
    while True:
        page = operator.get(f"/admin/keys?limit=3{after}").json
        assert page["total"] == 7
        names += [key["name"] for key in page["keys"]]
        pages += 1
        if page["after"] is None:
            break
        after = f"&after={page['after'].replace(' ', '%20')}"
    assert pages == 3
    assert names == ["client", "operator", *(f"team {number}" for number in range(5))]
    found = operator.get("/admin/keys?search=TEAM%203").json
    assert [key["name"] for key in found["keys"]] == ["team 3"]
    sources = {key["name"]: key["source"] for key in operator.get("/admin/keys").json["keys"]}
    assert (sources["client"], sources["team 0"]) == ("configuration", "database")


def test_credentials_are_switched_at_both_paths_and_audited(gateway: Rig, operator: Client) -> None:
    rows = operator.get("/admin/credentials").json
    assert rows == operator.get("/credentials").json
    credential = rows["credentials"][0]
    body = {"provider": credential["provider"], "credential": credential["credential"], "enabled": False}
    after = operator.post("/admin/credentials", body).json["credentials"][0]
    assert after["state"] == "disabled"
    assert operator.post("/credentials", {**body, "enabled": True}).json["credentials"][0]["state"] == "healthy"
    log = operator.get("/admin/audit").json["changes"]
    target = f"{credential['provider']} {credential['credential']}"
    assert [(row["action"], row["target"]) for row in log] == [
        ("enable credential", target),
        ("disable credential", target),
    ]


def test_a_rejected_provider_key_is_listed_with_the_reason(gateway: Rig, operator: Client) -> None:
    upstream = gateway.upstreams["anthropic"]
    upstream.faults.append(upstream.error(401, "authentication", "invalid x-api-key"))
    assert asked(gateway, "sk-client", "anthropic").status == 502
    rows = operator.get("/admin/credentials").json["credentials"]
    (row,) = [row for row in rows if row["provider"] == "anthropic"]
    assert row["last_error"] == "authentication: invalid x-api-key"
    assert [(held["model"], held["state"]) for held in row["models"]] == [(MODELS["anthropic"], "invalid")]
    assert row["models"][0]["until"]


def test_the_audit_log_names_the_client_of_a_proxy_and_has_pages(operator: Client) -> None:
    operator.request("POST", "/admin/keys", b'{"name": "a"}', {"x-forwarded-for": "203.0.113.9"})
    make(operator, "b")
    first = operator.get("/admin/audit?limit=1").json
    assert first["changes"][0]["target"] == "b"
    rest = operator.get(f"/admin/audit?limit=5&before={first['before']}").json
    assert [(row["target"], row["peer"]) for row in rest["changes"]] == [("a", "127.0.0.1 for 203.0.113.9")]
    assert rest["before"] is None


def test_without_an_admin_key_no_key_is_created(tmp_path: Path) -> None:
    with rig(ledger=LedgerSettings(address=str(tmp_path / "ledger.db"))) as gateway, gateway.client() as client:
        got = client.post("/admin/keys", {"name": "a"})
        assert got.status == 409
        assert "configure an admin key first" in got.json["error"]["message"]
        assert client.get("/admin/keys").json == {"keys": [], "total": 0, "after": None}
        assert client.get("/admin/audit").json["changes"] == []


def test_stored_keys_survive_a_restart(tmp_path: Path) -> None:
    ledger = LedgerSettings(address=str(tmp_path / "ledger.db"))
    with rig(keys=KEYS, ledger=ledger) as gateway, gateway.client(OPERATOR) as operator:
        secret = make(operator, "a")["key"]
    with rig(keys=KEYS, ledger=ledger) as gateway:
        assert asked(gateway, secret).status == 200
    with rig(ledger=ledger) as gateway:  # without keys in the configuration the stored ones still close the gateway
        assert asked(gateway, "").status == 401
        assert asked(gateway, secret).status == 200


def test_day_and_month_of_a_usage_are_of_the_same_moment(gateway: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row is written while a client's usage is read; what the client gets has it in both periods or in none."""
    has_read, may_go_on = threading.Event(), threading.Event()
    read_rows = OperatorDatabase.read_rows

    async def read_slowly(database: OperatorDatabase, call: Callable[[Any], list[Any]]) -> list[Any]:
        rows = await read_rows(database, call)
        if not has_read.is_set():
            has_read.set()
            await asyncio.to_thread(may_go_on.wait, 30)
        return rows

    def usage() -> dict[str, Any]:
        with gateway.client("sk-client") as client:
            return dict(client.get("/v1/usage").json)

    assert asked(gateway, "sk-client").status == 200
    until(lambda: usage()["month"]["calls"] == 1, "the first row is written")
    monkeypatch.setattr(OperatorDatabase, "read_rows", read_slowly)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(usage)
        try:
            assert has_read.wait(30)
            assert asked(gateway, "sk-client").status == 200
            until(lambda: usage()["month"]["calls"] == 2, "the second row is written")
        finally:
            may_go_on.set()
        found = reading.result(30)
    assert found["day"]["calls"] == found["month"]["calls"]
    assert found["day"]["cost"] == found["month"]["cost"]
    assert found["day"]["models"] == found["month"]["models"]


def test_a_client_sees_its_own_usage_and_nothing_of_others(gateway: Rig, operator: Client) -> None:
    keys = {name: make(operator, name, budget_per_day=5)["key"] for name in ("alice", "bob")}
    assert [asked(gateway, keys["alice"]).status for _ in range(2)] == [200, 200]
    assert asked(gateway, keys["bob"], "anthropic").status == 200

    def usage(key: str, calls: int) -> dict[str, Any]:
        with gateway.client(key) as client:
            return until(lambda: found if (found := client.get("/v1/usage").json)["month"]["calls"] == calls else None)  # type: ignore[no-any-return]

    alice = usage(keys["alice"], 2)
    assert alice["name"] == "alice"
    assert alice["day"]["prompt_tokens"] + alice["day"]["completion_tokens"] == 36
    assert alice["day"]["cost"] > 0
    assert alice["day"]["budget_per_day"] == 5
    assert [row["model"] for row in alice["month"]["models"]] == ["gpt-4o"]
    assert "bob" not in str(alice)
    assert usage(keys["bob"], 1)["day"]["cost"] > 0
    assert usage("sk-client", 0)["day"]["cost"] == 0
    spent = operator.get("/admin/spend?by=key").json
    assert {row["key"]: row["calls"] for row in spent["rows"]} == {"alice": 2, "bob": 1}
    assert sum(row["calls"] for row in operator.get("/admin/spend?by=day,model").json["rows"]) == 3
    assert [row["calls"] for row in operator.get("/admin/spend").json["rows"]] == [3]
    assert [row["calls"] for row in operator.get("/admin/spend?key=bob").json["rows"]] == [1]
    assert operator.get("/admin/spend?since=2020-01-01&until=2020-02-01").json["rows"] == []
    assert operator.get("/admin/keys/alice").json["usage"]["day"]["calls"] == 2
    with gateway.client() as client:
        assert client.get("/v1/usage").status == 401
