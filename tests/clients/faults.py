"""What may go wrong on the way, played to a program in the middle of its work: it must come through all the same.

Half of them are faults of the upstream before or within its first answer, which the gateway or the program itself mends; the
others are legal answers that not everybody expects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from msgspec import Struct, structs

from antiphon.wire.delta import Failed
from gateway.strict_upstream import EMPTY, Fault, StrictUpstream, late, text_answer
from providers.scripted_server import Reply

Style: TypeAlias = Literal["plain", "parallel", "text_after", "no_arguments", "broken_arguments"]
"""How the scripted model makes its first call."""


class Trouble(Struct, frozen=True, kw_only=True):
    """One way in which things go wrong. `first` takes the place of, or is done to, the first answer."""

    name: str
    first: Callable[[StrictUpstream], Fault] | None = None
    style: Style = "plain"
    is_harmless: bool = False
    """Whether the first answer arrives whole, so that a program must not ask again."""
    piece: int = 0
    """How many bytes of a stream go out at a time."""


def _cut_late(reply: Reply) -> Reply:
    """Something was shown already."""
    return structs.replace(reply, cut_after=len(reply.body) * 2 // 3)


def _overloaded_late(upstream: StrictUpstream) -> Fault:
    """The provider says in the middle of an answer that it is overloaded."""
    return upstream.error_in_stream("overloaded", "Overloaded", text_answer("Let me see."))


def _pausing(reply: Reply) -> Reply:
    """Two pauses that are longer than the time after which the gateway sends a keep-alive."""
    return structs.replace(reply, piece=len(reply.body) // 3 + 1, pause=2.0)


def _cut_before_finish(upstream: StrictUpstream) -> Fault:
    """The whole first call was sent; that it is the end of the answer was not."""

    def cut(reply: Reply) -> Reply:
        for end in range(len(reply.body), 0, -1):
            reader = upstream.wire.stream_reader()
            deltas = [*reader.feed(reply.body[:end]), *reader.close()]
            if reply.body[:end].endswith((b"\n\n", b"\r\n\r\n")) and isinstance(deltas[-1], Failed):
                return structs.replace(reply, cut_after=end)
        return reply

    return cut


TROUBLES: tuple[Trouble, ...] = (
    Trouble(name="429 first", first=lambda upstream: upstream.error(429, "rate_limit", "slow down", retry_after="1")),
    Trouble(name="529 first", first=lambda upstream: upstream.error(529, "overloaded", "too many", retry_after="1")),
    Trouble(name="error in a 200", first=lambda upstream: upstream.error_in_stream("overloaded", "too many")),
    Trouble(name="cut stream", first=lambda _: _cut_late),
    Trouble(name="cut after a call", first=_cut_before_finish),
    Trouble(name="overloaded after a word", first=_overloaded_late),
    Trouble(name="long pauses", first=lambda _: _pausing, is_harmless=True),
    Trouble(name="late head", first=lambda _: late(4.0), is_harmless=True),
    Trouble(name="empty stream", first=lambda _: EMPTY),
    Trouble(name="no arguments", style="no_arguments"),
    Trouble(name="broken arguments", style="broken_arguments"),
    Trouble(name="parallel calls", style="parallel"),
    Trouble(name="text after a call", style="text_after"),
    Trouble(name="split anywhere", piece=3),
)
