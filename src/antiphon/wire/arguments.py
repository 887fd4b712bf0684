"""The arguments of a call, which are text and should be the JSON of an object.

Formats that hold an object there put the text into their bodies as it is, so it must be known to be one; nothing needs to know
what is in it. So it is passed over and not decoded: no object is built that nobody looks at.

A freeform tool takes text. Where there are no such tools, it becomes a function with the text as its one property.
"""

from __future__ import annotations

from typing import Any

import msgspec

FREEFORM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}

_pass_over = msgspec.json.Decoder(msgspec.Raw).decode


def object_of(arguments: str) -> msgspec.Raw | None:
    """The text as JSON to be put into a body, or None if it is not the JSON of an object."""
    try:
        raw = _pass_over(arguments)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return raw if arguments.startswith("{") or arguments.lstrip(" \t\r\n").startswith("{") else None
