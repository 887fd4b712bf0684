"""Lines of a client's instructions that change with every request and so break the prompt cache, made stable.

Only instructions are changed (`system`, `instructions`, `systemInstruction`, messages of the roles system and developer): what
people, models and tools wrote stays as it is. A rule needs no memory: the same text always gives the same text, in every process
and for every request, so a prompt that was changed once stays the same. Each change is reported as a loss, because the model is
sent less than the client wrote.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from antiphon.json_text import NOT_JSON
from antiphon.wire.loss import Loss

VolatileLine: TypeAlias = Literal["clock", "request-id", "billing-header"]

_CLOCK_LABEL = re.compile(
    r"\b(?:current|today|now|local|system)\b.*\b(?:date|time|datetime)\b"
    r"|\b(?:date|time)(?:stamp)?\s*[:=]"
    r"|(?:当前|现在|系统|今天).*(?:时间|日期)",
    re.IGNORECASE,
)
_TIME_OF_DAY = re.compile(
    r"(?:[T ]|(?<![\w:])|(?<=[^\x00-\x7f]))[0-2]?\d:[0-5]\d(?::[0-5]\d(?:[.,]\d+)?)?"
    r"(?:\s?(?:[AaPp][Mm]\b|[AaPp]\.[Mm]\.))?(?:Z\b|\s?[+-]\d\d:?\d\d\b)?"
)
_LONGEST_LINE = 500
"""Longer lines are text, not labels, and are left alone."""
_ID_LINE = re.compile(
    r"^(\W*(?:x-)?(?:request|trace|correlation|message|turn)[-_ ]?id\W*?[:=]\s*)[\"']?[\w.:-]{6,}[\"']?", re.IGNORECASE
)
_BILLING = re.compile(r"(?<=[;:\s])\s*cch=[^;\s]*;?")
_OPERATORS = ("system", "developer")


class _Rule(NamedTuple):
    name: VolatileLine
    rewrite: Callable[[str], str]
    why: str


def _without_time(line: str) -> str:
    return _TIME_OF_DAY.sub("", line) if _CLOCK_LABEL.search(line) else line


def _without_id(line: str) -> str:
    return _ID_LINE.sub(r"\1(left out)", line)


def _without_billing(line: str) -> str:
    return _BILLING.sub("", line) if line.lstrip().startswith("x-anthropic-billing-header:") else line


_RULES: Mapping[str, _Rule] = {
    rule.name: rule
    for rule in (
        _Rule("clock", _without_time, "the time of day was left out; the date stays"),
        _Rule("request-id", _without_id, "the id was left out"),
        _Rule("billing-header", _without_billing, "the value of cch was left out"),
    )
}
_WHY = "so that the prompt cache holds (cache_doctor.normalise)"


def normalise_lines(body: bytes, format_name: str, names: Sequence[str]) -> tuple[bytes, list[Loss]]:
    """The body with these kinds of lines made stable, and what was changed; the same bytes if nothing was.

    A body that is not a JSON object is returned as it is: its reader says what is wrong with it.
    """
    fields = _INSTRUCTIONS.get(format_name, ())
    try:
        values = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except NOT_JSON:
        return body, []
    rules = [_RULES[name] for name in names]
    losses: list[Loss] = []
    for name in fields:
        if name not in values:
            continue
        found: list[Loss] = []
        is_messages = name in ("messages", "input")
        value = _rewrite(msgspec.json.decode(values[name]), name, rules, found, is_messages=is_messages)
        if found:
            values[name] = msgspec.Raw(msgspec.json.encode(value))
            losses += found
    return (msgspec.json.encode(values), losses) if losses else (body, [])


_INSTRUCTIONS: Mapping[str, Sequence[str]] = {
    "anthropic": ("system", "messages"),
    "openai-chat": ("messages",),
    "openai-responses": ("instructions", "input"),
    "gemini": ("systemInstruction", "system_instruction"),
    "gemini-interactions": ("system_instruction",),
}


def _rewrite(value: Any, path: str, rules: Sequence[_Rule], losses: list[Loss], *, is_messages: bool = False) -> Any:
    """The texts of a value without what changes; of messages, only those of operators."""
    if isinstance(value, str):
        return value if is_messages else _rewrite_text(value, path, rules, losses)
    if isinstance(value, list):
        return [
            _rewrite(item, f"{path}[{index}]", rules, losses)
            if not is_messages or (isinstance(item, dict) and item.get("role") in _OPERATORS)
            else item
            for index, item in enumerate(value)
        ]
    if isinstance(value, dict):
        texts = ("text", "content", "parts")
        return {
            name: _rewrite(item, f"{path}.{name}", rules, losses) if name in texts else item
            for name, item in value.items()
        }
    return value


def _rewrite_text(text: str, path: str, rules: Sequence[_Rule], losses: list[Loss]) -> str:
    lines = text.split("\n")
    for rule in rules:
        changed = [rule.rewrite(line) if len(line) <= _LONGEST_LINE else line for line in lines]
        if changed != lines:
            losses.append(Loss(path, rule.name, f"{rule.why} {_WHY}"))
            lines = changed
    return "\n".join(lines)
