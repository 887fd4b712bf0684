"""Cache breakpoints (`cache_control`): where `cache_prompt` sets them, and how many a request may have.

The provider stores the prompt up to each breakpoint and reads the longest stored prefix that a later request repeats. It counts
breakpoints in the order tools, system, messages and accepts four. The last ones reach furthest, so those are kept.

Four are set: at the end of the tools, of the system prompt, and of the last two user messages. The last message of a request is
the last but one of the next, so the next finds the prefix exactly there: from its own end the provider looks back only 20 blocks,
and a round with many calls is longer. A request with breakpoints of its own gets none.

After compactions (`PromptCaching.ends`) their last two ends get one each, before the tools and the last message but one: the next
compaction begins after them, so that what comes before is read from the cache once more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from msgspec import Struct, structs

from antiphon.wire.anthropic import SPEC
from antiphon.wire.anthropic.limits import UNMARKED_BLOCKS
from antiphon.wire.anthropic.shapes import TextShape, block_type, field_of
from antiphon.wire.loss import Loss
from antiphon.wire.request import ModelRequest, PromptCaching, count_leading_system
from antiphon.wire.shapes import extend

_FIVE_MINUTES = {"type": "ephemeral"}
_ONE_HOUR = {"type": "ephemeral", "ttl": "1h"}


Breakpoints: TypeAlias = dict[int, tuple[Any, str]]
"""The written blocks that have a breakpoint, by their identity, each with the path of its part."""


def judge_breakpoints(marks: Sequence[Any], limit: int | None) -> tuple[int, list[int]]:
    """How many of the first breakpoints are too many, and which of all have one hour after one of five minutes (AN-18)."""
    late: list[int] = []
    has_five_minutes = False
    for position, mark in enumerate(marks):
        if mark.get("ttl") != "1h":
            has_five_minutes = True
        elif has_five_minutes:
            late.append(position)
    return 0 if limit is None else max(0, len(marks) - limit), late


def marked_blocks(body: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """The blocks and tools with a breakpoint, each with its path, in the order in which the provider counts them."""
    messages = body.get("messages")
    yield from _marked_in(body.get("tools"), ("tools",))
    yield from _marked_in(body.get("system"), ("system",))
    for index, message in enumerate(messages if isinstance(messages, list) else ()):
        yield from _marked_in(field_of(message, "content"), ("messages", index, "content"))


def _marked_in(blocks: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    for position, block in enumerate(blocks if isinstance(blocks, list) else ()):
        if isinstance(field_of(block, "cache_control"), dict):
            yield (*path, position), block
        if block_type(block) == "tool_result":
            yield from _marked_in(field_of(block, "content"), (*path, position, "content"))


def limit_breakpoints(body: dict[str, Any], breakpoints: Breakpoints, limit: int | None, losses: list[Loss]) -> None:
    """Remove the breakpoints of a request beyond the limit, and shorten one-hour ones after five-minute ones."""
    marked = [block for _, block in marked_blocks(body)]
    marks = [field_of(block, "cache_control") for block in marked]
    surplus, _ = judge_breakpoints(marks, limit)
    _, late = judge_breakpoints(marks[surplus:], limit)
    reason = f"Anthropic accepts at most {limit} cache breakpoints; kept the last {limit} (AN-18)"
    if not limit:
        reason = "the model or its host accepts no cache breakpoints; dropped (AN-18)"
    for block in marked[:surplus]:
        _set(block, None)
        losses.append(Loss(_path(block, breakpoints), "cache_control", reason))
    for position in late:
        block = marked[surplus + position]
        _set(block, {**marks[surplus + position], "ttl": "5m"})
        reason = "a 1h breakpoint must not follow a 5m one; sent 5m (AN-18)"
        losses.append(Loss(f"{_path(block, breakpoints)}.ttl", "ttl", reason))


def _path(block: Any, breakpoints: Breakpoints) -> str:
    return f"{breakpoints[id(block)][1]}.cache_control" if id(block) in breakpoints else "native.cache_control"


def _set(block: Any, mark: dict[str, Any] | None) -> None:
    if type(block) is not dict:
        block.cache_control = mark
    elif mark is None:
        del block["cache_control"]
    else:
        block["cache_control"] = mark


def mark_body(request: ModelRequest, caching: PromptCaching, body: dict[str, Any], limit: int | None) -> None:
    """Set the breakpoints that `caching` asks for, in a body with its last messages or all of them.

    Entries are replaced, never changed: the unmarked ones may be kept.
    """
    if not _is_worth_caching(request, caching) or "cache_control" in body:
        return
    tools, system = body.get("tools"), body.get("system")
    for tool in tools or ():
        if type(tool) is dict and "cache_control" in tool:
            return
    mark = _ONE_HOUR if caching.lifetime == "1h" else _FIVE_MINUTES
    left = 4 if limit is None else limit
    wanted = [0, *sorted(set(caching.ends) - {0})[-2:]] if caching.ends else []
    if len(wanted) < SPEC.marked_messages + 1:
        wanted += [place for place in range(SPEC.marked_messages) if place not in wanted]
    left -= _mark_user_messages(body["messages"], caching.volatile_parts, mark, sorted(wanted[: max(0, left)]))
    if left > 0 and system and (marked := _mark_last(system, mark)) is not None:
        body["system"] = marked
        left -= 1
    if left > 0 and tools and (marked := _mark_last(tools, mark)) is not None:
        body["tools"] = marked


def _is_worth_caching(request: ModelRequest, caching: PromptCaching) -> bool:
    if caching.mode != "auto":
        return caching.mode == "always"
    return bool(request.tools) or len(request.messages) - count_leading_system(request.messages) > 1


def _mark_user_messages(messages: list[Any], volatile: int, mark: dict[str, str], places: Sequence[int]) -> int:
    """Mark the user messages at these places, counted from the last, without the `volatile` blocks at the end; returns how many
    breakpoints were set."""
    count = place = 0
    for index in range(len(messages) - 1, -1, -1):
        if not places or place > places[-1]:
            break
        message = messages[index]
        if type(message) is dict and message.get("role") == "user":
            if place in places and (marked := _mark_last(message.get("content"), mark, volatile)) is not None:
                messages[index] = {**message, "content": marked}
                count += 1
            place += 1
            volatile = 0
    return count


def _mark_last(content: Any, mark: dict[str, str], volatile: int = 0) -> list[Any] | None:
    """The blocks with a breakpoint at the last one that may have it; None if none may."""
    blocks = [TextShape(content)] if type(content) is str else content
    if type(blocks) is not list:
        return None
    for index in range(len(blocks) - 1 - volatile, -1, -1):
        block = blocks[index]
        if can_be_marked(block):
            copy = structs.replace(block) if isinstance(block, Struct) else block
            marked = blocks.copy()
            marked[index] = extend(copy, {"cache_control": mark})
            return marked
    return None


def can_be_marked(block: Any) -> bool:
    """Whether a block or a tool may have a breakpoint: not thinking, empty text, nor a tool that is loaded later (AN-18)."""
    if type(block) is not dict and not isinstance(block, Struct):
        return False
    kind = block_type(block)
    if kind == "text":
        return bool(field_of(block, "text"))
    return kind not in UNMARKED_BLOCKS and field_of(block, "defer_loading") is not True
