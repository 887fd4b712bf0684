"""What a repair did."""

from __future__ import annotations

import logging
from typing import Literal, TypeAlias

from msgspec import Struct

ActionKind: TypeAlias = Literal[
    "moved",
    "restored",
    "joined",
    "renamed",
    "synthesised",
    "kept_as_text",
    "recognised",
    "dropped",
    "declared",
    "added",
]

LOG_LEVELS: dict[ActionKind, int] = {
    "moved": logging.INFO,
    "restored": logging.INFO,
    "joined": logging.DEBUG,
    "renamed": logging.INFO,
    "recognised": logging.DEBUG,
    "dropped": logging.DEBUG,
    "declared": logging.INFO,
    "added": logging.INFO,
    "synthesised": logging.WARNING,
    "kept_as_text": logging.WARNING,
}


class Action(Struct, frozen=True):
    """One change: its kind, the message of the original sequence, and the reason.

    moved: the position changed. restored: a real result replaced a placeholder. joined: a duplicate result was dropped. renamed:
    an id was changed. recognised: a block of another format was read. synthesised: a missing result was added. kept_as_text: a
    result without a call became text. dropped: an empty list that APIs reject is gone.
    declared: tools that earlier calls name were declared. added: a system message that the host requires was put first.
    """

    kind: ActionKind
    message: int
    detail: str

    def __str__(self) -> str:
        return f"messages[{self.message}]: {self.kind}: {self.detail}"
