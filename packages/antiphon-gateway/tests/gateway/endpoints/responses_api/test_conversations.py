"""Conversations, compaction and token counts of the Responses API, with the official SDK."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from antiphon.errors import UnknownResponse, WireError
from antiphon.parts import Text
from antiphon.wire import FORMATS
from antiphon.wire.output import ModelOutput
from antiphon.wire.request import ModelRequest
from antiphon_gateway.config.settings import ClientKeySettings
from antiphon_gateway.state.continuing import decode_summary, encode_summary
from antiphon_gateway.state.conversations import ConversationStore
from antiphon_gateway.state.file import StateFile
from gateway.rig import FAST, Rig, rig
from gateway.strict_upstream import text_answer

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


def recall(request: ModelRequest) -> ModelOutput:
    parts = [part for message in request.messages for part in message.parts]
    return text_answer(" | ".join(part.text for part in parts if isinstance(part, Text)))


def texts(items: Any) -> list[str]:
    return [part.text for item in items for part in item.content]


def test_a_conversation_is_created_updated_and_deleted(client: Any) -> None:
    made = client.conversations.create(metadata={"a": "1"}, items=[{"role": "user", "content": "Hello."}])
    assert (made.object, made.metadata, made.id[:5]) == ("conversation", {"a": "1"}, "conv_")
    assert client.conversations.retrieve(made.id) == made
    assert client.conversations.update(made.id, metadata={"b": "2"}).metadata == {"b": "2"}
    assert client.conversations.retrieve(made.id).metadata == {"b": "2"}
    assert client.conversations.delete(made.id).deleted
    with pytest.raises(openai.NotFoundError, match=made.id):
        client.conversations.retrieve(made.id)


def test_items_are_added_listed_and_deleted(client: Any) -> None:
    made = client.conversations.create()
    added = client.conversations.items.create(
        made.id, items=[{"role": "user", "content": "One."}, {"role": "user", "content": "Two."}]
    )
    assert texts(added.data) == ["One.", "Two."]
    assert texts(client.conversations.items.list(made.id)) == ["Two.", "One."]
    page = client.conversations.items.list(made.id, order="asc", limit=1)
    assert (texts(page.data), page.has_more) == (["One."], True)
    first, second = added.data
    assert client.conversations.items.retrieve(first.id, conversation_id=made.id).id == first.id
    client.conversations.items.delete(first.id, conversation_id=made.id)
    assert texts(client.conversations.items.list(made.id)) == ["Two."]
    with pytest.raises(openai.NotFoundError, match=first.id):
        client.conversations.items.retrieve(first.id, conversation_id=made.id)
    assert client.conversations.items.retrieve(second.id, conversation_id=made.id).id == second.id


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("name", FORMATS)
def test_responses_of_a_conversation_add_to_it(gateway: Rig, client: Any, name: str, streams: bool) -> None:
    gateway.upstreams[name].answer = recall
    made = client.conversations.create(items=[{"role": "user", "content": "The word is tin."}])

    def ask(text: str) -> Any:
        response = client.responses.create(model=f"to-{name}", input=text, conversation=made.id, stream=streams)
        return list(response)[-1].response if streams else response

    first = ask("Which?")
    assert (first.output_text, first.conversation.id) == ("The word is tin. | Which?", made.id)
    second = ask("Again?")
    assert second.output_text == "The word is tin. | Which? | The word is tin. | Which? | Again?"
    items = client.conversations.items.list(made.id, order="asc")
    assert texts(items) == ["The word is tin.", "Which?", first.output_text, "Again?", second.output_text]
    assert "conversation" not in gateway.upstreams[name].bodies[-1]


def test_a_failed_response_adds_nothing(gateway: Rig, client: Any) -> None:
    made = client.conversations.create()
    upstream = gateway.upstreams["gemini"]
    upstream.faults.append(upstream.error(400, "invalid_request", "no"))
    with pytest.raises(openai.BadRequestError):
        client.responses.create(model="to-gemini", input="Hi", conversation=made.id)
    assert list(client.conversations.items.list(made.id)) == []


def test_a_conversation_and_a_previous_response_exclude_each_other(client: Any) -> None:
    made = client.conversations.create()
    first = client.responses.create(model="to-gemini", input="Hi")
    with pytest.raises(openai.BadRequestError, match="cannot be used together"):
        client.responses.create(model="to-gemini", input="Hi", conversation=made.id, previous_response_id=first.id)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"items": 7}, "items"),
        ({"items": ["x"]}, "items"),
        ({"items": [{"role": "user", "content": "x"}] * 21}, "at most 20"),
        ({"metadata": 7}, "metadata"),
        (7, "JSON object"),
    ],
)
def test_a_wrong_conversation_is_refused(gateway: Rig, body: Any, words: str) -> None:
    with gateway.client() as client:
        got = client.post("/v1/conversations", body)
    assert got.status == 400
    assert words in got.error("openai-responses").message


def test_another_key_cannot_use_it(tmp_path: Path) -> None:
    environ = {"KEY_A": "sk-client-a-0123456789abcdef", "KEY_B": "sk-client-b-0123456789abcdef"}
    keys = [ClientKeySettings(name=name, key=f"env:KEY_{name}") for name in ("A", "B")]
    with rig(structs.replace(FAST, state=str(tmp_path / "state.db")), keys=keys, environ=environ) as gateway:
        options = {"base_url": f"{gateway.url}/v1", "max_retries": 0}
        with (
            openai.OpenAI(api_key=environ["KEY_A"], **options) as mine,
            openai.OpenAI(api_key=environ["KEY_B"], **options) as other,
        ):
            made = mine.conversations.create()
            with pytest.raises(openai.NotFoundError):
                other.conversations.retrieve(made.id)
            with pytest.raises(openai.BadRequestError, match="conversation"):
                other.responses.create(model="to-gemini", input="Hi", conversation=made.id)


def test_old_and_surplus_conversations_are_deleted() -> None:
    now = [1000.0]
    store = ConversationStore(StateFile(seconds=100, limit=2, clock=lambda: now[0]))
    first = store.create("o", {}, [{"role": "user", "content": "x"}])
    now[0] += 10
    second, third = store.create("o", {}), store.create("o", {})
    with pytest.raises(UnknownResponse):
        store.get(first.id, "o")
    assert store.get(second.id, "o") == second
    now[0] += 101
    with pytest.raises(UnknownResponse):
        store.get(third.id, "o")


@pytest.mark.parametrize("name", FORMATS)
def test_a_compacted_conversation_is_continued_by_every_model(gateway: Rig, client: Any, name: str) -> None:
    gateway.upstreams[name].answer = lambda _: text_answer("The launch is on Tuesday.")
    conversation = [
        {"role": "user", "content": "Launch on Tuesday."},
        {"role": "assistant", "content": "Understood."},
    ]
    compacted = client.responses.compact(model=f"to-{name}", input=conversation)
    assert (compacted.object, compacted.usage.total_tokens) == ("response.compaction", 18)
    assert [item.type for item in compacted.output] == ["message", "compaction"]
    assert b"Write a summary" in gateway.upstreams[name].received[0].body
    with gateway.client() as http:
        items = http.post("/v1/responses/compact", {"model": f"to-{name}", "input": conversation}).json["output"]
    for target in FORMATS:
        gateway.upstreams[target].answer = recall
        last = client.responses.create(model=f"to-{target}", input=[*items, {"role": "user", "content": "When?"}])
        assert "The launch is on Tuesday." in last.output_text
        assert last.output_text.endswith("When?")


def test_a_stored_response_is_compacted(gateway: Rig, client: Any) -> None:
    first = client.responses.create(model="to-gemini", input="The word is tin.")
    client.responses.compact(model="to-gemini", previous_response_id=first.id)
    assert b"The word is tin." in gateway.upstreams["gemini"].received[-1].body


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"input": "x"}, 400, "model"),
        ({"model": "to-gemini"}, 400, "nothing to compact"),
        ({"model": "nothing", "input": "x"}, 404, "nothing"),
    ],
)
def test_a_wrong_compaction_is_refused(gateway: Rig, body: dict[str, Any], status: int, words: str) -> None:
    with gateway.client() as client:
        got = client.post("/v1/responses/compact", body)
    assert got.status == status
    assert words in got.error("openai-responses").message


def test_a_summary_that_was_changed_is_refused() -> None:
    content = encode_summary("Tuesday, 北京")
    assert decode_summary(content) == "Tuesday, 北京"
    for wrong in (content[:-8], content[:30] + "AAAA" + content[34:], "antiphon-summary-1:%%%"):
        with pytest.raises(WireError, match="compaction item"):
            decode_summary(wrong)


@pytest.mark.parametrize("name", ["openai-chat", "anthropic", "gemini"])
def test_input_tokens_are_estimated_with_the_stored_messages(client: Any, name: str) -> None:
    short = client.responses.input_tokens.count(model=f"to-{name}", input="Hi")
    assert (short.object, short.input_tokens > 0) == ("response.input_tokens", True)
    first = client.responses.create(model=f"to-{name}", input="word " * 200)
    longer = client.responses.input_tokens.count(model=f"to-{name}", input="Hi", previous_response_id=first.id)
    assert longer.input_tokens > short.input_tokens + 200


def test_input_tokens_come_from_an_upstream_that_counts(gateway: Rig) -> None:
    gateway.clear()
    with gateway.client() as client:
        got = client.post("/v1/responses/input_tokens", {"model": "to-openai-responses", "input": "Hi"})
    assert msgspec.json.decode(got.body)["input_tokens"] > 0
    assert gateway.upstreams["openai-responses"].received[0].target == "/v1/responses/input_tokens"
