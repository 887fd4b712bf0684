"""What Google's two formats share: spellings, prefixes of native extras, base64, times, and required turns.

Where Google has several spellings of one meaning, what was read keeps the words for them in its `source`, from which the writer
restores them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any

from antiphon.parts import Audio, Document, Image
from antiphon.wire.capabilities import Capabilities
from antiphon.wire.loss import Loss
from antiphon.wire.provenance import is_spelled
from antiphon.wire.request import CONTINUE_TEXT

PLACEHOLDER_FIRST_TURN = "(the conversation so far)"
"""A user turn added where the history would begin with a call (GM-05)."""

_CAPITAL = re.compile("[A-Z]")
_TO_STANDARD, _TO_URL_SAFE = str.maketrans("-_", "+/"), str.maketrans("+/", "-_")


@cache
def to_snake_case(name: str) -> str:
    """The proto spelling of a camelCase name."""
    return _CAPITAL.sub(lambda match: "_" + match[0].lower(), name)


def with_prefix(prefix: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an inner object by their full names, as native extras have them (`generationConfig.topK`)."""
    return {prefix + name: value for name, value in fields.items()}


def without_prefix(prefix: str, native: Mapping[str, Any]) -> dict[str, Any]:
    """The reverse of `with_prefix`: the fields of the inner object among native extras."""
    return {name[len(prefix) :]: value for name, value in native.items() if name.startswith(prefix)}


def read_base64(data: str, spelling: list[str]) -> str:
    """Base64 in the standard alphabet; a word records the URL-safe one, which Google's SDK sends and others reject."""
    if "-" not in data and "_" not in data:
        return data
    spelling.append("urlSafe")
    return data.translate(_TO_STANDARD)


def write_base64(data: str, medium: Image | Audio | Document) -> str:
    """Base64 in the alphabet in which it came."""
    return data.translate(_TO_URL_SAFE) if is_spelled(medium, "urlSafe") else data


def ensure_user_turns(
    turns: list[Any],
    start: int,
    model: Capabilities | None,
    losses: list[Loss],
    *,
    begins_with_call: bool,
    is_model: Callable[[Any], bool],
    user_turn: Callable[[str], Any],
    rules: tuple[str, str],
) -> None:
    """Add a user turn before a first call and, where the model requires it, after the last turn of the model.

    `start` is the index of the first message in `turns`; `rules` are the ids of the two rules. Without a `model`,
    more turns follow.
    """
    if begins_with_call:
        turns.insert(0, user_turn(PLACEHOLDER_FIRST_TURN))
        reason = f'the history must not begin with a call; added a user turn "{PLACEHOLDER_FIRST_TURN}" ({rules[0]})'
        losses.append(Loss(f"messages[{start}]", "first turn", reason))
    if model is not None and (not turns or (is_model(turns[-1]) and (len(turns) == 1 or not model.prefill))):
        turns.append(user_turn(CONTINUE_TEXT))
        reason = f'the history must end with a user turn; added one, "{CONTINUE_TEXT}" ({rules[1]})'
        losses.append(Loss("messages", "last turn", reason))


def parse_time(time: Any) -> int | None:
    """A time of the API in seconds."""
    if type(time) is not str:
        return None
    try:
        read = datetime.fromisoformat(time)
        return int((read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):
        return None


def format_time(seconds: int) -> str | None:
    """Seconds as a time of the API."""
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return None
