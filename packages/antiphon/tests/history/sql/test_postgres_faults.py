"""A server that is away, goes away, refuses, is read-only, full of others, or not what it should be: one clear error, no harm."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import quote

import psycopg
import pytest

from antiphon.errors import (
    AntiphonError,
    StoreDamaged,
    StoreError,
    StoreLocked,
    StoreReadOnly,
    StoreUnreachable,
    UnknownConversation,
    WriterConflict,
)
from antiphon.history import DebugLogEntry, ModelInputEntry
from antiphon.history.location import open_store
from antiphon.history.search_text import searchable_text
from antiphon.history.sql.postgres import PostgresStore
from antiphon.parts import Image
from support.cut_proxy import CutProxy
from support.postgres_server import PostgresServer
from support.store_rows import rows, table

PASSWORD = "kanarie/9@x"


@contextmanager
def through_a_proxy(server: PostgresServer, address: str) -> Iterator[tuple[PostgresStore, CutProxy]]:
    proxy = CutProxy(server.port)
    try:
        with PostgresStore(address.replace(f":{server.port}/", f":{proxy.port}/"), timeout=5) as store:
            yield store, proxy
    finally:
        proxy.close()


def all_texts(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)) + repr(error)


def test_a_server_that_is_not_there_is_named_without_the_password(postgres_server: PostgresServer) -> None:
    postgres_server.stop()
    address = f"postgresql://someone:{quote(PASSWORD, safe='')}@127.0.0.1:{postgres_server.port}/chats"
    with pytest.raises(
        StoreUnreachable, match=rf"127\.0\.0\.1:{postgres_server.port}/chats does not answer"
    ) as refusal:
        open_store(address, timeout=2)
    assert "kanarie" not in all_texts(refusal.value)


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://u:{PASSWORD}@127.0.0.1/db",
        "postgresql://u:kanarie/2@127.0.0.1/db",
        "postgresql://u:12/kanarie@127.0.0.1/db",
        "postgresql://u:a@kanarie@127.0.0.1/db",
        "postgresql://u:a?kanarie@127.0.0.1/db",
        "postgresql://u:kanarie@127.0.0.1:many/db",
        "postgresql://u:kanarie@127.0.0.1/db?nonsense=kanarie",
        "postgresql://u:kanarie%zz@127.0.0.1/db",
        "postgresql://u:kanarie@[::1/db",
        "postgresql://u:kanarie@127.0.0.1/db?schema=pg_mine",
        "postgresql://u:kanarie@127.0.0.1/db?schema=" + "x" * 64,
    ],
)
def test_an_address_that_cannot_be_read_is_not_repeated(address: str) -> None:
    with pytest.raises(StoreError) as refusal:
        open_store(address, timeout=1)
    assert "kanarie" not in all_texts(refusal.value)


def test_a_wrong_password_and_a_right_one(postgres_server: PostgresServer) -> None:
    with psycopg.connect(postgres_server.address(), autocommit=True) as db:
        db.execute("DROP ROLE IF EXISTS keeper")
        db.execute(f"CREATE ROLE keeper LOGIN PASSWORD '{PASSWORD}'")
        db.execute("GRANT CREATE ON DATABASE postgres TO keeper")
    rules = postgres_server.folder / "rules"
    rules.write_text("host all keeper 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n")
    rules.chmod(0o644)
    postgres_server.stop()
    postgres_server.start(hba_file=str(rules))

    def address(password: str) -> str:
        return f"postgresql://keeper:{quote(password, safe='')}@127.0.0.1:{postgres_server.port}/postgres?schema=kept"

    try:
        with pytest.raises(StoreError, match="does not let the user keeper in") as refusal:
            open_store(address(PASSWORD[::-1] + PASSWORD))
        assert "kanarie" not in all_texts(refusal.value)
        with PostgresStore(address(PASSWORD)) as store:
            store.create().append(ModelInputEntry.of("hello"))
            shown = f"{store.path} {store._connections.address!r} {vars(store)!r}"
            assert "kanarie" not in shown
            assert "keeper@127.0.0.1" in shown
    finally:
        postgres_server.stop()


def test_a_missing_database_and_another_encoding_are_reported(postgres_server: PostgresServer) -> None:
    with pytest.raises(StoreError, match=r'database "nowhere" does not exist.*createdb'):
        open_store(postgres_server.address("nowhere"))
    with psycopg.connect(postgres_server.address(), autocommit=True) as db:
        db.execute("DROP DATABASE IF EXISTS latin")
        db.execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'")
    with pytest.raises(StoreError, match="keeps text as LATIN1"):
        open_store(postgres_server.address("latin"))


def test_without_the_driver_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from antiphon.history.location import open_store\n"
        "try: open_store('postgresql://u:kanarie@h/d')\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.startswith("StoreError")
    assert "pip install 'antiphon[postgres]'" in output
    assert "kanarie" not in output


def test_a_server_restart_between_calls_is_not_noticed(postgres_server: PostgresServer, postgres: str) -> None:
    with open_store(postgres) as store:
        history = store.create()
        for how in (signal.SIGINT, signal.SIGQUIT):
            history.append(ModelInputEntry.of("before"))
            postgres_server.stop(how)
            postgres_server.start()
            history.append(ModelInputEntry.of("after"))
        postgres_server.kill()
        postgres_server.start()
        assert store.open(history.id).entries == history.entries


def test_a_server_that_dies_under_an_append(postgres_server: PostgresServer, postgres: str) -> None:
    with open_store(postgres, timeout=2) as store:
        history = store.create()
        history.append(ModelInputEntry.of("1"))
        postgres_server.kill()
        for _ in range(2):
            with pytest.raises(StoreUnreachable, match=rf"127\.0\.0\.1:{postgres_server.port}"):
                history.append(ModelInputEntry.of("2"))
        with pytest.raises(StoreUnreachable):
            store.list()
        assert history.version == 1
        postgres_server.start()
        history.append(ModelInputEntry.of("2"))
        assert [searchable_text(entry) for entry in store.open(history.id).entries] == ["1", "2"]


@pytest.mark.parametrize("what", ["requests", "answers"])
@pytest.mark.parametrize("entry", [ModelInputEntry.of("b"), ModelInputEntry.of(Image("image/png", "A" * 70_000))])
def test_a_connection_that_breaks_under_an_append_writes_it_once(
    postgres_server: PostgresServer, postgres: str, what: str, entry: ModelInputEntry
) -> None:
    """Whether the entry was lost or only its acknowledgement: it is there once, and the history knows it."""
    with through_a_proxy(postgres_server, postgres) as (store, proxy):
        history = store.create()
        history.append(ModelInputEntry.of("a"))
        proxy.lose(what)  # type: ignore[arg-type]
        history.append(entry)
        assert proxy.cuts == 0
        history.append(ModelInputEntry.of("c"))
        assert history.version == 3
        assert store.open(history.id).entries == history.entries


def test_a_lost_acknowledgement_is_not_taken_from_another_writer(
    postgres_server: PostgresServer, postgres: str
) -> None:
    with through_a_proxy(postgres_server, postgres) as (store, proxy), open_store(postgres) as other:
        history = store.create()
        other.open(history.id).append(ModelInputEntry.of("mine"))
        proxy.lose("answers")
        with pytest.raises(WriterConflict):
            history.append(ModelInputEntry.of("mine"))  # the same words, but not the same entry
        assert proxy.cuts == 0
        assert store.open(history.id).version == 1


def test_an_uncertain_append_is_reported_and_resolved(postgres_server: PostgresServer, postgres: str) -> None:
    with through_a_proxy(postgres_server, postgres) as (store, proxy):
        history = store.create()
        proxy.lose("answers", 9)
        with pytest.raises(StoreUnreachable, match="whether it arrived is not known"):
            history.append(ModelInputEntry.of("a"))
        assert history.version == 0
        proxy.lose("")
        with pytest.raises(WriterConflict):
            history.append(ModelInputEntry.of("b"))
        assert [searchable_text(entry) for entry in history.refresh()] == ["a"]
        history.append(ModelInputEntry.of("b"))
        assert store.open(history.id).entries == history.entries


def test_reading_is_done_again(postgres_server: PostgresServer, postgres: str) -> None:
    with through_a_proxy(postgres_server, postgres) as (store, proxy):
        history = store.create("rain")
        for what in ("requests", "answers"):
            proxy.lose(what)
            assert store.info(history.id).title == "rain"
            assert proxy.cuts == 0


def test_a_read_only_server(postgres_server: PostgresServer, postgres: str) -> None:
    with open_store(postgres) as store:
        history = store.create()
        history.append(ModelInputEntry.of("it rains"))
        store.search("rains")
        history.append(ModelInputEntry.of("and rains"))  # not indexed yet
    replica = f"{postgres}&options=-c%20default_transaction_read_only%3Don"
    for store in (open_store(replica), open_store(postgres, read_only=True)):
        with store:
            seen = store.open(history.id)
            assert seen.entries == history.entries
            assert {hit.sequence_number for hit in store.search("rains")} == {1, 2}
            trials: list[Callable[[], object]] = [
                lambda seen=seen: seen.append(ModelInputEntry.of("x")),  # type: ignore[misc]
                store.create,
                lambda store=store: store.claim(history.id, "me"),  # type: ignore[misc]
                lambda store=store: store.delete(history.id),  # type: ignore[misc]
            ]
            for trial in trials:
                with pytest.raises(StoreReadOnly, match="read-only, a replica perhaps"):
                    trial()
            assert seen.version == 2
    with pytest.raises(StoreReadOnly, match=r"tables .* cannot be made"):
        open_store(postgres_server.address(schema="nothing_here_yet"), read_only=True)


def test_a_user_without_rights(postgres_server: PostgresServer, postgres: str) -> None:
    with open_store(postgres) as store, psycopg.connect(postgres_server.address(), autocommit=True) as db:
        history = store.create("seen by all")
        schema = store._connections.address.schema  # type: ignore[attr-defined]
        db.execute("DROP OWNED BY guest" if _has_role(db, "guest") else "CREATE ROLE guest LOGIN")
        db.execute(f"GRANT USAGE ON SCHEMA {schema} TO guest")
        db.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO guest")
    with open_store(postgres.replace("postgres@", "guest@")) as guest:
        assert guest.info(history.id).title == "seen by all"
        with pytest.raises(StoreReadOnly, match="the user guest may not"):
            guest.create()


def _has_role(db: psycopg.Connection[tuple[object, ...]], name: str) -> bool:
    return db.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (name,)).fetchone() is not None


def test_all_connections_in_use(postgres: str) -> None:
    with PostgresStore(postgres, max_connections=1, timeout=0.2) as store:
        history = store.create()
        with (
            store._connections.connection(),
            pytest.raises(StoreLocked, match=r"all 1 connections of this store were in use for 0\.2 s"),
        ):
            history.append(ModelInputEntry.of("hello?"))
        history.append(ModelInputEntry.of("hello!"))
        assert history.version == 1
    with pytest.raises(StoreError, match="max_connections is 0"):
        open_store(postgres, max_connections=0)


def test_many_threads_share_few_connections(postgres_server: PostgresServer, postgres: str) -> None:
    with PostgresStore(postgres, max_connections=3) as store:
        failed: list[BaseException] = []

        def talk() -> None:
            try:
                history = store.create()
                for number in range(20):
                    history.append(DebugLogEntry("t", str(number)))
                assert store.open(history.id).version == 20
            except BaseException as error:
                failed.append(error)

        _at_once(12, talk)
        assert failed == []
        assert rows(store, "entries") == 240
        ours = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'antiphon'"
        assert 1 <= table(store, ours)[0][0] <= 3
    assert postgres_server.is_left()


def test_another_session_holds_the_row(postgres_server: PostgresServer, postgres: str) -> None:
    with PostgresStore(postgres, timeout=0.2) as store, psycopg.connect(postgres_server.address()) as other:
        history = store.create()
        other.execute(f"SELECT 1 FROM {store._connections.address.schema}.conversations FOR UPDATE")
        with pytest.raises(StoreLocked, match="another session held the lock"):
            history.append(ModelInputEntry.of("x"))
        assert history.version == 0
        other.rollback()
        history.append(ModelInputEntry.of("x"))


def test_a_statement_that_takes_too_long(postgres: str) -> None:
    PostgresStore(postgres).close()  # its tables may take longer on a busy machine
    with PostgresStore(postgres, statement_timeout=0.1) as store:
        with pytest.raises(StoreLocked, match="took too long"):
            table(store, "SELECT pg_sleep(30)")
        assert store.count() == 0


def test_a_storm_of_writers_on_one_conversation(postgres: str) -> None:
    """20 writers, each with its own history: every number is given once, and a losing writer got an error and wrote nothing."""
    with PostgresStore(postgres, max_connections=10) as store:
        conversation = store.create().id
        written: list[tuple[int, str]] = []
        conflicts: list[int] = []

        def write(name: str) -> None:
            history = store.open(conversation)
            done = 0
            while done < 5:
                try:
                    entry = history.append(ModelInputEntry.of(f"{name} {done}"))
                    written.append((entry.sequence_number, searchable_text(entry)))
                    done += 1
                except WriterConflict:
                    conflicts.append(1)
                    assert history.refresh(), "a conflict, and nothing new"

        threads = [threading.Thread(target=write, args=(f"writer {number}",)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(written) == [
            (entry.sequence_number, searchable_text(entry)) for entry in store.open(conversation).entries
        ]
        assert len(written) == 100
        assert conflicts, "the writers never met: nothing was tested"


def test_media_that_are_deleted_here_and_used_there(postgres: str) -> None:
    """While conversations that use a picture are deleted, others that use it are written: none of these loses it."""
    picture = ModelInputEntry.of(Image("image/png", "A" * 70_000))
    with open_store(postgres) as store:

        def come_and_go() -> None:
            for _ in range(15):
                history = store.create()
                history.append(picture)
                store.delete(history.id)

        def stay() -> None:
            for _ in range(15):
                store.create().append(picture)

        threads = [threading.Thread(target=work) for work in (come_and_go, stay, come_and_go)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for info in store.list():
            (entry,) = store.open(info.id).entries
            assert isinstance(entry, ModelInputEntry)
            assert entry.content == picture.content
        assert (store.count(), rows(store, "attachments"), rows(store, "attachment_uses")) == (15, 1, 15)


def test_damaged_entries_and_missing_media_are_named(postgres: str, caplog: pytest.LogCaptureFixture) -> None:
    with PostgresStore(postgres) as store:
        damaged, lacking = store.create(), store.create()
        damaged.append(ModelInputEntry.of("Is it raining?"))
        lacking.append(ModelInputEntry.of(Image("image/png", "A" * 70_000)))
        with store._connections.connection() as db:
            db.execute("UPDATE entries SET body = %s WHERE number = 1", (b'{"kind":"model_input"',))
            db.execute("DELETE FROM attachments")
        with pytest.raises(StoreDamaged, match=rf"entry 1 of conversation {damaged.id} is damaged"):
            store.open(damaged.id)
        with pytest.raises(StoreDamaged, match=r"attachment sha256:\w{64} is missing"):
            store.open(lacking.id)
        store.create("Snow").append(ModelInputEntry.of("Is it raining snow?"))
        assert [hit.conversation.title for hit in store.search("raining")] == ["Snow"]
        assert "entry 1 of conversation number 1 is damaged" in caplog.text
        assert len(store.list()) == 3
        with store._connections.connection() as db:
            db.execute("DROP TABLE entries")
        with pytest.raises(StoreDamaged, match="lacks tables of ours"):
            store.open(damaged.id)


def test_text_that_postgres_cannot_keep(postgres: str) -> None:
    with open_store(postgres) as store:
        history = store.create("a\0b", tags=["\0"])
        assert store.info(history.id).title == "a\ufffdb"
        assert [info.id for info in store.list(tag="\0")] == [history.id]
        entry = history.append(ModelInputEntry.of("nothing \0 is lost in an entry"))
        assert store.open(history.id).entries == [entry]
        assert [hit.sequence_number for hit in store.search("lost nothing")] == [1]
        with pytest.raises(UnknownConversation):
            store.open("\ud800\0")


def test_a_closed_store_raises(postgres: str) -> None:
    store = open_store(postgres)
    history = store.create()
    store.close()
    store.close()
    for call in (store.list, lambda: history.append(ModelInputEntry.of("x"))):
        with pytest.raises(AntiphonError, match=r"127\.0\.0\.1:\d+/postgres\?schema=\w+ was closed"):
            call()


def test_a_forgotten_store_is_closed_without_a_warning(postgres: str) -> None:
    def use_and_forget() -> None:
        store = open_store(postgres)
        store.create().append(ModelInputEntry.of("hello"))
        assert store.count() == 1

    with warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always")
        use_and_forget()
        gc.collect()
    assert complaints == []
    history = open_store(postgres).create()
    gc.collect()
    history.append(ModelInputEntry.of("a history keeps its store open"))


def test_a_forked_process_has_connections_of_its_own(postgres: str) -> None:
    with open_store(postgres) as store:
        history = store.create()
        history.append(ModelInputEntry.of("parent"))
        process = os.fork()
        if process == 0:
            try:
                child = store.open(history.id)
                child.append(ModelInputEntry.of("child"))
                store.close()
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        assert os.waitpid(process, 0)[1] == 0
        assert [searchable_text(entry) for entry in history.refresh()] == ["child"]
        history.append(ModelInputEntry.of("parent again"))
        assert store.open(history.id).version == 3


def _at_once(number: int, work: Callable[[], None]) -> None:
    threads = [threading.Thread(target=work) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
