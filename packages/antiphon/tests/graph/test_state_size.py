"""What a checkpointer is given: of ours the same for every step, of messages in the state the more the longer they are."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph

from antiphon.graph import ConversationState, LLMNode
from antiphon.providers.scripted import FunctionModel
from graph.rig import chats_in, thread

STEPS = 200
WORDS = "It rains in Oslo, and it will go on raining. " * 45  # about 2 KiB, so 400 KiB in all


def checkpoint_bytes(db: sqlite3.Connection, first_steps: int = 10**9) -> int:
    """What the checkpoints of the first steps take, with what was written for them."""
    kept = db.execute("SELECT checkpoint_id FROM checkpoints ORDER BY checkpoint_id LIMIT ?", (first_steps,)).fetchall()
    total = 0
    for (checkpoint,) in kept:
        for table, columns in (("checkpoints", "length(checkpoint) + length(metadata)"), ("writes", "length(value)")):
            (size,) = db.execute(
                f"SELECT coalesce(sum({columns}), 0) FROM {table} WHERE checkpoint_id = ?", (checkpoint,)
            ).fetchone()
            total += size
    return total


def run(graph: Any, given: Any) -> None:
    graph.invoke(given, {**thread(), "recursion_limit": STEPS + 5}, durability="sync")


def in_a_row(state: type, node: Any, saver: SqliteSaver) -> Any:
    """A graph that leads back to one node until it was there often enough."""
    builder: Any = StateGraph(state)
    builder.add_node("llm", node)
    builder.add_edge(START, "llm")
    builder.add_conditional_edges(
        "llm", lambda _, config: config["metadata"]["langgraph_step"] < STEPS, {True: "llm", False: "__end__"}
    )
    return builder.compile(checkpointer=saver)


@pytest.mark.slow
def test_checkpoint_size_over_200_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = FunctionModel(lambda context, options: WORDS, chunk_size=None)
    sizes: dict[str, tuple[int, int]] = {}
    with chats_in(tmp_path, model, max_hand_offs=STEPS) as chats:
        with closing(sqlite3.connect(tmp_path / "ours.db", check_same_thread=False)) as db, db:
            run(chats.bind(in_a_row(ConversationState, LLMNode(chats), SqliteSaver(db))), chats.ask("Is it raining?"))
            sizes["ours"] = checkpoint_bytes(db, STEPS // 2), checkpoint_bytes(db)
        db.close()
    with closing(sqlite3.connect(tmp_path / "theirs.db", check_same_thread=False)) as db, db:
        answer = {"messages": [("ai", WORDS)]}
        run(in_a_row(MessagesState, lambda _: answer, SqliteSaver(db)), {"messages": [("user", "Is it raining?")]})
        sizes["theirs"] = checkpoint_bytes(db, STEPS // 2), checkpoint_bytes(db)
    db.close()
    (half, whole), (their_half, their_whole) = sizes["ours"], sizes["theirs"]
    assert whole < 2.1 * half, "linear: the second half costs what the first does"
    assert whole < STEPS * 2_000, "with a small constant"
    assert their_whole > 3.5 * their_half, "quadratic"
    with capsys.disabled():
        print(
            f"\n  {STEPS} steps, {STEPS * len(WORDS) // 1024} KiB of text: checkpoints {whole / 1024:,.0f} KiB "
            f"({whole // STEPS} bytes a step), with messages in the state {their_whole / 1024:,.0f} KiB ",
            end="",
        )


def test_checkpoint_size_is_constant(tmp_path: Path) -> None:
    model = FunctionModel(lambda context, options: WORDS, chunk_size=None)
    with chats_in(tmp_path, model) as chats, sqlite3.connect(tmp_path / "graph.db", check_same_thread=False) as db:
        builder = StateGraph(ConversationState)
        builder.add_node("llm", LLMNode(chats))
        builder.add_edge(START, "llm")
        graph: Any = chats.bind(builder.compile(checkpointer=SqliteSaver(db)))
        state: Any = None
        sizes = []
        for number in range(12):
            state = graph.invoke(chats.ask(f"Question {number}? {WORDS}", state=state), thread(), durability="sync")
            sizes.append(checkpoint_bytes(db))
        steps = [after - before for before, after in pairwise(sizes)]
        assert max(steps) < 1.05 * min(steps)
        written = b"".join(file.read_bytes() for file in tmp_path.glob("graph.db*"))
        assert len(written) > 10_000
        assert WORDS[:40].encode() not in written, "the checkpointer holds no text"
    db.close()
