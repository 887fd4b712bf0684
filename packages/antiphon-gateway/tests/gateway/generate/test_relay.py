"""The relay between two connections: what the client gets, and what is recorded when either side ends, stalls or breaks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest

from antiphon.errors import TransportError
from antiphon.http.body import IteratedFlow
from antiphon.http.client.request import HttpResponse
from antiphon.providers.engine.reply import ResponseReader, StreamReply
from antiphon.wire import formats
from antiphon.wire.output import ProviderError
from antiphon_gateway.generate.channels import Same, StreamFailed
from antiphon_gateway.generate.frame import StreamFrame
from antiphon_gateway.generate.relay import Relay
from antiphon_gateway.generate.whole_body import Whole
from antiphon_gateway.observe.record import Record
from http_ends.client.raw_host import LOOPS, run_on
from providers.sample_answers import STREAMS

CHAT = STREAMS["openai-chat"]
WIRE = formats["openai-chat"]


class FakeClient:
    """A client's connection that keeps what it gets."""

    def __init__(self) -> None:
        self.data = b""
        self.end = ""
        self.changed = asyncio.Event()

    def write(self, data: bytes) -> None:
        self.data += data
        self.changed.set()

    def end_stream(self) -> None:
        self.end += "complete"
        self.changed.set()

    def abort_stream(self) -> None:
        self.end += "truncated"
        self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


class IteratedResponse(HttpResponse):
    """A response that is made while it is read."""

    status = 200

    def __init__(self, *pieces: bytes | Exception | asyncio.Event) -> None:
        self.taken = 0
        self.is_closed = asyncio.Event()
        self.flow = IteratedFlow(self, self._iterate(pieces))

    async def _iterate(self, pieces: tuple[bytes | Exception | asyncio.Event, ...]) -> AsyncGenerator[bytes, None]:
        try:
            for piece in pieces:
                self.taken += 1
                if isinstance(piece, Exception):
                    raise piece
                if isinstance(piece, bytes):
                    yield piece
                else:
                    await piece.wait()
        finally:
            self.is_closed.set()


class Attempt:
    is_closed = False

    def failed(self, error: ProviderError) -> ProviderError:
        return error

    def close(self) -> None:
        self.is_closed = True


class Started:
    """A relay that runs, with everything around it."""

    def __init__(self, *pieces: bytes | Exception | asyncio.Event, keep_alive: float = 20.0, **options: Any) -> None:
        self.response = IteratedResponse(*pieces)
        self.attempt = Attempt()
        self.statuses: list[int] = []
        self.record = Record(request_id="r", client_format="openai-chat")
        self.client = FakeClient()
        reply = StreamReply(ResponseReader(WIRE), self.response, self.response, self.attempt)  # type: ignore[arg-type]
        frame = StreamFrame(WIRE, "m", keep_alive)
        channel = options.pop("channel", Same)(frame, self.record, lambda error: error)
        self.relay = Relay(
            reply,
            channel,
            self.record,
            frame=frame,
            deadline=options.pop("deadline", time.monotonic() + 60),
            on_end=self.statuses.append,
            **options,
        )
        self.relay.start(self.client)

    async def end(self) -> None:
        await self.client.until(lambda: bool(self.client.end))


@pytest.mark.parametrize("loop", LOOPS)
def test_a_stream_is_passed_on_and_ended(loop: str) -> None:
    async def work() -> None:
        started = Started(CHAT[:40], CHAT[40:])
        await started.end()
        assert (started.client.data, started.client.end) == (CHAT, "complete")
        assert started.statuses == [200]
        assert started.record.error is None
        assert started.attempt.is_closed
        await asyncio.wait_for(started.response.is_closed.wait(), 20)

    run_on(loop, work())


def test_a_stream_that_breaks_ends_with_an_error() -> None:
    async def work() -> None:
        started = Started(CHAT[:120], TransportError("host closed the connection", "connection_lost"))
        await started.end()
        assert b"closed the connection" in started.client.data
        assert started.client.end == "complete"
        assert started.statuses == [200]
        assert started.record.error is not None
        assert started.record.error.kind == "stream_cut"

    run_on("asyncio", work())


def test_silence_is_filled_with_comments() -> None:
    async def work() -> None:
        more = asyncio.Event()
        started = Started(CHAT[:40], more, CHAT[40:], keep_alive=0.01)
        await started.client.until(lambda: started.client.data.count(b": keep-alive\n\n") >= 2)
        more.set()
        await started.end()
        assert started.client.data.replace(b": keep-alive\n\n", b"") == CHAT

    run_on("asyncio", work())


def test_a_stream_that_has_ended_is_not_waited_for() -> None:
    async def work() -> None:
        started = Started(CHAT, asyncio.Event(), keep_alive=0.01)
        await started.end()
        assert (started.client.data, started.client.end) == (CHAT, "complete")
        await asyncio.wait_for(started.response.is_closed.wait(), 20)

    run_on("asyncio", work())


