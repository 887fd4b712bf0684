"""What Chat Completions and Responses share: extras, citations, texts, errors, tools and choices, parameters, rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator
from typing import Any

from antiphon.parts import NativeExtras
from antiphon.wire import rules as rows
from antiphon.wire.capabilities import Capabilities, format_capabilities, tool_name_matcher
from antiphon.wire.errors import ErrorTable, WrittenError
from antiphon.wire.loss import Loss
from antiphon.wire.media import is_web_url, looks_like_base64, parse_data_url
from antiphon.wire.output import ErrorKind
from antiphon.wire.parameters import (
    NUMBER,
    Choice,
    Pairs,
    Parameter,
    ParameterTable,
    Range,
    Rejections,
    lose_fields,
    refused_fields,
)
from antiphon.wire.request import OutputFormat, ToolChoice, ToolDefinition
from antiphon.wire.rules.book import CrossRule, Finding, Writing
from antiphon.wire.shapes import Shape, as_dict
from antiphon.wire.tools.names import safe_name
from antiphon.wire.tools.schema import STRICT_MODE, first_strict_problem, is_object_schema, problems

OPENAI = "openai"
"""The origin of native extras that both formats have."""

SHARED_PARAMETERS = ("safety_identifier", "prompt_cache_retention", "prompt_cache_options", "moderation")
"""Parameters of both formats that no field of a request holds."""
SERVICE_TIERS = {tier: tier for tier in ("auto", "default", "flex", "scale", "priority", "fast")}
SERVICE_TIERS |= {"standard": "default", "standard_only": "default"}  # other providers' names of the default tier
MAX_NAME = 64
"""Of names of output schemas and of ids of items; the length of tool names is in the capability table."""
is_name = re.compile(f"[a-zA-Z0-9_-]{{1,{MAX_NAME}}}").fullmatch

mentions_json = re.compile("json", re.IGNORECASE).search

_SHARED_FIELDS = ("prompt_cache_breakpoint", "detail")


def unread_fields(value: dict[str, Any], origin: str, read: Container[str]) -> NativeExtras | None:
    """The fields of an object that were not read, as native extras."""
    extras: dict[str, Any] = {}
    shared: dict[str, Any] = {}
    for key, field in value.items():
        if key not in read and field is not None:
            (shared if key in _SHARED_FIELDS else extras)[key] = field
    return join_extras(origin, extras, shared)


def join_extras(origin: str, extras: dict[str, Any], shared: dict[str, Any]) -> NativeExtras | None:
    """Extras of one format, and those that both formats have."""
    native = {OPENAI: shared} if shared else {}
    if extras:
        native[origin] = extras
    return native or None


CHAT, RESPONSES = "openai-chat", "openai-responses"
_CITATION = "url_citation"
_CHOICES = {mode: ToolChoice(mode) for mode in ("auto", "none", "required")}


def translate_citations(native: NativeExtras | None, target: str) -> NativeExtras | None:
    """The extras of a text with the citations of the other OpenAI format in the shape of `target`.

    A citation of Chat Completions is nested in `url_citation`, one of Responses has its fields beside `type`.
    """
    source = RESPONSES if target == CHAT else CHAT
    extras = native.get(source) if native is not None else None
    annotations = extras.get("annotations") if extras is not None else None
    if native is None or extras is None or type(annotations) is not list:
        return native
    written: list[Any] = []
    kept: list[Any] = []
    for annotation in annotations:
        is_citation = type(annotation) is dict and annotation.get("type") == _CITATION
        inner = annotation.get(_CITATION) if is_citation and target == RESPONSES else None
        if is_citation and target == CHAT:
            fields = {name: value for name, value in annotation.items() if name != "type"}
            written.append({"type": _CITATION, _CITATION: fields})
        elif type(inner) is dict:
            written.append({"type": _CITATION, **inner})
        else:
            kept.append(annotation)
    if not written:
        return native
    rest = {name: value for name, value in extras.items() if name != "annotations"}
    other = {**rest, "annotations": kept} if kept else rest
    return {**native, source: other, target: {**native.get(target, {}), "annotations": written}}


def translate_grammar(native: NativeExtras | None, target: str) -> NativeExtras | None:
    """The extras of a custom tool with the input format of the other OpenAI format in the shape of `target`.

    Chat Completions nests a grammar: `{"custom": {"format": {"type": "grammar", "grammar": {…}}}}`; Responses does not.
    """
    source = RESPONSES if target == CHAT else CHAT
    extras = native.get(source) if native is not None else None
    if native is None or extras is None:
        return native
    if target == CHAT:
        form, rest = extras.get("format"), {name: value for name, value in extras.items() if name != "format"}
    else:
        custom = extras.get("custom")
        inner = custom if type(custom) is dict else {}
        form, rest = inner.get("format"), {name: value for name, value in extras.items() if name != "custom"}
        if len(inner) > 1:
            rest["custom"] = {name: value for name, value in inner.items() if name != "format"}
    if type(form) is not dict:
        return native
    if form.get("type") == "grammar" and target == CHAT:
        form = {"type": "grammar", "grammar": {name: value for name, value in form.items() if name != "type"}}
    elif form.get("type") == "grammar" and type(form.get("grammar")) is dict:
        form = {"type": "grammar", **form["grammar"]}
    own = {"custom": {"format": form}} if target == CHAT else {"format": form}
    return {**native, source: rest, target: {**native.get(target, {}), **own}}


def texts_of(messages: Any) -> Iterator[str]:
    """The texts in the messages or input items of either format."""
    if isinstance(messages, str):
        yield messages
    for message in messages if isinstance(messages, list) else ():
        content = (message.get("content") or message.get("output")) if isinstance(message, dict) else None
        if isinstance(content, str):
            yield content
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                yield part["text"]


def is_plain_text(part: Any, kind: str) -> bool:
    """Whether a content part is nothing but text of this kind: the common case, decided without making a path."""
    return type(part) is dict and len(part) == 2 and part.get("type") == kind and type(part.get("text")) is str


def collapse_text(content: list[Any], kind: str) -> Any:
    """The string of content that is a single plain text of this kind; else the list."""
    only: Any = content[0] if len(content) == 1 else None
    if isinstance(only, Shape):
        return only.text  # type: ignore[attr-defined]
    return only["text"] if is_plain_text(only, kind) else content


def mark_failed(content: list[Any], kind: str) -> list[Any]:
    """The content of a failed result: its first text begins with "Error:", because both formats have no flag for it."""
    for index, block in enumerate(content):
        block = as_dict(block) if isinstance(block, Shape) else block
        if type(block) is dict and block.get("type") == kind and type(block.get("text")) is str:
            text = block["text"]
            marked = block if text.startswith("Error:") else {**block, "text": f"Error: {text}"}
            return [*content[:index], marked, *content[index + 1 :]]
    return [{"type": kind, "text": "Error: the tool failed."}, *content]


_WRITTEN: dict[ErrorKind, WrittenError] = {
    "invalid_request": WrittenError("invalid_request_error"),
    "context_length": WrittenError("invalid_request_error", "context_length_exceeded"),
    "authentication": WrittenError("invalid_request_error", "invalid_api_key"),
    "billing": WrittenError("insufficient_quota", "insufficient_quota"),
    "permission": WrittenError("permission_error"),
    "not_found": WrittenError("invalid_request_error", "model_not_found"),
    "timeout": WrittenError("timeout_error", "timeout"),
    "conflict": WrittenError("conflict_error"),
    "too_large": WrittenError("invalid_request_error", "request_too_large"),
    "rate_limit": WrittenError("rate_limit_error", "rate_limit_exceeded"),
    "overloaded": WrittenError("server_error", "server_is_overloaded"),
    "server": WrittenError("server_error"),
    "stream_cut": WrittenError("server_error", "stream_cut"),
    "unknown": WrittenError("unknown_error"),
}


def error_table(name: str) -> ErrorTable:
    """The errors of either format, as OpenAI writes them."""
    return ErrorTable(
        format=name,
        code_field="code",
        read_fields=frozenset({"message", "code", "param"}),
        written=_WRITTEN,
        fields=lambda error, row, code: {
            "message": error.message,
            "type": row.type,
            "param": error.param,
            "code": code or row.code,
        },
        vendor_formats=(CHAT, RESPONSES),
        any_code=True,
    )


def shared_rows(range_rule: str, metadata_rule: str, tier_rule: str) -> dict[str, Parameter]:
    """The parameters that both formats have, by key."""
    rows = (
        Parameter("model", "model", (str,), is_written=False),
        Parameter("stream", "stream", (bool,), is_written=False),
        Parameter("parallel_tool_calls", "parallel_tool_calls", (bool,), is_written=False),
        Parameter(
            "temperature", "temperature", NUMBER, Range(rule=range_rule, minimum=0, maximum=2), sends_default=True
        ),
        Parameter("top_p", "top_p", NUMBER, Range(rule=range_rule, minimum=0, maximum=1, unset="drop")),
        Parameter("top_logprobs", "top_logprobs", (int,), Range(rule=range_rule, minimum=0, maximum=20, is_whole=True)),
        Parameter("user", "user", (str,)),
        Parameter("metadata", "metadata", (dict,), Pairs(rule=metadata_rule, at_most=16, max_key=64, max_value=512)),
        Parameter("service_tier", "service_tier", (str,), Choice(rule=tier_rule, values=SERVICE_TIERS)),
        Parameter("cache_key", "prompt_cache_key", (str,)),
        Parameter("store", "store", (bool,)),
    )
    return {row.key: row for row in rows}


def schema_name(output_format: OutputFormat) -> str:
    """The name of an output schema, as OpenAI accepts it (OC-24, OR-17)."""
    name = output_format.name or "response"
    return name if is_name(name) else safe_name(name, MAX_NAME)


def allows_strict(schema: dict[str, Any] | None, losses: list[Loss], path: str, rule: str) -> bool:
    """Whether a schema may be strict."""
    problem = first_strict_problem(schema) if schema is not None else None
    if problem is not None:
        reason = f"schema does not meet strict mode ({problem}); sent without strict ({rule})"
        losses.append(Loss(f"{path}.strict", "strict", reason))
    return problem is None


def described_schema(
    output_format: OutputFormat, losses: list[Loss], rule: str, *, enforces_schemas: bool = True
) -> dict[str, Any]:
    """The name, description and schema of an output format, and whether it is strict."""
    described: dict[str, Any] = {"name": schema_name(output_format)}
    schema, strict = output_format.schema, output_format.strict
    if output_format.description is not None:
        described["description"] = output_format.description
    if schema is not None:
        described["schema"] = schema
    if strict and enforces_schemas and schema is not None:
        if schema.get("type") is not None and not is_object_schema(schema):
            reason = f"the root schema must be an object; sent without strict ({rule})"
            losses.append(Loss("output_format.strict", "strict", reason))
            strict = False
        else:
            strict = allows_strict(schema, losses, "output_format", rule)
    return described if strict is None else {**described, "strict": strict}


def read_choice(
    choice: Any, name_of: Callable[[Any], str | None], allowed_of: Callable[[dict[str, Any]], Any]
) -> ToolChoice | None:
    """The choice among tools; None if only its format has it. `name_of` reads the name of a tool, `allowed_of` gives the object
    that has those which are allowed."""
    if type(choice) is not dict:
        return _CHOICES.get(choice) if type(choice) is str else None
    if choice.get("type") != "allowed_tools":
        name = name_of(choice)
        return None if name is None else ToolChoice("tool", (name,))
    allowed = allowed_of(choice)
    mode, members = (allowed.get("mode"), allowed.get("tools")) if type(allowed) is dict else (None, None)
    if mode not in ("auto", "required") or type(members) is not list:
        return None
    names = tuple(name for member in members if (name := name_of(member)) is not None)
    return ToolChoice("allowed", names, mode == "required") if names and len(names) == len(members) else None


def chosen_names(choice: ToolChoice, declared: Container[str] | None, losses: list[Loss], rule: str) -> list[str]:
    """The tools that a choice names, as far as they are `declared` (None: all may be); the others are reported."""
    known = [name for name in choice.names if declared is None or name in declared]
    if len(known) < len(choice.names):
        why = f"the named tool is not declared; dropped ({rule})"
        losses.extend(Loss("tool_choice", name or '""', why) for name in choice.names if name not in known)
    if not choice.names:
        losses.append(Loss("tool_choice", choice.mode, f"no tool is named; dropped ({rule})"))
    if choice.mode != "tool":
        return known
    why = "only one tool can be named; dropped this one"
    losses.extend(Loss("tool_choice.names", name or '""', why) for name in known[1:])
    return known[:1]


def allowed_tools(choice: ToolChoice, named: list[dict[str, Any]]) -> dict[str, Any]:
    """The object with the tools that are allowed."""
    return {"mode": "required" if choice.must_call else "auto", "tools": named}


def find_refused(capabilities: Capabilities, rule: str, temperature: Any, top_p: Any, effort: Any) -> Rejections:
    """The fields that a model refuses at this effort, or at its default one."""
    is_reasoning = (effort or capabilities.default_effort) not in ("none", None)
    return refused_fields(capabilities, rule, rule, temperature, top_p, is_reasoning=is_reasoning)


def lose_schema_fields(output_format: OutputFormat, kind: str, losses: list[Loss]) -> None:
    """Report the fields of an output format that its `kind` does not have: only `json_schema` has them."""
    names = ("schema", "name", "description", "strict")
    lose_fields(output_format, "output_format", names, f"not supported by {kind}; dropped", losses)


def lose_function_fields(tool: ToolDefinition, losses: list[Loss], path: str) -> None:
    """Report the fields of a freeform tool that only functions have."""
    lose_fields(tool, path, ("parameters", "strict"), "a freeform tool accepts only text; dropped", losses)


UNSUPPORTED = "the model does not support it"


class ImageUrl(rows.Check, frozen=True):
    """The URL of an image: http(s), or a data URL of a type that the models accept."""

    format_name: str

    def check(self, value: Any, at: rows.Path, found: rows.Checked) -> None:
        if type(value) is not str:
            found.add_type(self.rule, at, "a string", value)
        elif not is_web_url(value):
            parsed, accepted = parse_data_url(value), format_capabilities(self.format_name)
            if parsed is None:
                found.add(self.rule, at, "must be a web address or a data URL")
            elif not accepted.accepts_image(parsed.media_type.lower()) or not looks_like_base64(parsed.data):
                found.add(self.rule, at, "must hold a PNG, JPEG, GIF or WebP image in base64")


class Schema(rows.Check, frozen=True):
    """The schema of a function's parameters: of an object."""

    def check(self, value: Any, at: rows.Path, found: rows.Checked) -> None:
        if type(value) is not dict:
            found.add_type(self.rule, at, "an object", value)
        elif not is_object_schema(value):
            found.add(self.rule, at, 'must be a schema of type "object"')


