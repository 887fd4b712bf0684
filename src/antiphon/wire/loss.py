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

_LABELLED = "openai-responses"
"""Its items have an id, by which only its own server finds them again."""


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
                if not _says_nothing(origin, name, value)
            )


def _says_nothing(origin: str, name: str, value: Any) -> bool:
    """Whether an extra tells another provider nothing: it is not content, and what it says is so without it.

    The id of an item, that it is complete, a summary in one piece (its text is the thought), and Anthropic's note that the model
    itself made a call. All of them are kept as extras of their origin, which gets them back.
    """
    if name == "caller":
        return bool(value == {"type": "direct"})
    if origin != _LABELLED:
        return False
    if name == "item":
        return isinstance(value, dict) and all(_says_nothing(origin, *field) for field in value.items())
    if name == "summary":
        return isinstance(value, list) and len(value) == 1 and value[0].keys() <= {"type", "text"}
    return value == "completed" if name == "status" else name == "id" and isinstance(value, str)


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
