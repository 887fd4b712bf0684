"""What is stored is counted by client and in all, in files of the version before too; above the limit there is an error."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from antiphon.parts import Text
from antiphon.wire.output import ModelOutput
from antiphon.wire.request import Message, ModelRequest
from antiphon_gateway.state.answers import NO_EVENTS, AnswerStore, StoredAnswer
from antiphon_gateway.state.conversations import ConversationStore
from antiphon_gateway.state.file import StateFile, StateLimitReached
from gateway.rig import FAST, rig
from gateway.state.stores import WritingStore, answer_store

LIMIT: dict[str, Any] = {"max_bytes": 200_000, "is_shared": lambda: True}
_CONTENT = {
    "answers": ("owner", "input", "output", "body", "request"),
    "answer_events": ("(SELECT owner FROM answers a WHERE a.number = answer)", "event"),
    "conversation_items": ("(SELECT owner FROM conversations c WHERE c.number = conversation)", "item"),
}


def store(state: WritingStore, name: str, size: int, owner: str = "a") -> None:
    request = ModelRequest(messages=(Message("user", (Text("x" * size),)),))
    state.store(name, request, ModelOutput(parts=(Text("yes"),)), owner=owner)


def is_known(state: WritingStore, name: str, owner: str = "a") -> bool:
    return state.find(name, owner) is not None


def counted(db: Any) -> dict[str, int]:
    return {owner: size for owner, size in db.execute("SELECT owner, bytes FROM stored_bytes") if size}


def counted_again(db: Any) -> dict[str, int]:
    """The same from the rows themselves."""
    sizes: dict[str, int] = {}
    for table, (owner, *columns) in _CONTENT.items():
        lengths = " + ".join(f"coalesce(length({column}), 0)" for column in columns)
        for name, size in db.execute(f"SELECT {owner}, 256 + {lengths} FROM {table}"):
            sizes[name] = sizes.get(name, 0) + size
    return sizes


def fill(state: WritingStore) -> None:
    """Rows of every kind, some of them replaced, changed and deleted."""
    conversations = ConversationStore(state.file)
    for number, owner in enumerate("aab"):
        store(state, f"r{number}", 1000, owner)
    store(state, "r0", 3000)  # the same again
    state.delete("r1", owner="a")
    kept, dropped = (
        conversations.create("a", {}, [{"id": "i1", "content": "x" * 500}]),
        conversations.create("b", {}, ["x"]),
    )
    conversations.add(kept.id, "a", [{"id": "i1", "content": "y" * 700}, {"id": "i2", "content": "z"}])
    conversations.delete_item(kept.id, "a", "i2")
    conversations.delete(dropped.id, "b")
    for name in ("u1", "u2", "u3"):
        state.begin(name, "b", b"queued", b"x" * 400)
        state.share(name, "b", (0, [b"one", b"two"]))
    state.finish("u1", "b", b"cancelled", (2, [b"three"]))
    state.delete("u2", "b")
    store(state, "u3", 700, "b")
    state.write_remembered({("b", "up"): StoredAnswer("up", "upstream", provider="p")})


@pytest.mark.parametrize("place", ["memory", "file"])
def test_every_row_is_counted(tmp_path: Path, place: str) -> None:
    with answer_store("" if place == "memory" else tmp_path / "state.db") as state:
        fill(state)
        with state.file.reading() as db:
            assert counted(db) == counted_again(db)
            assert set(counted(db)) == {"a", "b"}


def test_rows_of_the_version_before_are_counted_when_the_file_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with closing(sqlite3.connect(path)) as old, old:
        old.executescript((Path(__file__).parent / "older_state.sql").read_text())
    with answer_store(path, clock=lambda: 1_000_000.0) as state:
        fill(state)
        with state.file.reading() as db:
            assert counted(db) == counted_again(db)
            assert set(counted(db)) == {"a", "b", "ann", "bob"}


def test_old_answers_make_room_and_one_client_has_half() -> None:
    with answer_store(**LIMIT) as state:
        for name in ("first", "second", "third"):
            store(state, name, 40_000)
        store(state, "of another", 40_000, "b")
        assert [is_known(state, name) for name in ("first", "second", "third")] == [False, True, True]
        assert is_known(state, "of another", "b")
        with pytest.raises(StateLimitReached, match=r"100,000 \(gateway.state_bytes\)"):
            store(state, "too large", 120_000)
        assert is_known(state, "third"), "nothing was deleted for what was not stored"


def test_an_answer_whose_process_died_makes_room() -> None:
    now = [1000.0]
    with answer_store(**LIMIT, clock=lambda: now[0]) as state:
        state.begin("died", "a", b"", b"x" * 60_000)
        with pytest.raises(StateLimitReached, match="of this client"):
            state.begin("next", "a", b"", b"x" * 60_000)
        now[0] += 11
        state.begin("next", "a", b"", b"x" * 60_000)
        assert (is_known(state, "died"), is_known(state, "next")) == (False, True)


def test_storing_reads_no_other_answers(tmp_path: Path) -> None:
    """The status of a row comes after its content: to store took longer with every byte that was stored before."""
    with answer_store(tmp_path / "state.db", **LIMIT) as state:
        statements: list[str] = []
        with state.file.transaction() as db:
            db.set_trace_callback(statements.append)
        fill(state)
        with state.file.transaction() as db:
            db.set_trace_callback(None)
            scans = [
                (statement, step)
                for statement in statements
                if statement.startswith(("SELECT", "UPDATE", "DELETE", "INSERT"))
                for *_, step in db.execute(f"EXPLAIN QUERY PLAN {statement}")
                if step.startswith("SCAN answers")
            ]
    assert scans, "they are counted"
    assert [scan for scan in scans if "count(*)" not in scan[0] or "INDEX" not in scan[1]] == []


def test_a_sign_of_life_does_not_write_the_request_again(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with answer_store(path) as state:
        state.begin("a1", "owner", b"{}", b"x" * 2_000_000)
        with closing(sqlite3.connect(path)) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        for _ in range(3):
            state.share("a1", "owner", NO_EVENTS)
        assert Path(f"{path}-wal").stat().st_size < 200_000


def test_conversations_and_background_answers_are_refused_above_the_limit() -> None:
    file = StateFile(**LIMIT)
    conversations = ConversationStore(file)
    made = conversations.create("a", {}, [{"content": "x" * 60_000}])
    with pytest.raises(StateLimitReached, match="of this client"):
        conversations.add(made.id, "a", [{"content": "x" * 60_000}])
    assert len(conversations.items(made.id, "a")) == 1
    with pytest.raises(StateLimitReached):
        AnswerStore(file).begin("u", "a", b"", b"x" * 60_000)
    for owner in "bc":
        conversations.create(owner, {}, [{"content": "x" * (60_000 if owner == "b" else 10_000)}])
    with pytest.raises(StateLimitReached, match="of all clients"):
        conversations.create("d", {}, [{"content": "x" * 80_000}])


def test_items_above_the_limit_get_413() -> None:
    with rig(structs.replace(FAST, state_bytes=100_000)) as gateway, gateway.client() as client:
        items = {"items": [{"role": "user", "content": "x" * 60_000}]}
        made = client.post("/v1/conversations", items)
        assert made.status == 200
        path = f"/v1/conversations/{made.json['id']}"
        refused = client.post(f"{path}/items", items)
        assert refused.status == 413
        assert "gateway.state_bytes" in refused.error("openai-responses").message
        assert client.request("DELETE", path).status == 200
        assert client.post("/v1/conversations", items).status == 200
