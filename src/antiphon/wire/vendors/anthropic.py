"""Native extras of the Messages API.

Extras are in `native["anthropic"]` as they came. Null fields and empty lists of citations are left out, so they are not a loss
elsewhere. An *empty* mapping marks the origin: "this came from an Anthropic body". Three things need that to be written back
unchanged: file ids, which belong to one provider; system messages among the others, which only some models accept; and
reasoning, which other formats state differently.
"""

from __future__ import annotations

from typing import Any

from antiphon.parts import NativeExtras

FORMAT = "anthropic"


def unread_fields(fields: dict[str, Any], known: frozenset[str]) -> NativeExtras | None:
    """What `fields` say beyond those that are `known`."""
    if fields.keys() <= known:
        return None
    unread = {name: value for name, value in fields.items() if name not in known and value is not None}
    if unread.get("citations") == []:
        del unread["citations"]
    return {FORMAT: unread} if unread else None


def origin_marker() -> NativeExtras:
    """Nothing but that it came from here."""
    return {FORMAT: {}}


def is_same_format(native: NativeExtras | None) -> bool:
    """Whether it came from here."""
    return native is not None and FORMAT in native
