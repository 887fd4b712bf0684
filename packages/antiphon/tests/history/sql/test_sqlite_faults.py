"""Files that are not ours, damaged, locked or out of reach: one clear error that names the file, and nothing is touched."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from antiphon.errors import AntiphonError, StoreDamaged, StoreError, StoreLocked, StoreReadOnly
from antiphon.history import ModelInputEntry, SqliteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return new_store(tmp_path)


@pytest.fixture
def public_path() -> Iterator[Path]:
    """The same in a folder that every user may enter: pytest's own are closed whenever another run of it starts."""
    with tempfile.TemporaryDirectory(prefix="antiphon-") as folder:
        os.chmod(folder, 0o755)
        yield new_store(Path(folder))


def new_store(folder: Path) -> Path:
    path = folder / "chats.db"
    with SqliteStore(path) as store:
        store.create().append(ModelInputEntry.of("Is it raining?"))
    return path


def as_another_user(work: Callable[[], None]) -> None:
    """Run `work` as a user without rights; root may write everywhere and would see nothing."""
    process = os.fork()
    if process == 0:
        try:
            if os.getuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            work()
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
            os._exit(1)
        os._exit(0)
    assert os.waitpid(process, 0)[1] == 0


def read_everything(path: Path) -> None:
    with SqliteStore(path) as store:
        for info in store.list(limit=1000):
            store.open(info.id)


def test_another_kind_of_file(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but long enough to look like one\n" * 50)
    with pytest.raises(StoreDamaged, match=r"notes\.txt is not an SQLite database"):
        SqliteStore(path)
    assert path.read_text().startswith("not a database")


def test_another_programs_database(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE entries (a)")
    db.close()
    with pytest.raises(StoreDamaged, match=r"other\.db is an SQLite database of another program"):
        SqliteStore(path)
    assert [file.name for file in tmp_path.iterdir() if file.suffix == ".db"] == ["other.db"]


def test_a_newer_schema(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(StoreError, match=r"newer Antiphon \(schema 99"):
        SqliteStore(path)


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    path.touch()
    with SqliteStore(path) as store:
        assert store.count() == 0


def test_a_damaged_page(path: Path) -> None:
    with SqliteStore(path) as store:
        for number in range(200):
            store.create().append(ModelInputEntry.of(f"talk {number} " * 40))
    content = bytearray(path.read_bytes())
    content[4096 * 3 : 4096 * 12] = os.urandom(4096 * 9)
    path.write_bytes(content)
    with pytest.raises(StoreDamaged, match=r"chats\.db is corrupt"):
        read_everything(path)


def test_a_damaged_entry_is_named_and_keeps_no_other_from_being_found(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    db = sqlite3.connect(path)
    db.execute("UPDATE entries SET body = ?", (b'{"kind":"model_in',))
    db.commit()
    db.close()
    with SqliteStore(path) as store:
        with pytest.raises(StoreDamaged, match=r"chats\.db: entry 1 of conversation \w{26} is damaged"):
            store.open("last")
        store.create("Snow").append(ModelInputEntry.of("Is it raining snow?"))
        assert [hit.conversation.title for hit in store.search("raining")] == ["Snow"]
        assert "entry 1 of conversation number 1 is damaged" in caplog.text
        assert [info.title for info in store.list()] == ["Snow", ""]


def test_a_missing_attachment_is_named(path: Path) -> None:
    name = "sha256:" + "0" * 64
    db = sqlite3.connect(path)
    body = f'{{"kind":"model_input","content":[{{"type":"image","data":"{name}"}}],"sequence_number":1}}'
    db.execute("UPDATE entries SET body = ?, checksum = NULL", (body.encode(),))
    db.execute("INSERT INTO attachment_uses VALUES (1, ?)", (name,))
    db.commit()
    db.close()
    with SqliteStore(path) as store, pytest.raises(StoreDamaged, match=f"attachment {name} is missing"):
        store.open("last")


def test_a_locked_file(path: Path) -> None:
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with SqliteStore(path, timeout=0.1) as store:
        history = store.open("last")
        with pytest.raises(StoreLocked, match=r"chats\.db is locked by another process \(waited 0\.1 s\)"):
            history.append(ModelInputEntry.of("hello?"))
        assert history.version == 1
        holder.execute("ROLLBACK")
        history.append(ModelInputEntry.of("hello!"))
        assert store.open("last").version == 2
    holder.close()


def test_a_folder_that_is_not_there_or_is_the_file(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"the folder .*nowhere does not exist"):
        SqliteStore(tmp_path / "nowhere" / "chats.db")
    with pytest.raises(StoreError, match="is a folder; a store is a file"):
        SqliteStore(tmp_path)
    with pytest.raises(StoreError, match="there is no store at"):
        SqliteStore(tmp_path / "chats.db", create=False)
    assert not list(tmp_path.iterdir())


def test_a_read_only_folder(public_path: Path) -> None:
    path, folder = public_path, public_path.parent
    path.chmod(0o644)  # it belongs to another user, who lets everyone read it
    folder.chmod(0o555)

    def look() -> None:
        with pytest.raises(StoreReadOnly, match=r"new\.db.*not writable"):
            SqliteStore(folder / "new.db")
        with pytest.raises(StoreReadOnly, match=r"chats\.db"):
            SqliteStore(path).create()
        with SqliteStore(path, read_only=True) as store:
            assert store.open("last").version == 1
            assert [hit.sequence_number for hit in store.search("raining")] == [1]
            with pytest.raises(StoreReadOnly, match="reading only"):
                store.create()

    try:
        as_another_user(look)
    finally:
        folder.chmod(0o755)


def test_an_unreadable_file(public_path: Path) -> None:
    public_path.chmod(0)

    def look() -> None:
        with pytest.raises(StoreReadOnly, match=r"chats\.db"):
            SqliteStore(public_path)

    as_another_user(look)


def test_a_closed_store_raises(path: Path) -> None:
    store = SqliteStore(path)
    history = store.open("last")
    history.append(ModelInputEntry.of("before"))
    store.close()
    store.close()
    for call in (store.list, lambda: history.append(ModelInputEntry.of("x"))):
        with pytest.raises(AntiphonError, match=r"chats\.db was closed"):
            call()
