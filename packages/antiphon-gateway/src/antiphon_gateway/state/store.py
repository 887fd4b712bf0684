"""`ResponseStore`: stored responses, for clients that continue them and upstreams that do not store them.

A client may send only what is new and name the response it continues (`previous_response_id`, or the field of its format in
`PREVIOUS_FIELDS`) or an item of one (`item_reference`). `expand` makes a full request of it that any upstream understands. A row
is one response: its own input, its output and its parent, so branches share what they have in common. `instructions` do not carry
over to the next response, as with OpenAI.

A row that others build on stays as long as they do, but is not found by its id once it is deleted or expired. Over the limit the
oldest response that no other builds on is deleted. Rows are visible only to their owner (the name of a client key). The
history's log is not used: it is never shortened, and a fork is a copy. Writing waits for the disk: call it in a thread.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Self

import msgspec
from msgspec import Struct, structs

from antiphon.errors import StoreDamaged, StoreError, UnknownResponse
from antiphon.parts import Native, OutputPart, Part, Refusal, Text, Thinking, ToolCallRequest
from antiphon.wire import formats
from antiphon.wire.openai_responses.namespaces import mark_namespaces
from antiphon.wire.output import ModelOutput, ProviderError
from antiphon.wire.request import Message, ModelRequest
from antiphon_gateway.state.file import open_state_file
from antiphon_gateway.state.size_limit import SizeLimit, drop_response

FORMAT = "openai-responses"
PREVIOUS_FIELDS = {"openai-responses": "previous_response_id", "gemini-interactions": "previous_interaction_id"}
"""The field by which a request names what it continues, in formats whose server stores answers."""
STATE_FIELDS = {
    "openai-responses": ("previous_response_id", "conversation"),
    "gemini-interactions": ("previous_interaction_id",),
}
"""The fields that name earlier messages which the gateway has stored."""
DAY = int(timedelta(days=1).total_seconds())

_CHAIN = """
WITH RECURSIVE chain (number, parent, depth) AS (
    SELECT number, parent, 0 FROM responses WHERE owner = ? AND id = ? AND NOT is_gone AND kept > ?
    UNION ALL SELECT r.number, r.parent, depth + 1 FROM responses r JOIN chain ON r.number = chain.parent)
