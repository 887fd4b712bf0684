"""Corrects a failed call once, from its error message.

An error shows that it is temporary (the same call again), which argument is missing, unknown or of the wrong type, and which ids
exist. A destructive call is never redirected to another target.
"""

from __future__ import annotations

import re
from datetime import date
from difflib import get_close_matches
from typing import Any

from antiphon.chat.offline.arguments import coerced, filled
from antiphon.chat.offline.offered import Offer, name_words, type_of

_MAY_PASS = re.compile(
    r"time[d\s-]*out|temporar|try\s+again|retry|rate.?limit|overload|unavailable|busy|\b(?:429|502|503|504)\b|超时|稍后|重试|繁忙",
    re.IGNORECASE,
)
_MISSING = re.compile(r"missing|required|must\s+be\s+given|needs?\b|缺少|必填|需要", re.IGNORECASE)
_STAND_INS: dict[str, Any] = {"integer": 1, "number": 1, "boolean": True, "array": [], "object": {}}


def corrected(offer: Offer, arguments: dict[str, Any], error: str, text: str, today: date) -> dict[str, Any] | None:
    """Better arguments for a failed call, or None if the error does not suggest any."""
    if _MAY_PASS.search(error):
        return arguments
    if offer.part == "delete":
        return None
    better = {name: value for name, value in arguments.items() if name in offer.properties}
    for name, schema in offer.properties.items():
        if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", error):
            continue
        if name in better:
            value = _other_id(name, better[name], error) if "id" in name_words(name) else None
            value = coerced(better[name], schema) if value is None else value
        else:
            value = _stand_in(offer, name, text, today) if _MISSING.search(error) else None
        if value is not None:
            better[name] = value
    if better == arguments:
        better = {name: value for name, value in better.items() if name in offer.required}
    return better if better != arguments else None


def _other_id(name: str, value: Any, error: str) -> Any:
    """The id that an error suggests instead of the given one."""
    suggested = [one for one in re.findall(r"[`'\"“]([\w-]+)[`'\"”]", error) if one not in (str(value), name)]
    near = get_close_matches(str(value), suggested, n=1)
    return near[0] if near else None


def _stand_in(offer: Offer, name: str, text: str, today: date) -> Any:
    found = filled(offer, text, today).arguments.get(name)
    if found is not None:
        return found
    schema = offer.properties[name]
    choices = schema.get("enum")
    if isinstance(choices, list) and choices:
        return choices[0]
    return schema.get("default", _STAND_INS.get(type_of(schema), text))
