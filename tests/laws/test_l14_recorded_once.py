"""L14, recorded once: whatever becomes of a request, the metrics, the log and the list of `/status` have exactly one more.

The cases run over the real route table, so a new route is covered. Only what monitors ask all the time (`PROBES`) is not recorded
while it is answered. Refusals of unknown clients have a bounded number of log lines; each line says how many it reports.
"""

from __future__ import annotations

import asyncio
import http.client
import io
import json
import logging
import re
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from antiphon.http.messages import Response
from antiphon.logs import configure_logs
from antiphon_gateway import app
from antiphon_gateway.access.client_keys import hash_key
from antiphon_gateway.app import HANDLERS, REQUESTS
from antiphon_gateway.config.settings import ClientKeySettings, GatewaySettings, LedgerSettings
from antiphon_gateway.endpoints.tokens import TokenCount
from antiphon_gateway.routes import ROUTES, Route
from antiphon_gateway.runtime.metered import MeteredRequest
from gateway.rig import FAST, Rig, rig
from gateway.strict_upstream import cut, hang
from support.waiting import until

PROBES = frozenset({"health", "ready", "metrics", "status", "status_page", "status_login_needed"})
CALLS_PROVIDERS = frozenset({"generate", "embed", "compact", "pass"})
WITH_MODEL = frozenset({"generate", "embed", "compact", "count"})
HANDLED = [route for route in ROUTES if route.endpoint.action not in PROBES]
WITH_BODY = [route for route in HANDLED if route.method in ("POST", "PUT", "PATCH")]
KEYS = [
    ClientKeySettings(name="operator", key=hash_key("sk-operator"), admin=True),
    ClientKeySettings(name="client", key=hash_key("sk-client")),
]
HELLO = [{"role": "user", "content": "Is it raining?"}]
PROVIDERS = {"anthropic": "anthropic", "gemini": "gemini"}
ADMITTED = {"authorization": "Bearer sk-operator"}


def target_of(route: Route, model: str = "to-openai-chat") -> str:
    """The path of a route with its places filled."""
    places = {"{model}": model, "{name}": "x", "{id}": "resp_x", "{item}": "item_x"}
    return re.sub(r"\{\w+\}", lambda found: places[found[0]], route.path)


def body_of(route: Route, model: str = "to-openai-chat") -> bytes:
    """A body that a client of the route may send."""
    action, format_name = route.endpoint.action, route.endpoint.format
    text = {"parts": [{"text": "Is it raining?"}]}
    fields: dict[str, Any] = {}
    if action in ("generate", "count", "compact"):
        if format_name == "gemini":
            fields = {"contents": [{"role": "user", **text}]}
        elif format_name in ("openai-responses", "gemini-interactions"):
            fields = {"model": model, "input": "Is it raining?"}
        elif format_name in ("openai-completions", "ollama-generate"):
            fields = {"model": model, "prompt": "Is it raining?", "stream": False}
        else:
            fields = {"model": model, "messages": HELLO, "stream": False}
        fields |= {"max_tokens": 50} if format_name == "anthropic" else {}
    elif action == "embed":
        one: dict[str, Any] = {"content": text}
        fields = one if format_name == "gemini" else {"model": model, "input": "x", "prompt": "x"}
        fields = {"requests": [one]} if route.endpoint.kind == "batch" else fields
    return json.dumps(fields).encode()


class Sent:
    """One request of a route. `status` is what the client got; 0 if it left or the connection was cut."""

    def __init__(self, route: Route, number: int) -> None:
        self.route, self.id, self.status = route, f"law-{number}", 0

    @property
    def is_recorded(self) -> bool:
        """Whether it must be recorded: all are, but answered probes."""
        was_cut = self.status == 0 and self.route.endpoint.action in HANDLERS
        return self.route.endpoint.action not in PROBES or self.status >= 400 or was_cut

    @property
    def has_line(self) -> bool:
        """Whether it must have a line of its own: the client of the login is not known, so its refusals are bounded."""
        is_keyless = self.route.endpoint.action in ("status_login", "status_login_needed", "status_page")
        return self.is_recorded and (not is_keyless or self.status in range(100, 400) or self.status >= 500)

    def headers(self, given: Mapping[str, str]) -> dict[str, str]:
        provider = PROVIDERS.get(self.route.endpoint.format, "openai-chat")
        common = {"content-type": "application/json", "x-antiphon-provider": provider}
        return {**common, "x-request-id": self.id, "connection": "close", **given}


