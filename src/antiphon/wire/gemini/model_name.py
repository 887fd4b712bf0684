"""What a model's name tells of what the model takes. The name is in the URL; one that says nothing certain is taken as modern."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

_MAX_NAME_LENGTH = 256
"""No model has a longer name; what follows is not looked at, and not kept in a cache."""
_NAME = re.compile(r"gemini-(\d{1,3})(?:\.(\d{1,3}))?-?([a-z-]*)")


class ModelTraits(NamedTuple):
    """The generation of a model, as far as its name tells; (0, 0) where it does not."""

    version: tuple[int, int] = (0, 0)
    variant: str = ""
    makes_images: bool = False

    @property
    def needs_signatures(self) -> bool:
        """Calls in the history carry a thought signature, or a stand-in for one (GM-10)."""
        return self.version >= (3, 0) and not self.makes_images

    @property
    def refuses_model_ending(self) -> bool:
        """The history must not end with a model turn (GM-16)."""
        return self.version >= (3, 6) or (self.version == (3, 5) and self.variant.startswith("flash-lite"))

    @property
    def takes_media_in_results(self) -> bool:
        return self.version >= (3, 0) or not self.is_known

    @property
    def has_thinking_levels(self) -> bool:
        return self.version >= (3, 0) or not self.is_known

    @property
    def always_thinks(self) -> bool:
        """A budget of 0 is refused (GM-14)."""
        return self.version >= (2, 5) and self.variant.startswith("pro")

    @property
    def is_known(self) -> bool:
        return self.version > (0, 0)


def traits_of(model: str) -> ModelTraits:
    """The traits of a model by its name, with or without `models/` before it."""
    return _cached_traits(model[:_MAX_NAME_LENGTH])


@lru_cache(maxsize=256)
def _cached_traits(model: str) -> ModelTraits:
    match = _NAME.search(model)
    if match is None:
        return ModelTraits()
    return ModelTraits((int(match[1]), int(match[2] or 0)), match[3], "image" in model)
