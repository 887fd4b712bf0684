"""`ConversationStore`: conversations of the Responses API, as lists of items that clients and responses add to.

A request that names a conversation gets its items before its own input; when the response is complete, the request's input and
the response's output are added. Items are kept as the JSON that clients sent or got. Rows are visible only to their owner. A
conversation that was not used for the retention time is deleted, and so is the one unused longest above the limit.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct, structs

from antiphon.errors import UnknownResponse
from antiphon.ids import new_id
from antiphon_gateway.state.file import StateFile

_ITEM_PREFIXES = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "reasoning": "rs",
    "compaction": "cmp",
}


class StoredConversation(Struct, frozen=True, kw_only=True):
    """A conversation without its items, as clients get it."""

    id: str
    object: str = "conversation"
    created_at: int
    metadata: dict[str, Any]


class ConversationStore:
    """Conversations in the state file, for its `seconds` after their last use and at most its `limit` of them."""

    def __init__(self, file: StateFile) -> None:
        self._file = file

    def create(self, owner: str, metadata: Mapping[str, Any], items: Sequence[Any] = ()) -> StoredConversation:
        """Create a conversation, with items to begin with. Raises `StateLimitReached`."""
        now, name = self._file.clock(), f"conv_{new_id()}"
        with self._file.transaction() as db:
            self._make_room(db)
            number = db.execute(
                "INSERT INTO conversations (owner, id, created, used, metadata) VALUES (?, ?, ?, ?, ?)",
                (owner, name, now, now, msgspec.json.encode(metadata)),
            ).lastrowid
            _insert(db, number or 0, items)
            self._file.make_room(db, owner)
        return StoredConversation(id=name, created_at=int(now), metadata=dict(metadata))

    def get(self, conversation_id: str, owner: str) -> StoredConversation:
        """A conversation. Raises `UnknownResponse`."""
        with self._file.reading() as db:
            return self._row(db, conversation_id, owner)[1]

    def update(self, conversation_id: str, owner: str, metadata: Mapping[str, Any]) -> StoredConversation:
        """Replace the metadata. Raises `UnknownResponse`."""
        with self._file.transaction() as db:
            number, known = self._row(db, conversation_id, owner)
            db.execute(
                "UPDATE conversations SET metadata = ? WHERE number = ?", (msgspec.json.encode(metadata), number)
            )
        return structs.replace(known, metadata=dict(metadata))

    def delete(self, conversation_id: str, owner: str) -> None:
        """Delete a conversation and its items. Raises `UnknownResponse`."""
        with self._file.transaction() as db:
            _drop(db, self._row(db, conversation_id, owner)[0])

    def items(self, conversation_id: str, owner: str) -> list[dict[str, Any]]:
        """All items, the first one first. Raises `UnknownResponse`."""
        with self._file.reading() as db:
            number = self._row(db, conversation_id, owner)[0]
            rows = db.execute("SELECT item FROM conversation_items WHERE conversation = ? ORDER BY number", (number,))
            return [msgspec.json.decode(item) for (item,) in rows.fetchall()]

    def item(self, conversation_id: str, owner: str, item_id: str) -> dict[str, Any]:
        """One item. Raises `UnknownResponse`."""
        with self._file.reading() as db:
            number = self._row(db, conversation_id, owner)[0]
            find = "SELECT item FROM conversation_items WHERE conversation = ? AND id = ?"
            row = db.execute(find, (number, item_id)).fetchone()
        if row is None:
            raise _unknown_item(item_id)
        found: dict[str, Any] = msgspec.json.decode(row[0])
        return found

    def add(self, conversation_id: str, owner: str, items: Sequence[Any]) -> list[dict[str, Any]]:
        """Add items at the end, and return them with their ids. Raises `UnknownResponse`, or `StateLimitReached`."""
        with self._file.transaction() as db:
            number = self._row(db, conversation_id, owner)[0]
            db.execute("UPDATE conversations SET used = ? WHERE number = ?", (self._file.clock(), number))
            added = _insert(db, number, items)
            self._file.make_room(db, owner)
            return added

    def delete_item(self, conversation_id: str, owner: str, item_id: str) -> StoredConversation:
        """Delete one item. Raises `UnknownResponse`."""
        with self._file.transaction() as db:
            number, known = self._row(db, conversation_id, owner)
            gone = db.execute("DELETE FROM conversation_items WHERE conversation = ? AND id = ?", (number, item_id))
            if not gone.rowcount:
                raise _unknown_item(item_id)
        return known

    def _row(self, db: sqlite3.Connection, conversation_id: str, owner: str) -> tuple[int, StoredConversation]:
        find = "SELECT number, created, metadata FROM conversations WHERE owner = ? AND id = ? AND used > ?"
        row = db.execute(find, (owner, conversation_id, self._file.oldest)).fetchone()
        if row is None:
            message = f"Conversation with id '{conversation_id}' not found."
            raise UnknownResponse(message, code="conversation_not_found", param="conversation")
        number, created, metadata = row
        known = msgspec.json.decode(metadata)
        return number, StoredConversation(id=conversation_id, created_at=int(created), metadata=known)

    def _make_room(self, db: sqlite3.Connection) -> None:
        (count,) = db.execute("SELECT count(*) FROM conversations").fetchone()
        excess = max(0, count + 1 - self._file.limit)
        expired = (
            "SELECT number FROM conversations WHERE used <= ? UNION"
            " SELECT number FROM (SELECT number FROM conversations ORDER BY used, number LIMIT ?)"
        )
        for (number,) in db.execute(expired, (self._file.oldest, excess)).fetchall():
            _drop(db, number)


def complete_item(item: Any, id_end: str = "") -> dict[str, Any]:
    """An item as the API shows it: with a type, an id, and its content as a list.

    `id_end` is the end of the id of an item without one, after the prefix of its type; empty: it is random.
    """
    complete = {"type": "message", **item} if isinstance(item, dict) else {"type": "message", "content": item}
    kind = complete["type"]
    if not isinstance(complete.get("id"), str) or not complete["id"]:
        complete["id"] = f"{_ITEM_PREFIXES.get(str(kind), 'item')}{id_end or f'_{new_id()}'}"
    if kind == "message":
        role = complete.setdefault("role", "user")
        complete.setdefault("status", "completed")
        if isinstance(complete.get("content"), str):
            part: dict[str, Any] = {"type": "input_text", "text": complete["content"]}
            if role == "assistant":
                part = {"type": "output_text", "text": complete["content"], "annotations": [], "logprobs": []}
            complete["content"] = [part]
    return complete


def _insert(db: sqlite3.Connection, conversation: int, items: Sequence[Any]) -> list[dict[str, Any]]:
    complete = [complete_item(item) for item in items]
    by_id = {item["id"]: item for item in complete}  # one that is there already moves to the end
    db.executemany(
        "DELETE FROM conversation_items WHERE conversation = ? AND id = ?", [(conversation, name) for name in by_id]
    )
    insert = "INSERT INTO conversation_items (conversation, id, item) VALUES (?, ?, ?)"
    db.executemany(insert, [(conversation, name, msgspec.json.encode(item)) for name, item in by_id.items()])
    return complete


def _drop(db: sqlite3.Connection, number: int) -> None:
    db.execute("DELETE FROM conversation_items WHERE conversation = ?", (number,))
    db.execute("DELETE FROM conversations WHERE number = ?", (number,))


def _unknown_item(item_id: str) -> UnknownResponse:
    return UnknownResponse(f"Item with id '{item_id}' not found.", code="item_not_found", param="item_id")
