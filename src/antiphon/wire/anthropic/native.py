"""What only this format says, kept beside the parts it said it about.

Extras go under `native["anthropic"]` as they came. Null says nothing, and an empty list of citations neither: both are left
out, so that they are no loss anywhere. An *empty* mapping there is a mark of origin and nothing more: "this came from an
Anthropic body". Three places need it to go home as they came: file ids, which are good at one provider only; system messages
among the others, which only some models take; and reasoning, which other formats state without saying how.
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
