"""One table of parameters per format: it reads them, writes them and checks them.

A row names a field of `ModelRequest`, its key in the body (or inside an object of the body), and what is accepted: types, and a
limit of the values. `check` of a limit says what is wrong with a value of a body; `fit` makes a value of a request legal, and
reports what it changed. What `fit` returns has nothing wrong, and a legal value comes back as the same object.

Rows are written in their order, so that the same request always gives the same bytes. A field without a row does not exist in
the format: it is reported as a loss unless it has its default value.

What a model refuses is decided here for all formats (`refused_fields`), from its `Capabilities`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct, structs

from antiphon.wire.capabilities import Capabilities
from antiphon.wire.loss import Loss
from antiphon.wire.request import ModelRequest
from antiphon.wire.rules import Check, Checked, Items, Path, String, is_number, is_whole_number, not_one_of

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


UNSET = -1
"""Means "no value" in `top_p` and `top_k` of some clients, and is accepted there."""


class Limit(Check, frozen=True):
    """A row about one value that can also make it legal."""

    def fit(self, value: Any, field: str, losses: list[Loss], model: Capabilities) -> Any:
        """The value as the API accepts it; None if it is dropped. `field` is its name in the request."""
        raise NotImplementedError


class Range(Limit, frozen=True):
    """A number between two others; `model_fact` names the capability that lowers the maximum."""

    minimum: float | None = None
    maximum: float | None = None
    is_whole: bool = False
    below: Literal["clamp", "drop"] = "clamp"
    model_fact: str = ""
    unset: Literal["", "drop", "send"] = ""
    """What is done with the value that means none."""
    reads_text: bool = False
    """Whether a string may hold the number, as in proto3 JSON."""

    def highest(self, model: Capabilities) -> float | None:
        """The largest value that the format and the model accept."""
        limit: int | None = getattr(model, self.model_fact) if self.model_fact else None
        if limit is None or self.maximum is None:
            return self.maximum if limit is None else limit
        return min(limit, self.maximum)

    def fit(self, value: Any, field: str, losses: list[Loss], model: Capabilities) -> Any:
        minimum, maximum = self.minimum, self.highest(model) if self.model_fact else self.maximum
        if value == UNSET and self.unset:
            return None if self.unset == "drop" else value
        if value != value:  # not a number at all
            losses.append(Loss(field, field, f"not a number; dropped ({self.rule})"))
            return None
        if minimum is not None and value < minimum:
            if self.below == "drop":
                losses.append(Loss(field, field, f"must be at least {minimum}; dropped {value!r} ({self.rule})"))
                return None
            reason = f"{value!r} is below the minimum {minimum}; sent {minimum} ({self.rule})"
            losses.append(Loss(field, field, reason))
            return minimum
        if maximum is not None and value > maximum:
            reason = f"{value!r} is above the maximum {maximum}; sent {maximum} ({self.rule})"
            losses.append(Loss(field, field, reason))
            return maximum
        return value

    def check(self, value: Any, at: Path, found: Checked) -> None:
        if self.reads_text and type(value) is str:
            value = _number(value)
        if not (is_whole_number(value) if self.is_whole and not self.reads_text else is_number(value)):
            found.add(self.rule, at, f"expected {'a whole number' if self.is_whole else 'a number'}")
            return
        if value == UNSET and self.unset == "send":
            return
        maximum = self.highest(found.model)
        if self.minimum is not None and not value >= self.minimum:
            found.add(self.rule, at, f"must be at least {self.minimum:g}")
        elif maximum is not None and not value <= maximum:
            found.add(self.rule, at, f"must be at most {maximum:g}")


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


class Choice(Limit, frozen=True):
    """A word: `values` has what to write for those of other formats. `is_closed`: no others are accepted."""

    values: Mapping[str, str]
    is_closed: bool = True

    def fit(self, value: Any, field: str, losses: list[Loss], _model: Capabilities) -> Any:
        if self.is_own(value):
            return value
        if value in self.values:
            return self.values[value]
        name, rule = field.replace("_", " "), f" ({self.rule})" if self.rule else ""
        losses.append(Loss(field, field, f'no {name} "{str(value)[:40]}" in this format; dropped{rule}'))
        return None

    def check(self, value: Any, at: Path, found: Checked) -> None:
        accepted = dict.fromkeys(self.values.values())
        if self.is_closed and (type(value) is not str or value not in accepted):
            found.add(self.rule, at, not_one_of(accepted, value))

    def is_own(self, value: Any) -> bool:
        """Whether a value is one of this format, not only understood from another."""
        return not self.is_closed or self.values.get(value) == value


class Texts(Limit, frozen=True):
    """A list of texts, not too many and, if `is_blank` is given, none of those."""

    at_most: int | None = None
    is_blank: Callable[[str], object] | None = None
    accepts_one: bool = False
    """Whether a text alone is accepted in a body."""
    each_is_reported: bool = True

    def read(self, value: Any) -> tuple[str, ...] | None:
        """The texts in a body; None if it has something else there."""
        if type(value) is str:
            return (value,) if self.accepts_one else None
        return tuple(value) if type(value) is list and all(type(text) is str for text in value) else None

    def fit(self, value: Any, field: str, losses: list[Loss], _model: Capabilities) -> Sequence[str]:
        texts: tuple[str, ...] = value
        if self.is_blank is not None and any(map(self.is_blank, value)):
            for index, text in enumerate(value):
                if self.is_blank(text):
                    losses.append(Loss(f"{field}[{index}]", repr(text), f"blank; dropped ({self.rule})"))
            texts = tuple(text for text in texts if not self.is_blank(text))
        if self.at_most is not None and len(texts) > self.at_most:
            reason = f"at most {self.at_most} are accepted; sent the first {self.at_most} ({self.rule})"
            paths = (
                (f"{field}[{index}]" for index in range(self.at_most, len(texts)))
                if self.each_is_reported
                else (field,)
            )
            losses.extend(Loss(path, field, reason) for path in paths)
        return texts[: self.at_most]

    def check(self, value: Any, at: Path, found: Checked) -> None:
        if self.accepts_one and type(value) is str:
            return
        text = String(accepts=_not(self.is_blank), name="must not be blank", rule=self.rule)
        Items(item=text, max_length=self.at_most, rule=self.rule).check(value, at, found)


def _not(test: Callable[[str], object] | None) -> Callable[[str], bool] | None:
    return None if test is None else lambda text: not test(text)


class Pairs(Limit, frozen=True):
    """An object of a few short strings."""

    at_most: int
    max_key: int
    max_value: int

    def fit(self, value: Any, field: str, losses: list[Loss], _model: Capabilities) -> Any:
        limit = f"{field} is limited to {self.at_most} entries with keys of at most {self.max_key} characters"
        cut = f"limited to {self.max_value} characters; sent the first {self.max_value} ({self.rule})"
        pairs: dict[str, str] = {}
        for key, given in value.items():
            path, what = f"{field}.{key[: self.max_key]}", key[: self.max_key] or field
            if len(pairs) == self.at_most or len(key) > self.max_key:
                losses.append(Loss(path, what, f"{limit}; dropped this entry ({self.rule})"))
                continue
            text = given if type(given) is str else msgspec.json.encode(given, order="sorted").decode()
            if text is not given:
                losses.append(Loss(path, what, f"{field} values must be strings; sent as JSON text ({self.rule})"))
            if len(text) > self.max_value:
                losses.append(Loss(path, what, f"{field} values are {cut}"))
            pairs[key] = text[: self.max_value]
        return value if pairs == value else pairs

    def check(self, value: Any, at: Path, found: Checked) -> None:
        if type(value) is not dict:
            found.add(self.rule, at, "expected an object")
            return
        if len(value) > self.at_most:
            found.add(self.rule, at, f"must have at most {self.at_most} entries, not {len(value)}")
        text = String(max_length=self.max_value, rule=self.rule)
        for key, given in value.items():
            if len(key) > self.max_key:
                found.add(self.rule, (at, key), f"the key must have at most {self.max_key} characters")
            text.check(given, (at, key), found)


class Length(Limit, frozen=True):
    """A text of at most so many characters."""

    at_most: int

    def fit(self, value: Any, field: str, losses: list[Loss], _model: Capabilities) -> str:
        if len(value) <= self.at_most:
            return str(value)
        reason = f"limited to {self.at_most} characters; sent the first {self.at_most} ({self.rule})"
        losses.append(Loss(field, field, reason))
        return str(value[: self.at_most])

    def check(self, value: Any, at: Path, found: Checked) -> None:
        String(max_length=self.at_most, rule=self.rule).check(value, at, found)


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
            elif not inside and key and key in self._by_key and type(value) is dict:
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
