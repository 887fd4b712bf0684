"""The offline provider: no network, no key; clients of all formats get responses.

It takes Chat Completions bodies and returns the bytes of a stream or of a whole response, like any other provider.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from antiphon.context import LiveContext, RenderedContextEntry
from antiphon.history import ContextEntry, ContextEntryRole, ModelInputEntry, ModelOutputEntry, ToolCallResultsEntry
from antiphon.parts import ToolCallResult
from antiphon.providers.call import Attempt, CallReport, ProviderCallOptions
from antiphon.providers.credentials.pool import Lease
from antiphon.providers.engine.attempt import judge
from antiphon.providers.engine.reply import Reply, StreamReply, UpstreamFailed, WholeReply
from antiphon.providers.engine.response_reader import ResponseReader
from antiphon.providers.retry import ONE_ATTEMPT
from antiphon.providers.router import build_client
from antiphon.wire import formats
from antiphon.wire.delta import Assembler, Failed
from antiphon.wire.output import ProviderError
from antiphon.wire.request import Message, ModelRequest, ToolDefinition


class OfflineProvider:
    """Answers with the guided tour, which is not a language model and says so."""

    pool = None
    secrets: tuple[str, ...] = ()
    format = "openai-chat"
    wire = formats["openai-chat"]
    accepts_unchanged_bodies = True
    reports_stream_usage = False
    streams_only = False
    wire_options: Mapping[str, Any] = {}

    def __init__(self, name: str = "offline") -> None:
        self.name = name
        self._model = build_client("offline", {})

    def call(
        self, model: str, body: Sequence[bytes], *, streams: bool, read: Callable[[bytes], Any] | None = None
    ) -> OfflineCall:
        """A request, prepared; `read` as for `UpstreamRequest`."""
        return OfflineCall(self, model, body, streams=streams, read=read)

    def scrub(self, error: ProviderError) -> ProviderError:
        """It has no secrets."""
        return error

    async def answer(self, model: str, body: bytes, *, streams: bool) -> WholeReply | StreamReply:
        """Answer a request body. Raises `UpstreamFailed`."""
        request = self.wire.read_request(body)
        options = ProviderCallOptions(
            model=model,
            tools=tuple(tool for tool in request.tools if isinstance(tool, ToolDefinition)),
            settings=request,
        )
        deltas = self._model.call_model(LiveContext(context_from_request(request)), options)
        if streams:
            response = _Response(self._streamed(deltas, model))
            return StreamReply([], [], response.headers, ResponseReader(self.wire), response)
        assembler = Assembler()
        async with aclosing(deltas):  # type: ignore[type-var]
            async for delta in deltas:
                assembler.add(delta)
        if assembler.error is not None:
            raise UpstreamFailed(assembler.error)
        return WholeReply(self.wire.encode_response(assembler.output).data, {})

    async def _streamed(self, deltas: AsyncIterator[Any], model: str) -> AsyncIterator[bytes]:
        writer = self.wire.stream_writer(model)
        async with aclosing(deltas):  # type: ignore[type-var]
            async for delta in deltas:
                if written := writer.write(delta):
                    yield written
                if isinstance(delta, Failed):
                    return
        yield writer.close()


class OfflineCall:
    """A request for the offline provider, which is also its one attempt."""

    settings = ONE_ATTEMPT
    should_retry = None
    sleep: Callable[[float], Awaitable[object]] = staticmethod(asyncio.sleep)

    def __init__(
        self,
        provider: OfflineProvider,
        model: str,
        body: Sequence[bytes],
        *,
        streams: bool,
        read: Callable[[bytes], Any] | None,
    ) -> None:
        self._provider = provider
        self._model = model
        self._body = body
        self.streams = streams
        self._read = read
        self._report = CallReport()

    def attempt(self, lease: Lease | None, time_left: float | None, report: CallReport) -> OfflineCall:
        """The one attempt."""
        del lease, time_left
        self._report = report
        return self

    def judge(self, reply: Reply) -> ProviderError | None:
        """Why a reply is not an answer; None if it is one."""
        return judge(reply, self._read, self._provider.name)

    async def run(self) -> WholeReply | StreamReply:
        """Answer. Raises `UpstreamFailed`."""
        return await self._provider.answer(self._model, b"".join(self._body), streams=self.streams)

    def succeeded(self, reply: Reply) -> None:
        """Record the answer."""
        del reply
        self._record(None)

    def failed(self, error: ProviderError) -> ProviderError:
        """Record the failure."""
        self._record(error)
        return error

    def close(self) -> None:
        """Nothing is open."""

    def _record(self, error: ProviderError | None) -> None:
        record = Attempt(provider=self._provider.name, model=self._model, status=200, error=error)
        self._report.attempts.append(record)


class _Response:
    """A stream in the form of an HTTP response."""

    status = 200
    headers: Mapping[str, str] = {}

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces

    @property
    def body(self) -> AsyncIterator[bytes]:
        return self._pieces

    async def aclose(self) -> None:
        await self._pieces.aclose()  # type: ignore[attr-defined]


def context_from_request(request: ModelRequest) -> list[ContextEntry]:
    """The messages of a request as the entries a model would see."""
    return [entry for message in request.messages for entry in _entries_for(message)]


def _entries_for(message: Message) -> list[ContextEntry]:
    if message.role in ("system", "developer"):
        return [RenderedContextEntry(ContextEntryRole.SYSTEM, message.parts)]
    if message.role == "assistant":
        return [ModelOutputEntry(message.parts)]  # type: ignore[arg-type]
    results = tuple(part for part in message.parts if isinstance(part, ToolCallResult))
    others = tuple(part for part in message.parts if not isinstance(part, ToolCallResult))
    entries: list[ContextEntry] = [ToolCallResultsEntry(results)] if results else []
    return [*entries, ModelInputEntry(others)] if others else entries  # type: ignore[arg-type]
