"""The latest changed first: always in exactly that order, and found without looking at the others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from antiphon.history import AgentHistory, DebugLogEntry, HistoryStore, SqliteStore
from support.examples import scaled
from support.store_rows import table

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
SECONDS = st.sampled_from([-300, -59, 0, 1, 30, 50, 59, 60, 61, 90, 119, 121])
"""Some apart by less than a minute, some by more, and not always forwards."""
WHAT = st.sampled_from(["create", "append", "append", "append", "fork", "import"])
DOINGS = st.lists(st.tuples(WHAT, st.integers(0, 3), SECONDS), max_size=25)
IN_ONE_MINUTE = [
    *(("create", 0, 0), ("append", 0, 0)),
    *(("create", 0, 0), ("append", 1, -300), ("append", 1, 30)),
    ("append", 0, 59),
]
"""The first was touched before the second, and changed after it."""
_tags = count()


def doing(store: HistoryStore, made: list[AgentHistory], what: str, which: int, seconds: int, tag: str) -> None:
    if what == "create" or not made:
        made.append(store.create(tags=[tag]))
        return
    history = made[which % len(made)]
    if what == "append":
        history.append(DebugLogEntry("t", "x", timestamp=NOON + timedelta(seconds=seconds)))
    elif what == "fork":
        made.append(history.fork())
    else:
        made.append(store.open(store.import_lines(store.export_lines(history.id), as_new=True).id))


def last_change(store: HistoryStore, history: AgentHistory) -> datetime:
    if not history.version:
        return store.info(history.id).created
    at = history.entries[-1].timestamp
    assert at is not None
    return at


@settings(max_examples=scaled(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(DOINGS, st.integers(0, 4), st.integers(0, 3))
@example(IN_ONE_MINUTE, 1, 0)
@example(IN_ONE_MINUTE, 1, 1)
def test_the_order_is_exact_after_any_operations(
    any_store: HistoryStore, doings: list[tuple[str, int, int]], limit: int, offset: int
) -> None:
    tag, made = f"example {next(_tags)}", list[AgentHistory]()
    for what, which, seconds in doings:
        doing(any_store, made, what, which, seconds, tag)
    order = [
        history.id
        for _, history in sorted(
            enumerate(made), key=lambda one: (last_change(any_store, one[1]), one[0]), reverse=True
        )
    ]
    listed = [info.id for info in any_store.list(tag=tag, limit=limit, offset=offset)]
    assert listed == order[offset : offset + limit]


def test_the_same_without_a_tag(any_store: HistoryStore) -> None:
    made = [any_store.create(str(number)) for number in range(9)]
    for number, seconds in ((3, 0), (5, 59), (1, 61), (7, 300), (3, 400), (5, 350), (0, -100)):
        made[number].append(DebugLogEntry("t", "x", timestamp=NOON + timedelta(days=9_999, seconds=seconds)))
    assert [info.title for info in any_store.list(limit=6)] == ["3", "5", "7", "1", "0", "8"]
    assert any_store.open("last").id == made[3].id


def touched(store: HistoryStore) -> object:
    return table(store, "SELECT touched FROM conversations")


def test_an_append_within_the_minute_writes_its_row_alone(any_store: HistoryStore) -> None:
    history = any_store.create()

    def appended(seconds: float) -> bool:
        """Whether the conversation's row was written."""
        before = touched(any_store)
        history.append(DebugLogEntry("t", "x", timestamp=NOON + timedelta(seconds=seconds)))
        return touched(any_store) != before

    assert [appended(at) for at in (0, 0, 1, 59, 60, 60.000001, 61, 120, 59, 59)] == [
        True,
        False,
        False,
        False,
        False,
        True,
        False,
        False,
        True,
        False,
    ]
    assert any_store.open(history.id).entries == history.entries


@pytest.mark.parametrize("tag", [None, "rare"])
def test_the_index_is_used(store: SqliteStore, tag: str | None) -> None:
    """Of a thousand conversations, those on the page and of the minute before are looked at."""
    lines = list(store.export_lines(store.create(tags=["rare"]).id))
    head = msgspec.json.decode(lines[0])
    for number in range(1_000):
        head["created"] = NOON + timedelta(hours=number)
        store.import_lines([msgspec.json.encode(head)], as_new=True)
    looked_at: list[int] = []
    with store._file.reading() as db:
        db.set_progress_handler(lambda: looked_at.append(1), 100)  # after so many steps of SQLite's machine
        assert len(store.list(limit=5, tag=tag)) == 5
        db.set_progress_handler(None, 0)
    assert len(looked_at) < 20
