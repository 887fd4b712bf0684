"""What a translation could not carry, told by name (law L3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from antiphon.errors import AntiphonError
from antiphon.parts import NativeExtras


class Loss(Struct, frozen=True):
    """Something of the source that the target cannot say: where it was, what it was, why it is not there."""

    path: str
    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.path or '(body)'}: {self.what}: {self.why}"


def lose_native(losses: list[Loss], path: str, native: NativeExtras | None, *known: str) -> None:
    """Report the extras of every origin that the writing format does not know (`known` are those it does)."""
    for origin, extras in native.items() if native else ():
        if origin not in known:
            losses.extend(Loss(f"{path}.{name}", name, f"only {origin} can say it") for name in extras)


def own_extras(native: NativeExtras | None, losses: list[Loss], path: str, *known: str) -> dict[str, Any]:
    """The extras that the writing format can say, of the origins that it knows; all others are lost."""
    own: dict[str, Any] = {}
    if native:
        lose_native(losses, path, native, *known)
        for origin in known:
            own.update(native.get(origin, {}))
    return own


class LossyTranslation(AntiphonError):
    """In strict mode: the translation would lose something, so it was not made."""

    def __init__(self, losses: Sequence[Loss]) -> None:
        self.losses = tuple(losses)
        super().__init__(f"the translation would lose {len(losses)} things: " + "; ".join(map(str, losses)))
