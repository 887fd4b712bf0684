"""Rules of provider APIs as rows: what a body may be, checked before the provider checks it.

A `Check` is a row about one value: its type, its values, its length. Rows are put together to tables (`Object`, `Items`,
`Tagged`) that say what a whole body may be; a row without a rule of its own has that of its table. A row that can also make a
value legal is a `Limit` (`limits.py`), one about several values a `CrossRule` (`book.py`).

Paths are linked steps and become text only in a `Violation`, so a legal value builds no string. Values are decoded JSON of any
type: nothing is hashed, compared or sliced before its type is known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from msgspec import Struct, structs

if TYPE_CHECKING:
    from antiphon.wire.capabilities import Capabilities

Path: TypeAlias = "tuple[Path, str | int] | None"
"""The steps from the body to a value, innermost last."""

_MAX_SHOWN = 80
_is_rule = re.compile(r"[A-Z]{2}-\d{2}").fullmatch


class Violation(Struct, frozen=True):
    """One rule that a request body breaks: its id in the rule book, the path in the body, and what is wrong.

    `advisory` marks what only some models or hosts refuse; `check_request` reports those on demand.
    """

    rule: str
    path: str
    message: str
    advisory: bool = False

    def __str__(self) -> str:
        kind = "advisory" if self.advisory else "error"
        return f"{self.path or '(body)'}: {self.rule} {kind}: {self.message}"


class Checked(Struct):
    """A body under check: what its model accepts, and the violations so far."""

    body: dict[str, Any]
    model: Capabilities
    has_dots: bool = False
    """Whether positions in a path are written `.0` and not `[0]`."""
    target: Any = None
    """What a format must know beside the model."""
    entries: Any = None
    """The messages of the body, as far as the rules of a format look at them."""
    is_advice: bool = False
    """Whether what is found now is advice: what only some models or hosts refuse."""
    violations: list[Violation] = []

    def add(self, rule: str, at: Path, message: str) -> None:
        self.violations.append(Violation(rule, format_path(at, has_dots=self.has_dots), message, self.is_advice))

    def add_type(self, rule: str, at: Path, name: str, value: Any) -> None:
        """A value of another type; there is no advice about those."""
        if not self.is_advice:
            self.add(rule, at, expected(name, value))


def format_path(at: Path, *, has_dots: bool = False) -> str:
    """`messages[0].content`, or `messages.0.content`."""
    steps: list[str] = []
    while at is not None:
        at, step = at
        if isinstance(step, int):
            steps.append(f".{step}" if has_dots else f"[{step}]")
        else:
            steps.append(f".{step[:_MAX_SHOWN]}")
    return "".join(reversed(steps)).removeprefix(".")


class Check(Struct, frozen=True, kw_only=True):
    """A row about one value. The rows in it have its rule, unless they have one."""

    sees_null: ClassVar[bool] = False
    """Whether a null field is checked, and does not count as absent."""
    rule: str = ""

    def __post_init__(self) -> None:
        if self.rule:
            for name in self.__struct_fields__:
                value = getattr(self, name)
                if isinstance(value, Check | dict | tuple):
                    structs.force_setattr(self, name, _under(value, self.rule))

    def check(self, value: Any, at: Path, found: Checked) -> None:
        """Report what is wrong with the value."""

    def under(self, rule: str) -> Any:
        """The row as part of a table with this rule."""
        return self if self.rule or type(self) is Check else structs.replace(self, rule=rule)


def _under(value: Any, rule: str) -> Any:
    if isinstance(value, Check):
        return value.under(rule)
    if isinstance(value, dict):
        return {key: _under(row, rule) for key, row in value.items()}
    return tuple([_under(row, rule) for row in value]) if isinstance(value, tuple) else value


def rules_in(value: Any) -> Iterator[str]:
    """The ids of the rules in rows."""
    if isinstance(value, str):
        if _is_rule(value):
            yield value
    elif isinstance(value, Struct):
        for name in value.__struct_fields__:
            yield from rules_in(getattr(value, name))
    elif isinstance(value, Mapping | tuple):
        for row in value.values() if isinstance(value, Mapping) else value:
            yield from rules_in(row)


ANY = Check()


class Refused(Check, frozen=True):
    """A field that must not be there."""

    sees_null: ClassVar[bool] = True
    message: str = "unknown field"

    def check(self, _: Any, at: Path, found: Checked) -> None:
        found.add(self.rule, at, self.message)


class OneOf(Check, frozen=True):
    """One of several words."""

    values: tuple[str, ...]

    def check(self, value: Any, at: Path, found: Checked) -> None:
        if type(value) is not str or value not in self.values:
            found.add(self.rule, at, not_one_of(self.values, value))


class String(Check, frozen=True):
    """A string of a limited length and of characters that `accepts` finds legal; `name` says what those are."""

    min_length: int = 0
    max_length: int | Callable[[], int | None] | None = None
    accepts: Callable[[str], Any] | None = None
    name: str = "has characters that are not allowed"
    shape: str = ""
    """The rule for a value that is not a string; by default the same."""

    def check(self, value: Any, at: Path, found: Checked) -> None:
        if type(value) is not str:
            found.add_type(self.shape or self.rule, at, "a string", value)
        elif problem := self.problem(value):
            found.add(self.rule, at, problem)

    def problem(self, value: str) -> str:
        """What is wrong with a string; empty if nothing is."""
        longest = self.max_length() if callable(self.max_length) else self.max_length
        if len(value) < self.min_length:
            return "must not be empty"
        if longest is not None and len(value) > longest:
            return f"must have at most {longest} characters, not {len(value)}"
        return self.name if self.accepts is not None and not self.accepts(value) else ""


STRING = String()
FILLED = String(min_length=1)


class Items(Check, frozen=True):
    """An array of a limited length, whose items are checked by one row. `accepts_one`: an item alone counts as an array."""

    item: Check = ANY
    min_length: int = 0
    max_length: int | None = None
    empty_rule: str = ""
    accepts_one: bool = False

    def check(self, value: Any, at: Path, found: Checked) -> None:
        if type(value) is not list:
            if self.accepts_one:
                self.item.check(value, (at, 0), found)
            else:
                found.add_type(self.rule, at, "an array", value)
            return
        if len(value) < self.min_length:
            found.add(self.empty_rule or self.rule, at, "must not be empty")
        if self.max_length is not None and len(value) > self.max_length:
            found.add(self.rule, at, f"must have at most {self.max_length} items, not {len(value)}")
        if self.item is not ANY:
            check = self.item.check
            for index, item in enumerate(value):
                check(item, (at, index), found)


class Either(Check, frozen=True):
    """A value of one of several types, each with its row."""

    rows: dict[type, Check]

    def check(self, value: Any, at: Path, found: Checked) -> None:
        row = self.rows.get(type(value))
        if row is None:
            *others, last = (_JSON_TYPE_NAMES[kind] for kind in self.rows)
            found.add_type(self.rule, at, f"{', '.join(others)} or {last}" if others else last, value)
        elif row is not ANY:
            row.check(value, at, found)


def either(rows: dict[type, Check], rule: str = "") -> Either:
    """A row for each type."""
    return Either(rows=rows, rule=rule)


BOOLEAN, OBJECT, ARRAY = either({bool: ANY}), either({dict: ANY}), either({list: ANY})


class Required(Check, frozen=True):
    """A field that an object must have; `missing` is the rule if it has not, by default that of the object."""

    row: Check
    missing: str = ""


def need(row: Check, missing: str = "") -> Required:
    """The row of a required field."""
    return Required(row=row, missing=missing)


class Object(Check, frozen=True):
    """An object: a row for each field, and rules about several of them.

    `unknown` is the rule for fields without a row, empty if they are accepted; by default that of the object. A null field is
    absent unless `has_nulls`: then the row of a required one gets it.
    """

    fields: dict[str, Check]
    unknown: str | None = None
    also: tuple[Check, ...] = ()
    has_nulls: bool = False
    required: dict[str, str] = {}

    def __post_init__(self) -> None:
        Check.__post_init__(self)
        if self.rule:  # take the required fields out of their rows
            needed = {name: row for name, row in self.fields.items() if isinstance(row, Required)}
            structs.force_setattr(self, "fields", self.fields | {name: row.row for name, row in needed.items()})
            structs.force_setattr(
                self, "required", self.required | {name: row.missing or self.rule for name, row in needed.items()}
            )
            structs.force_setattr(self, "unknown", self.rule if self.unknown is None else self.unknown)

    def check(self, value: Any, at: Path, found: Checked) -> None:
        if type(value) is not dict:
            found.add_type(self.rule, at, "an object", value)
            return
        fields, required, has_nulls, unknown = self.fields, self.required, self.has_nulls, self.unknown
        for name in required:
            if name not in value or (value[name] is None and not has_nulls):
                found.add(required[name], (at, name), "is required")
        for name, item in value.items():
            row = fields.get(name)
            if row is None:
                if unknown:
                    found.add(unknown, (at, name), "unknown field")
            elif row is not ANY and (item is not None or row.sees_null or (has_nulls and name in required)):
                row.check(item, (at, name), found)
        for also in self.also:
            also.check(value, at, found)


def record(rule: str = "", /, *also: Check, **fields: Check) -> Object:
    """An object that may have other fields too."""
    return Object(rule=rule, fields=fields, unknown="", also=also)


class Tagged(Check, frozen=True):
    """An object whose kind is named by one of its fields. `at_tag`: whether an unknown kind is reported at that field."""

    kinds: dict[str, Check]
    tag: str = "type"
    at_tag: bool = False
    others: Check | None = None
    """The row of unknown kinds, if they are accepted."""
    missing: str = ""
    """The rule for an object without a kind; by default that of the table."""
    shape: str = ""
    """The rule for a value that is not an object; by default that of the table."""

    def check(self, value: Any, at: Path, found: Checked) -> None:
        if type(value) is not dict:
            found.add_type(self.shape or self.rule, at, "an object", value)
            return
        kind = value.get(self.tag)
        row = self.kinds.get(kind, self.others) if type(kind) is str else None
        if row is not None:
            row.check(value, at, found)
        elif kind is None:
            found.add(self.missing or self.rule, (at, self.tag), "is required")
        else:
            found.add(self.rule, (at, self.tag) if self.at_tag else at, not_one_of(self.kinds, kind))


def expected(name: str, value: Any) -> str:
    """What is wrong with a value of another type."""
    return f"expected {name}, got {json_type_name(value)}"


def not_one_of(values: Iterable[str], value: Any) -> str:
    """What is wrong with another word."""
    shown = f'"{value[:_MAX_SHOWN]}"' if type(value) is str else json_type_name(value)
    return f"must be one of {', '.join(values)}, not {shown}"


def name_set(text: str) -> frozenset[str]:
    """The space-separated names in `text`."""
    return frozenset(text.split())


def name_list(text: str) -> tuple[str, ...]:
    """The space-separated names in `text`, in order."""
    return tuple(text.split())


def is_number(value: object) -> bool:
    """Whether a value of decoded JSON is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_whole_number(value: Any) -> bool:
    """Whether a value of decoded JSON is a whole number; 1.0 is one."""
    return is_number(value) and (isinstance(value, int) or value.is_integer())


_JSON_TYPE_NAMES: dict[type, str] = {
    type(None): "null",
    bool: "a boolean",
    int: "an integer",
    float: "a decimal number",
    str: "a string",
    list: "an array",
    dict: "an object",
}


def json_type_name(value: object) -> str:
    """The JSON type of a value, as errors name it."""
    return _JSON_TYPE_NAMES.get(type(value), "an unsupported value")


def list_of(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def each(value: dict[str, Any], *names: str) -> list[tuple[tuple[str | int, ...], dict[str, Any]]]:
    """The steps to each object in the lists of these names, one inside the other, and the object."""
    reached: list[tuple[tuple[str | int, ...], dict[str, Any]]] = [((), value)]
    for name in names:
        reached = [
            ((*steps, name, index), item)
            for steps, outer in reached
            if type(items := outer.get(name)) is list
            for index, item in enumerate(items)
            if type(item) is dict
        ]
    return reached
