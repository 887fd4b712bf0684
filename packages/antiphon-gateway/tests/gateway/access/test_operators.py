"""Who is an operator: an admin key, or a program on this machine that did not come through a proxy."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from antiphon.http.client.client import HttpClient
from antiphon.http.messages import ClientRequest
from antiphon_gateway.access.client_keys import LOCAL_OPERATOR, ClientKey, find_operator, forwarded_addresses, hash_key
from antiphon_gateway.config.settings import ClientKeySettings, Config
from antiphon_gateway.routes import ROUTES
from antiphon_gateway.runtime.loaded import LoadedConfig
from gateway.rig import Rig, rig

KEYS = (
    ClientKeySettings(name="operator", key=hash_key("sk-operator"), admin=True),
    ClientKeySettings(name="client", key=hash_key("sk-client")),
)
LOCAL = {"host": "localhost:8000"}


def operator(keys: tuple[ClientKeySettings, ...], peer: str, headers: dict[str, str]) -> ClientKey | None:
    loaded = LoadedConfig(Config(keys=keys), HttpClient({}), environ={})
    return find_operator(loaded, ClientRequest(method="GET", path="/status", peer=peer, headers=headers))


@pytest.mark.parametrize(
    ("peer", "headers", "is_operator"),
    [
        ("127.0.0.1", {}, True),
        ("::1", {}, True),
        ("192.0.2.7", {}, False),
        ("127.0.0.1", {"host": "rebound.example"}, False),
        ("127.0.0.1", {"origin": "https://other.example"}, False),
        ("127.0.0.1", {"x-forwarded-for": "203.0.113.9"}, False),
        ("127.0.0.1", {"x-forwarded-for": "127.0.0.1, 203.0.113.9"}, False),
        ("127.0.0.1", {"x-forwarded-for": ""}, False),
        ("127.0.0.1", {"x-forwarded-for": "unknown"}, False),
        ("127.0.0.1", {"x-forwarded-for": "::1, 127.0.0.1:4000"}, False),
        ("127.0.0.1", {"x-real-ip": "203.0.113.9"}, False),
        ("127.0.0.1", {"forwarded": 'for="[2001:db8::17]:4711";proto=https'}, False),
        ("127.0.0.1", {"forwarded": "for=127.0.0.1, for=203.0.113.9"}, False),
        ("127.0.0.1", {"forwarded": "proto=https"}, False),
        ("127.0.0.1", {"forwarded": 'for="[::1]:4711"'}, False),
        # A forged header gives nothing to a client elsewhere.
        ("192.0.2.7", {"x-forwarded-for": "127.0.0.1"}, False),
    ],
)
def test_without_keys_only_loopback_clients_are_operators(
    peer: str, headers: dict[str, str], is_operator: bool
) -> None:
    assert operator((), peer, {**LOCAL, **headers}) == (LOCAL_OPERATOR if is_operator else None)


@pytest.mark.parametrize("peer", ["127.0.0.1", "192.0.2.7"])
def test_with_keys_only_an_admin_key_counts(peer: str) -> None:
    assert operator(KEYS, peer, LOCAL) is None
    assert operator(KEYS, peer, {**LOCAL, "authorization": "Bearer sk-client"}) is None
    found = operator(KEYS, peer, {**LOCAL, "authorization": "Bearer sk-operator", "x-forwarded-for": "203.0.113.9"})
    assert found is not None
    assert found.name == "operator"


def test_addresses_of_all_forwarding_headers() -> None:
    headers = {"x-forwarded-for": "a, b", "x-real-ip": "c", "forwarded": "for=d;by=e"}
    assert forwarded_addresses(headers) == ["a", "b", "c", "d"]
    assert forwarded_addresses({"host": "x"}) == []


def test_everything_of_operators_says_so_in_its_route() -> None:
    own = ("/admin/", "/credentials", "/metrics")
    assert {route.endpoint.access for route in ROUTES if route.path.startswith(own)} == {"operator"}
    assert {route.path for route in ROUTES if route.endpoint.access == "probe"} == {"/healthz", "/readyz"}
    page = {"/status/page/{name}", "/status/login"}
    assert {route.path for route in ROUTES if route.endpoint.access == "anyone"} == page


@pytest.fixture(scope="module")
def open_gateway() -> Iterator[Rig]:
    with rig() as running:
        yield running


@pytest.mark.parametrize(
    "name", ["x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "via", "forwarded"]
)
def test_without_keys_a_forwarded_request_is_refused_on_every_route(open_gateway: Rig, name: str) -> None:
    value = {"forwarded": "for=127.0.0.1", "via": "1.1 proxy", "x-forwarded-proto": "https"}.get(name, "127.0.0.1")
    with open_gateway.client() as client:
        for route in ROUTES:
            if route.endpoint.access == "probe":
                continue
            path = re.sub(r"\{[^}]*\}", "x", route.path)
            got = client.request(route.method, path, b"{}" if route.method == "POST" else None, {name: value})
            assert (got.status, b"a proxy forwarded" in got.body) == (403, True), (route, got)
        assert client.request("GET", "/healthz", headers={name: value}).status == 200
        assert client.get("/v1/models").status == 200


@pytest.mark.parametrize("path", ["/status", "/metrics", "/credentials"])
def test_a_request_that_a_proxy_forwards_is_not_local(open_gateway: Rig, path: str) -> None:
    with open_gateway.client() as client:
        assert client.get(path).status == 200
        refused = client.request("GET", path, headers={"x-forwarded-for": "203.0.113.9"})
        assert refused.status == 403
        assert "forwarded" in refused.json["error"]["message"]


def test_readiness_has_no_details_for_forwarded_and_rebound_requests(open_gateway: Rig) -> None:
    with open_gateway.client() as client:
        assert "providers" in client.get("/readyz").json
        for headers in ({"x-forwarded-for": "203.0.113.9"}, {"host": "rebound.example"}):
            assert client.request("GET", "/readyz", headers=headers).json == {"status": "ok"}
