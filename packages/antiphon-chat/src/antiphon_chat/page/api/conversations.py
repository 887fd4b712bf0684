"""API handlers for conversations: list, create, show, change, delete, fork, roll back, compact, export, import."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct

from antiphon.context import TokenLedger
from antiphon.conversation import rounds_of
from antiphon.conversation.compaction import compact
from antiphon.history import ModelInputEntry, ModelOutputEntry, ShortenedResultsEntry, ToolCallResultsEntry
from antiphon.history.store import ConversationInfo
from antiphon.http.messages import Response
from antiphon.threads import STORES
from antiphon_chat.page.history_view import (
    cache_findings,
    draw_ahead,
    entry_json,
    entry_row,
    media_in,
    provider_bodies,
    words_of_calls,
)
from antiphon_chat.page.live_conversation import LiveConversation
from antiphon_chat.page.open_conversations import owner_tag
from antiphon_chat.page.request import ApiError, ChatRequest
from antiphon_chat.shared.conversations.changes import check_texts, clean_title, roll_back, set_texts, set_title
from antiphon_chat.shared.conversations.export import ExportFormat, export, file_name
from antiphon_chat.shared.conversations.importing import import_conversation
from antiphon_chat.shared.conversations.tags import is_pinned, organize, pin_tag, store_tag, tags_of
from antiphon_chat.shared.in_a_line import count_shortened
from antiphon_chat.shared.spending import spending_of
from antiphon_chat.shared.turn_limits import TurnLimits, limits_json, set_limits
from antiphon_chat.shared.uploads import IMAGE_TYPES

_MAX_PAGE_SIZE = 200
_EXPORT_TYPES: dict[ExportFormat, str] = {
    "markdown": "text/markdown; charset=utf-8",
    "json": "application/json",
    "html": "application/octet-stream",  # to be saved: a browser must not show it as a page of ours
}


class NewConversation(Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a new conversation."""

    title: str = ""
    model: str = ""


class ConversationChange(Struct, frozen=True, forbid_unknown_fields=True):
    """Changes to a conversation; None leaves a field unchanged."""

    title: str | None = None
    model: str | None = None
    system: str | None = None
    memory: str | None = None
    limits: TurnLimits | None = None
    pinned: bool | None = None
    tags: tuple[str, ...] | None = None


class ImportedFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A file with a conversation: an export, or messages of a provider's format."""

    name: str
    text: str


class ForkAt(Struct, frozen=True, forbid_unknown_fields=True):
    """The number of entries a fork starts with."""

    at: int


class RollbackTo(Struct, frozen=True, forbid_unknown_fields=True):
    """The version to return to."""

    to: int


async def list_conversations(request: ChatRequest) -> Response:
    """A page of conversations, or the results of a search."""
    limit = request.number("limit", 50, most=_MAX_PAGE_SIZE)
    if query := request.query.get("query", "").strip():
        return Response.json(await _search(request, query, limit))
    tag = owner_tag(request.owner) if request.owner else None
    if name := request.query.get("tag", ""):
        tag = store_tag(request.owner, name)
    offset, store = request.number("offset", 0), request.store
    listed, total = await request.chat.conversations.ask(
        lambda: (store.list(limit=limit, offset=offset, tag=tag), store.count(tag=tag))
    )
    rows = [_row(info, request.owner) for info in listed]
    if offset or name:
        return Response.json({"conversations": rows, "total": total})
    pins = await request.chat.conversations.ask(lambda: store.list(limit=_MAX_PAGE_SIZE, tag=pin_tag(request.owner)))
    pinned = {"pinned": [_row(info, request.owner) for info in pins]} if pins else {}
    return Response.json({"conversations": rows, "total": total, **pinned})


async def create_conversation(request: ChatRequest) -> Response:
    """A new conversation."""
    wanted = request.read(NewConversation)
    if wanted.model:
        request.chat.check_model(wanted.model, request.key)
    live = await request.chat.conversations.create(request.owner, clean_title(wanted.title))
    live.wants_title = not wanted.title
    if request.chat.system:
        await live.run_store_call(lambda: live.chat.history.set_system_instruction(request.chat.system))
    if wanted.model:
        await live.set_model(wanted.model)
    live.publish_entries()
    return Response.json({"id": live.chat.id}, 201)


