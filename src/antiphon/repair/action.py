"""What a repair did, told one by one."""

from __future__ import annotations

import logging
from typing import Literal, TypeAlias

from msgspec import Struct

ActionKind: TypeAlias = Literal["moved", "restored", "joined", "renamed", "synthesised", "kept_as_text", "recognised"]

LEVELS: dict[ActionKind, int] = {
    "moved": logging.INFO,
    "restored": logging.INFO,
    "joined": logging.DEBUG,
    "renamed": logging.INFO,
    "recognised": logging.DEBUG,
    "synthesised": logging.WARNING,
    "kept_as_text": logging.WARNING,
}


class Action(Struct, frozen=True):
    """One thing a repair did: what, at which message of the original sequence, and why.

    moved: something stands elsewhere now. restored: a real result took the place of a stand-in. joined: the same result twice
    became one. renamed: an id was changed. recognised: a block of another format was read as what it is. synthesised: a result
    that was missing says so. kept_as_text: a result without a call is words now.
    """

    kind: ActionKind
    message: int
    detail: str

    def __str__(self) -> str:
        return f"messages[{self.message}]: {self.kind}: {self.detail}"