SELECT r.id, r.input, r.output, r.body FROM chain JOIN responses r USING (number) ORDER BY depth DESC
"""

_PURGED_AT_ONCE = 200
"""Expired rows deleted with each stored one: each call stays short, and rows expire slower than they are deleted."""

_messages = msgspec.json.Decoder(tuple[Message, ...])
_output = msgspec.json.Decoder(ModelOutput)


class StoredResponse(Struct, frozen=True):
    """One response: its input and output. `body` is the object as the client got it."""

    id: str
    input: tuple[Message, ...]
    output: ModelOutput
    body: bytes


class ResponseStore:
    """Responses stored in a file, or in memory with an empty path, for `seconds` and at most `limit` of them."""

    def __init__(
        self,
        path: str | os.PathLike[str] = "",
        *,
        seconds: float = 30 * DAY,
        limit: int = 10_000,
        sizes: SizeLimit | None = None,
        timeout: float = 5.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.seconds = seconds
        self.limit = limit
        self._sizes = sizes or SizeLimit()
        self._clock = clock
        self.file = self._file = open_state_file(path, timeout=timeout)

    def store(
        self, response_id: str, request: ModelRequest, output: ModelOutput, *, owner: str = "", body: bytes = b""
    ) -> None:
        """Store a response. `request` is as the client sent it, not expanded; `body` is the object it got, if available.

        Only items of a given `body` can be referred to later: encoded again, they have other ids. A response with a stored
        id replaces it. Raises `UnknownResponse` if the response it continues was deleted meanwhile, and `StateLimitReached`.
        """
        previous = previous_response_id(request)
        own = own_messages(request)
        body = body or _default_body(response_id, request, output)
        try:
            stored = msgspec.json.encode(own), msgspec.json.encode(structs.replace(output, others=())), body
            items = _item_spans(msgspec.json.decode(body), output.parts)
        except (msgspec.DecodeError, TypeError, ValueError, RecursionError) as error:
            raise StoreError(f"response {response_id} cannot be stored: {error}") from error
        now = self._clock()
        with self._file.transaction() as db:
            parent = self._number(db, previous, owner, now) if previous else None
            if previous and parent is None:
                raise _unknown_previous(previous_field(request), previous)
            known = self._number(db, response_id, owner, 0.0)
            db.execute("UPDATE responses SET is_gone = 1 WHERE number = ?", (known,))
            insert = "INSERT INTO responses (owner, id, parent, kept, input, output, body) VALUES (?, ?, ?, ?, ?, ?, ?)"
            number = db.execute(insert, (owner, response_id, parent, now, *stored)).lastrowid
            if parent is not None:
                db.execute("UPDATE responses SET is_leaf = 0 WHERE number = ?", (parent,))
            if known is not None:
                _delete_if_unreferenced(db, known)
            db.executemany(
                "INSERT OR REPLACE INTO items VALUES (?, ?, ?, ?, ?)",
                [(owner, item, number, *at) for item, *at in items],
            )
            self._make_room(db, number or 0, now)
            self._sizes.make_room(db, owner, number or 0)

    def expand(self, request: ModelRequest, *, owner: str = "") -> ModelRequest:
        """The full request: with the response it continues and the items it refers to. The same object if there are none.

        Raises `UnknownResponse`, in OpenAI's words, for what is not stored.
        """
        previous = previous_response_id(request)
        if not previous and not any(map(_has_references, request.messages)):
            return request
        earlier: list[Message] = []
        if previous:
            for kept in self._chain(previous, owner, partial(_unknown_previous, previous_field(request))):
                earlier += kept.input
                if kept.output.parts:
                    earlier.append(Message("assistant", kept.output.parts))
        continued = continue_from(request, earlier)
        if not any(map(_has_references, continued.messages)):
            return continued
        messages = tuple(
            self._resolved(message, owner) if _has_references(message) else message for message in continued.messages
        )
        return mark_namespaces(structs.replace(continued, messages=messages))

    def get(self, response_id: str, *, owner: str = "") -> StoredResponse:
        """A response. Raises `UnknownResponse`."""
        return self._chain(response_id, owner, _unknown)[-1]

    def chain(self, response_id: str, *, owner: str = "") -> list[StoredResponse]:
        """A response and all that it continues, the first one first. Raises `UnknownResponse`."""
        return self._chain(response_id, owner, _unknown)

    def delete(self, response_id: str, *, owner: str = "") -> None:
        """Delete a response. Responses that build on it keep its content. Raises `UnknownResponse`."""
        with self._file.transaction() as db:
            number = self._number(db, response_id, owner, self._clock())
            if number is None:
                raise _unknown(response_id)
            db.execute("UPDATE responses SET is_gone = 1 WHERE number = ?", (number,))
            _delete_if_unreferenced(db, number)

    def __len__(self) -> int:
        """The number of rows, including deleted ones that others build on."""
        with self._file.reading() as db:
            return int(db.execute("SELECT count(*) FROM responses").fetchone()[0])

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _number(self, db: sqlite3.Connection, response_id: str, owner: str, now: float) -> int | None:
        """The row of a response that is not deleted or expired at `now`."""
        find = "SELECT number FROM responses WHERE owner = ? AND id = ? AND NOT is_gone AND kept > ?"
        row = db.execute(find, (owner, response_id, now - self.seconds)).fetchone()
        return None if row is None else int(row[0])

    def _chain(self, response_id: str, owner: str, unknown: Callable[[str], UnknownResponse]) -> list[StoredResponse]:
        # The error is made where it is raised: a variable that holds it keeps its traceback alive, and with it the request.
        with self._file.reading() as db:
            rows = db.execute(_CHAIN, (owner, response_id, self._clock() - self.seconds)).fetchall()
        if not rows:
            raise unknown(response_id)
        try:
            return [
                StoredResponse(name, _messages.decode(own), _output.decode(output), body)
                for name, own, output, body in rows
            ]
        except msgspec.DecodeError as error:
            raise StoreDamaged(f"{self._file.path}: the response {response_id} is damaged: {error}") from error

    def _resolved(self, message: Message, owner: str) -> Message:
        parts: list[Part] = []
        for part in message.parts:
            item = _reference(part)
            parts += (part,) if item is None else self._item(item, owner)
        return structs.replace(message, parts=tuple(parts))

    def _item(self, item: str, owner: str) -> Sequence[OutputPart]:
        find = (
            "SELECT output, first, behind FROM items i JOIN responses r USING (number)"
            " WHERE i.owner = ? AND i.id = ? AND NOT is_gone AND kept > ?"
        )
        with self._file.reading() as db:
            row = db.execute(find, (owner, item, self._clock() - self.seconds)).fetchone()
        if row is None:
            raise UnknownResponse(
                f"Item with id '{item}' not found. Items are not persisted when `store` is set to false. Try again with "
                "`store` set to true, or remove this item from your input.",
                param="input",
            )
        output, first, end = row
        return _output.decode(output).parts[first:end]

    def _make_room(self, db: sqlite3.Connection, newest: int, now: float) -> None:
        expired = "SELECT number FROM responses WHERE is_leaf AND kept <= ? ORDER BY kept, number LIMIT 1"
        for _ in range(_PURGED_AT_ONCE):
            row = db.execute(expired, (now - self.seconds,)).fetchone()
            if row is None:
                break
            drop_response(db, row[0])
        (count,) = db.execute("SELECT count(*) FROM responses").fetchone()
        oldest = "SELECT number FROM responses WHERE is_leaf AND number != ? ORDER BY kept, number LIMIT 1"
        while count > self.limit and (row := db.execute(oldest, (newest,)).fetchone()) is not None:
            count -= drop_response(db, row[0])


_PART_KINDS: dict[str, tuple[type, ...]] = {
    "message": (Text, Refusal),
    "function_call": (ToolCallRequest,),
    "custom_tool_call": (ToolCallRequest,),
    "reasoning": (Thinking,),
}


def should_store(request: ModelRequest) -> bool:
    """Whether the client may continue the response later, which is the default."""
    return request.store is not False


def previous_response_id(request: ModelRequest) -> str:
    """The id of the response that a request continues, in any format; empty if there is none."""
    native = request.native or {}
    named = (native[origin].get(field) for origin, field in PREVIOUS_FIELDS.items() if origin in native)
    return next((str(value) for value in named if value), "")


def previous_field(request: ModelRequest) -> str:
    """The field by which a request names what it continues, in the client's format."""
    native = request.native or {}
    return next((name for origin, name in PREVIOUS_FIELDS.items() if native.get(origin, {}).get(name)), "")


