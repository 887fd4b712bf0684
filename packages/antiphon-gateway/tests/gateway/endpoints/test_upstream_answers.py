"""Answers that only their provider stored are got, followed, cancelled, listed and deleted there, with the key that made them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from antiphon.wire import formats
from antiphon.wire.delta import deltas_from_output
from antiphon.wire.output import ModelOutput
from antiphon_gateway.access.client_keys import hash_key
from antiphon_gateway.config.settings import ClientKeySettings, Config, ModelSettings, ProviderSettings
from gateway.rig import FAST, Client, serving
from gateway.strict_upstream import text_answer
from providers.sample_answers import PRESET_OF
from providers.scripted_server import Received, Reply, ScriptedServer

MODEL = "the-provider's-model"
PATHS = {"openai-responses": "/v1/responses", "gemini-interactions": "/v1beta/interactions"}
PREFIXES = {"openai-responses": "resp_", "gemini-interactions": "v1_"}
to_both = pytest.mark.parametrize("name", PATHS)


class StoringUpstream:
    """A provider that stores answers. Each key has an account of its own."""

    def __init__(self, format_name: str) -> None:
        self.format = format_name
        self.stored: dict[tuple[str, str], bytes] = {}
        self.asked: list[str] = []
        self.is_down = False
        self.server = ScriptedServer(self.reply)

    def reply(self, received: Received) -> Reply:
        key = received.headers.get("authorization", "").removeprefix("Bearer ") or received.headers["x-goog-api-key"]
        path, _, query = received.target.partition("?")
        if self.is_down:
            return json_reply({"error": {"message": "try later", "code": 500, "status": "INTERNAL"}}, 500)
        if received.method == "POST" and path == PATHS[self.format]:
            return self._create(received, key)
        self.asked.append(f"{received.method} {received.target} {key}")
        answer_id = path.removeprefix(PATHS[self.format] + "/").partition("/")[0]
        body = self.stored.get((key, answer_id))
        if body is None:
            return json_reply({"error": {"message": f"no {answer_id} here", "code": 404, "status": "NOT_FOUND"}}, 404)
        if received.method == "DELETE":
            del self.stored[key, answer_id]
            return json_reply({"id": answer_id, "deleted": True})
        if path.endswith("/input_items"):
            return json_reply({"object": "list", "data": [{"id": "msg_1", "model": MODEL}]})
        if "stream=true" in query:
            return Reply(body=stream_of(self.format, answer_id))
        return Reply(body=body, content_type="application/json", has_length=True)

    def _create(self, received: Received, key: str) -> Reply:
        body = msgspec.json.decode(received.body)
        previous = body.get("previous_response_id") or body.get("previous_interaction_id")
        if previous and (key, previous) not in self.stored:
            return json_reply({"error": {"message": f"no {previous} here", "code": 400}}, 400)
        output = structs.replace(text_answer("Hi", MODEL), id=f"{PREFIXES[self.format]}{len(self.stored)}")
        data, _ = formats[self.format].encode_response(output)
        if body.get("store") is not False:
            self.stored[key, output.id] = data
        if body.get("stream"):
            return Reply(body=stream_of(self.format, output.id))
        return Reply(body=data, content_type="application/json", has_length=True)


def json_reply(body: Any, status: int = 200) -> Reply:
    return Reply(status=status, body=msgspec.json.encode(body), content_type="application/json", has_length=True)


def stream_of(format_name: str, answer_id: str) -> bytes:
    writer = formats[format_name].stream_writer(MODEL)
    deltas = deltas_from_output(structs.replace(text_answer("Hi", MODEL), id=answer_id), 5)
    return b"".join([*map(writer.write, deltas), writer.close()])


@contextmanager
def gateway(*upstreams: StoringUpstream, state: str = "") -> Iterator[Callable[[str], Client]]:
    """A gateway whose models are asked of the first host, and of the next ones if it fails."""
    providers = tuple(
        ProviderSettings(
            name=name,
            preset=PRESET_OF[upstream.format],
            base_url=upstream.server.url + ("/v1" if upstream.format.startswith("openai") else ""),
            keys=("env:FIRST", "env:SECOND"),
            retries=0,
        )
        for name, upstream in zip(("storing", "other"), upstreams, strict=False)
    )
    config = Config(
        gateway=structs.replace(FAST, state=state),
        providers=providers,
        models=(ModelSettings(name="asked-*", targets=tuple(f"{provider.name}/{MODEL}" for provider in providers)),),
        keys=tuple(ClientKeySettings(name=name, key=hash_key(f"sk-{name}")) for name in ("one", "other")),
    )
    clients: list[Client] = []
    with serving(config, {"FIRST": "key-first", "SECOND": "key-second"}) as (port, _):

        def client(key: str) -> Client:
            clients.append(Client(port, f"sk-{key}"))
            return clients[-1]

        try:
            yield client
        finally:
            for each in clients:
                each.close()


@pytest.fixture
def upstream(name: str) -> Iterator[StoringUpstream]:
    made = StoringUpstream(name)
    with made.server:
        yield made


def created(client: Client, name: str, *, streams: bool = False, **fields: Any) -> str:
    """The id of a new answer."""
    got = client.post(PATHS[name], {"model": "asked-model", "input": "Hi", "stream": streams, **fields})
    assert got.status == 200, got.body
    output: ModelOutput = got.output(name, streams=streams)
    return output.id


@to_both
@pytest.mark.parametrize("streams", [False, True])
def test_an_answer_is_got_with_the_key_that_created_it(upstream: StoringUpstream, name: str, streams: bool) -> None:
    with gateway(upstream) as client_of:
        client = client_of("one")
        for _ in range(4):  # the keys take turns
            answer_id = created(client, name, streams=streams)
            got = client.get(f"{PATHS[name]}/{answer_id}")
            assert (got.status, got.json["id"], got.json["model"]) == (200, answer_id, "asked-model")
            assert got.headers["x-antiphon-target"] == "storing"
    assert {asked.split()[-1] for asked in upstream.asked} == {"key-first", "key-second"}
    assert len(upstream.asked) == 4


@to_both
def test_a_restarted_gateway_finds_the_answer(upstream: StoringUpstream, name: str, tmp_path: Path) -> None:
    state = str(tmp_path / "state.db")
    with gateway(upstream, state=state) as client_of:
        answer_id = created(client_of("one"), name)
    with gateway(upstream, state=state) as client_of:
        assert client_of("one").get(f"{PATHS[name]}/{answer_id}").json["model"] == "asked-model"


@to_both
def test_another_client_does_not_get_it(upstream: StoringUpstream, name: str) -> None:
    with gateway(upstream) as client_of:
        answer_id = created(client_of("one"), name)
        other = client_of("other")
        for method, suffix in (("GET", ""), ("DELETE", ""), ("POST", "/cancel")):
            got = other.request(method, f"{PATHS[name]}/{answer_id}{suffix}")
            assert got.error(name).status == 404
    assert upstream.asked == []


@to_both
def test_its_events_are_followed(upstream: StoringUpstream, name: str) -> None:
    with gateway(upstream) as client_of:
        client = client_of("one")
        answer_id = created(client, name)
        got = client.get(f"{PATHS[name]}/{answer_id}?stream=true&starting_after=2&provider=other")
    assert got.output(name, streams=True).model == "asked-model"
    assert MODEL.encode() not in got.body
    assert upstream.asked[0].startswith(f"GET {PATHS[name]}/{answer_id}?stream=true&starting_after=2 ")


@to_both
def test_it_is_cancelled_and_deleted(upstream: StoringUpstream, name: str) -> None:
    with gateway(upstream) as client_of:
        client = client_of("one")
        answer_id = created(client, name)
        cancelled = client.request("POST", f"{PATHS[name]}/{answer_id}/cancel")
        assert (cancelled.status, cancelled.json["model"]) == (200, "asked-model")
        assert client.request("DELETE", f"{PATHS[name]}/{answer_id}").json["deleted"] is True
        assert client.get(f"{PATHS[name]}/{answer_id}").status == 404
    assert [asked.split()[0] for asked in upstream.asked] == ["POST", "DELETE"]  # a deleted one is not asked for


@pytest.mark.parametrize("name", ["openai-responses"])
def test_its_input_items_are_listed_as_they_are(upstream: StoringUpstream, name: str) -> None:
    with gateway(upstream) as client_of:
        client = client_of("one")
        answer_id = created(client, name)
        items = client.get(f"{PATHS[name]}/{answer_id}/input_items?limit=3").json
    assert items["data"] == [{"id": "msg_1", "model": MODEL}]
    assert upstream.asked[0].startswith(f"GET {PATHS[name]}/{answer_id}/input_items?limit=3 ")


@to_both
def test_an_error_of_the_provider_comes_as_it_was_written(upstream: StoringUpstream, name: str) -> None:
    with gateway(upstream) as client_of:
        client = client_of("one")
        answer_id = created(client, name)
        upstream.stored.clear()  # it expired there
        got = client.get(f"{PATHS[name]}/{answer_id}")
    assert (got.status, got.json["error"]["message"]) == (404, f"no {answer_id} here")


@to_both
def test_an_answer_that_is_not_stored_is_not_remembered(upstream: StoringUpstream, name: str) -> None:
    with gateway(upstream) as client_of:
        client = client_of("one")
        answer_id = created(client, name, store=False)
        assert client.get(f"{PATHS[name]}/{answer_id}").status == 404
    assert upstream.asked == []


@to_both
@pytest.mark.parametrize("streams", [False, True])
def test_a_request_that_continues_it_goes_to_the_same_account(
    upstream: StoringUpstream, name: str, streams: bool
) -> None:
    field = {"openai-responses": "previous_response_id", "gemini-interactions": "previous_interaction_id"}[name]
    with gateway(upstream) as client_of:
        client = client_of("one")
        first, second = created(client, name), created(client, name)
        for _ in range(3):
            first = created(client, name, streams=streams, **{field: first})
            first = created(client, name, streams=streams, **{field: first})
            second = created(client, name, streams=streams, **{field: second})
    keys = [key for key, _ in upstream.stored]
    assert sorted((keys.count("key-first"), keys.count("key-second"))) == [4, 7]


@to_both
@pytest.mark.parametrize("streams", [False, True])
def test_the_key_that_has_it_is_not_preferred_at_another_host(
    upstream: StoringUpstream, name: str, streams: bool
) -> None:
    """Its keys may have the same names, and are those of other accounts."""
    field = {"openai-responses": "previous_response_id", "gemini-interactions": "previous_interaction_id"}[name]
    other = StoringUpstream(name)
    with other.server, gateway(upstream, other) as client_of:
        client = client_of("one")
        created(client, name)
        answer_id = created(client, name)
        assert [key for key, _ in upstream.stored] == ["key-first", "key-second"]
        upstream.is_down = True
        other.stored = {(key, answer_id): b"" for key in ("key-first", "key-second")}
        created(client, name, streams=streams, **{field: answer_id})
        created(client, name, streams=streams, **{field: answer_id})
    assert [key for key, _ in other.stored][2:] == ["key-first", "key-second"], "each in its turn"
