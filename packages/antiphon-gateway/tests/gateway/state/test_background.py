"""Background answers without HTTP: two workers with one file, answers that outlive their process, and slow followers."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from antiphon.errors import StoreError
from antiphon.http.body import Governor
from antiphon.http.messages import Response, ResponseStream
from antiphon.wire import formats
from antiphon.wire.output import ModelOutput, ProviderError
from antiphon.wire.request import ModelRequest
from antiphon.wire.streams.sse import SseEvent, SseReader
from antiphon_gateway.state import background
from antiphon_gateway.state.answers import NO_EVENTS, AnswerStore, Events, StoredAnswer
from antiphon_gateway.state.background import BackgroundAnswer, BackgroundAnswers
from antiphon_gateway.state.file import StateFile
from antiphon_gateway.state.generated import AnswerShape
from support.waiting import until_async

KEY = ("owner", "a1")


WIRE = formats["openai-responses"]
SILENT = WIRE.spec.keep_alive


class Shape(AnswerShape):
    """The object is its status."""

    wire = WIRE

    def queued(self) -> bytes:
        return b'"queued"'

    def in_event(self, event: SseEvent) -> bytes | None:
        return event.data if event.event == b"status" else None

    def ended(self, last: bytes, ending: Any, error: ProviderError | None) -> bytes:
        return msgspec.json.encode(f"{msgspec.json.decode(last)}, {ending}" + (f": {error.message}" if error else ""))

    def end_event(self, ended: bytes, number: int) -> SseEvent:
        return SseEvent(b"end", b"%b, %d events" % (ended, number))


class Pieces:
    """A stream of these, which ends when `gate` is set."""

    def __init__(self, pieces: Sequence[bytes], gate: asyncio.Event | None) -> None:
        self.pieces = pieces
        self.gate = gate
        self.task: asyncio.Task[None] | None = None

    def start(self, client: ResponseStream) -> None:
        async def send() -> None:
            for piece in self.pieces:
                client.write(piece)
            if self.gate is not None:
                await self.gate.wait()
            client.end_stream()

        self.task = asyncio.create_task(send())

    def pause(self) -> None:
        raise AssertionError

    def resume(self) -> None:
        raise AssertionError

    def cancel(self, error: Exception | None = None) -> None:
        assert error is None
        assert self.task is not None
        self.task.cancel()


async def start(
    here: BackgroundAnswers, store: AnswerStore, *pieces: bytes, gate: asyncio.Event | None = None, seconds: float = 20
) -> BackgroundAnswer:
    async def respond() -> Response:
        return Response(body=Pieces(pieces, gate))

    answer = BackgroundAnswer(KEY, Shape("a1", b""), store, Governor().hold("owner"))
    await here.start(answer, respond, seconds, b"")
    return answer


def answers(path: Path | str = "") -> tuple[BackgroundAnswers, AnswerStore]:
    store = AnswerStore(StateFile(path))
    return BackgroundAnswers(store), store


def stored(at: AnswerStore) -> StoredAnswer:
    found = at.find("a1", "owner")
    assert found is not None
    return found


async def run_to_the_end() -> None:
    here, store = answers()
    answer = await start(here, store, b'event: status\ndata: "done"\n\n')
    await answer.wait()
    await until_async(lambda: stored(store).status == "ended")
    assert answer.body == stored(store).body == b'"done"'


def test_the_last_object_of_an_answer_is_stored() -> None:
    asyncio.run(run_to_the_end())


def test_another_worker_shows_and_cancels_an_answer(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(background, "SHARE_SECONDS", 0.02)

    async def run() -> None:
        (here, own), (there, store) = answers(tmp_path / "state.db"), answers(tmp_path / "state.db")
        answer = await start(here, own, gate=asyncio.Event())
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
    store.begin("a1", "owner", b'{"id":"a1"}')
    store.share("a1", "owner", (0, [b"one", b"two"]))

    async def follow() -> list[bytes]:
        seen = []
        async for piece in BackgroundAnswers(store).follow(KEY, 0, WIRE, 0.01):
            seen.append(piece)
            if piece == SILENT:
                now[0] = 1011.0
        return seen

    two, silent, cut = asyncio.run(follow())
    assert (two, silent) == (b"two", SILENT)
    (end,) = (msgspec.json.decode(event.data) for event in SseReader().feed(cut))
    assert (end["type"], end["sequence_number"], end["response"]["id"]) == ("response.failed", 2, "a1")
    assert end["response"]["error"]["message"] == "the process that generated this answer has ended"


def test_the_last_events_of_a_complete_answer_are_stored_with_it(monkeypatch: Any) -> None:
    monkeypatch.setattr(background, "SHARE_SECONDS", 60)

    async def run() -> None:
        here, store = answers()
        answer = await start(here, store, b"data: 1\n\n", gate=asyncio.Event())
        await until_async(lambda: answer.events)
        events = answer.unstored(b"data: 2\n\ndata: 3\n\n")
        store.store("a1", ModelRequest(), ModelOutput(), owner="owner", body=b"{}", events=events)
        assert [piece async for piece in BackgroundAnswers(store).follow(KEY, -1, WIRE, 60)] == [
            b"data: 1\n\ndata: 2\n\ndata: 3\n\n"
        ]
        await here.aclose()

    asyncio.run(run())


class SlowStore(AnswerStore):
    """A store whose first write of events is slow; `failures` are the calls that fail, once each."""

    def __init__(self, file: StateFile) -> None:
        super().__init__(file)
        self.is_asked = threading.Event()
        self.failures: list[str] = []

    def share(self, answer_id: str, owner: str, events: Events) -> bool:
        self._fail("share")
        if not self.is_asked.is_set():
            self.is_asked.set()
            time.sleep(0.3)
        return super().share(answer_id, owner, events)

    def finish(self, answer_id: str, owner: str, body: bytes, events: Events = NO_EVENTS) -> None:
        self._fail("finish")
        super().finish(answer_id, owner, body, events)

    def _fail(self, call: str) -> None:
        if call in self.failures:
            self.failures.remove(call)
            raise StoreError("the file is locked")


def events_elsewhere(path: Path) -> Any:
    """All that a follower at another worker gets of the answer."""
    there = AnswerStore(StateFile(path))
    return BackgroundAnswers(there).follow(KEY, -1, WIRE, 60)


def test_an_answer_that_ends_while_its_events_are_stored_keeps_them_all(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(background, "SHARE_SECONDS", 0.02)

    async def run() -> None:
        store, gate = SlowStore(StateFile(tmp_path / "state.db")), asyncio.Event()
        answer = await start(BackgroundAnswers(store), store, b"data: 1\n\n", gate=gate)
        await until_async(store.is_asked.is_set)
        answer.write(b"data: 2\n\n")
        gate.set()
        await until_async(lambda: stored(store).status == "ended")
        assert b"".join([piece async for piece in events_elsewhere(tmp_path / "state.db")]) == b"".join(answer.events)

    asyncio.run(run())


def test_a_store_that_fails_for_a_moment_loses_no_event_and_no_cancellation(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(background, "SHARE_SECONDS", 0.02)

    async def run() -> None:
        store = SlowStore(StateFile(tmp_path / "state.db"))
        store.is_asked.set()
        store.failures = ["share"]
        here = BackgroundAnswers(store)
        answer = await start(here, store, b"data: 1\n\n", gate=asyncio.Event())
        await until_async(lambda: not store.failures)
        await until_async(lambda: store.events("a1", "owner", -1) == answer.events)
        store.request_cancel("a1", "owner")
        await until_async(lambda: answer.is_over)

    asyncio.run(run())


def test_an_answer_that_takes_hours_keeps_its_events_until_it_ends() -> None:
    now = [1000.0]
    store = AnswerStore(StateFile(clock=lambda: now[0]))
    store.begin("a1", "owner", b"{}")
    store.share("a1", "owner", (0, [b"one", b"two"]))
    now[0] += 2 * 3600
    store.share("a1", "owner", (2, [b"three"]))
    store.begin("a2", "owner", b"{}")  # it makes room
    assert store.events("a1", "owner", -1) == [b"one", b"two", b"three"]
    store.finish("a1", "owner", b"{}")
    assert store.events("a1", "owner", -1) == [b"three"]
    store.begin("a3", "owner", b"{}")
    now[0] -= 2 * 3600
    assert store.events("a1", "owner", -1) == [b"three"], "the others were deleted"


def test_an_answer_that_takes_too_long_fails() -> None:
    async def run() -> None:
        here, store = answers()
        answer = await start(here, store, gate=asyncio.Event(), seconds=0.05)
        await answer.wait()
        await until_async(lambda: stored(store).body != b'"queued"')
        assert b"failed: the answer was not complete after 0.05 s" in stored(store).body

    asyncio.run(run())


def test_a_deleted_answer_stays_deleted() -> None:
    async def run() -> None:
        here, store = answers()
        await start(here, store, gate=asyncio.Event())
        store.delete("a1", "owner")
        assert await here.cancel(KEY)
        assert store.find("a1", "owner") is None

    asyncio.run(run())


def test_a_slow_follower_gets_everything_later_and_a_late_one_what_the_store_has() -> None:
    async def run() -> None:
        gate = asyncio.Event()
        here, store = answers()
        pieces = [b"data: 1\n\n", b"data: 2\n\n", b"data: 3\n\n"]
        answer = await start(here, store, pieces[0], gate=gate)
        slow = here.follow(KEY, -1, WIRE, 60)
        assert await anext(slow) == pieces[0]
        for piece in pieces[1:]:
            answer.write(piece)
        assert await anext(slow) == b"".join(pieces[1:])
        gate.set()
        assert [piece async for piece in slow] == []
        await asyncio.wait({answer.task})
        assert answer.hold.size == 0
        assert [piece async for piece in here.follow(KEY, 1, WIRE, 60)] == pieces[2:]

    asyncio.run(run())


def test_comments_of_a_silent_stream_do_not_delay_keep_alives() -> None:
    async def run() -> None:
        here, store = answers()
        answer = await start(here, store, gate=asyncio.Event())

        async def comment() -> None:
            while True:
                answer.write(b": still there\n\n")
                await asyncio.sleep(0.01)

        commenting = asyncio.create_task(comment())
        async with asyncio.timeout(20):
            assert await anext(here.follow(KEY, -1, WIRE, 0.1)) == SILENT
        commenting.cancel()
        await here.aclose()

    asyncio.run(run())


def test_an_answer_whose_end_cannot_be_stored_is_shown_by_its_worker() -> None:
    async def run() -> None:
        store = SlowStore(StateFile())
        store.is_asked.set()
        store.failures = ["finish"]
        here = BackgroundAnswers(store)
        answer = await start(here, store, b'event: status\ndata: "done"\n\n')
        await asyncio.wait({answer.task})
        found = await here.find(KEY, WIRE.name)
        assert found is not None
        assert found.body == answer.body
        assert not await here.cancel(KEY), "it has ended"
        assert [piece async for piece in here.follow(KEY, -1, WIRE, 60)] == answer.events

    asyncio.run(run())


def test_closing_cancels_all() -> None:
    async def run() -> None:
        here, store = answers()
        answer = await start(here, store, gate=asyncio.Event())
        await here.aclose()
        assert (answer.is_over, answer.ending) == (True, "cancelled")

    asyncio.run(run())
