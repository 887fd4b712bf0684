"""How many examples a property is tried with, where the profile's number is too small for it."""

from __future__ import annotations

from hypothesis import settings


def at_least(examples: int) -> int:
    """This many in the everyday run; in the long one what its profile says, if that is more."""
    return max(examples, settings().max_examples)
