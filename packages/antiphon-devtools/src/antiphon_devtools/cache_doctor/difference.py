"""The first place where a prompt differs from the one before it: the field, and the byte."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from antiphon.text import common_prefix, excerpt
from antiphon_devtools.cache_doctor.outline import CHUNK, Field, PromptOutline, Segment

_AROUND = 40

Change = Literal["changed", "added", "removed", "moved"]


class Difference(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where two prompts part. `byte` counts in the prompt, `offset` in the field; both are exact if `is_exact`."""

    path: str
    change: Change
    section: str
    byte: int
    offset: int = 0
    is_exact: bool = True
    """Otherwise only the 256 bytes are known in which the first difference is, and these are their beginning."""
    before: str = ""
    after: str = ""
    """The text around the difference, in the earlier and in the later request; empty where texts are not kept."""


def common_segments(first: PromptOutline, second: PromptOutline) -> int:
    """How many segments two prompts have in common from the start."""
    count = 0
    for one, other in zip(first.segments, second.segments, strict=False):
        if one.digest != other.digest:
            break
        count += 1
    return count


def first_difference(earlier: PromptOutline, later: PromptOutline) -> Difference | None:
    """Where `later` stops repeating `earlier`; None if it repeats all of it, or is itself its beginning."""
    count = common_segments(earlier, later)
    if count == len(earlier.segments) or count == len(later.segments):
        return None
    old, new = earlier.segments[count], later.segments[count]
    start = later.bytes_before(count)
    if (change := _added_or_removed(earlier, later, count)) is not None:
        shown = new if change == "added" else old
        return Difference(path=shown.path, change=change, section=shown.section, byte=start)
    return _inside(old, new, start)


def _added_or_removed(earlier: PromptOutline, later: PromptOutline, count: int) -> Change | None:
    """Whether a whole segment was added or removed at that place, rather than changed."""
    old, new = earlier.segments[count], later.segments[count]
    if old.section != new.section:
        rest = {segment.section for segment in later.segments[count:]}
        return "removed" if old.section not in rest else "added"
    if _follows(old, later.segments[count + 1 :]):
        return "added"
    return "removed" if _follows(new, earlier.segments[count + 1 :]) else None


def _follows(wanted: Segment, segments: Sequence[Segment]) -> bool:
    return any(segment.digest == wanted.digest for segment in segments)


def _inside(old: Segment, new: Segment, start: int) -> Difference:
    """The difference of two segments at the same place."""
    byte = start
    for one, other in zip(old.fields, new.fields, strict=False):
        if one.name != other.name:
            names = {field.name for field in old.fields}
            change: Change = "added" if other.name not in names else "removed"
            if change == "removed" and one.name in {field.name for field in new.fields}:
                change = "moved"
            shown = one if change == "removed" else other
            return Difference(path=shown.path, change=change, section=new.section, byte=byte)
        if one.chunks != other.chunks:
            return _in_field(one, other, new.section, byte)
        byte += other.size
    if len(old.fields) != len(new.fields):
        longer, change = (new, "added") if len(new.fields) > len(old.fields) else (old, "removed")
        extra = longer.fields[min(len(old.fields), len(new.fields))]
        return Difference(path=extra.path, change=change, section=new.section, byte=byte)
    # equal fields under another role
    return Difference(path=new.path.rpartition(".")[0] + ".role", change="changed", section=new.section, byte=start)


def _in_field(old: Field, new: Field, section: str, start: int) -> Difference:
    if old.text is None or new.text is None:
        same = common_prefix(old.chunks, new.chunks) * CHUNK
        return Difference(
            path=new.path, change="changed", section=section, byte=start + same, offset=same, is_exact=False
        )
    same = common_prefix(old.text, new.text)
    offset = len(new.text[:same].encode("utf-8", "replace"))
    return Difference(
        path=new.path,
        change="changed",
        section=section,
        byte=start + offset,
        offset=offset,
        before=_around(old.text, same),
        after=_around(new.text, same),
    )


def _around(text: str, position: int) -> str:
    begin, end = max(0, position - _AROUND // 2), position + _AROUND
    return excerpt(text, begin, end)
