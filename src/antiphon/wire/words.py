"""Lists of names, written as a sentence is: what an API knows is many words."""

from __future__ import annotations


def words(text: str) -> frozenset[str]:
    """The names, in no order."""
    return frozenset(text.split())


def in_order(text: str) -> tuple[str, ...]:
    """The names, in theirs."""
    return tuple(text.split())
