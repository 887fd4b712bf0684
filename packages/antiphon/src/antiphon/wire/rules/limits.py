"""Limits: rows about one value that the checks report and the writers keep.

`check` says what is wrong with a value of a body; `fit` makes a value of a request legal, and reports what it changed. What `fit`
returns has nothing wrong, and a legal value comes back as the same object.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from antiphon.wire.capabilities import Capabilities
from antiphon.wire.loss import Loss
from antiphon.wire.rules import Check, Checked, Items, Path, String, is_number, is_whole_number, not_one_of

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
