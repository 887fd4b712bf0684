"""Events reach a browser as server-sent events, over real servers; who leaves interrupts the run, and nothing is lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from antiphon.conversation import Conversation, LoopEvent, LoopFinished, TextDelta, ToolLoop
from antiphon.history import AgentHistory, ModelOutputEntry
from antiphon.integrations.sse import encode_event, event_stream, sse_response
from antiphon.providers.scripted import FunctionModel, ScriptedModel, call
from antiphon.tools import tool

starlette = pytest.importorskip("starlette")


@tool(effect="read")
def weather(city: str) -> str:
    "Current weather in a city."
    return f"rain in {city}"


def messages(body: bytes) -> list[tuple[str, Any]]:
    """The messages of a stream, as a browser reads them."""
    read = []
    for block in body.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if line and not line.startswith(":"))
        if fields:
            read.append((fields["event"], json.loads(fields["data"])))
    return read


async def collect(events: AsyncIterator[bytes]) -> bytes:
    return b"".join([piece async for piece in events])


def test_an_event_is_tagged_json() -> None:
    assert (
        encode_event(TextDelta("Grüße\n"))
        == 'event: TextDelta\ndata: {"type":"TextDelta","text":"Grüße\\n"}\n\n'.encode()
    )


def test_a_run_is_a_stream_of_messages() -> None:
    chat = Conversation(ScriptedModel(call("weather", city="Oslo"), "It rains."), tools=[weather])
    body = asyncio.run(collect(event_stream(ToolLoop(chat).stream("Rain?"))))
    read = messages(body)
    assert [name for name, _ in read][-1] == "LoopFinished"
    assert "".join(data["text"] for name, data in read if name == "TextDelta") == "It rains."
    assert all(data["type"] == name for name, data in read)


def test_silence_is_filled_and_errors_are_named() -> None:
    async def slow() -> AsyncIterator[LoopEvent]:
        await asyncio.sleep(0.25)
        yield TextDelta("late")
        raise ValueError("a secret")

    body = asyncio.run(collect(event_stream(slow(), keep_alive=0.1)))
    assert body.startswith(b": keep-alive\n\n")
    assert messages(body) == [
        ("TextDelta", {"type": "TextDelta", "text": "late"}),
        ("Error", {"type": "Error", "error": "ValueError"}),
    ]


def test_a_client_that_leaves_interrupts_the_run_and_its_text_is_kept() -> None:
    history = AgentHistory()

    async def forever(*_: Any) -> AsyncIterator[str]:
        yield "It rains"
        await asyncio.Event().wait()
        yield "never"

    async def leave() -> list[str]:
        closed: list[str] = []

        async def turn() -> AsyncIterator[LoopEvent]:
            async with Conversation(FunctionModel(forever, chunk_size=None), history=history) as chat:
                async for event in ToolLoop(chat).stream("Rain?"):
                    yield event
            closed.append("unreachable: the stream was left")

        stream = event_stream(turn())
        async for piece in stream:
            if b"It rains" in piece:
                break
        await stream.aclose()  # type: ignore[attr-defined]  # what Starlette does when a client leaves
        return closed

    assert asyncio.run(leave()) == []
    (output,) = [entry for entry in history.entries if isinstance(entry, ModelOutputEntry)]
    assert output.response_markdown == "It rains"


def app_of(kind: str) -> Any:
    """The same route in Starlette and in FastAPI."""

    async def turn(text: str) -> AsyncIterator[LoopEvent]:
        async with Conversation(ScriptedModel(call("weather", city="Oslo"), "It rains."), tools=[weather]) as chat:
            async for event in ToolLoop(chat).stream(text):
                yield event

    if kind == "fastapi":
        fastapi = pytest.importorskip("fastapi", reason="make integrations installs FastAPI")
        app = fastapi.FastAPI()

        async def answer(message: dict[str, str]) -> Any:
            return sse_response(turn(message["text"]))

        app.post("/chat", response_model=None)(answer)
        return app
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.routing import Route

    async def reply(request: Request) -> Any:
        return sse_response(turn((await request.json())["text"]))

    return Starlette(routes=[Route("/chat", reply, methods=["POST"])])


@pytest.mark.parametrize("kind", ["starlette", "fastapi"])
def test_a_route_of_a_framework_streams_a_run(kind: str) -> None:
    httpx = pytest.importorskip("httpx")

    async def ask() -> Any:
        transport = httpx.ASGITransport(app=app_of(kind))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.post("/chat", json={"text": "Rain?"})

    response = asyncio.run(ask())
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-cache"
    read = messages(response.content)
    assert read[-1][0] == LoopFinished.__name__
    assert read[-1][1]["text"] == "It rains."
