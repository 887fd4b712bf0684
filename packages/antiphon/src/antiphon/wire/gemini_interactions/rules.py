"""The rules of the Interactions API (GI-01 to GI-16) as rows, and the check of a request body.

Their sources are the published specification (OpenAPI, v1beta, as bundled by llm-comply 0.5.0), the vendor's guides, and
generateContent, whose models answer here too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from antiphon.wire import rules as rows
from antiphon.wire.capabilities import look_up, tool_name_matcher
from antiphon.wire.capabilities.accepted_media import media_problems
from antiphon.wire.format import DEFAULT_OPTIONS, WriteOptions
from antiphon.wire.gemini_interactions import FORMAT, SPEC
from antiphon.wire.gemini_interactions.limits import MEDIA_KINDS, MODES, PARAMETERS, SERVICE_TIERS, media_types
from antiphon.wire.gemini_interactions.messages import as_entries, is_content, is_continued, is_model_step
from antiphon.wire.gemini_interactions.parameters import PARAMETER_TABLE
from antiphon.wire.parameters import refused_fields
from antiphon.wire.rules.sequence import Order, Problem, SequenceJudge
from antiphon.wire.vendors.google_parameters import THINKING_LEVELS

_JSON = "application/json"
_TOOL_NAME = rows.String(accepts=lambda name: tool_name_matcher(FORMAT)(name), name="is not a legal name")
_BASE64 = rows.String(accepts=lambda data: data.isascii() and not data.startswith("data:"), name="must be base64")


def _find_no_source(content: dict[str, Any], _: rows.Checked) -> Iterator[rows.Finding]:
    if content.get("data") is None and content.get("uri") is None:
        yield "", "must have data or uri"


class _MediaType(rows.Check, frozen=True):
    """The MIME type of a kind of medium."""

    kind: str

    def check(self, value: Any, at: rows.Path, found: rows.Checked) -> None:
        if type(value) is not str or value not in media_types(self.kind):
            found.add(self.rule, at, f"{str(value)[:80]} is not supported")


_CONTENTS: dict[str, rows.Check] = {
    "text": rows.Object(rule="GI-05", fields={"text": rows.need(rows.STRING)}, unknown=""),
    **{
        kind: rows.Object(
            rule="GI-05",
            fields={"data": _BASE64, "mime_type": _MediaType(rule="GI-06", kind=kind)},
            unknown="",
            also=(rows.CrossRule("GI-05", _find_no_source),),
        )
        for kind in MEDIA_KINDS
    },
}


class _Content(rows.Tagged, frozen=True):
    """A content; all problems of its type are reported at the content itself."""

    def check(self, value: Any, at: rows.Path, found: rows.Checked) -> None:
        kind = value.get("type") if type(value) is dict else None
        row = self.kinds.get(kind) if type(kind) is str else None
        if row is None:
            found.add(self.rule, at, f"must have one of the types {', '.join(self.kinds)}")
        else:
            row.check(value, at, found)


_CONTENT = _Content(kinds=_CONTENTS, rule="GI-05")
_RESULT_CONTENT = _Content(kinds={kind: _CONTENTS[kind] for kind in ("text", "image")}, rule="GI-14")
_MESSAGE_STEP = rows.Object(rule="GI-03", fields={"content": rows.Items(item=_CONTENT, rule="GI-03")}, unknown="")


def _find_unsigned(step: dict[str, Any], found: rows.Checked) -> Iterator[rows.Finding]:
    if found.advisories and not step.get("signature"):
        yield "signature", "a thought must be sent with its signature"


_STEP = _Content(
    rule="GI-03",
    kinds={
        "user_input": _MESSAGE_STEP,
        "model_output": _MESSAGE_STEP,
        "function_call": rows.Object(
            rule="GI-04",
            fields={"id": rows.need(rows.FILLED), "name": rows.need(rows.FILLED), "arguments": rows.need(rows.OBJECT)},
            unknown="",
        ),
        "function_result": rows.Object(
            rule="GI-03",
            fields={
                "call_id": rows.need(rows.FILLED),
                "result": rows.need(
                    rows.Either(
                        rule="GI-14",
                        rows={str: rows.ANY, dict: rows.ANY, list: rows.Items(item=_RESULT_CONTENT)},
                        name="a string, an object or an array of contents",
                    ),
                    "GI-14",
                ),
            },
            unknown="",
        ),
        "thought": rows.Object(
            rule="GI-03",
            fields={"summary": rows.ARRAY},
            unknown="",
            also=(rows.CrossRule("GI-16", _find_unsigned, advisory=True),),
        ),
    },
)


class _Input(rows.Check, frozen=True):
    """The input: contents of one message, or steps, of any type that is not a content."""

    def check(self, value: Any, at: rows.Path, found: rows.Checked) -> None:
        entries = as_entries(value)
        are_contents = all(map(is_content, entries or ()))
        for index, entry in enumerate(entries or ()):
            place = (at, index) if type(value) is list else at
            if are_contents:
                _CONTENT.check(entry, place, found)
            elif is_content(entry):
                found.add("GI-03", place, "contents and steps cannot be mixed")
            elif type(entry) is not dict or type(entry.get("type")) is not str or entry["type"] in _STEP.kinds:
                _STEP.check(entry, place, found)

    @property
    def rules(self) -> Iterator[str]:
        yield from _CONTENT.rules
        yield from _STEP.rules


def _find_repeated_names(body: dict[str, Any], _: rows.Checked) -> Iterator[rows.Finding]:
    names: set[str] = set()
    tools = body.get("tools")
    for index, tool in enumerate(tools if isinstance(tools, list) else ()):
        name = tool.get("name") if isinstance(tool, dict) and tool.get("type") == "function" else None
        if isinstance(name, str) and name in names:
            yield ("tools", index, "name"), "is declared twice"
        elif isinstance(name, str) and not _TOOL_NAME.problem(name):
            names.add(name)


_FOREIGN: dict[str, rows.Check] = {"function": rows.Refused(), "input_schema": rows.Refused()}
_OTHER_TOOL = rows.Object(rule="GI-08", fields=_FOREIGN, unknown="")  # Google adds tools often
_FUNCTION = rows.Object(
    rule="GI-08", fields={**_FOREIGN, "name": rows.need(_TOOL_NAME), "parameters": rows.OBJECT}, unknown=""
)


class _Tool(rows.Check, frozen=True):
    """A tool: a function, or any other that has a type."""

    def check(self, value: Any, at: rows.Path, found: rows.Checked) -> None:
        kind = value.get("type") if type(value) is dict else None
        if type(kind) is not str:
            found.add(self.rule, at, "a tool must have a type")
        else:
            (_FUNCTION if kind == "function" else _OTHER_TOOL).check(value, at, found)


class _ResponseFormat(rows.Check, frozen=True):
    """The formats of an answer; the first for text may have a schema."""

    def check(self, value: Any, at: rows.Path, found: rows.Checked) -> None:
        for entry in value if type(value) is list else [value]:
            if entry is not None and type(entry) is not dict:
                found.add(self.rule, at, rows.expected("an object", entry))
            elif entry and entry.get("type") == "text":
                mime_type, schema = entry.get("mime_type"), entry.get("schema")
                if mime_type not in (None, _JSON, "text/plain"):
                    found.add(self.rule, (at, "mime_type"), f"must be {_JSON} or text/plain")
                elif schema is not None and (mime_type != _JSON or type(schema) is not dict):
                    found.add(self.rule, (at, "schema"), f"a schema needs mime_type {_JSON}")


def _find_refused(config: dict[str, Any], found: rows.Checked) -> Iterator[rows.Finding]:
    model, level = found.model, config.get("thinking_level")
    refused = refused_fields(model, "GI-07", "GI-07", config.get("temperature"), config.get("top_p"))
    yield from (finding for _, finding in PARAMETER_TABLE.find_refused(config, refused))
    is_level = isinstance(level, str) and level in THINKING_LEVELS
    if is_level and (level not in (model.efforts or THINKING_LEVELS) or model.efforts == () or model.thinking == ()):
        yield "thinking_level", "the model does not support this level"
    if config.get("thinking_summaries") in ("auto", "none") and model.thinking == ():
        yield "thinking_summaries", "the model does not think"


_CHOICE = rows.Either(
    rule="GI-09",
    rows={
        str: rows.OneOf(values=MODES),
        dict: rows.Object(
            fields={"allowed_tools": rows.need(rows.Object(fields={"mode": rows.OneOf(values=MODES)}, unknown=""))},
            unknown="",
        ),
    },
    name="a mode or an object",
)
_BODY = rows.Object(
    rule="GI-02",
    fields={
        **dict.fromkeys(PARAMETERS, rows.ANY),
        **dict.fromkeys(
            ("model", "agent", "previous_interaction_id", "system_instruction", "response_mime_type"), rows.STRING
        ),
        **dict.fromkeys(("background", "store", "stream"), rows.BOOLEAN),
        "service_tier": rows.OneOf(rule="GI-12", values=SERVICE_TIERS),
        "generation_config": rows.Object(
            rule="GI-07",
            unknown="",
            fields={
                **PARAMETER_TABLE.checks("generation_config"),
                "thinking_level": rows.OneOf(values=tuple(sorted(THINKING_LEVELS))),
                "thinking_summaries": rows.OneOf(values=("auto", "none")),
                "tool_choice": _CHOICE,
            },
            also=(rows.CrossRule("GI-07", _find_refused),),
        ),
        "tools": rows.Items(rule="GI-08", item=_Tool()),
        "response_format": _ResponseFormat(rule="GI-11"),
        "input": _Input(rule="GI-03"),
    },
)


def check_request(
    body: Any, options: WriteOptions = DEFAULT_OPTIONS, *, advisories: bool = False
) -> list[rows.Violation]:
    """The rules of the Interactions API that a request body breaks."""
    if not isinstance(body, dict):
        return [rows.Violation("GI-01", "", rows.expected("an object", body))]
    name = body.get("model")
    model = look_up(name if isinstance(name, str) else "", FORMAT, options.capabilities)
    return RULES.check(rows.Checked(body, model, advisories))


def _find_required(body: dict[str, Any], _: rows.Checked) -> Iterator[rows.Finding]:
    given = [name for name in ("model", "agent") if body.get(name)]
    if len(given) != 1:
        yield given[-1] if given else "model", "exactly one of model and agent must be set"
    entries = as_entries(body.get("input"))
    if entries is None or (not entries and not is_continued(body)):
        yield "input", "input must be a string, a content, or a list of contents or steps"


def _find_unstored(body: dict[str, Any], _: rows.Checked) -> Iterator[rows.Finding]:
    if body.get("background") is True and body.get("store") is False:
        yield "background", "needs store"


def _find_choice_without_tools(body: dict[str, Any], _: rows.Checked) -> Iterator[rows.Finding]:
    config = body.get("generation_config")
    if isinstance(config, dict) and config.get("tool_choice") is not None and not body.get("tools"):
        yield ("generation_config", "tool_choice"), "is only allowed with tools"


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


def _judge(body: dict[str, Any], _: rows.Checked) -> list[Problem]:
    return judge_order(_steps(body), is_continued=is_continued(body))


def _place_of(problem: Problem, _: Any) -> tuple[str | int, ...]:
    place = ("input", problem.index)
    return place if problem.kind in ("unanswered", "begins with a call") else (*place, "call_id")


def _find_ending(body: dict[str, Any], found: rows.Checked) -> Iterator[rows.Finding]:
    steps = _steps(body)
    if steps and is_model_step(steps[-1]) and not is_continued(body) and (len(steps) == 1 or not found.model.prefill):
        yield ("input", len(steps) - 1), "the input must end with input of the user or a result"


def _find_media(body: dict[str, Any], found: rows.Checked) -> Iterator[rows.Finding]:
    yield from media_problems(as_entries(body.get("input")), "input", found.model, SPEC.media_blocks, with_types=False)


RULES = rows.RuleBook(
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
    rows.CrossRule("GI-01", _find_required),
    rows.CrossRule("GI-13", _find_unstored),
    rows.CrossRule("GI-08", _find_repeated_names),
    rows.CrossRule("GI-09", _find_choice_without_tools),
    Order(
        {
            "unanswered": "GI-10",
            "orphan": "GI-10",
            "stray": "GI-10",
            "repeated result": "GI-10",
            "begins with a call": "GI-10",
        },
        _judge,
        _place_of,
    ),
    rows.CrossRule("GI-10", _find_ending),
    rows.CrossRule("GI-15", _find_media),
)
