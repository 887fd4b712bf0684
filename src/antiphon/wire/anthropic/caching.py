"""Cache marks: how many there may be, and in what order (AN-18).

The provider counts the marks of tools, system and messages, in that order, and takes four. The last ones reach furthest, so
those are kept. A mark that lives for an hour may not come behind one of five minutes; it then lives for five minutes too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from antiphon.wire.loss import Loss

MOST_MARKS = 4

Marks = list[tuple[dict[str, Any], str]]
"""Blocks of a body under construction that carry a mark, each with the path of the part it was written from."""


def settle_marks(body: dict[str, Any], marks: Marks, losses: list[Loss]) -> None:
    """Take away marks that are too many, and shorten those that come too late to be long."""
    if len(marks) <= MOST_MARKS and not any(_is_long(block) for block, _ in marks):
        return
    paths = {id(block): path for block, path in marks}
    ordered = [block for block in _marked(body) if id(block) in paths]
    for block in ordered[:-MOST_MARKS]:
        del block["cache_control"]
        why = f"at most {MOST_MARKS} cache marks are taken, the last ones are kept (AN-18)"
        losses.append(Loss(f"{paths[id(block)]}.cache_control", "cache_control", why))
    has_short = False
    for block in ordered[-MOST_MARKS:]:
        if not _is_long(block):
            has_short = True
        elif has_short:
            block["cache_control"] = {**block["cache_control"], "ttl": "5m"}
            why = "an hour may not follow five minutes (AN-18)"
            losses.append(Loss(f"{paths[id(block)]}.cache_control.ttl", "ttl", why))


def _is_long(block: dict[str, Any]) -> bool:
    mark = block["cache_control"]
    return isinstance(mark, dict) and mark.get("ttl") == "1h"


def _marked(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from _marked_among(body.get("tools"))
    yield from _marked_among(body.get("system"))
    for message in body["messages"]:
        if isinstance(message, dict):
            yield from _marked_among(message.get("content"))


def _marked_among(blocks: Any) -> Iterator[dict[str, Any]]:
    for block in blocks if isinstance(blocks, list) else ():
        if isinstance(block, dict):
            if "cache_control" in block:
                yield block
            if block.get("type") == "tool_result":
                yield from _marked_among(block.get("content"))
