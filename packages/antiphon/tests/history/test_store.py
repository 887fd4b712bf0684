"""Every store: conversations that are listed, found, forked, deleted, exported and brought back."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from antiphon.errors import (
    ConversationExists,
    ImportFormatError,
    InvalidEntry,
    RunStateError,
    SequenceError,
    StoreError,
    UnknownConversation,
    UnknownRun,
    WriterConflict,
)
from antiphon.history import (
    AgentHistory,
    DebugLogEntry,
    HistoryEntry,
    HistoryStore,
    ModelInputEntry,
    ModelOutputEntry,
    SqliteStore,
    ToolCallResultsEntry,
)
from antiphon.ids import is_id, new_id
from antiphon.parts import Document, Image, Text, ToolCallRequest, ToolCallResult
from support.examples import scaled
from support.history_strategies import conversations
from support.store_rows import rows, table

CALL = ToolCallRequest("weather", "call_1", '{"city": "Oslo"}')


@pytest.fixture
def store(any_store: HistoryStore) -> HistoryStore:
    return any_store


def talk(store: HistoryStore, *texts: str, title: str = "", tags: Sequence[str] = ()) -> AgentHistory:
    history = store.create(title, tags=tags)
    for text in texts:
        history.append(ModelInputEntry.of(text))
    return history


def test_ids_are_ordered_by_time() -> None:
    ids = [new_id() for _ in range(1_000)]
    assert ids == sorted(ids)
    assert len(set(ids)) == 1_000
    assert all(map(is_id, ids))
    time.sleep(0.002)
    assert new_id() > ids[-1]


@settings(max_examples=scaled(10), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(conversations)
def test_appended_entries_are_there_when_the_store_is_opened_again(
    store: HistoryStore, appended: list[HistoryEntry]
) -> None:
    history = store.create()
    for entry in appended:
        history.append(entry)
    assert store.open(history.id).entries == history.entries


def test_a_history_of_a_store_knows_its_id_and_another_one_does_not(store: HistoryStore) -> None:
    history = store.create("Rain")
    assert is_id(history.id)
    assert AgentHistory().id == ""
    assert repr(history) == f"<AgentHistory {history.id} at version 0>"


def test_the_latest_changed_comes_first_page_by_page(store: HistoryStore) -> None:
    made = [talk(store, f"talk {number}", tags=["odd"] if number % 2 else []) for number in range(7)]
    made[2].append(ModelInputEntry.of("once more"))
    order = [made[i].id for i in (2, 6, 5, 4, 3, 1, 0)]
    assert [info.id for info in store.list()] == order
    assert [info.id for info in store.list(limit=3, offset=2)] == order[2:5]
    assert [info.id for info in store.list(tag="odd")] == [made[i].id for i in (5, 3, 1)]
    assert (store.count(), store.count(tag="odd"), store.count(tag="even")) == (7, 3, 0)
    assert store.list(limit=0) == []


def test_a_conversation_without_a_title_is_named_by_its_first_message(store: HistoryStore) -> None:
    history = store.create()
    assert store.info(history.id).title == ""
    history.set_system_instruction("Be kind.")
    history.append(ModelInputEntry.of("Is it\n raining   in Oslo? " + "Tell me everything. " * 9))
    title = store.info(history.id).title
    assert title.startswith("Is it raining in Oslo? Tell me")
    assert title.endswith("…")
    assert len(title) == 60
    info = store.describe(history.id, title="Weather", tags=["rain", "北欧"])
    assert (info.title, info.tags) == ("Weather", ("rain", "北欧"))


def test_ids_can_be_cut_short_as_long_as_one_fits(store: HistoryStore) -> None:
    first, second = talk(store, "a"), talk(store, "b")
    assert store.open(first.id[-8:]).id == first.id
    assert store.open("last").id == second.id
    with pytest.raises(UnknownConversation, match="several"):
        store.open(first.id[:6])
    with pytest.raises(UnknownConversation, match="no conversation 'nope'"):
        store.open("nope")
    with pytest.raises(UnknownConversation):
        store.open("")
    for history in (first, second):
        store.delete(history.id)
    with pytest.raises(UnknownConversation):
        store.open("last")


def test_search_finds_text_in_chinese_and_english(store: HistoryStore) -> None:
    history = talk(store, "今天奥斯陆下雨吗？", "Is it raining in Oslo or in Ålesund?")
    history.append(ModelOutputEntry.of("Let me look.", CALL))
    history.append(ToolCallResultsEntry((ToolCallResult.of(CALL, "Heavy rain, ＧＰＴ模型 says"),)))
    other = talk(store, "明天呢，𠀀𠀁")
    found = {
        "下雨": [1],
        "雨": [1],
        "今天 下雨": [1],
        "奥斯陆下雨吗": [1],
        "下奥": [],
        "oslo": [3, 2],
        "OSLO raining": [2],
        '"raining in"': [2],
        '"in raining"': [],
        "alesund": [2],
        "gpt模型": [4],
        "weather": [3],
        "nothing of the kind": [],
        "𠀀𠀁": [1],
        "'; DROP TABLE entries; --": [],
        '"': [],
        "AND OR NOT": [],
        "*": [],
        "": [],
    }
    assert {query: [hit.sequence_number for hit in store.search(query)] for query in found} == found
    (hit,) = store.search("明天")
    assert hit.conversation.id == other.id
    assert hit.kind == "model_input"
    assert "明天" in hit.excerpt
    assert len(store.search("in", limit=1)) == 1


def test_search_in_conversations_with_a_tag(store: HistoryStore) -> None:
    """The limit counts hits with the tag: those of others take no room."""
    own = store.create(tags=["owner:ada", "x"])
    own.append(ModelInputEntry.of("a tree"))
    for number in range(12):
        other = store.create(tags=["owner:ben"] if number % 2 else [])
        other.append(ModelInputEntry.of("tree tree tree"))
    assert [hit.conversation.id for hit in store.search("tree", limit=2, tag="owner:ada")] == [own.id]
    assert len(store.search("tree", limit=100, tag="owner:ben")) == 6
    assert len(store.search("tree", limit=100)) == 13
    assert store.search("tree", tag="owner:") == []
    assert store.search("tree", tag="") == []


def test_search_sees_what_was_appended_since_and_not_what_was_deleted(store: HistoryStore) -> None:
    history = talk(store, "rain")
    assert len(store.search("rain")) == 1
    history.append(ModelInputEntry.of("more rain"))
    fork = history.fork(1)
    assert len(store.search("rain")) == 3
    store.delete(history.id)
    assert [hit.conversation.id for hit in store.search("rain")] == [fork.id]


def test_an_excerpt_is_around_the_place(store: HistoryStore) -> None:
    talk(store, "x " * 300 + "the needle " + "y " * 300)
    (hit,) = store.search("NEEDLE")
    assert "the needle y" in hit.excerpt
    assert hit.excerpt.startswith("…")
    assert hit.excerpt.endswith("…")
    assert len(hit.excerpt) < 90


def test_a_fork_starts_the_same_and_goes_its_own_way(store: HistoryStore) -> None:
    history = talk(store, "a", "b", "c", title="Plan", tags=["x"])
    fork = history.fork(2)
    fork.append(ModelInputEntry.of("d"))
    history.append(ModelInputEntry.of("e"))
    assert store.open(fork.id).entries[:2] == history.entries[:2]
    assert [len(history), len(fork)] == [4, 3]
    info = store.info(fork.id)
    assert (info.parent, info.forked_at, info.title, info.tags) == (history.id, 2, "Plan", ("x",))
    assert info.updated >= info.created
    store.delete(history.id)
    assert store.open(fork.id).version == 3
    with pytest.raises(SequenceError, match="versions 0 to 3"):
        store.fork(fork.id, 4)


def test_deleting_removes_exactly_one_conversation(store: HistoryStore) -> None:
    kept, gone = talk(store, "kept"), talk(store, "gone", "gone too")
    store.delete(gone.id)
    assert [info.id for info in store.list()] == [kept.id]
    assert rows(store, "entries") == 1
    with pytest.raises(UnknownConversation, match="was deleted"):
        gone.append(ModelInputEntry.of("is anybody there?"))
    new = talk(store)
    with pytest.raises(UnknownConversation):
        gone.append(ModelInputEntry.of("in another's place?"))
    assert store.open(new.id).version == 0


def test_large_media_are_stored_once_and_come_back_whole(store: HistoryStore) -> None:
    large, other, small = "A" * 70_000, "B" * 70_000, "C" * 60_000
    history = store.create()
    history.append(ModelInputEntry.of("look", Image("image/png", large), Image("image/png", small)))
    history.append(ModelOutputEntry.of(CALL))
    history.append(ToolCallResultsEntry((ToolCallResult.of(CALL, Image("image/png", large), Document(data=other)),)))
    assert rows(store, "attachments") == 2
    assert table(store, "SELECT max(length(body)) FROM entries")[0][0] < 61_000
    assert store.open(history.id).entries == history.entries
    fork = history.fork(1)
    store.delete(history.id)
    assert store.open(fork.id).entries == history.entries[:1]
    store.delete(fork.id)
    assert rows(store, "attachments") == rows(store, "attachment_uses") == 0


def test_text_that_looks_like_a_reference_is_text(store: HistoryStore) -> None:
    name = "sha256:" + "0" * 64
    history = talk(store, name, f'"{name}"')
    assert store.open(history.id).entries == history.entries
    with SqliteStore(":memory:") as other:
        other.import_lines(store.export_lines(history.id))
    with pytest.raises(InvalidEntry, match="base64"):
        history.append(ModelInputEntry.of(Image("image/png", name)))


def test_an_export_comes_back_byte_for_byte(store: HistoryStore) -> None:
    history = talk(store, "a\u2028b", "今天\n", title="Tïtle", tags=["x"])
    history.append(ModelInputEntry.of(Image("image/png", "A" * 70_000)))
    history.rollback(1)
    lines = list(store.export_lines(history.fork().id))
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)
    with SqliteStore(":memory:") as other:
        info = other.import_lines(lines)
        assert list(other.export_lines(info.id)) == lines
        assert other.open(info.id).effective == history.effective
        with pytest.raises(ConversationExists, match=info.id):
            other.import_lines(lines)
        copy = other.import_lines(lines, as_new=True)
        assert copy.id != info.id
        assert list(other.export_lines(copy.id))[1:] == lines[1:]
        store.delete(info.id)
        assert store.import_lines(other.export_lines(info.id)) == info
        assert list(store.export_lines(info.id)) == lines
        with pytest.raises(ConversationExists, match=info.id):
            store.import_lines(lines)
        assert store.import_lines(lines, as_new=True).id != info.id


def broken(lines: list[bytes]) -> dict[str, tuple[list[bytes], str]]:
    head, attachment, first, second, third = lines
    newer = msgspec.json.decode(head) | {"schema": 99}
    return {
        "an empty file": ([], "line 1: not an export"),
        "another file": ([b"hello\n"], "line 1: not an export"),
        "no head": ([first, second], "line 1: not an export"),
        "a newer schema": ([msgspec.json.encode(newer), first], "newer Antiphon.*schema 99"),
        "a bad id": ([head.replace(b'"id":"0', b'"id":"!'), first], "not the id of a conversation"),
        "bytes that are not text": ([head, attachment, b'{"kind":"\xa2"}'], "line 3: not an entry"),
        "a head that is not text": ([b'{"antiphon":"\xa2"}'], "line 1: not an export"),
        "a cut line": ([head, attachment, first, second, third[:-9]], "line 5: not an entry"),
        "a lost last line": ([head, attachment, first, second], "promises 3 entries, and it has 2"),
        "a lost line": ([head, attachment, first, third], "line 4: entry 3 is out of sequence; entry 2 belongs here"),
        "a repeated line": ([head, attachment, first, first], "line 4: entry 1 is out of sequence"),
        "a lost attachment": ([head, first, second, third], r"line 4: the entry refers to sha256:"),
        "a damaged attachment": ([head, attachment.replace(b"AAAA", b"AAAB", 1)], "line 2: the attachment is damaged"),
        "a cut attachment": ([head, attachment[:90]], "line 2: not an attachment"),
    }


def test_a_broken_export_is_refused_with_its_line_and_not_imported(store: HistoryStore) -> None:
    history = talk(store, "a", "b")
    history.append(ModelInputEntry.of(Image("image/png", "A" * 70_000)))
    lines = list(store.export_lines(history.id))
    with SqliteStore(":memory:") as other:
        for name, (damaged, complaint) in broken(lines).items():
            with pytest.raises(ImportFormatError, match=complaint) as refusal:
                other.import_lines(damaged, source="talk.jsonl")
            assert str(refusal.value).startswith("talk.jsonl"), name
        assert other.count() == 0
        other.import_lines([*lines[:-1], lines[-1].strip() + b"\r\n", b"\n"])


def test_a_second_writer_is_refused_and_can_continue_from_the_new_version(store: HistoryStore) -> None:
    first = store.create()
    second = store.open(first.id)
    first.append(ModelInputEntry.of("I was faster"))
    with pytest.raises(WriterConflict, match=f"{first.id}: it is at version 1.*refresh"):
        second.append(ModelInputEntry.of("so was I"))
    assert second.version == 0
    (new,) = second.refresh()
    assert new == first.entries[0]
    second.append(ModelInputEntry.of("now me"))
    with pytest.raises(WriterConflict):
        first.append(ModelInputEntry.of("and me"))
    assert first.refresh() == second.entries[1:]
    assert AgentHistory().refresh() == ()


def test_two_threads_on_one_history_conflict(store: HistoryStore) -> None:
    """Both append as fast as they can. What is refused is not written, what is accepted is, and versions stay whole."""
    history = store.create()
    accepted: list[int] = []
    refused: list[WriterConflict] = []

    def append_many() -> None:
        for _ in range(5_000):
            if refused:
                return
            try:
                accepted.append(history.append(DebugLogEntry("t", "x")).sequence_number)
            except WriterConflict as conflict:
                refused.append(conflict)

    threads = [threading.Thread(target=append_many) for _ in range(3)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # else a fast disk ends one append before the next thread runs
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert sorted(accepted) == list(range(1, history.version + 1))
    assert refused
    assert "one writer" in str(refused[0])
    assert store.open(history.id).entries == history.entries


def test_negative_numbers_are_refused_by_name(store: HistoryStore) -> None:
    for call in (lambda: store.list(limit=-1), lambda: store.list(offset=-2), lambda: store.search("x", limit=-3)):
        with pytest.raises(StoreError, match=r"(limit|offset)=-\d: must not be negative"):
            call()


def test_appending_writes_one_row_and_changes_no_other(store: HistoryStore) -> None:
    history = talk(store, "a", "b", "c")
    store.search("a")
    tables = ("entries", "conversations", "said", "attachments", "attachment_uses", "runs")

    def all_rows() -> dict[str, list[tuple[object, ...]]]:
        return {name: table(store, f"SELECT * FROM {name}") for name in tables}

    before = all_rows()
    history.append(ModelInputEntry((Text("d"),)))
    after = all_rows()
    assert after.pop("entries")[:-1] == before.pop("entries")
    assert rows(store, "entries") == 4
    assert after == before


def test_titles_tags_and_queries_may_hold_anything(store: HistoryStore) -> None:
    strange = "a\nb \U0001f642 \u202e '\"%s {}\\"
    history = store.create(strange, tags=[strange, ""])
    info = store.info(history.id)
    assert (info.title, info.tags) == (strange, (strange, ""))
    assert [found.id for found in store.list(tag=strange)] == [history.id]
    assert store.search(strange) == []
    for unknown in (strange, "%", "'" * 8):
        with pytest.raises(UnknownConversation):
            store.open(unknown)


def test_lone_surrogates_are_refused_before_writing(store: HistoryStore) -> None:
    half = "rain \ud83c in Oslo"
    history = store.create("Rain", tags=["x"])
    doings: list[tuple[str, Callable[[], object]]] = [
        ("title", lambda: store.create(half)),
        ("tag", lambda: store.create(tags=["y", half])),
        ("title", lambda: store.describe(history.id, title=half, tags=["z"])),
        ("tag", lambda: store.describe(history.id, title="Snow", tags=[half])),
        ("tag", lambda: store.list(tag=half)),
        ("tag", lambda: store.count(tag=half)),
        ("tag", lambda: store.search("tree", tag=half)),
        ("title", lambda: store.runs.submit(ModelInputEntry.of("Is it?"), kind="chat", title=half)),
    ]
    for name, doing in doings:
        with pytest.raises(StoreError, match=rf"the {name} is not Unicode \(a lone surrogate at character 5\)"):
            doing()
    with pytest.raises(InvalidEntry, match="lone surrogate"):
        store.runs.submit(ModelInputEntry.of(half), kind="chat")
    with pytest.raises(RunStateError, match="options of a run must be JSON"):
        store.runs.submit(ModelInputEntry.of("Is it?"), kind="chat", options={"city": half})
    assert store.list() == [store.info(history.id)]
    assert (store.info(history.id).title, store.info(history.id).tags, store.runs.counts()) == ("Rain", ("x",), {})


def test_lone_surrogates_are_allowed_in_logs_and_queries(store: HistoryStore) -> None:
    half = "rain \ud83c in Oslo"
    run = store.runs.submit(ModelInputEntry.of("Is it?"), kind="chat")
    assert store.runs.cancel(run.id, half).reason == "rain ? in Oslo"
    lease = store.claim(run.conversation, half)
    assert lease is not None
    assert lease.holder == "rain ? in Oslo"
    assert store.search(half) == []
    assert store.runs.list(state=half) == store.runs.list(conversation=half) == []
    with pytest.raises(UnknownConversation, match="rain"):
        store.open(half)
    with pytest.raises(UnknownRun, match="rain"):
        store.runs.get(half)


def test_a_long_text_is_found_by_its_end(store: HistoryStore) -> None:
    """Longer than an index row of any kind: many words, many different words, and a word that never ends."""
    texts = ("rain " * 20_000 + "and then snow", " ".join(f"w{n:x}" for n in range(60_000)) + " thunder", "x" * 9_000)
    history = talk(store, *texts)
    found = {'"then snow"': [1], '"snow then"': [], '"wea5f thunder"': [2], "x" * 9_000: [3], "x" * 8_999: []}
    assert {query: [hit.sequence_number for hit in store.search(query)] for query in found} == found
    assert store.open(history.id).version == 3
