"""A turn reports that the provider is waited for, before the answer comes."""

from __future__ import annotations

import asyncio

import msgspec

import antiphon as ap
from antiphon.conversation import RetryScheduled
from providers.http_client import CHAT, ERROR_429, client_of
from providers.scripted_server import Reply, ScriptedServer


def test_a_turn_reports_the_wait_for_a_rate_limit() -> None:
    async def run(chat: ap.Conversation) -> list[ap.LoopEvent]:
        return [event async for event in ap.ToolLoop(chat).stream("Rain?")]

    limited = msgspec.structs.replace(ERROR_429, headers={"retry-after": "40"})
    with ScriptedServer(limited, Reply(body=CHAT)) as server:
        events = asyncio.run(run(ap.Conversation(client_of(server))))
    kinds = [type(event).__name__ for event in events]
    assert kinds[:4] == ["EntryAppended", "RoundStarted", "RetryScheduled", "TextDelta"]
    (wait,) = (event for event in events if isinstance(event, RetryScheduled))
    assert (wait.seconds >= 40, wait.error.kind, wait.error.retry_after) == (True, "rate_limit", 40.0)
