"""One table of parameters per format: it reads them, writes them and checks them.

A row names a field of `ModelRequest`, its key in the body (or inside an object of the body), and what is accepted: types, and a
limit of the values.
Rows are written in their order, so that the same request always gives the same bytes. A field without a row does not exist in
the format: it is reported as a loss unless it has its default value.

What a model refuses is decided here for all formats (`refused_fields`), from its `Capabilities`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from math import isfinite
from typing import Any, TypeAlias

from msgspec import Struct, structs

from antiphon.wire.capabilities import Capabilities
from antiphon.wire.loss import Loss
from antiphon.wire.request import ModelRequest
from antiphon.wire.rules import Check, is_whole_number
from antiphon.wire.rules.limits import UNSET, Choice, Limit, Texts

NUMBER = (int, float)
WHOLE_NUMBER = (float, int)
"""A number that may be written as 1.0."""
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
    """One parameter of a format: a field of the request, its key in the body, and the types that are read.

    `limit` says which values are accepted; a word that only other formats have is not read, because a host may have it too.
    """

    field: str
    key: str
    types: tuple[type, ...] = ()
    limit: Limit | None = None
    inside: str = ""
    """The object of the body that has the key; empty: the body itself."""
    sends_default: bool = False
    """Whether the default value is accepted even where the parameter is refused."""
    is_written: bool = True
    """False for a row that only reads or checks."""
    plain_types: tuple[type, ...] = ()
    """The types whose values are read as they are; set by the row itself."""

    def __post_init__(self) -> None:
        is_plain = self.types is not WHOLE_NUMBER and not isinstance(self.limit, Choice)
        structs.force_setattr(self, "plain_types", self.types if is_plain else ())

    def read(self, value: Any) -> Any:
        """The value of the field where that depends on more than its type; None if it is not read."""
        if isinstance(self.limit, Texts):
            return self.limit.read(value)
        if type(value) not in self.types:
            return None
        if self.types is WHOLE_NUMBER:
            return int(value) if is_whole_number(value) else None
        return value if not isinstance(self.limit, Choice) or self.limit.is_own(value) else None


class Rejection(Struct, frozen=True):
    """Why a model refuses a parameter. `is_pair`: only because another one is present, whatever the values are."""

    reason: str
    rule: str
    is_pair: bool = False

    @property
    def message(self) -> str:
        """The same about a body."""
        return self.reason.partition(";")[0]


Rejections: TypeAlias = Mapping[str, Rejection]
"""By field of the request."""


class ParameterTable:
    """The parameters of a format, in the order in which they are written."""

    def __init__(self, target: str, rows: Iterable[Parameter], *, no_loss: Collection[str] = ()) -> None:
        self.rows = tuple(rows)
        self._written = tuple(row for row in self.rows if row.is_written)
        self._by_key: dict[str, dict[str, Parameter]] = {"": {}}
        for row in self.rows:
            self._by_key.setdefault(row.inside, {})[row.key] = row
        fields = {row.field for row in self.rows}
        self._missing = tuple((field, value) for field, value in _DEFAULTS.items() if field not in fields | {*no_loss})
        self._no_such_parameter = f"{target} has no such parameter; dropped"

    def keys(self, inside: str = "") -> Collection[str]:
        """The keys of the rows in the body, or inside one of its objects."""
        return self._by_key[inside].keys()

    def checks(self, inside: str = "") -> dict[str, Check]:
        """The limits of the values there, by key. Hosts have words of their own, so those are not checked."""
        rows = self._by_key[inside].values()
        return {row.key: row.limit for row in rows if row.limit is not None and not isinstance(row.limit, Choice)}

    def read(self, body: Mapping[str, Any], fields: dict[str, Any], inside: str = "") -> dict[str, Any]:
        """Put the values of a known name and type into the fields of a request; returns the rest."""
        by_key = self._by_key[inside]
        unread: dict[str, Any] = {}
        for key, value in body.items():
            if value is None:
                continue
            row = by_key.get(key)
            if row is not None and type(value) in row.plain_types:
                fields[row.field] = value
            elif row is not None and (read := row.read(value)) is not None:
                fields[row.field] = read
            elif not inside and key in self._by_key and type(value) is dict:
                rest = self.read(value, fields, key)
                if rest:
                    unread[key] = rest
            else:
                unread[key] = value
        return unread

    def write(
        self,
        request: ModelRequest,
        body: dict[str, Any],
        capabilities: Capabilities,
        losses: list[Loss],
        *,
        refused: Rejections,
        keys: Mapping[str, str] | None = None,
    ) -> None:
        """Put the parameters of a request into a body. `refused` has a reason for each field that the model refuses, and
        `keys` the names of fields that the host calls differently."""
        objects: dict[str, dict[str, Any]] = {"": body}
        for row in self._written:
            value = getattr(request, row.field)
            if value is None:
                continue
            if row.field in refused and not _is_accepted_default(row, value, refused[row.field]):
                if not is_default(row.field, value):
                    losses.append(Loss(row.field, row.field, refused[row.field].reason))
                continue
            if row.limit is None:
                if type(value) is float and not isfinite(value):  # JSON has no such number
                    losses.append(Loss(row.field, row.field, f"{value} is not a finite number; dropped"))
                    continue
            else:
                value = row.limit.fit(value, row.field, losses, capabilities)
            if value is not None:
                if row.inside not in objects:
                    known = body.get(row.inside)
                    objects[row.inside] = body[row.inside] = dict(known) if type(known) is dict else {}
                objects[row.inside][row.key if keys is None else keys.get(row.field, row.key)] = value
        for field, default in self._missing:
            value = getattr(request, field)
            if value is not None and value != default:
                losses.append(Loss(field, field, self._no_such_parameter))

    def find_refused(self, body: Mapping[str, Any], refused: Rejections, rule: str) -> Iterator[tuple[str, str]]:
        """The key of each parameter of a body that its model refuses by this rule, and why."""
        for row in self.rows if refused else ():
            value = body.get(row.key)
            refusal = refused.get(row.field)
            if refusal is None or value is None or value == [] or _is_accepted_default(row, value, refusal):
                continue
            if refusal.rule == rule:
                yield row.key, refusal.message


def _is_accepted_default(row: Parameter, value: Any, refusal: Rejection) -> bool:
    return row.sends_default and not refusal.is_pair and is_default(row.field, value)


def lose_fields(value: Any, path: str, names: Iterable[str], why: str, losses: list[Loss]) -> None:
    """Report the fields of an output format or a tool that the target has no place for."""
    losses.extend(Loss(f"{path}.{name}", name, why) for name in names if getattr(value, name) is not None)


def is_default(field: str, value: Any) -> bool:
    """Whether a value has the same effect as no value."""
    if field in ("top_p", "top_k") and value == UNSET:
        return True
    if field == "top_p":
        return isinstance(value, int | float) and value >= 0.99
    return field in _DEFAULTS and bool(_DEFAULTS[field] == value)


def refused_fields(
    capabilities: Capabilities, rule: str, pair_rule: str, temperature: Any, top_p: Any, *, is_reasoning: bool = False
) -> dict[str, Rejection]:
    """The fields that a model refuses. Of `temperature` and `top_p`, if it does not accept both, the one without effect."""
    accepted = capabilities.sampling
    if accepted is None and capabilities.temperature_with_top_p and capabilities.stop:
        return _NOTHING
    refused: dict[str, Rejection] = {}
    never = Rejection(f"model does not support it; dropped ({rule})", rule)
    if accepted is not None:
        while_reasoning = Rejection(f"model does not support it while reasoning; dropped ({rule})", rule)
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
        refused["temperature" if is_without_effect else "top_p"] = Rejection(reason, pair_rule, is_pair=True)
    if not capabilities.stop:
        refused["stop"] = never
    return refused


_NOTHING: dict[str, Rejection] = {}
