"""`AnswerStore`: everything that is known of an answer, from its beginning on, for clients that continue it or ask for it by id.

A row is one answer: running, complete, ended without being complete, or stored by its provider. A complete one has its own input,
its output and its parent, so branches share what they have in common; `expand` makes a full request of one that continues it,
which any upstream understands. One that is generated in the background has its first object, its request and its events so far,
so that every worker can show, follow and cancel it. Its process says all the time that it is alive (`share`); without that it is
overdue, and shown as failed. Its end is stored together with its last events. Of one that only its provider stored, the row says
where it is; an id that is not known for a client is not asked for, it may belong to another client of the same account.

A row that others build on stays as long as they do, but is not found by its id once it is deleted or expired. Over the limit the
oldest answer that no other builds on is deleted. Rows are visible only to their owner (the name of a client key). The history's
log is not used: it is never shortened, and a fork is a copy. Writing waits for the disk: call it in a thread.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct, structs

from antiphon.errors import AntiphonError, StoreDamaged, StoreError, UnknownResponse
from antiphon.parts import OutputPart, Part
from antiphon.wire.output import ModelOutput
from antiphon.wire.request import Message, ModelRequest
from antiphon_gateway.state.continuing import (
    continue_from,
    has_references,
    item_reference,
    item_spans,
    own_messages,
    previous_response_id,
    unknown_answer,
    unknown_previous,
)
from antiphon_gateway.state.file import ALIVE, THERE, StateFile, drop_answer, is_alive
from antiphon_gateway.threads import STATE

logger = logging.getLogger("antiphon.gateway")

EVENT_SECONDS = 3600.0
"""How long an event of an answer that has ended can be followed."""
_KNOWN = "owner = :owner AND id = :id AND NOT is_deleted"
_CHAIN = f"""
WITH RECURSIVE chain (number, parent, depth) AS (
    SELECT number, parent, 0 FROM answers WHERE {_KNOWN} AND status = 'complete' AND stored_at > :oldest
    UNION ALL SELECT r.number, r.parent, depth + 1 FROM answers r JOIN chain ON r.number = chain.parent)
