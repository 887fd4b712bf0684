"""CORS: what a browser asks for, and what it needs to show a response to a page of another origin."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec import structs

from antiphon_gateway.access.client_keys import hash_key
from antiphon_gateway.config.settings import ClientKeySettings
from gateway.rig import FAST, Rig, rig

PAGE = "http://localhost:3000"
PREFLIGHT = {
    "origin": PAGE,
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type,x-stainless-lang",
    "sec-fetch-mode": "cors",
    "sec-fetch-site": "same-site",
}
BODY = {"model": "to-openai-chat", "messages": [{"role": "user", "content": "hello"}]}


@pytest.fixture(scope="module")
def allowed() -> Iterator[Rig]:
    with rig(structs.replace(FAST, allowed_origins=(PAGE,))) as started:
        yield started


@pytest.mark.parametrize(
    ("path", "methods"),
    [("/v1/chat/completions", "POST"), ("/v1/responses/resp_1", "GET, DELETE"), ("/v1beta/models", "GET")],
)
def test_a_preflight_of_an_allowed_page(allowed: Rig, path: str, methods: str) -> None:
    with allowed.client() as client:
        answer = client.request("OPTIONS", path, headers=PREFLIGHT)
    assert answer.status == 204
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert answer.headers["access-control-allow-methods"] == methods
    assert answer.headers["access-control-allow-headers"] == PREFLIGHT["access-control-request-headers"]
    assert "Origin" in answer.headers["vary"]


def test_responses_and_errors_can_be_read_by_an_allowed_page(allowed: Rig) -> None:
    page = {"origin": PAGE, "sec-fetch-site": "cross-site"}
    with allowed.client() as client:
        answers = [
            client.post("/v1/chat/completions", BODY, page),
            client.post("/v1/chat/completions", {**BODY, "stream": True}, page),
            client.post("/v1/chat/completions", {**BODY, "model": "unknown"}, page),
            client.post("/v1/nowhere", BODY, page),
        ]
    assert [answer.status for answer in answers] == [200, 200, 404, 404]
    for answer in answers:
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert "x-antiphon-target" in answer.headers["access-control-expose-headers"]


def test_other_pages_get_nothing(allowed: Rig) -> None:
    stranger = {**PREFLIGHT, "origin": "http://evil.example"}
    with allowed.client() as client:
        preflight = client.request("OPTIONS", "/v1/chat/completions", headers=stranger)
        answer = client.post("/v1/chat/completions", BODY, {"origin": "http://evil.example"})
    assert (preflight.status, answer.status) == (405, 403)
    assert "access-control-allow-origin" not in [*preflight.headers, *answer.headers]


def test_programs_get_no_such_header(allowed: Rig) -> None:
    with allowed.client() as client:
        answer = client.post("/v1/chat/completions", BODY)
    assert answer.status == 200
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_cors_is_off_by_default_and_works_with_client_keys() -> None:
    keys = [ClientKeySettings(name="page", key=hash_key("sk-page"))]
    with rig(keys=keys) as off, off.client("sk-page") as client:
        answer = client.post("/v1/chat/completions", BODY, {"origin": PAGE})
        preflight = client.request("OPTIONS", "/v1/chat/completions", headers=PREFLIGHT)
    assert (answer.status, preflight.status) == (200, 405)
    assert not [name for name in [*answer.headers, *preflight.headers] if name.startswith("access-control")]
    with rig(structs.replace(FAST, allowed_origins=(PAGE,)), keys=keys) as on, on.client() as client:
        preflight = client.request("OPTIONS", "/v1/chat/completions", headers=PREFLIGHT)  # never carries the key
        refused = client.post("/v1/chat/completions", BODY, {"origin": PAGE})
    assert (preflight.status, refused.status) == (204, 401)
    assert refused.headers["access-control-allow-origin"] == PAGE
