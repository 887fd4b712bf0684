"""`CompiledSchema`: a JSON Schema that judges values, compiled by jsonschema-rs, and says what is wrong with one.

- **Drafts** 4, 6, 7, 2019-09 and 2020-12. `$schema` selects one. Without it the schema is 2020-12, or the newest older draft
  that it is valid in: many MCP servers write draft-7 tuples (`"items": [...]`) and no `$schema`.
- **Nothing is fetched.** A reference that leads out of the schema makes it invalid.
- **Patterns** run in linear time. Those with look-around or back-references need backtracking, which ends after
  `BACKTRACK_LIMIT` steps (about 2 ms); the value is rejected then, because it is unknown whether it matches.
- **A pattern the engine cannot read** (another dialect, or too large) is not checked, with a warning; the rest of the schema is.
- **Formats** are not checked: they are annotations, and the tool knows best what it can read.

The words are for the model that sent the value: where, what was expected, what was given, which name was probably meant. Each
line is one error of the validator, so words and judgement cannot disagree. The report is bounded for any value.
"""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, cast

import msgspec

from antiphon.text import near_misses

if TYPE_CHECKING:
    from jsonschema_rs import FancyRegexOptions, ValidationError, Validator

BACKTRACK_LIMIT = 100_000
PATTERN_BYTES = 1_000_000
"""How large a compiled pattern may be."""
MAX_DEPTH = 500
"""How deep values may be nested that a schema with references judges; it follows them by recursion."""
MAX_UNREADABLE_PATTERNS = 20
MAX_PLACES = 2_000
"""In how large a value all problems are looked for; of a larger one the first is reported. Each error has a copy of its place."""
MAX_PROBLEMS = 12
SHOWN_CHARACTERS = 80
LINE_CHARACTERS = 300
USAGE_CHARACTERS = 1_500
MAX_LISTED_NAMES = 30

UNDECIDED = "could not be checked against its pattern in a reasonable number of steps; send a shorter or simpler text"
_SENTENCES = {
    "minimum": "must be at least {limit}, got {value}",
    "maximum": "must be at most {limit}, got {value}",
    "exclusiveMinimum": "must be more than {limit}, got {value}",
    "exclusiveMaximum": "must be less than {limit}, got {value}",
    "multipleOf": "must be a multiple of {limit}, got {value}",
    "pattern": "must match the pattern {limit}, got {value}",
    "minLength": "must have at least {limit} characters, and has {size}",
    "maxLength": "must have at most {limit} characters, and has {size}",
    "minItems": "must have at least {limit} items, and has {size}",
    "maxItems": "must have at most {limit} items, and has {size}",
    "minProperties": "must have at least {limit} properties, and has {size}",
    "maxProperties": "must have at most {limit} properties, and has {size}",
    "uniqueItems": "the items must differ from each other",
    "type": "expected {expected}, got {value}",
    "enum": "expected {expected}, got {value}",
    "const": "expected {expected}, got {value}",
    "anyOf": "expected {expected}, got {value}",
    "oneOf": "expected {expected}, got {value}",
}
_ALTERNATIVES = ("anyOf", "oneOf")
_OTHER_KIND = frozenset({"type", "falseSchema"})
"""The errors that say a branch of an `anyOf` is not the one that was meant."""
_LAX_TYPES: dict[str, Any] = {"integer": int, "number": float, "boolean": bool, "null": None}

# Where a pattern under one of these is left out, more could be rejected than by the schema.
_NOT_MONOTONE = frozenset(
    {"not", "if", "oneOf", "contains", "maxContains", "unevaluatedProperties", "unevaluatedItems", "patternProperties"}
)
_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})

_Problem: TypeAlias = "tuple[ValidationError, str]"
"""An error of the validator; of one about several unexpected names, the name."""


class InvalidSchema(ValueError):
    """A schema that cannot be compiled. The message has the place and the reason."""


