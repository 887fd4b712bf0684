"""The rules of Chat Completions (OC-01 to OC-32, MI-01, MI-02, DS-01) as rows, and the check of a request body.

An error is what api.openai.com certainly refuses. What only some models or hosts refuse is an advisory; a host's rules apply if
the body's `model` is one of its models. A null parameter is absent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from antiphon.wire import rules as rows
from antiphon.wire.capabilities import look_up
from antiphon.wire.capabilities.accepted_media import media_problems
from antiphon.wire.format import DEFAULT_OPTIONS, WriteOptions
from antiphon.wire.loss import Loss
from antiphon.wire.openai_chat import FORMAT, SPEC
from antiphon.wire.openai_chat.dialects import get_dialect
from antiphon.wire.openai_chat.limits import (
    PARAMETERS,
    PARTICIPANT_NAMES,
)
from antiphon.wire.openai_chat.parameters import PARAMETER_TABLE
from antiphon.wire.openai_chat.rules.advisories import ADVISORIES, SDK_ONLY_PARAMETERS, list_of
from antiphon.wire.rules.sequence import Order, Problem, SequenceJudge
from antiphon.wire.spec import SequenceRule
from antiphon.wire.vendors.openai import mentions_json, texts_of
from antiphon.wire.vendors.openai_rules import (
    UNSUPPORTED,
    ImageUrl,
    declared_function,
    output_schema,
    refused_parameters,
    refused_switch,
    tool_name,
)

_CONTENT_SUBSTITUTES = ("tool_calls", "function_call", "refusal", "audio")
_CHOICES = ("none", "auto", "required")

_URL = ImageUrl(format_name=FORMAT, rule="OC-13")
_IMAGE = rows.Either(
    rows={
        str: _URL,
        dict: rows.Object(fields={"url": rows.need(_URL)}, unknown=""),
    },  # a string was accepted in recordings
    name="an object",
    rule="OC-13",
)


def _part(name: str, row: rows.Check, rule: str = "OC-12") -> rows.Object:
    return rows.Object(rule=rule, fields={name: rows.need(row)}, unknown="")


class _Parts(rows.Tagged, frozen=True):
    """The content parts of a role; a model's message also has those of its host."""

    has_host_parts: bool = False

    def check(self, value: Any, at: Any, found: rows.Checked) -> None:
        kind = value.get("type") if type(value) is dict else None
        if self.has_host_parts and type(kind) is str and kind in found.target:
            _part(kind, _LIST_OF_THOUGHTS).check(value, at, found)
        else:
            rows.Tagged.check(self, value, at, found)


_LIST_OF_THOUGHTS = rows.Items(rule="OC-12")
_PARTS: dict[str, rows.Check] = {
    "text": _part("text", rows.STRING),
    "image_url": _part("image_url", _IMAGE, "OC-13"),
    "input_audio": _part("input_audio", rows.OBJECT),
    "file": _part("file", rows.OBJECT),
    "audio": rows.ANY,
}


def _content(parts: rows.Tagged) -> rows.Either:
    return rows.Either(
        rows={str: rows.ANY, list: rows.Items(item=parts, min_length=1, empty_rule="OC-11")},
        name="a string or an array of objects",
        rule="OC-10",
    )


_CONTENT = _content(_Parts(kinds=_PARTS, at_tag=True, rule="OC-12", missing="OC-11"))
_MODEL_CONTENT = _content(
    _Parts(
        kinds={**_PARTS, "refusal": _part("refusal", rows.STRING)},
        at_tag=True,
        rule="OC-12",
        missing="OC-11",
        has_host_parts=True,
    )
)


def _called(text: str) -> rows.Object:
    fields: dict[str, rows.Check] = {"name": rows.need(tool_name(FORMAT, "OC-08")), text: rows.need(rows.STRING)}
    return rows.Object(rule="OC-07", fields=fields, unknown="")


_CALL = rows.Object(
    rule="OC-07",
    fields={"id": rows.need(rows.STRING), "function": _called("arguments"), "custom": _called("input")},
    unknown="",
    also=(rows.CrossRule("OC-07", lambda call, _: _find_called(call, call.get("type"))),),
)


def _find_called(call: dict[str, Any], kind: Any) -> Iterator[rows.Finding]:
    if kind is None:
        yield "type", "is required"
    elif kind not in ("function", "custom"):
        yield "type", "must be function or custom"
    elif call.get(kind) is None:
        yield kind, "is required"


