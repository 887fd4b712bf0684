"""How Gemini spells things: proto3 JSON.

A field has two names (camelCase and proto's snake_case), null means absent, an enum is a word or a number, and one object may
stand where a list is expected. `fields_of` sorts an object's fields into the known ones, under their camelCase names, and the
rest as it is spelled.

Where Gemini has several spellings of one meaning, what was read keeps a *mark*: an origin of its own in `native`, with nothing
in it (`{"gemini:result": {}}`). The writer takes the spelling from it, and to other formats it is no loss, for nothing is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from antiphon.errors import WireError
from antiphon.parts import NativeExtras
from antiphon.wire.gemini.declarations import snake

FORMAT = "gemini"

_MARK = "gemini:"


def forms(names: Iterable[str]) -> dict[str, str]:
    """Every spelling of the names, with the name it stands for."""
    return {form: name for name in names for form in (name, snake(name))}


def fields_of(value: Mapping[str, Any], known: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields that `known` spells, by their names, and all others; without those that are null."""
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


def array_of(value: Any, name: str) -> list[Any]:
    """The list under a name; one object stands for a list of one. Raises `WireError` if it is neither."""
    if value is None or type(value) is dict:
        return [] if value is None else [value]
    if type(value) is not list:
        raise WireError(f"{name}: an array is expected, not {type(value).__name__}")
    return value


def mark(*words: str) -> NativeExtras:
    """The native mapping that says how something was spelled."""
    return {_MARK + word: {} for word in words}


def marked(native: NativeExtras | None, word: str) -> bool:
    """Whether something was spelled that way."""
    return native is not None and _MARK + word in native


def marks_of(native: NativeExtras | None) -> list[str]:
    """The words of every mark."""
    return [origin[len(_MARK) :] for origin in native or () if origin.startswith(_MARK)]


def native_of(extras: dict[str, Any], marks: NativeExtras | None = None) -> NativeExtras | None:
    """The native mapping for extras and marks; None where there is nothing to say."""
    if extras:
        return {FORMAT: extras, **marks} if marks else {FORMAT: extras}
    return marks or None


def extras_of(native: NativeExtras | None) -> dict[str, Any]:
    """What Gemini said beyond the neutral fields."""
    return native.get(FORMAT, {}) if native else {}
