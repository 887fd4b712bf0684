"""Replays over a WebSocket, and the times of a played stream."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import pytest

from antiphon_devtools.cassettes import player
from antiphon_devtools.cassettes.player import PlayedStream
from antiphon_devtools.cassettes.tape import RecordedAnswer
from cassettes.test_record_and_replay import exchanges, recording, replaying
from gateway.rig import Rig


def test_requests_over_a_websocket_are_recorded_and_played(tmp_path: Path) -> None:
    pytest.importorskip("wsproto")
    pytest.importorskip("websockets")
    from gateway.endpoints.responses_api.test_websocket import Connection

    path = tmp_path / "tape.db"
    with recording(path) as gateway, Connection(gateway) as connection:
        connection.send(model="to-openai-chat", input="Hi.", store=False)
        live = connection.turn()
        connection.send(
            model="to-openai-chat", input="And?", store=False, previous_response_id=live[-1]["response"]["id"]
        )
        more = connection.turn()
    assert [exchange.request.path for exchange in exchanges(path)] == ["/v1/responses"] * 2
    with replaying(path) as port, Connection(Rig({}, (port, 0))) as connection:
        connection.send(model="to-openai-chat", input="Hi.", store=False)
        assert connection.turn() == live
        connection.send(
            model="to-openai-chat", input="And?", store=False, previous_response_id=live[-1]["response"]["id"]
        )
        assert connection.turn() == more
        missed = connection.ask("to-openai-chat", "Something else.")
        assert (missed["type"], missed["status"]) == ("error", 404)
        assert 'recorded "Hi.", sent "Something else."' in missed["error"]["message"]


class SimulatedLoop:
    """A clock that only its timers advance."""

    def __init__(self) -> None:
        self.now = 0.0
        self.due: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[[], None]) -> SimulatedLoop:
        return self.call_later(0, callback)

    def call_later(self, delay: float, callback: Callable[[], None]) -> SimulatedLoop:
        self.due.append((self.now + delay, callback))
        return self

    def cancel(self) -> None:
        self.due.clear()

    def step(self) -> None:
        self.now, callback = self.due.pop(0)
        callback()


class Client:
    """Notes what it gets and when."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.events: list[tuple[float, object]] = []

    def write(self, data: bytes) -> None:
        self.events.append((self.loop.now, data))

    def end_stream(self) -> None:
        self.events.append((self.loop.now, "end"))

    def abort_stream(self) -> None:
        self.events.append((self.loop.now, "cut"))


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> SimulatedLoop:
    simulated = SimulatedLoop()
    asyncio: Any = vars(player)["asyncio"]
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: simulated)
    return simulated


PIECES = [(0, b"a"), (500_000, b"b"), (1_500_000, b"c")]


@pytest.mark.parametrize(("speed", "times"), [(1.0, [0, 0.5, 1.5]), (2.0, [0, 0.25, 0.75]), (inf, [0, 0, 0])])
@pytest.mark.parametrize("is_cut", [True, False])
def test_pieces_come_at_their_times(loop: SimulatedLoop, speed: float, times: list[float], is_cut: bool) -> None:
    client = Client(loop)
    stream = PlayedStream(RecordedAnswer(status=200, is_stream=True, is_cut=is_cut, pieces=PIECES), speed)
    stream.start(client)
    while loop.due:
        loop.step()
    expected = [*zip(times, (b"a", b"b", b"c"), strict=True), (times[-1], "cut" if is_cut else "end")]
    assert client.events == expected


def test_a_slow_client_pauses_the_stream_and_one_that_left_ends_it(loop: SimulatedLoop) -> None:
    client = Client(loop)
    stream = PlayedStream(RecordedAnswer(status=200, is_stream=True, pieces=PIECES), inf)
    stream.start(client)
    stream.pause()
    loop.step()
    assert client.events == []
    stream.resume()
    assert len(client.events) == 4
    left = PlayedStream(RecordedAnswer(status=200, is_stream=True, pieces=PIECES), 1.0)
    left.start(client)
    loop.step()
    left.cancel()
    assert loop.due == []
