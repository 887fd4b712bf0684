"""The Interactions API with the official SDK, unchanged, through the gateway to upstreams of every format."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from antiphon.parts import Thinking, ToolCallRequest, ToolCallResult, text_of
from antiphon.wire import FORMATS
from antiphon.wire.output import ModelOutput
from antiphon.wire.request import ModelRequest
from antiphon_gateway.state.answers import AnswerStore
from gateway.rig import FAST, Rig, rig
from gateway.strict_upstream import USAGE, hang, text_answer
from support.interactions_spec import EVENT, INTERACTION, problems, request_problems

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it warns of what it imports itself
    genai = pytest.importorskip("google.genai")
    sdk_errors = pytest.importorskip("google.genai._interactions.core.error")

WEATHER = {
    "type": "function",
    "name": "weather",
    "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
ASK = {"store": False, "automatic_continuation": False}


@pytest.fixture(scope="module")
def running() -> Iterator[Rig]:
    with rig(structs.replace(FAST, keep_alive_seconds=0.2)) as gateway:
        yield gateway


@pytest.fixture
def gateway(running: Rig) -> Rig:
    running.clear()
    return running


@pytest.fixture(scope="module")
def client(running: Rig) -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = genai.Client(api_key="any", http_options={"base_url": running.url})
        yield made.interactions
        made.close()


def wait_for(condition: Callable[[], Any]) -> Any:
    """The first true value of `condition`, within 20 seconds."""
    end = time.monotonic() + 20
    while not (value := condition()):
        assert time.monotonic() < end, "the condition did not become true"
        time.sleep(0.02)
    return value


@pytest.mark.parametrize("name", FORMATS)
def test_a_whole_answer(gateway: Rig, client: Any, name: str) -> None:
    got = client.create(model=f"to-{name}", input="Hi", system_instruction="Be brief.")
    assert (got.status, got.output_text) == ("completed", "echo: Hi")
    assert got.usage.total_input_tokens == 11
    assert got.id
    assert gateway.upstreams[name].refused == []


@pytest.mark.parametrize("name", FORMATS)
def test_a_stream(gateway: Rig, client: Any, name: str) -> None:
    gateway.upstreams[name].piece = 17
    events = list(client.create(model=f"to-{name}", input="Hi", stream=True))
    kinds = [event.event_type for event in events]
    assert kinds[0] == "interaction.created"
    assert {"step.start", "step.delta", "step.stop"} <= set(kinds)
    assert kinds[-1] == "interaction.completed"
    pieces = [event.delta.text for event in events if event.event_type == "step.delta" and event.delta.type == "text"]
    assert "".join(pieces) == "echo: Hi"
    assert events[-1].interaction.usage.total_output_tokens == 7
    for event in events:
        assert problems(EVENT, event.model_dump(mode="json", exclude_none=True)) == []


def tool_model(request: ModelRequest) -> ModelOutput:
    """Calls the tool, then answers with its result."""
    results = [part for message in request.messages for part in message.parts if isinstance(part, ToolCallResult)]
    if results:
        return text_answer(f"It is {text_of(results[-1].content)}.")
    call = ToolCallRequest("weather", "call_1", '{"city":"Łódź"}')
    return ModelOutput(parts=(call,), stop_reason="tool_calls", id="a", model="m", usage=USAGE)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("name", FORMATS)
def test_a_tool_loop_with_stored_interactions(gateway: Rig, client: Any, name: str, streams: bool) -> None:
    gateway.upstreams[name].answer = tool_model
    model = f"to-{name}"
    if name == "gemini-interactions":  # whose server would have what it stored itself
        model = "to-anthropic"
        gateway.upstreams["anthropic"].answer = tool_model
    asked = client.create(model=model, input="Rain in Łódź?", tools=[WEATHER], stream=streams)
    if streams:
        events = list(asked)
        assert events[-1].interaction.status == "requires_action"
        started = next(event.step for event in events if event.event_type == "step.start")
        arguments = "".join(e.delta.arguments for e in events if e.event_type == "step.delta")
        asked = client.get(id=events[-1].interaction.id)
        assert (started.name, msgspec.json.decode(arguments)) == ("weather", {"city": "Łódź"})
    assert asked.status == "requires_action"
    call = asked.steps[-1]
    assert (call.name, call.arguments) == ("weather", {"city": "Łódź"})
    result = {"type": "function_result", "name": call.name, "call_id": call.id, "result": "sunny"}
    answered = client.create(model=model, previous_interaction_id=asked.id, input=[result], tools=[WEATHER])
    assert (answered.status, answered.output_text) == ("completed", "It is sunny.")


@pytest.mark.parametrize("name", ["openai-chat", "anthropic", "gemini"])
def test_the_last_event_of_a_stream_comes_after_the_answer_is_stored(
    gateway: Rig, client: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that reads it may ask for the answer at once, however slow the disk is."""
    store = AnswerStore.store

    def slow_store(*arguments: Any, **named: Any) -> None:
        time.sleep(0.5)
        store(*arguments, **named)

    monkeypatch.setattr(AnswerStore, "store", slow_store)
    answers = [
        client.get(id=event.interaction.id).output_text
        for event in client.create(model=f"to-{name}", input="Hi", stream=True)
        if event.event_type == "interaction.completed"
    ]
    assert answers == ["echo: Hi"]


