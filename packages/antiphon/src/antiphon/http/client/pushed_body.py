"""`push_body`: the body of any response, delivered by callbacks.

A response of `HttpClient` delivers its body itself, without a task. One of another transport (a caller's own, a model in this
process) may only be iterable: a task iterates over it then, and calls the receiver.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Protocol, cast

from antiphon.errors import TransportError
from antiphon.http.client.connection import BodyReceiver
from antiphon.http.client.request import HttpResponse

logger = logging.getLogger("antiphon.http")


class PushedBody(Protocol):
    """The rest of a body. After `abort` nothing more is delivered."""

    def deliver_to(self, receiver: BodyReceiver) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def abort(self) -> None: ...


def push_body(response: HttpResponse, pieces: AsyncIterator[bytes]) -> PushedBody:
    """The body that `pieces`, an iterator of `response`, has not delivered yet."""
    return cast("PushedBody", response) if hasattr(response, "deliver_to") else _IteratedBody(response, pieces)


class _IteratedBody:
    def __init__(self, response: HttpResponse, pieces: AsyncIterator[bytes]) -> None:
        self._response = response
        self._pieces = pieces
        self._may_run = asyncio.Event()
        self._may_run.set()
        self._task: asyncio.Task[None] | None = None
        self._closing: asyncio.Future[None] | None = None

    def deliver_to(self, receiver: BodyReceiver) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(receiver))

    def pause(self) -> None:
        self._may_run.clear()

    def resume(self) -> None:
        self._may_run.set()

    def abort(self) -> None:
        task, self._task = self._task, None
        if task is None:
            self._closing = asyncio.ensure_future(self._response.aclose())  # kept: nothing else refers to it
        elif task is not asyncio.current_task():
            task.cancel()

    async def _run(self, receiver: BodyReceiver) -> None:
        failure: TransportError | None = None
        try:
            async for piece in self._pieces:
                receiver.on_body(piece)
                if self._task is None:
                    return  # aborted by the receiver
                await self._may_run.wait()
        except TransportError as error:
            failure = TransportError(str(error), error.code)  # without a traceback
        except Exception:
            logger.exception("internal error while receiving a response")
            failure = TransportError("internal error while receiving the response", "internal_error")
        finally:
            await self._response.aclose()
        if failure is not None:
            receiver.on_failure(failure)
        else:
            receiver.on_complete()
