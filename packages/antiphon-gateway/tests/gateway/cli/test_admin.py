"""`antiphon admin` against a running gateway."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.cli import main
from antiphon.parts import Text
from antiphon.wire.request import Message, ModelRequest
from antiphon_gateway.access.client_keys import hash_key
from antiphon_gateway.config.settings import ClientKeySettings, LedgerSettings
from gateway.rig import MODELS, Rig, rig
from support.local_server import LocalServer

OPERATOR = "sk-operator-0123456789"
QUESTION = ModelRequest(messages=(Message("user", (Text("Is it raining?"),)),), max_output_tokens=500)


@pytest.fixture
def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setenv("ANTIPHON_ADMIN_KEY", OPERATOR)
    keys = [ClientKeySettings(name="operator", key=hash_key(OPERATOR), admin=True)]
    with rig(keys=keys, ledger=LedgerSettings(address=str(tmp_path / "ledger.db"))) as running:
        yield running


@pytest.fixture
def admin(gateway: Rig, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def run(*arguments: str, code: int = 0) -> str:
        assert main(["admin", *arguments, "--url", gateway.url]) == code, capsys.readouterr().err
        captured = capsys.readouterr()
        return captured.out if code == 0 else captured.err

    return run


def shown(admin: Callable[..., str], name: str) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(admin("show", name, "--json"))
    return found


def status(gateway: Rig, key: str) -> int:
    with gateway.client(key) as client:
        return client.ask("openai-chat", "to-openai-chat", QUESTION, streams=False).status


def test_the_life_of_a_key(gateway: Rig, admin: Callable[..., str]) -> None:
    options = (
        "--budget-per-month",
        "300",
        "--tokens-per-day",
        "5_000_000",
        "--models",
        "to-*, gpt-5*",
        "--expires",
        "30d",
    )
    key = admin("create", "team blue", *options).strip()
    assert key.startswith("sk-antiphon-")
    assert status(gateway, key) == 200
    found = shown(admin, "team blue")
    assert (found["budget_per_month"], found["tokens_per_day"], found["models"]) == (300, 5_000_000, ["to-*", "gpt-5*"])
    assert found["expires"]
    listed = admin("list")
    assert "budget_per_month=300" in listed
    assert "operator" in listed
    assert "operator" not in admin("list", "--search", "BLUE")
    admin("set", "team blue", "--budget-per-month", "none", "--requests-per-minute", "100", "--expires", "2099-01-31")
    changed = shown(admin, "team blue")
    assert (changed["budget_per_month"], changed["requests_per_minute"]) == (None, 100)
    assert changed["expires"].startswith("2099-01-31T00:00:00")
    assert admin("disable", "team blue") == "disabled team blue\n"
    assert status(gateway, key) == 401
    admin("enable", "team blue")
    second = admin("rotate", "team blue", "--grace", "1h").strip()
    assert [status(gateway, one) for one in (key, second)] == [200, 200]
    assert "today" in admin("show", "team blue")
    admin("delete", found["id"])
    assert status(gateway, second) == 401
    log = admin("audit")
    assert [word in log for word in ("create key", "rotate key", "delete key", "operator", key)] == [True] * 4 + [False]
    assert msgspec.json.decode(admin("spend", "--by", "model,day", "--json"))["rows"] is not None
    assert "tokens_per_day=5000000" in log, "what a new key may do is in the audit log"
    deadline = time.monotonic() + 20
    while "team blue 3 0 " not in " ".join(
        (spent := admin("spend", "--since", "7d")).split()
    ):  # rows are committed once a second
        assert time.monotonic() < deadline, spent
        time.sleep(0.05)
    lines = spent.splitlines()
    assert lines[0].split() == ["key", "calls", "failed", "prompt", "completion", "cost"]
    assert lines[1].split()[:4] == ["team", "blue", "3", "0"]
    assert admin("spend", "--until", "2020-01-01") == "no usage recorded for that time\n"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("show", "unknown"), "no key 'unknown'"),
        (("create", "operator"), "in the configuration"),
        (("create", "a", "--tokens-per-day", "many"), "--tokens-per-day many: expected a number"),
        (("create", "a", "--tokens-per-day", "none"), "expected a number"),
        (("create", "a", "--budget-per-day", "nan"), "--budget-per-day nan: expected a number"),
        (("set", "a", "--budget-per-day", "inf"), "--budget-per-day inf: expected a number"),
        (("create", "a", "--expires", "soon"), "--expires soon: expected a date"),
        (("create", "a", "--expires", "999999999d"), "--expires 999999999d: expected a date"),
        (("create", "a", "--expires", "9999999999d"), "--expires 9999999999d: expected a date"),
        (("rotate", "a", "--grace", "1"), "--grace 1: expected a number and a unit"),
        (("set", "a"), "nothing to change"),
        (("list", "--key", "sk-literal"), "--key expects env:NAME or file:PATH"),
        (("list", "--key", "env:NOT_SET_ANYWHERE"), "NOT_SET_ANYWHERE is not set"),
        (("spend", "--by", "color"), "by=color is unknown"),
        (("spend", "--since", "then"), "--since 'then' is not a time"),
    ],
)
def test_mistakes_are_explained(admin: Callable[..., str], arguments: tuple[str, ...], reason: str) -> None:
    assert reason in admin(*arguments, code=1)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://127.0.0.1:9", "no answer from the gateway at http://127.0.0.1:9"),
        ("somewhere", "--url somewhere: expected an http or https URL"),
        ("http://host:port", "--url http://host:port: expected an http or https URL"),
        ("http://[::1", "--url http://[::1: expected an http or https URL"),
        ("http://.", "http://."),
    ],
)
def test_a_gateway_that_is_not_there(capsys: pytest.CaptureFixture[str], url: str, reason: str) -> None:
    assert main(["admin", "list", "--url", url]) == 1
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"<html>", "JSON is malformed"),
        (b"[]", "Expected `object`, got `array`"),
        (b'{"credentials": "\xff"}', "no answer from the gateway at "),
        (b"{}", "has no 'credentials'; it is not from a gateway of this version"),
    ],
)
def test_a_server_of_another_kind(capsys: pytest.CaptureFixture[str], body: bytes, reason: str) -> None:
    with LocalServer() as server:
        server.answer(200, "application/json", body)
        assert main(["key", "disable", "openai", "env:KEY", "--url", server.url]) == 1
    assert reason in capsys.readouterr().err


def test_the_key_of_the_operator_goes_to_no_other_host(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTIPHON_ADMIN_KEY", OPERATOR)
    with LocalServer() as server, socket.create_server(("127.0.0.1", 0)) as other:
        other.settimeout(0.0)
        place = f"http://127.0.0.1:{other.getsockname()[1]}"
        monkeypatch.setenv("http_proxy", place)  # which no request to this machine needs
        server.answer(302, "text/plain", b"", location=f"{place}/")
        assert main(["key", "disable", "openai", "env:KEY", "--url", server.url]) == 1
        with pytest.raises(BlockingIOError):
            other.accept()
    assert f"{server.url} answered with status 302" in capsys.readouterr().err


def test_provider_keys_are_listed_with_the_same_client(gateway: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["key", "list", "--url", gateway.url]) == 0
    assert "env:KEY_ANTHROPIC" in capsys.readouterr().out
    upstream = gateway.upstreams["anthropic"]
    upstream.faults.append(upstream.error(401, "authentication", "invalid x-api-key"))
    with gateway.client(OPERATOR) as client:
        assert client.ask("anthropic", "to-anthropic", QUESTION, streams=False).status == 502
    assert main(["key", "list", "--url", gateway.url]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "env:KEY_ANTHROPIC" in line]
    assert f"invalid for {MODELS['anthropic']} until 20" in line
    assert "authentication: " in line
    assert main(["key", "disable", "anthropic", "env:KEY_ANTHROPIC", "--url", gateway.url]) == 0
    assert "disabled" in capsys.readouterr().out
