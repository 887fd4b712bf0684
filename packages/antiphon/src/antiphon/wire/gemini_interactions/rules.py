"""The rules of the Interactions API (GI-01 to GI-16) as rows.

Their sources are the published specification (OpenAPI, v1beta, as bundled by llm-comply 0.5.0), the vendor's guides, and
generateContent, whose models answer here too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from antiphon.wire import rules as rows
from antiphon.wire.capabilities import tool_name_matcher
from antiphon.wire.gemini_interactions import FORMAT, SPEC
from antiphon.wire.gemini_interactions.limits import (
    MEDIA_KINDS,
    MODES,
    OUTPUT_TYPES,
    PARAMETER_TABLE,
    PARAMETERS,
    RESULT_CONTENT,
    SERVICE_TIERS,
    media_types,
)
from antiphon.wire.gemini_interactions.messages import as_entries, is_content, is_continued, is_model_step
from antiphon.wire.loss import Loss
from antiphon.wire.parameters import refused_fields
from antiphon.wire.rules import (
    ANY,
    BOOLEAN,
    FILLED,
    OBJECT,
    STRING,
    Checked,
    Items,
    OneOf,
    Refused,
    String,
    Tagged,
    each,
    either,
    need,
    record,
)
from antiphon.wire.rules.book import CrossRule, Finding, RuleBook, Writing, accepted_media, find_repeated
from antiphon.wire.rules.sequence import Order, Problem, SequenceJudge
from antiphon.wire.shared_google import THINKING_LEVELS

_TOOL_NAME = String(accepts=lambda name: tool_name_matcher(FORMAT)(name), name="is not a legal name")
_BASE64 = String(accepts=lambda data: data.isascii() and not data.startswith("data:"), name="must be base64")


def _find_no_source(content: dict[str, Any], _: Checked) -> Iterator[Finding]:
    if content.get("data") is None and content.get("uri") is None:
        yield "", "must have data or uri"


def _media_type(kind: str) -> String:
    return String(rule="GI-06", accepts=lambda value: value in media_types(kind), name="is not supported")


_CONTENTS: dict[str, rows.Check] = {
    "text": record("GI-05", text=need(STRING)),
    **{
        kind: record("GI-05", CrossRule("GI-05", _find_no_source), data=_BASE64, mime_type=_media_type(kind))
        for kind in MEDIA_KINDS
    },
}


class _Content(Tagged, frozen=True):
    """A content; all problems of its type are reported at the content itself."""

    def check(self, value: Any, at: rows.Path, found: Checked) -> None:
        kind = value.get("type") if type(value) is dict else None
        row = self.kinds.get(kind) if type(kind) is str else None
        if row is None:
            found.add(self.rule, at, f"must have one of the types {', '.join(self.kinds)}")
        else:
            row.check(value, at, found)


_CONTENT = _Content(kinds=_CONTENTS, rule="GI-05")
_RESULT_CONTENT = _Content(kinds={kind: _CONTENTS[kind] for kind in RESULT_CONTENT}, rule="GI-14")
_MESSAGE_STEP = record("GI-03", content=Items(item=_CONTENT))
_RESULT = either({str: ANY, dict: ANY, list: Items(item=_RESULT_CONTENT)}, "GI-14")
_STEP = _Content(
    rule="GI-03",
    kinds={
        "user_input": _MESSAGE_STEP,
        "model_output": _MESSAGE_STEP,
        "function_call": record("GI-04", id=need(FILLED), name=need(FILLED), arguments=need(OBJECT)),
        "function_result": record("GI-03", call_id=need(FILLED), result=need(_RESULT, "GI-14")),
        "thought": record("GI-03", summary=rows.ARRAY),
    },
)


class _Input(rows.Check, frozen=True):
    """The input: contents of one message, or steps, of any type that is not a content."""

    content: Tagged
    step: Tagged

    def check(self, value: Any, at: rows.Path, found: Checked) -> None:
        entries = as_entries(value)
        are_contents = all(map(is_content, entries or ()))
        for index, entry in enumerate(entries or ()):
            place = (at, index) if type(value) is list else at
            if are_contents:
                self.content.check(entry, place, found)
            elif is_content(entry):
                found.add(self.rule, place, "contents and steps cannot be mixed")
            elif type(entry) is not dict or type(entry.get("type")) is not str or entry["type"] in self.step.kinds:
                self.step.check(entry, place, found)


def _find_repeated_names(body: dict[str, Any], _: Checked) -> Iterator[Finding]:
    declared = ((steps, tool.get("name")) for steps, tool in each(body, "tools") if tool.get("type") == "function")
    legal = (
        ((*steps, "name"), name) for steps, name in declared if isinstance(name, str) and not _TOOL_NAME.problem(name)
    )
    return find_repeated(legal, "is declared twice")


_FOREIGN: dict[str, rows.Check] = {"function": Refused(), "input_schema": Refused()}


class _Tool(Tagged, frozen=True):
    """A tool; one without a type is reported itself."""

    def check(self, value: Any, at: rows.Path, found: Checked) -> None:
        if type(value) is not dict or type(value.get("type")) is not str:
            found.add(self.rule, at, "a tool must have a type")
        else:
            Tagged.check(self, value, at, found)


_TOOL = _Tool(
    rule="GI-08",
    kinds={"function": record(name=need(_TOOL_NAME), parameters=OBJECT, **_FOREIGN)},
    others=record(**_FOREIGN),  # Google adds tools often
)


class _ResponseFormat(rows.Check, frozen=True):
    """The formats of an answer; the first for text may have a schema."""

    def check(self, value: Any, at: rows.Path, found: Checked) -> None:
        for entry in value if type(value) is list else [value]:
            if entry is not None and type(entry) is not dict:
                found.add_type(self.rule, at, "an object", entry)
            elif entry and entry.get("type") == "text":
                mime_type, schema = entry.get("mime_type"), entry.get("schema")
                if mime_type not in (None, *OUTPUT_TYPES):
                    found.add(self.rule, (at, "mime_type"), f"must be {' or '.join(OUTPUT_TYPES)}")
                elif schema is not None and (mime_type != OUTPUT_TYPES[0] or type(schema) is not dict):
                    found.add(self.rule, (at, "schema"), f"a schema needs mime_type {OUTPUT_TYPES[0]}")


def _find_refused(config: dict[str, Any], found: Checked) -> Iterator[Finding]:
    model, level = found.model, config.get("thinking_level")
    refused = refused_fields(model, "GI-07", "GI-07", config.get("temperature"), config.get("top_p"))
    yield from PARAMETER_TABLE.find_refused(config, refused, "GI-07")
    is_level = isinstance(level, str) and level in THINKING_LEVELS
    if is_level and (level not in (model.efforts or THINKING_LEVELS) or model.efforts == () or model.thinking == ()):
        yield "thinking_level", "the model does not support this level"
    if config.get("thinking_summaries") in ("auto", "none") and model.thinking == ():
        yield "thinking_summaries", "the model does not think"


_MODE = OneOf(values=MODES)
_CHOICE = either({str: _MODE, dict: record(allowed_tools=need(record(mode=_MODE)))}, "GI-09")
_BODY = rows.Object(
    rule="GI-02",
    fields={
        **dict.fromkeys(PARAMETERS, ANY),
        **dict.fromkeys(
            ("model", "agent", "previous_interaction_id", "system_instruction", "response_mime_type"), STRING
        ),
        **dict.fromkeys(("background", "store", "stream"), BOOLEAN),
        "service_tier": OneOf(rule="GI-12", values=SERVICE_TIERS),
        "generation_config": record(
            "GI-07",
            CrossRule("GI-07", _find_refused),
            **PARAMETER_TABLE.checks("generation_config"),
            thinking_level=OneOf(values=tuple(sorted(THINKING_LEVELS))),
            thinking_summaries=OneOf(values=("auto", "none")),
            tool_choice=_CHOICE,
        ),
        "tools": Items(rule="GI-08", item=_TOOL),
        "response_format": _ResponseFormat(rule="GI-11"),
        "input": _Input(rule="GI-03", content=_CONTENT, step=_STEP),
    },
)


def _find_required(body: dict[str, Any], _: Checked) -> Iterator[Finding]:
    given = [name for name in ("model", "agent") if body.get(name)]
    if len(given) != 1:
        yield given[-1] if given else "model", "exactly one of model and agent must be set"
    entries = as_entries(body.get("input"))
    if entries is None or (not entries and not is_continued(body)):
        yield "input", "input must be a string, a content, or a list of contents or steps"


def _find_unstored(body: dict[str, Any], _: Checked) -> Iterator[Finding]:
    if body.get("background") is True and body.get("store") is False:
        yield "background", "needs store"


def _find_choice_without_tools(body: dict[str, Any], _: Checked) -> Iterator[Finding]:
    config = body.get("generation_config")
    if isinstance(config, dict) and config.get("tool_choice") is not None and not body.get("tools"):
        yield ("generation_config", "tool_choice"), "is only allowed with tools"


def _drop_choice(body: dict[str, Any], writing: Writing) -> None:
    if any(_find_choice_without_tools(body, Checked(body, writing.model))):
        del body["generation_config"]["tool_choice"]
        if not body["generation_config"]:
            del body["generation_config"]
        stated = writing.request.tool_choice
        what = "tool_choice" if stated is None else stated.mode
        writing.losses.append(Loss("tool_choice", what, "requires tools; dropped (GI-09)"))


def _steps(body: dict[str, Any]) -> list[Any]:
    """The steps of the input; none if it has contents."""
    entries = as_entries(body.get("input")) or []
    return [] if all(map(is_content, entries)) else entries


def judge_order(steps: list[Any], *, is_continued: bool = False) -> list[Problem]:
    """What is wrong with the order of calls and results; the steps may end with calls."""
    judge = SequenceJudge(SPEC.sequence_rule, is_continued=is_continued)
    for index, step in enumerate(steps):
        kind = step.get("type") if isinstance(step, dict) else None
        if not kind or not isinstance(kind, str):
            continue
        judge.turn(is_model_step(step))
        if kind == "function_call":
            judge.call(str(step.get("id")), index)
        elif kind == "function_result" and isinstance(step.get("call_id"), str):
            judge.result(step["call_id"], index)
        elif kind == "user_input":
            judge.other()
            judge.turn(False)  # whatever follows comes too late
    judge.pending.clear()
    if judge.opening is not None and judge.opening.index == 0 and not is_continued:
        judge.problems.insert(0, judge.opening)
    return judge.end()


def _judge(body: dict[str, Any], _: Checked) -> list[Problem]:
    return judge_order(_steps(body), is_continued=is_continued(body))


def _place_of(problem: Problem, _: Any) -> tuple[str | int, ...]:
    place = ("input", problem.index)
    return place if problem.kind in ("unanswered", "begins with a call") else (*place, "call_id")


def _find_ending(body: dict[str, Any], found: Checked) -> Iterator[Finding]:
    steps = _steps(body)
    if steps and is_model_step(steps[-1]) and not is_continued(body) and (len(steps) == 1 or not found.model.prefill):
        yield ("input", len(steps) - 1), "the input must end with input of the user or a result"


def _find_unsigned(body: dict[str, Any], _: Checked) -> Iterator[Finding]:
    for index, step in enumerate(_steps(body)):
        if isinstance(step, dict) and step.get("type") == "thought" and not step.get("signature"):
            yield ("input", index, "signature"), "a thought must be sent with its signature"


RULES = RuleBook(
    FORMAT,
    {
        "GI-01": "specification, CreateModelInteractionParams: input, model or agent",
        "GI-02": "specification: names and types of the parameters",
        "GI-03": "specification, InteractionsInput and Step",
        "GI-04": "specification, FunctionCallStep",
        "GI-05": "specification, Content",
        "GI-06": "specification: the MIME types of each content",
        "GI-07": "specification, GenerationConfig; models as in generateContent",
        "GI-08": "specification, Tool and Function; names as in generateContent",
        "GI-09": "specification, ToolChoiceConfig; needs tools as in generateContent",
        "GI-10": "the models are those of generateContent, with its order of turns",
        "GI-11": "specification, ResponseFormat",
        "GI-12": "specification, ServiceTier",
        "GI-13": "vendor guide: background execution needs store",
        "GI-14": "specification, FunctionResultStep",
        "GI-15": "media of the model, as in generateContent",
        "GI-16": "vendor guide, thinking: a thought always has its signature",
    },
    _BODY,
    CrossRule("GI-01", _find_required),
    CrossRule("GI-13", _find_unstored),
    CrossRule("GI-08", _find_repeated_names),
    CrossRule("GI-09", _find_choice_without_tools, fix=_drop_choice),
    Order(
        broken=dict.fromkeys(("unanswered", "orphan", "stray", "repeated result", "begins with a call"), "GI-10"),
        judge=_judge,
        place=_place_of,
    ),
    CrossRule("GI-10", _find_ending),
    accepted_media("GI-15", SPEC, with_types=False, entries=as_entries),
    advice=(CrossRule("GI-16", _find_unsigned),),
)
check_request = RULES.check_request