async def import_file(request: ChatRequest) -> Response:
    """Import a conversation from a file."""
    file = request.read(ImportedFile)
    tags = [owner_tag(request.owner)] if request.owner else []
    info = await STORES.run(import_conversation, request.store, file.text.encode(), file.name[:200], tags)
    return Response.json({"id": info.id}, 201)


async def show_conversation(request: ChatRequest) -> Response:
    """A conversation, or its entries after `after`, up to the version the events have reached; the events report the rest."""
    live = await request.open()
    await STORES.run(draw_ahead, live.chat.history.entries[request.number("after", 0) :])
    facts = await _settings_json(live, request)  # no await from here on: one consistent state
    chat, snapshot = live.chat, live.chat.history.snapshot()
    later = snapshot.entries[request.number("after", 0) : live.version]
    effective = {entry.sequence_number for entry in snapshot.effective} if later else set()
    prices = request.chat.conversations.prices()
    entries = [
        msgspec.Raw(
            entry_json(
                entry,
                live.places[entry.sequence_number],
                is_effective=entry.sequence_number in effective,
                prices=prices,
                shortened=count_shortened(snapshot.effective, entry)
                if isinstance(entry, ShortenedResultsEntry)
                else None,
            )
        )
        for entry in later
    ]
    return Response.json(
        {
            **facts,
            "version": live.version,
            "entries": entries,
            "tokens": chat.tokens,
            "token_limit": chat.token_limit,
            "usage": chat.usage,
            "spending": spending_of(snapshot.entries, prices),
            "pending": live.pending,
            "running": live.is_running,
            "unfinished": live.is_unfinished,
            "failure": None if live.is_running else live.failure,
            "turn": live.places.turn,
            "last_event": live.events.settled,
            "watchers": live.watchers,
        }
    )


async def change_conversation(request: ChatRequest) -> Response:
    """Change the title, model, system instruction, notebook or limits of turns."""
    live, change = await request.open(), request.read(ConversationChange)
    check_texts(change.system, change.memory)
    if (limits := change.limits) is not None:  # first, as it may be refused
        live.loop.limits = await live.run_store_call(
            lambda: set_limits(live.chat.history, limits, request.chat.turns())
        )
    if change.model is not None:
        request.chat.check_model(change.model, request.key)
        await live.set_model(change.model)
    if (title := change.title) is not None:
        live.wants_title = False
        await request.chat.conversations.ask(lambda: set_title(request.store, request.id, title))
    if change.pinned is not None or change.tags is not None:
        info = await request.info()
        await request.chat.conversations.ask(
            lambda: organize(request.store, info, request.owner, pinned=change.pinned, tags=change.tags)
        )
    await live.run_store_call(lambda: set_texts(live.chat.history, system=change.system, memory=change.memory))
    live.publish_entries()
    return Response.json(await _settings_json(live, request))


async def delete_conversation(request: ChatRequest) -> Response:
    """Remove a conversation for good."""
    await request.chat.conversations.delete(request.id, request.owner)
    return Response.json({"deleted": True})


async def fork_conversation(request: ChatRequest) -> Response:
    """A new conversation that starts with entries of this one."""
    await request.info()
    at = request.read(ForkAt).at
    forked = await STORES.run(request.store.fork, request.id, at)
    return Response.json({"id": forked.id}, 201)


async def roll_back_conversation(request: ChatRequest) -> Response:
    """Return to an earlier version."""
    async with _while_idle(request) as live:
        to = request.read(RollbackTo).to
        await live.run_store_call(lambda: roll_back(live.chat.history, to))
        live.publish_entries()
    return Response.json({"version": live.version})


async def compact_conversation(request: ChatRequest) -> Response:
    """Replace all turns but the latest by a summary."""
    async with _while_idle(request) as live:
        await request.chat.admit(live.chat.model, request.key)
        entry = await compact(live.chat, live.run_store_call)
        live.publish_entries()
    return Response.json({"summary": entry.summary, "up_to": entry.up_to, "tokens": live.chat.tokens})


async def show_timeline(request: ChatRequest) -> Response:
    """The rounds, and one row per entry."""
    live = await request.open()
    snapshot = live.chat.history.snapshot()
    effective = {entry.sequence_number for entry in snapshot.effective}
    ledger = TokenLedger()
    calls = words_of_calls(snapshot.entries)
    rows = [
        entry_row(
            entry,
            live.places[entry.sequence_number],
            calls,
            is_effective=entry.sequence_number in effective,
            tokens=ledger.tokens_of(entry)
            if isinstance(entry, ModelInputEntry | ModelOutputEntry | ToolCallResultsEntry)
            else None,
        )
        for entry in snapshot.entries[: live.version]
    ]
    return Response.json({"rounds": rounds_of(snapshot), "entries": rows})


