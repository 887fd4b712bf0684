"""What the parameters of Google's two formats share: seeds, stop sequences, thinking levels and service tiers."""

from __future__ import annotations

from typing import Any, Literal

from antiphon.wire.capabilities import Capabilities
from antiphon.wire.loss import Loss
from antiphon.wire.request import OutputFormat
from antiphon.wire.rules.limits import Choice, Limit, Range, Texts

THINKING_LEVELS = frozenset({"minimal", "low", "medium", "high"})
LEVEL_FOR = {"none": "minimal", "xhigh": "high", "max": "high"}
"""The levels for efforts without one."""

_INT32 = 2**31


class Seed(Limit, frozen=True):
    """A seed of at most 31 bits. The API cuts it off itself, so a body may have any."""

    def fit(self, value: Any, field: str, losses: list[Loss], _model: Capabilities) -> int:
        if -_INT32 <= value < _INT32:
            return int(value)
        losses.append(Loss(field, field, "Gemini accepts 31 bits; the rest was cut off"))
        return int(value % _INT32)


def google_range(rule: str, maximum: float, *, unset: Literal["", "drop"] = "") -> Range:
    """The range of a number from 0, which proto3 JSON may write as text."""
    return Range(rule=rule, minimum=0, maximum=maximum, reads_text=True, unset=unset)


def output_tokens(rule: str) -> Range:
    """The limit of the answer."""
    return Range(rule=rule, minimum=1, is_whole=True, below="drop", model_fact="max_output_tokens", reads_text=True)


def stop_sequences(rule: str) -> Texts:
    """The stop sequences."""
    return Texts(rule=rule, at_most=5, accepts_one=True)


def service_tiers(rule: str, *tiers: str) -> Choice:
    """The tiers of a format, and other providers' names of the standard one."""
    return Choice(
        rule=rule, values={**{tier: tier for tier in tiers}, "default": "standard", "standard_only": "standard"}
    )


def lose_format_details(output_format: OutputFormat, losses: list[Loss], target: str) -> None:
    """Report what Google's output formats have no field for."""
    losses.extend(
        Loss(f"output_format.{name}", name, f"{target} does not support {name} in an output format; dropped")
        for name in ("name", "description", "strict")
        if getattr(output_format, name) is not None
    )
