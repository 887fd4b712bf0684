"""What the parameters of Google's two formats share: seeds, stop sequences, thinking levels, service tiers and the wording.

The turns that the writers of both add, and how the arguments of a call become an object, are here too.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from antiphon.parts import ToolCallRequest
from antiphon.wire.capabilities import Capabilities
from antiphon.wire.loss import Loss
from antiphon.wire.parameters import Parameter, Refusal
from antiphon.wire.tool_calls import raw_json_object, report_raw_arguments
from antiphon.wire.vendors.google import to_snake_case

PLACEHOLDER_FIRST_TURN = "(the conversation so far)"
"""A user turn added where the history would begin with a call (GM-05)."""
CONTINUE_TEXT = "(continue)"
"""A user turn added where the conversation would be empty or must not end with the model (GM-16)."""
SYSTEM_NOTE_PREFIX = "[system note] "
MAX_STOP_SEQUENCES = 5
THINKING_LEVELS = frozenset({"minimal", "low", "medium", "high"})
SERVICE_TIERS = {"default": "standard", "standard_only": "standard"}
UNSUPPORTED_TIERS = frozenset({"auto", "scale"})

_INT32 = 2**31


def fit_seed(seed: int, losses: list[Loss]) -> int:
    """A seed of at most 31 bits."""
    if -_INT32 <= seed < _INT32:
        return seed
    losses.append(Loss("seed", "seed", "Gemini accepts 31 bits; the rest was cut off"))
    return seed % _INT32


def stop_limiter(rule: str) -> Callable[[tuple[str, ...], list[Loss]], list[str]]:
    """Makes stop sequences legal: at most five."""
    reason = f"Gemini accepts at most {MAX_STOP_SEQUENCES} stop sequences; sent the first {MAX_STOP_SEQUENCES} ({rule})"

    def limit(stop: tuple[str, ...], losses: list[Loss]) -> list[str]:
        losses.extend(Loss(f"stop[{index}]", "stop", reason) for index in range(MAX_STOP_SEQUENCES, len(stop)))
        return list(stop[:MAX_STOP_SEQUENCES])

    return limit


def thinking_level(effort: str, capabilities: Capabilities, losses: list[Loss], path: str, rule: str) -> str:
    """The level for an effort, or the nearest that the model has."""
    wanted = {"none": "minimal", "xhigh": "high", "max": "high"}.get(effort, effort)
    level = capabilities.nearest_effort(wanted)
    if effort == "none":
        reason = f'thinking cannot be turned off for this model; sent level "{level}" ({rule})'
        losses.append(Loss("reasoning", "no thinking", reason))
    elif level != wanted:
        losses.append(Loss(path, effort, f'model does not support level "{wanted}"; sent "{level}" ({rule})'))
    return level


def service_tier(tier: str, losses: list[Loss]) -> str | None:
    """The tier as Google names it; None, and a loss, if it has none of that name."""
    if tier in UNSUPPORTED_TIERS:
        losses.append(Loss("service_tier", "service_tier", f'Gemini has no service tier "{tier}"; dropped'))
        return None
    return SERVICE_TIERS.get(tier, tier)


def call_arguments(call: ToolCallRequest, losses: list[Loss], path: str, rule: str) -> Any:
    """The arguments of a call as an object, unparsed where they are one."""
    text = call.arguments
    arguments: Any = {"input": text} if call.freeform else raw_json_object(text)
    if arguments is None and text.strip():
        report_raw_arguments(losses, path, rule)
        return {"_raw": text}
    return {} if arguments is None else arguments


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


class GoogleWording:
    """Google's sentences about parameters."""

    def check_number(self, row: Parameter, value: Any, maximum: float | None) -> str:
        number = _number(value)
        if number is None:
            return f"Invalid value at 'generation_config.{to_snake_case(row.key)}' (TYPE_FLOAT)"
        minimum = row.minimum or 0
        # The API states its float ranges with an exclusive end just above the largest value.
        end = None if maximum is None else maximum + (1 if row.integer else 0.0001)
        if number >= minimum and (end is None or number < end):
            return ""
        quoted = f"{number:g}" if abs(number) < 1e15 else "more than 15 digits"
        return (
            f"Unable to submit request because it has a {to_snake_case(row.key)} value of {quoted} but the supported "
            f"range is from {minimum} (inclusive) to {end} (exclusive). Update the value and try again."
        )

    def refused(self, row: Parameter, _value: Any, _refusal: Refusal) -> str:
        return f"{to_snake_case(row.key)} is not supported by this model."


WORDING = GoogleWording()


def _number(value: Any) -> float | None:
    """A number as proto3 JSON reads it: a string may hold one."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
