"""One table of parameters per format: it reads them, writes them and checks them.

A row names a field of `ModelRequest`, its key in the body, and what is accepted: types, range, and whether models may refuse it.
Rows are written in their order, so that the same request always gives the same bytes. A field without a row does not exist in
the format: it is reported as a loss unless it has its default value.

What a model refuses is decided here for all formats (`refused_fields`), from its `Capabilities`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct

from antiphon.wire.capabilities import Capabilities
from antiphon.wire.loss import Loss
from antiphon.wire.request import ModelRequest
from antiphon.wire.rules import Violation

NUMBER = (int, float)
UNSET = -1
"""Means "no value" in `top_p` and `top_k` of some clients, and is accepted there."""
_DEFAULTS: dict[str, Any] = {
    "max_output_tokens": None,
    "stop": (),
    "temperature": 1,
    "top_p": 1,
    "top_k": None,
    "seed": None,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "candidates": 1,
    "logprobs": False,
    "top_logprobs": 0,
    "verbosity": None,
    "user": None,
    "metadata": None,
    "service_tier": None,
    "cache_key": None,
    "store": None,
}
"""Scalar fields of a request, each with the value that has the same effect as none."""
_SAMPLING = ("temperature", "top_p", "top_k", "presence_penalty", "frequency_penalty", "logprobs", "top_logprobs")


class Parameter(Struct, frozen=True):
    """One parameter of a format."""

    field: str
    key: str
    types: tuple[type, ...]
    rule: str = ""
    minimum: float | None = None
    maximum: float | None = None
    below_minimum: Literal["clamp", "drop"] = "clamp"
    values: Mapping[str, str] | None = None
    """What to write for values of other formats; all others are written unchanged."""
    only_values: bool = False
    """Whether nothing but the keys of `values` is accepted. Others are not read either: a host may have words of its own."""
    convert: Callable[[Any, list[Loss]], Any] | None = None
    """Makes a value legal; None drops it."""
    sends_default: bool = False
    """Whether the default value is accepted even where the parameter is refused."""
    integer: bool = False
    is_written: bool = True
    """False for a row that only reads or checks."""


class Refusal(Struct, frozen=True):
    """Why a model refuses a parameter. `is_pair`: only because another one is present, whatever the values are."""

    reason: str
    rule: str
    is_pair: bool = False


Refusals: TypeAlias = Mapping[str, Refusal]
"""By field of the request."""


class Wording(Protocol):
    """The sentences of a provider about its parameters."""

    def check_number(self, row: Parameter, value: Any, maximum: float | None) -> str:
        """What is wrong with the value; empty if nothing is."""

    def refused(self, row: Parameter, value: Any, refusal: Refusal) -> str:
        """That the model does not accept the parameter."""


class ParameterTable:
    """The parameters of a format, in the order in which they are written."""

    def __init__(self, target: str, rows: Iterable[Parameter], *, no_loss: Collection[str] = ()) -> None:
        self.rows = tuple(rows)
        self.by_key = {row.key: row for row in self.rows}
        self._written = tuple(row for row in self.rows if row.is_written)
        self._ranges = tuple(row for row in self.rows if row.minimum is not None)
        fields = {row.field for row in self.rows}
        self._missing = tuple((field, value) for field, value in _DEFAULTS.items() if field not in fields | {*no_loss})
        self._no_such_parameter = f"{target} has no such parameter; dropped"

    def read(self, body: Mapping[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
        """Put the values of a known name and type into the fields of a request; returns the rest."""
        by_key = self.by_key
        unread: dict[str, Any] = {}
        for key, value in body.items():
            row = by_key.get(key)
            if row is not None and type(value) in row.types and (not row.only_values or _is_own_value(row, value)):
                fields[row.field] = value
            elif value is not None:
                unread[key] = value
        return unread

    def write(
        self,
        request: ModelRequest,
        body: dict[str, Any],
        capabilities: Capabilities,
        losses: list[Loss],
        *,
        refused: Refusals,
        keys: Mapping[str, str] | None = None,
    ) -> None:
        """Put the parameters of a request into a body. `refused` has a reason for each field that the model refuses, and
        `keys` the names of fields that the host calls differently."""
        for row in self._written:
            value = getattr(request, row.field)
            if value is None:
                continue
            if row.field in refused and not _is_accepted_default(row, value, refused[row.field]):
                if not is_default(row.field, value):
                    losses.append(Loss(row.field, row.field, refused[row.field].reason))
                continue
            if row.convert is not None:
                value = row.convert(value, losses)
            elif row.minimum is not None:
                value = fit_number(row, value, capabilities, losses)
            elif row.values is not None:
                value = _translate(row, value, losses)
            if value is not None:
                body[row.key if keys is None else keys.get(row.field, row.key)] = value
        for field, default in self._missing:
            value = getattr(request, field)
            if value is not None and value != default:
                losses.append(Loss(field, field, self._no_such_parameter))

    def check(self, body: Mapping[str, Any], capabilities: Capabilities, wording: Wording) -> Iterator[Violation]:
        """The parameters of a body that are out of range. Keys are as in the table."""
        for row in self._ranges:
            value = body.get(row.key)
            if value is not None:
                problem = wording.check_number(row, value, max_value(row, capabilities))
                if problem:
                    yield Violation(row.rule, row.key, problem)

    def check_refused(self, body: Mapping[str, Any], refused: Refusals, wording: Wording) -> Iterator[Violation]:
        """The parameters of a body that its model refuses."""
        for row in self.rows:
            value = body.get(row.key)
            refusal = refused.get(row.field)
            if refusal is None or value is None or value == [] or _is_accepted_default(row, value, refusal):
                continue
            yield Violation(refusal.rule, row.key, wording.refused(row, value, refusal))


def _is_own_value(row: Parameter, value: Any) -> bool:
    return row.values is not None and row.values.get(value) == value


def _is_accepted_default(row: Parameter, value: Any, refusal: Refusal) -> bool:
    return row.sends_default and not refusal.is_pair and is_default(row.field, value)


def is_default(field: str, value: Any) -> bool:
    """Whether a value has the same effect as no value."""
    if field in ("top_p", "top_k") and value == UNSET:
        return True
    if field == "top_p":
        return isinstance(value, int | float) and value >= 0.99
    return field in _DEFAULTS and bool(_DEFAULTS[field] == value)


def max_value(row: Parameter, capabilities: Capabilities) -> float | None:
    """The largest value that the format and the model accept."""
    limit: int | None = None
    if row.field == "max_output_tokens":
        limit = capabilities.max_output_tokens
    elif row.field == "candidates":
        limit = capabilities.candidates
    return limit if row.maximum is None else row.maximum if limit is None else min(limit, row.maximum)


def fit_number(row: Parameter, value: Any, capabilities: Capabilities, losses: list[Loss]) -> Any:
    """The value, or the nearest one in range; None if it is dropped."""
    minimum, maximum = row.minimum, max_value(row, capabilities)
    if value == UNSET and row.field == "top_p":
        return None
    if value != value:  # not a number at all
        losses.append(Loss(row.field, row.field, "not a number; dropped"))
        return None
    if minimum is not None and value < minimum:
        if row.below_minimum == "drop":
            losses.append(Loss(row.field, row.field, f"must be at least {minimum}; dropped {value!r} ({row.rule})"))
            return None
        reason = f"{value!r} is below the minimum {minimum}; sent {minimum} ({row.rule})"
        losses.append(Loss(row.field, row.field, reason))
        return minimum
    if maximum is not None and value > maximum:
        reason = f"{value!r} is above the maximum {maximum}; sent {maximum} ({row.rule})"
        losses.append(Loss(row.field, row.field, reason))
        return maximum
    return value


def _translate(row: Parameter, value: Any, losses: list[Loss]) -> Any:
    values = row.values or {}
    if value in values or not row.only_values:
        return values.get(value, value)
    name = row.field.replace("_", " ")
    losses.append(Loss(row.field, row.field, f'no {name} "{str(value)[:40]}" in this format; dropped ({row.rule})'))
    return None


def refused_fields(
    capabilities: Capabilities, rule: str, pair_rule: str, temperature: Any, top_p: Any, *, is_reasoning: bool = False
) -> dict[str, Refusal]:
    """The fields that a model refuses. Of `temperature` and `top_p`, if it does not accept both, the one without effect."""
    accepted = capabilities.sampling
    if accepted is None and capabilities.temperature_with_top_p and capabilities.stop:
        return _NOTHING
    refused: dict[str, Refusal] = {}
    never = Refusal(f"model does not support it; dropped ({rule})", rule)
    if accepted is not None:
        while_reasoning = Refusal(f"model does not support it while reasoning; dropped ({rule})", rule)
        excludes = is_reasoning and capabilities.reasoning_excludes_sampling
        for field in _SAMPLING:
            if field not in accepted:
                refused[field] = never
            elif excludes:
                refused[field] = while_reasoning
    is_pair = accepted != () and temperature is not None and top_p not in (None, UNSET)
    if is_pair and not capabilities.temperature_with_top_p:
        is_without_effect = is_default("temperature", temperature) and not is_default("top_p", top_p)
        reason = f"model does not accept temperature and top_p together; dropped ({pair_rule})"
        refused["temperature" if is_without_effect else "top_p"] = Refusal(reason, pair_rule, is_pair=True)
    if not capabilities.stop:
        refused["stop"] = never
    return refused


_NOTHING: dict[str, Refusal] = {}