class Observed:
    """A gateway, and what it recorded."""

    def __init__(self, gateway: Rig, log: io.StringIO) -> None:
        self.gateway = gateway
        self._log = log
        self._number = 0

    def counted(self) -> int:
        with self.gateway.client("sk-operator") as client:
            text = client.get("/metrics").body.decode()
        return sum(
            int(float(line.split()[-1])) for line in text.splitlines() if line.startswith("antiphon_requests_total")
        )

    def listed(self) -> Counter[str]:
        with self.gateway.client("sk-operator") as client:
            return Counter(record["id"] for record in client.get("/status?format=json").json["requests"])

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._log.getvalue().splitlines()]

    def logged(self) -> Counter[str]:
        """The lines of finished requests, by id."""
        return Counter(line["request_id"] for line in self.lines() if "outcome" in line)

    def refused(self) -> int:
        """How many requests the lines of refusals report."""
        return sum(line.get("left_out", 1) for line in self.lines() if line.get("event") == "refused")

    def send(self, routes: Sequence[Route], send: Callable[[Sent], None]) -> list[Sent]:
        """Send one request for each route, all at once."""
        requests = [Sent(route, self._number + number) for number, route in enumerate(routes)]
        self._number += len(routes)
        with ThreadPoolExecutor(len(routes)) as pool:
            list(pool.map(send, requests))
        return requests

    def check(self, routes: Sequence[Route], send: Callable[[Sent], None], *, is_known: bool = True) -> list[Sent]:
        """Send, and see each request recorded once. `is_known`: whether the client is, so that each has a line of its own."""
        before = self.counted()
        sent = self.send(routes, send)
        expected = {request.id for request in sent if request.is_recorded}
        lines = {request.id for request in sent if request.has_line}
        if is_known:
            until(lambda: expected <= self.listed().keys(), "all are listed")
            until(lambda: lines <= self.logged().keys(), "all are logged")
        until(lambda: self.counted() - before >= len(expected), "all are counted")
        assert self.counted() - before == len(expected)
        ids = {request.id: str(request.route) for request in sent}
        twice = {ids[key]: count for key, count in self.listed().items() if key in ids and count > 1}
        assert not twice, twice
        if is_known:
            assert {key for key in self.listed() if key in ids} == expected
            assert {key: count for key, count in self.logged().items() if key in ids} == dict.fromkeys(lines, 1)
        return sent


@contextmanager
def observed(settings: GatewaySettings = FAST, **options: Any) -> Iterator[Observed]:
    stream = io.StringIO()
    root, ours = logging.getLogger(), logging.getLogger("antiphon")
    levels = root.level, ours.level
    with rig(structs.replace(settings, max_connections=1000), **{"keys": KEYS, **options}) as gateway:
        handler = configure_logs("json", "info", stream=stream)
        watch = Observed(gateway, stream)
        yield watch
    root.removeHandler(handler)
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


def asking(
    watch: Observed,
    headers: Mapping[str, str] = ADMITTED,
    body: bytes | None = None,
    model: str = "to-openai-chat",
) -> Callable[[Sent], None]:
    """Sends a request as a client does, and reads what it gets."""

    def send(request: Sent) -> None:
        route = request.route
        connection = http.client.HTTPConnection("127.0.0.1", watch.gateway.port, timeout=60)
        given = body if body is not None else body_of(route, model)
        sent = given if route.method in ("POST", "PUT", "PATCH") else None
        try:
            connection.request(route.method, target_of(route, model), sent, request.headers(headers))
            with connection.getresponse() as response:  # which has the socket, as the connection closes
                request.status = response.status
                response.read()
        except (http.client.HTTPException, OSError):
            pass  # it was cut
        finally:
            connection.close()

    return send


def leaving(watch: Observed, *, is_whole: bool) -> Callable[[Sent], None]:
    """Sends a request, or the beginning of its body, and leaves when the gateway has it."""

    def send(request: Sent) -> None:
        route, body = request.route, body_of(request.route)
        head = f"{route.method} {target_of(route)} HTTP/1.1\r\nhost: 127.0.0.1\r\n"
        fields = {**request.headers(ADMITTED), "content-length": str(len(body) + (0 if is_whole else 100))}
        head += "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        with socket.create_connection(("127.0.0.1", watch.gateway.port), 60) as connection:
            connection.sendall(head.encode() + b"\r\n" + body)
            connection.settimeout(0.5)
            try:  # nothing comes while the gateway waits
                got = connection.recv(65536)
                request.status = int(got.split()[1]) if got else 0
            except TimeoutError:
                pass

    return send


