"""Sessions of the status page: who gets one, what it is good for, and that another site cannot use it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest
from msgspec import structs

from antiphon.http.client.client import HttpClient
from antiphon.http.messages import ClientRequest
from antiphon_gateway.access.client_keys import hash_key
from antiphon_gateway.access.page_session import (
    COOKIE,
    SESSION_SECONDS,
    LoginAttempts,
    form_token,
    has_form_token,
    new_session,
    session_cookie,
    session_key,
)
from antiphon_gateway.admin import status_forms
from antiphon_gateway.config.settings import ClientKeySettings, Config, ProviderSettings
from antiphon_gateway.runtime.loaded import LoadedConfig
from gateway.rig import Client, Got, Rig, rig

ADMIN, USER = "sk-antiphon-the-admin-key-0001", "sk-antiphon-the-user-key-0002"
HTML = {"accept": "text/html", "content-type": "application/x-www-form-urlencoded"}
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
    monkeypatch.setattr(status_forms, "attempts", LoginAttempts(most=3))
    with gateway.client() as client:
        yield client


def post(client: Client, path: str, fields: dict[str, str], **headers: str) -> Got:
    return client.request("POST", path, urlencode(fields).encode(), {**HTML, **headers})


def log_in(client: Client, key: str = ADMIN, **headers: str) -> str:
    """The cookie of a new session."""
    got = post(client, "/status/login", {"key": key}, **headers)
    assert (got.status, got.headers["location"]) == (303, "/status"), got.body
    return got.headers["set-cookie"].partition(";")[0]


def token_of(page: Got) -> str:
    found = re.search(rb'name="token" value="([0-9a-f]+)"', page.body)
    assert found is not None
    return found[1].decode()


def test_a_browser_without_a_session_gets_the_form_and_a_program_an_error(client: Client) -> None:
    got = client.request("GET", "/status", headers={"accept": "text/html"})
    assert got.status == 401
    assert b'<form class="login" method="post" action="/status/login">' in got.body
    assert "form-action 'self'" in got.headers["content-security-policy"]
    got = client.get("/status")
    assert (got.status, got.headers["content-type"]) == (401, "application/json")
    for key, status in ((USER, 403), (ADMIN, 200)):
        assert client.get("/status", **{"x-api-key": key}).status == status


def test_an_admin_key_begins_a_session(client: Client) -> None:
    got = post(client, "/status/login", {"key": ADMIN})
    cookie = got.headers["set-cookie"]
    assert re.fullmatch(
        rf"{COOKIE}=[\w.-]+; Path=/status; Max-Age={SESSION_SECONDS}; HttpOnly; SameSite=Strict", cookie
    )
    assert ADMIN not in cookie
    page = client.request("GET", "/status", headers={"accept": "text/html", "cookie": cookie.partition(";")[0]})
    assert page.status == 200
    assert b"Log out" in page.body
    assert ADMIN.encode() not in page.body


def test_the_cookie_is_secure_under_https(client: Client) -> None:
    got = post(client, "/status/login", {"key": ADMIN}, **{"x-forwarded-proto": "https"})
    assert got.headers["set-cookie"].endswith("; Secure")


@pytest.mark.parametrize(
    ("key", "text"), [("wrong", b"not known here"), (USER, b"no admin rights"), ("", b"not known")]
)
def test_other_keys_do_not(client: Client, key: str, text: bytes) -> None:
    got = post(client, "/status/login", {"key": key})
    assert got.status == 401
    assert text in got.body
    assert "set-cookie" not in got.headers


def test_wrong_keys_are_limited(client: Client) -> None:
    for _ in range(3):
        assert post(client, "/status/login", {"key": "wrong"}).status == 401
    got = post(client, "/status/login", {"key": ADMIN})
    assert got.status == 429
    assert 0 < int(got.headers["retry-after"]) <= 60


def test_a_session_is_good_for_the_page_alone(client: Client) -> None:
    cookie = log_in(client)
    for path in ("/metrics", "/credentials", "/v1/models"):
        assert client.get(path, cookie=cookie).status == 401
    assert client.get("/status", cookie=cookie).status == 200


def test_logging_out_ends_it_in_the_browser(client: Client) -> None:
    cookie = log_in(client)
    token = token_of(client.request("GET", "/status", headers={"accept": "text/html", "cookie": cookie}))
    got = post(client, "/status/logout", {"token": token}, cookie=cookie)
    assert got.status == 303
    assert got.headers["set-cookie"].startswith(f"{COOKIE}=; Path=/status; Max-Age=0;")


def test_a_key_is_switched_off_and_on(client: Client) -> None:
    cookie = log_in(client)
    for enabled, state in (("false", "disabled"), ("true", "healthy")):
        token = token_of(client.request("GET", "/status", headers={"accept": "text/html", "cookie": cookie}))
        fields = {"token": token, "provider": "anthropic", "credential": "env:KEY_ANTHROPIC", "enabled": enabled}
        assert post(client, "/status/credentials", fields, cookie=cookie).status == 303
        states = {row["provider"]: row["state"] for row in client.get("/status", cookie=cookie).json["credentials"]}
        assert states["anthropic"] == state


@pytest.mark.parametrize("path", ["/status/credentials", "/status/logout"])
def test_a_form_of_another_page_changes_nothing(client: Client, path: str) -> None:
    cookie = log_in(client)
    token = token_of(client.request("GET", "/status", headers={"accept": "text/html", "cookie": cookie}))
    switch = {"provider": "anthropic", "credential": "env:KEY_ANTHROPIC", "enabled": "false"}
    for fields, headers in (
        (switch, {"cookie": cookie}),
        ({**switch, "token": "0" * 64}, {"cookie": cookie}),
        ({**switch, "token": token}, {"cookie": cookie, "origin": "https://evil.example"}),
        ({**switch, "token": token}, {"cookie": cookie, "sec-fetch-site": "cross-site"}),
        ({**switch, "token": token}, {}),
        ({**switch, "token": token}, {"cookie": log_in(client)}),
    ):
        got = post(client, path, fields, **headers)
        assert got.status in (401, 403), (fields, headers)
        assert "set-cookie" not in got.headers
    assert all(row["state"] == "healthy" for row in client.get("/status", cookie=cookie).json["credentials"])


def test_another_site_cannot_log_a_browser_in(client: Client) -> None:
    got = post(client, "/status/login", {"key": ADMIN}, **{"sec-fetch-site": "cross-site"})
    assert (got.status, "set-cookie" in got.headers) == (403, False)


def test_a_form_is_small_and_a_form(client: Client) -> None:
    assert post(client, "/status/login", {"key": "x" * 10_000}).status == 413
    for content_type, status in (("text/plain", 415), ("multipart/form-data", 415)):
        assert client.request("POST", "/status/login", b"key=x", {"content-type": content_type}).status == status
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert client.request("POST", "/v1/chat/completions", b"a=b", {**form, "x-api-key": USER}).status == 415


def test_a_gateway_without_keys_needs_no_login() -> None:
    with rig() as open_gateway, open_gateway.client() as client:
        page = client.request("GET", "/status", headers={"accept": "text/html"})
        assert page.status == 200
        assert b"Log out" not in page.body
        switch = {"provider": "gemini", "credential": "env:KEY_GEMINI", "enabled": "false"}
        assert post(client, "/status/credentials", switch).status == 403
        assert post(client, "/status/credentials", {**switch, "token": token_of(page)}).status == 303


def loaded_with(*keys: ClientKeySettings, secret: str = "sk-upstream-1") -> LoadedConfig:
    provider = ProviderSettings(name="openai", keys=("env:UPSTREAM",))
    config = Config(providers=(provider,), keys=keys)
    return LoadedConfig(config, HttpClient(), environ={"UPSTREAM": secret})


def request_with(cookie: str, path: str = "/status") -> ClientRequest:
    return ClientRequest(method="GET", path=path, headers={"cookie": f"a=b; {COOKIE}={cookie}"})


def test_a_session_ends_with_time_with_its_key_and_with_the_secrets() -> None:
    loaded = loaded_with(*KEYS)
    key = loaded.keys.named("chief")
    assert key is not None
    value = new_session(loaded, key)
    assert session_key(loaded, request_with(value)) == key
    assert session_key(loaded_with(*KEYS), request_with(value)) is not None, "another worker accepts it"
    expired = new_session(loaded, key, now=time.time() - SESSION_SECONDS - 5)
    assert session_key(loaded, request_with(expired)) is None
    assert session_key(loaded, request_with(value, "/metrics")) is None
    assert session_key(loaded_with(KEYS[1]), request_with(value)) is None
    assert session_key(loaded_with(structs.replace(KEYS[0], admin=False)), request_with(value)) is None
    assert session_key(loaded_with(*KEYS, secret="sk-upstream-2"), request_with(value)) is None
    replaced = structs.replace(KEYS[0], key=hash_key("sk-antiphon-another-admin-key"))
    assert session_key(loaded_with(replaced, KEYS[1]), request_with(value)) is None, "another key of the same name"


def test_the_cookie_is_secure_if_the_listener_has_tls() -> None:
    plain = loaded_with(*KEYS)
    config = structs.replace(plain.config, gateway=structs.replace(plain.config.gateway, tls_cert="cert.pem"))
    secure = LoadedConfig(config, HttpClient(), environ=plain.environ)
    assert [session_cookie(loaded, request_with(""), "v").endswith("Secure") for loaded in (plain, secure)] == [
        False,
        True,
    ]


def test_a_changed_cookie_is_not_a_session() -> None:
    loaded = loaded_with(*KEYS)
    key, user = loaded.keys.named("chief"), loaded.keys.named("user")
    assert key is not None
    assert user is not None
    name, expires, nonce, mark = new_session(loaded, key).split(".")
    for value in (
        "",
        "....",
        name,
        f"{name}.{expires}.{nonce}.",
        f"{name}.{int(expires) + 1}.{nonce}.{mark}",
        f"{name}.{expires}.{nonce}.{mark[:-1]}é",
        f"{new_session(loaded, user).partition('.')[0]}.{expires}.{nonce}.{mark}",
        f"{name}.{expires}.{nonce}.x.{mark}",
        new_session(loaded, user),
    ):
        assert session_key(loaded, request_with(value)) is None, value


def test_a_form_token_belongs_to_its_session() -> None:
    loaded = loaded_with(*KEYS)
    key = loaded.keys.named("chief")
    assert key is not None
    first, second = request_with(new_session(loaded, key)), request_with(new_session(loaded, key))
    assert has_form_token(loaded, first, form_token(loaded, first))
    assert not has_form_token(loaded, second, form_token(loaded, first))


def test_login_attempts_are_counted_by_address() -> None:
    now = [0.0]
    attempts = LoginAttempts(most=2, seconds=60, clock=lambda: now[0])
    attempts.failed("1.2.3.4")
    now[0] = 10.0
    attempts.failed("1.2.3.4")
    assert attempts.wait("1.2.3.4") == pytest.approx(50)
    assert attempts.wait("5.6.7.8") == 0
    now[0] = 60.5
    assert attempts.wait("1.2.3.4") == 0
