"""The offline provider as an upstream: no network, no key; clients of all formats get responses.

It takes Chat Completions bodies and returns the bytes of a stream or of a whole response, like any other upstream.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from antiphon.context import LiveContext, RenderedContextEntry
from antiphon.gateway.generate.upstream import StreamReply, UpstreamFailed, WholeReply
from antiphon.history import ContextEntry, ContextEntryRole, ModelInputEntry, ModelOutputEntry, ToolCallResultsEntry
from antiphon.parts import ToolCallResult
from antiphon.providers.call import Attempt, ProviderCallOptions
from antiphon.providers.engine.response_reader import ResponseReader
from antiphon.providers.offline import OfflineModel
from antiphon.wire import formats
from antiphon.wire.delta import Assembler, Failed
from antiphon.wire.output import ProviderError
from antiphon.wire.request import Message, ModelRequest, ToolDefinition


class OfflineUpstream:
    """Answers by rules, and states that it does."""

    pool = None
    secrets: tuple[str, ...] = ()
    format = "openai-chat"
    wire = formats["openai-chat"]
    accepts_unchanged_bodies = True
    reports_stream_usage = False
    wire_options: Mapping[str, Any] = {}

    def __init__(self, name: str = "offline") -> None:
        self.name = name
        self._model = OfflineModel()

    async def ask(
        self,
        model: str,
        body: Sequence[bytes],
        *,
        streams: bool,
        attempts: list[Attempt],
        **_: Any,
    ) -> WholeReply | StreamReply:
        """Answer a request body."""
        request = self.wire.read_request(b"".join(body))
        options = ProviderCallOptions(
            model=model, tools=tuple(tool for tool in request.tools if isinstance(tool, ToolDefinition))
        )
        deltas = self._model.call_model(LiveContext(context_from_request(request)), options)
        if streams:
            attempts.append(Attempt(provider=self.name, model=model, status=200))
            response = _Response(self._streamed(deltas, model))
            return StreamReply([], [], response.headers, ResponseReader(self.wire), response, None)
        assembler = Assembler()
        async with aclosing(deltas):  # type: ignore[type-var]
            async for delta in deltas:
                assembler.add(delta)
        attempts.append(Attempt(provider=self.name, model=model, status=200, error=assembler.error))
        if assembler.error is not None:
            raise UpstreamFailed(assembler.error)
        return WholeReply(self.wire.encode_response(assembler.output).data, {})

    def scrub(self, error: ProviderError) -> ProviderError:
        """It has no secrets."""
        return error

    async def _streamed(self, deltas: AsyncIterator[Any], model: str) -> AsyncIterator[bytes]:
        writer = self.wire.stream_writer(model)
        async with aclosing(deltas):  # type: ignore[type-var]
            async for delta in deltas:
                if written := writer.write(delta):
                    yield written
                if isinstance(delta, Failed):
                    return
        yield writer.close()


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