def test_a_slow_client_pauses_the_upstream() -> None:
    async def work() -> None:
        pieces = [CHAT[at : at + 20] for at in range(0, len(CHAT), 20)]
        started = Started(*pieces, keep_alive=0.01)
        started.relay.pause()
        await asyncio.sleep(0.1)
        assert started.response.taken == 1
        assert b"keep-alive" not in started.client.data  # it would only wait in the buffer
        started.relay.resume()
        await started.end()
        assert started.client.data == CHAT

    run_on("asyncio", work())


@pytest.mark.parametrize(("seconds", "status"), [(60.0, 499), (-1.0, 504)])
def test_a_cancelled_stream_closes_the_upstream_and_is_recorded(seconds: float, status: int) -> None:
    async def work() -> None:
        started = Started(CHAT[:40], asyncio.Event(), deadline=time.monotonic() + seconds)
        await asyncio.sleep(0.01)
        started.relay.cancel()
        started.relay.cancel()
        await asyncio.wait_for(started.response.is_closed.wait(), 20)
        assert started.attempt.is_closed
        assert started.statuses == [status]
        assert started.client.end == ""

    run_on("asyncio", work())


class BrokenChannel(Same):
    def feed(self, data: bytes) -> bytes:
        raise ZeroDivisionError


def test_a_defect_of_ours_is_recorded_as_500_and_truncates_the_stream() -> None:
    async def work() -> None:
        started = Started(CHAT, channel=BrokenChannel)
        await started.end()
        assert started.client.end == "truncated"
        assert started.statuses == [500]
        assert started.attempt.is_closed
        assert isinstance(started.record.defect, ZeroDivisionError)

    run_on("asyncio", work())


class Recording:
    """A recording of an answer that ends with its first bytes."""

    is_ending = True

    def __init__(self, store: Callable[[], Awaitable[None]]) -> None:
        self.store = store

    async def keep_stream(self, last: bytes) -> None:
        assert CHAT.endswith(last)
        await self.store()


def test_the_stream_ends_after_what_must_happen_before() -> None:
    order: list[str] = []

    async def store() -> None:
        await asyncio.sleep(0.01)
        order.append("stored")

    async def work() -> None:
        started = Started(CHAT, recording=Recording(store))
        await started.client.until(lambda: started.client.data == CHAT)
        await started.end()
        assert order == ["stored"]
        assert started.statuses == [200]

    run_on("asyncio", work())


def test_leaving_while_a_response_is_stored_is_recorded() -> None:
    async def work() -> None:
        is_storing = asyncio.Event()

        async def store() -> None:
            is_storing.set()
            await asyncio.Event().wait()

        started = Started(CHAT, recording=Recording(store))
        await asyncio.wait_for(is_storing.wait(), 20)
        started.relay.cancel()
        assert started.statuses == [499]

    run_on("asyncio", work())


def test_bytes_after_the_end_are_limited() -> None:
    async def work() -> None:
        started = Started(CHAT, *[b": " + b"x" * 1000 + b"\n\n"] * 200)
        await started.end()
        assert len(started.client.data) < len(CHAT) + 70_000
        assert started.response.taken < 100

    run_on("asyncio", work())


def test_a_file_passes_unchanged_and_ends_where_it_was_cut() -> None:
    async def work() -> None:
        for pieces, end in (
            ((b"some", b" bytes"), "complete"),
            ((b"some", TransportError("lost", "connection_lost")), "truncated"),
        ):
            started = Started(*pieces, channel=lambda *_: Whole("application/octet-stream", Record(request_id="r")))
            await started.end()
            assert (started.client.data[:4], started.client.end) == (b"some", end)
            assert started.statuses == [200]

    run_on("asyncio", work())


class NoTarget:
    """A failover without another target."""

    stall_seconds = 0.05

    def __init__(self) -> None:
        self.asked: list[ProviderError] = []

    def may_continue(self, error: ProviderError) -> bool:
        self.asked.append(error)
        return False

    async def next_reply(self, error: ProviderError) -> StreamReply:
        raise StreamFailed(error)

    def close(self) -> None:
        """Nothing is held."""


def test_a_stalled_stream_without_another_target_is_waited_for() -> None:
    async def work() -> None:
        more, failover = asyncio.Event(), NoTarget()
        started = Started(CHAT[:40], more, CHAT[40:], failover=failover)
        async with asyncio.timeout(20):
            while not failover.asked:
                await asyncio.sleep(0.01)
        assert failover.asked[0].code == "stalled"
        more.set()
        await started.end()
        assert (started.client.data, started.client.end) == (CHAT, "complete")

    run_on("asyncio", work())
