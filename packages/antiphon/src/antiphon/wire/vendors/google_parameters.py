"""What the parameters of Google's two formats share: seeds, stop sequences, thinking levels, service tiers and the wording."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from antiphon.wire.capabilities import EFFORT_BUDGETS, Capabilities
from antiphon.wire.loss import Loss
from antiphon.wire.parameters import Parameter, Refusal
from antiphon.wire.request import OutputFormat, Reasoning
from antiphon.wire.rules import is_number
from antiphon.wire.vendors.google import to_snake_case

MAX_STOP_SEQUENCES = 5
THINKING_LEVELS = frozenset({"minimal", "low", "medium", "high"})

_TIERS = {"default": "standard", "standard_only": "standard"}
"""Other providers' names of the standard tier."""

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


def stop_problem(stops: Any) -> str:
    """What is wrong with the number of stop sequences; empty if nothing is."""
    if not isinstance(stops, list) or len(stops) <= MAX_STOP_SEQUENCES:
        return ""
    return f"stop_sequences has {len(stops)} entries but the maximum is {MAX_STOP_SEQUENCES}."


def known_effort(reasoning: Reasoning, losses: list[Loss]) -> str | None:
    """The effort of a request; None, and a loss, if it is not a word that the formats have."""
    effort = reasoning.effort
    if effort is None or effort in EFFORT_BUDGETS:
        return effort
    losses.append(Loss("reasoning.effort", "effort", f'unknown effort "{effort[:40]}"; dropped'))
    return None


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


def service_tier(tier: str | None, accepted: tuple[str, ...], losses: list[Loss]) -> str | None:
    """The tier as Google names it; None, and a loss, if it is not `accepted`."""
    if tier is None or (name := _TIERS.get(tier, tier)) in accepted:
        return None if tier is None else name
    losses.append(Loss("service_tier", "service_tier", f'Gemini has no service tier "{tier[:40]}"; dropped'))
    return None


def lose_format_details(output_format: OutputFormat, losses: list[Loss], target: str) -> None:
    """Report what Google's output formats have no field for."""
    losses.extend(
        Loss(f"output_format.{name}", name, f"{target} does not support {name} in an output format; dropped")
        for name in ("name", "description", "strict")
        if getattr(output_format, name) is not None
    )


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
    return value if is_number(value) else None
