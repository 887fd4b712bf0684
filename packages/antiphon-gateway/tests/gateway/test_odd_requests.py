"""Whatever stands in a path, a query or a small body, the gateway answers or refuses it: none is a defect (500)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from antiphon_gateway.access.client_keys import hash_key
from antiphon_gateway.config.settings import ClientKeySettings, LedgerSettings
from antiphon_gateway.routes import ROUTES, Route
from gateway.rig import Client, rig

SENT_ON = frozenset({"generate", "embed", "compact", "count", "pass", "connect"})
"""What has tests of its own for what is in its body."""
NAMES = [
    "limit",
    "after",
    "after_id",
    "before",
    "before_id",
    "pageSize",
    "pageToken",
    "order",
    "stream",
    "starting_after",
    "last_event_id",
    "include_input",
    "by",
    "since",
    "until",
    "name",
    "day",
    "status",
    "outcome",
    "q",
    "model",
    "search",
    "provider",
    "ticket",
    "upload_id",
    "alt",
    "format",
]
"""Every parameter that some route reads."""
TIMES = (
    "0001-01-01",
    "0001-01-05",
    "9999-12-31",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00",
    "2026-02-30",
)
ODD = (
    "",
    "x",
    "\0",
    "\ud800",
    "-1",
    "0",
    "1e9",
    "9" * 18,
    "9" * 40,
    "٣",
    "²",
    "..",
    "/",
    "%",
    "🦊",
    "a" * 5000,
    *TIMES,
)
PATHS = ("%00", "%ff", "%ed%a0%80", "%2e%2e", "%2f", "%25", "9" * 40, "%F0%9F%A6%8A", "a" * 3000, "'%22;--", "{id}")
BODIES = (
    b"",
    b"[]",
    b"null",
    b"{}",
    b"\xff",
    b"[" * 20_000,
    b'{"name": "\\u0000", "metadata": "x", "items": [1]}',
    b'{"name": "\\ud800", "metadata": {"a": 1e999}, "items": [{}]}',
    b'{"name": 5, "metadata": [], "items": [{"type": 5, "id": 6}], "grace_seconds": 1e999}',
    b'{"items": [{"type": "message", "role": "user", "content": "\\u0000", "id": "\\ud800"}], "metadata": {"\\u0000": null}}',
    *(json.dumps({"name": f"until {time}", "expires": time}).encode() for time in TIMES),
    *(json.dumps({"expires": time}).encode() for time in TIMES),
    b'{"models": [], "budget_per_day": 1e308, "tokens_per_day": 1e308}',
    b'{"models": ["\\u0000", "["], "budget_per_day": 0.1, "tokens_per_minute": 99999999999999999999}',
    b'{"provider": "openai-chat", "credential": "\\u0000", "enabled": true}',
)


HEADERS = {
    "x-forwarded-for": "\xff",
    "forwarded": 'for="\xff"',
    "origin": "\xff",
    "x-request-id": "\xff",
    "traceparent": "\xff",
    "tracestate": "\xff",
    "user-agent": "\xff",
    "x-antiphon-provider": "\xff",
    "accept": "text/html; \xff",
    "if-none-match": "\xff",
    "host": "\xff",
    "anthropic-version": "\xff",
    "content-type": "application/json; charset=\xff",
    "x-goog-upload-protocol": "\xff",
}
"""Bytes that are no UTF-8, in every header that something reads."""


@contextmanager
def _gateway(address: str) -> Iterator[tuple[Client, Mapping[str, str]]]:
    """A client of a gateway that has one of each thing, and their names by the path that they are under."""
    operator = ClientKeySettings(name="operator", key=hash_key("sk-operator"), admin=True)
    with (
        rig(keys=[operator], ledger=LedgerSettings(address=address)) as running,
        running.client("sk-operator") as client,
    ):
        stored = client.post("/v1/responses", {"model": "to-openai-chat", "input": "Hello"}).json["id"]
        conversation = client.post("/v1/conversations", {"items": [{"role": "user", "content": "Hello"}]}).json["id"]
        known = client.post("/admin/keys", {"name": "known"}).json["name"]
        yield client, {"/v1/responses/": stored, "/v1/conversations/": conversation, "/admin/keys/": known}


def _path(route: Route, resource: str) -> str:
    return re.sub(r"\{\w+\}", lambda _: resource, route.path)


def _queries() -> Iterator[str]:
    for name in NAMES:
        for value in ODD:
            yield f"{name}={quote(value.encode('utf-8', 'surrogatepass'))}"
        yield f"{name}=%ff"


@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def test_no_path_query_or_body_is_a_defect(request: pytest.FixtureRequest, tmp_path: Path, database: str) -> None:
    address = str(tmp_path / "ledger.db") if database == "sqlite" else request.getfixturevalue("postgres")
    headers = {"x-antiphon-provider": "openai-chat"}
    wrong: list[str] = []
    with _gateway(address) as (client, things):

        def ask(route: Route, path: str, body: bytes | None = None, **further: str) -> None:
            got = client.request(route.method, path, body, {**headers, **further})
            if got.status == 500:
                wrong.append(f"{route.method} {path[:120]} {(body or b'')[:80]!r} {further}: {got.body[:200]!r}")

        for route in ROUTES:
            resource = next((each for place, each in things.items() if route.path.startswith(place)), "x")
            for each in PATHS if "{" in route.path else ():
                ask(route, _path(route, each), None if route.method == "GET" else b"{}")
            for name, value in HEADERS.items():
                ask(
                    route, _path(route, resource), None if route.method in ("GET", "DELETE") else b"{}", **{name: value}
                )
            if route.endpoint.action in SENT_ON:
                continue
            if route.method == "GET":
                for query in _queries():
                    ask(route, f"{_path(route, resource)}?{query}")
            elif route.method != "DELETE":
                for body in BODIES:
                    ask(route, _path(route, resource), body)
    assert not wrong, "\n".join(wrong)
