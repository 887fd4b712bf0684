"""Whatever a provider does over real sockets, the turn ends, the history is valid, and `resume` repeats no tool."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.conversation import Conversation, LoopFinished, ToolLoop
from antiphon.history import DebugLogEntry
from antiphon.http.client.request import Timeouts
from antiphon.parts import OutputPart, Text, ToolCallRequest
from antiphon.providers.http_provider import HttpProviderClient
from antiphon.providers.retry import RetryPolicy
from antiphon.tools import ToolContext, tool
from antiphon.wire import FORMATS, ModelOutput, formats
from antiphon.wire.delta import Finished, deltas_from_output
from providers.sample_answers import PRESET_OF
from providers.scripted_server import Reply, ScriptedServer
from support.planned_turns import MODELS, refusals

ONCE = RetryPolicy(retries=0, rotations=0)
HURRIED = Timeouts(connect=0.5, read=0.3, total=2.0)


def streamed(name: str, *parts: OutputPart) -> bytes:
    stop = "tool_calls" if any(isinstance(part, ToolCallRequest) for part in parts) else "end"
    writer = formats[name].stream_writer("m")
    output = ModelOutput(parts=parts, stop_reason=stop)  # type: ignore[arg-type]
    return b"".join(writer.write(delta) for delta in deltas_from_output(output, 4)) + writer.close()


def calling(name: str) -> bytes:
    return streamed(name, Text("I look."), ToolCallRequest("weather", "call_1", '{"city": "Oslo"}'))


def is_complete(name: str, beginning: bytes) -> bool:
    """Whether the answer is complete if the stream ends here: some providers send more after the end, and it may be missing."""
    reader = formats[name].stream_reader()
    return isinstance([*reader.feed(beginning), *reader.close()][-1], Finished)


class Town:
    """Counts how often it was asked for its weather."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def conversation(self, name: str, server: ScriptedServer, **settings: object) -> Conversation:
        @tool(effect="once")
        async def weather(city: str, context: ToolContext) -> str:
            "Current weather in a city."
            self.asked.append(context.tool_call_id)
            return f"Rain in {city}"

        client = HttpProviderClient(
            PRESET_OF[name],
            base_url=server.url,
            keys=["a-key"],
            timeouts=HURRIED,
            retry=ONCE,
            **settings,  # type: ignore[arg-type]
        )
        return Conversation(MODELS[name], provider=client, tools=[weather])


async def ended(loop: ToolLoop, *content: str) -> LoopFinished:
    events = [event async for event in loop.stream(*content)]
    assert isinstance(events[-1], LoopFinished)
    return events[-1]


@pytest.mark.parametrize("name", FORMATS)
def test_a_stream_cut_anywhere_ends_in_a_valid_history_and_is_asked_for_again(name: str) -> None:
    whole, answer = calling(name), streamed(name, Text("It rains."))
    town = Town()

    async def cut(place: int, server: ScriptedServer) -> None:
        server.play(Reply(body=whole, cut_after=place), Reply(body=whole), Reply(body=answer))
        town.asked.clear()
        chat = town.conversation(name, server)
        async with chat, chat.client:
            first = await ended(ToolLoop(chat), "Rain?")
            assert first.reason == "failed", f"cut after {place} of {len(whole)} bytes"
            assert town.asked == [], "a call that was cut off is not run"
            assert refusals(chat.history.snapshot()) == []
            again = await ended(ToolLoop(chat))
            assert (again.reason, again.text) == ("answered", "It rains.")
            assert len(town.asked) == 1
            assert refusals(chat.history.snapshot()) == []
            assert len(chat.messages) == 4, "the answer that was cut is in the log, and not before the model"

    async def cut_everywhere() -> None:
        with ScriptedServer(Reply()) as server:
            last = next(place for place in range(len(whole)) if is_complete(name, whole[:place]))
            for place in [*range(0, last, last // 25), last - 1]:
                await cut(place, server)

    asyncio.run(cut_everywhere())


FAULTS: dict[str, tuple[Reply, str]] = {
    "401": (
        Reply(status=401, body=b'{"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}}'),
        "authentication",
    ),
    "429 storm": (
        Reply(status=429, body=b'{"error": {"message": "Rate limit reached"}}', headers={"retry-after": "60"}),
        "rate_limit",
    ),
    "500": (Reply(status=500, body=b'{"error": {"message": "The server had an error"}}'), "server"),
    "503": (Reply(status=503, body=b"upstream connect error"), "overloaded"),
    "malformed JSON": (Reply(body=b"data: {nope\n\n"), ""),
    "an HTML page with 200": (Reply(body=b"<html><body>Sign in</body></html>", content_type="text/html"), ""),
    "an HTML page with 502": (Reply(status=502, body=b"<html>Bad gateway</html>", content_type="text/html"), "server"),
    "nothing with 200": (Reply(body=b""), ""),
    "silence": (Reply(status=0, hangs=True), "timeout"),
    "silence in mid-stream": (Reply(body=b": ping\n\n", hangs=True), ""),
    "closed at once": (Reply(status=0), ""),
    "reset": (Reply(body=b"data: ", is_reset=True, cut_after=3), ""),
    "an error within the stream": (
        Reply(body=b'data: {"error": {"message": "Overloaded", "type": "overloaded_error"}}\n\n'),
        "overloaded",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failing_provider_is_reported_and_the_turn_can_continue(fault: str) -> None:
    reply, kind = FAULTS[fault]
    town = Town()

    async def session() -> None:
        with ScriptedServer(Reply(body=calling("openai-chat")), reply) as server:
            chat = town.conversation("openai-chat", server)
            async with chat, chat.client:
                first = await ended(ToolLoop(chat), "Rain?")
                assert first.reason == "failed"
                assert first.error is not None
                assert kind in ("", first.error.kind), first.error
                assert len(town.asked) == 1
                assert refusals(chat.history.snapshot()) == []
                assert any(isinstance(entry, DebugLogEntry) for entry in chat.history.entries), "the log says so"
        # The key cools or is invalid: another client in another process continues the same history.
        with ScriptedServer(Reply(body=streamed("openai-chat", Text("It rains.")))) as server:
            later = town.conversation("openai-chat", server)
            again = Conversation(
                MODELS["openai-chat"], provider=later.client, tools=later.registry, history=chat.history
            )
            async with later.client:
                assert (await ended(ToolLoop(again))).text == "It rains."
                assert len(town.asked) == 1, "the tool that finished is not run again"

    asyncio.run(session())


def test_a_refused_connection() -> None:
    town = Town()

    async def session() -> None:
        with ScriptedServer(Reply()) as server:
            pass
        chat = town.conversation("anthropic", server)
        async with chat, chat.client:
            result = await ended(ToolLoop(chat), "Rain?")
            assert result.reason == "failed"
            assert refusals(chat.history.snapshot()) == []

    asyncio.run(session())
