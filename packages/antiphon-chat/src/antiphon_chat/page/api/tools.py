"""API handler for what the tools did in the conversations of an owner."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec import structs

from antiphon.http.messages import Response
from antiphon.threads import STORES
from antiphon.tools.statistics import tool_statistics
from antiphon_chat.page.open_conversations import owner_tag
from antiphon_chat.page.request import ChatRequest

_MOST_DAYS = 36_500


async def tool_calls(request: ChatRequest) -> Response:
    """Calls, failures, time and cache hits by tool, of all conversations; with `days`, of the last days."""
    days = request.number("days", 0, most=_MOST_DAYS)
    since = datetime.now(UTC) - timedelta(days=days) if days else None
    tag = owner_tag(request.owner) if request.owner else None
    async with request.chat.counting:  # every log is read: one reader at a time
        tools = await STORES.run(tool_statistics, request.store, since=since, tag=tag)
    return Response.json({"tools": [{**structs.asdict(tool), "mean_seconds": tool.mean_seconds} for tool in tools]})
