"""The Responses API over a WebSocket: several responses, continuations, lanes, cancelling, limits, and the official SDK.

The scenarios of the Open Responses compliance suite that need a WebSocket are among them, under its names.
"""

from __future__ import annotations

import base64
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Self

import msgspec
import pytest
from msgspec import structs

from antiphon.parts import Text, ToolCallRequest, text_of
from antiphon.wire import FORMATS
from antiphon.wire.output import ModelOutput
from antiphon.wire.request import ModelRequest
from antiphon_gateway.config.settings import ClientKeySettings
from gateway.rig import FAST, Rig, rig
from gateway.strict_upstream import USAGE, hang, text_answer
from support.waiting import until

openai = pytest.importorskip("openai")
websockets = pytest.importorskip("websockets.sync.client")
pytest.importorskip("wsproto")
from websockets.exceptions import ConnectionClosed, InvalidStatus  # noqa: E402

TERMINAL = ("response.completed", "response.incomplete", "response.failed", "response.cancelled", "error")


@pytest.fixture(scope="module")
def gateway() -> Iterator[Rig]:
    with rig() as running:
        yield running


class Connection:
    """One WebSocket to the gateway."""

    def __init__(self, gateway: Rig, **headers: str) -> None:
        url = f"ws://127.0.0.1:{gateway.port}/v1/responses"
        self._stack = ExitStack()
        self.socket: Any = self._stack.enter_context(
            websockets.connect(url, additional_headers=headers, compression="deflate", proxy=None)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def send(self, **fields: Any) -> None:
        self.socket.send(msgspec.json.encode({"type": "response.create", **fields}).decode())

    def receive(self) -> dict[str, Any]:
        event: dict[str, Any] = msgspec.json.decode(self.socket.recv(timeout=20))
        return event

    def turn(self) -> list[dict[str, Any]]:
        """The events of one answer."""
        events = [self.receive()]
        while events[-1]["type"] not in TERMINAL:
            events.append(self.receive())
        return events

    def ask(self, model: str, text: Any, **fields: Any) -> dict[str, Any]:
        """The last event of the answer to a request that is not stored."""
        self.send(model=model, store=False, input=text, **fields)
        return self.turn()[-1]


@pytest.fixture
def connection(gateway: Rig) -> Iterator[Connection]:
    gateway.clear()
    with Connection(gateway) as opened:
        yield opened


def recall(request: ModelRequest) -> ModelOutput:
    """Repeats everything that was said."""
    parts = [part for message in request.messages for part in message.parts]
    return text_answer(" | ".join(part.text for part in parts if isinstance(part, Text)))


def output_text(event: dict[str, Any]) -> str:
    return "".join(part["text"] for item in event["response"]["output"] for part in item.get("content", ()))


def test_an_answer_that_another_target_finished_is_continued_once() -> None:
    models = {"with-backup": ["openai-chat/gpt-4o", "anthropic/claude-sonnet-4-5"]}
    said = "It has been raining since nine. " * 10
    with rig(structs.replace(FAST, continue_streams=True), models=models) as gateway, Connection(gateway) as connection:
        first, second = gateway.upstreams["openai-chat"], gateway.upstreams["anthropic"]
        first.answer = lambda _: text_answer(said)
        first.faults.append(lambda reply: structs.replace(reply, cut_after=len(reply.body) // 2))
        second.answer = lambda request: text_answer(said[len(text_of(request.messages[-1].parts)) :])
        event = connection.ask("with-backup", "Is it raining?")
        assert output_text(event) == said
        first.answer = recall
        again = connection.ask("with-backup", "And now?", previous_response_id=event["response"]["id"])
    assert output_text(again) == f"Is it raining? | {said} | And now?"


@pytest.mark.parametrize("name", FORMATS)
def test_websocket_response(gateway: Rig, connection: Connection, name: str) -> None:
    connection.send(model=f"to-{name}", store=False, input="Hi")
    events = connection.turn()
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1]["type"] == "response.completed"
    assert (output_text(events[-1]), events[-1]["response"]["model"]) == ("echo: Hi", f"to-{name}")


def test_websocket_sequential_responses(connection: Connection) -> None:
    connection.send(model="to-gemini", store=False, input="first")
    connection.send(model="to-anthropic", store=False, input="second")
    assert [output_text(connection.turn()[-1]) for _ in range(2)] == ["echo: first", "echo: second"]


@pytest.mark.parametrize("name", FORMATS)
def test_websocket_continuation(gateway: Rig, connection: Connection, name: str) -> None:
    gateway.upstreams[name].answer = recall
    first = connection.ask(f"to-{name}", "The word is tin.")
    second = connection.ask(f"to-{name}", "Which?", previous_response_id=first["response"]["id"])
    assert "The word is tin." in output_text(second)
    third = connection.ask(f"to-{name}", "Again?", previous_response_id=second["response"]["id"])
    assert output_text(third).count("The word is tin.") == 4, "the question, its answer, and twice in the second answer"
    assert third["response"]["previous_response_id"] == second["response"]["id"]


def test_an_answer_is_continued_by_a_model_of_another_format(gateway: Rig, connection: Connection) -> None:
    gateway.upstreams["gemini"].answer = recall
    first = connection.ask("to-openai-responses", "The word is tin.")
    second = connection.ask("to-gemini", "Which?", previous_response_id=first["response"]["id"])
    assert output_text(second) == "The word is tin. | echo: The word is tin. | Which?"


def test_websocket_reconnect_store_false_recovery(gateway: Rig, connection: Connection) -> None:
    first = connection.ask("to-anthropic", "Remember: copper.")
    with Connection(gateway) as other:
        refused = other.ask("to-anthropic", "Go.", previous_response_id=first["response"]["id"])
        assert (refused["type"], refused["status"]) == ("error", 400)
        assert refused["error"]["code"] == "previous_response_not_found"
        assert output_text(other.ask("to-anthropic", "recovered")) == "echo: recovered"


def test_a_stored_response_is_continued_on_another_connection(gateway: Rig, connection: Connection) -> None:
    connection.send(model="to-anthropic", input="Remember: copper.")
    first = connection.turn()[-1]
    gateway.upstreams["anthropic"].answer = recall
    with Connection(gateway) as other:
        second = other.ask("to-anthropic", "Which?", previous_response_id=first["response"]["id"])
    assert "Remember: copper." in output_text(second)


def test_websocket_previous_response_not_found(connection: Connection) -> None:
    refused = connection.ask("to-anthropic", "Go.", previous_response_id="resp_missing")
    assert refused["error"]["code"] == "previous_response_not_found"


def test_websocket_failed_continuation_evicts_cache(connection: Connection) -> None:
    first = connection.ask("to-anthropic", "Remember: ember.")["response"]["id"]
    result = {"type": "function_call_output", "call_id": "call_missing", "output": "nothing asked for this"}
    failed = connection.ask("to-anthropic", [result], previous_response_id=first)
    assert failed["type"] == "error"
    assert "call_missing" in failed["error"]["message"]
    again = connection.ask("to-anthropic", "stale", previous_response_id=first)
    assert again["error"]["code"] == "previous_response_not_found"


def test_the_result_of_a_call_continues_it(gateway: Rig, connection: Connection) -> None:
    call = ToolCallRequest("weather", "call_1", "{}")
    gateway.upstreams["anthropic"].answer = lambda _: ModelOutput(
        parts=(Text("I look."), call), stop_reason="tool_calls", id="a", model="m", usage=USAGE
    )
    tools = [{"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}]
    first = connection.ask("to-anthropic", "Rain?", tools=tools)["response"]
    call_id = next(item["call_id"] for item in first["output"] if item["type"] == "function_call")
    gateway.upstreams["anthropic"].answer = lambda _: text_answer("It rains.")
    result = {"type": "function_call_output", "call_id": call_id, "output": "rain"}
    last = connection.ask("to-anthropic", [result], tools=tools, previous_response_id=first["id"])
    assert output_text(last) == "It rains."


def test_websocket_generate_false(gateway: Rig, connection: Connection) -> None:
    """A warm-up keeps the input; no model is asked until a request continues it."""
    warm = connection.ask("to-gemini", "The word is tin.", generate=False)
    assert (warm["type"], warm["response"]["output"]) == ("response.completed", [])
    assert gateway.upstreams["gemini"].received == []
    gateway.upstreams["gemini"].answer = recall
    last = connection.ask("to-gemini", "Which?", previous_response_id=warm["response"]["id"])
    assert output_text(last) == "The word is tin. | Which?"


def test_a_warm_up_begins_with_its_conversation(gateway: Rig, connection: Connection) -> None:
    with gateway.client() as client:
        items = [{"role": "user", "content": "The word is tin."}]
        conversation = client.post("/v1/conversations", {"items": items}).json["id"]
    warm = connection.ask("to-gemini", "Listen.", generate=False, conversation=conversation)
    gateway.upstreams["gemini"].answer = recall
    last = connection.ask("to-gemini", "Which?", previous_response_id=warm["response"]["id"])
    assert output_text(last) == "The word is tin. | Listen. | Which?"


def test_websocket_compact_new_chain(gateway: Rig, connection: Connection) -> None:
    gateway.upstreams["anthropic"].answer = lambda _: text_answer("They chose slate.")
    with gateway.client() as client:
        compacted = client.post("/v1/responses/compact", {"model": "to-anthropic", "input": "The word is slate."}).json
    gateway.upstreams["gemini"].answer = recall
    last = connection.ask("to-gemini", [*compacted["output"], {"role": "user", "content": "Continue."}])
    assert "They chose slate." in output_text(last)


def test_lanes_are_answered_at_the_same_time(gateway: Rig, connection: Connection) -> None:
    gate = threading.Event()
    gateway.upstreams["anthropic"].faults.append(lambda reply: structs.replace(reply, gate=gate))
    connection.send(model="to-anthropic", store=False, input="slow", stream_id="a")
    connection.send(model="to-gemini", store=False, input="fast", stream_id="b")
    fast = connection.turn()
    assert {event["stream_id"] for event in fast} == {"b"}
    gate.set()
    slow = connection.turn()
    assert {event["stream_id"] for event in slow} == {"a"}
    assert output_text(slow[-1]) == "echo: slow"


def test_a_response_in_progress_is_cancelled(gateway: Rig, connection: Connection) -> None:
    upstream = gateway.upstreams["anthropic"]
    upstream.faults.append(hang(after=-200))
    connection.send(model="to-anthropic", store=False, input="Never ends")
    created = connection.receive()
    connection.socket.send('{"type": "response.cancel"}')
    last = connection.turn()[-1]
    assert (last["type"], last["response"]["status"]) == ("response.cancelled", "cancelled")
    assert last["response"]["id"] == created["response"]["id"]
    assert upstream.gone.wait(20)
    assert output_text(connection.ask("to-anthropic", "next")) == "echo: next"


@pytest.mark.parametrize("is_sent", [True, False], ids=["in progress", "not sent yet"])
def test_a_request_is_cancelled_before_its_answer_begins(gateway: Rig, connection: Connection, is_sent: bool) -> None:
    upstream = gateway.upstreams["anthropic"]
    upstream.faults.append(hang())
    connection.send(model="to-anthropic", store=False, input="Never answered")
    connection.send(model="to-gemini", store=False, input="waits in the same lane")
    if is_sent:
        until(lambda: upstream.received, "the upstream is asked")
    connection.socket.send('{"type": "response.cancel"}')
    last = connection.turn()[-1]
    assert (last["type"], last["response"]["status"]) == ("response.cancelled", "cancelled")
    assert output_text(connection.turn()[-1]) == "echo: waits in the same lane"
    if upstream.received:
        assert upstream.gone.wait(20), "the upstream is still asked"


def test_a_warm_up_counts_in_the_limits_of_the_key() -> None:
    keys = [ClientKeySettings(name="a", key="env:KEY_A", requests_per_minute=2)]
    with (
        rig(keys=keys, environ={"KEY_A": "sk-client-a-0123456789abcdef"}) as gateway,
        Connection(gateway, Authorization="Bearer sk-client-a-0123456789abcdef") as connection,
    ):
        answers = [connection.ask("to-gemini", "The word is tin.", generate=False) for _ in range(3)]
    assert [event["type"] for event in answers] == ["response.completed", "response.completed", "error"]
    assert answers[-1]["status"] == 429


def test_messages_that_wait_are_counted_and_given_back() -> None:
    with rig(structs.replace(FAST, max_buffered_bytes=200_000)) as gateway:
        upstream = gateway.upstreams["anthropic"]
        for _ in range(2):
            gateway.clear()
            upstream.faults.append(hang())
            with Connection(gateway) as connection:
                connection.send(model="to-anthropic", store=False, input="Never answered")
                for _ in range(4):
                    connection.send(model="to-gemini", store=False, input="x" * 52_000)
                refused = connection.receive()
                assert (refused["type"], refused["status"]) == ("error", 503)
                assert "gateway.max_buffered_bytes" in refused["error"]["message"]
                connection.socket.send('{"type": "response.cancel"}')
                ends = [connection.turn()[-1]["type"] for _ in range(4)]
                assert ends == ["response.cancelled", *["response.completed"] * 3]
        with gateway.client() as client:
            body = {"model": "to-gemini", "input": "x" * 180_000}
            until(lambda: client.post("/v1/responses", body).status == 200, "the bytes are given back")


def test_a_client_that_does_not_read_is_not_read_from(gateway: Rig) -> None:
    with Connection(gateway) as connection:
        connection.socket.socket.settimeout(2)
        text = '{"type":"response.steer","previous_response_id":"resp_none","input":"%s"}' % ("x" * 500_000)
        frame = b"\x81\xff" + len(text).to_bytes(8, "big") + bytes(4) + text.encode()
        # The buffers of the system and of the client may hold 80 MB before one has to wait.
        with pytest.raises(TimeoutError):  # what it echoes is not taken
            connection.socket.socket.sendall(frame * 400)


def test_leaving_cancels_what_is_in_progress(gateway: Rig) -> None:
    gateway.clear()
    upstream = gateway.upstreams["anthropic"]
    upstream.faults.append(hang(after=-200))
    with Connection(gateway) as connection:
        connection.send(model="to-anthropic", store=False, input="Never ends")
        connection.receive()
    assert upstream.gone.wait(20), "the upstream is still asked"


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("no json", "not a JSON object"),
        ('{"type": "response.dance"}', "response.dance"),
        ('{"type": "response.create", "input": "Hi"}', "model"),
        ('{"type": "response.create", "model": "nothing", "input": "Hi"}', "nothing"),
        ('{"type": "response.create", "model": "to-gemini", "input": 7}', "input"),
        ('{"type": "response.create", "model": "to-gemini", "input": "Hi", "background": true}', "background"),
        ('{"type": "response.create", "stream_id": 7}', "stream_id"),
        ('{"type": "response.cancel"}', "in progress"),
    ],
)
def test_a_wrong_message_gets_an_error_and_the_connection_stays(
    connection: Connection, message: str, words: str
) -> None:
    connection.socket.send(message)
    event = connection.receive()
    assert (event["type"], event["status"] >= 400) == ("error", True)
    assert words in event["error"]["message"]
    assert event["error"]["code"]
    assert output_text(connection.ask("to-gemini", "still here")) == "echo: still here"


def test_the_error_of_an_upstream_arrives_as_an_event(gateway: Rig, connection: Connection) -> None:
    upstream = gateway.upstreams["anthropic"]
    upstream.faults.append(upstream.error(400, "invalid_request", "too strange"))
    event = connection.ask("to-anthropic", "Hi")
    assert (event["type"], event["status"]) == ("error", 400)
    assert "too strange" in event["error"]["message"]


def test_large_messages_and_bytes_are_refused() -> None:
    with rig(structs.replace(FAST, max_body_bytes=10_000)) as gateway:
        for message, code in (("x" * 20_000, 1009), (b"bytes", 1003)):
            with Connection(gateway) as connection:
                connection.socket.send(message)
                with pytest.raises(ConnectionClosed) as closed:
                    connection.socket.recv(timeout=20)
                assert closed.value.rcvd is not None
                assert closed.value.rcvd.code == code


def test_pings_keep_the_connection_and_find_dead_ones() -> None:
    with rig(structs.replace(FAST, keep_alive_seconds=0.2)) as gateway:
        key = base64.b64encode(os.urandom(16)).decode()
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=20) as client:
            head = "GET /v1/responses HTTP/1.1\r\nhost: localhost\r\nconnection: Upgrade\r\nupgrade: websocket\r\n"
            client.sendall(f"{head}sec-websocket-key: {key}\r\nsec-websocket-version: 13\r\n\r\n".encode())
            received = b""
            while piece := client.recv(4096):  # it answers no ping, so the gateway disconnects
                received += piece
        answer, _, frames = received.partition(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 101 ")
        assert frames == b"\x89\x00", "one ping"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"sec-websocket-version": "8", "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA=="}, 426),
        ({"sec-websocket-version": "13", "sec-websocket-key": "short"}, 400),
        ({"sec-websocket-version": "13"}, 400),
    ],
)
def test_a_wrong_handshake_is_refused(gateway: Rig, headers: dict[str, str], status: int) -> None:
    with gateway.client() as client:
        got = client.request(
            "GET", "/v1/responses", headers={"connection": "Upgrade", "upgrade": "websocket", **headers}
        )
    assert got.status == status
    assert got.error("openai-responses").message


