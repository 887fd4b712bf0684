"""Refusals by a limit in the log: one line at once, then one line per interval with the number of the others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from antiphon_gateway.access.accounts import LimitReached
from antiphon_gateway.access.client_keys import ClientKey, hash_key
from antiphon_gateway.config.settings import ClientKeySettings
from antiphon_gateway.observe.recorder import RefusalLog
from gateway.rig import FAST, rig

BEN = ClientKey(name="ben", tokens_per_day=100)
EVE = ClientKey(name="eve", budget_per_day=1.0)
TOKENS = LimitReached(limit="tokens_per_day", used=120, allowed=100, wait=3600.0)
MONEY = LimitReached(limit="budget_per_day", used=1.25, allowed=1.0, wait=3600.0)
HELLO = {"messages": [{"role": "user", "content": "Hello"}]}


class Timer:
    """Calls what is due when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def __call__(self, _: float, function: Callable[[], None]) -> None:
        self.waiting.append(function)

    def ring(self) -> None:
        due, self.waiting = self.waiting, []
        for function in due:
            function()


def refusals(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if getattr(record, "event", "") == "limit_reached"]


def test_a_flood_of_refusals_is_one_line_and_then_one_per_interval(caplog: pytest.LogCaptureFixture) -> None:
    timer = Timer()
    log = RefusalLog(later=timer)
    for _ in range(1000):
        log.add(BEN, TOKENS)
    (first,) = refusals(caplog)
    assert first.getMessage() == "request of key ben refused: tokens_per_day reached"
    shown = vars(first)
    assert (shown["key"], shown["limit"], shown["used"], shown["allowed"]) == ("ben", "tokens_per_day", 120, 100)
    assert (shown["retry_seconds"], shown["reset"][-1]) == (3600.0, "Z")
    timer.ring()
    (_, second) = refusals(caplog)
    assert second.getMessage() == "999 more requests of key ben refused: tokens_per_day reached"
    assert vars(second)["left_out"] == 999
    timer.ring()  # an interval without refusals
    log.add(BEN, TOKENS)
    assert [vars(record).get("left_out", 0) for record in refusals(caplog)] == [0, 999, 0]


def test_keys_and_limits_have_lines_of_their_own(caplog: pytest.LogCaptureFixture) -> None:
    timer = Timer()
    log = RefusalLog(later=timer)
    for _ in range(3):
        log.add(BEN, TOKENS)
        log.add(EVE, MONEY)
    assert [vars(record)["key"] for record in refusals(caplog)] == ["ben", "eve"]
    timer.ring()
    assert [(vars(record)["key"], vars(record)["left_out"]) for record in refusals(caplog)[2:]] == [
        ("ben", 2),
        ("eve", 2),
    ]
    timer.ring()
    assert timer.waiting == [], "nothing is remembered of a key that is not refused any more"


def test_the_event_loop_ends_the_interval(caplog: pytest.LogCaptureFixture) -> None:
    async def refuse_twice() -> None:
        log = RefusalLog(interval=0.0)
        log.add(BEN, TOKENS)
        log.add(BEN, TOKENS)
        async with asyncio.timeout(20):
            while len(refusals(caplog)) < 2:
                await asyncio.sleep(0)

    asyncio.run(refuse_twice())
    assert vars(refusals(caplog)[1])["left_out"] == 1


def test_a_refused_request_has_one_line_with_its_id(caplog: pytest.LogCaptureFixture) -> None:
    keys = [ClientKeySettings(name="ben", key=hash_key("sk-ben"), requests_per_minute=1)]
    with rig(FAST, keys=keys) as gateway, gateway.client("sk-ben") as client:
        assert client.ask("openai-chat", "to-openai-chat", HELLO, streams=False).status == 200
        assert [client.ask("openai-chat", "to-openai-chat", HELLO, streams=False).status for _ in range(5)] == [429] * 5
        lines = refusals(caplog)
    assert [(vars(line)["limit"], line.levelname) for line in lines] == [("requests_per_minute", "WARNING")]
