"""Where a part, a message or a setting was read, and how it was spelled there: its `source`.

A format sets a source only where its writer needs it: for what it accepts back, and only from itself (a file id, thoughts
without a signature), and for the spelling of what has several.

Earlier versions wrote this into `native`, among real extras. Stored histories keep it (L1): `with_source` is the only code that
knows those marks. Writers call it for a part of a history where they restore a spelling.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

from msgspec import structs

from antiphon.parts import Image, NativeExtras, Source, Thinking

_GOOGLE_MARK, _GOOGLE = "gemini:", "gemini"
_CHAT = "openai-chat"
LEGACY_FUNCTION = Source(_CHAT, ("function_call",))
"""Of a call, result, tool or choice of the legacy function API of Chat Completions."""
GENERATED_IMAGE = Source(_CHAT, ("images",))
"""Of an image in OpenRouter's field for images that a model made."""


class _Sourced(Protocol):
    @property
    def native(self) -> NativeExtras | None: ...
    @property
    def source(self) -> Source | None: ...


T = TypeVar("T", bound=_Sourced)


def is_from(thing: _Sourced, wire_format: str) -> bool:
    """Whether something was read from this format: it says so, or it has extras of it."""
    source, native = thing.source, thing.native
    return (source is not None and source.format == wire_format) or (native is not None and wire_format in native)


def is_spelled(thing: _Sourced, word: str) -> bool:
    """Whether something was spelled in this way where it was read."""
    return thing.source is not None and word in thing.source.spelling


def spelled(wire_format: str, words: Iterable[str]) -> Source | None:
    """The source of something that was spelled in these ways; None without words."""
    spelling = tuple(words)
    return Source(wire_format, spelling) if spelling else None


def spelling_in(thing: _Sourced, wire_format: str) -> tuple[str, ...]:
    """What something was called in this format; empty if it was not read there, or has only one name."""
    return thing.source.spelling if thing.source is not None and thing.source.format == wire_format else ()


def is_legacy_function(thing: _Sourced) -> bool:
    """Whether a call, result, tool or choice is one of the legacy function API."""
    return thing.source == LEGACY_FUNCTION if thing.native is None else with_source(thing).source == LEGACY_FUNCTION


def with_source(thing: T) -> T:
    """The same with the marks of earlier versions, if its extras have any, as its source."""
    native = thing.native
    if native is None or thing.source is not None:
        return thing
    words = tuple([origin[len(_GOOGLE_MARK) :] for origin in native if origin.startswith(_GOOGLE_MARK)])
    if words:
        rest = {origin: extras for origin, extras in native.items() if not origin.startswith(_GOOGLE_MARK)}
        return _replace(thing, rest, Source(_GOOGLE, words))
    chat = native.get(_CHAT)
    read = _read_chat_marks(thing, chat) if chat else None
    return thing if read is None else _replace(thing, {**native, _CHAT: read[1]}, read[0])


def _read_chat_marks(thing: Any, extras: dict[str, Any]) -> tuple[Source, dict[str, Any]] | None:
    """The source in the extras of Chat Completions, and the real extras; None if there is none."""
    if extras == {"function_call": True}:
        return LEGACY_FUNCTION, {}
    if type(thing) is Image and "images" in extras:
        return GENERATED_IMAGE, {name: value for name, value in extras.items() if name != "images"}
    if type(thing) is Thinking and type(extras.get("field")) is str:
        rest = {name: value for name, value in extras.items() if name not in ("field", "also", "part")}
        return Source(_CHAT, (extras["field"], *extras.get("also", ()))), {**rest, **extras.get("part", {})}
    return None


def _replace(thing: T, native: NativeExtras, source: Source) -> T:
    kept = {origin: extras for origin, extras in native.items() if extras}
    return structs.replace(thing, native=kept or None, source=source)  # type: ignore[type-var]
