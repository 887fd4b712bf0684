"""A tail yields each entry once and in order, whenever it begins and whatever happens to the server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from antiphon.errors import UnknownConversation
from antiphon.history import AgentHistory, HistoryEntry, ModelInputEntry
from antiphon.history.location import open_store
from antiphon.history.search_text import searchable_text
from antiphon.history.sql.postgres import PostgresStore
from antiphon.parts import Image
from support.postgres_server import PostgresServer
from support.store_rows import table
from support.waiting import until_async


async def read_entries(entries: AsyncIterator[HistoryEntry], number: int, seconds: float = 30) -> list[str]:
    """The next entries of a tail."""
    async with asyncio.timeout(seconds):
        return [searchable_text(await anext(entries)) for _ in range(number)]


def write(history: AgentHistory, first: int, last: int) -> None:
    for number in range(first, last + 1):
        history.append(ModelInputEntry.of(str(number)))


def numbers(first: int, last: int) -> list[str]:
    return [str(number) for number in range(first, last + 1)]


def test_no_entry_is_missed_whenever_a_reader_comes(postgres: str) -> None:
    """Readers come at any moment of a writer that never pauses; each gets everything."""
    with open_store(postgres) as store, PostgresStore(postgres) as other:
        history = store.create()

        async def listen(after: int, delay: float) -> list[str]:
            await asyncio.sleep(delay)
            async with aclosing(other.tail(history.id, after)) as entries:  # type: ignore[type-var]
                return await read_entries(entries, 300 - after)

        async def all_of_them() -> list[list[str]]:
            listeners = [asyncio.create_task(listen(after, after / 2000)) for after in (0, 7, 40, 100)]
            await asyncio.to_thread(write, history, 1, 300)
            return await asyncio.gather(*listeners)

        assert asyncio.run(all_of_them()) == [numbers(after + 1, 300) for after in (0, 7, 40, 100)]


def test_a_tail_continues_after_a_server_restart(
    postgres_server: PostgresServer, postgres: str, caplog: pytest.LogCaptureFixture
) -> None:
    with open_store(postgres) as store:
        history = store.create()
        write(history, 1, 2)

        async def listen() -> list[str]:
            async with aclosing(store.tail(history.id)) as entries:  # type: ignore[type-var]
                texts_read = await read_entries(entries, 2)
                waiting = asyncio.create_task(read_entries(entries, 3))
                await asyncio.sleep(0.1)
                await asyncio.to_thread(postgres_server.kill)
                noticed = f"looking again, from entry 2 of {history.id} on"
                await until_async(lambda: noticed in caplog.text)  # it looks now and then
                await asyncio.to_thread(postgres_server.start)
                await asyncio.to_thread(write, history, 3, 5)
                return texts_read + await waiting

        assert asyncio.run(listen()) == numbers(1, 5)


def test_a_tail_ends_with_its_conversation_and_with_its_listener(
    postgres_server: PostgresServer, postgres: str
) -> None:
    with open_store(postgres) as store:
        history = store.create()
        write(history, 1, 1)

        async def listen() -> None:
            kept = store.create()
            write(kept, 1, 1)
            async with aclosing(store.tail(kept.id)) as others:  # type: ignore[type-var]
                assert await read_entries(others, 1) == ["1"]
            entries = store.tail(history.id)
            assert await read_entries(entries, 1) == ["1"]
            waiting = asyncio.create_task(read_entries(entries, 1))
            await asyncio.sleep(0.1)
            await asyncio.to_thread(store.delete, history.id)
            with pytest.raises(UnknownConversation, match=history.id):
                await waiting
            with pytest.raises(UnknownConversation):
                await read_entries(store.tail(history.id), 1)

        asyncio.run(listen())
    assert postgres_server.is_left()


def test_a_tail_of_a_read_only_store_looks_again(postgres: str) -> None:
    with open_store(postgres) as store, open_store(postgres, read_only=True) as replica:
        history = store.create()
        write(history, 1, 1)

        async def listen() -> list[str]:
            async with aclosing(replica.tail(history.id)) as entries:  # type: ignore[type-var]
                texts_read = await read_entries(entries, 1)
                await asyncio.to_thread(write, history, 2, 3)
                return texts_read + await read_entries(entries, 2)

        assert asyncio.run(listen()) == numbers(1, 3)


def test_large_media_come_whole_through_a_tail(postgres: str) -> None:
    with open_store(postgres) as store:
        history = store.create()
        entry = history.append(ModelInputEntry.of(Image("image/png", "A" * 70_000)))

        async def listen() -> HistoryEntry:
            async with aclosing(store.tail(history.id)) as entries:  # type: ignore[type-var]
                return await anext(entries)

        assert asyncio.run(listen()) == entry


def test_a_listener_on_another_thread_does_not_stop_the_others(postgres: str) -> None:
    with PostgresStore(postgres, max_connections=1) as store:
        history = store.create()
        texts_read: list[str] = []

        async def listen() -> None:
            async with aclosing(store.tail(history.id)) as entries:  # type: ignore[type-var]
                texts_read.extend(await read_entries(entries, 50))

        thread = threading.Thread(target=lambda: asyncio.run(listen()))
        thread.start()
        write(history, 1, 50)
        thread.join()
        assert texts_read == numbers(1, 50)
        assert table(store, "SELECT count(*) FROM entries") == [(50,)]