async def never(context: MeteredRequest) -> Response:
    await asyncio.sleep(600)
    raise AssertionError


async def broken(context: MeteredRequest) -> Response:
    raise RuntimeError("a defect")


def replace_handlers(monkeypatch: pytest.MonkeyPatch, handler: Callable[[MeteredRequest], Any]) -> None:
    monkeypatch.setattr(app, "HANDLERS", dict.fromkeys(HANDLERS, handler))
    monkeypatch.setattr(TokenCount, "answer", handler)  # it may need no provider


def hang_upstreams(watch: Observed, times: int) -> None:
    for upstream in watch.gateway.upstreams.values():
        upstream.faults.extend([hang(0)] * times)


def test_every_route_has_a_case() -> None:
    for route in ROUTES:
        assert "{" not in target_of(route), route
        assert json.loads(body_of(route)) or route.endpoint.action not in WITH_MODEL, f"give {route} a body"


def test_answered_refused_and_malformed_requests_are_recorded_once() -> None:
    with observed() as watch:
        answered = watch.check(ROUTES, asking(watch))
        statuses = {str(sent.route): sent.status for sent in answered if sent.route.endpoint.action in WITH_MODEL}
        assert {name: status for name, status in statuses.items() if status != 200} == {}
        watch.check(WITH_BODY, asking(watch, body=b'{"model": '))
        watch.check(WITH_BODY, asking(watch, {**ADMITTED, "content-type": "text/plain"}))
        watch.check(WITH_BODY, asking(watch, {**ADMITTED, "content-encoding": "zip"}))
        models = [route for route in HANDLED if route.endpoint.action in WITH_MODEL]
        unknown = watch.check(models, asking(watch, model="no-such-model"))
        assert {sent.status for sent in unknown} == {404}
        azure = structs.replace(ROUTES[0], path="/openai/deployments/to-openai-chat/chat/completions")
        assert watch.check([azure], asking(watch, body=b"{"))[0].status == 400
        responses = next(route for route in ROUTES if (route.method, route.path) == ("POST", "/v1/responses"))
        for fields in ({"model": "none"}, {"model": 3}, {"store": False}, {"input": 7}):
            body = json.dumps({"model": "to-openai-chat", "input": "x", "background": True, **fields}).encode()
            assert watch.check([responses], asking(watch, body=body))[0].status in (400, 404), fields
        background = json.dumps({"model": "to-openai-chat", "input": "x", "background": True}).encode()
        assert watch.check([responses], asking(watch, body=background))[0].status == 200


def test_refusals_of_unknown_clients_are_recorded_once_and_do_not_flood() -> None:
    with observed() as watch:
        sent = watch.check(HANDLED, asking(watch, {}), is_known=False)
        sent += watch.check(ROUTES, asking(watch, {"authorization": "Bearer sk-wrong"}), is_known=False)
        refused = [request for request in sent if request.status >= 400]
        assert {request.status for request in refused} >= {401}
        asked = ROUTES[0]
        assert watch.check([asked], asking(watch))[0].status == 200
        flood = watch.check([asked] * 600, asking(watch, {"x-api-key": "sk-wrong"}), is_known=False)
        refused += flood
        assert "law-" + str(len(sent)) in watch.listed(), "a flood does not displace the requests of clients"
        lines = [line for line in watch.lines() if line.get("event") == "refused"]
        assert len(lines) <= 10, "a line for each status, and one every ten seconds"
        with watch.gateway.client("sk-operator") as client:
            text = client.get("/metrics").body.decode()
        assert text.count('status="401"') <= 10, "labels do not grow with the number of keys"
    assert watch.refused() + sum(watch.logged().values()) - 1 == len(refused), (
        "each is in one line, the last ones at the end"
    )


def test_requests_whose_client_leaves_are_recorded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with observed() as watch:
        watch.check(WITH_BODY, leaving(watch, is_whole=False))
        replace_handlers(monkeypatch, never)
        hang_upstreams(watch, 200)
        watch.check([route for route in HANDLED if route.endpoint.action != "connect"], leaving(watch, is_whole=True))


