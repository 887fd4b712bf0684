"""`TapePlayer`: answers API requests from a tape. It never asks a provider.

The gateway only admits requests and answers for itself (`/healthz`, `/status`).
Several recorded answers to the same request are played in the order in which they were recorded, and then the last one again. A
stream is played piece by piece, at once or with the recorded times. A request that was not recorded gets 404 in its client's
format, with the nearest recorded one and how it differs.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from math import inf
from typing import Any

import msgspec
from msgspec import Struct, structs

from antiphon.errors import TapeError
from antiphon.http.messages import ClientRequest, Response, ResponseStream
from antiphon.http.server.application import Handler
from antiphon.wire.output import ProviderError
from antiphon_devtools.cassettes.differences import describe_miss
from antiphon_devtools.cassettes.matching import ComparedRequest, MatchRules, RequestMatcher, read_request
from antiphon_devtools.cassettes.recorder import MAX_BODY_BYTES, TapeListener, WrappedHandler, is_recorded
from antiphon_devtools.cassettes.redaction import Redactor
from antiphon_devtools.cassettes.tape import RecordedAnswer, RecordedRequest, Tape
from antiphon_gateway.app import Gateway
from antiphon_gateway.config.file import (
    ADMIN_KEY_VARIABLE,
    CLIENT_KEY_VARIABLE,
    config_from_environment,
)
from antiphon_gateway.config.settings import Config, LedgerSettings
from antiphon_gateway.errors import error_response
from antiphon_gateway.routes import Endpoint
from antiphon_gateway.runtime.metered import MeteredRequest

logger = logging.getLogger("antiphon.gateway")

TAPE_HEADER = "x-antiphon-tape"
"""The exchange that an answer was played from, or `miss`."""
_LOCATIONS = frozenset({"location", "x-goog-upload-url"})
"""Headers that may lead the client back to the gateway that it was recorded at."""


_MOST_MISSES = 1000


class ReplayOptions(Struct, frozen=True):
    """How a tape is played. `speed` 1 is that of the recording, infinite is at once; `once` refuses to repeat an answer."""

    speed: float = inf
    once: bool = False
    rules: MatchRules = MatchRules()


class TapePlayer(TapeListener):
    """Plays `tape` to clients whose requests `gateway` admits."""

    def __init__(self, gateway: Gateway, tape: Tape, options: ReplayOptions | None = None) -> None:
        super().__init__(gateway, tape)
        self._options = options or ReplayOptions()
        self._redactor = Redactor(tape.redacted)
        self._matcher = RequestMatcher(self._options.rules)
        self._recorded: list[tuple[int, ComparedRequest]] = []
        self._numbers: dict[bytes, list[int]] = {}
        self._hosts: dict[int, str] = {}
        for request in tape.requests():
            self._add(request)
        self._played: dict[bytes, int] = {}
        self.misses: list[str] = []
        """Why requests had no recorded answer."""

    @property
    def count(self) -> int:
        """How many exchanges the tape has."""
        return len(self._recorded)

    @property
    def unplayed(self) -> list[int]:
        """The exchanges that were not played yet."""
        return sorted(
            number for digest, numbers in self._numbers.items() for number in numbers[self._played.get(digest, 0) :]
        )

    def admit(self, request: ClientRequest) -> Handler | Response:
        """Decide on a request without its body, as the gateway does."""
        handler = self._gateway.admit(request)
        if isinstance(handler, Response) or not isinstance(handler, MeteredRequest):
            return handler
        if handler.endpoint.action == "ready":
            return WrappedHandler(handler, self._ready)
        return WrappedHandler(handler, lambda: self._answer(handler)) if is_recorded(handler) else handler

    async def _ready(self) -> Response:
        return Response.json({"status": "ok", "exchanges": self.count})

    async def _answer(self, handler: MeteredRequest) -> Response:
        """Answer a request from the tape."""
        request = handler.request
        body = request.body if request.stream is None else await _read(request)
        sent, _ = read_request(
            self._redactor,
            method=request.method,
            path=request.path,
            query=request.query,
            headers=request.headers,
            body=body,
        )
        return await self._play(request, handler.endpoint, self._matcher.compared(sent))

    def _add(self, request: RecordedRequest) -> None:
        try:
            compared = self._matcher.compared(request)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise TapeError(
                f"exchange {request.id} of {self._tape.path} is damaged ({error}); "
                f"delete it: `antiphon tape delete {self._tape.path} {request.id}`"
            ) from error
        self._recorded.append((request.id, compared))
        self._numbers.setdefault(compared.digest, []).append(request.id)
        self._hosts[request.id] = request.headers.get("host", "")

    async def _play(self, request: ClientRequest, endpoint: Endpoint, sent: ComparedRequest) -> Response:
        numbers, turn = self._numbers.get(sent.digest, []), self._played.get(sent.digest, 0)
        if not numbers or (self._options.once and turn >= len(numbers)):
            return self._miss(endpoint, sent, numbers)
        self._played[sent.digest] = turn + 1
        number = numbers[min(turn, len(numbers) - 1)]
        answer = self._tape.answer(number)
        logger.info("%s %s -> exchange %d, status %d", request.method, request.path, number, answer.status)
        if self._options.speed != inf and answer.head_after:
            await self._wait(answer.head_after / 1_000_000 / self._options.speed)
        headers = {
            name: _moved(value, self._hosts[number], request.headers.get("host", "")) if name in _LOCATIONS else value
            for name, value in answer.headers.items()
        }
        headers[TAPE_HEADER] = str(number)
        is_whole = not answer.is_stream and not answer.is_cut
        played = answer.body if is_whole else PlayedStream(answer, self._options.speed)
        return Response(status=answer.status, headers=headers, body=played)

    async def _wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def _miss(self, endpoint: Endpoint, sent: ComparedRequest, numbers: list[int]) -> Response:
        if numbers:
            played = ", ".join(map(str, numbers[:8]))
            message = (
                f"the answers recorded for this {sent.method} {sent.path} were all played (exchange {played}), and "
                "--replay-once forbids to repeat the last; record more, or leave --replay-once out"
            )
        else:
            message = describe_miss(self._tape.path, self._recorded, sent)
        logger.warning("%s", message)
        if len(self.misses) < _MOST_MISSES:
            self.misses.append(message)
        error = ProviderError(message, "not_found", code="not_recorded")
        return error_response(endpoint.format, error, status=404, headers={TAPE_HEADER: "miss"})


def replay_config(environ: Mapping[str, str], overrides: Mapping[str, Any]) -> Config:
    """The configuration of a gateway that only plays: without providers, and with the client key of the environment if it is set.

    Raises `ConfigError` for overrides that are invalid.
    """
    own = {name: environ[name] for name in (CLIENT_KEY_VARIABLE, ADMIN_KEY_VARIABLE) if name in environ}
    config = config_from_environment(own, overrides=overrides).config
    return structs.replace(config, providers=(), models=(), ledger=LedgerSettings(enabled=False))


def player_of(path: str | os.PathLike[str], options: ReplayOptions) -> Callable[[Gateway], TapePlayer]:
    """Opens the tape in the process that plays it."""
    return lambda gateway: TapePlayer(gateway, Tape(path), options)


class PlayedStream:
    """A recorded stream as a source: its pieces when they are due, and its end, which may be a cut."""

    def __init__(self, answer: RecordedAnswer, speed: float) -> None:
        self._pieces = answer.pieces
        self._is_cut = answer.is_cut
        self._speed = speed
        self._next = 0
        self._is_paused = False
        self._loop = asyncio.get_running_loop()
        self._client: ResponseStream | None = None
        self._timer: asyncio.Handle | None = None
        self._started = 0.0

    def start(self, client: ResponseStream) -> None:
        """The head of the response is on its way."""
        self._client = client
        self._started = self._loop.time()
        # The head is written after this returns; a cut before that would take it along.
        self._timer = self._loop.call_soon(self._advance)

    def pause(self) -> None:
        """The client reads slowly."""
        self._is_paused = True

    def resume(self) -> None:
        """The client has caught up."""
        self._is_paused = False
        if self._timer is None:
            self._advance()

    def cancel(self, error: Exception | None = None) -> None:
        """The client left."""
        del error
        self._client = None
        if self._timer is not None:
            self._timer.cancel()

    def _advance(self) -> None:
        self._timer = None
        while self._client is not None and not self._is_paused:
            if self._next == len(self._pieces):
                client, self._client = self._client, None
                if self._is_cut:
                    client.abort_stream()
                else:
                    client.end_stream()
                return
            at, data = self._pieces[self._next]
            due = self._started + at / 1_000_000 / self._speed
            now = self._loop.time()
            if due > now:
                self._timer = self._loop.call_later(due - now, self._advance)
                return
            self._next += 1
            self._client.write(data)


async def _read(request: ClientRequest) -> bytes:
    """A body that is not read before its request is handled, up to the limit of a recording."""
    assert request.stream is not None
    pieces, size = [], 0
    async for piece in request.stream:
        if size < MAX_BODY_BYTES:
            pieces.append(piece[: MAX_BODY_BYTES - size])
        size += len(piece)
    return b"".join(pieces)


def _moved(url: str, recorded_host: str, host: str) -> str:
    """A URL of the gateway that was recorded, as one of this one."""
    return url.replace(f"://{recorded_host}/", f"://{host}/", 1) if recorded_host and host else url
