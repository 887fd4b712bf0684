"""Fills the arguments of a call from the message by rules, and asks for those that are missing.

A value is searched for in this order: given by name (`city=Oslo`, or a JSON object); a value from the schema's enum; text in the
form the schema expects (a date, an address, a number, a place, an expression); quoted text; the schema's default; and, for a
single text argument, the rest of the clause without the words that selected the tool. Values are never invented.
"""

from __future__ import annotations

import re
from datetime import date
from typing import Any

import msgspec

from antiphon.chat.offline.clauses import date_in, quoted_in, tidy
from antiphon.chat.offline.offered import Offer, name_words, type_of, words_of

_NAMED = r"(?<!\w){name}\s*(?:[=:：]|\bis\b|是|为)\s*(\"[^\"]*\"|“[^”]*”|[^\s,，;；]+)"
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.]*\w)|(?<![\w.])-?\d+(?:\.\d+)?")
_SUM = re.compile(r"[\d(][\d\s().+\-*/^%×÷]*[+\-*/^%×÷][\d\s().+\-*/^%×÷]*[\d)]")
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_ADDRESS = re.compile(r"https?://[^\s，。]+")
_PATH = re.compile(r"(?:[~.]{0,2}/)?[\w-]+(?:/[\w.-]+)+|[\w-]+\.[a-z]{1,5}\b")
_PLACE = re.compile(r"\b(?:in|at|for|near|to|from|of)\s+([A-Z][\w'-]+(?:\s+[A-Z][\w'-]+)*)")
_INTO = re.compile(r"\b(?:in)?to\s+([A-Za-z]+)\s*$|(?:翻译|译)?成([\u3400-\u9fff]{2,4})")
_CALLED = re.compile(r"\b(?:called|named|titled)\s+([\w][\w' -]*)|(?:叫做?|名为|标题为)\s*([^，。,]+)")
_MARKED = re.compile(r"\bid\b\s*[=:#]?\s*([\w-]+)|#([\w-]+)", re.IGNORECASE)
_FILLERS = re.compile(
    r"\b(?:what(?:'s|\s+is|\s+are)?|how|the|a|an|is|are|it|tell|give|show|get|me|please|use|call|run|do|does|can|you|like|"
    r"of|for|in|at|to|with|on|tool|today|now)\b|怎么样|如何|什么|多少|是|吗|呢|的|请|帮我|一下|用|调用|今天|现在",
    re.IGNORECASE,
)
_NEGATED = re.compile(r"\b(?:not|no|without|don't|false|off)\b|不|没|关", re.IGNORECASE)
_PLACES = frozenset(
    {"city", "location", "place", "town", "country", "region", "address", "destination", "where", "origin"}
)
_DATES = frozenset({"date", "day", "due", "deadline", "when", "until", "since"})
_WHOLE = frozenset({"query", "q", "text", "message", "prompt", "question", "input", "content", "search", "keywords"})


class Filled:
    """Arguments as far as they could be filled, and the names of those that are missing."""

    def __init__(self, arguments: dict[str, Any], missing: list[str]) -> None:
        self.arguments = arguments
        self.missing = missing


def filled(offer: Offer, text: str, today: date, answer: str = "") -> Filled:
    """Arguments for a tool from a clause. `answer` is the user's reply to the question for the first missing one."""
    given = _object_in(text, offer)
    missing: list[str] = []
    unused = _Unused(text)
    for name, schema in offer.properties.items():
        if name in given:
            continue
        value = _argument_by_name(name, schema, text)
        if value is None and name in offer.required:
            value = _found(name, schema, text, today, unused)
        if value is not None:
            given[name] = value
        elif name in offer.required:
            missing.append(name)
    texts = [name for name in missing if type_of(offer.properties[name]) == "string"]
    if len(texts) == 1 and not _is_particular(texts[0], offer.properties[texts[0]]) and (rest := _rest(offer, text)):
        given[texts[0]] = rest
        missing.remove(texts[0])
    if missing and answer and (value := coerced(answer, offer.properties[missing[0]])) is not None:
        given[missing.pop(0)] = value
    return Filled(given, missing)


class _Unused:
    """The numbers and quoted texts that are not used for an argument yet, in order."""

    def __init__(self, text: str) -> None:
        self.numbers = _NUMBER.findall(text)
        self.quoted = quoted_in(text)


def _object_in(text: str, offer: Offer) -> dict[str, Any]:
    if found := re.search(r"\{.*\}", text, re.DOTALL):
        try:
            value = msgspec.json.decode(found[0])
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return {}
        if isinstance(value, dict):
            return {name: value[name] for name in value if name in offer.properties}
    return {}


def _argument_by_name(name: str, schema: dict[str, Any], text: str) -> Any:
    if found := re.search(_NAMED.format(name=re.escape(name)), text, re.IGNORECASE):
        return coerced(found[1].strip('"“”'), schema)
    return None


