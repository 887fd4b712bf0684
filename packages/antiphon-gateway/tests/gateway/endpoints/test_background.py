"""Background responses with the official SDK: poll, follow from any event, cancel, delete, and what is refused at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from antiphon.parts import Text
from antiphon.wire import FORMATS, formats
from antiphon.wire.request import Message, ModelRequest
from antiphon.wire.streams.sse import SseReader
from antiphon_gateway.config.settings import ClientKeySettings
from gateway.rig import FAST, Rig, rig
from gateway.strict_upstream import hang, text_answer, trickle

openai = pytest.importorskip("openai")


@pytest.fixture(scope="module")
def gateway() -> Iterator[Rig]:
    with rig() as running:
        yield running


@pytest.fixture
def client(gateway: Rig) -> Iterator[Any]:
    gateway.clear()
    with openai.OpenAI(api_key="any", base_url=f"{gateway.url}/v1", max_retries=0) as made:
        yield made


def wait_for(condition: Callable[[], Any]) -> Any:
    """The first true value of `condition`, within 20 seconds."""
    end = time.monotonic() + 20
    while not (value := condition()):
        assert time.monotonic() < end, "the condition did not become true"
        time.sleep(0.02)
    return value


def ended(client: Any, response_id: str) -> Any:
    def poll() -> Any:
        response = client.responses.retrieve(response_id)
        return response if response.status not in ("queued", "in_progress") else None

    return wait_for(poll)


def gated(gateway: Rig, name: str) -> threading.Event:
    """The next answer of an upstream waits for the returned event."""
    gate = threading.Event()
    gateway.upstreams[name].faults.append(lambda reply: structs.replace(reply, gate=gate))
    return gate


@pytest.mark.parametrize("name", FORMATS)
def test_a_background_response_is_polled_until_it_is_complete(gateway: Rig, client: Any, name: str) -> None:
    gate = gated(gateway, name)
    started = client.responses.create(model=f"to-{name}", input="Wait.", background=True, metadata={"job": "7"})
    assert (started.status, started.background, started.metadata) == ("queued", True, {"job": "7"})
    assert started.output == []
    assert client.responses.retrieve(started.id).status in ("queued", "in_progress")
    gate.set()
    response = ended(client, started.id)
    assert (response.status, response.id, response.background) == ("completed", started.id, True)
    assert (response.model, response.output_text) == (f"to-{name}", "echo: Wait.")
    assert "background" not in gateway.upstreams[name].bodies[0]


@pytest.mark.parametrize("name", FORMATS)
def test_a_complete_background_response_can_be_continued(gateway: Rig, client: Any, name: str) -> None:
    first = client.responses.create(model=f"to-{name}", input="My name is Ada.", background=True)
    ended(client, first.id)
    second = client.responses.create(model=f"to-{name}", input="And now?", previous_response_id=first.id)
    assert second.output_text == "echo: And now?"
    assert b"My name is Ada." in gateway.upstreams[name].received[-1].body
    assert second.previous_response_id == first.id


def test_the_events_can_be_followed_from_any_position(gateway: Rig, client: Any) -> None:
    gate = gated(gateway, "anthropic")
    stream = client.responses.create(model="to-anthropic", input="One two three", background=True, stream=True)
    gate.set()
    events = list(stream)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert (events[0].type, events[-1].type) == ("response.created", "response.completed")
    response_id = events[0].response.id
    middle = len(events) // 2
    rest = list(client.responses.retrieve(response_id, stream=True, starting_after=middle))
    assert [event.sequence_number for event in rest] == list(range(middle + 1, len(events)))
    assert rest[-1].response.output_text == "echo: One two three"


def test_a_late_provider_does_not_begin_a_stream_in_the_next_response_of_the_connection() -> None:
    with rig(structs.replace(FAST, hold_seconds=0.05)) as running, running.client() as client:
        late, next_one = gated(running, "anthropic"), gated(running, "gemini")
        client.post("/v1/responses", {"model": "to-anthropic", "input": "Late", "background": True})
        threading.Timer(0.5, next_one.set).start()  # longer than the hold
        got = client.post("/v1/responses", {"model": "to-gemini", "input": "Next"})
        late.set()
    assert (got.headers["content-type"], got.json["status"]) == ("application/json", "completed")


def test_the_input_items_of_a_running_response_are_listed(gateway: Rig, client: Any) -> None:
    first = client.responses.create(model="to-anthropic", input="My name is Ada.", background=True)
    ended(client, first.id)
    gate = gated(gateway, "anthropic")
    running = client.responses.create(
        model="to-anthropic", input="Wer bin ich? 我是谁？", previous_response_id=first.id, background=True
    )
    items = client.responses.input_items.list(running.id, order="asc").data
    gate.set()
    texts = [item.content[0].text for item in items]
    assert texts == ["My name is Ada.", "echo: My name is Ada.", "Wer bin ich? 我是谁？"]
    ended(client, running.id)
    later = client.responses.input_items.list(running.id, order="asc").data
    assert [item.id for item in later] == [item.id for item in items]


def test_the_events_are_followed_at_another_worker(tmp_path: Path) -> None:
    """Two gateways with one state file are two workers."""
    settings = structs.replace(FAST, state=str(tmp_path / "state.db"))
    with rig(settings) as here, rig(settings) as there:
        gate = gated(here, "anthropic")
        with (
            openai.OpenAI(api_key="any", base_url=f"{here.url}/v1", max_retries=0) as first,
            openai.OpenAI(api_key="any", base_url=f"{there.url}/v1", max_retries=0) as other,
        ):
            started = first.responses.create(model="to-anthropic", input="One two three", background=True)
            followed = other.responses.retrieve(started.id, stream=True)
            gate.set()
            events = list(followed)
            assert (events[0].type, events[-1].type) == ("response.created", "response.completed")
            assert [event.sequence_number for event in events] == list(range(len(events)))
            rest = list(other.responses.retrieve(started.id, stream=True, starting_after=3))
            assert [event.sequence_number for event in rest] == list(range(4, len(events)))
            with pytest.raises(openai.NotFoundError):
                other.responses.retrieve("resp_unknown", stream=True)
            other.responses.delete(started.id)
            with pytest.raises(openai.NotFoundError):
                other.responses.retrieve(started.id, stream=True)


def test_a_client_that_leaves_the_stream_does_not_end_the_response(gateway: Rig, client: Any) -> None:
    upstream = gateway.upstreams["openai-chat"]
    upstream.faults.append(trickle(200, 0.05))
    stream = client.responses.create(model="to-openai-chat", input="Stay.", background=True, stream=True)
    response_id = next(iter(stream)).response.id
    stream.close()
    response = ended(client, response_id)
    assert (response.status, response.output_text) == ("completed", "echo: Stay.")


def test_a_running_response_can_be_cancelled(gateway: Rig, client: Any) -> None:
    upstream = gateway.upstreams["anthropic"]
    upstream.faults.append(hang(after=-200))
    started = client.responses.create(model="to-anthropic", input="Never ends", background=True)
    wait_for(lambda: client.responses.retrieve(started.id).status == "in_progress")
    cancelled = client.responses.cancel(started.id)
    assert (cancelled.id, cancelled.status) == (started.id, "cancelled")
    assert upstream.gone.wait(20), "the upstream is still asked"
    assert client.responses.retrieve(started.id).status == "cancelled"
    assert client.responses.cancel(started.id).status == "cancelled"


def test_a_failed_background_response_has_the_error(gateway: Rig, client: Any) -> None:
    upstream = gateway.upstreams["anthropic"]
    upstream.faults.append(upstream.error(400, "invalid_request", "messages: too strange"))
    started = client.responses.create(model="to-anthropic", input="Fail", background=True)
    response = ended(client, started.id)
    assert response.status == "failed"
    assert "too strange" in response.error.message


def test_a_deleted_background_response_is_gone(gateway: Rig, client: Any) -> None:
    gateway.upstreams["anthropic"].faults.append(hang(after=200))
    started = client.responses.create(model="to-anthropic", input="Delete me", background=True)
    client.responses.delete(started.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(started.id)


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"store": False}, 400, "background requires store"),
        ({"model": "nothing-like-this"}, 404, "nothing-like-this"),
        ({"input": 7}, 400, "input"),
    ],
)
def test_a_wrong_background_request_is_refused_at_once(
    client: Any, fields: dict[str, Any], status: int, words: str
) -> None:
    with pytest.raises(openai.APIStatusError) as refused:
        client.responses.create(**{"model": "to-anthropic", "input": "Hi", "background": True, **fields})
    assert refused.value.status_code == status
    assert words in str(refused.value)


def test_only_background_responses_are_cancelled_or_followed(client: Any) -> None:
    response = client.responses.create(model="to-anthropic", input="Hi")
    with pytest.raises(openai.BadRequestError, match="background"):
        client.responses.cancel(response.id)
    with pytest.raises(openai.BadRequestError, match="background"):
        list(client.responses.retrieve(response.id, stream=True))
    with pytest.raises(openai.NotFoundError):
        client.responses.cancel("resp_unknown")


def test_another_key_cannot_see_or_cancel_it(tmp_path: Path) -> None:
    environ = {"KEY_A": "sk-client-a-0123456789abcdef", "KEY_B": "sk-client-b-0123456789abcdef"}
    keys = [ClientKeySettings(name=name, key=f"env:KEY_{name}") for name in ("A", "B")]
    settings = structs.replace(FAST, state=str(tmp_path / "state.db"))
    with rig(settings, keys=keys, environ=environ) as gateway:
        gateway.upstreams["anthropic"].faults.append(hang(after=200))
        options = {"base_url": f"{gateway.url}/v1", "max_retries": 0}
        with (
            openai.OpenAI(api_key=environ["KEY_A"], **options) as mine,
            openai.OpenAI(api_key=environ["KEY_B"], **options) as other,
        ):
            started = mine.responses.create(model="to-anthropic", input="Mine", background=True)
            for act in (other.responses.retrieve, other.responses.cancel, other.responses.delete):
                with pytest.raises(openai.NotFoundError):
                    act(started.id)
            assert mine.responses.cancel(started.id).status == "cancelled"


def test_answers_in_the_background_are_counted_until_they_end() -> None:
    with rig(structs.replace(FAST, max_buffered_bytes=6_000_000, state_bytes=50_000_000)) as gateway:
        upstream = gateway.upstreams["anthropic"]
        body = {"model": "to-anthropic", "input": "x" * 700_000, "background": True}
        with gateway.client() as client:
            upstream.faults.extend([hang(), hang()])
            started = [client.post("/v1/responses", body) for _ in range(3)]
            assert [got.status for got in started] == [200, 200, 503]
            assert "gateway.max_buffered_bytes" in started[-1].error("openai-responses").message
            for got in started[:2]:
                assert client.post(f"/v1/responses/{got.json['id']}/cancel", {}).status == 200
            wait_for(lambda: client.post("/v1/responses", body).status == 200)


def test_events_above_the_limit_end_an_answer_with_an_error() -> None:
    with rig(structs.replace(FAST, max_buffered_bytes=200_000)) as gateway, gateway.client() as client:
        gateway.upstreams["anthropic"].answer = lambda _: text_answer("word " * 40_000)
        answer = client.post("/v1/responses", {"model": "to-anthropic", "input": "Hi", "background": True}).json["id"]
        path = f"/v1/responses/{answer}"
        wait_for(lambda: client.get(path).json["status"] not in ("queued", "in_progress"))
        failed = client.get(path).json
        assert failed["status"] == "failed"
        assert "gateway.max_buffered_bytes" in failed["error"]["message"]
        followed = SseReader().feed(client.get(f"{path}?stream=true").body)
        events = [msgspec.json.decode(event.data) for event in followed]
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert events[-1]["response"] == failed
        assert client.request("DELETE", path).status == 200
        gateway.upstreams["anthropic"].answer = lambda _: text_answer("short")
        again = client.post("/v1/responses", {"model": "to-anthropic", "input": "Hi", "background": True}).json["id"]
        wait_for(lambda: client.get(f"/v1/responses/{again}").json["status"] == "completed")


@pytest.mark.parametrize("format_name", ["openai-chat", "anthropic", "gemini"])
def test_background_is_any_other_field_where_a_format_has_no_such_answers(gateway: Rig, format_name: str) -> None:
    gateway.clear()
    asked = ModelRequest(model="m", messages=(Message("user", (Text("Hi"),)),), max_output_tokens=9)
    body = {**formats[format_name].write_request(asked).body, "background": True}
    with gateway.client() as client:
        got = client.ask(format_name, f"to-{format_name}", body, streams=False)
    assert got.status in (200, 400), got.body  # as the provider likes it
    assert [sent["background"] for sent in gateway.upstreams[format_name].bodies] == [True]


@pytest.mark.parametrize(
    ("path", "last"),
    [("/v1/responses", "response.cancelled"), ("/v1beta/interactions", "interaction.status_update")],
)
def test_a_follower_sees_that_an_answer_was_cancelled(gateway: Rig, path: str, last: str) -> None:
    gateway.clear()
    gateway.upstreams["anthropic"].faults.append(hang(after=-200))
    body = {"model": "to-anthropic", "input": "Never ends", "background": True}
    with gateway.client() as client, gateway.client() as other, ThreadPoolExecutor(1) as pool:
        answer = client.post(path, body).json["id"]
        followed = pool.submit(client.get, f"{path}/{answer}?stream=true")
        wait_for(lambda: other.get(f"{path}/{answer}").json["status"] == "in_progress")
        cancelled = other.post(f"{path}/{answer}/cancel", {})
        events = [msgspec.json.decode(event.data) for event in SseReader().feed(followed.result(20).body)]
    end = events[-1]
    assert (end.get("type") or end["event_type"]) == last
    assert int(end.get("sequence_number") or end["event_id"]) == len(events) - 1
    assert (end["response"] if "response" in end else {**cancelled.json, "status": end["status"]}) == cancelled.json


def test_a_follower_sees_why_an_answer_failed(gateway: Rig, client: Any) -> None:
    upstream = gateway.upstreams["anthropic"]
    upstream.faults.append(upstream.error(400, "invalid_request", "messages: too strange"))
    (event,) = client.responses.create(model="to-anthropic", input="Fail", background=True, stream=True)
    assert (event.type, event.sequence_number, event.response.status) == ("response.failed", 0, "failed")
    assert "too strange" in event.response.error.message
    assert client.responses.retrieve(event.response.id) == event.response