@pytest.mark.parametrize("name", FORMATS)
def test_a_stateless_conversation_with_an_image_and_thoughts(gateway: Rig, client: Any, name: str) -> None:
    thought = {"type": "thought", "signature": "c2ln", "summary": [{"type": "text", "text": "Hm."}]}
    image = {"type": "image", "mime_type": "image/png", "data": "iVBORw0KGgo="}
    steps = [
        {"type": "user_input", "content": [{"type": "text", "text": "I am Ada."}]},
        thought,
        {"type": "model_output", "content": [{"type": "text", "text": "Hello!"}]},
        {"type": "user_input", "content": [{"type": "text", "text": "What is this?"}, image]},
    ]
    output = ModelOutput(
        parts=(Thinking("Let me see."), *text_answer("A dot.").parts), stop_reason="end", id="a", model="m", usage=USAGE
    )
    gateway.upstreams[name].answer = lambda _: output
    got = client.create(model=f"to-{name}", input=steps, store=False)
    assert got.output_text == "A dot."
    assert got.steps[0].type == "thought"
    upstream = gateway.upstreams[name]
    assert upstream.refused == []
    assert b"iVBORw0KGgo=" in upstream.received[-1].body
    assert (b"c2ln" in upstream.received[-1].body) is (name == "gemini-interactions")
    if name == "gemini-interactions":
        assert request_problems(upstream.bodies[-1]) == []


def test_stored_interactions_are_got_and_deleted(gateway: Rig, client: Any) -> None:
    first = client.create(model="to-anthropic", input="Hi")
    again = client.get(id=first.id)
    assert (again.output_text, again.status) == ("echo: Hi", "completed")
    with gateway.client() as plain:
        body = plain.get(f"/v1beta/interactions/{first.id}?include_input=true").json
    assert body["input"] == [{"type": "user_input", "content": [{"type": "text", "text": "Hi"}]}]
    assert problems(INTERACTION, body) == []
    client.delete(id=first.id)
    with pytest.raises(sdk_errors.NotFoundError, match="not found"):
        client.get(id=first.id)
    with pytest.raises(sdk_errors.NotFoundError, match="not found"):
        client.delete(id=first.id)


def test_a_chain_of_interactions_holds_everything_but_the_instruction(gateway: Rig, client: Any) -> None:
    first = client.create(model="to-openai-chat", input="My name is Ada.", system_instruction="Be brief.")
    second = client.create(model="to-openai-chat", input="And now?", previous_interaction_id=first.id)
    client.create(model="to-gemini", input="Still there?", previous_interaction_id=second.id)
    sent = gateway.upstreams["gemini"].received[-1].body
    assert all(words in sent for words in (b"My name is Ada.", b"echo: My name is Ada.", b"And now?", b"Still there?"))
    assert b"Be brief." not in sent


def test_an_interaction_that_is_not_stored_is_not_found(gateway: Rig, client: Any) -> None:
    first = client.create(model="to-anthropic", input="Hi", **ASK)
    with pytest.raises(sdk_errors.NotFoundError):
        client.get(id=first.id)
    with pytest.raises(sdk_errors.BadRequestError, match="previous_interaction_id: 'v1_none' not found"):
        client.create(model="to-anthropic", input="Hi", previous_interaction_id="v1_none")


def test_an_upstream_of_the_same_format_keeps_its_own_state(gateway: Rig, client: Any) -> None:
    client.create(model="to-gemini-interactions", input="Hi", previous_interaction_id="v1_of_google")
    assert gateway.upstreams["gemini-interactions"].bodies[-1]["previous_interaction_id"] == "v1_of_google"


@pytest.mark.parametrize("name", FORMATS)
def test_a_background_interaction_is_polled_and_continued(gateway: Rig, client: Any, name: str) -> None:
    gate = threading.Event()
    gateway.upstreams[name].faults.append(lambda reply: structs.replace(reply, gate=gate))
    started = client.create(model=f"to-{name}", input="My name is Ada.", background=True)
    assert (started.status, started.model) == ("in_progress", f"to-{name}")
    assert client.get(id=started.id).status == "in_progress"
    gate.set()
    done = wait_for(lambda: (got := client.get(id=started.id)).status == "completed" and got)
    assert (done.id, done.output_text) == (started.id, "echo: My name is Ada.")
    second = client.create(model=f"to-{name}", input="And now?", previous_interaction_id=started.id)
    assert second.output_text == "echo: And now?"
    assert b"My name is Ada." in gateway.upstreams[name].received[-1].body


