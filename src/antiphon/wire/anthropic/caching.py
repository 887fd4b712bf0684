"""Cache marks: how many there may be, and in what order (AN-18).

The provider counts the marks of tools, system and messages, in that order, and takes four. The last ones reach furthest, so
those are kept. A mark that lives for an hour may not come behind one of five minutes; it then lives for five minutes too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from antiphon.wire.loss import Loss

MAX_CACHE_BREAKPOINTS = 4

CacheBreakpoints = list[tuple[dict[str, Any], str]]
"""Blocks of a body under construction that carry a mark, each with the path of the part it was written from."""


def limit_cache_breakpoints(body: dict[str, Any], cache_breakpoints: CacheBreakpoints, losses: list[Loss]) -> None:
    """Take away marks that are too many, and shorten those that come too late to be long."""
    if len(cache_breakpoints) <= MAX_CACHE_BREAKPOINTS and not any(_is_one_hour(block) for block, _ in cache_breakpoints):
        return
    paths = {id(block): path for block, path in cache_breakpoints}
    breakpoints = [block for block in _cached_blocks(body) if id(block) in paths]
    for block in breakpoints[:-MAX_CACHE_BREAKPOINTS]:
        del block["cache_control"]
        reason = f"at most {MAX_CACHE_BREAKPOINTS} cache marks are taken, the last ones are kept (AN-18)"
        losses.append(Loss(f"{paths[id(block)]}.cache_control", "cache_control", reason))
    has_five_minutes = False
    for block in breakpoints[-MAX_CACHE_BREAKPOINTS:]:
        if not _is_one_hour(block):
            has_five_minutes = True
        elif has_five_minutes:
            block["cache_control"] = {**block["cache_control"], "ttl": "5m"}
            reason = "an hour may not follow five minutes (AN-18)"
            losses.append(Loss(f"{paths[id(block)]}.cache_control.ttl", "ttl", reason))


def _is_one_hour(block: dict[str, Any]) -> bool:
    cache_control = block["cache_control"]
    return isinstance(cache_control, dict) and cache_control.get("ttl") == "1h"


def _cached_blocks(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from _cached_in(body.get("tools"))
    yield from _cached_in(body.get("system"))
    for message in body["messages"]:
        if isinstance(message, dict):
            yield from _cached_in(message.get("content"))


def _cached_in(blocks: Any) -> Iterator[dict[str, Any]]:
    for block in blocks if isinstance(blocks, list) else ():
        if isinstance(block, dict):
            if "cache_control" in block:
                yield block
            if block.get("type") == "tool_result":
                yield from _cached_in(block.get("content"))
