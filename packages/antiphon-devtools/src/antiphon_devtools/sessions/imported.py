"""What reading a session gives: its branches as histories, and a report of what could not be read.

`HistoryBuilder` makes the entries of one branch. A reader adds messages in the wire format that its program keeps; each is read
by that format's own reader, the sequence is repaired as in every other import (`conversation/interchange.py`), and every loss,
repair and unreadable message is reported with its line.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any, TypeVar

from msgspec import Struct, structs

from antiphon.conversation.interchange import MessageSource, read_dated_messages
from antiphon.errors import AntiphonError
from antiphon.history import AgentHistory, CompactionEntry, HistoryEntry
from antiphon.wire import formats
from antiphon.wire.request import Message
from antiphon_devtools.sessions.session_file import SessionFile, Unreadable

M = TypeVar("M")


class Branch(Struct, frozen=True, kw_only=True):
    """One line of a conversation. The first branch of a session has no `parent`; others start with entries of theirs."""

    name: str = ""
    """What identifies the branch in its session, and stays the same when the session grows; empty for the first."""
    title: str = ""
    entries: tuple[HistoryEntry, ...]
    parent: str | None = None
    """The name of the branch it was forked from."""
    shared: int = 0
    """How many entries it has in common with its parent."""


class ImportedSession(Struct, frozen=True, kw_only=True):
    """A session as histories. `branches` starts with the oldest; the others are forks of it."""

    session: SessionFile
    created: datetime
    branches: tuple[Branch, ...]
    unreadable: tuple[Unreadable, ...] = ()
    own_context: int = 0
    """How many messages the program adds to every session by itself (its instructions, the date, its list of tools). They are
    not part of the histories: each program adds its own again."""

    @classmethod
    def of(
        cls,
        session: SessionFile,
        created: datetime,
        branches: Sequence[Branch],
        unreadable: Iterable[Unreadable],
        own_context: int = 0,
    ) -> ImportedSession:
        """The session with its branches as forks and its report by lines, that of its own file first."""
        return cls(
            session=session,
            created=created,
            branches=with_forks(branches),
            unreadable=tuple(sorted(unreadable, key=lambda one: (one.path != session.path, one.path, one.line))),
            own_context=own_context,
        )


class HistoryBuilder:
    """Collects the messages of one branch and makes its entries. `format_name` is the wire format of the messages."""

    def __init__(self, path: str, format_name: str, unreadable: list[Unreadable], created: datetime) -> None:
        self._path = path
        self._format = format_name
        self._unreadable = unreadable
        self._time = created
        self._messages: list[tuple[Message, MessageSource]] = []
        self._history = AgentHistory()

    def add(self, body: dict[str, Any], *, line: int, time: datetime | None = None, model: str = "") -> None:
        """Add a message in the wire format. One that the format does not accept is reported and left out."""
        self.add_items([(line, body)], time=time, model=model)

    def add_items(
        self, items: Sequence[tuple[int, dict[str, Any]]], *, time: datetime | None = None, model: str = ""
    ) -> None:
        """Add items, each with its line, that the wire format reads as one message: those of one answer."""
        wire = formats[self._format]
        try:
            request = wire.read_request({wire.spec.messages_key: [body for _, body in items]})
        except AntiphonError as error:
            if len(items) == 1:
                self.report(items[0][0], str(error))
                return
            for item in items:  # so that one bad item does not take the others with it
                self.add_items([item], time=time, model=model)
            return
        self._advance(time)
        source = MessageSource(str(items[0][0]), self._time, model)
        self._messages += ((message, source) for message in request.messages)

    def add_message(self, message: Message, *, line: int, time: datetime | None = None, model: str = "") -> None:
        """Add a message that is neutral already."""
        self._advance(time)
        self._messages.append((message, MessageSource(str(line), self._time, model)))

    def compact(self, summary: str, *, time: datetime | None = None) -> None:
        """Note that the program replaced everything so far by a summary, for the model."""
        self._flush()
        self._advance(time)
        self._history.append(CompactionEntry(summary, self._history.version, timestamp=self._time))

    def report(self, line: int, why: str) -> None:
        """Report something that is not in the history."""
        self._unreadable.append(Unreadable(self._path, line, why))

    def entries(self) -> tuple[HistoryEntry, ...]:
        """The entries of all that was added, numbered."""
        self._flush()
        return tuple(self._history.entries)

    def _advance(self, time: datetime | None) -> None:
        """Set the time of what comes next; a message without a time has that of the one before it."""
        if time is not None:
            self._time = time.astimezone(UTC)

    def _flush(self) -> None:
        """Turn the messages added since the last compaction into entries."""
        if not self._messages:
            return
        read = read_dated_messages(self._messages, self._format)
        lines = [int(source.path) for _, source in self._messages]
        for action in read.repairs:
            line = lines[action.message] if action.message < len(lines) else lines[-1]
            self.report(line, f"{action.kind}: {action.detail}")
        for loss in read.losses:
            number, _, rest = loss.path.partition(".")
            self.report(int(number or 0), f"{rest + ': ' if rest else ''}{loss.what}: {loss.why}")
        for entry in read.entries:
            self._history.append(entry)
        self._messages = []


def branches_in_order(
    paths: Iterable[Sequence[M]],
    id_of: Callable[[M], str],
    entries_of: Callable[[Sequence[M], list[Unreadable]], tuple[HistoryEntry, ...]],
    unreadable: list[Unreadable],
) -> list[Branch]:
    """A branch for each list of messages that has new ones, in the order in which they were written.

    A branch is named by its first new message, so that names stay when the file grows. What branches share is reported once.
    """
    branches: list[Branch] = []
    seen: set[str] = set()
    for messages in paths:
        ids = list(map(id_of, messages))
        new = [message_id for message_id in ids if message_id not in seen]
        if branches and not new:  # the user went back, and asked nothing since
            continue
        report: list[Unreadable] = []
        branches.append(Branch(name=new[0] if branches else "", entries=entries_of(messages, report)))
        seen.update(ids)
        unreadable += [one for one in report if one not in unreadable]
    return branches


def with_forks(branches: Sequence[Branch]) -> tuple[Branch, ...]:
    """The branches, those after the first as forks of it, with the number of entries they share."""
    first, *others = branches
    forked = []
    for branch in others:
        shared = takewhile(operator.truth, map(operator.eq, first.entries, branch.entries))
        forked.append(structs.replace(branch, parent=first.name, shared=sum(shared)))
    return (first, *forked)
