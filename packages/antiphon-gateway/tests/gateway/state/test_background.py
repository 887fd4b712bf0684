"""Background answers without HTTP: two workers with one file, answers that outlive their process, and slow followers."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from antiphon.errors import StoreError
from antiphon.http.messages import Response
from antiphon.wire.output import ModelOutput, ProviderError
from antiphon.wire.request import ModelRequest
from antiphon.wire.streams.sse import SseEvent
from antiphon_gateway.state import background
from antiphon_gateway.state.answers import AnswerStore, StoredAnswer
from antiphon_gateway.state.background import BackgroundAnswers
from antiphon_gateway.state.file import StateFile
from support.waiting import until_async

KEY = ("owner", "a1")


class Shape:
    """The object is its status."""

    def queued(self) -> bytes:
        return b'"queued"'

    def in_event(self, event: SseEvent) -> bytes | None:
        return event.data if event.event == b"status" else None

    def refused(self, response: Response) -> ProviderError:
        return ProviderError(str(response.status), "server")

    def ended(self, last: bytes, ending: Any, error: ProviderError | None) -> bytes:
        return msgspec.json.encode(f"{msgspec.json.decode(last)}, {ending}" + (f": {error.message}" if error else ""))


class Reader:
    """A client that follows."""

    def __init__(self) -> None:
        self.data = b""
        self.is_ended = False

    def write(self, data: bytes) -> None:
        self.data += data

    def end_stream(self) -> None:
        self.is_ended = True

    def abort_stream(self) -> None:
        raise AssertionError


def respond_with(*pieces: bytes, gate: asyncio.Event | None = None) -> Any:
    async def stream() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece
        if gate is not None:
            await gate.wait()

    async def respond() -> Response:
        return Response(body=stream())

    return respond


def answers(path: Path | str = "") -> tuple[BackgroundAnswers, AnswerStore]:
    store = AnswerStore(StateFile(path))
    return BackgroundAnswers(store), store


def stored(at: AnswerStore) -> StoredAnswer:
    found = at.find("a1", "owner")
    assert found is not None
    return found


async def run_to_the_end() -> None:
    here, store = answers()
    answer = await here.start(KEY, Shape(), respond_with(b'event: status\ndata: "done"\n\n'), seconds=20)
    await answer.wait()
    await until_async(lambda: stored(store).status == "ended")
    assert answer.body == stored(store).body == b'"done"'


def test_the_last_object_of_an_answer_is_stored() -> None:
    asyncio.run(run_to_the_end())


def test_another_worker_shows_and_cancels_an_answer(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(background, "SHARE_SECONDS", 0.02)

    async def run() -> None:
        (here, _), (there, store) = answers(tmp_path / "state.db"), answers(tmp_path / "state.db")
        answer = await here.start(KEY, Shape(), respond_with(gate=asyncio.Event()), seconds=20)
        assert (stored(store).body, stored(store).status) == (b'"queued"', "running")
        assert not await there.cancel(KEY), "it does not run there"
        store.request_cancel("a1", "owner")
        await until_async(lambda: answer.is_over)
        await until_async(lambda: stored(store).status == "ended")
        assert stored(store).body == b'"queued, cancelled"'

    asyncio.run(run())


def test_a_follower_elsewhere_learns_that_the_worker_died(monkeypatch: Any) -> None:
    monkeypatch.setattr(background, "SHARE_SECONDS", 0.01)
    now = [1000.0]
    store = AnswerStore(StateFile(seconds=500, clock=lambda: now[0]))
    store.begin("a1", "owner", b"{}", seconds=60)
    store.add_events("a1", "owner", 0, [b"one", b"two"])

    async def follow() -> list[bytes]:
        seen = []
        async for piece in background.follow_stored(store, KEY, 0, comment=b":", silence=0.01, cut=b"cut"):
            seen.append(piece)
            if piece == b":":
                now[0] = 1061.0
        return seen

    assert asyncio.run(follow()) == [b"two", b":", b"cut"]


def test_a_follower_elsewhere_gets_the_events_after_the_complete_answer(monkeypatch: Any) -> None:
    monkeypatch.setattr(background, "SHARE_SECONDS", 0.01)
    store = AnswerStore(StateFile())
    store.begin("a1", "owner", b"{}", seconds=60)
    store.store("a1", ModelRequest(), ModelOutput(), owner="owner", body=b"{}")

    async def follow() -> list[bytes]:
        seen = []
        async for piece in background.follow_stored(store, KEY, -1, comment=b":", silence=0.01, cut=b"cut"):
            if piece != b":":
                seen.append(piece)
            elif not seen:
                store.add_events("a1", "owner", 0, [b"one", b"end"])
                store.finish("a1", "owner", b"{}")
        return seen

    assert asyncio.run(follow()) == [b"oneend"]


class SlowStore(AnswerStore):
    """A store whose first write of events is slow; `failures` are the calls that fail, once each."""

    def __init__(self, file: StateFile) -> None:
        super().__init__(file)
        self.is_asked = threading.Event()
        self.failures: list[str] = []

    def add_events(self, answer_id: str, owner: str, first: int, events: Sequence[bytes]) -> None:
        self._fail("add_events")
        if not self.is_asked.is_set():
            self.is_asked.set()
            time.sleep(0.3)
        super().add_events(answer_id, owner, first, events)

    def find(self, answer_id: str, owner: str) -> StoredAnswer | None:
        self._fail("find")
        return super().find(answer_id, owner)

    def _fail(self, call: str) -> None:
        if call in self.failures:
            self.failures.remove(call)
            raise StoreError("the file is locked")


def events_elsewhere(path: Path) -> Any:
    """All that a follower at another worker gets of the answer."""
    there = AnswerStore(StateFile(path))
    return background.follow_stored(there, KEY, -1, comment=b"", silence=60, cut=b"cut")


def test_an_answer_that_ends_while_its_events_are_stored_keeps_them_all(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(background, "SHARE_SECONDS", 0.02)

    async def run() -> None:
        store, gate = SlowStore(StateFile(tmp_path / "state.db")), asyncio.Event()
        answer = await BackgroundAnswers(store).start(KEY, Shape(), respond_with(b"data: 1\n\n", gate=gate), seconds=20)
        await until_async(store.is_asked.is_set)
        answer.write(b"data: 2\n\n")
        gate.set()
        await until_async(lambda: not stored(store).is_open)
        assert b"".join([piece async for piece in events_elsewhere(tmp_path / "state.db")]) == b"".join(answer.events)

    asyncio.run(run())


def test_a_store_that_fails_for_a_moment_loses_no_event_and_no_cancellation(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(background, "SHARE_SECONDS", 0.02)

    async def run() -> None:
        store = SlowStore(StateFile(tmp_path / "state.db"))
        store.is_asked.set()
        store.failures = ["add_events", "find"]
        here = BackgroundAnswers(store)
        answer = await here.start(KEY, Shape(), respond_with(b"data: 1\n\n", gate=asyncio.Event()), seconds=20)
        await until_async(lambda: not store.failures)
        await until_async(lambda: store.events("a1", "owner", -1) == answer.events)
        store.request_cancel("a1", "owner")
        await until_async(lambda: answer.is_over)

    asyncio.run(run())


def test_an_answer_that_takes_hours_keeps_its_events_until_it_ends() -> None:
    now = [1000.0]
    store = AnswerStore(StateFile(clock=lambda: now[0]))
    store.begin("a1", "owner", b"{}", seconds=8 * 3600)
    store.add_events("a1", "owner", 0, [b"one", b"two"])
    now[0] += 2 * 3600
    store.add_events("a1", "owner", 2, [b"three"])
    store.begin("a2", "owner", b"{}", seconds=60)  # it makes room
    assert store.events("a1", "owner", -1) == [b"one", b"two", b"three"]
    store.finish("a1", "owner", b"{}")
    assert store.events("a1", "owner", -1) == [b"three"]
    store.begin("a3", "owner", b"{}", seconds=60)
    now[0] -= 2 * 3600
    assert store.events("a1", "owner", -1) == [b"three"], "the others were deleted"


def test_an_answer_that_takes_too_long_fails() -> None:
    async def run() -> None:
        here, store = answers()
        answer = await here.start(KEY, Shape(), respond_with(gate=asyncio.Event()), seconds=0.05)
        await answer.wait()
        await until_async(lambda: stored(store).body != b'"queued"')
        assert b"failed: the answer was not complete after 0.05 s" in stored(store).body

    asyncio.run(run())


def test_a_deleted_answer_stays_deleted() -> None:
    async def run() -> None:
        here, store = answers()
        await here.start(KEY, Shape(), respond_with(gate=asyncio.Event()), seconds=20)
        store.delete("a1", "owner")
        assert await here.cancel(KEY)
        assert store.find("a1", "owner") is None

    asyncio.run(run())


def test_a_slow_follower_gets_everything_later() -> None:
    async def run() -> None:
        gate = asyncio.Event()
        here, _ = answers()
        pieces = [b"data: 1\n\n", b"data: 2\n\n", b"data: 3\n\n"]
        answer = await here.start(KEY, Shape(), respond_with(*pieces, gate=gate), seconds=20)
        slow, late = Reader(), Reader()
        follower = answer.follow()
        follower.pause()
        follower.start(slow)
        await until_async(lambda: len(answer.events) == 3)
        assert slow.data == b""
        follower.resume()
        assert slow.data == b"".join(pieces)
        gate.set()
        await until_async(lambda: slow.is_ended)
        answer.follow(after=1).start(late)
        assert (late.data, late.is_ended) == (pieces[2], True)

    asyncio.run(run())


def test_closing_cancels_all() -> None:
    async def run() -> None:
        here, _ = answers()
        answer = await here.start(KEY, Shape(), respond_with(gate=asyncio.Event()), seconds=20)
        await here.aclose()
        assert (answer.is_over, answer.ending) == (True, "cancelled")

    asyncio.run(run())
