"""Native extras of the Messages API, and its cache breakpoints.

Extras are in `native["anthropic"]` as they came. Null fields and empty lists of citations are left out, so they are not a loss
elsewhere. An *empty* mapping marks the origin: "this came from an Anthropic body". Three things need that to be written back
unchanged: file ids, which belong to one provider; system messages among the others, which only some models accept; and
reasoning, which other formats state differently.

The provider counts cache breakpoints in the order tools, system, messages, and accepts four: the last ones reach furthest, so
those are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from antiphon.parts import NativeExtras
from antiphon.wire.loss import Loss, other_fields

FORMAT = "anthropic"
_CHAT = "openai-chat"
_CACHE_CONTROL = "cache_control"
DIRECT_CALLER = {"type": "direct"}
"""The `caller` of a call that the model made itself, as nearly all are."""


def unread_fields(fields: dict[str, Any], known: frozenset[str]) -> NativeExtras | None:
    """What `fields` say beyond those that are `known`."""
    if fields.keys() <= known:
        return None
    unread = other_fields(fields, known)
    if unread.get("citations") == []:
        del unread["citations"]
    return {FORMAT: unread} if unread else None


def with_cache_control(native: NativeExtras) -> NativeExtras:
    """The extras with a cache breakpoint that a chat client set, as OpenRouter and LiteLLM take it, among Anthropic's own."""
    extras = native.get(_CHAT)
    control = extras.get(_CACHE_CONTROL) if extras else None
    if extras is None or type(control) is not dict:
        return native
    rest = {name: value for name, value in extras.items() if name != _CACHE_CONTROL}
    others = {origin: value for origin, value in native.items() if origin != _CHAT}
    own = {**others.get(FORMAT, {}), _CACHE_CONTROL: control}
    return {**others, **({_CHAT: rest} if rest else {}), FORMAT: own}


def origin_marker() -> NativeExtras:
    """Nothing but that it came from here."""
    return {FORMAT: {}}


def is_same_format(native: NativeExtras | None) -> bool:
    """Whether it came from here."""
    return native is not None and FORMAT in native


def block_type(block: Any) -> str:
    """The type of a block; empty if it has none."""
    if isinstance(block, Struct):
        return str(block.__struct_config__.tag)
    kind = block.get("type") if isinstance(block, dict) else None
    return kind if isinstance(kind, str) else ""


def quote_value(value: Any) -> str:
    """A value for an error message, shortened."""
    if isinstance(value, str):
        return f"'{value[:80]}'"
    return type(value).__name__


CacheBreakpoints = list[tuple[dict[str, Any], str]]
"""Written blocks with `cache_control`, each with the path of its part."""


def limit_cache_breakpoints(
    body: dict[str, Any], cache_breakpoints: CacheBreakpoints, limit: int, losses: list[Loss]
) -> None:
    """Remove breakpoints beyond the limit, and shorten one-hour ones after five-minute ones."""
    if len(cache_breakpoints) <= limit and not any(_is_one_hour(block) for block, _ in cache_breakpoints):
        return
    paths = {id(block): path for block, path in cache_breakpoints}
    breakpoints = [block for block in _cached_blocks(body) if id(block) in paths]
    for block in breakpoints[: max(0, len(breakpoints) - limit)]:
        del block["cache_control"]
        reason = f"Anthropic accepts at most {limit} cache breakpoints; kept the last {limit} (AN-18)"
        losses.append(Loss(f"{paths[id(block)]}.cache_control", "cache_control", reason))
    has_five_minutes = False
    for block in breakpoints[max(0, len(breakpoints) - limit) :]:
        if not _is_one_hour(block):
            has_five_minutes = True
        elif has_five_minutes:
            block["cache_control"] = {**block["cache_control"], "ttl": "5m"}
            reason = "a 1h breakpoint must not follow a 5m one; sent 5m (AN-18)"
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
