"""What is asked of a store, checked the same way for every store: the one that is meant, and numbers that can be meant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from antiphon.errors import StoreError, UnknownConversation, UnknownRun
from antiphon.history.ids import ID_LENGTH

T = TypeVar("T")

SHORTEST_END = 4
"""So many characters of an id are enough to name what it is of, if nothing else fits."""


def may_be_an_end(name: str) -> bool:
    """Whether a name is long enough to be the beginning or the end of an id, and too short to be all of it."""
    return SHORTEST_END <= len(name) < ID_LENGTH


def the_conversation(found: Sequence[T], name: str, place: str) -> T:
    """The one conversation that fits."""
    return _the_one(found, UnknownConversation, name, place, "conversation", "history")


def the_run(found: Sequence[T], name: str, place: str) -> T:
    """The one run that fits."""
    return _the_one(found, UnknownRun, name, place, "run", "runs")


def check_not_negative(**numbers: int) -> None:
    """Refuse a negative limit or offset by its name."""
    for name, number in numbers.items():
        if number < 0:
            raise StoreError(f"{name} must not be negative, and it is {number}")


def check_text(name: str, *texts: str | None) -> None:
    """Refuse a text with half a character in it: it can be neither stored nor sent. `name` is what it would be."""
    for text in texts:
        try:
            (text or "").encode()
        except UnicodeEncodeError as error:
            raise StoreError(
                f"the {name} is not Unicode (a lone surrogate at character {error.start}); replace it. Nothing was written"
            ) from error


def whole(text: str) -> str:
    """A text that only informs, or is looked for, with a question mark for half a character."""
    return text.encode("utf-8", "replace").decode()


def _the_one(found: Sequence[T], error: type[StoreError], name: str, place: str, noun: str, command: str) -> T:
    if not found:
        raise error(f"{place} has no {noun} {name!r}; `antiphon {command} list` shows those it has")
    if len(found) > 1:
        raise error(f"{place} has several {noun}s that fit {name!r}; give more of the id")
    return found[0]
