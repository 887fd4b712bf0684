"""Native extras of generateContent, and proto3 JSON with its two spellings of a name.

In proto3 JSON a field has two names (camelCase and snake_case), null means absent, an enum is a name or a number, and one object
may take the place of a list. What no neutral part holds is in `native["gemini"]`, names of inner fields with their prefix
(`generationConfig.topK`). Where Gemini has several spellings of one meaning, the `source` of what was read names the one used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from antiphon.errors import WireError
from antiphon.parts import NativeExtras
from antiphon.wire.gemini import FORMAT
from antiphon.wire.rules import json_type_name
from antiphon.wire.shared_google import to_snake_case


def get_field(fields: dict[str, Any], name: str) -> Any:
    """A field by its camelCase name, in either spelling; None if absent."""
    value = fields.get(name)
    return fields.get(to_snake_case(name)) if value is None else value


def spelling_used(fields: dict[str, Any], name: str) -> str:
    """The spelling of a field in this body."""
    return name if name in fields or to_snake_case(name) not in fields else to_snake_case(name)


def as_list(value: Any) -> list[Any]:
    """A repeated field; one object counts as a list of one."""
    if isinstance(value, list):
        return value
    return [] if value is None else [value]


def field_spellings(names: Iterable[str]) -> dict[str, str]:
    """Both spellings of each name, mapped to the name."""
    return {form: name for name in names for form in (name, to_snake_case(name))}


def split_fields(value: Mapping[str, Any], known: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields in `known` by their camelCase names, and all others as spelled; null fields are left out."""
    fields: dict[str, Any] = {}
    extras: dict[str, Any] = {}
    for key, content in value.items():
        if content is None:
            continue
        name = known.get(key)
        if name is None or name in fields:
            extras[key] = content
        else:
            fields[name] = content
    return fields, extras


def require_list(value: Any, name: str) -> list[Any]:
    """A list, or one object as a list of one. Raises `WireError` for anything else."""
    if value is None or type(value) is dict:
        return [] if value is None else [value]
    if type(value) is not list:
        raise WireError(f"{name}: expected an array, got {json_type_name(value)}")
    return value


def native_extras(extras: dict[str, Any]) -> NativeExtras | None:
    """The native mapping of extras; None if there are none."""
    return {FORMAT: extras} if extras else None


def gemini_extras(native: NativeExtras | None) -> dict[str, Any]:
    """The extras of Gemini in a native mapping."""
    return native.get(FORMAT, {}) if native else {}
