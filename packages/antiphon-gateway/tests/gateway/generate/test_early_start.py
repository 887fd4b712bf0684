"""Silent providers: clients get keep-alives that their parsers pass over, also before the provider sent its headers."""

from __future__ import annotations

import asyncio
import http.client
import re
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import structs

from antiphon.wire import FORMATS, formats
from antiphon.wire.delta import Assembler
from gateway.rig import FAST, Rig, path_of, rig
from gateway.strict_upstream import Fault, cut, hang, trickle
from providers.scripted_server import Reply

QUICK = structs.replace(FAST, hold_seconds=0.05, keep_alive_seconds=0.05)
BODIES: dict[str, dict[str, Any]] = {
    "openai-chat": {"messages": [{"role": "user", "content": "Hello"}]},
    "openai-responses": {"input": "Hello"},
    "anthropic": {"max_tokens": 100, "messages": [{"role": "user", "content": "Hello"}]},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]},
    "gemini-interactions": {"input": "Hello"},
}
for_each_format = pytest.mark.parametrize("format_name", BODIES)


@pytest.fixture(scope="module")
def gateway() -> Iterator[Rig]:
    backup = {"with-backup": ["anthropic/claude-sonnet-4-5", "openai-chat/gpt-4o"]}
    with rig(QUICK, models=backup) as running:
        yield running


@pytest.fixture(autouse=True)
def clean(gateway: Rig) -> None:
    gateway.clear()


def google_client(gateway: Rig) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the SDK's own modules
        from google import genai
    return genai.Client(api_key="k", http_options=genai.types.HttpOptions(base_url=gateway.url))


class Stream:
    """A streaming request whose response is read as it comes."""

    def __init__(self, gateway: Rig, format_name: str, model: str, *, path: str = "") -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=30)
        body = BODIES[format_name]
        if format_name != "gemini":
            body = {**body, "model": model, "stream": True}
        headers = {"content-type": "application/json"}
        target = path or path_of(format_name, model, streams=True)
        self._connection.request("POST", target, msgspec.json.encode(body), headers)
        self.response = self._connection.getresponse()  # returns as soon as the head is there
        self.begin = self.response.read(1)

    def rest(self) -> bytes:
        data = self.begin + self.response.read()
        self._connection.close()
        return data


def withheld(gate: threading.Event) -> Fault:
    """The head of the answer waits for `gate`."""
    return lambda reply: structs.replace(reply, gate=gate)


@for_each_format
def test_stream_begins_while_the_provider_withholds_its_headers(gateway: Rig, format_name: str) -> None:
    gate = threading.Event()
    gateway.upstreams["anthropic"].faults.append(withheld(gate))
    stream = Stream(gateway, format_name, "to-anthropic")
    assert stream.response.status == 200
    assert stream.begin == formats[format_name].spec.keep_alive[:1]
    sent = {name.lower() for name, _ in stream.response.getheaders()}
    assert "x-request-id" in sent, "the log line is found by it"
    assert not any(name.startswith("x-antiphon-") or name == "trailer" for name in sent), "nothing is known yet"
    gate.set()
    reader, assembler = formats[format_name].stream_reader(), Assembler()
    for delta in [*reader.feed(stream.rest()), *reader.close()]:
        assembler.add(delta)
    assert assembler.is_finished, assembler.error
    assert len(gateway.upstreams["anthropic"].received) == 1


def test_fallback_is_still_possible_after_the_stream_has_begun(gateway: Rig) -> None:
    gate = threading.Event()
    gateway.upstreams["anthropic"].faults.append(
        structs.replace(gateway.upstreams["anthropic"].error(500, "server", "broken"), gate=gate)
    )
    stream = Stream(gateway, "openai-chat", "with-backup")
    gate.set()
    data = stream.rest()
    assert b"[DONE]" in data
    assert len(gateway.upstreams["openai-chat"].received) == 1


def test_silent_provider_is_left_for_the_next_one_after_the_stream_has_begun() -> None:
    """Its head arrived long ago, and the client has the head and keep-alives: nothing was shown yet."""
    settings = structs.replace(QUICK, first_token_seconds=0.5)
    models = {"with-backup": ["anthropic/claude-sonnet-4-5", "openai-chat/gpt-4o"]}
    with rig(settings, models=models, retries=2) as gateway:
        gateway.upstreams["anthropic"].faults.append(hang(10))
        stream = Stream(gateway, "openai-chat", "with-backup")
        assert stream.begin == formats["openai-chat"].spec.keep_alive[:1]
        assert b"[DONE]" in stream.rest()
        assert len(gateway.upstreams["anthropic"].received) == 1
        assert len(gateway.upstreams["openai-chat"].received) == 1


@for_each_format
def test_error_after_the_stream_has_begun_is_an_event(gateway: Rig, format_name: str) -> None:
    gate = threading.Event()
    gateway.upstreams["anthropic"].faults.append(
        structs.replace(gateway.upstreams["anthropic"].error(529, "overloaded", "Overloaded"), gate=gate)
    )
    stream = Stream(gateway, format_name, "to-anthropic")
    gate.set()
    reader, assembler = formats[format_name].stream_reader(), Assembler()
    for delta in [*reader.feed(stream.rest()), *reader.close()]:
        assembler.add(delta)
    assert assembler.error is not None
    assert (assembler.error.kind, assembler.error.message) == ("overloaded", "Overloaded")


