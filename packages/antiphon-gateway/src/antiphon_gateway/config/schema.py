"""Type-check a table against a struct and collect all problems: unknown keys, wrong types, values out of bounds.

msgspec stops at the first problem and reports it for programmers. Here its type description (`msgspec.inspect`) is walked along
with the value. An invalid value is left out of the result, or replaced by a placeholder at its own index if it is required, so
that later checks still see everything that was right and indexes still match the file. Bounds do not apply to placeholders.

A problem never repeats the value: it might be a secret (law L10).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, time
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct, inspect

from antiphon.text import near_misses
from antiphon_gateway.config.settings import ConfigPath
from antiphon_gateway.utc_time import as_utc

T = TypeVar("T")

_INVALID: Any = object()
_HOLDS_KEYS = 'keys are given by reference: keys = ["env:NAME"] or ["file:PATH"]'
_GIVEN: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "a boolean"),
    (str, "a string"),
    (int, "an integer"),
    (float, "a number"),
    (list, "a list"),
    (dict, "a table"),
)


class Problem(Struct, frozen=True):
    """A problem at a path."""

    path: ConfigPath
    reason: str


Resolve: TypeAlias = Callable[[str, str], str]


def check_types(kind: type[T], value: object, resolve: Resolve = lambda _, written: written) -> tuple[T, list[Problem]]:
    """The valid parts of the value, and all problems.

    `resolve` gets what a text `holds` by its type, and the text; it gives what takes its place, or raises `ValueError`.
    """
    checker, info = _TypeChecker(resolve), inspect.type_info(kind)
    fit = checker.check(info, value, ())
    return _placeholder(info) if fit is _INVALID else fit, checker.problems


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """A suggestion of the name that was probably meant, as the end of a sentence; empty if none is similar."""
    near = near_misses(name, names, 2)
    return f"; did you mean {' or '.join(near)}?" if near else ""


class _TypeChecker:
    """Walks types and values together."""

    def __init__(self, resolve: Resolve) -> None:
        self.problems: list[Problem] = []
        self._resolve = resolve

    def check(self, kind: inspect.Type, value: object, path: ConfigPath) -> Any:
        """The valid part of the value, or `_INVALID`."""
        alternatives, marks = _alternatives(kind), getattr(kind, "extra", None) or {}
        if len(alternatives) > 1:
            return self._one_of(alternatives, value, path)
        (kind,) = alternatives
        if isinstance(kind, inspect.StructType):
            return self._table(kind, value, path)
        if isinstance(kind, inspect.VarTupleType):
            return self._list(kind, value, path)
        if isinstance(kind, inspect.DictType):
            return self._string_table(kind, value, path)
        if isinstance(kind, inspect.LiteralType):
            if value in kind.values and isinstance(value, str):
                return value
            words = [str(word) for word in kind.values if word]
            near = did_you_mean(value, words) if isinstance(value, str) else ""
            return self._invalid(path, f"expected one of {', '.join(words)}{near}")
        if isinstance(kind, inspect.BoolType):
            return value if isinstance(value, bool) else self._wrong_type(path, "true or false", value)
        if isinstance(kind, inspect.StrType):
            if not isinstance(value, str):
                return self._wrong_type(path, "a string", value)
            if len(value) < (kind.min_length or 0):
                return self._invalid(path, "must not be empty")
            try:
                return self._resolve(marks["holds"], value) if "holds" in marks else value
            except ValueError as error:
                return self._invalid(path, str(error))
        if isinstance(kind, inspect.DateTimeType):
            return self._time(value, path)
        assert isinstance(kind, inspect.IntType | inspect.FloatType)
        return self._number(kind, value, path)

    def _one_of(self, alternatives: list[inspect.Type], value: object, path: ConfigPath) -> Any:
        """A value that is true, false or one of some words."""
        words = [word for kind in alternatives if isinstance(kind, inspect.LiteralType) for word in kind.values]
        if isinstance(value, bool) or (isinstance(value, str) and value in words):
            return value
        quoted = [f'"{word}"' for word in words]
        return self._invalid(path, f"expected one of true, false, {', '.join(quoted)}")

    def _table(self, kind: inspect.StructType, value: object, path: ConfigPath) -> Any:
        if not isinstance(value, dict):
            return self._wrong_type(path, f"a table: [{path[-1]}]" if len(path) == 1 else "a table", value)
        fields = {field.encode_name: field for field in kind.fields}
        for name in value:
            if name not in fields:
                self.problems.append(Problem((*path, name), _unknown(name, list(fields))))
        fit: dict[str, Any] = {}
        for name, field in fields.items():
            inner = _INVALID
            if name in value:
                inner = self.check(field.type, value[name], (*path, name))
            elif field.required:
                self.problems.append(Problem((*path, name), "required"))
            if inner is not _INVALID:
                fit[name] = inner
            elif field.required:
                fit[name] = _placeholder(field.type)
        return kind.cls(**fit)

    def _list(self, kind: inspect.VarTupleType, value: object, path: ConfigPath) -> Any:
        if not isinstance(value, list):
            if isinstance(value, dict) and len(path) == 1:
                return self._invalid(path, f"expected a list of tables; write [[{path[0]}]] with two brackets")
            return self._wrong_type(path, 'a list: ["…"]', value)
        if len(value) < (kind.min_length or 0):
            return self._invalid(path, "must not be empty")
        items = [self.check(kind.item_type, item, (*path, number)) for number, item in enumerate(value)]
        return tuple(_placeholder(kind.item_type) if item is _INVALID else item for item in items)

    def _string_table(self, kind: inspect.DictType, value: object, path: ConfigPath) -> Any:
        if not isinstance(value, dict):
            return self._wrong_type(path, "a table", value)
        items = {name: self.check(kind.value_type, inner, (*path, name)) for name, inner in value.items()}
        return {name: inner for name, inner in items.items() if inner is not _INVALID}

    def _number(self, kind: inspect.IntType | inspect.FloatType, value: object, path: ConfigPath) -> Any:
        expected, types = ("an integer", (int,)) if isinstance(kind, inspect.IntType) else ("a number", (int, float))
        if not isinstance(value, types) or isinstance(value, bool):
            return self._wrong_type(path, expected, value)
        # Written this way round, nan is outside every bound.
        if kind.ge is not None and not value >= kind.ge:
            return self._invalid(path, f"must be at least {kind.ge}")
        if kind.gt is not None and not value > kind.gt:
            return self._invalid(path, f"must be more than {kind.gt:g}")
        if kind.le is not None and not value <= kind.le:
            return self._invalid(path, f"must be at most {kind.le}")
        return value if isinstance(kind, inspect.IntType) else float(value)

    def _time(self, value: object, path: ConfigPath) -> Any:
        if isinstance(value, date) and not isinstance(value, datetime):
            value = datetime.combine(value, time())
        if not isinstance(value, datetime):
            return self._wrong_type(path, "a date or time without quotes, such as 2027-01-31", value)
        try:
            value.astimezone(UTC)  # as which it is shown
        except OverflowError:
            return self._invalid(path, "must be between the years 1 and 9999, in UTC")
        return as_utc(value)

    def _wrong_type(self, path: ConfigPath, expected: str, value: object) -> Any:
        given = next((word for kind, word in _GIVEN if isinstance(value, kind)), "a date or time")
        return self._invalid(path, f"expected {expected}, got {given}")

    def _invalid(self, path: ConfigPath, reason: str) -> Any:
        self.problems.append(Problem(path, reason))
        return _INVALID


def _alternatives(kind: inspect.Type) -> list[inspect.Type]:
    """The types that a value may have, without annotations, and without null, which TOML does not have."""
    if isinstance(kind, inspect.Metadata):
        return _alternatives(kind.type)
    if isinstance(kind, inspect.UnionType):
        return [one for each in kind.types for one in _alternatives(each)]
    return [] if isinstance(kind, inspect.NoneType) else [kind]


def _placeholder(kind: inspect.Type) -> Any:
    """A placeholder for an invalid value that cannot be left out."""
    kind = _alternatives(kind)[0]
    if isinstance(kind, inspect.StructType):
        return kind.cls(**{field.encode_name: _placeholder(field.type) for field in kind.fields if field.required})
    return () if isinstance(kind, inspect.VarTupleType) else ""


def _unknown(name: str, names: list[str]) -> str:
    lowered = name.lower()
    if "base_url" in names and any(word in lowered for word in ("key", "token", "secret", "password")):
        return f"unknown key; {_HOLDS_KEYS}"
    return "unknown key" + (did_you_mean(name, names) or f"; available: {', '.join(names)}")
