"""Cache breakpoints (`cache_control`): where `cache_prompt` sets them, and how many a request may have.

The provider stores the prompt up to each breakpoint and reads the longest stored prefix that a later request repeats. It counts
breakpoints in the order tools, system, messages and accepts four. The last ones reach furthest, so those are kept.

Four are set: at the end of the tools, of the system prompt, and of the last two user messages. The last message of a request is
the last but one of the next, so the next finds the prefix exactly there: from its own end the provider looks back only 20 blocks,
and a round with many calls is longer. A request with breakpoints of its own gets none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct, structs

from antiphon.wire.anthropic.limits import MARKED_MESSAGES, UNMARKED_BLOCKS
from antiphon.wire.loss import Loss
from antiphon.wire.request import ModelRequest, PromptCaching, count_leading_system
from antiphon.wire.vendors.anthropic import CacheBreakpoints

_FIVE_MINUTES = {"type": "ephemeral"}
_ONE_HOUR = {"type": "ephemeral", "ttl": "1h"}


def mark_body(request: ModelRequest, body: dict[str, Any], messages: list[Any], limit: int | None) -> None:
    """Set the breakpoints that `request.cache_prompt` asks for. `messages` are the last ones of the body, or all of them.

    Entries are replaced, never changed: the caller may keep the unmarked ones.
    """
    caching = request.cache_prompt
    if caching is None or not _is_worth_caching(request, caching) or "cache_control" in body:
        return
    tools, system = body.get("tools"), body.get("system")
    for tool in tools or ():
        if type(tool) is dict and "cache_control" in tool:
            return
    mark = _ONE_HOUR if caching.lifetime == "1h" else _FIVE_MINUTES
    left = 4 if limit is None else limit
    left -= _mark_user_messages(messages, caching.volatile_parts, mark, left)
    if left > 0 and system and (marked := _mark_last(system, mark)) is not None:
        body["system"] = marked
        left -= 1
    if left > 0 and tools and (marked := _mark_last(tools, mark)) is not None:
        body["tools"] = marked


def _is_worth_caching(request: ModelRequest, caching: PromptCaching) -> bool:
    if caching.mode != "auto":
        return caching.mode == "always"
    return bool(request.tools) or len(request.messages) - count_leading_system(request.messages) > 1


def _mark_user_messages(messages: list[Any], volatile: int, mark: dict[str, str], limit: int) -> int:
    """Mark the last user messages, without the `volatile` blocks at the end; returns how many breakpoints were set."""
    places = min(MARKED_MESSAGES, limit)
    count = 0
    for index in range(len(messages) - 1, -1, -1):
        if not places:
            break
        message = messages[index]
        if type(message) is dict and message.get("role") == "user":
            if (marked := _mark_last(message.get("content"), mark, volatile)) is not None:
                messages[index] = {**message, "content": marked}
                count += 1
            places -= 1
            volatile = 0
    return count


def _mark_last(content: Any, mark: dict[str, str], volatile: int = 0) -> list[Any] | None:
    """The blocks with a breakpoint at the last one that may have it; None if none may."""
    blocks = [{"type": "text", "text": content}] if type(content) is str else content
    if type(blocks) is not list:
        return None
    for index in range(len(blocks) - 1 - volatile, -1, -1):
        block = blocks[index]
        if can_be_marked(block):
            marked = blocks.copy()
            marked[index] = with_breakpoint(block, mark)
            return marked
    return None


def can_be_marked(block: Any) -> bool:
    """Whether a block or a tool may have a breakpoint: not thinking, empty text, nor a tool that is loaded later (AN-18)."""
    if type(block) is not dict:
        return isinstance(block, Struct)
    kind = block.get("type")
    if kind == "text":
        return bool(block.get("text"))
    return kind not in UNMARKED_BLOCKS and block.get("defer_loading") is not True


def with_breakpoint(block: Any, mark: dict[str, Any]) -> dict[str, Any]:
    """A copy of a block with a breakpoint."""
    if type(block) is dict:
        return {**block, "cache_control": mark}
    return {"type": block.__struct_config__.tag, **structs.asdict(block), "cache_control": mark}


def limit_cache_breakpoints(
    body: dict[str, Any], cache_breakpoints: CacheBreakpoints, limit: int, losses: list[Loss]
) -> None:
    """Remove breakpoints beyond the limit, and shorten one-hour ones after five-minute ones."""
    if len(cache_breakpoints) <= limit and not any(_is_one_hour(block) for block, _ in cache_breakpoints):
        return
    paths = {id(block): path for block, path in cache_breakpoints}
    breakpoints = [block for block in _cached_blocks(body) if id(block) in paths]
    reason = f"Anthropic accepts at most {limit} cache breakpoints; kept the last {limit} (AN-18)"
    if not limit:
        reason = "the model or its host accepts no cache breakpoints; dropped (AN-18)"
    for block in breakpoints[: max(0, len(breakpoints) - limit)]:
        del block["cache_control"]
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
