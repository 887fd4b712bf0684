"""What is decided on the head of a request: one table, from the head to the client or the refusal."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.http.messages import ClientRequest, Response
from antiphon.wire import formats
from antiphon_gateway.access.client_keys import ClientKey, admit_client, hash_key, refuse_route
from antiphon_gateway.config.settings import ClientKeySettings, Config, ProviderSettings
from antiphon_gateway.routes import Endpoint, NoRoute, match_route
from antiphon_gateway.runtime.loaded import LoadedConfig
from providers.model_calls import Endless
from support.installed import needs_chat

OFFLINE = (ProviderSettings(name="offline", preset="offline"),)
KEYS = (ClientKeySettings(name="laptop", key=hash_key("sk-laptop")),)
OPEN, CLOSED = Config(providers=OFFLINE), Config(providers=OFFLINE, keys=KEYS)
LOCAL = {"host": "localhost:8000"}

HEADS: list[tuple[str, Config, str, str, dict[str, str], str, str | int]] = [
    ("loopback without keys", OPEN, "POST", "/v1/messages", LOCAL, "127.0.0.1", ""),
    ("another machine without keys", OPEN, "POST", "/v1/messages", LOCAL, "10.0.0.9", 403),
    ("a probe from another machine", OPEN, "GET", "/healthz", {"host": "gateway.internal"}, "10.0.0.9", ""),
    ("a foreign host name", OPEN, "POST", "/v1/messages", {"host": "evil.example"}, "127.0.0.1", 403),
    ("a foreign page", OPEN, "POST", "/v1/messages", {**LOCAL, "origin": "https://evil.example"}, "127.0.0.1", 403),
    ("a cross-site fetch", OPEN, "GET", "/readyz", {**LOCAL, "sec-fetch-site": "cross-site"}, "127.0.0.1", 403),
    ("no key", CLOSED, "POST", "/v1/messages", LOCAL, "127.0.0.1", 401),
    ("a wrong key", CLOSED, "POST", "/v1/messages", {"x-api-key": "sk-other"}, "10.0.0.9", 401),
    ("a bearer key", CLOSED, "POST", "/v1/responses", {"authorization": "Bearer sk-laptop"}, "10.0.0.9", "laptop"),
    ("an Anthropic key", CLOSED, "POST", "/v1/messages", {"x-api-key": "sk-laptop"}, "10.0.0.9", "laptop"),
    ("a Google key", CLOSED, "GET", "/v1/models", {"x-goog-api-key": "sk-laptop"}, "10.0.0.9", "laptop"),
    ("a probe with keys", CLOSED, "GET", "/readyz", {}, "10.0.0.9", ""),
]


@needs_chat
@pytest.mark.parametrize(("name", "config", "method", "path", "headers", "peer", "expected"), HEADS)
def test_admission_by_key_and_origin(
    name: str, config: Config, method: str, path: str, headers: dict[str, str], peer: str, expected: str | int
) -> None:
    request = ClientRequest(method=method, path=path, headers=headers, peer=peer)
    transport: Any = Endless()
    loaded = LoadedConfig(config, transport, environ={})
    endpoint = match_route(method, path, headers)
    assert isinstance(endpoint, Endpoint)
    verdict = admit_client(loaded, request, endpoint)
    if isinstance(expected, str):
        assert isinstance(verdict, ClientKey)
        assert verdict.name == expected
        return
    assert isinstance(verdict, Response)
    assert verdict.status == expected
    assert isinstance(verdict.body, bytes)
    error = formats[endpoint.format or "openai-chat"].read_error(verdict.body, verdict.status)
    assert error.kind == {401: "authentication", 403: "permission"}[expected]


def test_paths_and_methods_that_do_not_exist() -> None:
    missing = refuse_route(ClientRequest(method="GET", path="/nowhere"), NoRoute())
    assert missing.status == 404
    wrong = refuse_route(ClientRequest(method="GET", path="/v1/messages"), NoRoute(("POST",)))
    assert (wrong.status, wrong.headers["allow"]) == (405, "POST")
