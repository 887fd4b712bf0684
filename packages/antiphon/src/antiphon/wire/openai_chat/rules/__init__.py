"""The rules of Chat Completions (OC-01 to OC-32, MI-01, MI-02, DS-01) as rows.

An error is what api.openai.com certainly refuses. What only some models or hosts refuse is an advisory (`advice`). A null
parameter is absent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from antiphon.wire import rules as rows
from antiphon.wire.capabilities import Capabilities
from antiphon.wire.format import WriteOptions
from antiphon.wire.loss import Loss
from antiphon.wire.openai_chat import FORMAT, SPEC
from antiphon.wire.openai_chat.dialects import get_dialect
from antiphon.wire.openai_chat.limits import PARAMETER_TABLE, PARAMETERS, PARTICIPANT_NAMES
from antiphon.wire.openai_chat.rules.advice import ADVICE, SDK_ONLY_PARAMETERS
from antiphon.wire.rules import ANY, STRING, Checked, Items, either, list_of, need, record
from antiphon.wire.rules.book import (
    CrossRule,
    Finding,
    RuleBook,
    Writing,
    accepted_media,
    drop_found,
    excludes,
    find_undeclared,
)
from antiphon.wire.rules.sequence import Order, Problem, SequenceJudge
from antiphon.wire.shared_openai import (
    UNSUPPORTED,
    ImageUrl,
    declared_function,
    mentions_json,
    output_schema,
    refused_parameters,
    refused_switch,
    texts_of,
    tool_name,
)
from antiphon.wire.spec import SequenceRule

_CONTENT_SUBSTITUTES = ("tool_calls", "function_call", "refusal", "audio")

_URL = ImageUrl(format_name=FORMAT, rule="OC-13")
_IMAGE = either({dict: record(url=need(_URL)), str: _URL}, "OC-13")  # a string was accepted in recordings


class _Parts(rows.Tagged, frozen=True):
    """The content parts of a role; a model's message also has those of its host."""

    has_host_parts: bool = False

    def check(self, value: Any, at: rows.Path, found: Checked) -> None:
        kind = value.get("type") if type(value) is dict else None
        if self.has_host_parts and type(kind) is str and kind in found.target:
            record("OC-12", **{kind: need(Items())}).check(value, at, found)
        else:
            rows.Tagged.check(self, value, at, found)


_PARTS: dict[str, rows.Check] = {
    "text": record("OC-12", text=need(STRING)),
    "image_url": record("OC-13", image_url=need(_IMAGE)),
    "input_audio": record("OC-12", input_audio=need(rows.OBJECT)),
    "file": record("OC-12", file=need(rows.OBJECT)),
    "audio": ANY,
}


def _content(has_host_parts: bool = False, **kinds: rows.Check) -> rows.Either:
    parts = _Parts(kinds={**_PARTS, **kinds}, at_tag=True, rule="OC-12", missing="OC-11", has_host_parts=has_host_parts)
    return either({str: ANY, list: Items(item=parts, min_length=1, empty_rule="OC-11")}, "OC-10")


_CONTENT = _content()
_MODEL_CONTENT = _content(has_host_parts=True, refusal=record("OC-12", refusal=need(STRING)))


def _find_called(call: dict[str, Any], _: Checked) -> Iterator[Finding]:
    kind = call.get("type")
    if kind is None:
        yield "type", "is required"
    elif kind not in ("function", "custom"):
        yield "type", "must be function or custom"
    elif call.get(kind) is None:
        yield kind, "is required"


_CALLED_NAME = need(tool_name(FORMAT, "OC-08"))
_CALL = record(
    "OC-07",
    CrossRule("OC-07", _find_called),
    id=need(STRING),
    function=record(name=_CALLED_NAME, arguments=need(STRING)),
    custom=record(name=_CALLED_NAME, input=need(STRING)),
)
_PARTICIPANT = rows.String(
    rule="OC-25",
    accepts=lambda name: PARTICIPANT_NAMES.to_wire(name) == name,
    name="is too long or has illegal characters",
)