def _found(name: str, schema: dict[str, Any], text: str, today: date, unused: _Unused) -> Any:
    if isinstance(schema.get("enum"), list):
        return _one_of(schema["enum"], text, schema)
    if "const" in schema:
        return schema["const"]
    kind = type_of(schema)
    if kind in ("integer", "number"):
        value = coerced(unused.numbers.pop(0), schema) if unused.numbers else None
        return schema.get("default") if value is None else value
    if kind == "boolean":
        return schema.get("default", not _NEGATED.search(text))
    if kind == "array":
        items = schema.get("items")
        if isinstance(items, dict) and type_of(items) in ("integer", "number"):
            numbers, unused.numbers = unused.numbers, []
            return [coerced(number, items) for number in numbers] or None
        quotes, unused.quoted = unused.quoted, []
        return (quotes or None) if isinstance(items, dict) and type_of(items) == "string" else schema.get("default")
    if kind != "string":
        return schema.get("default")
    return _text(name, schema, text, today, unused)


def _one_of(values: list[Any], text: str, schema: dict[str, Any]) -> Any:
    for value in sorted((str(value) for value in values), key=len, reverse=True):
        if re.search(rf"(?<![a-z]){re.escape(value.lower())}(?![a-z])", text.lower()):
            return next(one for one in values if str(one) == value)
    return values[0] if len(values) == 1 else schema.get("default")


def _text(name: str, schema: dict[str, Any], text: str, today: date, unused: _Unused) -> Any:
    words = name_words(name)
    kind = schema.get("format")
    if kind in ("date", "date-time") or words & _DATES:
        found = date_in(text, today)
        return None if found is None else f"{found}T00:00:00Z" if kind == "date-time" else str(found)
    for pattern, is_meant in (
        (_EMAIL, kind == "email" or bool(words & {"email", "mail", "to", "recipient"})),
        (_ADDRESS, kind in ("uri", "url") or bool(words & {"url", "uri", "link", "address"})),
        (_SUM, bool(words & {"expression", "formula", "sum", "equation", "calculation"})),
        (_PATH, bool(words & {"path", "file", "filename", "folder", "directory"})),
        (_PLACE, bool(words & _PLACES)),
        (_INTO, bool(words & {"language", "target", "lang"})),
        (_MARKED, bool(words & {"id", "identifier", "number", "code"})),
        (_CALLED, bool(words & {"name", "title"})),
    ):
        if is_meant and (match := pattern.search(text)):
            return tidy(next((group for group in match.groups() if group), match[0]))
    if unused.quoted:
        return unused.quoted.pop(0)
    return schema.get("default")


def _is_particular(name: str, schema: dict[str, Any]) -> bool:
    """Whether an argument of this name needs a specific form, so that the rest of a clause cannot fill it."""
    return bool(
        schema.get("format")
        or schema.get("enum")
        or name_words(name) & {*_DATES, "email", "mail", "url", "uri", "path", "file", "id", "recipient"}
    )


def _rest(offer: Offer, text: str) -> str:
    """The clause without the name of the tool."""
    rest = re.sub(rf"(?:\b(?:use|call|run)\b|使用|调用)?\s*`?{re.escape(offer.name)}`?", " ", text, flags=re.IGNORECASE)
    if not set(offer.required) - _WHOLE:
        return tidy(rest)
    chosen = words_of(" ".join(name_words(offer.name)))
    kept = [word for word in _FILLERS.sub(" ", rest).split() if not words_of(word) & chosen]
    return tidy(" ".join(kept))


def coerced(value: Any, schema: dict[str, Any]) -> Any:
    """A value converted to the type in the schema, or None if it cannot be."""
    kind = type_of(schema)
    try:
        if kind == "integer":
            return _bounded(int(float(value)), schema)
        if kind == "number":
            number = float(value)
            return _bounded(int(number) if number.is_integer() else number, schema)
    except (TypeError, ValueError, OverflowError):
        found = _NUMBER.search(str(value))
        return coerced(found[0], schema) if found and found[0] != value else None
    if kind == "boolean":
        return value if isinstance(value, bool) else not _NEGATED.search(str(value))
    if kind == "array":
        return (
            value if isinstance(value, list) else [tidy(one) for one in re.split(r"[,，、]", str(value)) if tidy(one)]
        )
    if kind == "object":
        return value if isinstance(value, dict) else None
    if isinstance(schema.get("enum"), list):
        return _one_of(schema["enum"], str(value), {})
    return tidy(str(value)) or None


def _bounded(number: Any, schema: dict[str, Any]) -> Any:
    least, most = schema.get("minimum"), schema.get("maximum")
    if isinstance(least, int | float) and number < least:
        return least
    return most if isinstance(most, int | float) and number > most else number