_PARTICIPANT = rows.String(
    rule="OC-25",
    accepts=lambda name: PARTICIPANT_NAMES.to_wire(name) == name,
    name="is too long or has illegal characters",
)


def _message(content: rows.Check, *also: rows.CrossRule, **fields: rows.Check) -> rows.Object:
    return rows.Object(rule="OC-02", fields={"content": content, "name": _PARTICIPANT, **fields}, unknown="", also=also)


def _find_missing_content(message: dict[str, Any], _: rows.Checked) -> Iterator[rows.Finding]:
    if message.get("content") is None and not (
        message.get("role") == "assistant" and any(map(message.get, _CONTENT_SUBSTITUTES))
    ):
        yield "content", "expected a string, got null"


def _find_system_role(_: dict[str, Any], found: rows.Checked) -> Iterator[rows.Finding]:
    if found.model.system_messages == "none":  # reasoning models of the first generation
        yield "role", "the model has no such role"


_NEEDS_CONTENT = rows.CrossRule("OC-10", _find_missing_content)
_SYSTEM = _message(_CONTENT, _NEEDS_CONTENT, rows.CrossRule("OC-02", _find_system_role))
_MESSAGES = rows.Tagged(
    tag="role",
    kinds={
        "system": _SYSTEM,
        "assistant": _message(
            _MODEL_CONTENT, _NEEDS_CONTENT, tool_calls=rows.Items(item=_CALL, min_length=1, rule="OC-06")
        ),
        "user": _message(_CONTENT, _NEEDS_CONTENT),
        "function": rows.Object(
            rule="OC-02", fields={"content": _CONTENT, "name": rows.need(_PARTICIPANT, "OC-28")}, unknown=""
        ),
        "tool": _message(_CONTENT, _NEEDS_CONTENT),
        "developer": _SYSTEM,
    },
    at_tag=True,
    rule="OC-02",
    shape="OC-01",
)
_FUNCTION = declared_function(FORMAT, "OC-15", "OC-08", "OC-16", "OC-17")
_TOOL = rows.Tagged(
    kinds={
        kind: rows.Object(rule="OC-15", fields={kind: rows.need(_FUNCTION)}, unknown="")
        for kind in ("function", "custom")
    },
    at_tag=True,
    rule="OC-15",
)
_OUTPUT_FORMAT = rows.Tagged(
    kinds={
        "text": rows.ANY,
        "json_object": rows.ANY,
        "json_schema": rows.Object(
            rule="OC-24",
            fields={"json_schema": rows.need(output_schema("OC-24", "OC-17", is_schema_needed=False))},
            unknown="",
        ),
    },
    at_tag=True,
    rule="OC-24",
)
_BODY = rows.Object(
    rule="OC-01",
    unknown="OC-26",
    fields={
        **dict.fromkeys(PARAMETERS | SDK_ONLY_PARAMETERS, rows.ANY),
        **PARAMETER_TABLE.checks(),
        "model": rows.STRING,
        "messages": rows.need(rows.Items(item=_MESSAGES, min_length=1, rule="OC-01")),
        "tools": rows.Items(item=_TOOL, min_length=1, empty_rule="OC-14", rule="OC-15"),
        "functions": rows.Items(item=_FUNCTION, min_length=1, empty_rule="OC-14", rule="OC-15"),
        "tool_choice": rows.Either(
            rows={str: rows.OneOf(values=_CHOICES), dict: rows.ANY}, name="a string or an object", rule="OC-18"
        ),
        "parallel_tool_calls": rows.BOOLEAN.under("OC-19"),
        "stream": rows.BOOLEAN.under("OC-22"),
        "response_format": _OUTPUT_FORMAT,
    },
)


def check_request(
    body: Any, options: WriteOptions = DEFAULT_OPTIONS, *, advisories: bool = False
) -> list[rows.Violation]:
    """The rules of Chat Completions that a request body breaks; advisories follow the errors, on request."""
    if not isinstance(body, dict):
        return [rows.Violation("OC-01", "", rows.expected("an object", body))]
    model = body.get("model")
    capabilities = look_up(model if isinstance(model, str) else "", FORMAT, options.capabilities)
    host_fields = get_dialect(options.dialect).host_fields if options.dialect else frozenset[str]()
    return RULES.check(rows.Checked(body, capabilities, advisories, target=host_fields))


