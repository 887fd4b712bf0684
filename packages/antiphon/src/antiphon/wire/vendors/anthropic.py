"""Native extras of the Messages API.

Extras are in `native["anthropic"]` as they came. Null fields and empty lists of citations are left out, so they are not a loss
elsewhere. An *empty* mapping marks the origin: "this came from an Anthropic body". Three things need that to be written back
unchanged: file ids, which belong to one provider; system messages among the others, which only some models accept; and
reasoning, which other formats state differently.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from antiphon.parts import NativeExtras
from antiphon.wire.loss import other_fields

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


def is_cache_control(value: Any) -> bool:
    """Whether a value is a cache breakpoint that the API accepts (AN-18)."""
    return type(value) is dict and value.get("type") == "ephemeral" and value.get("ttl") in (None, "5m", "1h")


def with_cache_control(native: NativeExtras) -> NativeExtras:
    """The extras with a cache breakpoint that a chat client set, as OpenRouter and LiteLLM take it, among Anthropic's own."""
    extras = native.get(_CHAT)
    control = extras.get(_CACHE_CONTROL) if extras else None
    if extras is None or not is_cache_control(control):
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
