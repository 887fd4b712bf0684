"""Rules of provider APIs: what a body may be, how that is checked, and which part of the writer keeps it.

A format has each fact once. `limits.py` has the limits as data (names, patterns, lengths, counts), which the writer and the
checks use; what differs by model is in `capabilities.json`, and the range of a number in its row of the parameter table.
`rules` has a `RuleBook` with one `Rule` per rule. A `Violation` is a broken rule, found before the provider finds it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from antiphon.wire.capabilities import Capabilities


class Violation(Struct, frozen=True):
    """One rule that a request body breaks: its id in the rule book, the path in the body, and the provider's wording.

    `advisory` marks what only some models or hosts refuse; `check_request` reports those on demand.
    """

    rule: str
    path: str
    message: str
    advisory: bool = False

    def __str__(self) -> str:
        kind = "advisory" if self.advisory else "error"
        return f"{self.path or '(body)'}: {self.rule} {kind}: {self.message}"


def advisory(rule: str, path: str, message: str) -> Violation:
    """A violation that only some models or hosts refuse."""
    return Violation(rule, path, message, advisory=True)


class RuleContext(Struct):
    """A body under check: what its model accepts, and the violations so far. `advisories`: whether to report those too."""

    body: dict[str, Any]
    model: Capabilities
    advisories: bool = False
    host_fields: frozenset[str] = frozenset()
    """Names that the target accepts beside those of the API."""
    violations: list[Violation] = []

    def error(self, rule: str, path: str, message: str) -> None:
        self.violations.append(Violation(rule, path, message))

    def advise(self, rule: str, path: str, message: str) -> None:
        self.violations.append(advisory(rule, path, message))


Check: TypeAlias = Callable[[Any], None]
"""Adds to the violations of a `RuleContext`. One pass over a body may find the violations of several rules."""


class Rule(Struct, frozen=True):
    """One rule: its id, the check that finds its violations, what in the writer keeps it, and where it is known from.

    Without a `fix`, the rule is about the order of calls and results, which `antiphon.repair` restores, or about something that
    the writer has no field for; a body in the format's own words may still break it.
    """

    id: str
    check: Check
    fix: Callable[..., Any] | None
    source: str


class RuleBook:
    """The rules of a format, in the order in which they are checked."""

    def __init__(self, *rules: Rule) -> None:
        self.rules = {rule.id: rule for rule in rules}
        self._checks = tuple(dict.fromkeys(rule.check for rule in rules))

    def check(self, context: RuleContext) -> list[Violation]:
        """The violations in a body; each check runs once."""
        for check in self._checks:
            check(context)
        violations = context.violations
        return violations if context.advisories else [found for found in violations if not found.advisory]


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
