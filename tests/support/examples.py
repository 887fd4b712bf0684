"""How much of a search a run does: a little of it every day, much of it in the night.

The number given is that of the everyday run, and the profiles of `conftest.py` multiply it. It is for whatever is drawn or
counted: examples of a property, kills, worlds, copies that are damaged.
"""

from __future__ import annotations

from hypothesis import settings

EVERYDAY_EXAMPLES = 10
"""How often a property is tried in the everyday run; the other profiles try it a multiple of this."""


def scaled(everyday: int) -> int:
    """This many in the everyday run, and so many times more in another as its profile has more examples."""
    return everyday * settings.get_profile(settings.get_current_profile_name()).max_examples // EVERYDAY_EXAMPLES


def is_everyday() -> bool:
    """Whether this run takes samples, the same ones each time."""
    return scaled(1) == 1
