"""`ModelName`: `provider/model` in two, and the only place that splits it.

The first slash counts: the models of a reseller have slashes of their own (`openrouter/anthropic/claude-sonnet-5`). It is a file
of its own because the layers that need it share nothing else.
"""

from __future__ import annotations

from typing import NamedTuple, Self


class ModelName(NamedTuple):
    """A model at a provider. A name without a slash has no provider."""

    provider: str
    model: str

    @classmethod
    def parse(cls, name: str) -> Self:
        provider, slash, model = name.partition("/")
        return cls(provider, model) if slash else cls("", name)

    def __str__(self) -> str:
        return f"{self.provider}/{self.model}" if self.provider else self.model