def test_array_of_gemini_is_valid_json_in_either_case(gateway: Rig) -> None:
    upstream = gateway.upstreams["anthropic"]
    for fault in (withheld(gate := threading.Event()), None):
        if fault is None:
            gate = threading.Event()
            fault = structs.replace(upstream.error(529, "overloaded", "Overloaded"), gate=gate)
        upstream.faults.append(fault)
        stream = Stream(gateway, "gemini", "", path="/v1beta/models/to-anthropic:streamGenerateContent")
        gate.set()
        last = msgspec.json.decode(stream.rest())[-1]
        assert ("error" in last) is isinstance(fault, Reply)


def test_early_answer_keeps_its_status(gateway: Rig) -> None:
    gateway.upstreams["anthropic"].faults.append(gateway.upstreams["anthropic"].error(413, "too_large", "too long"))
    with gateway.client() as client:
        got = client.ask("anthropic", "to-anthropic", BODIES["anthropic"], streams=True)
    assert got.status == 413


def test_client_that_leaves_ends_the_call(gateway: Rig) -> None:
    gateway.upstreams["anthropic"].faults.append(hang())
    stream = Stream(gateway, "openai-chat", "to-anthropic")
    stream.response.close()
    stream._connection.close()
    assert gateway.upstreams["anthropic"].gone.wait(20), "the upstream was not released"


@pytest.mark.parametrize("target", ["gemini", "anthropic"])
def test_google_genai_passes_over_keep_alives(gateway: Rig, target: str) -> None:
    client = google_client(gateway)
    upstream = gateway.upstreams[target]
    upstream.faults.append(trickle(300, 0.3))
    chunks = client.models.generate_content_stream(model=f"to-{target}", contents="Hello my friend")
    assert "".join(chunk.text or "" for chunk in chunks) == "echo: Hello my friend"

    async def read() -> str:
        upstream.faults.append(trickle(300, 0.3))
        stream = await client.aio.models.generate_content_stream(model=f"to-{target}", contents="Hello my friend")
        text = "".join([chunk.text or "" async for chunk in stream])
        await client.aio.aclose()
        return text

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the SDK's own session
        assert asyncio.run(read()) == "echo: Hello my friend"


@pytest.mark.parametrize("target", ["gemini", "anthropic"])
def test_chats_of_google_genai_keep_a_turn_with_keep_alives(gateway: Rig, target: str) -> None:
    """They drop a turn from what they send next if a chunk of it had no content."""
    client = google_client(gateway)
    chat = client.chats.create(model=f"to-{target}")
    gateway.upstreams[target].faults.append(trickle(300, 0.3))
    assert "".join(chunk.text or "" for chunk in chat.send_message_stream("Hello")) == "echo: Hello"
    roles = [content.role for content in chat.get_history(curated=True)]
    assert (roles[0], set(roles[1:])) == ("user", {"model"})


@pytest.mark.parametrize("target", ["gemini", "anthropic"])
def test_keep_alives_of_gemini_are_spaces_inside_of_events(gateway: Rig, target: str) -> None:
    """Genkit, @google/generative-ai and LangChain JS take each event off the front by this expression, and parse it."""
    gateway.upstreams[target].faults.append(trickle(300, 0.3))
    with gateway.client() as client:
        rest = client.ask("gemini", f"to-{target}", BODIES["gemini"], streams=True).body.decode()
    assert "data:  " in rest, "no keep-alive was sent"
    while rest:
        event = re.match(r"data: (.*)(?:\n\n|\r\r|\r\n\r\n)", rest)
        assert event is not None, rest
        assert msgspec.json.decode(event[1])["candidates"]
        rest = rest[event.end() :]


@pytest.mark.parametrize("target", FORMATS)
def test_error_after_keep_alives_reaches_clients_of_gemini(gateway: Rig, target: str) -> None:
    gate = threading.Event()
    error = gateway.upstreams[target].error(400, "invalid_request", "too warm")
    gateway.upstreams[target].faults.append(structs.replace(error, gate=gate))
    stream = Stream(gateway, "gemini", f"to-{target}")
    gate.set()
    event, bare, end = stream.rest().split(b"\r\n\r\n")
    assert (event.removeprefix(b"data: ").strip(), end) == (bare, b"")
    assert "too warm" in msgspec.json.decode(bare)["error"]["message"]


@pytest.mark.parametrize("target", FORMATS)
def test_cut_is_noticed_by_clients_of_gemini(gateway: Rig, target: str) -> None:
    """google-genai for Python raises on the event, the one for JavaScript on the same JSON outside of an event."""
    upstream = gateway.upstreams[target]
    upstream.faults.append(lambda reply: cut(len(reply.body) * 2 // 3)(reply))  # type: ignore[operator]
    client = google_client(gateway)
    from google.genai.errors import APIError

    with pytest.raises(APIError, match="connection lost"):
        list(client.models.generate_content_stream(model=f"to-{target}", contents="Hello my friend"))
    upstream.faults.append(lambda reply: cut(len(reply.body) * 2 // 3)(reply))  # type: ignore[operator]
    with gateway.client() as plain:
        data = plain.ask("gemini", f"to-{target}", BODIES["gemini"], streams=True).body
    *_, event, bare, end = data.split(b"\r\n\r\n")
    assert (event.removeprefix(b"data: ").strip(), end) == (
        bare,
        b"",
    )  # a second space where the answer was late: its early start
    assert 400 <= msgspec.json.decode(bare)["error"]["code"] < 600