def test_a_get_without_upgrade_says_what_to_send(gateway: Rig) -> None:
    with gateway.client() as client:
        got = client.get("/v1/responses")
        assert (got.status, got.headers["upgrade"]) == (426, "websocket")
        assert client.get("/healthz").status == 200


def test_a_wrong_key_cannot_connect() -> None:
    keys = [ClientKeySettings(name="a", key="env:KEY_A")]
    with rig(keys=keys, environ={"KEY_A": "sk-client-a-0123456789abcdef"}) as gateway:
        with pytest.raises(InvalidStatus) as refused:
            Connection(gateway, Authorization="Bearer wrong")
        assert refused.value.response.status_code == 401
        with Connection(gateway, Authorization="Bearer sk-client-a-0123456789abcdef") as connection:
            assert output_text(connection.ask("to-gemini", "Hi")) == "echo: Hi"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the SDK opens its socket in the former way
def test_the_official_sdk_talks_over_one_connection(gateway: Rig) -> None:
    gateway.clear()
    gateway.upstreams["anthropic"].answer = recall
    client = openai.OpenAI(api_key="any", base_url=f"{gateway.url}/v1", max_retries=0)
    with client, client.responses.connect() as connection:
        previous: str | None = None
        for text in ("The word is tin.", "Which?"):
            fields: dict[str, Any] = {"previous_response_id": previous} if previous else {}
            connection.send(
                {"type": "response.create", "model": "to-anthropic", "input": text, "store": False, **fields}
            )
            event = connection.recv()
            while event.type not in TERMINAL:
                event = connection.recv()
            assert event.type == "response.completed", event
            previous, last = event.response.id, event.response.output_text
        assert last == "The word is tin. | The word is tin. | Which?"
