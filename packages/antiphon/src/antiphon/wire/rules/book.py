"""`RuleBook`: the rules of a format, and rules about several values.

A `CrossRule` finds what is wrong with several values; if a writer can keep it, its `fix` makes a body legal, and the write frame
calls that at its stage. A book has the rows of a format and the source of each rule; an id without a row, or a row without a
source, is refused when the book is made. What only some models or hosts refuse is `advice`, which is checked on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, get_args

from antiphon.wire.capabilities import Capabilities, capabilities_for
from antiphon.wire.capabilities.accepted_media import media_problems
from antiphon.wire.format import DEFAULT_OPTIONS, WriteOptions
from antiphon.wire.loss import Loss
from antiphon.wire.rules import Check, Checked, Path, Violation, expected, list_of, rules_in

if TYPE_CHECKING:
    from antiphon.wire.loss import Losses
    from antiphon.wire.request import ModelRequest
    from antiphon.wire.spec import FormatSpec

Finding: TypeAlias = "tuple[str | tuple[str | int, ...], str]"
"""The steps from a checked value to what is wrong in it (a name alone is one step, an empty one none), and what that is."""
Find: TypeAlias = Callable[[dict[str, Any], Checked], Iterable[Finding]]
Stage: TypeAlias = Literal["choice", "reasoning", "breakpoints", "end"]
"""When a body is fixed: with its messages, with tools and reasoning, with cache breakpoints, or when it is complete."""


class Writing(Protocol):
    """What a fix knows of the request that is written."""

    request: ModelRequest
    losses: Losses
    model: Capabilities


Fix: TypeAlias = Callable[[dict[str, Any], Any], None]
"""Makes a body legal that is being written (`Writing`), and reports what it changed."""
Fixes: TypeAlias = "Mapping[str, tuple[Fix, ...]]"


class CrossRule(Check, frozen=True):
    """A rule about several values of an object, or of the whole body. After its `fix`, `find` finds nothing."""

    rule: str
    find: Find
    stage: Stage = "end"
    fix: Fix | None = None

    def check(self, value: Any, at: Path, found: Checked) -> None:
        for steps, message in self.find(value, found):
            place = at
            for step in steps if isinstance(steps, tuple) else (steps,) if steps else ():
                place = (place, step)
            found.add(self.rule, place, message)


def drop_found(rule: str, find: Find, *, path: str = "native") -> CrossRule:
    """A rule about fields of the body that a writer keeps by dropping what `find` finds."""

    def fix(body: dict[str, Any], writing: Writing) -> None:
        for name, message in list(find(body, Checked(body, writing.model))):
            del body[str(name)]
            writing.losses.append(Loss(f"{path}.{name}", str(name), f"{message}; dropped ({rule})"))

    return CrossRule(rule, find, fix=fix)


def excludes(rule: str, name: str, other: str) -> CrossRule:
    """A field that cannot stand beside another."""

    def find(value: dict[str, Any], _: Checked) -> Iterator[Finding]:
        if value.get(name) is not None and value.get(other) is not None:
            yield name, f"{name} and {other} exclude each other"

    return CrossRule(rule, find)


def accepted_media(
    rule: str, spec: FormatSpec, *, with_types: bool = True, entries: Callable[[Any], Any] = list_of
) -> CrossRule:
    """The kinds of media that the model accepts; with their types, unless the rows of the blocks check those."""

    def find(body: dict[str, Any], found: Checked) -> Iterator[Finding]:
        key = spec.messages_key
        return media_problems(entries(body.get(key)), key, found.model, spec.media_blocks, with_types=with_types)

    return CrossRule(rule, find)


def find_undeclared(chosen: Iterable[Any], declared: Collection[str]) -> Iterator[str]:
    """What is wrong with a choice among tools that are not declared."""
    return (f'no tool "{name[:80]}" is declared' for name in chosen if name not in declared)


def find_repeated(names: Iterable[tuple[tuple[str | int, ...], Any]], message: str) -> Iterator[Finding]:
    """The places of names that occurred before."""
    seen: set[Any] = set()
    for steps, name in names:
        if name in seen:
            yield steps, message
        seen.add(name)


class RuleBook:
    """The rules of a format: rows that are checked in this order, advice, and the source of each rule.

    The first source is that of the rule for a body of another type. `target` gives what a format must know beside the model,
    `entries` the messages as its rules look at them.
    """

    def __init__(
        self,
        format_name: str,
        sources: Mapping[str, str],
        *rows: Check,
        advice: tuple[Check, ...] = (),
        has_dots: bool = False,
        target: Callable[[dict[str, Any], WriteOptions, Capabilities], Any] = lambda _body, _options, _model: None,
        entries: Callable[[dict[str, Any]], Any] = lambda _: None,
    ) -> None:
        self.sources = sources
        self._format, self._rows, self._advice = format_name, rows, advice
        self._has_dots, self._target, self._entries = has_dots, target, entries
        self.crossing = [row for row in rows if isinstance(row, CrossRule)]
        self.fixes: Fixes = {
            stage: tuple(row.fix for row in self.crossing if row.fix is not None and row.stage == stage)
            for stage in get_args(Stage)
        }
        """What the write frame calls at each stage."""
        used = set(rules_in((rows, advice)))
        if used != sources.keys():
            raise ValueError(f"rules without a row or without a source: {sorted(used ^ sources.keys())}")

    def check_request(
        self, body: Any, options: WriteOptions = DEFAULT_OPTIONS, *, advisories: bool = False
    ) -> list[Violation]:
        """The rules that a request body breaks; advisories follow the errors, on request."""
        if not isinstance(body, dict):
            return [Violation(next(iter(self.sources)), "", expected("an object", body))]
        name = options.model or body.get("model")
        model = capabilities_for(name if isinstance(name, str) else "", self._format, options.capabilities)
        found = Checked(body, model, self._has_dots, self._target(body, options, model), self._entries(body))
        for row in self._rows:
            row.check(body, None, found)
        if advisories:
            found.is_advice = True
            for row in self._advice:
                row.check(body, None, found)
        return found.violations