def judge_order(messages: list[Any]) -> list[Problem]:
    """What is wrong with the order of calls and tool messages: any other message ends the results of the calls before it."""
    judge = SequenceJudge(SequenceRule())
    for index, message in enumerate(messages):
        role = message.get("role") if isinstance(message, dict) else None
        if role == "tool":
            judge.turn(False)
            call_id = message.get("tool_call_id")
            judge.result(call_id if isinstance(call_id, str) else f"\0{index}", index)
            continue
        judge.turn(True)
        for call in list_of(message.get("tool_calls")) if role == "assistant" else ():
            if isinstance(call, dict) and isinstance(call.get("id"), str):
                judge.call(call["id"], index)
    return judge.end()


def _place_of(problem: Problem, _: Any) -> tuple[str | int, ...]:
    field = {"unanswered": "tool_calls", "stray": "role"}.get(problem.kind, "tool_call_id")
    return ("messages", problem.index, field)


def _find_needs_tools(body: dict[str, Any], _: rows.Checked) -> Iterator[tuple[str, rows.Finding]]:
    for rule, argument, needed in (
        ("OC-18", "tool_choice", "tools"),
        ("OC-19", "parallel_tool_calls", "tools"),
        ("OC-18", "function_call", "functions"),
    ):
        if body.get(argument) is not None and body.get(needed) is None:
            yield rule, (argument, f"is only allowed with {needed}")


def _drop_without_tools(body: dict[str, Any], writing: Any) -> None:
    if writing.host.allows_choice_without_tools:
        return
    for rule, (name, message) in list(_find_needs_tools(body, rows.Checked(body, writing.model))):
        del body[str(name)]
        field = "tool_choice" if name == "function_call" else str(name)
        writing.losses.append(Loss(field, field, f"{message}; dropped ({rule})"))


def _find_unknown_choice(body: dict[str, Any], _: rows.Checked) -> Iterator[rows.Finding]:
    choice = body.get("tool_choice")
    if not isinstance(choice, dict):
        return
    declared = {name for tool in list_of(body.get("tools")) if (name := _tool_name(tool))}
    kind, kinds = choice.get("type"), ("function", "custom", "allowed_tools")
    if kind not in kinds:
        yield ("tool_choice", "type"), f"must be one of {', '.join(kinds)}"
    elif not isinstance(choice.get(kind), dict):
        yield ("tool_choice", kind), rows.expected("an object", choice.get(kind))
    else:
        tools = choice[kind].get("tools") if kind == "allowed_tools" else [choice]
        if not isinstance(tools, list):
            yield ("tool_choice", kind, "tools"), rows.expected("an array", tools)
        elif declared:
            undeclared = [name for name in map(_tool_name, tools) if name not in declared]
            yield from (("tool_choice", f'no tool "{name[:80]}" is declared') for name in undeclared)


def _tool_name(tool: Any) -> str:
    for kind in ("function", "custom"):
        named = tool.get(kind) if isinstance(tool, dict) else None
        if isinstance(named, dict) and isinstance(named.get("name"), str):
            return str(named["name"])
    return ""


def _find_refused(body: dict[str, Any], found: rows.Checked) -> Iterator[rows.Finding]:
    accepted = found.model.sampling
    if body.get("logit_bias") is not None and accepted is not None and "logit_bias" not in accepted:
        yield "logit_bias", UNSUPPORTED
    if body.get("web_search_options") is not None and not found.model.web_search:
        yield "web_search_options", UNSUPPORTED


def _find_old_limit(body: dict[str, Any], found: rows.Checked) -> Iterator[rows.Finding]:
    if body.get("max_tokens") is not None and not found.model.max_tokens:
        yield "max_tokens", f"{UNSUPPORTED}; use max_completion_tokens"


def _rename_old_limit(body: dict[str, Any], writing: rows.Writing) -> None:
    """Send the limit under its new name, for a model that refuses the old one."""
    if writing.model.max_tokens or body.get("max_tokens") is None:
        return
    value = body.pop("max_tokens")
    if "max_completion_tokens" not in body and type(value) is int and value > 0:
        body["max_completion_tokens"] = value
    elif body.get("max_completion_tokens") != value:
        writing.losses.append(Loss("native.max_tokens", "max_tokens", f"{UNSUPPORTED}; dropped (OC-26)"))


