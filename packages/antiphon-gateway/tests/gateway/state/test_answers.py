"""The state of the Responses API: chains, branches, references, owners, expiry, the limit, and many at once."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from antiphon.errors import StoreDamaged, UnknownResponse, WireError
from antiphon.history import SqliteStore
from antiphon.parts import Native, Text, Thinking, ToolCallRequest
from antiphon.wire import formats
from antiphon.wire.output import ModelOutput
from antiphon.wire.request import Message, ModelRequest
from antiphon_gateway.endpoints.answers import list_input_items
from antiphon_gateway.errors import error_response
from antiphon_gateway.routes import Endpoint, match_route
from antiphon_gateway.state.answers import NO_EVENTS, AnswerStore, StoredAnswer
from antiphon_gateway.state.continuing import previous_response_id, should_store, to_provider_error
from antiphon_gateway.state.conversations import ConversationStore
from antiphon_gateway.state.file import StateFile
from antiphon_gateway.utc_time import DAY_SECONDS
from gateway.state.stores import WritingStore, answer_store
from providers.scripted_server import Received, Reply, ScriptedServer
from support.examples import scaled

RESPONSES = formats["openai-responses"]


class Clock:
    """A clock that is advanced by hand."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def asked(text: str | list[Any], previous: str | None = None, **fields: Any) -> ModelRequest:
    body: dict[str, Any] = {"model": "m", "input": text, **fields}
    if previous is not None:
        body["previous_response_id"] = previous
    return RESPONSES.read_request(msgspec.json.encode(body))


def text_output(text: str) -> ModelOutput:
    return ModelOutput(parts=(Text(text),), stop_reason="end", model="m")


def words(request: ModelRequest) -> list[tuple[str, str]]:
    return [
        (message.role, "".join(part.text for part in message.parts if isinstance(part, Text)))
        for message in request.messages
    ]


