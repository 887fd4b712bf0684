"""Events of a run as server-sent events, for Starlette, FastAPI and any other ASGI framework.

    async def answer(request: Request) -> Response:
        async def turn() -> AsyncIterator[ap.LoopEvent]:
            async with ap.Conversation("anthropic/claude-…", store=store, resume=request.path_params["id"]) as chat:
                async for event in ap.ToolLoop(chat).stream((await request.json())["text"]):
                    yield event

        return sse_response(turn())

Each event is one message: its name after `event:`, and its JSON after `data:`, with the name in the field `type`. The response
closes the generator, also if the client leaves: then the run is interrupted, and what the model had written is in the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from antiphon.errors import ExtraMissing

if TYPE_CHECKING:
    from starlette.responses import StreamingResponse

logger = logging.getLogger("antiphon.integrations")

KEEP_ALIVE_SECONDS = 15.0
HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}
"""No cache and no proxy may hold events back."""

_WAITING = 16
"""How many events wait for a slow client; then the run waits."""


def encode_event(event: object) -> bytes:
    """One event as a message: `event: TextDelta`, `data: {"type":"TextDelta","text":"…"}`."""
    config = getattr(event, "__struct_config__", None)
    name = str(config.tag) if config is not None and config.tag is not None else type(event).__name__
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(event, enc_hook=_to_json_value))


async def event_stream(events: AsyncIterable[Any], *, keep_alive: float = KEEP_ALIVE_SECONDS) -> AsyncIterator[bytes]:
    """The events as the body of a `text/event-stream`; a comment every `keep_alive` seconds while there is none.

    `events` is read in one task and closed at the end. If it raises, the error is logged, and the last message is `Error`.
    """
    queue: asyncio.Queue[bytes | None] = asyncio.Queue(_WAITING)
    reading = asyncio.ensure_future(_read(events, queue))
    try:
        while True:
            try:
                message = await asyncio.wait_for(queue.get(), keep_alive)
            except TimeoutError:
                yield b": keep-alive\n\n"
                continue
            if message is None:
                return
            yield message
    finally:
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading


async def _read(events: AsyncIterable[Any], queue: asyncio.Queue[bytes | None]) -> None:
    try:
        async for event in events:
            await queue.put(encode_event(event))
    except Exception as error:
        logger.exception("a stream of events ended with an error")
        # The class alone: the text may hold what is not the client's.
        await queue.put(b'event: Error\ndata: {"type":"Error","error":"%b"}\n\n' % type(error).__name__.encode())
    finally:
        if (close := getattr(events, "aclose", None)) is not None:
            await close()
    await queue.put(None)


def sse_response(events: AsyncIterable[Any], *, keep_alive: float = KEEP_ALIVE_SECONDS) -> StreamingResponse:
    """The events as a response of Starlette or FastAPI."""
    try:
        from starlette.responses import StreamingResponse
    except ImportError as error:
        raise ExtraMissing("sse_response needs Starlette or FastAPI: pip install starlette") from error
    return StreamingResponse(
        event_stream(events, keep_alive=keep_alive), media_type="text/event-stream", headers=HEADERS
    )


def _to_json_value(value: Any) -> Any:
    dump = getattr(type(value), "model_dump", None)
    return dump(value, mode="json") if callable(dump) else str(value)
