"""What a translation could not express, reported by name (law L3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from antiphon.errors import AntiphonError
from antiphon.parts import NativeExtras

_STORED_TURNS = frozenset(
    {"previous_response_id", "previous_interaction_id", "conversation", "prompt", "thread", "cachedContent"}
)

_SAME_AS_ABSENT = {"caller": {"type": "direct"}}
"""Extras with a value that says nothing: Anthropic writes that the model itself made a call."""


class Loss(Struct, frozen=True):
    """Something that the target cannot express: its path, what it is, and why it was dropped or changed."""

    path: str
    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.path or '(body)'}: {self.what}: {self.why}"


def foreign_reason(origin: str, name: str) -> str:
    """Why an extra of another format is lost."""
    if name in _STORED_TURNS:
        return f"the turns it stands for are stored at {origin}; sent only the messages of this request"
    return f"specific to {origin}; dropped"


def lose_native(losses: list[Loss], path: str, native: NativeExtras | None, *known: str) -> None:
    """Report the extras of every origin that the written format does not have (`known` are those it has)."""
    for origin, extras in native.items() if native else ():
        if origin not in known:
            losses.extend(
                Loss(f"{path}.{name}", name, foreign_reason(origin, name))
                for name, value in extras.items()
                if name not in _SAME_AS_ABSENT or value != _SAME_AS_ABSENT[name]
            )


def own_extras(native: NativeExtras | None, losses: list[Loss], path: str, *known: str) -> dict[str, Any]:
    """The extras of the known origins; all others are reported as lost."""
    own: dict[str, Any] = {}
    if native:
        lose_native(losses, path, native, *known)
        for origin in known:
            own.update(native.get(origin, {}))
    return own


class LossyTranslation(AntiphonError):
    """In strict mode: the translation would drop something, so it was not made."""

    def __init__(self, losses: Sequence[Loss]) -> None:
        self.losses = tuple(losses)
        super().__init__(f"strict mode: translation would drop {len(losses)} items: " + "; ".join(map(str, losses)))