def test_an_answer_that_is_cancelled_before_it_begins_is_recorded_once() -> None:
    with observed() as watch, watch.gateway.client("sk-operator") as client:
        hang_upstreams(watch, 1)
        before = watch.counted()
        asked = {"model": "to-openai-chat", "input": "x", "background": True}
        started = client.post("/v1/responses", asked).json["id"]
        assert client.post(f"/v1/responses/{started}/cancel", {}).json["status"] == "cancelled"
        until(lambda: watch.counted() - before >= 2, "the answer and the request to cancel it are counted")
        assert watch.counted() - before == 2
        assert sorted(line["status"] for line in watch.lines() if "outcome" in line) == [200, 499]


def test_requests_that_take_too_long_are_recorded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with observed(structs.replace(FAST, request_seconds=1.5)) as watch:
        replace_handlers(monkeypatch, never)
        hang_upstreams(watch, 200)
        sent = watch.check([route for route in HANDLED if route.endpoint.action != "connect"], asking(watch))
        assert {request.status for request in sent} <= {504, 502}


@pytest.mark.parametrize("bytes_sent", [0, 60])
def test_requests_whose_upstream_is_cut_are_recorded_once(bytes_sent: int) -> None:
    with observed() as watch:
        for upstream in watch.gateway.upstreams.values():
            upstream.faults.extend([cut(bytes_sent)] * 200)
        watch.check([route for route in HANDLED if route.endpoint.action in CALLS_PROVIDERS | {"count"}], asking(watch))


def test_requests_that_a_defect_ends_are_recorded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_handlers(monkeypatch, broken)
    for kind in REQUESTS.values():
        monkeypatch.setattr(kind, "answer", broken)
    with observed() as watch:
        sent = watch.check([route for route in HANDLED if route.endpoint.action != "connect"], asking(watch))
        assert {request.status for request in sent} == {500}
        tracebacks = [line for line in watch.lines() if line["level"] == "error"]
        assert len(tracebacks) == len(sent)


def test_requests_that_a_shutdown_ends_are_recorded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon_gateway.serve.DRAIN_SECONDS", 0.1)
    replace_handlers(monkeypatch, never)
    routes = [route for route in HANDLED if route.endpoint.action != "connect"]
    with ThreadPoolExecutor(1) as pool:
        with observed(ends_idle=False) as watch:
            hang_upstreams(watch, 200)
            sending = pool.submit(watch.send, routes, asking(watch))

            def in_flight() -> int:
                with watch.gateway.client("sk-operator") as client:
                    found = re.search(r"^antiphon_requests_in_flight (\d+)", client.get("/metrics").body.decode(), re.M)
                return int(found[1]) if found else 0

            until(lambda: in_flight() + sum(watch.logged().values()) >= len(routes), "all are in progress or ended")
        sent = sending.result(60)
    assert watch.logged() == Counter(request.id for request in sent if request.has_line)


CHAT = {"model": "to-openai-chat", "messages": HELLO}
RESPONSES = {"model": "to-openai-chat", "input": "Is it raining?"}
CHARGED: dict[str, tuple[str, dict[str, Any]]] = {
    "a whole answer": ("/v1/chat/completions", CHAT),
    "a stream": ("/v1/chat/completions", {**CHAT, "stream": True}),
    "a translated answer": ("/v1/messages", {**CHAT, "max_tokens": 50}),
    "embeddings": ("/v1/embeddings", {"model": "to-openai-chat", "input": "x"}),
    "an answer in the background": ("/v1/responses", {**RESPONSES, "background": True}),
    "a compaction": ("/v1/responses/compact", RESPONSES),
}


def test_reported_usage_is_charged_to_the_key(tmp_path: Path) -> None:
    with (
        observed(ledger=LedgerSettings(address=str(tmp_path / "ledger.db"))) as watch,
        watch.gateway.client("sk-operator") as operator,
    ):
        for kind, (path, body) in CHARGED.items():
            key = operator.post("/admin/keys", {"name": kind}).json["key"]
            with watch.gateway.client(key) as client:
                assert client.post(path, body).status == 200, kind

        def charged() -> set[str]:
            rows = operator.get("/admin/spend?by=key").json["rows"]
            return {row["key"] for row in rows if row["prompt_tokens"] + row["completion_tokens"] > 0}

        until(lambda: charged() == set(CHARGED), "each is charged to its key")
