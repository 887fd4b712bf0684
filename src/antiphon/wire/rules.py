"""Rules of provider APIs: a `Violation` is a broken rule, found before the provider finds it."""

from __future__ import annotations

from msgspec import Struct


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


def name_set(text: str) -> frozenset[str]:
    """The space-separated names in `text`."""
    return frozenset(text.split())


def name_list(text: str) -> tuple[str, ...]:
    """The space-separated names in `text`, in order."""
    return tuple(text.split())


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
