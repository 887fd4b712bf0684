"""API handlers for the page itself: what it begins with, texts to draw, and what the tools did in all conversations."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec import Struct, structs

from antiphon import __version__
from antiphon.http.messages import Response
from antiphon.threads import STORES
from antiphon.tools.statistics import tool_statistics
from antiphon_chat.page.open_conversations import owner_tag
from antiphon_chat.page.request import ChatRequest
from antiphon_chat.shared.markdown import blocks_json
from antiphon_chat.shared.session import needs_approval
from antiphon_gateway.access.client_keys import ANONYMOUS


class MarkdownTexts(Struct, frozen=True, forbid_unknown_fields=True):
    """Texts to draw."""

    texts: tuple[str, ...]


async def show_state(request: ChatRequest) -> Response:
    """The default model, the other models, and the tools."""
    chat = request.chat
    choice, registry, turns = chat.models().choice, chat.toolboxes.of(request.owner).registry, chat.turns()
    await registry.open()
    tools = [
        {
            "name": tool.name,
            "description": tool.description,
            "effect": tool.effect,
            "needs_approval": needs_approval(tool, asks_before_changes=chat.asks_before_changes),
        }
        for tool in registry
    ]
    state = {
        "version": __version__,
        "choice": {
            "model": choice.model,
            "what": choice.reason,
            "how": choice.hint,
            "kind": choice.kind,
            "values": choice.values,
        },
        "models": chat.model_names(request.key),
        "tools": tools,
        "token_limit": turns.token_limit if isinstance(turns.token_limit, int) else None,
        "limits": structs.asdict(turns.limits),
        "has_keys": request.key is not ANONYMOUS,
        "has_mcp": chat.mcp is not None,
    }
    return Response.json(state)


async def draw_markdown(request: ChatRequest) -> Response:
    """The blocks of texts that are not in an entry: results of tools."""
    texts = request.read(MarkdownTexts).texts
    drawn = await STORES.run(lambda: b",".join(map(blocks_json, texts)))
    return Response(headers={"content-type": "application/json"}, body=b'{"blocks":[%s]}' % drawn)


_MOST_DAYS = 36_500


async def tool_calls(request: ChatRequest) -> Response:
    """Calls, failures, time and cache hits by tool, of all conversations; with `days`, of the last days."""
    days = request.number("days", 0, most=_MOST_DAYS)
    since = datetime.now(UTC) - timedelta(days=days) if days else None
    tag = owner_tag(request.owner) if request.owner else None
    async with request.chat.counting:  # every log is read: one reader at a time
        tools = await STORES.run(tool_statistics, request.store, since=since, tag=tag)
    return Response.json({"tools": [{**structs.asdict(tool), "mean_seconds": tool.mean_seconds} for tool in tools]})
