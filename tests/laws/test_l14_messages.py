"""L14 over a WebSocket: whatever becomes of a message, it is recorded exactly once, with the status of its end.

A message is a request of its own: its record has the id of the connection with a number. Opening the connection is one more.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from antiphon_gateway.config.settings import ClientKeySettings, LedgerSettings
from antiphon_gateway.endpoints.responses_api.websocket import MAX_LANES, MAX_WAITING
from antiphon_gateway.generate.generation import Generation
from gateway.rig import FAST
from gateway.strict_upstream import cut, hang
from laws.test_l14_recorded_once import KEYS, Observed, broken, observed
from support.waiting import until

pytest.importorskip("websockets.sync.client")
pytest.importorskip("wsproto")
from gateway.endpoints.responses_api.test_websocket import Connection

MODEL = "to-openai-chat"
CANCEL = '{"type": "response.cancel"}'
OUT_OF_RANGE = '{"type": "response.create", "model": "to-openai-chat", "input": "x", "temperature": 1e999}'
RESULT = {"type": "function_call_output", "call_id": "call_missing", "output": "not asked for"}


class Conversation(Connection):
    """A connection whose messages are watched."""

    def __init__(self, watch: Observed, name: str, key: str = "sk-client") -> None:
        self.watch, self.name = watch, name
        self.upstream = watch.gateway.upstreams["openai-chat"]
        super().__init__(watch.gateway, **{"Authorization": f"Bearer {key}", "X-Request-Id": name})

    def raw(self, message: str) -> dict[str, Any]:
        """The last event of the answer to a message as it is."""
        self.socket.send(message)
        return self.turn()[-1]

    def begin(self, fault: Any, text: str = "Is it raining?", **fields: Any) -> None:
        """Ask for an answer that never ends, and wait until the upstream is asked."""
        received = len(self.upstream.received)
        self.upstream.faults.append(fault)
        self.send(model=MODEL, store=False, input=text, **fields)
        until(lambda: len(self.upstream.received) > received, "the upstream is asked")

    def begin_stream(self) -> None:
        """Ask for an answer that begins and never ends, and read its beginning."""
        self.begin(hang(after=-200))
        while "delta" not in self.receive()["type"]:
            pass


def continue_wrongly(connection: Conversation) -> None:
    first = connection.ask(MODEL, "Hello")["response"]["id"]
    connection.ask(MODEL, [RESULT], previous_response_id=first)


def cancel_in_stream(connection: Conversation) -> None:
    connection.begin_stream()
    connection.raw(CANCEL)


def cancel_before_the_answer(connection: Conversation) -> None:
    connection.begin(hang())
    connection.raw(CANCEL)


def cancel_what_has_ended(connection: Conversation) -> None:
    connection.ask(MODEL, "Hello")
    connection.raw(CANCEL)


def leave_a_queue(connection: Conversation) -> None:
    connection.begin(hang())
    for _ in range(MAX_WAITING + 1):
        connection.send(model=MODEL, store=False, input="waits")
    assert connection.receive()["status"] == 429


def open_too_many_lanes(connection: Conversation) -> None:
    for number in range(MAX_LANES):
        connection.begin(hang(), stream_id=str(number))
    connection.send(model=MODEL, store=False, input="one more", stream_id="more")
    assert connection.receive()["status"] == 429


def fail_upstream(connection: Conversation) -> None:
    upstream = connection.upstream
    upstream.faults.append(upstream.error(400, "invalid_request", "too strange"))
    connection.ask(MODEL, "Hello")


def cut_upstream(connection: Conversation) -> None:
    connection.upstream.faults.extend([cut(0)] * 20)
    connection.ask(MODEL, "Hello")
    connection.upstream.faults.clear()


def each(*messages: str) -> Callable[[Conversation], Any]:
    """Sends messages as they are, one after the other."""
    return lambda connection: [connection.raw(message) for message in messages]


ENDS: dict[str, tuple[Callable[[Conversation], Any], dict[int, int]]] = {
    "no message": (lambda connection: None, {}),
    "answered": (lambda connection: connection.ask(MODEL, "Hello"), {200: 1}),
    "answered twice": (lambda connection: [connection.ask(MODEL, "Hello") for _ in range(2)], {200: 2}),
    "warm-up": (lambda connection: connection.ask(MODEL, "Hello", generate=False), {200: 1}),
    "unknown model": (lambda connection: connection.ask("no-such-model", "Hello"), {404: 1}),
    "unknown answer": (lambda connection: connection.ask(MODEL, "Go", previous_response_id="resp_x"), {400: 1}),
    "warm-up after an unknown answer": (
        lambda connection: connection.ask(MODEL, "Go", previous_response_id="resp_x", generate=False),
        {400: 1},
    ),
    "result of no call": (continue_wrongly, {200: 1, 400: 1}),
    "not JSON": (each("no json", "7", "[]"), {400: 3}),
    "not a request": (each('{"type": "response.dance"}', '{"type": "response.create", "stream_id": 7}'), {400: 2}),
    "wrong fields": (each('{"type": "response.create", "input": "x"}'), {400: 1}),
    "wrong input": (lambda connection: connection.ask(MODEL, 7), {400: 1}),
    "background": (lambda connection: connection.ask(MODEL, "Hello", background=True), {400: 1}),
    "number out of range": (each(OUT_OF_RANGE, OUT_OF_RANGE), {400: 2}),
    "refused upstream": (fail_upstream, {400: 1}),
    "cut upstream": (cut_upstream, {502: 1}),
    "cancelled in the stream": (cancel_in_stream, {499: 1}),
    "cancelled before the answer": (cancel_before_the_answer, {499: 1}),
    "nothing to cancel": (cancel_what_has_ended, {200: 1, 400: 1}),
    "left in the stream": (Conversation.begin_stream, {499: 1}),
    "left before the answer": (lambda connection: connection.begin(hang()), {499: 1}),
    "left with a full queue": (leave_a_queue, {429: 1, 499: MAX_WAITING + 1}),
    "too many lanes": (open_too_many_lanes, {429: 1, 499: MAX_LANES}),
}
"""What a client does, and how many messages must be recorded with each status."""


def records(watch: Observed, name: str) -> list[dict[str, Any]]:
    with watch.gateway.client("sk-operator") as client:
        listed = client.get("/status?format=json").json["requests"]
    return [record for record in listed if record["id"].startswith(f"{name}-")]


def check(
    watch: Observed, name: str, talk: Callable[[Conversation], Any], statuses: dict[int, int], **options: Any
) -> list[dict[str, Any]]:
    """Talk over a connection, and see each message recorded once."""
    before = watch.counted()
    with Conversation(watch, name, **options) as connection:
        talk(connection)
    count = sum(statuses.values())
    until(lambda: len(records(watch, name)) >= count, f"{name}: all {count} messages are listed")
    until(lambda: watch.counted() - before >= count + 1, f"{name}: all are counted")
    listed = records(watch, name)
    assert Counter(record["status"] for record in listed) == statuses, name
    assert max(Counter(record["id"] for record in listed).values(), default=1) == 1, name
    assert watch.counted() - before == count + 1, f"{name}: the messages and the opening of the connection"
    assert {record["key"] for record in listed} <= {options.get("key", "sk-client").removeprefix("sk-")}
    return listed


def logged(watch: Observed, name: str) -> Counter[str]:
    return Counter({key: count for key, count in watch.logged().items() if key.startswith(f"{name}-")})


def test_every_message_is_recorded_once() -> None:
    with observed() as watch:
        for number, (name, (talk, statuses)) in enumerate(ENDS.items()):
            watch.gateway.clear()
            listed = check(watch, f"m{number}x", talk, statuses)
            ids = {record["id"] for record in listed}
            until(lambda ids=ids: ids <= watch.logged().keys(), f"{name}: all are logged")
            assert logged(watch, f"m{number}x") == dict.fromkeys(ids, 1), name


@pytest.mark.parametrize("fields", [{}, {"generate": False}], ids=["generation", "warm-up"])
def test_a_message_over_a_limit_is_recorded_once(fields: dict[str, Any]) -> None:
    limited = ClientKeySettings(name="limited", key="env:LIMITED", requests_per_minute=2)
    keys = [*KEYS, limited]
    with observed(keys=keys, environ={"LIMITED": "sk-limited"}) as watch:
        check(
            watch,
            "limit",
            lambda connection: [connection.ask(MODEL, "Hello", **fields) for _ in range(4)],
            {200: 2, 429: 2},
            key="sk-limited",
        )
        assert sum(logged(watch, "limit").values()) == 2, "the limit has a line of its own"


def test_a_message_that_is_too_much_to_keep_is_recorded_once() -> None:
    def fill(connection: Conversation) -> None:
        connection.begin(hang())
        connection.send(model=MODEL, store=False, input="x" * 900_000)
        assert connection.receive()["status"] == 503

    with observed(structs.replace(FAST, max_buffered_bytes=1_000_000)) as watch:
        check(watch, "large", fill, {503: 1, 499: 1})


@pytest.mark.parametrize("fault", [hang(), hang(after=-200)], ids=["before the answer", "in the stream"])
def test_a_message_that_takes_too_long_is_recorded_once(fault: Any) -> None:
    def wait(connection: Conversation) -> None:
        connection.begin(fault)
        assert connection.turn()[-1]["status"] == 504

    with observed(structs.replace(FAST, request_seconds=1.5)) as watch:
        check(watch, "slow", wait, {504: 1})


def test_a_message_that_a_defect_ends_is_recorded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Generation, "answer", broken)
    with observed() as watch:
        check(watch, "defect", lambda connection: connection.ask(MODEL, "Hello"), {500: 1})
        assert len([line for line in watch.lines() if line["level"] == "error"]) == 1


def test_messages_that_a_shutdown_ends_are_recorded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon_gateway.serve.DRAIN_SECONDS", 0.1)
    with observed(ends_idle=False) as watch:
        connection = Conversation(watch, "end")
        connection.begin(hang())
        connection.send(model=MODEL, store=False, input="waits")
        connection.raw('{"type": "response.dance"}')  # it was read, so the one before was, too
    with connection:
        pass
    assert logged(watch, "end") == dict.fromkeys([f"end-{number}" for number in (1, 2, 3)], 1)


def test_messages_that_wait_at_a_shutdown_are_refused_and_recorded_once() -> None:
    gate = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        with observed(ends_idle=False) as watch:
            connection = Conversation(watch, "drain")
            connection.begin(lambda reply: structs.replace(reply, gate=gate))
            connection.send(model=MODEL, store=False, input="waits")
            connection.raw('{"type": "response.dance"}')

            def read_on() -> list[dict[str, Any]]:
                until(lambda: any("draining" in line["message"] for line in watch.lines()), "it shuts down")
                gate.set()
                return [connection.turn()[-1] for _ in range(2)]

            reading = pool.submit(read_on)
        answered, refused = reading.result(60)
        with connection:
            pass
    assert (answered["type"], refused["type"], refused["status"]) == ("response.completed", "error", 503)
    assert logged(watch, "drain") == dict.fromkeys([f"drain-{number}" for number in (1, 2, 3)], 1)


CHARGED: dict[str, Callable[[Conversation], Any]] = {
    "answered": lambda connection: connection.ask(MODEL, "Hello"),
    "cancelled": cancel_in_stream,
    "left": Conversation.begin_stream,
}


def test_usage_of_websocket_messages_is_charged_to_the_key(tmp_path: Path) -> None:
    with (
        observed(ledger=LedgerSettings(address=str(tmp_path / "ledger.db"))) as watch,
        watch.gateway.client("sk-operator") as operator,
    ):
        for kind, talk in CHARGED.items():
            key = operator.post("/admin/keys", {"name": kind}).json["key"]
            with Conversation(watch, kind, key) as connection:
                talk(connection)

        def charged() -> set[str]:
            rows = operator.get("/admin/spend?by=key").json["rows"]
            return {row["key"] for row in rows if row["prompt_tokens"] + row["completion_tokens"] > 0}

        until(lambda: charged() == set(CHARGED), "each is charged to its key")
