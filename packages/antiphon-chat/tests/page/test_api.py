"""The API of the chat over real sockets: conversations, turns, plans, and the errors for invalid requests."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import antiphon as ap
from antiphon.history import SqliteStore
from antiphon.history.export import read_export
from antiphon.providers.scripted import call
from antiphon.wire import FORMATS, ProviderError, formats
from antiphon_chat.shared.uploads import IMAGE_BYTES, MAX_PARTS, TEXT_CHARACTERS
from antiphon_gateway.access.client_keys import hash_key
from antiphon_gateway.config.settings import ClientKeySettings
from page.rig import Browser, models, served, text

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4
QUESTION = "find tips for IELTS reading, then make me a plan"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with served(tmp_path_factory.mktemp("api") / "chats.db", with_builtin=True, token_limit=9_000) as browser:
        yield browser


def base64(data: bytes) -> str:
    return b64encode(data).decode()


def test_the_state_lists_models_and_settings(browser: Browser) -> None:
    state = browser.api("GET", "/state")
    assert state["version"] == ap.__version__
    given = {"model": "offline/plain", "what": "offline", "how": "Set a key."}
    assert state["choice"] == given | {"kind": "", "values": {}}
    assert state["models"] == ["offline/plain"]
    tools = {tool["name"]: tool for tool in state["tools"]}
    assert tools["search_web"]["effect"] == "read"
    assert set(tools["create_plan"]) == {"name", "description", "effect", "needs_approval"}
    assert (state["token_limit"], state["has_keys"]) == (9_000, False)


def test_find_then_plan_runs_several_rounds_with_no_key(browser: Browser) -> None:
    conversation = browser.create()
    events_seen = browser.ask(conversation, QUESTION)
    started = [event.data["call"]["tool_name"] for event in events_seen if event.name == "ToolCallStarted"]
    assert started == ["search_web", "create_plan"]
    assert events_seen[-1].data["reason"] == "answered"
    shown = browser.show(conversation)
    assert shown["info"]["title"] == QUESTION
    assert not shown["running"]
    assert not shown["unfinished"]
    assert shown["pending"] == []
    assert 0 < shown["tokens"] < shown["token_limit"] == 9_000
    assert shown["usage"]["prompt_tokens"] > 0
    assert [(entry["kind"], entry["turn"], entry["round"]) for entry in shown["entries"]] == [
        ("model_input", 1, 0),
        ("model_output", 1, 1),
        ("tool_call_started", 1, 1),
        ("tool_call_results", 1, 1),
        ("model_output", 1, 2),
        ("tool_call_started", 1, 2),
        ("tool_call_results", 1, 2),
        ("model_output", 1, 3),
    ]
    timeline = browser.api("GET", f"/conversations/{conversation}/timeline")
    assert [(one["turn"], one["number"], one["calls"]) for one in timeline["rounds"]] == [
        (1, 0, []),
        (1, 1, ["search_web"]),
        (1, 2, ["create_plan"]),
        (1, 3, []),
    ]
    rows = timeline["entries"]
    assert [row["sequence_number"] for row in rows] == list(range(1, 9))
    assert rows[0]["excerpt"] == QUESTION
    assert rows[0]["tokens"] > 0
    assert rows[2]["excerpt"].startswith("Searching “")  # a call by what it does, not by its id
    assert rows[5]["excerpt"].startswith("create_plan ")


@pytest.mark.parametrize("at", range(9))
def test_every_moment_is_rendered_as_each_provider_would_be_sent_it(browser: Browser, at: int) -> None:
    conversation = _planned(browser)
    got = browser.api("GET", f"/conversations/{conversation}/rendered?at={at}")
    assert got["at"] == at
    assert list(got["formats"]) == list(FORMATS)
    for name, view in got["formats"].items():
        broken = [one for one in formats[name].check_request(view["body"]) if not one.advisory]
        assert [one for one in view["violations"] if not one["advisory"]] == msgspec.to_builtins(broken)
        if at:  # no provider accepts an empty request
            assert broken == []
        assert view["bytes"] >= len(msgspec.json.encode(view["body"])) * 0.8
        assert view["model"]
        for loss in view["losses"]:
            assert set(loss) == {"path", "what", "why"}
        # A call without a result at that moment is given one, and that is reported.
        assert [one["kind"] for one in view["repairs"]] == (["synthesised"] if at in (2, 3, 5, 6) else [])


_MADE: dict[int, str] = {}


def _planned(browser: Browser) -> str:
    if browser.port not in _MADE:
        _MADE[browser.port] = browser.create()
        browser.ask(_MADE[browser.port], QUESTION)
    return _MADE[browser.port]


@pytest.mark.parametrize("path", ["/conversations", "/conversations/{}"])
def test_a_title_must_be_text(tmp_path: Path, path: str) -> None:
    with served(tmp_path / "chats.db") as browser:
        conversation = browser.create(title="Rain")
        method = "POST" if path == "/conversations" else "PATCH"
        got = browser.request(
            method, f"/chat/api{path.format(conversation)}", b'{"title": "rain \\ud83c in Oslo, and snow"}'
        )
        assert (got.status, got.json["error"]["code"]) == (400, "invalid")
        assert [one["title"] for one in browser.api("GET", "/conversations")["conversations"]] == ["Rain"]


def test_conversations_are_listed_in_pages_and_found_by_text(tmp_path: Path) -> None:
    with served(tmp_path / "chats.db") as browser:
        made = [browser.create(title=f"number {number}") for number in range(5)]
        browser.ask(made[2], "Where do the storks nest in winter?")
        browser.ask(made[2], "And the storks of the city?")
        page = browser.api("GET", "/conversations?limit=2&offset=1")
        assert page["total"] == 5
        assert [one["id"] for one in page["conversations"]] == [made[4], made[3]]
        assert set(page["conversations"][0]) >= {"id", "title", "created", "updated", "version", "parent", "forked_at"}
        (found,) = browser.api("GET", "/conversations?query=storks+winter")["conversations"]
        assert (found["id"], found["sequence_number"]) == (made[2], 1)
        assert "storks" in found["excerpt"]
        assert browser.api("GET", "/conversations?query=storks")["total"] == 1, "one row a conversation"
        assert browser.api("GET", "/conversations?query=%22%28%2A")["conversations"] == []
        for wrong in ("limit=-1", "limit=x", "limit=201", "offset=1e9"):
            assert browser.api("GET", f"/conversations?{wrong}", status=400)["error"]["code"] == "invalid"


def test_titles_come_from_the_first_message_until_one_is_given(browser: Browser) -> None:
    conversation = browser.create()
    browser.ask(conversation, "  What is\n the capital of Norway? " + "And why? " * 20)
    title = browser.show(conversation)["info"]["title"]
    assert title.startswith("What is the capital of Norway? And why?")
    assert title.endswith("…")
    changed = browser.api("PATCH", f"/conversations/{conversation}", {"title": " <b>Oslo</b>\n"})
    assert changed["info"]["title"] == "<b>Oslo</b>", "data, whatever it looks like"


def test_the_system_instruction_and_the_notebook_are_entries(browser: Browser) -> None:
    conversation = browser.create()
    change = {"system": "Be brief.", "memory": "They like storks."}
    for _ in range(2):  # the second changes nothing
        changed = browser.api("PATCH", f"/conversations/{conversation}", change)
        assert (changed["system"], changed["memory"]) == ("Be brief.", "They like storks.")
    kinds = [entry["kind"] for entry in browser.show(conversation)["entries"]]
    assert kinds == ["set_system_instruction", "set_memory_notebook"]
    long = {"memory": "x" * 200_001}
    assert browser.api("PATCH", f"/conversations/{conversation}", long, status=413)


def test_a_model_is_switched_in_mid_thread_and_stays_so(tmp_path: Path) -> None:
    def talking() -> Any:
        return models(ap.ScriptedModel("From one.", name="one"), ap.ScriptedModel("From two.", "Again.", name="two"))

    with served(tmp_path / "chats.db", talking()) as browser:
        conversation = browser.create()
        assert text(browser.ask(conversation, "Who are you?")) == "From one."
        assert browser.show(conversation)["model"] == "one"
        events_seen = browser.ask(conversation, "And you?", model="two")
        assert text(events_seen) == "From two."
        (switched,) = [event.data for event in events_seen if event.name == "ModelSwitched"]
        assert (switched["before"], switched["after"]) == ("one/one", "two/two")
        wrong = browser.api("PATCH", f"/conversations/{conversation}", {"model": "tow"}, status=400)
        assert "Did you mean two" in wrong["error"]["message"]
    with served(tmp_path / "chats.db", talking()) as browser:
        assert browser.show(conversation)["model"] == "two", "also after a restart"
        assert browser.api("PATCH", f"/conversations/{conversation}", {"model": "one"})["model"] == "one"
        assert text(browser.ask(conversation, "Once more?")) == "From one."
        assert browser.create(model="two") != conversation


def test_a_fork_begins_like_its_parent_and_goes_its_own_way(browser: Browser) -> None:
    conversation = browser.create()
    browser.ask(conversation, "one")
    browser.ask(conversation, "two")
    fork = browser.api("POST", f"/conversations/{conversation}/fork", {"at": 2}, status=201)["id"]
    shown = browser.show(fork)
    assert (shown["info"]["parent"], shown["info"]["forked_at"], shown["version"]) == (conversation, 2, 2)
    browser.ask(fork, "another two")
    assert browser.show(conversation)["version"] == 4
    assert [entry["turn"] for entry in browser.show(fork)["entries"]] == [1, 1, 2, 2]
    for wrong in ({"at": 99}, {"at": -1}, {}, {"at": "2"}):
        assert browser.api("POST", f"/conversations/{conversation}/fork", wrong, status=400)


def test_entries_are_fetched_from_a_sequence_number(browser: Browser) -> None:
    conversation = browser.create()
    browser.ask(conversation, "one")
    browser.ask(conversation, "two")
    whole = browser.show(conversation)
    for after in (0, 3, 4, 99):
        rest = browser.api("GET", f"/conversations/{conversation}?after={after}")
        assert rest == {**whole, "entries": whole["entries"][after:], "watchers": rest["watchers"]}
    assert browser.api("GET", f"/conversations/{conversation}?after=x", status=400)


def test_a_rollback_is_an_entry_and_what_it_hides_is_marked(browser: Browser) -> None:
    conversation = browser.create()
    browser.ask(conversation, "one")
    browser.ask(conversation, "two")
    start = browser.show(conversation)["last_event"]
    assert browser.api("POST", f"/conversations/{conversation}/rollback", {"to": 2}) == {"version": 5}
    with browser.events(conversation, start) as events:
        assert next(events).data["entry"]["kind"] == "rollback"
    entries = browser.show(conversation)["entries"]
    assert [entry["effective"] for entry in entries] == [True, True, False, False, False]
    browser.ask(conversation, "another two")
    entries = browser.show(conversation)["entries"]
    assert [(entry["turn"], entry["effective"]) for entry in entries[-2:]] == [(2, True), (2, True)]
    assert browser.api("POST", f"/conversations/{conversation}/rollback", {"to": 99}, status=400)


def test_a_summary_replaces_the_turns_before_the_last(tmp_path: Path) -> None:
    model = ap.ScriptedModel("Rain.", "Seven degrees.", "They asked about rain in Oslo.", name="wise")
    with served(tmp_path / "chats.db", model) as browser:
        conversation = browser.create()
        nothing = browser.api("POST", f"/conversations/{conversation}/compact", {}, status=400)
        assert "nothing to summarise" in nothing["error"]["message"]
        browser.ask(conversation, "What weather in Oslo?")
        browser.ask(conversation, "How cold?")
        done = browser.api("POST", f"/conversations/{conversation}/compact", {})
        assert (done["summary"], done["up_to"]) == ("They asked about rain in Oslo.", 2)
        asked = model.calls[-1].context
        assert "What weather in Oslo?" in str(asked)
        assert "How cold?" not in str(asked), "the last turn is kept as it is"
        assert browser.show(conversation)["entries"][-1]["kind"] == "compaction"
        body = browser.api("GET", f"/conversations/{conversation}/rendered")["formats"]["anthropic"]["body"]
        assert "They asked about rain in Oslo." in str(body)
        assert browser.api("POST", f"/conversations/{conversation}/compact", {}, status=400), "there is nothing new"


def test_the_offline_model_writes_no_summary(browser: Browser) -> None:
    conversation = browser.create()
    browser.ask(conversation, "hello there")
    browser.ask(conversation, "and goodbye")
    refused = browser.api("POST", f"/conversations/{conversation}/compact", {}, status=400)
    assert "the offline model writes no summaries" in refused["error"]["message"]


def test_an_export_can_be_imported_again(browser: Browser, tmp_path: Path) -> None:
    conversation = browser.create(title="to go")
    browser.ask(conversation, "hello")
    got = browser.get(f"/chat/api/conversations/{conversation}/export")
    assert got.headers["content-disposition"] == f'attachment; filename="antiphon-{conversation}.jsonl"'
    assert len(list(read_export(got.body.splitlines(), "the export"))) == 3
    with SqliteStore(tmp_path / "other.db") as store:
        assert store.import_lines(got.body.splitlines()).title == "to go"


def test_plans_are_ticked_and_edited_by_hand(tmp_path: Path) -> None:
    with served(tmp_path / "chats.db", with_builtin=True) as browser:
        browser.ask(browser.create(), QUESTION)
        (plan,) = browser.api("GET", "/plans")["plans"]
        first, second = plan["tasks"][:2]
        change = {
            "title": "My <i>plan</i>",
            "task_updates": [{"id": first["id"], "done": True}],
            "add_tasks": ["Rest", {"title": "Celebrate", "due": "2027-01-01"}],
            "remove_tasks": [second["id"]],
            "version": plan["version"],
        }
        changed = browser.api("PATCH", f"/plans/{plan['id']}", change)["plan"]
        assert (changed["title"], changed["version"]) == ("My <i>plan</i>", plan["version"] + 1)
        assert changed["tasks"][0]["done"]
        assert [task["title"] for task in changed["tasks"]][-2:] == ["Rest", "Celebrate"]
        assert browser.api("GET", f"/plans/{plan['id']}")["plan"] == changed
        stale = browser.api("PATCH", f"/plans/{plan['id']}", change, status=409)
        assert stale["error"]["code"] == "plan_changed"
        refused: list[dict[str, Any]] = [
            {"task_updates": [{"id": "t99", "done": True}]},
            {"status": "odd"},
            {"tasks": []},
        ]
        for wrong in (*refused, {}):
            assert browser.api("PATCH", f"/plans/{plan['id']}", wrong, status=400)
        browser.api("DELETE", f"/plans/{plan['id']}")
        assert browser.api("GET", f"/plans/{plan['id']}", status=404)["error"]["code"] == "unknown_plan"


def test_owners_do_not_see_each_others_plans_and_messages(tmp_path: Path) -> None:
    keys = [ClientKeySettings(name=name, key=hash_key(f"sk-{name}")) for name in ("ada", "../ben")]
    with served(tmp_path / "chats.db", with_builtin=True, keys=keys) as browser:
        ada, ben = Browser(browser.port, "sk-ada"), Browser(browser.port, "sk-../ben")
        hers = ada.create()
        ada.ask(hers, QUESTION)
        assert len(ada.api("GET", "/plans")["plans"]) == 1
        assert ben.api("GET", "/plans")["plans"] == []
        taken = {"content": [{"type": "part", "conversation": hers, "entry": 1, "part": 0}]}
        assert ben.api("POST", f"/conversations/{ben.create()}/turns", taken, status=404)
    assert not (tmp_path.parent / "ben.db").exists()


def test_an_import_is_its_owners_and_has_no_tags_of_the_file(tmp_path: Path) -> None:
    keys = [ClientKeySettings(name=name, key=hash_key(f"sk-{name}")) for name in ("ada", "ben")]
    with served(tmp_path / "chats.db", keys=keys) as browser:
        ada, ben = Browser(browser.port, "sk-ada"), Browser(browser.port, "sk-ben")
        hers = ada.create(title="Secrets")
        ada.api("PATCH", f"/conversations/{hers}", {"pinned": True})
        exported = ada.get(f"/chat/api/conversations/{hers}/export").body.decode()
        taken = ben.api("POST", "/imports", {"name": "talk.jsonl", "text": exported}, status=201)["id"]
        assert taken != hers
        assert ben.show(taken)["info"]["title"] == "Secrets"
        assert ada.api("GET", f"/conversations/{taken}", status=404)
        assert "pinned" not in ben.api("GET", "/conversations")
        for text in ("", "{}", "[]", "[1]", "[" * 5_000 + "]" * 5_000, '{"antiphon": "conversation"}', exported[:40]):
            assert ben.api("POST", "/imports", {"name": "talk.jsonl", "text": text}, status=400)["error"]["message"]


def test_pictures_and_files_reach_the_model(tmp_path: Path) -> None:
    model = ap.ScriptedModel("Seen.", name="seeing")
    large = PNG + bytes(60_000)
    content = [
        {"type": "text", "text": "What is this?"},
        {"type": "image", "media_type": "image/png", "data": base64(PNG)},
        {"type": "image", "media_type": "image/png", "data": base64(large)},
        {"type": "document", "media_type": "application/pdf", "data": base64(b"%PDF-1.7 x"), "name": "a.pdf"},
        {"type": "document", "media_type": "text/markdown", "data": base64("# Störche".encode()), "name": "b.md"},
    ]
    with served(tmp_path / "chats.db", model) as browser:
        conversation = browser.create()
        before = browser.show(conversation)["last_event"]
        browser.api("POST", f"/conversations/{conversation}/turns", {"content": content}, status=202)
        with browser.events(conversation, before) as events:
            while next(events).name != "LoopFinished":
                pass
        seen = model.calls[0].context[-1].content
        assert seen[1] == ap.Image(media_type="image/png", data=base64(PNG))
        assert seen[2] == ap.Image(media_type="image/png", data=base64(large)), "whole, for the model"
        assert seen[3] == ap.Document(media_type="application/pdf", data=base64(b"%PDF-1.7 x"), name="a.pdf")
        assert seen[4] == ap.Document(media_type="text/plain", text="# Störche", name="b.md")
        content = browser.show(conversation)["entries"][0]["content"]
        assert content[1]["data"] == base64(PNG)
        assert content[2]["data"].startswith("sha256:"), "large ones by reference"
        got = browser.get(f"/chat/api/conversations/{conversation}/media/{content[2]['data']}")
        assert (got.status, got.headers["content-type"], got.body) == (200, "image/png", large)
        assert browser.get(f"/chat/api/conversations/{conversation}/media/sha256:{'0' * 64}").status == 404
        fork = browser.api("POST", f"/conversations/{conversation}/fork", {"at": 0}, status=201)["id"]
        parts = [{"type": "part", "conversation": conversation, "entry": 1, "part": part} for part in range(1, 5)]
        turn = {"content": [{"type": "text", "text": "And this?"}, *parts]}
        browser.api("POST", f"/conversations/{fork}/turns", turn, status=202)
        assert browser.show(fork)["entries"][0]["content"][1:] == content[1:], (
            "named by their places, and not sent again"
        )
        for wrong in ({"entry": 0}, {"entry": 9}, {"entry": 2}, {"part": 5}, {"part": -1}):
            got = browser.api("POST", f"/conversations/{fork}/turns", {"content": [{**parts[0], **wrong}]}, status=400)
            assert "has no part" in got["error"]["message"]
        rendered = browser.api("GET", f"/conversations/{conversation}/rendered?at=1")["formats"]["openai-chat"]
        assert rendered["bytes"] > len(base64(large))
        assert len(msgspec.json.encode(rendered["body"])) < 20_000


@pytest.mark.parametrize(
    ("content", "status", "turn"),
    [
        ([], 400, "empty"),
        ([{"type": "text", "text": " \n"}], 400, "empty"),
        ([{"type": "text"}], 400, "text"),
        ([{"type": "video", "data": ""}], 400, "video"),
        ([{"type": "text", "text": "x", "extra": 1}], 400, "extra"),
        ([{"type": "text", "text": "x"}] * (MAX_PARTS + 1), 413, "parts"),
        ([{"type": "text", "text": "x" * (TEXT_CHARACTERS + 1)}], 413, "characters"),
        ([{"type": "image", "media_type": "image/png", "data": "not base64!"}], 400, "base64"),
        ([{"type": "image", "media_type": "image/png", "data": base64(b"<svg onload=x>")}], 415, "PNG"),
        ([{"type": "image", "media_type": "image/svg+xml", "data": base64(b"<svg/>")}], 415, "PNG"),
        ([{"type": "image", "media_type": "image/png", "data": base64(PNG + bytes(IMAGE_BYTES))}], 413, "MiB"),
        ([{"type": "document", "media_type": "application/zip", "data": base64(b"PK\x03\x04\0")}], 415, "PDF"),
        ([{"type": "document", "media_type": "text/plain", "data": base64(b"\xff\xfe\0"), "name": "x"}], 415, "PDF"),
    ],
)
def test_invalid_input_is_refused_with_a_reason_and_not_stored(
    browser: Browser, content: Any, status: int, turn: str
) -> None:
    conversation = browser.create()
    got = browser.api("POST", f"/conversations/{conversation}/turns", {"content": content}, status=status)
    assert turn in got["error"]["message"]
    assert browser.show(conversation)["entries"] == []


def test_a_paste_of_two_megabytes_is_taken(browser: Browser) -> None:
    conversation = browser.create()
    browser.ask(conversation, "long " * 400_000)
    assert len(browser.show(conversation)["entries"][0]["content"][0]["text"]) == 2_000_000


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/nothing", None, 404),
        ("GET", "/conversations/last", None, 404),
        ("GET", "/conversations/%2e%2e", None, 404),
        ("GET", "/conversations/01arz3ndektsv4rrffq69g5fav", None, 404),
        ("GET", "/plans/plan-99", None, 404),
        ("GET", "/plans/..%2f..%2fetc", None, 404),
        ("POST", "/conversations", b"{", 400),
        ("POST", "/conversations", b"[]", 400),
        ("POST", "/conversations", b'{"titel": "x"}', 400),
        ("POST", "/conversations", b'{"title": 1}', 400),
        ("POST", "/conversations", b'{"title": "\xff"}', 400),
        ("POST", "/conversations", b"[" * 100_000, 400),
        ("POST", "/conversations", b'{"model": "nosuch/model"}', 400),
        ("POST", "/state", b"{}", 405),
    ],
)
def test_invalid_requests_get_a_clear_error(
    browser: Browser, method: str, path: str, body: bytes | None, status: int
) -> None:
    error = browser.api(method, path, body, status=status)["error"]
    assert set(error) == {"message", "code"}
    assert "Traceback" not in error["message"]


def test_invalid_unicode_is_refused(browser: Browser) -> None:
    conversation = browser.create()
    body = b'{"content": [{"type": "text", "text": "\\ud800"}]}'
    assert browser.api("POST", f"/conversations/{conversation}/turns", body, status=400)
    assert browser.ask(conversation, "and then?")[-1].data["reason"] == "answered"


def test_a_dead_provider_is_reported_in_the_stream(tmp_path: Path) -> None:
    with served(tmp_path / "chats.db", ap.ScriptedModel(ProviderError("no such key", "authentication"))) as browser:
        events_seen = browser.ask(browser.create(), "hello")
        assert events_seen[-1].data["reason"] == "failed"
        assert events_seen[-1].data["error"]["message"] == "no such key"


def test_a_fault_inside_a_turn_ends_it_with_a_message(tmp_path: Path) -> None:
    with served(tmp_path / "chats.db", ap.ScriptedModel(name="mute")) as browser:
        conversation = browser.create()
        events_seen = browser.ask(conversation, "hello")
        assert events_seen[-1].data["error"]["code"] == "ScriptExhausted"
        assert not browser.show(conversation)["running"]


def test_entries_of_another_process_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    with served(path) as browser:
        conversation = browser.create()
        browser.ask(conversation, "hello")
        with SqliteStore(path) as terminal:
            terminal.open(conversation).set_memory_notebook("from the terminal")
        shown = browser.show(conversation)
        assert (shown["memory"], shown["version"]) == ("from the terminal", 3)
        assert browser.ask(conversation, "and on")[-1].data["reason"] == "answered"
        with SqliteStore(path) as terminal:
            terminal.delete(conversation)
        assert browser.api("GET", f"/conversations/{conversation}", status=404)


def test_markup_in_texts_stays_text_in_json(tmp_path: Path) -> None:
    """Everything from the store goes out as JSON: what looks like a page is a string."""
    evil = "</script><script>alert(1)</script>"

    @ap.tool(effect="read")
    def evil_tool() -> str:
        "Say something evil."
        return evil

    model = ap.ScriptedModel([evil, call("evil_tool")], evil)
    with served(tmp_path / "chats.db", model, tools=[evil_tool]) as browser:
        conversation = browser.create(title=evil)
        browser.ask(conversation, evil)
        for path in ("", "/timeline", "/rendered"):
            got = browser.get(f"/chat/api/conversations/{conversation}{path}")
            assert got.headers["content-type"] == "application/json"
            assert evil in str(got.json)


def test_a_refusal_of_the_server_is_an_error_of_this_api(browser: Browser) -> None:
    packed = {"content-encoding": "gzip"}
    refused = browser.request("POST", "/chat/api/conversations", b"not gzip", packed)
    assert refused.status == 400
    assert refused.json["error"].keys() == {"message", "code"}
    assert "cannot decompress" in refused.json["error"]["message"]
    assert refused.headers["x-content-type-options"] == "nosniff"