def test_the_events_of_a_background_interaction_are_followed_from_any_of_them(gateway: Rig, client: Any) -> None:
    started = client.create(model="to-gemini", input="Hi", background=True)
    wait_for(lambda: client.get(id=started.id).status == "completed")
    events = list(client.get(id=started.id, stream=True))
    assert [event.event_type for event in events][-1] == "interaction.completed"
    for position, event in enumerate(events):
        rest = list(client.get(id=started.id, stream=True, last_event_id=event.event_id))
        assert rest == events[position + 1 :]


def test_a_background_interaction_is_cancelled(gateway: Rig, client: Any) -> None:
    gateway.upstreams["gemini"].faults.append(hang())
    started = client.create(model="to-gemini", input="Wait.", background=True)
    wait_for(lambda: gateway.upstreams["gemini"].received)
    assert client.cancel(id=started.id).status == "cancelled"
    assert client.get(id=started.id).status == "cancelled"
    wait_for(gateway.upstreams["gemini"].gone.is_set)
    with pytest.raises(sdk_errors.NotFoundError):
        client.cancel(id="v1_none")


def test_a_failed_background_interaction_says_why(gateway: Rig, client: Any) -> None:
    refusal = b'{"error":{"code":400,"message":"no such thing","status":"INVALID_ARGUMENT"}}'
    gateway.upstreams["gemini"].faults.append(
        lambda reply: structs.replace(reply, status=400, body=refusal, content_type="application/json")
    )
    started = client.create(model="to-gemini", input="Hi", background=True)
    failed = wait_for(lambda: (got := client.get(id=started.id)).status == "failed" and got)
    assert [error.message for error in failed.errors] == ["no such thing"]
    with gateway.client() as plain:
        refused = plain.post("/v1beta/interactions", {"model": "unknown-model", "input": "Hi", "background": True})
        assert refused.status == 404
        assert refused.json["error"].keys() == {"code", "message"}


@pytest.mark.parametrize(
    "path", ["/v1/interactions", "/v1alpha/interactions", "/v1beta2/interactions", "/interactions"]
)
def test_every_version_of_the_path_is_served(gateway: Rig, path: str) -> None:
    with gateway.client() as plain:
        got = plain.post(path, {"model": "to-anthropic", "input": "Hi"})
        assert got.status == 200
        assert problems(INTERACTION, got.json) == []
        assert plain.get(f"{path}/{got.json['id']}").json == got.json


@pytest.mark.parametrize(
    ("body", "words"),
    [({}, "model"), ({"model": "to-anthropic", "input": 5}, "input: expected"), ({"input": "Hi"}, "model")],
)
def test_errors_have_the_shape_of_the_api(gateway: Rig, body: dict[str, Any], words: str) -> None:
    with gateway.client() as plain:
        got = plain.post("/v1beta/interactions", body)
    assert got.status == 400
    assert words in got.json["error"]["message"]
    assert got.json["error"]["code"] == "invalid_request"


def test_errors_of_an_upstream_reach_the_sdk(gateway: Rig, client: Any) -> None:
    with pytest.raises(sdk_errors.NotFoundError):
        client.create(model="unknown-model", input="Hi")
    gateway.upstreams["anthropic"].faults.append(
        lambda reply: structs.replace(
            reply, status=400, body=b'{"error":{"type":"invalid_request_error","message":"no"}}'
        )
    )
    with pytest.raises(sdk_errors.BadRequestError, match="no"):
        client.create(model="to-anthropic", input="Hi")


def test_the_sdk_passes_over_keep_alive_comments(gateway: Rig, client: Any) -> None:
    gate = threading.Event()
    gateway.upstreams["anthropic"].faults.append(lambda reply: structs.replace(reply, gate=gate))
    threading.Timer(1.0, gate.set).start()
    events = list(client.create(model="to-anthropic", input="Hi", stream=True))
    assert events[-1].event_type == "interaction.completed"


@pytest.mark.parametrize("name", FORMATS)
def test_the_compliance_suite_passes(gateway: Rig, name: str) -> None:
    """llm-comply, with a model that thinks and calls the tool that it is given."""

    def answer(request: ModelRequest) -> ModelOutput:
        call = ToolCallRequest("get_weather", "call_1", '{"location":"San Francisco"}')
        parts = (call,) if request.tools else (Thinking("Let me think."), *text_answer("One two three.").parts)
        stop = "tool_calls" if request.tools else "end"
        return ModelOutput(parts=parts, stop_reason=stop, id="a", model="m", usage=USAGE)  # type: ignore[arg-type]

    gateway.upstreams[name].answer = answer
    command = [str(Path(sys.executable).with_name("llm-comply")), "--format", "google-interactions", "--json"]
    run = subprocess.run(
        [*command, "-u", gateway.url, "-k", "any", "-m", f"to-{name}"], capture_output=True, check=False
    )
    results = msgspec.json.decode(run.stdout)["results"]
    assert len(results) == 9
    assert [result for result in results if result["status"] != "passed"] == []