def _find_missing_content(message: dict[str, Any], _: Checked) -> Iterator[Finding]:
    if message.get("content") is None and not (
        message.get("role") == "assistant" and any(map(message.get, _CONTENT_SUBSTITUTES))
    ):
        yield "content", "expected a string, got null"


def _find_system_role(_: dict[str, Any], found: Checked) -> Iterator[Finding]:
    if found.model.system_messages == "none":  # reasoning models of the first generation
        yield "role", "the model has no such role"


_NEEDS_CONTENT = CrossRule("OC-10", _find_missing_content)
_SYSTEM = record("OC-02", _NEEDS_CONTENT, CrossRule("OC-02", _find_system_role), content=_CONTENT, name=_PARTICIPANT)
_FROM_CLIENT = record("OC-02", _NEEDS_CONTENT, content=_CONTENT, name=_PARTICIPANT)
_MESSAGES = rows.Tagged(
    tag="role",
    kinds={
        "system": _SYSTEM,
        "assistant": record(
            "OC-02",
            _NEEDS_CONTENT,
            content=_MODEL_CONTENT,
            name=_PARTICIPANT,
            tool_calls=Items(item=_CALL, min_length=1, rule="OC-06"),
        ),
        "user": _FROM_CLIENT,
        "function": record("OC-02", content=_CONTENT, name=need(_PARTICIPANT, "OC-28")),
        "tool": _FROM_CLIENT,
        "developer": _SYSTEM,
    },
    at_tag=True,
    rule="OC-02",
    shape="OC-01",
)
_FUNCTION = declared_function(FORMAT, "OC-15", "OC-08", "OC-16", "OC-17")
_TOOL = rows.Tagged(
    kinds={kind: record("OC-15", **{kind: need(_FUNCTION)}) for kind in ("function", "custom")},
    at_tag=True,
    rule="OC-15",
)
_CHOICE = rows.Tagged(
    kinds={
        **{kind: record("OC-18", **{kind: need(rows.OBJECT)}) for kind in ("function", "custom")},
        "allowed_tools": record("OC-18", allowed_tools=need(record(tools=need(rows.ARRAY)))),
    },
    at_tag=True,
)
_OUTPUT_SCHEMA = output_schema("OC-24", "OC-17", is_schema_needed=False)
_OUTPUT_FORMAT = rows.Tagged(
    kinds={"text": ANY, "json_object": ANY, "json_schema": record("OC-24", json_schema=need(_OUTPUT_SCHEMA))},
    at_tag=True,
    rule="OC-24",
)
_BODY = rows.Object(
    rule="OC-01",
    unknown="OC-26",
    fields={
        **dict.fromkeys(PARAMETERS | SDK_ONLY_PARAMETERS, ANY),
        **PARAMETER_TABLE.checks(),
        "model": STRING,
        "messages": need(Items(item=_MESSAGES, min_length=1)),
        "tools": Items(item=_TOOL, min_length=1, empty_rule="OC-14", rule="OC-15"),
        "functions": Items(item=_FUNCTION, min_length=1, empty_rule="OC-14", rule="OC-15"),
        "tool_choice": either({str: rows.OneOf(values=("none", "auto", "required")), dict: _CHOICE}, "OC-18"),
        "parallel_tool_calls": rows.BOOLEAN.under("OC-19"),
        "stream": rows.BOOLEAN.under("OC-22"),
        "response_format": _OUTPUT_FORMAT,
    },
)


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


def _needs(rule: str, name: str, other: str) -> CrossRule:
    """A field that is only allowed with another."""

    def find(body: dict[str, Any], _: Checked) -> Iterator[Finding]:
        if body.get(name) is not None and (body.get(other) is None or body[other] is False):
            yield name, f"is only allowed with {other}"

    return CrossRule(rule, find)


