"""Whether a table has the shape of a struct: known keys, right types, numbers within their bounds; everything at once.

msgspec stops at the first thing that does not fit and says it for programmers. Here the types it knows (`msgspec.inspect`) are
walked beside the value: each misfit is a `Finding` in plain words, and is left out of what comes back, or stands there blank if
it cannot be left out, at its own place (bounds hold for what was written, not for blanks). So whoever looks further sees
everything that was right, and numbers of items still mean what they mean in the file.

A value is never repeated in what is said of it: it might be a secret (law L10).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from msgspec import Struct, inspect

from antiphon.gateway.config.settings import Place
from antiphon.tools.argument_errors import near_misses

T = TypeVar("T")

_UNFIT: Any = object()
_HOLDS_KEYS = 'keys are never written into this file: keys = ["env:NAME"] or ["file:PATH"] says where they are read'
_GIVEN: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "true or false"),
    (str, "a text"),
    (int, "a whole number"),
    (float, "a number"),
    (list, "a list"),
    (dict, "a table"),
)


class Finding(Struct, frozen=True):
    """Something wrong at a place."""

    place: Place
    reason: str


def shaped(kind: type[T], value: object) -> tuple[T, list[Finding]]:
    """What of the value fits the struct, and everything that does not."""
    findings: list[Finding] = []
    info = inspect.type_info(kind)
    fit = _Walk(findings.append).fitted(info, value, ())
    return _blank(info) if fit is _UNFIT else fit, findings


def meant(name: str, names: Iterable[str]) -> str:
    """Which name was probably meant, as the end of a sentence; nothing if none is near."""
    near = near_misses(name, names, 2)
    return f"; did you mean {' or '.join(near)}?" if near else ""


class _Walk:
    """Types beside values. `tell` takes each misfit."""

    def __init__(self, tell: Callable[[Finding], object]) -> None:
        self._tell = tell

    def fitted(self, kind: inspect.Type, value: object, place: Place) -> Any:
        """The value as far as it fits, or `_UNFIT`."""
        kind = _bare(kind)
        if isinstance(kind, inspect.StructType):
            return self._table(kind, value, place)
        if isinstance(kind, inspect.VarTupleType):
            return self._list(kind, value, place)
        if isinstance(kind, inspect.DictType):
            return self._texts(kind, value, place)
        if isinstance(kind, inspect.LiteralType):
            if value in kind.values and isinstance(value, str):
                return value
            words = [str(word) for word in kind.values if word]
            near = meant(value, words) if isinstance(value, str) else ""
            return self._unfit(place, f"should be one of {', '.join(words)}{near}")
        if isinstance(kind, inspect.BoolType):
            return value if isinstance(value, bool) else self._mistaken(place, "true or false", value)
        if isinstance(kind, inspect.StrType):
            if not isinstance(value, str):
                return self._mistaken(place, "a text in quotes", value)
            return self._unfit(place, "must not be empty") if len(value) < (kind.min_length or 0) else value
        assert isinstance(kind, inspect.IntType | inspect.FloatType)
        return self._number(kind, value, place)

    def _table(self, kind: inspect.StructType, value: object, place: Place) -> Any:
        if not isinstance(value, dict):
            return self._mistaken(place, f"a table: [{place[-1]}]" if len(place) == 1 else "a table", value)
        fields = {field.encode_name: field for field in kind.fields}
        for name in value:
            if name not in fields:
                self._tell(Finding((*place, name), _unknown(name, list(fields))))
        fit: dict[str, Any] = {}
        for name, field in fields.items():
            inner = _UNFIT
            if name in value:
                inner = self.fitted(field.type, value[name], (*place, name))
            elif field.required:
                self._tell(Finding((*place, name), "is missing"))
            if inner is not _UNFIT:
                fit[name] = inner
            elif field.required:
                fit[name] = _blank(field.type)
        return kind.cls(**fit)

    def _list(self, kind: inspect.VarTupleType, value: object, place: Place) -> Any:
        if not isinstance(value, list):
            if isinstance(value, dict) and len(place) == 1:
                return self._unfit(place, f"is a list of tables: write [[{place[0]}]], with two brackets")
            return self._mistaken(place, 'a list: ["…"]', value)
        if len(value) < (kind.min_length or 0):
            return self._unfit(place, "must not be empty")
        items = [self.fitted(kind.item_type, item, (*place, number)) for number, item in enumerate(value)]
        return tuple(_blank(kind.item_type) if item is _UNFIT else item for item in items)

    def _texts(self, kind: inspect.DictType, value: object, place: Place) -> Any:
        if not isinstance(value, dict):
            return self._mistaken(place, "a table", value)
        items = {name: self.fitted(kind.value_type, inner, (*place, name)) for name, inner in value.items()}
        return {name: inner for name, inner in items.items() if inner is not _UNFIT}

    def _number(self, kind: inspect.IntType | inspect.FloatType, value: object, place: Place) -> Any:
        expected, types = (
            ("a whole number", (int,)) if isinstance(kind, inspect.IntType) else ("a number", (int, float))
        )
        if not isinstance(value, types) or isinstance(value, bool):
            return self._mistaken(place, expected, value)
        # Said this way round, what is not a number (nan) fits no bound.
        if kind.ge is not None and not value >= kind.ge:
            return self._unfit(place, f"must be at least {kind.ge}")
        if kind.gt is not None and not value > kind.gt:
            return self._unfit(place, f"must be more than {kind.gt:g}")
        if kind.le is not None and not value <= kind.le:
            return self._unfit(place, f"must be at most {kind.le}")
        return value if isinstance(kind, inspect.IntType) else float(value)

    def _mistaken(self, place: Place, expected: str, value: object) -> Any:
        given = next((word for kind, word in _GIVEN if isinstance(value, kind)), "a date or time")
        return self._unfit(place, f"should be {expected}, and is {given}")

    def _unfit(self, place: Place, reason: str) -> Any:
        self._tell(Finding(place, reason))
        return _UNFIT


def _bare(kind: inspect.Type) -> inspect.Type:
    """The type without what is said about it, and without null, which TOML does not have."""
    while isinstance(kind, inspect.Metadata | inspect.UnionType):
        if isinstance(kind, inspect.Metadata):
            kind = kind.type
        else:
            kind = next(one for one in kind.types if not isinstance(one, inspect.NoneType))
    return kind


def _blank(kind: inspect.Type) -> Any:
    """What stands for a value that did not fit and cannot be left out."""
    kind = _bare(kind)
    if isinstance(kind, inspect.StructType):
        return kind.cls(**{field.encode_name: _blank(field.type) for field in kind.fields if field.required})
    return () if isinstance(kind, inspect.VarTupleType) else ""


def _unknown(name: str, names: list[str]) -> str:
    lowered = name.lower()
    if "base_url" in names and any(word in lowered for word in ("key", "token", "secret", "password")):
        return f"is not known here; {_HOLDS_KEYS}"
    return "is not known here" + (meant(name, names) or f"; there are {', '.join(names)}")
