"""Which web pages may call a gateway without keys: none but its own, on any endpoint; and no client is in the way of that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from msgspec import structs

from antiphon.http.origin import OriginRules, local_problem, site_problem
from antiphon_gateway.access.client_keys import hash_key
from antiphon_gateway.config.file import read_config
from antiphon_gateway.config.settings import ClientKeySettings
from gateway.rig import FAST, Rig, rig

BODY = b'{"model":"to-openai-chat","messages":[{"role":"user","content":"hi"}],"max_tokens":100}'
ENDPOINTS = [
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/responses"),
    ("POST", "/v1/messages"),
    ("POST", "/v1/messages/count_tokens"),
    ("POST", "/v1/embeddings"),
    ("POST", "/v1beta/models/to-openai-chat:generateContent"),
    ("POST", "/v1beta/models/to-openai-chat:countTokens"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/to-openai-chat"),
    ("GET", "/v1beta/models"),
    ("GET", "/v1/responses/resp_1"),
    ("DELETE", "/v1/responses/resp_1"),
    ("GET", "/v1/responses/resp_1/input_items"),
    ("GET", "/metrics"),
    ("GET", "/status"),
]
PROBES = [("GET", "/healthz"), ("GET", "/readyz")]
FOREIGN_PAGES = {
    "origin": {"origin": "http://evil.example"},
    "no origin to name": {"origin": "null"},
    "another port": {"origin": "http://127.0.0.1:1"},
    "cross-site": {"sec-fetch-site": "cross-site"},
    "same-site": {"sec-fetch-site": "same-site"},
    "a simple request": {"origin": "http://evil.example", "content-type": "text/plain", "sec-fetch-site": "cross-site"},
}
FOREIGN_HOSTS = {
    "rebound name": {"host": "evil.example"},
    "rebound name with port": {"host": "evil.example:8000"},
    "name that starts like ours": {"host": "localhost.evil.example"},
    "name that ends like ours": {"host": "evil-localhost"},
    "another address": {"host": "10.0.0.1:8000"},
    "empty": {"host": ""},
    "long": {"host": "a" * 2000},
    "own origin of a rebound page": {"host": "evil.example", "origin": "http://evil.example"},
}


@pytest.fixture(scope="module")
def gateway() -> Iterator[Rig]:
    with rig() as running:
        yield running


def status(gateway: Rig, method: str, path: str, headers: Mapping[str, str]) -> int:
    with gateway.client() as client:
        return client.request(method, path, BODY if method == "POST" else None, headers).status


@pytest.mark.parametrize("name", FOREIGN_PAGES | FOREIGN_HOSTS)
def test_foreign_pages_are_refused_on_every_endpoint(gateway: Rig, name: str) -> None:
    headers = (FOREIGN_PAGES | FOREIGN_HOSTS)[name]
    gateway.clear()
    found = {path: status(gateway, method, path, headers) for method, path in ENDPOINTS}
    assert found == {path: 403 for _, path in ENDPOINTS}
    assert all(upstream.received == [] for upstream in gateway.upstreams.values())


@pytest.mark.parametrize("name", FOREIGN_PAGES)
def test_foreign_pages_do_not_read_the_probes_either(gateway: Rig, name: str) -> None:
    assert [status(gateway, *probe, FOREIGN_PAGES[name]) for probe in PROBES] == [403, 403]


def test_probes_ask_under_any_name(gateway: Rig) -> None:
    assert [status(gateway, *probe, {"host": "10.0.0.7:8000"}) for probe in PROBES] == [200, 200]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"host": "localhost"},
        {"host": "LOCALHOST:8000"},
        {"host": "127.0.0.1:8000"},
        {"host": "127.8.9.1"},
        {"host": "[::1]:8000"},
        {"sec-fetch-site": "none"},  # an address that was typed
        {"sec-fetch-mode": "cors"},  # Node's fetch sends this, and no Sec-Fetch-Site
        {"host": "localhost:8000", "origin": "http://localhost:8000", "sec-fetch-site": "same-origin"},
        {"host": "localhost:8000", "origin": "https://localhost:8000"},  # TLS ended in front of the gateway
    ],
)
def test_programs_and_own_pages_are_served(gateway: Rig, headers: dict[str, str]) -> None:
    assert status(gateway, "POST", "/v1/chat/completions", headers) == 200
    assert status(gateway, "GET", "/v1/models", headers) == 200


@pytest.mark.parametrize("kind", ["text/plain", "text/plain; charset=utf-8", "application/x-www-form-urlencoded"])
def test_only_json_content_types_are_read(gateway: Rig, kind: str) -> None:
    assert status(gateway, "POST", "/v1/chat/completions", {"content-type": kind}) == 415


def test_names_of_the_configuration_are_allowed() -> None:
    settings = structs.replace(
        FAST, allowed_hosts=("Gateway.internal",), allowed_origins=("http://localhost:3000", "app://notes")
    )
    with rig(settings) as gateway:
        for headers, wanted in [
            ({"host": "gateway.internal:8000"}, 200),
            ({"host": "other.internal"}, 403),
            ({"origin": "http://localhost:3000", "sec-fetch-site": "same-site"}, 200),
            ({"origin": "app://notes", "sec-fetch-site": "cross-site"}, 200),
            ({"origin": "http://localhost:3001"}, 403),
            ({"origin": "http://localhost:3000", "host": "evil.example"}, 403),
        ]:
            assert status(gateway, "POST", "/v1/chat/completions", headers) == wanted, headers


def test_a_page_that_has_a_key_may_use_it() -> None:
    with rig(keys=(ClientKeySettings(name="one", key=hash_key("sk-one")),)) as gateway:
        headers = {"origin": "https://app.example", "sec-fetch-site": "cross-site", "host": "gateway.example"}
        assert status(gateway, "POST", "/v1/chat/completions", headers) == 401
        assert status(gateway, "POST", "/v1/chat/completions", {**headers, "authorization": "Bearer sk-one"}) == 200


def test_the_refusal_names_the_setting() -> None:
    rules = OriginRules(section="gateway")
    assert "gateway.allowed_hosts" in local_problem({"host": "gateway.internal"}, rules)
    assert "gateway.allowed_origins" in site_problem({"origin": "http://localhost:3000"}, rules)


def test_a_server_without_settings_names_none() -> None:
    for problem in (
        local_problem({"host": "gateway.internal"}, OriginRules()),
        local_problem({"host": "localhost", "via": "1.1 proxy"}, OriginRules()),
        site_problem({"origin": "http://localhost:3000"}, OriginRules()),
    ):
        assert problem.endswith(("answered (localhost, 127.0.0.1)", "forwarded this request", "are refused")), problem


@pytest.mark.parametrize(
    ("line", "is_right"),
    [
        ('allowed_hosts = ["gateway.internal", "::1"]', True),
        ('allowed_hosts = ["http://gateway.internal"]', False),
        ('allowed_origins = ["http://localhost:3000", "app://obsidian.md", "file://"]', True),
        ('allowed_origins = ["localhost:3000"]', False),
        ('allowed_origins = ["http://localhost:3000/page"]', False),
        ('allowed_origins = ["*"]', False),
    ],
)
def test_the_names_are_checked(tmp_path: Path, line: str, is_right: bool) -> None:
    path = tmp_path / "antiphon.toml"
    path.write_text(f'[gateway]\n{line}\n[[providers]]\nname = "offline"\n')
    problems = read_config(path, {}, overrides={}).problems
    assert (not problems) is is_right, problems
    assert is_right or problems[0].line == 2
