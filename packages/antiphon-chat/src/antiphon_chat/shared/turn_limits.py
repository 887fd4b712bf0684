"""The limits of turns that a user set for one conversation: kept as a note in its log, as its model is.

They replace the limits of the settings. A server that serves several users does not let a user raise its limits
(`TurnSettings.can_raise_limits`); a limit that is lowered there later applies to conversations with a higher one too.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec
from msgspec import Struct, structs

from antiphon.conversation import RunLimits
from antiphon.errors import ConversationError
from antiphon.history import AgentHistory, AgentHistorySnapshot, DebugLogEntry, EntryMetadata
from antiphon_chat.shared.session import TurnSettings

_LIMITS = "chat_limits"


class TurnLimits(
    Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, rename={"max_seconds": "seconds"}
):
    """Rounds of tool calls, rounds in a row without a successful call, and seconds; None is the limit of the settings.

    The page and stored notes call the last one `seconds`.
    """

    max_rounds: int | None = None
    max_failed_rounds: int | None = None
    max_seconds: float | None = None


def limits_for(snapshot: AgentHistorySnapshot, turns: TurnSettings) -> RunLimits:
    """The limits of a conversation's turns."""
    return _applied(_recorded(snapshot), turns)


def limits_json(limits: RunLimits) -> dict[str, float | None]:
    """The limits as the page shows them."""
    shown: dict[str, float | None] = {
        field.encode_name: getattr(limits, field.name) for field in structs.fields(TurnLimits)
    }
    return shown


def set_limits(history: AgentHistory, limits: TurnLimits, turns: TurnSettings) -> RunLimits:
    """Set the limits of a conversation, and return those that apply. Raises `ConversationError`."""
    if not turns.can_raise_limits:
        for field in structs.fields(TurnLimits):
            value, most = getattr(limits, field.name), getattr(turns.limits, field.name)
            if value is not None and most is not None and value > most:
                raise ConversationError(f"{field.encode_name}={value:g}: the limit of this server is {most:g}")
    applied = _applied(limits, turns)
    if limits != _recorded(history.snapshot()):
        extra = {_LIMITS: msgspec.to_builtins(limits)}
        history.append(DebugLogEntry("limits", "Limits of turns set.", metadata=EntryMetadata(extra=extra)))
    return applied


def _recorded(snapshot: AgentHistorySnapshot) -> TurnLimits:
    """The limits that were set last; a rollback does not change them."""
    for entry in reversed(snapshot.entries):
        if (noted := entry.extra(_LIMITS)) is not None:
            with suppress(msgspec.ValidationError):  # a later version wrote it
                return msgspec.convert(noted, TurnLimits)
    return TurnLimits()


def _applied(limits: TurnLimits, turns: TurnSettings) -> RunLimits:
    given = {name: value for name, value in structs.asdict(limits).items() if value is not None}
    if not turns.can_raise_limits:
        highest = structs.asdict(turns.limits)
        given = {name: value if (most := highest[name]) is None else min(value, most) for name, value in given.items()}
    return structs.replace(turns.limits, **given)
