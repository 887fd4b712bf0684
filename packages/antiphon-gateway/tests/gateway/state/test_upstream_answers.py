"""Where answers are that only their provider stored: bounded, and remembered by a file."""

from __future__ import annotations

import asyncio
from pathlib import Path

from antiphon_gateway.state.file import open_state_file
from antiphon_gateway.state.upstream_answers import UpstreamAnswer, UpstreamAnswers

HERE = UpstreamAnswer("openai", "env:KEY", "gpt-5")


def answers(path: Path | str = "", *, seconds: float = 100.0, limit: int = 3, now: list[float]) -> UpstreamAnswers:
    return UpstreamAnswers(open_state_file(path), seconds=seconds, limit=limit, clock=lambda: now[0])


def test_the_oldest_are_evicted_over_the_limit_and_all_after_their_lifetime() -> None:
    now = [0.0]
    store = answers(now=now)
    for number in range(5):
        now[0] += 1
        store.write({("me", f"resp_{number}"): HERE})
    assert [store.get(f"resp_{number}", "me") for number in range(5)] == [None, None, HERE, HERE, HERE]
    now[0] = 104.0
    assert [store.get(f"resp_{number}", "me") for number in (2, 3, 4)] == [None, None, HERE]
    assert store.get("resp_4", "another") is None
    store.forget("resp_4", "me")
    assert store.get("resp_4", "me") is None


def test_what_is_remembered_is_found_at_once_and_in_the_file_after_closing(tmp_path: Path) -> None:
    now = [1.0]

    async def remember() -> None:
        store = answers(tmp_path / "state.db", now=now)
        store.remember("resp_1", "me", HERE)
        assert store.get("resp_1", "me") == HERE
        await store.aclose()

    asyncio.run(remember())
    assert answers(tmp_path / "state.db", now=now).get("resp_1", "me") == HERE