@pytest.fixture(params=["memory", "file"])
def state(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[WritingStore]:
    with answer_store("" if request.param == "memory" else tmp_path / "state.db") as state:
        yield state


def test_a_follow_up_becomes_a_full_request(state: WritingStore) -> None:
    state.store("resp_1", asked("Hi.", instructions="Be kind."), text_output("Hello."))
    state.store("resp_2", asked("How are you?", "resp_1"), text_output("Well."))
    third = asked("Good.", "resp_2", instructions="Be brief.", temperature=0.5, include=["x"])
    full = state.expand(third)
    assert words(full) == [
        ("system", "Be brief."),
        ("user", "Hi."),
        ("assistant", "Hello."),
        ("user", "How are you?"),
        ("assistant", "Well."),
        ("user", "Good."),
    ]
    assert full.temperature == 0.5
    assert full.native == {"openai-responses": {"include": ["x"]}}
    body, losses = formats["anthropic"].write_request(full)
    assert not [loss for loss in losses if "previous" in loss.path]
    assert [message["role"] for message in body["messages"]] == ["user", "assistant"] * 2 + ["user"]


def test_a_request_without_a_previous_response_is_the_same_object(state: WritingStore) -> None:
    request = asked("Hi.", store=True)
    assert state.expand(request) is request
    assert previous_response_id(request) == ""


def test_branches_share_what_they_have_in_common(state: WritingStore) -> None:
    state.store("resp_1", asked("Root."), text_output("One."))
    state.store("resp_a", asked("Left.", "resp_1"), text_output("L."))
    state.store("resp_b", asked("Right.", "resp_1"), text_output("R."))
    assert [text for _, text in words(state.expand(asked("?", "resp_a")))] == ["Root.", "One.", "Left.", "L.", "?"]
    assert [text for _, text in words(state.expand(asked("?", "resp_b")))] == ["Root.", "One.", "Right.", "R.", "?"]
    assert len(state) == 3


def test_a_system_item_is_kept_and_instructions_are_not(state: WritingStore) -> None:
    items = [{"role": "system", "content": "An item."}, {"role": "user", "content": "Hi."}]
    state.store("resp_1", asked(items, instructions="Not carried over."), text_output("Hello."))
    full = state.expand(asked("Go on.", "resp_1"))
    assert words(full)[0] == ("system", "An item.")
    body, _ = RESPONSES.write_request(full)
    assert "instructions" not in body
    assert "previous_response_id" not in body
    assert body["input"][0] == {"role": "system", "content": "An item."}


def test_calls_and_opaque_reasoning_go_back_to_where_they_came_from(state: WritingStore) -> None:
    thinking = Thinking("Hm.", native={"anthropic": {"signature": "proof"}})
    output = ModelOutput(parts=(thinking, ToolCallRequest("weather", "call_1", '{"city": "Oslo"}')), format="anthropic")
    state.store("resp_1", asked("Rain?"), output)
    result = [{"type": "function_call_output", "call_id": "call_1", "output": "No."}]
    body, _ = formats["anthropic"].write_request(state.expand(asked(result, "resp_1", max_output_tokens=99)))
    assert body["messages"][1]["content"][0] == {"type": "thinking", "thinking": "Hm.", "signature": "proof"}
    assert body["messages"][1]["content"][1]["id"] == body["messages"][2]["content"][0]["tool_use_id"] == "call_1"


def test_items_may_be_referred_to(state: WritingStore) -> None:
    thinking = Thinking("Hm.", native={"anthropic": {"signature": "proof"}})
    image = Native("gemini", {"unsayable": 1})
    call = ToolCallRequest("weather", "call_1", "{}")
    output = ModelOutput(parts=(thinking, Text("A"), Text("B"), image, call, Text("C")))
    body, _ = RESPONSES.encode_response(output)
    state.store("resp_1", asked("Rain?"), output, body=body)
    ids = [item["id"] for item in msgspec.json.decode(body)["output"]]
    assert len(ids) == 4
    references: list[Any] = [{"type": "item_reference", "id": item} for item in ids[:3]] + [{"id": ids[3]}]
    full = state.expand(asked([{"role": "user", "content": "Rain?"}, *references, {"role": "user", "content": "So?"}]))
    assert full.messages[1] == Message("assistant", (thinking, Text("A"), Text("B"), call, Text("C")))
    assert words(full)[2] == ("user", "So?")
    with pytest.raises(UnknownResponse, match=r"^Item with id 'rs_none' not found\. Items are not persisted"):
        state.expand(asked([{"type": "item_reference", "id": "rs_none"}]))
    with pytest.raises(UnknownResponse):
        state.expand(asked([{"type": "item_reference", "id": ids[0]}]), owner="another")


def test_references_inside_a_kept_response_are_followed(state: WritingStore) -> None:
    body, _ = RESPONSES.encode_response(text_output("Hello."))
    state.store("resp_1", asked("Hi."), text_output("Hello."), body=body)
    item = msgspec.json.decode(body)["output"][0]["id"]
    state.store(
        "resp_2", asked([{"type": "item_reference", "id": item}, {"role": "user", "content": "?"}]), text_output("!")
    )
    assert words(state.expand(asked("On.", "resp_2")))[0] == ("assistant", "Hello.")


def test_a_missing_response_gives_openais_error(state: WritingStore) -> None:
    with pytest.raises(UnknownResponse, match=r"^Previous response with id 'resp_none' not found\.$") as raised:
        state.expand(asked("Hi.", "resp_none"))
    answer = error_response("openai-responses", to_provider_error(raised.value), status=raised.value.status)
    assert isinstance(answer.body, bytes)
    assert answer.status == 400
    assert msgspec.json.decode(answer.body)["error"] == {
        "message": "Previous response with id 'resp_none' not found.",
        "type": "invalid_request_error",
        "param": "previous_response_id",
        "code": "previous_response_not_found",
    }
    for act in (state.delete, state.chain):
        with pytest.raises(UnknownResponse, match=r"^Response with id 'resp_none' not found\.$"):
            act("resp_none")
    with pytest.raises(UnknownResponse):
        state.store("resp_2", asked("Hi.", "resp_none"), text_output("!"))
    assert len(state) == 0


def test_one_key_cannot_reach_what_another_kept(state: WritingStore) -> None:
    state.store("resp_1", asked("Mine."), text_output("Yes."), owner="ann")
    state.store("resp_1", asked("Also mine."), text_output("No."), owner="bob")
    assert words(state.expand(asked("?", "resp_1"), owner="ann"))[0] == ("user", "Mine.")
    assert words(state.expand(asked("?", "resp_1"), owner="bob"))[0] == ("user", "Also mine.")
    for act in (state.delete, state.chain):
        with pytest.raises(UnknownResponse):
            act("resp_1", owner="eve")
    with pytest.raises(UnknownResponse):
        state.expand(asked("?", "resp_1"), owner="eve")
    with pytest.raises(UnknownResponse):
        state.store("resp_2", asked("?", "resp_1"), text_output("!"), owner="eve")
    assert len(state) == 2


def test_a_deleted_response_is_gone_and_those_that_build_on_it_are_whole(state: WritingStore) -> None:
    state.store("resp_1", asked("One."), text_output("1"))
    state.store("resp_2", asked("Two.", "resp_1"), text_output("2"))
    state.store("resp_3", asked("Three.", "resp_2"), text_output("3"))
    state.delete("resp_2")
    state.delete("resp_1")
    for gone in ("resp_1", "resp_2"):
        with pytest.raises(UnknownResponse):
            state.chain(gone)
        with pytest.raises(UnknownResponse):
            state.expand(asked("?", gone))
    assert len(words(state.expand(asked("?", "resp_3")))) == 7
    state.delete("resp_3")
    assert len(state) == 0


def test_an_upstream_that_repeats_an_id_breaks_no_chain(state: WritingStore) -> None:
    state.store("resp_1", asked("One."), text_output("1"))
    state.store("resp_1", asked("Two.", "resp_1"), text_output("2"))
    state.store("resp_1", asked("Three.", "resp_1"), text_output("3"))
    assert [text for _, text in words(state.expand(asked("?", "resp_1")))] == [
        "One.",
        "1",
        "Two.",
        "2",
        "Three.",
        "3",
        "?",
    ]
    state.store("resp_1", asked("Fresh."), text_output("0"))
    assert [text for _, text in words(state.expand(asked("?", "resp_1")))] == ["Fresh.", "0", "?"]
    assert len(state) == 1


def test_expired_answers_are_dropped_unless_younger_ones_need_them() -> None:
    clock = Clock()
    with answer_store(seconds=DAY_SECONDS, clock=clock) as state:
        state.store("resp_1", asked("One."), text_output("1"))
        state.store("resp_lone", asked("Alone."), text_output("0"))
        clock.now += DAY_SECONDS / 2
        state.store("resp_2", asked("Two.", "resp_1"), text_output("2"))
        clock.now += DAY_SECONDS / 2
        for gone in ("resp_1", "resp_lone"):
            with pytest.raises(UnknownResponse):
                state.chain(gone)
        assert len(words(state.expand(asked("?", "resp_2")))) == 5
        state.store("resp_other", asked("Other."), text_output("9"))
        assert len(state) == 3  # the lone one went
        clock.now += DAY_SECONDS
        state.store("resp_last", asked("Last."), text_output("9"))
        assert len(state) == 1


def test_over_the_limit_the_oldest_go_and_never_the_one_that_just_grew() -> None:
    clock = Clock()
    with answer_store(limit=4, clock=clock) as state:
        for number in range(6):
            clock.now += 1
            state.store(f"resp_{number}", asked(f"{number}"), text_output("."))
        assert len(state) == 4
        with pytest.raises(UnknownResponse):
            state.chain("resp_1")
        previous = "resp_2"  # the oldest that is left; it grows, and the others make room
        for number in range(6, 12):
            clock.now += 1
            state.store(f"resp_{number}", asked(f"{number}", previous), text_output("."))
            previous = f"resp_{number}"
        assert len(words(state.expand(asked("?", previous)))) == 2 * 7 + 1
        assert len(state) == 7  # a conversation longer than the limit is kept while it grows
        clock.now += 1
        state.store("resp_new", asked("New."), text_output("."))
        assert len(state) == 4


@pytest.mark.slow
def test_a_long_conversation_grows_linearly(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    sizes = []
    with answer_store(path) as state:
        previous: str | None = None
        for number in range(1, 61):
            state.store(f"resp_{number}", asked("word " * 200, previous), text_output("word " * 200))
            previous = f"resp_{number}"
            if number % 30 == 0:
                with state.file.writing() as db:
                    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                sizes.append(os.path.getsize(path))
        assert len(words(state.expand(asked("?", previous)))) == 121
    assert sizes[1] < 2.5 * sizes[0]


def test_a_file_is_found_again_and_others_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with answer_store(path) as state:
        state.store("resp_1", asked("Hi."), text_output("Hello."))
    with answer_store(path) as state:
        assert state.chain("resp_1")[-1].output == text_output("Hello.")
    with SqliteStore(tmp_path / "chats.db"), pytest.raises(StoreDamaged, match="another program"):
        StateFile(tmp_path / "chats.db")


def test_concurrent_threads_and_files(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with answer_store(path, timeout=60) as one, answer_store(path, timeout=60) as other:
        troubles: list[BaseException] = []

        def talk(owner: str, state: WritingStore) -> None:
            try:
                previous: str | None = None
                for number in range(8):
                    request = asked(f"{owner} {number}", previous)
                    assert [text for _, text in words(state.expand(request, owner=owner))][::2] == [
                        f"{owner} {earlier}" for earlier in range(number + 1)
                    ]
                    previous = f"resp_{number}"
                    state.store(previous, request, text_output(owner), owner=owner)
            except BaseException as trouble:
                troubles.append(trouble)

        threads = [threading.Thread(target=talk, args=(f"key{n}", (one, other)[n % 2])) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not troubles
        assert len(one) == 32


steps = st.lists(st.tuples(st.sampled_from("kkkkd"), st.integers(0, 9), st.integers(0, 9)), max_size=40)


@settings(max_examples=scaled(15), deadline=None)
@given(steps)
def test_the_store_agrees_with_a_dictionary(plan: list[tuple[str, int, int]]) -> None:
    """Whatever is kept, deleted and kept again under the same id: what is found is right, and no unreachable data stays."""
    known: dict[str, list[str]] = {}
    with answer_store() as state:
        for place, (act, which, before) in enumerate(plan):
            name, previous = f"resp_{which}", f"resp_{before}"
            if act == "d":
                if name in known:
                    state.delete(name)
                    del known[name]
                continue
            goes_on = previous in known
            state.store(name, asked(f"{place}", previous if goes_on else None), text_output("."))
            known[name] = [*(known[previous] if goes_on else []), f"{place}", "."]
        for name, texts in known.items():
            assert [text for _, text in words(state.expand(asked("?", name)))] == [*texts, "?"]
        for name in list(known):
            state.delete(name)
        assert len(state) == 0


@pytest.mark.parametrize(("store", "is_kept"), [(None, True), (True, True), (False, False)])
def test_a_response_is_stored_unless_the_client_opts_out(store: bool | None, is_kept: bool) -> None:
    assert should_store(ModelRequest(store=store)) is is_kept


def conversation(state: WritingStore) -> None:
    items = [{"role": "user", "content": "Hi."}, {"role": "developer", "content": "Be kind."}]
    state.store("resp_1", asked(items), text_output("Hello."))
    state.store(
        "resp_2", asked("How are you?", "resp_1", metadata={"a": "b"}, instructions="Be brief."), text_output("Well.")
    )


def test_the_input_items_are_everything_it_was_made_from() -> None:
    with answer_store() as state:
        conversation(state)
        page = list_input_items(state.chain("resp_2"), {"order": "asc"})
        assert [item["role"] for item in page["data"]] == ["user", "developer", "assistant", "user"]
        assert [item["content"][0]["text"] for item in page["data"]] == ["Hi.", "Be kind.", "Hello.", "How are you?"]
        assert list_input_items(state.chain("resp_2"))["data"] == page["data"][::-1]
        assert list_input_items(state.chain("resp_1"), {"order": "asc"})["data"] == page["data"][:2]
        found: list[Any] = []
        query = {"limit": "1"}
        while True:
            one = list_input_items(state.chain("resp_2"), query)
            found += one["data"]
            if not one["has_more"]:
                break
            query["after"] = one["last_id"]
        assert found == page["data"][::-1]
        for wrong in ({"order": "up"}, {"limit": "0"}, {"after": "msg_none"}):
            with pytest.raises(WireError):
                list_input_items(state.chain("resp_2"), wrong)


def test_input_items_without_an_id_get_one_of_their_type() -> None:
    call = {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "call_1", "output": "4"}
    with answer_store() as state:
        state.store("resp_1", asked([{"role": "user", "content": "2 + 2?"}, call, result]), text_output("4"))
        page = list_input_items(state.chain("resp_1"), {"order": "asc"})
    assert [item["type"] for item in page["data"]] == ["message", "function_call", "function_call_output"]
    assert [item["id"].partition("_")[0] for item in page["data"]] == ["msg", "fc", "fco"]


def test_a_response_without_input_has_no_items() -> None:
    with answer_store() as state:
        state.store("resp_1", asked([]), text_output("Hello."))
        page = list_input_items(state.chain("resp_1"))
        assert page == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}


def test_openai_reads_and_deletes_what_is_kept() -> None:
    openai = pytest.importorskip("openai")
    with answer_store() as state:
        conversation(state)

        def answer(received: Received) -> Reply:
            path, _, query = received.target.partition("?")
            endpoint = match_route(received.method, path, received.headers)
            assert isinstance(endpoint, Endpoint)
            given = dict(pair.split("=") for pair in query.split("&") if pair)
            status, body = 200, b""
            try:
                if endpoint.action == "get_response":
                    body = state.chain(endpoint.resource)[-1].body
                elif endpoint.action == "list_items":
                    body = msgspec.json.encode(list_input_items(state.chain(endpoint.resource), given))
                else:
                    state.delete(endpoint.resource)
                    body = msgspec.json.encode({"id": endpoint.resource, "object": "response", "deleted": True})
            except UnknownResponse as unknown:
                raised = error_response(endpoint.format, to_provider_error(unknown), status=unknown.status)
                assert isinstance(raised.body, bytes)
                status, body = raised.status, raised.body
            return Reply(status=status, body=body, content_type="application/json", has_length=True)

        with ScriptedServer(answer) as server, openai.OpenAI(api_key="n", base_url=server.url, max_retries=0) as client:
            response = client.responses.retrieve("resp_2")
            assert (response.id, response.output_text) == ("resp_2", "Well.")
            assert (response.previous_response_id, response.instructions) == ("resp_1", "Be brief.")
            assert response.metadata == {"a": "b"}
            items = list(client.responses.input_items.list("resp_2", limit=1))
            assert [item.content[0].text for item in items] == ["How are you?", "Hello.", "Be kind.", "Hi."]
            client.responses.delete("resp_2")
            with pytest.raises(openai.NotFoundError, match="Response with id 'resp_2' not found"):
                client.responses.retrieve("resp_2")


# Answers in the background, and answers that only their provider stored.


def test_an_answer_is_one_row_from_its_beginning_to_its_end(state: WritingStore) -> None:
    state.begin("resp_1", "ann", b"queued", b"{}")
    assert state.share("resp_1", "ann", (0, [b"one", b"two"]))
    assert state.find("resp_1", "ann") == StoredAnswer("resp_1", "running", b"queued")
    assert state.request("resp_1", "ann") == b"{}"
    with pytest.raises(UnknownResponse):
        state.chain("resp_1", owner="ann")
    state.store("resp_1", asked("Hi."), text_output("Hello."), owner="ann", body=b"{}", events=(1, [b"two", b"end"]))
    state.finish("resp_1", "ann", b"too late", (3, [b"too late"]))
    state.request_cancel("resp_1", "ann")
    assert state.share("resp_1", "ann", (0, [b"one"])), "it is complete"
    assert state.find("resp_1", "ann") == StoredAnswer("resp_1", "complete", b"{}")
    assert state.request("resp_1", "ann") == b""
    assert state.events("resp_1", "ann", 0) == [b"two", b"end"]
    assert len(state) == 1
    state.delete("resp_1", "ann")
    assert (state.find("resp_1", "ann"), state.events("resp_1", "ann", -1), len(state)) == (None, [], 0)
    assert not state.share("resp_1", "ann", (0, [b"one"]))


def test_an_answer_whose_process_died_is_overdue() -> None:
    clock = Clock()
    with answer_store(seconds=500, clock=clock) as state:
        state.begin("a1", "owner", b"{}")
        assert state.find("a1", "another") is None
        for later, is_shared, status in (
            (9, True, "running"),
            (9, False, "running"),
            (2, False, "overdue"),
            (480, False, None),
        ):
            clock.now += later
            found = state.find("a1", "owner")
            assert (found.status if found is not None else None) == status
            if is_shared:
                state.share("a1", "owner", NO_EVENTS)


THERE = StoredAnswer("resp_0", "upstream", provider="openai", credential="env:KEY", model="gpt-5")


def test_the_oldest_of_answers_that_providers_have_are_forgotten_above_the_limit_and_with_time() -> None:
    clock = Clock()
    with answer_store(seconds=100.0, limit=3, clock=clock) as state:
        state.store("resp_own", asked("Hi."), text_output("Hello."), owner="me")
        for number in range(5):
            clock.now += 1
            state.write_remembered({("me", f"resp_{number}"): THERE})
        assert [state.find(f"resp_{number}", "me") is not None for number in range(5)] == [
            False,
            False,
            True,
            True,
            True,
        ]
        assert state.find("resp_own", "me") is not None, "they do not take its place"
        clock.now += 99
        assert [state.find(f"resp_{number}", "me") is not None for number in (2, 3, 4)] == [False, False, True]
        assert state.find("resp_4", "another") is None
        state.delete("resp_4", "me")
        assert state.find("resp_4", "me") is None


def test_the_provider_of_an_answer_is_found_at_once_and_after_a_restart(tmp_path: Path) -> None:
    async def remember() -> None:
        state = AnswerStore(StateFile(tmp_path / "state.db"))
        state.remember(THERE, "me")
        assert state.find("resp_0", "me") == THERE
        await state.aclose()

    asyncio.run(remember())
    with answer_store(tmp_path / "state.db") as state:
        assert state.find("resp_0", "me") == THERE


def test_a_file_of_the_version_before_has_everything(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with closing(sqlite3.connect(path)) as old, old:
        old.executescript((Path(__file__).parent / "older_state.sql").read_text())
    clock = Clock()
    with answer_store(path, clock=clock) as state:
        assert [text for _, text in words(state.expand(asked("?", "resp_3"), owner="ann"))] == [
            *("One.", "1", "Two.", "2", "Three.", "3", "?")
        ]
        assert [text for _, text in words(state.expand(asked("?", "resp_1"), owner="bob"))] == ["Of Bob.", "b", "?"]
        assert state.find("resp_2", "ann") is None, "it was deleted"
        running, ended, upstream = (
            state.find(*where) for where in (("resp_run", "ann"), ("resp_off", "bob"), ("resp_there", "ann"))
        )
        assert running is not None
        assert ended is not None
        assert running.status == "overdue", "its process cannot write to the file any more"
        assert running.body == b'{"status": "in_progress"}'
        assert b"Go on." in state.request("resp_run", "ann")
        assert state.events("resp_run", "ann", 0) == [b"data: 1\n\n"]
        assert (ended.status, ended.body) == ("ended", b'{"status": "cancelled"}')
        assert upstream == structs.replace(THERE, id="resp_there")
        assert ConversationStore(state.file).items("conv_1", "ann")[0]["id"] == "i1"
        state.store("resp_4", asked("Four.", "resp_3"), text_output("4"), owner="ann")
        with state.file.reading() as db:
            tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert not tables & {"responses", "unfinished", "unfinished_events", "upstream_answers"}


def shape_of(path: Path) -> dict[str, object]:
    """The tables with their columns, and everything on them."""
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
        return {
            name: sorted(db.execute(f"SELECT * FROM pragma_table_info('{name}')"), key=lambda column: column[1])
            if kind == "table"
            else " ".join(sql.replace('"', "").split())
            for kind, name, sql in rows
        }


def without_places(shape: dict[str, object]) -> dict[str, object]:
    """Columns by name: those that came later are last in an older file."""
    return {
        name: [column[1:] for column in columns] if isinstance(columns, list) else columns
        for name, columns in shape.items()
    }


def test_a_file_of_the_version_before_gets_the_tables_of_a_new_one(tmp_path: Path) -> None:
    older, new = tmp_path / "older.db", tmp_path / "new.db"
    with closing(sqlite3.connect(older)) as old:
        old.executescript((Path(__file__).parent / "older_state.sql").read_text())
    for path in (older, new):
        StateFile(path).close()
    assert without_places(shape_of(older)) == without_places(shape_of(new))