def continue_from(request: ModelRequest, earlier: Sequence[Message]) -> ModelRequest:
    """The request with earlier messages before its own, and without the field that named them."""
    leading = _instructions(request)
    native = dict(request.native or {})
    for origin, fields in STATE_FIELDS.items():
        extras = {name: value for name, value in native.pop(origin, {}).items() if name not in fields}
        if extras:
            native[origin] = extras
    messages = (*leading, *earlier, *own_messages(request))
    return mark_namespaces(structs.replace(request, messages=messages, native=native or None))


def own_messages(request: ModelRequest) -> tuple[Message, ...]:
    """The messages of a request without its instructions, so that they can follow or precede others."""
    return _mark_leading_system(request.messages[len(_instructions(request)) :])


def to_provider_error(unknown: UnknownResponse) -> ProviderError:
    """The error in the words of the API."""
    return ProviderError(str(unknown), "invalid_request", unknown.status, unknown.code, unknown.param)


def _unknown(response_id: str) -> UnknownResponse:
    return UnknownResponse(f"Response with id '{response_id}' not found.")


def _unknown_previous(field: str, response_id: str) -> UnknownResponse:
    if field != PREVIOUS_FIELDS[FORMAT]:
        return UnknownResponse(
            f"{field}: '{response_id}' not found; send the earlier steps in input", status=400, param=field
        )
    return UnknownResponse(
        f"Previous response with id '{response_id}' not found.",
        status=400,
        code="previous_response_not_found",
        param=field,
    )


def _delete_if_unreferenced(db: sqlite3.Connection, number: int) -> None:
    """Remove a deleted or expired row, if no other builds on it."""
    if db.execute("SELECT is_leaf FROM responses WHERE number = ?", (number,)).fetchone()[0]:
        drop_response(db, number)


def _instructions(request: ModelRequest) -> tuple[Message, ...]:
    """The leading message that is not an item: `instructions`. Items that come first are marked (see the format's `items`)."""
    first = request.messages[:1]
    return first if first and first[0].role == "system" and FORMAT not in (first[0].native or {}) else ()


def _mark_leading_system(items: tuple[Message, ...]) -> tuple[Message, ...]:
    """The same items; a system message that now comes first is marked, so that it is not read as instructions."""
    first = items[:1]
    if not first or first[0].role != "system" or FORMAT in (first[0].native or {}):
        return items
    return structs.replace(first[0], native={**(first[0].native or {}), FORMAT: {}}), *items[1:]


def _reference(part: Part) -> str | None:
    """The id of the item that a part refers to."""
    data = part.data if isinstance(part, Native) and part.origin == FORMAT else None
    if not isinstance(data, dict) or data.get("type", "item_reference") != "item_reference":
        return None
    item = data.get("id")
    return item if isinstance(item, str) else None


def _has_references(message: Message) -> bool:
    return any(_reference(part) is not None for part in message.parts)


def _item_spans(body: Any, parts: Sequence[OutputPart]) -> list[tuple[str, int, int]]:
    """The parts of each item of a response: its id, the first part, and the one after the last."""
    return list(_spans(body.get("output") or () if isinstance(body, dict) else (), parts))


def _spans(items: Sequence[Any], parts: Sequence[OutputPart]) -> Iterator[tuple[str, int, int]]:
    place = 0
    for item in items:
        fields = item if isinstance(item, dict) else {}
        kinds = _PART_KINDS.get(str(fields.get("type")), (Native,))
        content = fields.get("content")
        count = len(content) if fields.get("type") == "message" and isinstance(content, list) else 1
        while place < len(parts) and not isinstance(parts[place], kinds):
            place += 1  # a part that the format cannot express has no item
        if place + count > len(parts):
            return
        if isinstance(fields.get("id"), str):
            yield fields["id"], place, place + count
        place += count


def _default_body(response_id: str, request: ModelRequest, output: ModelOutput) -> bytes:
    """The object as the format's encoder writes it."""
    body = formats[FORMAT].write_response(output).body
    leading = _instructions(request)
    words = [part.text for message in leading for part in message.parts if isinstance(part, Text)]
    fields = {
        "id": response_id,
        PREVIOUS_FIELDS[FORMAT]: previous_response_id(request) or None,
        "instructions": "".join(words) or None,
        "metadata": request.metadata or {},
        "store": True,
    }
    return msgspec.json.encode({**body, **fields})
