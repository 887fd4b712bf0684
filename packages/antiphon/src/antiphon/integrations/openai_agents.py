"""`AntiphonSession`: a conversation of ours as the session of an agent of the OpenAI Agents SDK.

    session = AntiphonSession("user-7", "chats.db")
    result = await Runner.run(agent, "Is it raining in Oslo?", session=session)

What the SDK adds becomes entries, so the conversation is in the log with all others: searched, shown, exported, and continued by
any model of any provider. What the SDK takes back (`pop_item`, `clear_session`) is a rollback: nothing disappears from the log.
An item that our entries would write in another way is kept beside its entry, so the SDK gets back what it stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from antiphon.conversation.interchange import read_message
from antiphon.errors import ConversationError
from antiphon.history import (
    AgentHistory,
    EntryMetadata,
    HistoryEntry,
    HistoryStore,
    ModelInputEntry,
    ModelOutputEntry,
    Origin,
    ToolCallResultsEntry,
)
from antiphon.history.location import open_store
from antiphon.providers.rendering import messages_of
from antiphon.wire import formats
from antiphon.wire.request import ModelRequest

if TYPE_CHECKING:
    from agents.items import TResponseInputItem
    from agents.memory import SessionSettings

FORMAT = "openai-responses"
_ITEMS = "openai_agents"
_TAG = "openai-agents:"
_SHOWN = (ModelInputEntry, ModelOutputEntry, ToolCallResultsEntry)


class AntiphonSession:
    """The conversation of `session_id` in a store (a file, the URL of a server, or an open `HistoryStore`), or a `history`.

    A store that it opened itself is closed by `close`.
    """

    session_settings: SessionSettings | None = None

    def __init__(
        self, session_id: str, store: str | Path | HistoryStore = ":memory:", *, history: AgentHistory | None = None
    ) -> None:
        self.session_id = session_id
        self._own_store: HistoryStore | None = None
        if history is None:
            if not isinstance(store, HistoryStore):
                store = self._own_store = open_store(store)
            tag = f"{_TAG}{session_id}"
            known = store.list(limit=1, tag=tag)
            history = store.open(known[0].id) if known else store.create(tags=[tag])
        self.history = history

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The items of the conversation, or the last `limit` of them."""
        items = [item for _, items in self._entries() for item in items]
        return (
            items if limit is None else items[len(items) - limit :] if 0 < limit < len(items) else items[: limit or 0]
        )

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append items: what a model wrote in one go is one entry, and so are the results of its calls."""
        self._append(msgspec.json.decode(msgspec.json.encode(items)))

    async def pop_item(self) -> TResponseInputItem | None:
        """Take the last item back; None if there is none."""
        last = next(iter(reversed(list(self._entries()))), None)
        if last is None:
            return None
        entry, items = last
        self.history.rollback(entry.sequence_number - 1, "the session took its last item back")
        self._append(items[:-1])
        return items[-1]

    async def clear_session(self) -> None:
        """Take everything back. The log keeps it."""
        self.history.rollback(0, "the session was cleared")

    def close(self) -> None:
        """Close the store, if this session opened it."""
        if self._own_store is not None:
            self._own_store.close()

    def _entries(self) -> Iterator[tuple[HistoryEntry, list[Any]]]:
        for entry in self.history.effective:
            if isinstance(entry, _SHOWN):
                items = entry.extra(_ITEMS) or _written(entry)
                if items:
                    yield entry, list(items)

    def _append(self, items: Sequence[dict[str, Any]]) -> None:
        for entry, group in _grouped(items):
            if _written(entry) != group:
                metadata = entry.metadata or EntryMetadata()
                extra = {**(metadata.extra or {}), _ITEMS: group}
                entry = structs.replace(entry, metadata=structs.replace(metadata, extra=extra))
            self.history.append(entry)


def _grouped(items: Sequence[dict[str, Any]]) -> Iterator[tuple[HistoryEntry, list[dict[str, Any]]]]:
    """Entries with the items they are made of: neighbours of a model's answer, and of the results of its calls, are one."""
    current: HistoryEntry | None = None
    group: list[dict[str, Any]] = []
    for item in items:
        for entry in _read(item):
            if type(entry) is type(current) and isinstance(entry, ModelOutputEntry | ToolCallResultsEntry):
                current = _joined(current, entry)
            elif current is not None:
                yield current, group
                current, group = entry, []
            else:
                current = entry
        group.append(item)
    if current is not None:
        yield current, group


def _read(item: dict[str, Any]) -> list[HistoryEntry]:
    try:
        return read_message(item)
    except ConversationError:  # an empty message, say: it is kept as it is, and no model sees it
        return [ModelInputEntry((), channel="system")]


def _joined(first: Any, second: Any) -> HistoryEntry:
    if isinstance(first, ModelOutputEntry):
        return structs.replace(first, content=(*first.content, *second.content))
    results: ToolCallResultsEntry = structs.replace(first, results=(*first.results, *second.results))
    return results


def _written(entry: HistoryEntry) -> list[Any]:
    """The items of an entry."""
    messages, _ = messages_of(entry, Origin("", FORMAT, ""), 0)  # type: ignore[arg-type]  # one that a model may see
    body, _ = formats[FORMAT].write_request(ModelRequest(messages=tuple(messages)))
    items: list[Any] = msgspec.json.decode(msgspec.json.encode(body.get("input", [])))
    return items
