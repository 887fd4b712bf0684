"""Damage to traffic, as broken clients, hosts and proxies do it: one value of a body or an event is wrong, or some bytes are."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import strategies as st

HUGE = msgspec.Raw(b"1e400")
"""A number that JSON allows, models write and no float holds."""

JUNK: tuple[Any, ...] = (
    *(None, 0, -1, 1.5, HUGE, "", "x", "null", True, [], {}, [None], [[]], {"": ""}),
    *({"type": "x"}, {"type": "text"}, [{"type": "text"}], [{"type": "text", "text": "x"}]),
)
_UNKNOWN = ("", "x", "type", "id", "name", "text", "index", "content", "annotations", "cache_control", "arguments")


def damaged(value: Any, dice: random.Random) -> Any:
    """A copy in which one value is gone, is something else, comes twice, is in a list, or has an unknown field beside it."""
    copy = msgspec.json.decode(msgspec.json.encode(value))
    places: list[tuple[Any, Any]] = [(copy, key) for key in (copy if isinstance(copy, dict) else range(len(copy)))]
    for holder, key in places:  # grows while it is read
        inner = holder[key]
        if isinstance(inner, dict | list):
            places.extend((inner, index) for index in (inner if isinstance(inner, dict) else range(len(inner))))
    if not places:
        return copy
    holder, key = dice.choice(places)
    match dice.choice(("drop", "replace", "replace", "repeat", "nest", "unknown")):
        case "drop":
            del holder[key]
        case "repeat" if isinstance(holder, list):
            holder.insert(key, holder[key])
        case "nest":
            holder[key] = [holder[key]]
        case "unknown" if isinstance(holder, dict):
            holder[dice.choice(_UNKNOWN)] = dice.choice(JUNK)
        case _:
            holder[key] = dice.choice(JUNK)
    return copy


def damaged_stream(stream: bytes, dice: random.Random) -> bytes:
    """A stream with one damaged event; sometimes another is gone, comes twice or at the wrong time."""
    events = stream.replace(b"\r\n", b"\n").strip(b"\n").split(b"\n\n")
    place = dice.randrange(len(events))
    lines = events[place].split(b"\n")
    for number, line in enumerate(lines):
        if line.startswith(b"data: {"):
            lines[number] = b"data: " + msgspec.json.encode(damaged(msgspec.json.decode(line[6:]), dice))
    events[place] = b"\n".join(lines)
    place = dice.randrange(len(events))
    match dice.choice(("none", "none", "drop", "repeat", "move")):
        case "drop":
            del events[place]
        case "repeat":
            events.insert(dice.randrange(len(events)), events[place])
        case "move":
            events.insert(dice.randrange(len(events)), events.pop(place))
        case _:
            pass
    return b"\n\n".join(events) + b"\n\n"


@st.composite
def damaged_bytes(draw: st.DrawFn, whole: st.SearchStrategy[bytes], inserted: Sequence[bytes] = ()) -> bytes:
    """Bytes with some replaced, removed or repeated, and others added: any, or those that are `inserted`."""
    damage = bytearray(draw(whole))
    others = st.binary(max_size=3) | st.just(bytes(damage[:40]))
    for _ in range(draw(st.integers(0, 3))):
        at, size = draw(st.integers(0, len(damage))), draw(st.integers(0, 5))
        damage[at : at + size] = draw(st.sampled_from(inserted) | others if inserted else others)
    return bytes(damage)


def cut(stream: bytes, data: st.DataObject) -> list[bytes]:
    """The bytes in pieces."""
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=8)) | {0, len(stream)})
    return [stream[start:end] for start, end in pairwise(cuts)]
