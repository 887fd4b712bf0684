"""Entries for the page: the stored JSON with its position; large media by reference, as they are stored."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from antiphon.chat.markdown import blocks_json
from antiphon.chat.spending import cost_of_entry
from antiphon.context import render_live_context
from antiphon.conversation.turn import EntryPosition
from antiphon.errors import ConversationError
from antiphon.history import (
    AgentHistory,
    AgentHistorySnapshot,
    CompactionEntry,
    HistoryEntry,
    ModelInputEntry,
    ModelOutputEntry,
    Origin,
    ToolCallFinishedEntry,
    ToolCallResultsEntry,
)
from antiphon.history.attachments import INLINE_LIMIT, digest, extract_media
from antiphon.history.transcript import entry_lines
from antiphon.parts import Audio, Document, Image, Refusal, Text, Thinking, ToolCallResult
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.default_model import PREFERRED
from antiphon.providers.http_provider import HttpProviderClient
from antiphon.providers.presets import PRESETS
from antiphon.providers.transport.request import HttpRequest, HttpResponse
from antiphon.wire import FORMATS, formats
from antiphon.wire.request import ModelRequest, ToolDefinition

_EXCERPT = 200


def entry_json(entry: HistoryEntry, place: EntryPosition, *, is_effective: bool = True) -> bytes:
    """The entry as JSON."""
    stored = extract_media(entry)[0].rstrip()
    facts = msgspec.json.encode({"turn": place.turn, "round": place.round, "effective": is_effective} | _cost(entry))
    blocks = b',"blocks":[' + b",".join(_blocks(entry)) + b"]" if isinstance(entry, _DRAWN) else b""
    return stored[:-1] + blocks + b"," + facts[1:]


def _cost(entry: HistoryEntry) -> dict[str, str | None]:
    """The cost of a model call in dollars; None if its price is not known."""
    if not isinstance(entry, ModelOutputEntry):
        return {}
    cost = cost_of_entry(entry)
    return {"cost": str(cost) if cost is not None else None}


_DRAWN = (ModelOutputEntry, CompactionEntry)
_WRITTEN = (Text, Thinking, Refusal)


def _blocks(entry: ModelOutputEntry | CompactionEntry) -> Iterator[bytes]:
    """The text of each part as blocks of Markdown, `null` for other parts; of a compaction, its summary."""
    if isinstance(entry, CompactionEntry):
        yield blocks_json(entry.summary)
    else:
        yield from (blocks_json(part.text) if isinstance(part, _WRITTEN) else b"null" for part in entry.content)


def draw_ahead(entries: Iterable[HistoryEntry]) -> None:
    """Parse the Markdown of entries before their JSON is written; call it in a thread, because a long log has much."""
    for entry in entries:
        if isinstance(entry, _DRAWN):
            deque(_blocks(entry), maxlen=0)


def entry_row(entry: HistoryEntry, place: EntryPosition, *, is_effective: bool, tokens: int | None) -> dict[str, Any]:
    """The entry as a row of the timeline."""
    metadata = entry.metadata
    text = " ".join(" ".join(entry_lines(entry))[: _EXCERPT * 4].split())
    return {
        "sequence_number": entry.sequence_number,
        "kind": entry.kind,
        "timestamp": entry.timestamp,
        "turn": place.turn,
        "round": place.round,
        "effective": is_effective,
        "seconds": metadata.duration if metadata else None,
        "tokens": tokens,
        "excerpt": text if len(text) <= _EXCERPT else text[: _EXCERPT - 1] + "…",
    }


def media_in(entries: Iterable[HistoryEntry], name: str) -> tuple[str, bytes] | None:
    """The media type and the bytes of the attachment of that name, if an entry has it."""
    for entry in entries:
        for part in _parts(entry):
            if (
                isinstance(part, Image | Audio | Document)
                and len(part.data) > INLINE_LIMIT
                and digest(part.data) == name
            ):
                return part.media_type, b64decode(part.data)
    return None


def _parts(entry: HistoryEntry) -> Iterable[Any]:
    if isinstance(entry, ModelInputEntry | ModelOutputEntry):
        return entry.content
    results: tuple[ToolCallResult, ...] = ()
    if isinstance(entry, ToolCallResultsEntry):
        results = entry.results
    elif isinstance(entry, ToolCallFinishedEntry):
        results = (entry.result,)
    return (part for result in results for part in result.content)


MAX_VALUE_CHARS = 64 * 1024
_SHOWN = 400
_FAKE_URL = "http://nowhere.invalid"

_MODELS = dict(PREFERRED)
_TARGETS = {
    "openai-chat": Origin("openai", "openai-chat", _MODELS["openai"]),
    "openai-responses": Origin("openai-responses", "openai-responses", _MODELS["openai"]),
    "anthropic": Origin("anthropic", "anthropic", _MODELS["anthropic"]),
    "gemini": Origin("gemini", "gemini", _MODELS["gemini"]),
    "gemini-interactions": Origin("gemini-interactions", "gemini-interactions", _MODELS["gemini"]),
}
"""The model used for each format."""


def provider_bodies(
    entries: Sequence[HistoryEntry], tools: tuple[ToolDefinition, ...], settings: ModelRequest
) -> dict[str, Any]:
    """The request body for each provider after these entries, by format. Run it in a thread: a long conversation is slow."""
    snapshot = AgentHistory(entries).snapshot()

    async def views() -> dict[str, Any]:
        return {name: await _view(snapshot, target_of(snapshot, name), tools, settings) for name in FORMATS}

    return asyncio.run(views())


def target_of(snapshot: AgentHistorySnapshot, format_name: str) -> Origin:
    """The model that answered last in that format, or the default for it."""
    for entry in reversed(snapshot.effective):
        if isinstance(entry, ModelOutputEntry) and entry.origin and entry.origin.format == format_name:
            return entry.origin
    return _TARGETS[format_name]


async def _view(
    snapshot: AgentHistorySnapshot, target: Origin, tools: tuple[ToolDefinition, ...], settings: ModelRequest
) -> dict[str, Any]:
    preset = PRESETS.get(target.provider)
    if preset is None or preset.format != target.format:  # a host of one's own
        preset = PRESETS["compatible" if target.format == "openai-chat" else _TARGETS[target.format].provider]
    notepad = _CapturingTransport()
    client = HttpProviderClient(
        preset, name=target.provider, base_url=preset.base_url or _FAKE_URL, keys=["shown"], transport=notepad
    )
    options = ProviderCallOptions(model=target.model, tools=tools, settings=settings)
    data = await notepad.body_of(client.call_model(render_live_context(snapshot), options))
    body = msgspec.json.decode(data)
    return {
        "model": "/".join(filter(None, (target.provider, target.model))),
        "body": _shortened(body),
        "bytes": len(data),
        "losses": options.report.losses,
        "repairs": options.report.repairs,
        "violations": formats[target.format].check_request(body, advisories=True, **client.wire_options),
    }


class _CapturingTransport:
    """A transport that records the body of a request and sends nothing."""

    def __init__(self) -> None:
        self._body: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def send(self, request: HttpRequest) -> HttpResponse:
        self._body.set_result(b"".join(request.body))
        await asyncio.Event().wait()  # until the call is cancelled
        raise AssertionError("this transport never answers")

    async def aclose(self) -> None:
        pass

    async def body_of(self, deltas: AsyncIterator[Any]) -> bytes:
        """The body that a call would send."""
        calling = asyncio.ensure_future(anext(deltas))
        await asyncio.wait([calling, self._body], return_when=asyncio.FIRST_COMPLETED)
        calling.cancel()
        await asyncio.wait([calling])
        if not self._body.done():
            raise ConversationError(f"the request cannot be written: {calling.result()}")
        return self._body.result()


def _shortened(value: Any) -> Any:
    """The value with only the beginning of its longest strings."""
    if isinstance(value, str):
        return value if len(value) <= MAX_VALUE_CHARS else f"{value[:_SHOWN]}… ({len(value):,} characters)"
    if isinstance(value, list):
        return [_shortened(one) for one in value]
    if isinstance(value, dict):
        return {name: _shortened(one) for name, one in value.items()}
    return value
