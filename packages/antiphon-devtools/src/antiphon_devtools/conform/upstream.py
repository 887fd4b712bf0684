"""The mock providers: one port per format. They answer as the script of the current case says, and record what arrives.

A request that the real API would refuse gets the 400 of that API, so a gateway sees what it would see in production.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from antiphon.json_text import read_json
from antiphon_devtools.conform.conversation import Answer, Violation
from antiphon_devtools.conform.formats import FORMATS
from antiphon_devtools.conform.http_server import Connection, RawServer, Request
from antiphon_devtools.conform.rules import violations

HOLD_SECONDS = 12.0
_BETWEEN_EVENTS = 0.05
HTML = b"<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>"


class Fault(Struct, frozen=True, forbid_unknown_fields=True):
    """What the provider does instead of answering."""

    status: int = 0
    """Answer every request with this status."""
    retry_after: int | None = None
    body: Literal["error", "html", "malformed", "empty"] = "error"
    slow_seconds: float = 0.0
    """Wait before the head, then answer."""
    error_event_after: int | None = None
    """Send an error event after so many events of a stream."""
    reset: bool = False
    """Reset the connection before the head."""
    close_after: bool = False
    """Answer, then close the connection without notice: the next request must not be lost with it."""


class Cut(Struct, frozen=True):
    """End a stream after `place` events; `inside` adds half of the next one. `torn` leaves the chunked body unfinished."""

    place: int
    inside: bool = False
    torn: bool = True


class Script(Struct, frozen=True):
    """What a provider does for one case."""

    answer: Answer = Answer()
    fault: Fault = Fault()
    cut: Cut | None = None
    hold: Literal["", "head", "stream"] = ""
    """Hold a request open, before its head or in its stream, until the client leaves."""


class ReceivedRequest(Struct):
    """One request at a provider."""

    format: str
    path: str
    body: Any
    violations: list[Violation] = []
    is_generation: bool = True
    held_seconds: float | None = None
    """How long a held request stayed open; `None` if it was not closed by the gateway."""


class MockProviders(RawServer):
    """Providers of every format. `begin` sets the script and forgets what arrived before."""

    def __init__(self, ports: Mapping[str, int]) -> None:
        super().__init__(ports)
        self._lock = threading.Lock()
        self._script = Script()
        self._arrived: list[ReceivedRequest] = []

    def begin(self, script: Script) -> None:
        with self._lock:
            self._script, self._arrived = script, []

    def arrived(self) -> list[ReceivedRequest]:
        """The requests for an answer since `begin`."""
        with self._lock:
            return [each for each in self._arrived if each.is_generation]

    def other_paths(self) -> list[str]:
        """The paths of other requests since `begin`: a gateway that asks for a wrong path is named in the report."""
        with self._lock:
            return [f"{each.format}: {each.path}" for each in self._arrived if not each.is_generation]

    async def respond(self, request: Request, connection: Connection) -> bool:
        known = FORMATS[request.service]
        body = read_json(request.body)
        path = request.path.partition("?")[0]
        is_generation = request.method == "POST" and known.endpoint.generates(path)
        arrived = ReceivedRequest(request.service, request.path, body, is_generation=is_generation)
        if is_generation:
            arrived.violations = violations(request.service, body, path)
        with self._lock:
            self._arrived.append(arrived)
            script = self._script
        if not is_generation:
            if request.method == "GET" and path.rstrip("/").endswith("/models"):
                await connection.send_json(200, {"object": "list", "data": [], "models": []})
            else:
                await connection.send_json(404, known.write_error(404, f"no such path: {path}"))
            return True
        if arrived.violations:
            await connection.send_json(400, known.write_error(400, arrived.violations[0].message))
            return True
        return await _ProviderAnswer(self, script, arrived, request, connection).run()

    def is_current(self, script: Script) -> bool:
        """Whether the case of this script still runs."""
        return self._script is script


class _ProviderAnswer:
    """One answer."""

    def __init__(
        self,
        providers: MockProviders,
        script: Script,
        arrived: ReceivedRequest,
        request: Request,
        connection: Connection,
    ) -> None:
        self._providers = providers
        self._script = script
        self._arrived = arrived
        self._connection = connection
        self._format = FORMATS[request.service]
        body, path = arrived.body, request.path
        in_path = path.rpartition("/models/")[2].partition(":")[0]
        self._model = str(body.get("model") or in_path)
        self._streams = bool(body.get("stream")) or ":streamGenerateContent" in path
        self._is_array = ":streamGenerateContent" in path and "alt=sse" not in path
        self._has_usage = bool((body.get("stream_options") or {}).get("include_usage"))

    async def run(self) -> bool:
        fault, connection = self._script.fault, self._connection
        if self._script.hold == "head":
            return await self._hold()
        if fault.slow_seconds:
            await asyncio.sleep(fault.slow_seconds)
        if fault.reset:
            connection.reset()
            return False
        if fault.status:
            await self._fail(fault)
            return True
        if self._streams:
            return await self._stream()
        await connection.send_json(200, self._format.write_answer(self._script.answer, self._model))
        return not fault.close_after

    async def _fail(self, fault: Fault) -> None:
        headers = f"retry-after: {fault.retry_after}\r\n" if fault.retry_after is not None else ""
        match fault.body:
            case "error":
                value = self._format.write_error(fault.status, f"conform: provider fault {fault.status}")
                await self._connection.send_json(fault.status, value, headers)
            case "html":
                await self._connection.send(fault.status, HTML, "text/html", headers)
            case "malformed":
                await self._connection.send(fault.status, b'{"id": "x", "choices": [{', "application/json", headers)
            case "empty":
                await self._connection.send(fault.status, b"", "application/json", headers)

    async def _hold(self, events: list[bytes] | None = None) -> bool:
        """Stay silent, or send an event now and then as a model does, until the gateway closes the connection."""
        began, place = time.monotonic(), 0
        while self._providers.is_current(self._script) and time.monotonic() - began < HOLD_SECONDS:
            try:
                if events is not None:
                    await self._connection.send_chunk(events[min(place, len(events) // 2)])
                    place += 1
                is_closed = await self._connection.wait_closed(_BETWEEN_EVENTS)
            except ConnectionError:  # closed while it was written
                is_closed = True
            if is_closed:
                self._arrived.held_seconds = time.monotonic() - began
                break
        return False

    async def _stream(self) -> bool:
        script, connection = self._script, self._connection
        events = self._format.write_events(script.answer, self._model, has_usage=self._has_usage)
        await connection.start_stream("application/json" if self._is_array else "text/event-stream; charset=utf-8")
        if self._is_array:
            events = [(b"," if place else b"[") + each[6:].strip() for place, each in enumerate(events)] + [b"]"]
        if script.hold == "stream":
            return await self._hold(events)
        cut, error_after = script.cut, script.fault.error_event_after
        for place, event in enumerate(events):
            if place == error_after:
                await connection.send_chunk(self._format.error_event("conform: provider fault in the stream"))
                break
            if cut is not None and place == cut.place:
                if cut.inside:
                    await connection.send_chunk(event[: len(event) // 2])
                if cut.torn:
                    return False
                break
            await connection.send_chunk(event)
        await connection.end_stream()
        return not script.fault.close_after
