"""The login of the status page: which keys open it, how often one may be tried, and that no other site can try."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from antiphon_gateway.access.client_keys import hash_key
from antiphon_gateway.config.settings import ClientKeySettings
from antiphon_gateway.endpoints import keyless
from antiphon_gateway.endpoints.keyless import LoginAttempts
from gateway.rig import Client, Got, Rig, rig

ADMIN, USER = "sk-antiphon-the-admin-key-0001", "sk-antiphon-the-user-key-0002"
BROWSER = {"accept": "text/html,application/xhtml+xml"}
KEYS = (
    ClientKeySettings(name="chief", key=hash_key(ADMIN), admin=True),
    ClientKeySettings(name="user", key=hash_key(USER)),
)


@pytest.fixture(scope="module")
def gateway() -> Iterator[Rig]:
    with rig(keys=KEYS) as running:
        yield running


@pytest.fixture
def client(gateway: Rig, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setattr(keyless, "attempts", LoginAttempts(most=3))
    with gateway.client() as client:
        yield client


def log_in(client: Client, key: str, **headers: str) -> Got:
    return client.request("POST", "/status/login", b"", {"authorization": f"Bearer {key}", **headers})


def test_a_browser_gets_the_page_without_data_and_a_program_an_error(client: Client) -> None:
    page = client.request("GET", "/status", headers=BROWSER)
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert b"chief" not in page.body
    assert client.get("/status").status == 401
    assert client.request("GET", "/status?format=json", headers=BROWSER).status == 401
    for key, status in ((USER, 403), (ADMIN, 200)):
        assert client.get("/status", **{"x-api-key": key}).status == status


def test_an_admin_key_opens_it_and_nothing_is_kept(client: Client) -> None:
    got = log_in(client, ADMIN)
    assert (got.status, got.json) == (200, {"name": "chief"})
    assert "set-cookie" not in got.headers
    assert got.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(("key", "is_known"), [("wrong", False), (USER, True), ("", False)])
def test_other_keys_do_not(client: Client, key: str, is_known: bool) -> None:
    got = log_in(client, key)
    assert (got.status, got.json) == (401, {"is_known": is_known, "tries_left": 2})


def test_wrong_keys_are_limited(client: Client) -> None:
    assert [log_in(client, "wrong").json["tries_left"] for _ in range(3)] == [2, 1, 0]
    got = log_in(client, ADMIN)
    assert got.status == 429
    assert 0 < got.json["seconds"] == int(got.headers["retry-after"]) <= 60


@pytest.mark.parametrize("headers", [{"sec-fetch-site": "cross-site"}, {"origin": "https://evil.example"}])
def test_another_site_cannot_try_keys(client: Client, headers: dict[str, str]) -> None:
    assert log_in(client, ADMIN, **headers).status == 403
    assert log_in(client, "wrong").json["tries_left"] == 2, "it was not counted"


def test_a_login_has_no_large_body(client: Client) -> None:
    body = b'"%s"' % (b"x" * 10_000)
    assert client.request("POST", "/status/login", body, {"content-type": "application/json"}).status == 413


def test_a_gateway_without_keys_needs_no_login(client: Client) -> None:
    assert client.get("/status/login").json == {"needs_key": True}
    with rig() as open_gateway, open_gateway.client() as anybody:
        assert anybody.get("/status/login").json == {"needs_key": False}
        assert anybody.get("/status").status == 200
        switch = {"provider": "gemini", "credential": "env:KEY_GEMINI", "enabled": False}
        assert anybody.post("/credentials", switch, {"origin": "https://evil.example"}).status == 403
        assert anybody.post("/credentials", switch).status == 200


def test_opening_the_page_leaves_no_calls(client: Client) -> None:
    for path in ("/status", "/status/login", "/status/page/page.js"):
        client.request("GET", path, headers=BROWSER)
    shown = client.get("/status", **{"x-api-key": ADMIN}).json["requests"]
    opened = {"status", "status_page", "status_login_needed"}
    assert not [record for record in shown if record["operation"] in opened and record["status"] < 400]


def test_attempts_are_counted_by_address_for_a_while() -> None:
    now = [0.0]
    attempts = LoginAttempts(most=2, seconds=60.0, clock=lambda: now[0])
    for address in ("a", "a", "b"):
        attempts.failed(address)
    assert [attempts.wait("a"), attempts.wait("b")] == [60.0, 0.0]
    assert [attempts.left("a"), attempts.left("b"), attempts.left("c")] == [0, 1, 2]
    now[0] = 60.5
    assert (attempts.wait("a"), attempts.left("a")) == (0.0, 2)