class CompiledSchema:
    """Decides whether a value is valid, in time linear in the value. Raises `InvalidSchema` if it cannot be compiled.

    `draft` selects the draft of a part of a schema; a whole schema names it itself.
    """

    def __init__(self, schema: dict[str, Any], *, draft: type[Validator] | None = None) -> None:
        self.schema = schema
        self.unreadable_patterns: list[str] = []
        self._validator = self._compile([draft] if draft is not None else _drafts(schema))
        self._follows_references = not _REFERENCES.isdisjoint(keys_of(schema))

    def is_valid(self, value: Any) -> bool:
        if self._follows_references and _is_deep(value):
            return False
        try:
            return self._validator.is_valid(value)
        except ValueError:  # a lone surrogate in a name: no JSON text has one
            return False

    def problems(self, value: Any, *, lax: bool = False) -> list[str]:
        """What the schema does not allow in a value, a line for each; a last line counts those that are not shown.

        With `lax`, texts that can be read as the number that was expected are no problem.
        """
        if self._follows_references and _is_deep(value):
            return [f"the arguments: nested more than {MAX_DEPTH} levels deep"]
        try:
            found = list(_expand(self._errors(value), lax))
        except ValueError as error:
            return [f"the arguments: {error}"]
        lines = list(dict.fromkeys(self._line(*problem) for problem in found[:MAX_PROBLEMS]))
        if found and _is_large(value):
            lines.append("… and perhaps more: of arguments this large only the first problem is named")
        elif len(found) > MAX_PROBLEMS:
            lines.append(f"… and {len(found) - MAX_PROBLEMS} more problems of this kind")
        return lines

    def _errors(self, value: Any) -> list[ValidationError]:
        from jsonschema_rs import ValidationError

        if not _is_large(value):
            return self._validator.iter_errors(value)  # type: ignore[return-value]
        try:
            self._validator.validate(value)
        except ValidationError as error:
            return [error]
        return []

    def _line(self, error: ValidationError, name: str) -> str:
        place = join_path("", map(_cut_name, error.instance_path))
        kind, keyword = error.kind, error.schema_path[-1] if error.schema_path else ""
        schema = self._schema_at(error.schema_path[:-1])
        if name:
            words = _unexpected_argument(name, error, schema)
            place = join_path(place, (cut(name),))
        elif kind.name == "required":
            words = self._missing(error, keyword, schema)
            place = join_path(place, (cut(kind.value),))
        elif kind.name == "falseSchema":
            words = "not allowed here"
        elif "error" in kind.as_dict():
            words = UNDECIDED
        elif (sentence := _SENTENCES.get(kind.name)) and schema and not _fits_several(error):
            words = sentence.format(
                limit=cut(str(kind.value)),
                value=preview(error.instance),
                size=len(error.instance) if isinstance(error.instance, str | list | dict) else 0,
                expected=describe_schema(schema, self.schema),
            )
        else:
            words = cut(error.message, 2 * SHOWN_CHARACTERS)
        return cut(f"{place or 'the arguments'}: {words}", LINE_CHARACTERS)

    def _missing(self, error: ValidationError, keyword: object, schema: dict[str, Any]) -> str:
        needed, given = error.kind.value, cast("dict[str, Any]", error.instance)
        rules = schema.get(str(keyword))
        if isinstance(rules, dict):  # dependentRequired, or dependencies of older drafts
            with_name = next((name for name in rules if name in given and needed in (rules[name] or ())), "")
            return f"missing, and it is required with {cut(with_name)!r}"
        properties = schema.get("properties", {})
        return f"missing, and it is required ({describe_schema(properties.get(needed, {}), self.schema)})"

    def _schema_at(self, path: Iterable[str | int]) -> dict[str, Any]:
        """The part of the schema at a path; empty if the path leads elsewhere, as into a schema with an id of its own."""
        place: Any = self.schema
        for step in path:
            try:
                place = place[step]
            except (LookupError, TypeError):
                return {}
        return place if isinstance(place, dict) else {}

    def _compile(self, drafts: list[type[Validator]]) -> Validator:
        from jsonschema_rs import ValidationError

        first: ValidationError | None = None
        for draft in drafts:
            try:
                return self._compile_as(draft, self.schema)
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


def _expand(errors: Iterable[ValidationError], lax: bool) -> Iterator[_Problem]:
    """Each problem by itself: one for every unexpected name, and those of the branch that was probably meant."""
    for error in errors:
        kind = error.kind
        if kind.name == "additionalProperties":
            for name in kind.value:
                yield error, name
        elif kind.name in _ALTERNATIVES and not _fits_several(error):
            branches = [list(_expand(branch, lax)) for branch in kind.value]
            if all(branches):
                depth = len(error.instance_path)
                meant = [
                    branch
                    for branch in branches
                    if not any(one.kind.name in _OTHER_KIND and len(one.instance_path) == depth for one, _ in branch)
                ]
                yield from meant[0] if len(meant) == 1 else [(error, "")]
        elif not (lax and kind.name == "type" and _is_read_as(error.instance, kind.value)):
            yield error, ""


def _fits_several(error: ValidationError) -> bool:
    """Whether a `oneOf` refused a value because more than one branch takes it."""
    return error.kind.name in _ALTERNATIVES and not all(error.kind.value)


def _is_read_as(value: Any, kinds: Iterable[str]) -> bool:
    """Whether a lax tool reads a text as one of these kinds."""
    for kind in kinds if isinstance(value, str) else ():
        try:
            msgspec.convert(value, _LAX_TYPES[kind], strict=False)
        except (KeyError, msgspec.ValidationError):
            continue
        return True
    return False


