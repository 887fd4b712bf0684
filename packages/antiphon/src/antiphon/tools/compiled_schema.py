"""`CompiledSchema`: a JSON Schema that judges values, compiled by jsonschema-rs.

- **Drafts** 4, 6, 7, 2019-09 and 2020-12. `$schema` selects one. Without it the schema is 2020-12, or the newest older draft
  that it is valid in: many MCP servers write draft-7 tuples (`"items": [...]`) and no `$schema`.
- **Nothing is fetched.** A reference that leads out of the schema makes it invalid.
- **Patterns** run in linear time. Those with look-around or back-references need backtracking, which ends after
  `BACKTRACK_LIMIT` steps (about 2 ms); the value is rejected then, because it is unknown whether it matches.
- **A pattern the engine cannot read** (another dialect, or too large) is not checked, with a warning; the rest of the schema is.
- **Formats** are not checked: they are annotations, and the tool knows best what it can read.
"""

from __future__ import annotations

import copy
import functools
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec import Struct

if TYPE_CHECKING:
    from jsonschema_rs import FancyRegexOptions, ValidationError, Validator

BACKTRACK_LIMIT = 100_000
PATTERN_BYTES = 1_000_000
"""How large a compiled pattern may be."""
MAX_DEPTH = 500
"""How deep values may be nested that a schema with references judges; it follows them by recursion."""
MAX_UNREADABLE_PATTERNS = 20

# Where a pattern under one of these is left out, more could be rejected than by the schema.
_NOT_MONOTONE = frozenset(
    {"not", "if", "oneOf", "contains", "maxContains", "unevaluatedProperties", "unevaluatedItems", "patternProperties"}
)
_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})


class InvalidSchema(ValueError):
    """A schema that cannot be compiled. The message has the place and the reason."""


class SchemaError(Struct, frozen=True):
    """What a schema refuses first in a value: where, by which keyword, and the validator's words."""

    path: tuple[str | int, ...]
    keyword: str
    message: str
    is_undecided: bool = False
    """Whether a pattern took too many steps, so that it is unknown whether the value matches."""


class CompiledSchema:
    """Decides whether a value is valid, in time linear in the value. Raises `InvalidSchema` if it cannot be compiled.

    `draft` selects the draft of a part of a schema; a whole schema names it itself.
    """

    def __init__(self, schema: dict[str, Any], *, draft: type[Validator] | None = None) -> None:
        self.unreadable_patterns: list[str] = []
        self._validator = self._compile(schema, [draft] if draft is not None else _drafts(schema))
        self._follows_references = not _REFERENCES.isdisjoint(keys_of(schema))

    @property
    def draft(self) -> type[Validator]:
        return type(self._validator)

    def is_valid(self, value: Any) -> bool:
        if self._follows_references and _is_deep(value):
            return False
        try:
            return self._validator.is_valid(value)
        except ValueError:  # a lone surrogate in a name: no JSON text has one
            return False

    def first_error(self, value: Any) -> SchemaError | None:
        """The first thing that is wrong with a value, found without looking for others."""
        if self._follows_references and _is_deep(value):
            return SchemaError((), "", f"nested more than {MAX_DEPTH} levels deep")
        try:
            self._validator.validate(value)
        except ValueError as error:
            if not hasattr(error, "instance_path"):
                return SchemaError((), "", str(error))
            return _schema_error(error)  # type: ignore[arg-type]  # known by its attribute: nothing is imported
        return None

    def _compile(self, schema: dict[str, Any], drafts: list[type[Validator]]) -> Validator:
        from jsonschema_rs import ValidationError

        first: ValidationError | None = None
        for draft in drafts:
            try:
                return self._compile_as(draft, schema)
            except ValidationError as error:
                first = first or error
            except (ValueError, RecursionError) as error:
                raise InvalidSchema(str(error)) from error
        assert first is not None
        raise InvalidSchema(_invalid_words(first)) from first

    def _compile_as(self, draft: type[Validator], schema: dict[str, Any]) -> Validator:
        from jsonschema_rs import ValidationError, ValidationErrorKind

        original, self.unreadable_patterns = schema, []
        while True:
            try:
                return draft(
                    schema, validate_formats=False, retriever=_refuse_to_fetch, pattern_options=_pattern_options()
                )
            except ValidationError as error:
                if not isinstance(error.kind, ValidationErrorKind.Format) or error.kind.format != "regex":
                    raise
                self.unreadable_patterns.append(str(error.instance))
                if schema is original:
                    schema = copy.deepcopy(schema)
                if len(self.unreadable_patterns) > MAX_UNREADABLE_PATTERNS or not _remove_pattern(schema, error):
                    schema = {}


def _drafts(schema: dict[str, Any]) -> list[type[Validator]]:
    from jsonschema_rs import Draft4Validator, Draft7Validator, Draft202012Validator, validator_cls_for

    if isinstance(schema.get("$schema"), str):
        return [validator_cls_for(schema)]
    return [Draft202012Validator, Draft7Validator, Draft4Validator]


@functools.cache
def _pattern_options() -> FancyRegexOptions:
    from jsonschema_rs import FancyRegexOptions

    return FancyRegexOptions(backtrack_limit=BACKTRACK_LIMIT, size_limit=PATTERN_BYTES)


def _refuse_to_fetch(uri: str) -> NoReturn:
    raise ValueError(f"{uri} is not fetched")


def _remove_pattern(schema: dict[str, Any], error: ValidationError) -> bool:
    """Take the pattern an error is about out of a schema. False if the rest would refuse what the whole allows."""
    *steps, keyword = error.instance_path
    if keyword != "pattern" or not _NOT_MONOTONE.isdisjoint(keys_of(schema)):
        return False
    place: Any = schema
    for step in steps:
        place = place[step]
    del place["pattern"]
    return True


def keys_of(schema: Any) -> set[str]:
    """Every key at any level of a schema, names of properties included."""
    keys: set[str] = set()
    level = [schema]
    while level:
        value = level.pop()
        if isinstance(value, dict):
            keys.update(value)
            level.extend(value.values())
        elif isinstance(value, list):
            level.extend(value)
    return keys


def _is_deep(value: Any) -> bool:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def _schema_error(error: ValidationError) -> SchemaError:
    from jsonschema_rs import ValidationErrorKind

    keyword = next((step for step in reversed(error.schema_path) if isinstance(step, str)), "")
    is_undecided = isinstance(
        error.kind, ValidationErrorKind.BacktrackLimitExceeded | ValidationErrorKind.RegexEngineFailure
    )
    return SchemaError(tuple(error.instance_path), keyword, error.message, is_undecided)


def _invalid_words(error: ValidationError) -> str:
    from jsonschema_rs import ValidationErrorKind

    if isinstance(error.kind, ValidationErrorKind.Referencing):
        missing = error.message.partition(" is not present in a registry")[0]
        return f"{missing} is referred to and not in the schema; other documents are not fetched"
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.instance_path)
    return f"at ${path}: {error.message}"
