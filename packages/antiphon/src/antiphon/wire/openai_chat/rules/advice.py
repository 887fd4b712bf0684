"""What only some models or hosts refuse in a Chat Completions request.

A host's rules apply if the body's `model` is one of its models.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from antiphon.wire import rules as rows
from antiphon.wire.openai_chat.limits import MISTRAL_CALL_ID, SHORT_CALL_ID
from antiphon.wire.rules import Checked, Items, String, each, list_of, record
from antiphon.wire.rules.book import CrossRule, Finding, find_repeated
from antiphon.wire.tools.schema import non_strict_problems

SDK_ONLY_PARAMETERS = rows.name_set("data_sources extra_body extra_headers extra_query timeout")
"""Options of the SDKs and of Azure that recorded accepted requests have (OC-26)."""
_MESSAGE_FIELDS = rows.name_set("role content name tool_calls tool_call_id function_call refusal audio annotations")
_PART_FIELDS = rows.name_set("type text image_url input_audio file refusal prompt_cache_breakpoint")
_MAX_TOOLS, _MAX_DESCRIPTION = 128, 1024
_MEDIA = ("image_url", "input_audio", "file")


def _known_fields(names: frozenset[str]) -> CrossRule:
    def find(value: dict[str, Any], found: Checked) -> list[Finding]:
        return [(name, "unknown field") for name in value if name not in names and name not in found.target]

    return CrossRule("OC-31", find)


def _find_null_content(message: dict[str, Any], _: Checked) -> Iterable[Finding]:
    is_null = message.get("content") is None and each(message, "tool_calls")
    return [("content", "some hosts refuse null")] if is_null else ()


def _find_repeated_calls(message: dict[str, Any], _: Checked) -> Iterable[Finding]:
    if len(list_of(message.get("tool_calls"))) < 2:
        return ()
    ids = [((*steps, "id"), call.get("id")) for steps, call in each(message, "tool_calls")]
    return find_repeated([row for row in ids if type(row[1]) is str], "is the id of another call too")


def _find_misplaced_media(message: dict[str, Any], _: Checked) -> Iterable[Finding]:
    parts = each(message, "content") if message.get("role") != "user" else ()
    kinds = [part["type"] for _, part in parts if part.get("type") in _MEDIA]
    return [("", f"{kind} is only allowed in messages of the user") for kind in kinds]


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False
    return True


def _find_loose_schema(function: dict[str, Any], _: Checked) -> Iterator[Finding]:
    schema = function.get("parameters")
    if isinstance(schema, dict):
        yield from (("parameters", problem) for problem in non_strict_problems(schema))


_ARGUMENTS = String(rule="OC-07", accepts=_is_json, name="is not valid JSON; some hosts parse it")
_CALL = record("OC-07", id=String(rule="OC-09", max_length=SHORT_CALL_ID), function=record(arguments=_ARGUMENTS))
_MESSAGE = record(
    "OC-31",
    CrossRule("OC-10", _find_null_content),
    CrossRule("OC-05", _find_repeated_calls),
    CrossRule("OC-30", _find_misplaced_media),
    _known_fields(_MESSAGE_FIELDS),
    tool_calls=Items(item=_CALL),
    content=Items(item=record("OC-31", _known_fields(_PART_FIELDS))),
)
_FUNCTION = record("OC-29", CrossRule("OC-32", _find_loose_schema), description=String(max_length=_MAX_DESCRIPTION))


class _AtHost(rows.Check, frozen=True):
    """Rows that apply to models of these names."""

    names: Callable[[str], Any]
    checks: tuple[rows.Check, ...]

    def check(self, value: Any, at: rows.Path, found: Checked) -> None:
        model = value.get("model")
        if isinstance(model, str) and self.names(model):
            for row in self.checks:
                row.check(value, at, found)


def _find_mistral_order(body: dict[str, Any], _: Checked) -> Iterator[Finding]:
    before, messages = None, list(each(body, "messages"))
    for place, message in messages:
        role = message.get("role")
        if before == "tool" and role == "user":
            yield (*place, "role"), "a user message must not follow a tool message"
        if role == "assistant" and not message.get("content") and not any(each(message, "tool_calls")):
            yield place, "must have content or calls"
        before = role
    if messages and before not in ("user", "tool") and not (before == "assistant" and messages[-1][1].get("prefix")):
        yield (*messages[-1][0], "role"), "the last message must be the user's or a tool's"


def _find_lost_reasoning(body: dict[str, Any], _: Checked) -> Iterator[Finding]:
    thinking = body.get("thinking")
    if isinstance(thinking, dict) and thinking.get("type") == "enabled":
        messages = list(each(body, "messages"))
        last_user = max((at for at, (_, message) in enumerate(messages) if message.get("role") == "user"), default=-1)
        for place, message in messages[last_user + 1 :]:
            if any(each(message, "tool_calls")) and not isinstance(message.get("reasoning_content"), str):
                yield (*place, "reasoning_content"), "is required while thinking is enabled"


_MISTRAL_ID = String(accepts=re.compile(MISTRAL_CALL_ID).fullmatch, name=f"must match {MISTRAL_CALL_ID}")
_DEEPSEEK_PART = String(
    rule="OC-12", accepts=lambda kind: kind not in (*_MEDIA, "video_url"), name="DeepSeek accepts only text"
)
_DEEPSEEK_TOOL = String(accepts=lambda kind: kind != "custom", name="DeepSeek accepts only functions")
ADVICE = (
    record(
        "OC-01",
        model=rows.need(rows.FILLED),  # Azure and Bedrock name it in the URL (OC-01, errata)
        messages=Items(item=_MESSAGE),
        tools=Items(rule="OC-29", max_length=_MAX_TOOLS, item=record("OC-29", function=_FUNCTION)),
        **{name: rows.Refused(rule="OC-26", message="is an option of an SDK") for name in SDK_ONLY_PARAMETERS},
    ),
    _AtHost(
        names=re.compile(r"mistral|mixtral|codestral|devstral|magistral|ministral|pixtral|voxtral").search,
        checks=(
            record("MI-01", messages=Items(item=record(tool_calls=Items(item=record(id=_MISTRAL_ID))))),
            CrossRule("MI-02", _find_mistral_order),
        ),
    ),
    _AtHost(
        names=re.compile(r"(?:.*/)?deepseek-(?:chat|reasoner|r\d|v\d)").match,
        checks=(
            CrossRule("DS-01", _find_lost_reasoning),
            record(
                "DS-01",
                messages=Items(item=record(content=Items(item=record(type=_DEEPSEEK_PART)))),
                tools=Items(item=record(type=_DEEPSEEK_TOOL)),
            ),
        ),
    ),
)