def _unexpected_argument(name: str, error: ValidationError, schema: dict[str, Any]) -> str:
    properties = schema.get("properties", {})
    given = cast("dict[str, Any]", error.instance)
    missing = [needed for needed in schema.get("required", ()) if needed not in given]
    meant = near_misses(name, missing, 1) or near_misses(name, properties, 1)
    if meant:
        return f"there is no such argument; did you mean {meant[0]!r}?"
    known = ", ".join(cut(name) for name in itertools.islice(properties, MAX_LISTED_NAMES))
    return f"there is no such argument; there {f'are {known}' if known else 'are none'}"


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


def _invalid_words(error: ValidationError) -> str:
    if error.kind.name == "$ref":
        missing = error.message.partition(" is not present in a registry")[0]
        return f"{missing} is referred to and not in the schema; other documents are not fetched"
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.instance_path)
    return f"at ${path}: {error.message}"


def keys_of(schema: Any) -> set[str]:
    """Every key at any level of a schema, names of properties included."""
    keys: set[str] = set()
    for level in _levels(schema):
        for value in level:
            if isinstance(value, dict):
                keys.update(value)
    return keys


def _levels(value: Any) -> Iterator[list[Any]]:
    """The containers in a value, level by level."""
    level = [value]
    while level := [item for item in level if isinstance(item, dict | list)]:
        yield level
        level = [inner for outer in level for inner in (outer.values() if isinstance(outer, dict) else outer)]


def _is_deep(value: Any) -> bool:
    return next(itertools.islice(_levels(value), MAX_DEPTH, None), None) is not None


def _is_large(value: Any) -> bool:
    places = 0
    for level in _levels(value):
        places += sum(map(len, level))
        if places > MAX_PLACES:
            return True
    return False


def usage(tool_name: str, schema: dict[str, Any]) -> str:
    """How a tool is called, in one line: `weather(city: string, days?: integer)`."""
    required = schema.get("required", ())
    properties = schema.get("properties", {})
    written = [
        f"{cut(name)}{'' if name in required else '?'}: {describe_schema(value, schema)}"
        for name, value in itertools.islice(properties.items(), MAX_LISTED_NAMES)
    ]
    if schema.get("additionalProperties") not in (False, None) or len(properties) > MAX_LISTED_NAMES:
        written.append("…")
    return cut(f"{tool_name}({', '.join(written)})", USAGE_CHARACTERS)


def describe_schema(schema: Any, root: dict[str, Any], depth: int = 0) -> str:
    """What a schema wants, in a few words."""
    schema = _resolve_reference(schema, root)
    if not isinstance(schema, dict) or depth > 3:
        return "anything"
    if "const" in schema:
        return cut(_json(schema["const"]))
    if "enum" in schema:
        values = [cut(_json(value)) for value in schema["enum"][:20]]
        return cut("one of " + ", ".join(values) + (", …" if len(schema["enum"]) > 20 else ""), LINE_CHARACTERS)
    branches = schema.get("anyOf") or schema.get("oneOf")
    if branches:
        return " or ".join(dict.fromkeys(describe_schema(branch, root, depth + 1) for branch in branches[:8]))
    kinds = schema.get("type", "anything")
    kind = " or ".join(kinds) if isinstance(kinds, list) else str(kinds)
    if kind == "array" and isinstance(schema.get("items"), dict) and schema["items"]:
        return f"array of {describe_schema(schema['items'], root, depth + 1)}"
    if kind == "object" and isinstance(schema.get("properties"), dict) and schema["properties"]:
        return f"object with {', '.join(cut(name) for name in itertools.islice(schema['properties'], 12))}"
    words = schema.get("format")
    return f"{kind} ({words})" if isinstance(words, str) else kind


def _resolve_reference(schema: Any, root: dict[str, Any]) -> Any:
    """The schema that a reference names. An unknown or circular reference allows everything."""
    for _ in range(16):
        if not isinstance(schema, dict) or "$ref" not in schema:
            return schema
        words, _, name = str(schema["$ref"]).removeprefix("#/").partition("/")
        definitions = root.get(words) if words in ("$defs", "definitions") else None
        schema = definitions.get(name, True) if isinstance(definitions, dict) else True
    return True


def preview(value: Any) -> str:
    """A value as the model wrote it, shortened, with its kind where that is not plain to see."""
    if isinstance(value, str):
        return f"the string {preview_text(value)}"
    if isinstance(value, dict | list):
        kind = "an object" if isinstance(value, dict) else "an array"
        return f"{kind} of {len(value)}" if len(value) > 8 else f"{kind} {cut(_json(value))}"
    return cut(_json(value))


def preview_text(text: str) -> str:
    """A text in quotes, shortened."""
    return cut(_json(text[: SHOWN_CHARACTERS + 1]))


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        return f"a {type(value).__name__}"


def cut(text: str, length: int = SHOWN_CHARACTERS) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _cut_name(step: str | int) -> str | int:
    return cut(step) if isinstance(step, str) else step


def join_path(path: str, more: Iterable[str | int]) -> str:
    for step in more:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            path += f".{step}" if path else step
    return path
