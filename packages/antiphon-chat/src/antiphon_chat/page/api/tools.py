"""API handler for what the tools did in the conversations of an owner."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from msgspec import structs

from antiphon.http.messages import Response
from antiphon.threads import STORES
from antiphon.tools.statistics import tool_statistics
from antiphon_chat.page.open_conversations import OpenConversations, owner_tag
from antiphon_chat.page.request import ChatRequest

_MOST_DAYS = 36_500


class ToolApi:
    """Handles requests about tools."""

    def __init__(self, conversations: OpenConversations) -> None:
        self._conversations = conversations
        self._counting = asyncio.Lock()

    async def statistics(self, request: ChatRequest) -> Response:
        """Calls, failures, time and cache hits by tool, of all conversations; with `days`, of the last days."""
        days = request.number("days", 0, most=_MOST_DAYS)
        since = datetime.now(UTC) - timedelta(days=days) if days else None
        tag = owner_tag(request.owner) if request.owner else None
        async with self._counting:  # every log is read: one reader at a time
            tools = await STORES.run(tool_statistics, self._conversations.store, since=since, tag=tag)
        return Response.json({"tools": [{**structs.asdict(tool), "mean_seconds": tool.mean_seconds} for tool in tools]})
