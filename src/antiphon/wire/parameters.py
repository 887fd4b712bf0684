"""One table of parameters per format: it reads them, writes them and checks them.

A row names a field of `ModelRequest`, its key in the body, and what is accepted: types, range, and whether models may refuse it.
Rows are written in their order, so that the same request always gives the same bytes. A field without a row does not exist in
the format: it is reported as a loss unless it has its default value.

What a model refuses is decided here for all formats (`refused_fields`), from its `Capabilities`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Literal, Protocol

from msgspec import Struct

from antiphon.wire.capabilities import Capabilities
from antiphon.wire.loss import Loss
from antiphon.wire.request import ModelRequest
from antiphon.wire.rules import Violation

NUMBER = (int, float)
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
    """Whether nothing but the keys of `values` is accepted."""
    convert: Callable[[Any, list[Loss]], Any] | None = None
    """Makes a value legal; None drops it."""
    sends_default: bool = False
    """Whether the default value is accepted even where the parameter is refused."""


class Wording(Protocol):
    """The sentences of a provider about its parameters."""

    def check_number(self, row: Parameter, value: Any, maximum: float | None) -> str:
        """What is wrong with the value; empty if nothing is."""

    def refused(self, row: Parameter, value: Any) -> str:
        """That the model does not accept the parameter."""


class ParameterTable:
    """The parameters of a format, in the order in which they are written."""

    def __init__(self, target: str, rows: Iterable[Parameter], *, no_loss: Collection[str] = ()) -> None:
        self.rows = tuple(rows)
        self.by_key = {row.key: row for row in self.rows}
        fields = {row.field for row in self.rows}
        self._missing = tuple((field, value) for field, value in _DEFAULTS.items() if field not in fields | {*no_loss})
        self._no_such_parameter = f"{target} has no such parameter; dropped"

    def read(self, body: Mapping[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
        """Put the values of a known name and type into the fields of a request; returns the rest."""
        by_key = self.by_key
        unread: dict[str, Any] = {}
        for key, value in body.items():
            if key in by_key and type(value) in by_key[key].types:
                fields[by_key[key].field] = value
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
        refused: Mapping[str, str],
        keys: Mapping[str, str] | None = None,
    ) -> None:
        """Put the parameters of a request into a body. `refused` has a reason for each field that the model refuses, and
        `keys` the names of fields that the host calls differently."""
        for row in self.rows:
            value = getattr(request, row.field)
            if value is None:
                continue
            if row.field in refused and not (row.sends_default and is_default(row.field, value)):
                if not is_default(row.field, value):
                    losses.append(Loss(row.field, row.field, f"{refused[row.field]}; dropped ({row.rule})"))
                continue
            if row.convert is not None:
                value = row.convert(value, losses)
            elif row.minimum is not None:
                value = _fit(row, value, max_value(row, capabilities), losses)
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
        for key, row in self.by_key.items():
            value = body.get(key)
            if value is None or row.minimum is None:
                continue
            problem = wording.check_number(row, value, max_value(row, capabilities))
            if problem:
                yield Violation(row.rule, key, problem)

    def check_refused(
        self, body: Mapping[str, Any], refused: Collection[str], wording: Wording, rule: str
    ) -> Iterator[Violation]:
        """The parameters of a body that its model refuses."""
        for row in self.rows:
            value = body.get(row.key)
            if row.field in refused and value is not None and value != []:
                if not (row.sends_default and is_default(row.field, value)):
                    yield Violation(rule, row.key, wording.refused(row, value))


def is_default(field: str, value: Any) -> bool:
    """Whether a value has the same effect as no value."""
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


def _fit(row: Parameter, value: Any, maximum: float | None, losses: list[Loss]) -> Any:
    minimum = row.minimum
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
    if value in values:
        return values[value] or _drop_value(row, value, losses)
    return _drop_value(row, value, losses) if row.only_values else value


def _drop_value(row: Parameter, value: Any, losses: list[Loss]) -> None:
    losses.append(Loss(row.field, row.field, f'no {row.field.replace("_", " ")} "{str(value)[:40]}"; dropped ({row.rule})'))


def refused_fields(request: ModelRequest, capabilities: Capabilities, *, is_reasoning: bool) -> dict[str, str]:
    """The fields of a request that its model refuses, each with the reason. Of a pair that excludes each other, one is refused."""
    if capabilities.sampling is None and capabilities.temperature_with_top_p and capabilities.stop:
        return _NOTHING
    temperature, top_p = request.temperature, request.top_p
    return _refused(capabilities, is_reasoning, temperature, top_p)


def refused_keys(
    temperature: Any, top_p: Any, capabilities: Capabilities, *, is_reasoning: bool
) -> Mapping[str, str]:
    """The same for a body under check: with both `temperature` and `top_p` present, the second is refused."""
    if capabilities.sampling is None and capabilities.temperature_with_top_p and capabilities.stop:
        return _NOTHING
    return _refused(capabilities, is_reasoning, temperature, top_p)


_NOTHING: dict[str, str] = {}


def _refused(capabilities: Capabilities, is_reasoning: bool, temperature: Any, top_p: Any) -> dict[str, str]:
    refused: dict[str, str] = {}
    accepted = capabilities.sampling
    if accepted is not None:
        excludes = is_reasoning and capabilities.reasoning_excludes_sampling
        for field in _SAMPLING:
            if field not in accepted:
                refused[field] = "model does not support it"
            elif excludes:
                refused[field] = "model does not support it while reasoning"
    if not capabilities.temperature_with_top_p and temperature is not None and top_p is not None:
        # The one that has an effect is kept; temperature if both have.
        dropped = "temperature" if is_default("temperature", temperature) and not is_default("top_p", top_p) else "top_p"
        refused.setdefault(dropped, "model does not accept both temperature and top_p")
    if not capabilities.stop:
        refused["stop"] = "model does not support it"
    return refused
