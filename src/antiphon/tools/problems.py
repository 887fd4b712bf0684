"""What is wrong with a value, in words for the model that wrote it.

`find_problems` walks a JSON Schema beside the value and says of every problem where it is, what was expected, what was given,
and which name was probably meant. It explains and does not judge: formats and rarer keywords are for a validator. So it may
find nothing in a value that is wrong, and must find nothing in one that is right.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from antiphon.tools.schema import REFERENCES

SHOWN_CHARACTERS = 80

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}
_BOUNDS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "minimum": ("at least", lambda value, bound: value >= bound),
    "maximum": ("at most", lambda value, bound: value <= bound),
    "exclusiveMinimum": ("more than", lambda value, bound: value > bound),
    "exclusiveMaximum": ("less than", lambda value, bound: value < bound),
    "multipleOf": ("a multiple of", lambda value, bound: value % bound == 0),
}
_LENGTHS = {
    "string": ("minLength", "maxLength", "characters"),
    "array": ("minItems", "maxItems", "items"),
    "object": ("minProperties", "maxProperties", "properties"),
}
# What is explained here; a validator's words about these would say it twice.
WALKED_KEYWORDS = frozenset(
    {
        "type",
        "enum",
        "const",
        "required",
        "additionalProperties",
        "properties",
        "items",
        "prefixItems",
        "anyOf",
        "oneOf",
    }
    | {"allOf", "$ref", "pattern", "uniqueItems"}
    | set(_BOUNDS)
    | {name for minimum, maximum, _ in _LENGTHS.values() for name in (minimum, maximum)}
)


def usage(tool_name: str, schema: dict[str, Any]) -> str:
    """How a tool is called, in one line: `weather(city: string, days?: integer)`."""
    required = schema.get("required", ())
    properties = schema.get("properties", {})
    written = [
        f"{name}{'' if name in required else '?'}: {expected(value, schema)}" for name, value in properties.items()
    ]
    if schema.get("additionalProperties") not in (False, None):
        written.append("…")
    return f"{tool_name}({', '.join(written)})"


def near_misses(name: str, names: Iterable[str], limit: int = 3) -> list[str]:
    """The names that were probably meant: the same but for case and separators, or close to it, or the end of it."""
    # A name is short; what is not, is not worth comparing.
    wanted = _letters(name[:200])
    by_letters: dict[str, str] = {}
    for known in names:
        by_letters.setdefault(_letters(known), known)
    if wanted in by_letters:
        return [by_letters[wanted]]
    close = difflib.get_close_matches(wanted, by_letters, limit, 0.6)
    contained = [letters for letters in by_letters if len(letters) > 2 and (letters in wanted or wanted in letters)]
    return [by_letters[letters] for letters in dict.fromkeys([*close, *(contained if len(wanted) > 2 else ())])][:limit]


def find_problems(
    schema: dict[str, Any], value: Any, *, root: dict[str, Any] | None = None, lax: bool = False
) -> list[str]:
    """Everything in `value` that `schema` does not allow, each as a line. `root` is the schema it is a part of."""
    return list(_Walk(root or schema, lax=lax).problems(schema, value, ""))


class _Walk:
    """A schema beside a value."""

    def __init__(self, root: dict[str, Any], *, lax: bool) -> None:
        self.root = root
        self.lax = lax

    def problems(self, schema: Any, value: Any, path: str) -> Iterator[str]:
        schema = resolved(schema, self.root)
        if schema is False:
            yield f"{path or 'the arguments'}: not allowed here"
            return
        if not isinstance(schema, dict):
            return
        if not self._has_type(schema, value) or not _is_allowed(schema, value):
            yield self._expected(schema, value, path)
            return
        for branch in schema.get("allOf", ()):
            yield from self.problems(branch, value, path)
        yield from self._alternatives(schema, value, path)
        if isinstance(value, dict):
            yield from self._object(schema, value, path)
        elif isinstance(value, list):
            yield from self._array(schema, value, path)
        yield from self._bounds(schema, value, path)

    def _expected(self, schema: dict[str, Any], value: Any, path: str) -> str:
        return f"{path or 'the arguments'}: expected {expected(schema, self.root)}, got {shown(value)}"

    def _has_type(self, schema: dict[str, Any], value: Any) -> bool:
        kinds = schema.get("type")
        if kinds is None:
            return True
        return any(self._is_a(value, kind) for kind in (kinds if isinstance(kinds, list) else [kinds]))

    def _is_a(self, value: Any, kind: str) -> bool:
        if isinstance(value, bool):
            return kind == "boolean"
        if self.lax and isinstance(value, str) and kind in ("integer", "number", "boolean", "null"):
            return _reads_as(value, kind)
        return isinstance(value, _TYPES.get(kind, (object,)))

    def _alternatives(self, schema: dict[str, Any], value: Any, path: str) -> Iterator[str]:
        branches = schema.get("anyOf") or schema.get("oneOf")
        if not branches:
            return
        attempts = [list(self.problems(branch, value, path)) for branch in branches]
        if [] in attempts:
            return
        # If one branch is of the right kind, its problems are the interesting ones.
        fitting = [
            attempt
            for branch, attempt in zip(branches, attempts, strict=True)
            if isinstance(value, dict | list) and self._has_type(resolved(branch, self.root), value)
        ]
        if len(fitting) == 1:
            yield from fitting[0]
        else:
            yield self._expected(schema, value, path)

    def _object(self, schema: dict[str, Any], value: dict[str, Any], path: str) -> Iterator[str]:
        properties = schema.get("properties", {})
        missing = [name for name in schema.get("required", ()) if name not in value]
        rest = schema.get("additionalProperties", True)
        for name, item in value.items():
            place = joined(path, (name,))
            if name in properties:
                yield from self.problems(properties[name], item, place)
            elif any(re.search(pattern, name) for pattern in schema.get("patternProperties", ())):
                continue
            elif rest is False:
                yield self._superfluous(place, name, properties, missing)
            else:
                yield from self.problems(rest, item, place)
        for name in missing:
            described = expected(properties.get(name, {}), self.root)
            yield f"{joined(path, (name,))}: missing, and it is required ({described})"

    @staticmethod
    def _superfluous(place: str, name: str, properties: dict[str, Any], missing: list[str]) -> str:
        meant = near_misses(name, missing, 1) or near_misses(name, properties, 1)
        if meant:
            return f"{place}: there is no such argument; did you mean {meant[0]!r}?"
        known = ", ".join(properties)
        return f"{place}: there is no such argument; there {f'are {known}' if known else 'are none'}"

    def _array(self, schema: dict[str, Any], value: list[Any], path: str) -> Iterator[str]:
        first = schema.get("prefixItems", [])
        for place, item in enumerate(value):
            rule = first[place] if place < len(first) else schema.get("items", True)
            if rule is not False:
                yield from self.problems(rule, item, f"{path}[{place}]")
        if schema.get("uniqueItems") and any(item in value[:place] for place, item in enumerate(value[:1000])):
            yield f"{path or 'the arguments'}: the items must differ from each other"

    @staticmethod
    def _bounds(schema: dict[str, Any], value: Any, path: str) -> Iterator[str]:
        place = path or "the arguments"
        if isinstance(value, int | float) and not isinstance(value, bool):
            for keyword, (words, holds) in _BOUNDS.items():
                bound = schema.get(keyword)
                if isinstance(bound, int | float) and not isinstance(bound, bool) and not holds(value, bound):
                    yield f"{place}: must be {words} {bound}, got {shown(value)}"
        kind = next((kind for kind in _LENGTHS if isinstance(value, _TYPES[kind])), None)
        if kind is not None:
            minimum, maximum, unit = _LENGTHS[kind]
            if len(value) < schema.get(minimum, 0):
                yield f"{place}: must have at least {schema[minimum]} {unit}, and has {len(value)}"
            if len(value) > schema.get(maximum, len(value)):
                yield f"{place}: must have at most {schema[maximum]} {unit}, and has {len(value)}"
        if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
            yield f"{place}: must match the pattern {schema['pattern']}, got {shown(value)}"


def resolved(schema: Any, root: dict[str, Any]) -> Any:
    """The schema a reference leads to. One that leads nowhere in this schema, or to itself, allows everything."""
    for _ in range(16):
        if not isinstance(schema, dict) or "$ref" not in schema:
            return schema
        reference = schema["$ref"]
        name = reference.removeprefix(REFERENCES) if isinstance(reference, str) else ""
        schema = root.get("$defs", {}).get(name, True)
    return True


def expected(schema: Any, root: dict[str, Any], depth: int = 0) -> str:
    """What a schema wants, in a few words."""
    schema = resolved(schema, root)
    if not isinstance(schema, dict) or depth > 3:
        return "anything"
    if "const" in schema:
        return _json(schema["const"])
    if "enum" in schema:
        values = [_json(value) for value in schema["enum"]]
        return "one of " + ", ".join(values[:20]) + (", …" if len(values) > 20 else "")
    branches = schema.get("anyOf") or schema.get("oneOf")
    if branches:
        return " or ".join(dict.fromkeys(expected(branch, root, depth + 1) for branch in branches[:8]))
    kinds = schema.get("type", "anything")
    kind = " or ".join(kinds) if isinstance(kinds, list) else str(kinds)
    if kind == "array" and isinstance(schema.get("items"), dict) and schema["items"]:
        return f"array of {expected(schema['items'], root, depth + 1)}"
    if kind == "object" and isinstance(schema.get("properties"), dict) and schema["properties"]:
        return f"object with {', '.join(list(schema['properties'])[:12])}"
    words = schema.get("format")
    return f"{kind} ({words})" if isinstance(words, str) else kind


def shown(value: Any) -> str:
    """A value as the model wrote it, shortened, with its kind where that is not plain to see."""
    if isinstance(value, str):
        return f"the string {shown_text(value)}"
    if isinstance(value, dict | list):
        kind = "an object" if isinstance(value, dict) else "an array"
        return f"{kind} of {len(value)}" if len(value) > 8 else f"{kind} {shortened(_json(value))}"
    return shortened(_json(value))


def shown_text(text: str) -> str:
    """A text in quotes, shortened."""
    return shortened(_json(text[: SHOWN_CHARACTERS + 1]))


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        return f"a {type(value).__name__}"


def shortened(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"


def _is_allowed(schema: dict[str, Any], value: Any) -> bool:
    if "enum" in schema and not any(_is_same(value, allowed) for allowed in schema["enum"]):
        return False
    return "const" not in schema or _is_same(value, schema["const"])


def _is_same(left: Any, right: Any) -> bool:
    # To JSON, true is not 1.
    return bool(left == right) and isinstance(left, bool) == isinstance(right, bool)


def _reads_as(text: str, kind: str) -> bool:
    kinds: dict[str, Any] = {"integer": int, "number": float, "boolean": bool, "null": None}
    try:
        msgspec.convert(text, kinds[kind], strict=False)
    except msgspec.ValidationError:
        return False
    return True


def judged(words: str, value: Any) -> str:
    """The words of msgspec about a value, with the place first, as everywhere here, and what is there."""
    said, _, place = words.partition(" - at `$")
    path = place.rstrip("`").removeprefix(".")
    for step in re.findall(r"[^.\[\]]+", path):
        try:
            value = value[int(step) if isinstance(value, list) else step]
        except (LookupError, ValueError, TypeError):
            return f"{path}: {said}"
    return f"{path}: {said}, got {shown(value)}" if path else said


def joined(path: str, more: Iterable[Any]) -> str:
    for step in more:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            path += f".{step}" if path else str(step)
    return path


def _letters(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
