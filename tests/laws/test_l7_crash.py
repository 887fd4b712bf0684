"""L7, the store's part: after `kill -9` at any instant, a full disk or a torn copy, every acknowledged entry is there.

The writers are real processes that tell us, through a pipe, each entry whose append returned. Entry n always says the same
thing, so what is found can be compared with what was acknowledged, byte by byte.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import sqlite3
import struct
import time
from contextlib import closing
from pathlib import Path

import pytest

from antiphon.errors import AntiphonError, StoreDamaged, StoreFull, WriterConflict
from antiphon.history import AgentHistory, HistoryEntry, HistoryStore, ModelInputEntry, SqliteStore
from antiphon.parts import Image, Text
from support.child_process import in_a_process, reported_numbers
from support.examples import scaled

KILLS = scaled(16)
COPIES = scaled(36)
FLIPS = scaled(80)


def entry_number(number: int) -> ModelInputEntry:
    big = [Image("image/png", f"{number % 5}" * 70_000)] if number % 17 == 0 else []
    return ModelInputEntry((Text(f"entry {number} " + "下雨" * (number * 7 % 900)), *big))


def says_the_same(entry: HistoryEntry, number: int) -> bool:
    return isinstance(entry, ModelInputEntry) and entry.content == entry_number(number).content


def write_on(history: AgentHistory, pipe: int) -> None:
    """Append forever, and tell each entry whose append returned."""
    while True:
        stored = history.append(entry_number(history.version + 1))
        os.write(pipe, struct.pack("<I", stored.sequence_number))


def do_everything(store: HistoryStore, pipe: int) -> None:
    """Whatever takes several steps, again and again."""
    while True:
        history = store.create("a plan")
        for number in range(1, 6):
            history.append(entry_number(number * 17 if number == 3 else number))
        os.write(pipe, struct.pack("<I", 1))
        fork = history.fork(3)
        store.search("entry")
        lines = list(store.export_lines(fork.id))
        store.delete(fork.id)
        store.import_lines(lines)


def check_whole(store: HistoryStore) -> None:
    """Every step was done whole or not at all: forks and imports have their three entries from the moment they are seen."""
    infos = store.list(limit=10**6)
    for info in infos:
        assert len(store.open(info.id).entries) == info.version
        assert info.parent is None or info.version == 3
    assert len(store.search("entry", limit=10**6)) == sum(info.version for info in infos)


def test_kill_nine_loses_no_acknowledged_entry(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "chats.db"
    chance = random.Random(7)
    with SqliteStore(path) as store:
        conversation = store.create().id

    version = torn = 0
    for round_ in range(KILLS):
        process, pipe = in_a_process(lambda pipe: write_on(SqliteStore(path).open(conversation), pipe))
        first = os.read(pipe, 4) if round_ % 2 else b""  # every other one is killed when it surely writes
        time.sleep(chance.uniform(0, 0.015))
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        last = max(reported_numbers(pipe), default=int.from_bytes(first, "little") or version)
        with SqliteStore(path) as store:
            found = store.open(conversation)
            assert found.version >= last, f"{last - found.version} acknowledged entries are gone"
            # At most one more: the entry that was written, and whose acknowledgement was cut off.
            assert found.version <= last + 1
            for entry in found.entries[version:]:
                assert says_the_same(entry, entry.sequence_number)
        torn += found.version - last
        version = found.version
    assert version > KILLS // 2, "the writers hardly wrote"
    with SqliteStore(path) as store:
        assert all(says_the_same(entry, number) for number, entry in enumerate(store.open(conversation).entries, 1))
    with capsys.disabled():
        print(f"\n  L7: {KILLS} kills, {version} entries, none lost, {torn} written but not acknowledged ", end="")


def test_kill_nine_during_any_operation_leaves_a_sound_file(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    chance = random.Random(11)

    for _ in range(KILLS):
        process, pipe = in_a_process(lambda pipe: do_everything(SqliteStore(path), pipe))
        time.sleep(chance.uniform(0, 0.04))
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(pipe)
        with SqliteStore(path) as store:
            check_whole(store)
    with closing(sqlite3.connect(path)) as db, db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        uses = db.execute("SELECT count(*) FROM attachment_uses LEFT JOIN attachments USING (name) WHERE data IS NULL")
        assert uses.fetchone() == (0,)
    db.close()


def test_a_torn_copy_opens_with_a_prefix_or_reports_damage(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    chance = random.Random(13)
    store = SqliteStore(path)
    history = store.create()
    for number in range(1, 80):
        history.append(entry_number(number))
    opened = refused = 0
    for round_ in range(COPIES):
        copy = tmp_path / f"copy{round_}.db"
        log = Path(f"{copy}-wal")
        shutil.copy(path, copy)
        shutil.copy(f"{path}-wal", log)
        victim = copy if round_ % 6 == 0 else log
        with open(victim, "r+b") as file:
            size = victim.stat().st_size
            file.truncate(chance.randrange(size))
            if round_ % 2:
                file.seek(chance.randrange(max(1, victim.stat().st_size)))
                file.write(os.urandom(100))
        try:
            with SqliteStore(copy) as torn:
                found = [torn.open(info.id) for info in torn.list()]
            opened += 1
        except StoreDamaged as error:
            refused += str(copy) in str(error)
            continue
        for part in found:
            assert all(says_the_same(entry, number) for number, entry in enumerate(part.entries, 1))
    store.close()
    assert opened > COPIES // 2
    assert opened + refused == COPIES, "a refusal did not name its file"
    # A log that is cut anywhere is not damaged: SQLite's checksums end it at the last whole commit.
    assert refused <= COPIES // 6 + COPIES // 2


def test_a_flipped_bit_anywhere_in_the_file_changes_no_entry(tmp_path: Path) -> None:
    """Short entries most of all: nothing but their own checksum covers them."""
    path, copy = tmp_path / "chats.db", tmp_path / "copy.db"
    with SqliteStore(path) as store:
        history = store.create("payments")
        for number in range(1, 9):
            history.append(ModelInputEntry.of(f"pay {number}00"))
    whole = path.read_bytes()
    texts = [place for place in range(len(whole)) if whole.startswith(b'{"kind":"model_input"', place)]
    assert len(texts) == 8
    chance = random.Random(19)
    places = [place + offset for place in texts for offset in range(0, 120, 12)]
    places += [chance.randrange(len(whole)) for _ in range(FLIPS)]
    noticed = 0
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << chance.randrange(8)
        copy.write_bytes(damaged)
        try:
            with SqliteStore(copy, read_only=True) as store:
                found = store.open(history.id).entries
                listed = store.list()
                store.search("pay")
                list(store.export_lines(history.id))
        except AntiphonError:
            noticed += 1
        else:
            assert list(found) == list(history.entries)[: len(found)], place
            assert len(found) == listed[0].version, place
    assert noticed >= 8 * 10


def test_a_flipped_bit_of_the_tree_never_shortens_a_conversation_silently(tmp_path: Path) -> None:
    """Above the pages with entries are pages with their keys. A key that changes hides the entries below it from a scan."""
    path, copy = tmp_path / "chats.db", tmp_path / "copy.db"
    with SqliteStore(path) as store:
        history = store.create("payments")
        for number in range(1, 401):
            history.append(ModelInputEntry.of(f"pay {number}00 " + "and so on " * 10))
    with closing(sqlite3.connect(path)) as db:
        ((root,),) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'entries'")
        ((page,),) = db.execute("PRAGMA page_size")
    whole = path.read_bytes()
    start = (root - 1) * page
    assert whole[start] == 5, "the root of the table has no pages below it"
    cells = int.from_bytes(whole[start + 3 : start + 5])
    first = int.from_bytes(whole[start + 5 : start + 7])
    places = [*range(start, start + 12 + 2 * cells), *range(start + first, start + page)]
    chance = random.Random(23)
    shortened = 0
    bits = [(place, bit) for place in places for bit in range(8)]
    for place in chance.sample(bits, min(FLIPS, len(bits))):
        damaged = bytearray(whole)
        damaged[place[0]] ^= 1 << place[1]
        copy.write_bytes(damaged)
        try:
            with SqliteStore(copy, read_only=True) as store:
                versions = [info.version for info in store.list()]
                opened = store.open(history.id)
        except StoreDamaged as error:
            shortened += "antiphon history verify" in str(error)
            continue
        except AntiphonError:
            continue
        assert [opened.version] == versions, place
    assert shortened, "no flip hid entries: this test looks in the wrong place"


def test_a_log_cut_at_any_byte_loses_only_its_end(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    store = SqliteStore(path)
    history = store.create()
    sizes = []
    for number in range(1, 12):
        history.append(entry_number(number))
        sizes.append(Path(f"{path}-wal").stat().st_size)
    whole = Path(f"{path}-wal").read_bytes()
    chance = random.Random(17)
    for cut in sorted(chance.randrange(sizes[0], len(whole)) for _ in range(COPIES)):
        copy = tmp_path / "copy.db"
        shutil.copy(path, copy)
        Path(f"{copy}-wal").write_bytes(whole[:cut])
        Path(f"{copy}-shm").unlink(missing_ok=True)
        with SqliteStore(copy) as torn:
            assert torn.open(history.id).version == sum(size <= cut for size in sizes)
    store.close()


def append_until_refused(history: AgentHistory) -> None:
    for number in range(1, 10_000):
        history.append(entry_number(number))


def test_a_full_disk_refuses_the_entry_and_keeps_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    with SqliteStore(path) as store:
        conversation = store.create().id

    def fill_the_disk(pipe: int) -> None:
        store = SqliteStore(path)
        history = store.open(conversation)
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, hard))
        with pytest.raises(StoreFull, match=r"chats\.db"):
            append_until_refused(history)
        refused_at = history.version + 1
        with pytest.raises(StoreFull):
            history.append(entry_number(refused_at))
        assert history.version == refused_at - 1
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        history.append(entry_number(refused_at))
        os.write(pipe, struct.pack("<I", history.version))

    process, pipe = in_a_process(fill_the_disk)
    os.waitpid(process, 0)
    (version,) = reported_numbers(pipe)
    assert version > 10
    with SqliteStore(path) as store:
        found = store.open(conversation)
    assert found.version == version
    assert all(says_the_same(entry, number) for number, entry in enumerate(found.entries, 1))


def test_two_processes_do_not_interleave_entries(tmp_path: Path) -> None:
    """Each process writes pairs, the second of a pair only on top of its own first; a loser refreshes and starts again."""
    path = tmp_path / "chats.db"
    with SqliteStore(path) as store:
        conversation = store.create().id

    def wait_for_version(version: int) -> None:
        with SqliteStore(path, timeout=30) as store:
            while store.open(conversation).version < version:
                time.sleep(0.001)

    def write_pairs(name: str, pipe: int) -> None:
        if name == "right":
            wait_for_version(1)
        history = SqliteStore(path, timeout=30).open(conversation)
        chance = random.Random(name)
        pairs = 0
        while pairs < 40:
            try:
                for half in ("first", "second"):
                    stored = history.append(ModelInputEntry.of(f"{name} {pairs} {half}"))
                    os.write(pipe, struct.pack("<I", stored.sequence_number))
                    if name == "left" and stored.sequence_number == 1:
                        wait_for_version(
                            2
                        )  # the right one writes into this pair, so there is a conflict however fast they are
                    time.sleep(chance.uniform(0, 0.001))
                pairs += 1
            except WriterConflict:
                assert history.refresh(), "a conflict, and nothing new"

    left, left_pipe = in_a_process(lambda pipe: write_pairs("left", pipe))
    right, right_pipe = in_a_process(lambda pipe: write_pairs("right", pipe))
    os.waitpid(left, 0)
    os.waitpid(right, 0)
    written = {"left": reported_numbers(left_pipe), "right": reported_numbers(right_pipe)}
    with SqliteStore(path) as store:
        texts = [_text(entry) for entry in store.open(conversation).entries]
    assert sorted(written["left"] + written["right"]) == list(range(1, len(texts) + 1))
    for name, numbers in written.items():
        assert all(texts[number - 1].startswith(name) for number in numbers)
    for index, text in enumerate(texts):
        if text.endswith("second"):
            assert texts[index - 1] == text.replace("second", "first"), "another writer came between the two"
    assert sum(text.endswith("second") for text in texts) == 80
    assert len(texts) > 160, "the two never met: nothing was tested"


def _text(entry: HistoryEntry) -> str:
    assert isinstance(entry, ModelInputEntry)
    return "".join(part.text for part in entry.content if isinstance(part, Text))