def tool_name(format_name: str, rule: str = "") -> rows.String:
    name = "must have only letters, digits, - and _, and not too many of them"
    return rows.String(rule=rule, accepts=lambda text: tool_name_matcher(format_name)(text), name=name)


def declared_function(format_name: str, shape: str, name: str, parameters: str, strict: str) -> rows.Object:
    """A declared function, with the rule ids of a format."""
    return rows.record(
        shape,
        CrossRule(strict, _find_strict_parameters),
        name=rows.need(tool_name(format_name, name)),
        description=rows.STRING,
        strict=rows.BOOLEAN,
        parameters=Schema(rule=parameters),
    )


def _find_strict_parameters(function: dict[str, Any], _: rows.Checked) -> Iterator[Finding]:
    schema = function.get("parameters")
    if function.get("strict") is True and type(schema) is dict:
        yield from (("parameters", problem) for problem in problems(schema, STRICT_MODE))


def output_schema(rule: str, strict: str, *, is_schema_needed: bool) -> rows.Object:
    """A json_schema output format."""
    name = rows.String(accepts=is_name, name="must have 1 to 64 letters, digits, - and _")
    schema = rows.need(rows.OBJECT) if is_schema_needed else rows.OBJECT
    return rows.record(rule, CrossRule(strict, _find_strict_output), name=rows.need(name), schema=schema)