async def show_rendered(request: ChatRequest) -> Response:
    """The request body for each provider at a version."""
    live = await request.open()
    at = request.number("at", live.version, most=live.version)
    await live.chat.registry.open()
    entries = live.chat.history.entries[:at]
    views = await STORES.run(provider_bodies, entries, live.chat.registry.definitions, live.chat.settings)
    return Response.json({"at": at, "formats": views})


async def show_cache(request: ChatRequest) -> Response:
    """What the cache doctor finds about the request of each answer."""
    live = await request.open()
    await live.chat.registry.open()
    entries = live.chat.history.entries[: live.version]
    chat = live.chat
    found = await STORES.run(cache_findings, entries, chat.registry.definitions, chat.settings)
    return Response.json({"requests": found})


async def export_conversation(request: ChatRequest) -> Response:
    """The conversation as a file: `format` is jsonl (for `antiphon history import`), json, markdown or html."""
    info = await request.info()
    wanted = request.query.get("format", "jsonl")
    if wanted != "jsonl":
        return await _readable(request, wanted, info)
    lines = await STORES.run(lambda: b"".join(request.store.export_lines(request.id)))
    headers = {
        "content-type": "application/jsonl; charset=utf-8",
        "content-disposition": f'attachment; filename="antiphon-{request.id}.jsonl"',
    }
    return Response(headers=headers, body=lines)


async def _readable(request: ChatRequest, wanted: str, info: ConversationInfo) -> Response:
    kind = next((kind for kind in _EXPORT_TYPES if kind == wanted), None)
    if kind is None:
        raise ApiError(f"format is jsonl, {', '.join(_EXPORT_TYPES)}, not {wanted[:40]!r}")
    live = await request.open()
    language = request.query.get("language", "en")
    body = await STORES.run(export, kind, info, live.chat.history.snapshot(), language)
    name = quote(file_name(info.title, kind))
    headers = {"content-type": _EXPORT_TYPES[kind], "content-disposition": f"attachment; filename*=UTF-8''{name}"}
    return Response(headers=headers, body=body)


async def show_media(request: ChatRequest) -> Response:
    """The bytes of a large image or document in the conversation."""
    live = await request.open()
    found = await STORES.run(media_in, live.chat.history.entries, request.name)
    if found is None:
        raise ApiError("there is no such media in this conversation", 404, "not_found")
    kind, data = found
    if kind in IMAGE_TYPES:
        return Response(headers={"content-type": kind}, body=data)
    headers = {"content-type": "application/octet-stream", "content-disposition": "attachment"}
    return Response(headers=headers, body=data)


@asynccontextmanager
async def _while_idle(request: ChatRequest) -> AsyncIterator[LiveConversation]:
    """The conversation, in which no turn is running, and none begins in the block."""
    live = await request.open()
    async with live.writing:
        if live.is_running:
            raise ApiError("a turn is running; stop it, or wait until it ends", 409, "running")
        yield live


async def _settings_json(live: LiveConversation, request: ChatRequest) -> dict[str, Any]:
    history = live.chat.history
    return {
        "info": _row(await request.info(), request.owner),
        "model": live.chat.model or request.chat.default_model,
        "system": history.system_instruction,
        "memory": history.memory_notebook,
        "limits": limits_json(live.loop.limits),
    }


async def _search(request: ChatRequest, query: str, limit: int) -> dict[str, Any]:
    tag = owner_tag(request.owner) if request.owner else None
    hits = await STORES.run(lambda: request.store.search(query, limit=_MAX_PAGE_SIZE, tag=tag))
    found: dict[str, dict[str, Any]] = {}
    for hit in hits:
        row = _row(hit.conversation, request.owner)
        found.setdefault(hit.conversation.id, {**row, "excerpt": hit.excerpt, "sequence_number": hit.sequence_number})
    return {"conversations": list(found.values())[:limit], "total": len(found)}


def _row(info: ConversationInfo, owner: str) -> dict[str, Any]:
    """A conversation in the list; `labels` are the tags of its owner."""
    return {**msgspec.to_builtins(info), "is_pinned": is_pinned(info, owner), "labels": tags_of(info, owner)}
