"""Error messages for invalid arguments, written for the model that sent them.

`describe_errors` walks a JSON Schema beside a rejected value and reports for every problem where it is, what was expected,
what was given, and which name was probably meant. It only words them: each keyword is judged by the same validator that
rejected the value (`CompiledSchema`), so the two cannot disagree. For what it does not walk (such as `unevaluatedProperties`)
it uses that validator's message.

The work and the report are bounded for any value: there are limits for places, for problems and for the length of a line.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from antiphon.tools.compiled_schema import CompiledSchema, InvalidSchema

if TYPE_CHECKING:
    from jsonschema_rs import Validator

SHOWN_CHARACTERS = 80
LINE_CHARACTERS = 300
USAGE_CHARACTERS = 1_500
MAX_PROBLEMS = 12
MAX_COUNTED_PROBLEMS = 1_000
MAX_PLACES = 10_000
"""How many places in a value are looked at."""
MAX_WALK_DEPTH = 64
MAX_LISTED_NAMES = 30

UNDECIDED = "could not be checked against its pattern in a reasonable number of steps; send a shorter or simpler text"

Problem: TypeAlias = Callable[[], str]
"""A problem that was found; called, its words. Most of a flood of problems is only counted."""

_BOUNDS = {
    "minimum": "at least",
    "maximum": "at most",
    "exclusiveMinimum": "more than",
    "exclusiveMaximum": "less than",
    "multipleOf": "a multiple of",
}
_LENGTHS = {
    "minLength": ("at least", "characters"),
    "maxLength": ("at most", "characters"),
    "minItems": ("at least", "items"),
    "maxItems": ("at most", "items"),
    "minProperties": ("at least", "properties"),
    "maxProperties": ("at most", "properties"),
}
_LAX_TYPES: dict[str, Any] = {"integer": int, "number": float, "boolean": bool, "null": None}
# Keywords that depend on others, and mean nothing or something else alone.
_COMPANIONS = {
    "minimum": ("exclusiveMinimum",),
    "maximum": ("exclusiveMaximum",),
    "contains": ("minContains", "maxContains"),
    "if": ("then", "else"),
}
# Judged in place, each alone; those after the second line with the validator's message.
_JUDGED = (
    *_BOUNDS,
    *_LENGTHS,
    *("pattern", "uniqueItems"),
    *("patternProperties", "propertyNames", "dependentRequired", "dependentSchemas", "dependencies"),
    *("contains", "not", "if"),
)


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


def near_misses(name: str, names: Iterable[str], limit: int = 3) -> list[str]:
    """The names that were probably meant: the same but for case and separators, or close to it, or the end of it."""
    # A name is short; what is not, is not worth comparing.
    wanted = _letters(name[:200])
    by_letters: dict[str, str] = {}
    for known in itertools.islice(names, MAX_COUNTED_PROBLEMS):
        by_letters.setdefault(_letters(known), known)
    if wanted in by_letters:
        return [by_letters[wanted]]
    close = difflib.get_close_matches(wanted, by_letters, limit, 0.6)
    contained = [letters for letters in by_letters if len(letters) > 2 and (letters in wanted or wanted in letters)]
    return [by_letters[letters] for letters in dict.fromkeys([*close, *(contained if len(wanted) > 2 else ())])][:limit]


def describe_errors(
    schema: dict[str, Any], value: Any, *, draft: type[Validator] | None = None, lax: bool = False
) -> list[str]:
    """What in `value` the schema does not allow, a line for each, and a last line that counts the rest."""
    walker = _SchemaWalker(schema, draft or CompiledSchema({}).draft, lax=lax)
    problems = list(itertools.islice(walker.problems(schema, value, "", 0), MAX_COUNTED_PROBLEMS + 1))
    lines = [cut(problem(), LINE_CHARACTERS) for problem in problems[:MAX_PROBLEMS]]
    if len(problems) > MAX_PROBLEMS:
        is_counted = len(problems) <= MAX_COUNTED_PROBLEMS and walker.places < MAX_PLACES
        least = "" if is_counted else "at least "
        lines.append(f"… and {least}{len(problems) - MAX_PROBLEMS} more problems of this kind")
    return lines


def allows(schema: Any, value: Any, *, root: dict[str, Any]) -> bool:
    """Whether no problem is found in a value. The schema is a part of `root`, which is a schema of ours."""
    walker = _SchemaWalker(root, CompiledSchema({}).draft, lax=False)
    return next(walker.problems(schema, value, "", 0), None) is None


class _SchemaWalker:
    """A schema beside a value."""

    def __init__(self, root: dict[str, Any], draft: type[Validator], *, lax: bool) -> None:
        self.root = root
        self.draft = draft
        self.lax = lax
        self.places = 0
        self._has_tuples = draft.__name__ == "Draft202012Validator"
        self._compiled: dict[tuple[int, str], CompiledSchema | None] = {}

    def problems(self, schema: Any, value: Any, path: str, depth: int) -> Iterator[Problem]:
        self.places += 1
        if self.places > MAX_PLACES or depth > MAX_WALK_DEPTH:
            return
        if isinstance(schema, dict) and depth and ("$id" in schema or "id" in schema):
            return  # its references may lead elsewhere
        schema = resolve_reference(schema, self.root)
        if schema is False:
            yield lambda: f"{path or 'the arguments'}: not allowed here"
            return
        if not isinstance(schema, dict):
            return
        if self._has_wrong_type(schema, value) or any(self._fails(schema, word, value) for word in ("enum", "const")):
            yield lambda: self._expected(schema, value, path)
            return
        for branch in schema.get("allOf", ()):
            yield from self.problems(branch, value, path, depth + 1)
        yield from self._alternatives(schema, value, path, depth)
        if isinstance(value, dict):
            yield from self._object(schema, value, path, depth)
        elif isinstance(value, list):
            yield from self._array(schema, value, path, depth)
        for keyword in _JUDGED:
            if keyword in schema and self._fails(schema, keyword, value):
                yield lambda keyword=keyword: self._broken(schema, keyword, value, path)  # type: ignore[misc]

    def _fails(self, schema: dict[str, Any], keyword: str, value: Any) -> bool:
        compiled = self._alone(schema, keyword) if keyword in schema else None
        return compiled is not None and not compiled.is_valid(value)

    def _alone(self, schema: dict[str, Any], keyword: str) -> CompiledSchema | None:
        """One keyword of a schema as a schema, or None if it cannot be judged alone."""
        key = (id(schema), keyword)
        if key not in self._compiled:
            words = (keyword, *_COMPANIONS.get(keyword, ()))
            alone = {word: schema[word] for word in words if word in schema}
            if isinstance(schema[keyword], dict | list) and keyword not in ("enum", "const", "type"):
                alone |= {word: self.root[word] for word in ("$defs", "definitions") if word in self.root}
            try:
                compiled = CompiledSchema(alone, draft=self.draft)
                self._compiled[key] = None if compiled.unreadable_patterns else compiled
            except InvalidSchema:
                self._compiled[key] = None
        return self._compiled[key]

    def _broken(self, schema: dict[str, Any], keyword: str, value: Any, path: str) -> str:
        place, bound = path or "the arguments", schema[keyword]
        compiled = self._alone(schema, keyword)
        error = compiled.first_error(value) if compiled is not None else None
        if error is not None and error.is_undecided:
            return f"{place}: {UNDECIDED}"
        if keyword in _BOUNDS:
            companion = _COMPANIONS.get(keyword, ("",))[0]
            words = _BOUNDS[companion if schema.get(companion) is True else keyword]  # as draft 4 writes it
            return f"{place}: must be {words} {bound}, got {preview(value)}"
        if keyword in _LENGTHS:
            words, unit = _LENGTHS[keyword]
            return f"{place}: must have {words} {bound} {unit}, and has {len(value)}"
        if keyword == "pattern":
            return f"{place}: must match the pattern {cut(bound)}, got {preview(value)}"
        if keyword == "uniqueItems":
            return f"{place}: the items must differ from each other"
        if keyword == "dependentRequired":
            given, needed = next(
                (name, need) for name in bound if name in value for need in bound[name] if need not in value
            )
            return f"{join_path(path, (cut(needed),))}: missing, and it is required with {cut(given)!r}"
        if error is None:
            return f"{place}: does not fit {keyword!r}"
        return f"{join_path(path, error.path) or 'the arguments'}: {cut(error.message, 2 * SHOWN_CHARACTERS)}"

    def _expected(self, schema: dict[str, Any], value: Any, path: str) -> str:
        return f"{path or 'the arguments'}: expected {describe_schema(schema, self.root)}, got {preview(value)}"

    def _has_wrong_type(self, schema: dict[str, Any], value: Any) -> bool:
        if not self._fails(schema, "type", value):
            return False
        kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        return not (self.lax and isinstance(value, str) and any(_parses_as(value, kind) for kind in kinds))

    def _alternatives(self, schema: dict[str, Any], value: Any, path: str, depth: int) -> Iterator[Problem]:
        branches = schema.get("anyOf") or schema.get("oneOf")
        if not branches:
            return
        attempts: list[list[Problem]] = []
        for branch in branches:
            attempt = list(itertools.islice(self.problems(branch, value, path, depth + 1), MAX_COUNTED_PROBLEMS))
            if not attempt:
                return
            attempts.append(attempt)
        # If one branch is of the right kind, its problems are the interesting ones.
        fitting = [
            attempt
            for branch, attempt in zip(branches, attempts, strict=True)
            if self._is_of_kind(resolve_reference(branch, self.root), value)
        ]
        if len(fitting) == 1:
            yield from fitting[0]
        else:
            yield lambda: self._expected(schema, value, path)

    def _is_of_kind(self, schema: Any, value: Any) -> bool:
        return schema is not False and not (isinstance(schema, dict) and self._has_wrong_type(schema, value))

    def _object(self, schema: dict[str, Any], value: dict[str, Any], path: str, depth: int) -> Iterator[Problem]:
        properties = schema.get("properties", {})
        missing = [name for name in schema.get("required", ()) if name not in value]
        rest = schema.get("additionalProperties", True)
        for name, item in value.items():
            if name in properties:
                yield from self.problems(properties[name], item, join_path(path, (cut(name),)), depth + 1)
            elif rest is True or self._matches_a_pattern(schema, name):
                continue
            elif rest is False:
                self.places += 1
                yield lambda name=name: self._unexpected_argument(
                    join_path(path, (cut(name),)), name, properties, missing
                )  # type: ignore[misc]
            else:
                yield from self.problems(rest, item, join_path(path, (cut(name),)), depth + 1)
            if self.places > MAX_PLACES:
                break
        for name in missing:
            yield lambda name=name: (  # type: ignore[misc]
                f"{join_path(path, (cut(name),))}: missing, and it is required "
                f"({describe_schema(properties.get(name, {}), self.root)})"
            )

    def _matches_a_pattern(self, schema: dict[str, Any], name: str) -> bool:
        patterns = schema.get("patternProperties")
        if not patterns:
            return False
        key = (id(schema), "a name")
        if key not in self._compiled:
            try:
                compiled = CompiledSchema({"patternProperties": dict.fromkeys(patterns, False)}, draft=self.draft)
                self._compiled[key] = None if compiled.unreadable_patterns else compiled
            except InvalidSchema:
                self._compiled[key] = None
        names = self._compiled[key]
        return names is None or not names.is_valid({name: None})

    @staticmethod
    def _unexpected_argument(place: str, name: str, properties: dict[str, Any], missing: list[str]) -> str:
        meant = near_misses(name, missing, 1) or near_misses(name, properties, 1)
        if meant:
            return f"{place}: there is no such argument; did you mean {meant[0]!r}?"
        known = ", ".join(cut(name) for name in itertools.islice(properties, MAX_LISTED_NAMES))
        return f"{place}: there is no such argument; there {f'are {known}' if known else 'are none'}"

    def _array(self, schema: dict[str, Any], value: list[Any], path: str, depth: int) -> Iterator[Problem]:
        first, rest = schema.get("prefixItems", []) if self._has_tuples else [], schema.get("items", True)
        if isinstance(rest, list):  # a tuple of an older draft
            first, rest = rest, schema.get("additionalItems", True)
        for place, item in enumerate(value):
            if place >= len(first) and rest is True:
                break
            if self.places > MAX_PLACES:
                break
            rule = first[place] if place < len(first) else rest
            yield from self.problems(rule, item, f"{path}[{place}]", depth + 1)


def resolve_reference(schema: Any, root: dict[str, Any]) -> Any:
    """The schema that a reference names. An unknown or circular reference allows everything."""
    for _ in range(16):
        if not isinstance(schema, dict) or "$ref" not in schema:
            return schema
        words, _, name = str(schema["$ref"]).removeprefix("#/").partition("/")
        definitions = root.get(words) if words in ("$defs", "definitions") else None
        schema = definitions.get(name, True) if isinstance(definitions, dict) else True
    return True


def describe_schema(schema: Any, root: dict[str, Any], depth: int = 0) -> str:
    """What a schema wants, in a few words."""
    schema = resolve_reference(schema, root)
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


def _parses_as(text: str, kind: str) -> bool:
    if kind not in _LAX_TYPES:
        return False
    try:
        msgspec.convert(text, _LAX_TYPES[kind], strict=False)
    except msgspec.ValidationError:
        return False
    return True


def validator_message(words: str, value: Any) -> str:
    """The message of msgspec about a value, with the path first, as everywhere here, and the value."""
    message, _, place = words.partition(" - at `$")
    path = place.rstrip("`").removeprefix(".")
    for step in re.findall(r"[^.\[\]]+", path):
        try:
            value = value[int(step) if isinstance(value, list) else step]
        except (LookupError, ValueError, TypeError):
            return f"{path}: {message}"
    return f"{path}: {message}, got {preview(value)}" if path else message


def join_path(path: str, more: Iterable[Any]) -> str:
    for step in more:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            path += f".{step}" if path else str(step)
    return path


def _letters(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
