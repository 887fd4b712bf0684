"""The values that stores give, and the checks they share: conversations, hits of a search, runs, verifications."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from msgspec import Struct

from antiphon.errors import StoreError, UnknownRun
from antiphon.history.lease import Lease
from antiphon.ids import ID_LENGTH

if TYPE_CHECKING:
    pass

T = TypeVar("T")

RunState: TypeAlias = Literal["waiting", "suspended", "done", "failed", "cancelled"]
ENDED_STATES: frozenset[str] = frozenset({"done", "failed", "cancelled"})

MIN_ABBREVIATION = 4
"""So many characters of an id are enough, if only one id fits."""


class ConversationInfo(Struct, frozen=True, kw_only=True):
    """The facts about a stored conversation."""

    id: str
    title: str
    created: datetime
    updated: datetime
    version: int
    parent: str | None = None
    forked_at: int | None = None
    tags: tuple[str, ...] = ()
    imported: int = 0
    """How many of its entries, from the first on, came with an import: decisions and permissions among them do not count."""


class ConversationRow(Struct, frozen=True):
    """A conversation, and its number in the store."""

    number: int
    info: ConversationInfo

    @classmethod
    def of(
        cls,
        number: int,
        conversation: str,
        title: str,
        created: datetime,
        parent: str | None,
        forked_at: int | None,
        tags: Iterable[str],
        imported: int,
        version: int | None,
        updated: datetime | None,
    ) -> ConversationRow:
        """From a row: the facts, and the number and time of the last entry, if there is one."""
        info = ConversationInfo(
            id=conversation,
            title=title,
            created=created,
            updated=max(updated or created, created),
            version=version or 0,
            parent=parent,
            forked_at=forked_at,
            tags=tuple(tags),
            imported=imported,
        )
        return cls(number, info)

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def version(self) -> int:
        return self.info.version


class SearchHit(Struct, frozen=True):
    """An entry that matches a search."""

    conversation: ConversationInfo
    sequence_number: int
    kind: str
    excerpt: str


class Run(Struct, frozen=True, kw_only=True):
    """The row of a run, and its lease while a worker executes it."""

    id: str
    conversation: str
    kind: str
    """The name under which workers know its model, tools and limits."""
    code: int = 0
    """The lowest version of that kind's code that may execute it."""
    provider: str = ""
    """The provider whose limit it counts against."""
    options: dict[str, Any] = {}
    """What the submitter passed to the code of its kind."""
    state: RunState = "waiting"
    reason: str = ""
    """The reason for its state: how the turn ended, what failed, who cancelled it."""
    created: datetime
    updated: datetime
    due: datetime
    """Not before this."""
    attempts: int = 0
    """How often it was claimed."""
    is_cancelled: bool = False
    """Whether it was cancelled while a worker executes it."""
    lease: Lease | None = None

    @property
    def is_over(self) -> bool:
        return self.state in ENDED_STATES

    @property
    def display_state(self) -> str:
        """The state in one word; a waiting run that is leased is `running`."""
        return "running" if self.state == "waiting" and self.lease is not None else self.state


class Verification(Struct, frozen=True, kw_only=True):
    """What checking a conversation found. `head` is computed from the entries; `problem` is empty if all is well."""

    conversation: str
    entries: int
    head: str
    undigested: int = 0
    """Entries that were stored without a digest, by an earlier version."""
    problem: str = ""


class Tombstone(Struct, frozen=True, kw_only=True):
    """What is left of a deleted conversation: that it existed, how long it was, and its head. None of its content."""

    id: str
    deleted: datetime
    entries: int
    head: str


def is_id_abbreviation(name: str) -> bool:
    """Whether a name is long enough to be the beginning or the end of an id, and too short for a whole one."""
    return MIN_ABBREVIATION <= len(name) < ID_LENGTH


def single_match(found: Sequence[T], error: type[StoreError], name: str, location: str) -> T:
    """The one conversation or run that was found. Raises `error` if there is none, or more than one."""
    noun, command = ("run", "runs") if error is UnknownRun else ("conversation", "history")
    if not found:
        raise error(f"{location} has no {noun} {name!r}; list them with `antiphon {command} list`")
    if len(found) > 1:
        raise error(f"{location} has several {noun}s that match {name!r}; give more of the id")
    return found[0]


def check_not_negative(**numbers: int) -> None:
    """Raise `StoreError` for a negative limit or offset."""
    for name, number in numbers.items():
        if number < 0:
            raise StoreError(f"{name}={number}: must not be negative")


def check_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """The tags of a conversation. Raises `StoreError` if they are not texts, or one text instead of a list."""
    if isinstance(tags, str):
        raise StoreError(f"tags={tags!r}: expected a list of texts. Nothing was written")
    tags = tuple(tags)
    check_text("tag", *tags)
    return tags


def check_text(name: str, *texts: str | None) -> None:
    """Raise `StoreError` for what is not text, or has a lone surrogate and cannot be stored. `name` is what it would be."""
    for text in texts:
        if not isinstance(text, str | None):
            raise StoreError(f"the {name} must be text, not {type(text).__name__}. Nothing was written")
        try:
            (text or "").encode()
        except UnicodeEncodeError as error:
            raise StoreError(
                f"the {name} is not Unicode (a lone surrogate at character {error.start}); replace it. Nothing was written"
            ) from error
