"""What may go wrong on the way, played to a program in the middle of its work: it must come through all the same.

Half of them are faults of the upstream before or within its first answer, which the gateway or the program itself mends; the
others are legal answers that not everybody expects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from msgspec import Struct, structs

from gateway.strict_upstream import EMPTY, Fault, StrictUpstream
from providers.scripted_server import Reply

Style: TypeAlias = Literal["plain", "parallel", "text_after", "no_arguments", "broken_arguments"]
"""How the scripted model makes its first call."""


class Trouble(Struct, frozen=True, kw_only=True):
    """One way in which things go wrong. `first` takes the place of, or is done to, the first answer."""

    name: str
    first: Callable[[StrictUpstream], Fault] | None = None
    style: Style = "plain"
    piece: int = 0
    """How many bytes of a stream go out at a time."""


def _cut_late(reply: Reply) -> Reply:
    """Something was shown already."""
    return structs.replace(reply, cut_after=len(reply.body) * 2 // 3)


TROUBLES: tuple[Trouble, ...] = (
    Trouble(name="429 first", first=lambda upstream: upstream.error(429, "rate_limit", "slow down", retry_after="1")),
    Trouble(name="529 first", first=lambda upstream: upstream.error(529, "overloaded", "too many", retry_after="1")),
    Trouble(name="error in a 200", first=lambda upstream: upstream.error_in_stream("overloaded", "too many")),
    Trouble(name="cut stream", first=lambda _: _cut_late),
    Trouble(name="empty stream", first=lambda _: EMPTY),
    Trouble(name="no arguments", style="no_arguments"),
    Trouble(name="broken arguments", style="broken_arguments"),
    Trouble(name="parallel calls", style="parallel"),
    Trouble(name="text after a call", style="text_after"),
    Trouble(name="split anywhere", piece=3),
)
