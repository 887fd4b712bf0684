"""What a translation could not express, reported by name (law L3)."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from antiphon.errors import AntiphonError
from antiphon.parts import NativeExtras
from antiphon.wire.spec import spec_of


class Loss(Struct, frozen=True):
    """Something that the target cannot express: its path, what it is, and why it was dropped or changed."""

    path: str
    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.path or '(body)'}: {self.what}: {self.why}"


def foreign_reason(origin: str, name: str) -> str:
    """Why an extra of another format is lost."""
    spec = spec_of(origin)
    if spec is not None and name in spec.server_state:
        return f"the turns it refers to are stored at {origin}; sent only the messages of this request"
    return f"specific to {origin}; dropped"


def lose_native(losses: list[Loss], path: str, native: NativeExtras | None, *known: str) -> None:
    """Report the extras of every origin that the written format does not have (`known` are those it has)."""
    for origin, extras in native.items() if native else ():
        if origin not in known:
            spec = spec_of(origin) if extras else None
            losses.extend(
                Loss(f"{path}.{name}", name, foreign_reason(origin, name))
                for name, value in extras.items()
                if spec is None or not spec.is_local_detail(name, value)
            )


def other_fields(fields: Mapping[str, Any], known: Container[str]) -> dict[str, Any]:
    """The fields of an object beside the `known` ones; null means absent."""
    return {name: value for name, value in fields.items() if name not in known and value is not None}


def lose_candidates(losses: list[Loss], count: int, reason: str) -> None:
    """Report the candidates after the first, for a format whose answers have one."""
    losses.extend(Loss(f"others[{index}]", "candidate", f"{reason}; dropped") for index in range(count))


def own_extras(native: NativeExtras | None, losses: list[Loss], path: str, *known: str) -> dict[str, Any]:
    """The extras of the known origins; all others are reported as lost."""
    own: dict[str, Any] = {}
    if native:
        lose_native(losses, path, native, *known)
        for origin in known:
            own.update(native.get(origin, {}))
    return own


class Losses(list[Loss]):
    """The losses of one translation.

    The writer of the parts says which one it is at: `message` and `part`, and `inner` for what a result holds. A path is made
    only for a loss. In a response there is no message; `place` is the candidate.
    """

    __slots__ = ("inner", "message", "part", "place")  # set for every part: much faster than fields in a dict

    def __init__(self, losses: Iterable[Loss] = ()) -> None:
        super().__init__(losses)
        self.message = self.part = self.inner = -1
        self.place = ""

    def path(self, field: str = "") -> str:
        """Where the writer is, or a field of that."""
        steps = [self.place] if self.place else []
        if self.message >= 0:
            steps.append(f"messages[{self.message}]")
        if self.part >= 0:
            steps.append(f"parts[{self.part}]")
        if self.inner >= 0:
            steps.append(f"content[{self.inner}]")
        return ".".join([*steps, field] if field else steps)

    def add(self, what: str, why: str, field: str = "") -> None:
        """Report something that the writer cannot express where it is."""
        self.append(Loss(self.path(field), what, why))

    def add_foreign(self, what: str, origin: str) -> None:
        """Report a block that only the format of its `origin` has."""
        self.add(what, f"block type specific to {origin}; dropped")

    def report_extras(self, native: NativeExtras | None, *known: str) -> None:
        """Report the extras of every origin but the `known` ones."""
        if native:
            lose_native(self, self.path(), native, *known)

    def take_extras(self, native: NativeExtras | None, *known: str) -> dict[str, Any]:
        """The extras of the known origins; all others are reported."""
        return own_extras(native, self, self.path(), *known) if native else {}


class LossyTranslation(AntiphonError):
    """In strict mode: the translation would drop something, so it was not made."""

    def __init__(self, losses: Sequence[Loss]) -> None:
        self.losses = tuple(losses)
        super().__init__(f"strict mode: translation would drop {len(losses)} items: " + "; ".join(map(str, losses)))