def _needs_tools(rule: str, name: str, tools: str = "tools") -> CrossRule:
    """The same of a choice among tools, which a writer leaves out without them, where the host refuses it."""
    row = _needs(rule, name, tools)
    field = "tool_choice" if name == "function_call" else name

    def fix(body: dict[str, Any], writing: Any) -> None:
        if not writing.host.allows_choice_without_tools:
            for _, message in list(row.find(body, Checked(body, writing.model))):
                del body[name]
                writing.losses.append(Loss(field, field, f"{message}; dropped ({rule})"))

    return CrossRule(rule, row.find, "choice", fix)


def _find_unknown_choice(body: dict[str, Any], _: Checked) -> Iterator[Finding]:
    choice = body.get("tool_choice")
    declared = {name for tool in list_of(body.get("tools")) if (name := _tool_name(tool))}
    match choice:
        case {"type": "allowed_tools", "allowed_tools": {"tools": list(chosen)}}:
            pass
        case {"type": "function", "function": dict()} | {"type": "custom", "custom": dict()}:
            chosen = [choice]
        case _:
            return
    if declared:
        yield from (("tool_choice", message) for message in find_undeclared(map(_tool_name, chosen), declared))


def _tool_name(tool: Any) -> str:
    for kind in ("function", "custom"):
        named = tool.get(kind) if isinstance(tool, dict) else None
        if isinstance(named, dict) and isinstance(named.get("name"), str):
            return str(named["name"])
    return ""


def _find_refused(body: dict[str, Any], found: Checked) -> Iterator[Finding]:
    accepted = found.model.sampling
    if body.get("logit_bias") is not None and accepted is not None and "logit_bias" not in accepted:
        yield "logit_bias", UNSUPPORTED
    if body.get("web_search_options") is not None and not found.model.web_search:
        yield "web_search_options", UNSUPPORTED


def _find_old_limit(body: dict[str, Any], found: Checked) -> Iterator[Finding]:
    if body.get("max_tokens") is not None and not found.model.max_tokens:
        yield "max_tokens", f"{UNSUPPORTED}; use max_completion_tokens"


def _rename_old_limit(body: dict[str, Any], writing: Writing) -> None:
    """Send the limit under its new name, for a model that refuses the old one."""
    if writing.model.max_tokens or body.get("max_tokens") is None:
        return
    value = body.pop("max_tokens")
    if "max_completion_tokens" not in body and type(value) is int and value > 0:
        body["max_completion_tokens"] = value
    elif body.get("max_completion_tokens") != value:
        writing.losses.append(Loss("native.max_tokens", "max_tokens", f"{UNSUPPORTED}; dropped (OC-26)"))


def _find_unmentioned_json(body: dict[str, Any], _: Checked) -> Iterator[Finding]:
    wanted = body.get("response_format")
    if (
        isinstance(wanted, dict)
        and wanted.get("type") == "json_object"
        and not any(mentions_json(text) for text in texts_of(body.get("messages")))
    ):
        yield "messages", 'must contain the word "json" for the output format json_object'


def _host_fields(_body: dict[str, Any], options: WriteOptions, _model: Capabilities) -> frozenset[str]:
    return get_dialect(options.dialect).host_fields if options.dialect else frozenset()


RULES = RuleBook(
    FORMAT,
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
        broken={"unanswered": "OC-03", "stray": "OC-04", "orphan": "OC-04", "repeated result": "OC-05"},
        judge=lambda body, _: judge_order(list_of(body.get("messages"))),
        place=_place_of,
    ),
    accepted_media("OC-13", SPEC),
    _needs_tools("OC-18", "tool_choice"),
    _needs_tools("OC-19", "parallel_tool_calls"),
    _needs_tools("OC-18", "function_call", "functions"),
    CrossRule("OC-18", _find_unknown_choice),
    refused_parameters("OC-26", PARAMETER_TABLE, ("reasoning_effort",)),
    refused_switch("OC-26"),
    drop_found("OC-26", _find_refused),
    CrossRule("OC-26", _find_old_limit, fix=_rename_old_limit),
    _needs("OC-22", "stream_options", "stream"),
    excludes("OC-23", "max_tokens", "max_completion_tokens"),
    CrossRule("OC-24", _find_unmentioned_json),
    advice=ADVICE,
    target=_host_fields,
)
check_request = RULES.check_request