def _find_strict_output(output_format: dict[str, Any], _: rows.Checked) -> Iterator[Finding]:
    schema = output_format.get("schema")
    if output_format.get("strict") is True and type(schema) is dict:
        if schema.get("type") is not None and not is_object_schema(schema):
            yield "schema", 'must be a schema of type "object"'
        yield from (("schema", problem) for problem in problems(schema, STRICT_MODE))


def refused_parameters(rule: str, table: ParameterTable, effort_path: tuple[str, ...]) -> CrossRule:
    """What a model refuses: sampling parameters and an effort."""

    def find(body: dict[str, Any], found: rows.Checked) -> Iterator[Finding]:
        effort: Any = body
        for step in effort_path:
            effort = effort.get(step) if type(effort) is dict else None
        model, efforts = found.model, found.model.efforts
        refused = find_refused(model, rule, body.get("temperature"), body.get("top_p"), effort)
        yield from table.find_refused(body, refused, rule)
        if effort is not None and efforts is not None and effort not in efforts:
            yield effort_path, rows.not_one_of(efforts, effort) if efforts else UNSUPPORTED

    return CrossRule(rule, find)


def refused_switch(rule: str) -> CrossRule:
    """The switch of parallel calls, which some models refuse; true is the default, and dropping it no loss."""

    def find(body: dict[str, Any], found: rows.Checked) -> Iterator[Finding]:
        if body.get("parallel_tool_calls") is not None and not found.model.parallel_tool_switch:
            yield "parallel_tool_calls", UNSUPPORTED

    def fix(body: dict[str, Any], writing: Writing) -> None:
        if not writing.model.parallel_tool_switch and body.pop("parallel_tool_calls", True) is not True:
            reason = f"{UNSUPPORTED}; dropped ({rule})"
            writing.losses.append(Loss("parallel_tool_calls", "parallel_tool_calls", reason))

    return CrossRule(rule, find, fix=fix)
