"""The offline provider: no network, no key; clients of all formats get responses.

It is a provider like any other, whose transport is a model in this process: it takes Chat Completions bodies and returns the
bytes of a stream or of a whole response.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from antiphon.context import LiveContext, RenderedContextEntry
from antiphon.history import ContextEntry, ContextEntryRole, ModelInputEntry, ModelOutputEntry, ToolCallResultsEntry
from antiphon.http.client.request import HttpRequest, HttpResponse, Timeouts
from antiphon.parts import ToolCallResult
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.engine.provider import Provider
from antiphon.providers.engine.reply import UpstreamFailed
from antiphon.providers.presets import Preset
from antiphon.providers.retry import RetryPolicy
from antiphon.providers.router import build_client
from antiphon.wire import formats
from antiphon.wire.delta import Assembler, Failed
from antiphon.wire.request import Message, ModelRequest, ToolDefinition

OFFLINE_URL = "offline:"
_PRESET = Preset(
    name="offline",
    format="openai-chat",
    base_url=OFFLINE_URL,
    auth="none",
    dialect="openai",
    needs_key=False,
    serves_only_generation=True,
)
_wire = formats["openai-chat"]


def offline_provider(name: str = "offline") -> Provider:
    """Answers with the guided tour, which is not a language model and says so."""
    return Provider(
        name,
        _PRESET,
        OFFLINE_URL,
        keys=None,
        transport=_OfflineTransport(),
        headers={},
        timeouts=Timeouts(),
        retry=RetryPolicy(retries=0, rotations=0),
        holds_streams=False,
    )


def is_offline(provider: Provider) -> bool:
    """Whether a provider is the offline one."""
    return provider.base_url == OFFLINE_URL


class _OfflineTransport:
    def __init__(self) -> None:
        self._model = build_client("offline", {})

    async def send(self, request: HttpRequest) -> HttpResponse:
        """Answer a request body. Raises `UpstreamFailed`."""
        asked = _wire.read_request(b"".join(request.body))
        options = ProviderCallOptions(
            model=asked.model,
            tools=tuple(tool for tool in asked.tools if isinstance(tool, ToolDefinition)),
            settings=asked,
        )
        deltas = self._model.call_model(LiveContext(context_from_request(asked)), options)
        if asked.stream:
            return HttpResponse.of(200, {}, _streamed(deltas, asked.model))
        assembler = Assembler()
        async with aclosing(deltas):  # type: ignore[type-var]
            async for delta in deltas:
                assembler.add(delta)
        if assembler.error is not None:
            raise UpstreamFailed(assembler.error)
        return HttpResponse.of(200, {}, _wire.encode_response(assembler.output).data)

    async def aclose(self) -> None:
        """Nothing is open."""


async def _streamed(deltas: AsyncIterator[Any], model: str) -> AsyncGenerator[bytes, None]:
    writer = _wire.stream_writer(model)
    async with aclosing(deltas):  # type: ignore[type-var]
        async for delta in deltas:
            if written := writer.write(delta):
                yield written
            if isinstance(delta, Failed):
                return
    yield writer.close()


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