def _find_stream_options(body: dict[str, Any], _: rows.Checked) -> Iterator[rows.Finding]:
    stream = body.get("stream")
    if body.get("stream_options") is not None and not stream and isinstance(stream, bool | None):
        yield "stream_options", "is only allowed with stream"


def _find_two_limits(body: dict[str, Any], _: rows.Checked) -> Iterator[rows.Finding]:
    if body.get("max_tokens") is not None and body.get("max_completion_tokens") is not None:
        yield "max_tokens", "max_tokens and max_completion_tokens exclude each other"


def _find_unmentioned_json(body: dict[str, Any], _: rows.Checked) -> Iterator[rows.Finding]:
    wanted = body.get("response_format")
    if (
        isinstance(wanted, dict)
        and wanted.get("type") == "json_object"
        and not any(mentions_json(text) for text in texts_of(body.get("messages")))
    ):
        yield "messages", 'must contain the word "json" for the output format json_object'


def _find_media(body: dict[str, Any], found: rows.Checked) -> Iterator[rows.Finding]:
    if isinstance(body.get("messages"), list):
        yield from media_problems(body["messages"], "messages", found.model, SPEC.media_blocks)


RULES = rows.RuleBook(
    {
        "OC-01": "OpenAPI; report CopilotKit/CopilotKit#529",
        "OC-02": "OpenAPI; recorded",
        "OC-03": "report aliasrobotics/cai#111",
        "OC-04": "report miurla/morphic#136",
        "OC-05": "report agno-agi/agno#5116",
        "OC-06": "report openai/openai-node#1341",
        "OC-07": "OpenAPI",
        "OC-08": "reports LaurieWired/GhidraMCP#116, continuedev/continue#11645",
        "OC-09": "reports vercel/ai#5171, vercel/ai#17233",
        "OC-10": "report run-llama/llama_index#17921",
        "OC-11": "OpenAPI; recorded",
        "OC-12": "OpenAPI; recorded",
        "OC-13": "recorded",
        "OC-14": "report continuedev/continue#3403",
        "OC-15": "OpenAPI",
        "OC-16": "report chatanywhere/GPT_API_free#403",
        "OC-17": "reports lastmile-ai/openai-agents-mcp#2, makenotion/notion-mcp-server#102",
        "OC-18": "OpenAPI",
        "OC-19": "report openai/swarm#30",
        "OC-20": "OpenAPI; recorded",
        "OC-21": "OpenAPI",
        "OC-22": "OpenAPI",
        "OC-23": "OpenAI's error text",
        "OC-24": "OpenAPI",
        "OC-25": "OpenAI's error text",
        "OC-26": "reports nashsu/llm_wiki#336, davidmigloz/langchain_dart#712",
        "OC-27": "OpenAPI",
        "OC-28": "OpenAPI",
        "OC-29": "reports musistudio/claude-code-router#686, getsentry/sentry-mcp#106",
        "OC-30": "reports OpenHands/OpenHands#7700, openai/openai-openapi#523",
        "OC-31": "OpenAPI",
        "OC-32": "reports nspady/google-calendar-mcp#39, langchain-ai/langchainjs#9804",
        "MI-01": "report editor-code-assistant/eca#233",
        "MI-02": "report datapizza-labs/datapizza-ai#98",
        "DS-01": "reports earendil-works/pi#3636, qwersyk/Newelle#404",
    },
    _BODY,
    Order(
        {"unanswered": "OC-03", "stray": "OC-04", "orphan": "OC-04", "repeated result": "OC-05"},
        lambda body, _: judge_order(list_of(body.get("messages"))),
        _place_of,
    ),
    rows.CrossRule("OC-13", _find_media),
    rows.CrossRules(("OC-18", "OC-19"), _find_needs_tools, stage="choice", fix=_drop_without_tools),
    rows.CrossRule("OC-18", _find_unknown_choice),
    refused_parameters("OC-26", PARAMETER_TABLE, ("reasoning_effort",)),
    refused_switch("OC-26"),
    rows.drop_found("OC-26", _find_refused),
    rows.CrossRule("OC-26", _find_old_limit, fix=_rename_old_limit),
    rows.CrossRule("OC-22", _find_stream_options),
    rows.CrossRule("OC-23", _find_two_limits),
    rows.CrossRule("OC-24", _find_unmentioned_json),
    *ADVISORIES,
)