SELECT r.id, r.input, r.output, r.body FROM chain JOIN answers r USING (number) ORDER BY depth DESC
"""

_messages = msgspec.json.Decoder(tuple[Message, ...])
_output = msgspec.json.Decoder(ModelOutput)

Status: TypeAlias = Literal["running", "overdue", "complete", "ended", "upstream"]
Events: TypeAlias = tuple[int, Sequence[bytes]]
"""The index of the first one, and the events."""
NO_EVENTS: Events = (0, ())


class StoredResponse(Struct, frozen=True):
    """One complete answer: its input and output. `body` is the object as the client got it."""

    id: str
    input: tuple[Message, ...]
    output: ModelOutput
    body: bytes


class StoredAnswer(Struct, frozen=True):
    """What is known of an answer. `body` is its object.

    `overdue`: its process died before it was complete. One that is `upstream` is at that provider, and the key
    with the name `credential` gets it there; `model` is the one that the client asked for.
    """

    id: str
    status: Status
    body: bytes = b""
    provider: str = ""
    credential: str = ""
    model: str = ""


class AnswerStore:
    """The answers in a file."""

    def __init__(self, file: StateFile) -> None:
        self._file = file
        self._pending: dict[tuple[str, str], StoredAnswer] = {}
        self._task: asyncio.Task[None] | None = None

    def find(self, answer_id: str, owner: str) -> StoredAnswer | None:
        """What is known of an answer; None if nothing is, or it expired."""
        pending = self._pending.get((owner, answer_id))
        if pending is not None:
            return pending
        is_overdue = f"status = 'running' AND NOT {is_alive('answers.number')}"
        find = (
            f"SELECT CASE WHEN {is_overdue} THEN 'overdue' ELSE status END, body, provider, credential, model"
            f" FROM answers WHERE {_KNOWN} AND stored_at > :oldest"
        )
        rows = self._file.read(find, {"owner": owner, "id": answer_id, **self._file.times})
        return StoredAnswer(answer_id, *rows[0]) if rows else None

    def request(self, answer_id: str, owner: str) -> bytes:
        """The body of the request for an answer that is not complete; empty if it is."""
        rows = self._file.read(f"SELECT request FROM answers WHERE {_KNOWN}", {"owner": owner, "id": answer_id})
        return rows[0][0] if rows else b""

    def delete(self, answer_id: str, owner: str = "") -> None:
        """Delete an answer. Those that build on it keep its content. Raises `UnknownResponse`."""
        self._pending.pop((owner, answer_id), None)
        with self._file.transaction() as db:
            number = self._number(db, answer_id, owner, self._file.oldest)
            if number is None:
                raise unknown_answer(answer_id)
            _delete(db, number)

    def _number(
        self, db: sqlite3.Connection, answer_id: str, owner: str, oldest: float = 0.0, status: Status | None = None
    ) -> int | None:
        """The row of an answer that is not deleted, was stored after `oldest`, and has that status."""
        find = f"SELECT number FROM answers WHERE {_KNOWN} AND stored_at > :oldest AND (:status IS NULL OR status = :status)"
        row = db.execute(find, {"owner": owner, "id": answer_id, "oldest": oldest, "status": status}).fetchone()
        return None if row is None else int(row[0])

    # Answers in the background.

    def begin(self, answer_id: str, owner: str, body: bytes, request: bytes = b"") -> None:
        """Store the object of an answer that starts, and its request. Raises `StateLimitReached`."""
        insert = (
            "INSERT INTO answers (owner, id, stored_at, status, body, request, input, output)"
            " VALUES (?, ?, ?, 'running', ?, ?, x'', x'')"
        )
        with self._file.transaction() as db:
            expired = f"DELETE FROM answer_events WHERE stored_at <= :oldest AND NOT {is_alive('answer_events.answer')}"
            db.execute(expired, self._event_times)
            number = db.execute(insert, (owner, answer_id, self._file.clock(), body, request)).lastrowid or 0
            self._add_events(db, number, (ALIVE, [b""]))
            self._file.make_room(db, owner, number)

    def share(self, answer_id: str, owner: str, events: Events) -> bool:
        """Store events of an answer that is generated, which is not overdue now. Returns whether it may go on."""
        with self._file.transaction() as db:
            find = f"SELECT number, status, is_cancelled FROM answers WHERE {_KNOWN}"
            row = db.execute(find, {"owner": owner, "id": answer_id}).fetchone()
            if row is None:
                return False
            number, status, is_cancelled = row
            # That of the answer would write its request again.
            alive = "UPDATE answer_events SET stored_at = ? WHERE answer = ? AND number = ?"
            db.execute(alive, (self._file.clock(), number, ALIVE))
            self._add_events(db, number, events)
            return status != "running" or not is_cancelled

    def events(self, answer_id: str, owner: str, after: int) -> list[bytes]:
        """The stored events of an answer after the one with index `after`."""
        find = (
            f"SELECT event FROM answer_events e JOIN answers a ON a.number = e.answer WHERE {_KNOWN} AND e.number > :after"
            f" AND (e.stored_at > :oldest OR {is_alive('e.answer')}) ORDER BY e.number"
        )
        known = {"owner": owner, "id": answer_id, "after": after, **self._event_times}
        return [event for (event,) in self._file.read(find, known)]

    @property
    def _event_times(self) -> dict[str, float]:
        return {**self._file.times, "oldest": self._file.clock() - EVENT_SECONDS}

    def finish(self, answer_id: str, owner: str, body: bytes, events: Events = NO_EVENTS) -> None:
        """An answer that ran has ended. `body` is its object, and `events` are its last ones, unless a complete one is stored."""
        with self._file.transaction() as db:
            number = self._number(db, answer_id, owner, status="running")
            if number is not None:
                self._end_events(db, number, events)
                db.execute("UPDATE answers SET status = 'ended', body = ? WHERE number = ?", (body, number))

    def _end_events(self, db: sqlite3.Connection, answer: int, last: Events) -> None:
        self._add_events(db, answer, last)
        db.execute("DELETE FROM answer_events WHERE answer = ? AND number = ?", (answer, ALIVE))

    def _add_events(self, db: sqlite3.Connection, answer: int, events: Events) -> None:
        now = self._file.clock()
        rows = [(answer, number, now, event) for number, event in enumerate(events[1], events[0])]
        db.executemany("INSERT OR IGNORE INTO answer_events VALUES (?, ?, ?, ?)", rows)

    def request_cancel(self, answer_id: str, owner: str) -> None:
        """Ask the process that runs an answer to cancel it."""
        with self._file.transaction() as db:
            db.execute(f"UPDATE answers SET is_cancelled = 1 WHERE {_KNOWN}", {"owner": owner, "id": answer_id})

    # Complete answers.

    def store(
        self,
        answer_id: str,
        request: ModelRequest,
        output: ModelOutput,
        body: bytes,
        *,
        owner: str = "",
        events: Events = NO_EVENTS,
    ) -> None:
        """Store a complete answer. `request` is as the client sent it, not expanded; `body` is the object it got. `events` are
        the last ones of an answer that ran.

        An answer with a stored id replaces it. Raises `UnknownResponse` if the answer it continues was deleted meanwhile,
        and `StateLimitReached`.
        """
        previous = previous_response_id(request)
        try:
            own = msgspec.json.encode(own_messages(request))
            stored = own, msgspec.json.encode(structs.replace(output, others=())), body
            items = list(item_spans(msgspec.json.decode(body), output.parts))
        except (msgspec.DecodeError, TypeError, ValueError, RecursionError) as error:
            raise StoreError(f"response {answer_id} cannot be stored: {error}") from error
        with self._file.transaction() as db:
            parent = self._number(db, previous, owner, self._file.oldest, "complete") if previous else None
            if previous and parent is None:
                raise unknown_previous(request)
            number = self._put(db, answer_id, owner, parent, stored)
            self._end_events(db, number, events)
            db.executemany(
                "INSERT OR REPLACE INTO items VALUES (?, ?, ?, ?, ?)",
                [(owner, item, number, *at) for item, *at in items],
            )
            self._file.make_room(db, owner, number)

    def expand(self, request: ModelRequest, *, owner: str = "") -> ModelRequest:
        """The full request: with the answer it continues and the items it refers to. The same object if there are none.

        Raises `UnknownResponse`, in OpenAI's words, for what is not stored.
        """
        previous = previous_response_id(request)
        if not previous and not any(map(has_references, request.messages)):
            return request
        earlier: list[Message] = []
        for stored in self._chain(previous, owner, partial(unknown_previous, request)) if previous else ():
            earlier += stored.input
            if stored.output.parts:
                earlier.append(Message("assistant", stored.output.parts))
        own = structs.replace(request, messages=self._resolved(request.messages, owner))
        return continue_from(own, self._resolved(earlier, owner))

    def chain(self, answer_id: str, *, owner: str = "") -> list[StoredResponse]:
        """A complete answer and all that it continues, the first one first. Raises `UnknownResponse`."""
        return self._chain(answer_id, owner, partial(unknown_answer, answer_id))

    def _put(
        self, db: sqlite3.Connection, answer_id: str, owner: str, parent: int | None, stored: tuple[bytes, ...]
    ) -> int:
        """The row of a complete answer: that of the one that ran, or a new one."""
        now = self._file.clock()
        db.execute("UPDATE answers SET is_leaf = 0 WHERE number = ?", (parent,))
        running = self._number(db, answer_id, owner, status="running")
        if running is not None:
            fill = (
                "UPDATE answers SET parent = ?, stored_at = ?, status = 'complete', request = x'', input = ?, output = ?,"
                " body = ? WHERE number = ?"
            )
            db.execute(fill, (parent, now, *stored, running))
            return running
        known = self._number(db, answer_id, owner)
        db.execute("UPDATE answers SET is_deleted = 1 WHERE number = ?", (known,))
        insert = "INSERT INTO answers (owner, id, parent, stored_at, input, output, body) VALUES (?, ?, ?, ?, ?, ?, ?)"
        number = db.execute(insert, (owner, answer_id, parent, now, *stored)).lastrowid or 0
        if known is not None:
            _delete(db, known)
        return number

    def _chain(self, answer_id: str, owner: str, unknown: Callable[[], UnknownResponse]) -> list[StoredResponse]:
        # The error is made where it is raised: a variable that holds it keeps its traceback alive, and with it the request.
        rows = self._file.read(_CHAIN, {"owner": owner, "id": answer_id, "oldest": self._file.oldest})
        if not rows:
            raise unknown()
        try:
            return [
                StoredResponse(name, _messages.decode(own), _output.decode(output), body)
                for name, own, output, body in rows
            ]
        except msgspec.DecodeError as error:
            raise StoreDamaged(f"{self._file.path}: the response {answer_id} is damaged: {error}") from error

    def _resolved(self, messages: Iterable[Message], owner: str) -> tuple[Message, ...]:
        """The messages, with the items that they refer to."""
        return tuple(
            structs.replace(message, parts=tuple(self._parts(message, owner))) if has_references(message) else message
            for message in messages
        )

    def _parts(self, message: Message, owner: str) -> Iterator[Part]:
        for part in message.parts:
            item = item_reference(part)
            yield from (part,) if item is None else self._item(item, owner)

    def _item(self, item: str, owner: str) -> Sequence[OutputPart]:
        find = (
            "SELECT output, first, behind FROM items i JOIN answers r USING (number)"
            " WHERE i.owner = :owner AND i.id = :item AND NOT is_deleted AND stored_at > :oldest"
        )
        rows = self._file.read(find, {"owner": owner, "item": item, "oldest": self._file.oldest})
        if not rows:
            raise UnknownResponse(
                f"Item with id '{item}' not found. Items are not persisted when `store` is set to false. Try again with "
                "`store` set to true, or remove this item from your input.",
                param="input",
            )
        output, first, end = rows[0]
        return _output.decode(output).parts[first:end]

    # Answers that only their provider stored.

    def remember(self, answer: StoredAnswer, owner: str) -> None:
        """Remember where an answer is. The request does not wait for the disk: it is written soon."""
        self._pending[owner, answer.id] = answer
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._write_pending())

    def write_remembered(self, answers: Mapping[tuple[str, str], StoredAnswer]) -> None:
        """Write where answers are."""
        insert = (
            "INSERT INTO answers (owner, id, stored_at, status, provider, credential, model, input, output, body)"
            " VALUES (?, ?, ?, 'upstream', ?, ?, ?, x'', x'', x'') ON CONFLICT DO NOTHING"
        )
        with self._file.transaction() as db:
            for (owner, answer_id), answer in answers.items():
                db.execute(f"DELETE FROM answers WHERE {_KNOWN} AND {THERE}", {"owner": owner, "id": answer_id})
                place = answer.provider, answer.credential, answer.model
                db.execute(insert, (owner, answer_id, self._file.clock(), *place))
            self._file.make_room(db, None, place=THERE)

    async def aclose(self) -> None:
        """Write what is left, and close the file."""
        if self._task is not None:
            await asyncio.wait({self._task})
        self._file.close()

    async def _write_pending(self) -> None:
        try:
            while self._pending:
                answers = dict(self._pending)
                try:
                    await STATE.run(self.write_remembered, answers)
                except AntiphonError:
                    logger.exception("answers that providers stored are not remembered; clients cannot get them by id")
                for key, answer in answers.items():
                    if self._pending.get(key) is answer:
                        del self._pending[key]
        finally:
            self._task = None


def _delete(db: sqlite3.Connection, number: int) -> None:
    """Delete an answer; it stays, and is not found any more, while others build on it."""
    db.execute("DELETE FROM answer_events WHERE answer = ?", (number,))
    db.execute("UPDATE answers SET is_deleted = 1 WHERE number = ?", (number,))
    if db.execute("SELECT is_leaf FROM answers WHERE number = ?", (number,)).fetchone()[0]:
        drop_answer(db, number)
