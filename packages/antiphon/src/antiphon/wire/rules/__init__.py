"""Rules of provider APIs as rows: what a body may be, checked before the provider checks it.

A `Check` is a row about one value: its type, its values, its length. Rows are put together to tables (`Object`, `Items`,
`Tagged`) that say what a whole body may be; a row without a rule of its own has that of its table. A row that can also make a
value legal is a `Limit` (`limits.py`). A `CrossRule` is about several values; the write frame calls its `fix` at its stage. A
`RuleBook` has the rows of a format and the source of each rule; an id without a row, or a row without a source, is refused when
the book is made.

Paths are linked steps and become text only in a `Violation`, so a legal value builds no string. Values are decoded JSON of any
type: nothing is hashed, compared or sliced before its type is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeAlias, get_args

from msgspec import Struct, structs

from antiphon.wire.loss import Loss

if TYPE_CHECKING:
    from antiphon.wire.capabilities import Capabilities
    from antiphon.wire.loss import Losses
    from antiphon.wire.request import ModelRequest

Path: TypeAlias = "tuple[Path, str | int] | None"
"""The steps from the body to a value, innermost last."""
Finding: TypeAlias = "tuple[str | int | tuple[str | int, ...], str]"
"""The steps from a checked value to what is wrong in it, and what that is."""

_MAX_SHOWN = 80


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
    """A body under check: what its model accepts, and the violations so far. `advisories`: whether to look for those too."""

    body: dict[str, Any]
    model: Capabilities
    advisories: bool = False
    has_dots: bool = False
    """Whether positions in a path are written `.0` and not `[0]`."""
    target: Any = None
    """What a format must know beside the model."""
    violations: list[Violation] = []

    def add(self, rule: str, at: Path, message: str, *, advisory: bool = False) -> None:
        self.violations.append(Violation(rule, format_path(at, has_dots=self.has_dots), message, advisory))


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


def extend_path(at: Path, steps: str | int | tuple[str | int, ...]) -> Path:
    """The path with further steps; an empty string is none."""
    for step in steps if isinstance(steps, tuple) else (steps,) if steps != "" else ():
        at = (at, step)
    return at


class Check(Struct, frozen=True, kw_only=True):
    """A row about one value."""

    sees_null: ClassVar[bool] = False
    """Whether a null field is checked, and does not count as absent."""
    rule: str = ""

    def check(self, value: Any, at: Path, found: Checked) -> None:
        """Report what is wrong with the value."""

    def under(self, rule: str) -> Any:
        """The row as part of a table with this rule."""
        return self if self.rule else structs.replace(self, rule=rule)

    @property
    def rules(self) -> Iterable[str]:
        """The ids of the rules in it."""
        return (self.rule,)


ANY = Check()


class Kind(Check, frozen=True):
    """A value of some types."""

    types: tuple[type, ...]
    name: str

    def check(self, value: Any, at: Path, found: Checked) -> None:
        if type(value) not in self.types:
            found.add(self.rule, at, expected(self.name, value))


BOOLEAN = Kind(types=(bool,), name="a boolean")
OBJECT = Kind(types=(dict,), name="an object")
ARRAY = Kind(types=(list,), name="an array")
TEXT_OR_ARRAY = Kind(types=(str, list), name="a string or an array")


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
    name: str = ""
    shape: str = ""
    """The rule for a value that is not a string; by default the same."""

    def check(self, value: Any, at: Path, found: Checked) -> None:
        problem = self.problem(value)
        if problem:
            found.add(self.shape or self.rule if type(value) is not str else self.rule, at, problem)

    @property
    def rules(self) -> Iterable[str]:
        return (self.rule, self.shape)

    def problem(self, value: Any) -> str:
        """What is wrong with a value; empty if nothing is."""
        if type(value) is not str:
            return expected("a string", value)
        longest = self.max_length() if callable(self.max_length) else self.max_length
        if len(value) < self.min_length:
            return "must not be empty"
        if longest is not None and len(value) > longest:
            return f"must have at most {longest} characters, not {len(value)}"
        if self.accepts is not None and not self.accepts(value):
            return self.name or "has characters that are not allowed"
        return ""


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
                found.add(self.rule, at, expected("an array", value))
            return
        if len(value) < self.min_length:
            found.add(self.empty_rule or self.rule, at, "must not be empty")
        if self.max_length is not None and len(value) > self.max_length:
            found.add(self.rule, at, f"must have at most {self.max_length} items, not {len(value)}")
        if self.item is not ANY:
            check = self.item.check
            for index, item in enumerate(value):
                check(item, (at, index), found)

    def under(self, rule: str) -> Any:
        return structs.replace(self, rule=self.rule or rule, item=self.item.under(self.rule or rule))

    @property
    def rules(self) -> Iterable[str]:
        yield from (self.rule, self.empty_rule)
        yield from self.item.rules


class Either(Check, frozen=True):
    """A value of one of several types, each with its row."""

    rows: dict[type, Check]
    name: str

    def check(self, value: Any, at: Path, found: Checked) -> None:
        row = self.rows.get(type(value))
        if row is None:
            found.add(self.rule, at, expected(self.name, value))
        elif row is not ANY:
            row.check(value, at, found)

    def under(self, rule: str) -> Any:
        rows = {kind: row.under(self.rule or rule) for kind, row in self.rows.items()}
        return structs.replace(self, rule=self.rule or rule, rows=rows)

    @property
    def rules(self) -> Iterable[str]:
        yield self.rule
        for row in self.rows.values():
            yield from row.rules


Stage: TypeAlias = Literal["choice", "reasoning", "end"]
"""When a body is fixed: with its messages, with tools and reasoning, or when it is complete."""


class Writing(Protocol):
    """What a fix knows of the request that is written."""

    request: ModelRequest
    losses: Losses
    model: Capabilities


Fix: TypeAlias = Callable[[dict[str, Any], Any], None]
"""Makes a body legal that is being written (`Writing`), and reports what it changed."""


class CrossRule(Struct, frozen=True):
    """A rule about several values of an object, or of the whole body. After its `fix`, `find` finds nothing."""

    rule: str
    find: Callable[[dict[str, Any], Checked], Iterable[Finding]]
    advisory: bool = False
    stage: Stage = "end"
    fix: Fix | None = None

    @property
    def rules(self) -> Iterable[str]:
        return (self.rule,)

    def check(self, value: Any, at: Path, found: Checked) -> None:
        for steps, message in self.find(value, found):
            found.add(self.rule, extend_path(at, steps), message, advisory=self.advisory)


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
    also: tuple[CrossRule | CrossRules, ...] = ()
    has_nulls: bool = False
    required: dict[str, str] = {}

    def __post_init__(self) -> None:
        if self.rule:
            self._complete()

    def _complete(self) -> None:
        """Give every row a rule, and take the required fields out of their rows."""
        fields: dict[str, Check] = {}
        required: dict[str, str] = {}
        for name, row in self.fields.items():
            if isinstance(row, Required):
                required[name] = row.missing or self.rule
                row = row.row
            fields[name] = row if row is ANY else row.under(self.rule)
        structs.force_setattr(self, "fields", fields)
        structs.force_setattr(self, "required", required)
        if self.unknown is None:
            structs.force_setattr(self, "unknown", self.rule)

    def check(self, value: Any, at: Path, found: Checked) -> None:
        if type(value) is not dict:
            found.add(self.rule, at, expected("an object", value))
            return
        fields, required = self.fields, self.required
        for name in required:
            if name not in value or (value[name] is None and not self.has_nulls):
                found.add(required[name], (at, name), "is required")
        for name, item in value.items():
            row = fields.get(name)
            if row is None:
                if self.unknown:
                    found.add(self.unknown, (at, name), "unknown field")
            elif row is not ANY and (item is not None or row.sees_null or (self.has_nulls and name in required)):
                row.check(item, (at, name), found)
        for also in self.also:
            also.check(value, at, found)

    def under(self, rule: str) -> Any:
        return self if self.rule else structs.replace(self, rule=rule)

    @property
    def rules(self) -> Iterable[str]:
        yield from (self.rule, self.unknown or "")
        yield from self.required.values()
        for row in self.fields.values():
            yield from row.rules
        for also in self.also:
            yield from also.rules


class Tagged(Check, frozen=True):
    """An object whose kind is named by one of its fields. `at_tag`: whether an unknown kind is reported at that field."""

    kinds: Mapping[str, Check]
    tag: str = "type"
    at_tag: bool = False
    is_open: bool = False
    """Whether unknown kinds are accepted."""
    missing: str = ""
    """The rule for an object without a kind; by default that of the table."""
    shape: str = ""
    """The rule for a value that is not an object; by default that of the table."""

    def check(self, value: Any, at: Path, found: Checked) -> None:
        if type(value) is not dict:
            found.add(self.shape or self.rule, at, expected("an object", value))
            return
        kind = value.get(self.tag)
        row = self.kinds.get(kind) if type(kind) is str else None
        if row is not None:
            row.check(value, at, found)
        elif kind is None:
            found.add(self.missing or self.rule, (at, self.tag), "is required")
        elif not self.is_open or type(kind) is not str:
            found.add(self.rule, (at, self.tag) if self.at_tag else at, not_one_of(self.kinds, kind))

    def under(self, rule: str) -> Any:
        rule = self.rule or rule
        return structs.replace(self, rule=rule, kinds={kind: row.under(rule) for kind, row in self.kinds.items()})

    @property
    def rules(self) -> Iterable[str]:
        yield from (self.rule, self.missing, self.shape)
        for row in self.kinds.values():
            yield from row.rules


class CrossRules(Struct, frozen=True):
    """Several rules that one search finds; each finding comes with its rule."""

    rules: tuple[str, ...]
    find: Callable[[dict[str, Any], Checked], Iterable[tuple[str, Finding]]]
    advisory: bool = False
    stage: Stage = "end"
    fix: Fix | None = None

    def check(self, value: Any, at: Path, found: Checked) -> None:
        for rule, (steps, message) in self.find(value, found):
            found.add(rule, extend_path(at, steps), message, advisory=self.advisory)


def drop_found(
    rule: str, find: Callable[[dict[str, Any], Checked], Iterable[Finding]], *, path: str = "native"
) -> CrossRule:
    """A rule about fields of the body that a writer keeps by dropping what `find` finds."""

    def fix(body: dict[str, Any], writing: Writing) -> None:
        for name, message in list(find(body, Checked(body, writing.model))):
            del body[str(name)]
            where = f"{path}.{name}" if path else str(name)
            writing.losses.append(Loss(where, str(name), f"{message}; dropped ({rule})"))

    return CrossRule(rule, find, fix=fix)


class Row(Protocol):
    """A row of a rule book."""

    @property
    def rules(self) -> Iterable[str]: ...
    def check(self, value: Any, at: Path, found: Checked) -> None: ...


Fixes: TypeAlias = "Mapping[str, tuple[Fix, ...]]"


class RuleBook:
    """The rules of a format: rows that are checked in this order, and the source of each rule."""

    def __init__(self, sources: Mapping[str, str], *rows: Row) -> None:
        self.sources = sources
        self._rows = rows
        self._without_advice = [row for row in rows if not getattr(row, "advisory", False)]
        self.crossing = [row for row in rows if isinstance(row, CrossRule | CrossRules)]
        self.fixes: Fixes = {
            stage: tuple(row.fix for row in self.crossing if row.fix is not None and row.stage == stage)
            for stage in get_args(Stage)
        }
        """What the write frame calls at each stage."""
        used = {rule for row in rows for rule in row.rules if rule}
        if used != sources.keys():
            raise ValueError(f"rules without a row or without a source: {sorted(used ^ sources.keys())}")

    def check(self, checked: Checked) -> list[Violation]:
        """The violations in a body."""
        for row in self._rows if checked.advisories else self._without_advice:
            row.check(checked.body, None, checked)
        violations = checked.violations
        return violations if checked.advisories else [found for found in violations if not found.advisory]


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
