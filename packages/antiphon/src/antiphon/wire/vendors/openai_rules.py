"""The rows that Chat Completions and Responses share: functions, output schemas, image URLs, and what a model refuses."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from antiphon.wire import rules as rows
from antiphon.wire.capabilities import format_capabilities, tool_name_matcher
from antiphon.wire.loss import Loss
from antiphon.wire.media import is_web_url, looks_like_base64, parse_data_url
from antiphon.wire.parameters import ParameterTable
from antiphon.wire.schema import MAX_SCHEMA_PROBLEMS, STRICT_MODE, is_object_schema, problems
from antiphon.wire.vendors.openai import is_name
from antiphon.wire.vendors.openai_parameters import find_refused

UNSUPPORTED = "the model does not support it"


class ImageUrl(rows.Check, frozen=True):
    """The URL of an image: http(s), or a data URL of a type that the models accept."""

    format_name: str

    def check(self, value: Any, at: rows.Path, found: rows.Checked) -> None:
        if type(value) is not str:
            rows.STRING.under(self.rule).check(value, at, found)
        elif not is_web_url(value):
            parsed = parse_data_url(value)
            if parsed is None:
                found.add(self.rule, at, "must be a web address or a data URL")
            elif not format_capabilities(self.format_name).accepts_image(
                parsed.media_type.lower()
            ) or not looks_like_base64(parsed.data):
                found.add(self.rule, at, "must hold a PNG, JPEG, GIF or WebP image in base64")


class Schema(rows.Check, frozen=True):
    """The schema of a function's parameters: of an object."""

    def check(self, value: Any, at: rows.Path, found: rows.Checked) -> None:
        if type(value) is not dict:
            rows.OBJECT.under(self.rule).check(value, at, found)
        elif not is_object_schema(value):
            found.add(self.rule, at, 'must be a schema of type "object"')


def tool_name(format_name: str, rule: str = "") -> rows.String:
    """The name of a tool."""
    name = "must have only letters, digits, - and _, and not too many of them"
    return rows.String(rule=rule, accepts=lambda text: tool_name_matcher(format_name)(text), name=name)


def declared_function(
    format_name: str, shape: str, name: str, parameters: str, strict: str, **others: rows.Check
) -> rows.Object:
    """A declared function, with the rule ids of a format."""
    return rows.Object(
        rule=shape,
        fields={
            "name": rows.need(tool_name(format_name, name)),
            "description": rows.STRING,
            "strict": rows.BOOLEAN,
            "parameters": Schema(rule=parameters),
            **others,
        },
        unknown="",
        also=(rows.CrossRule(strict, _find_strict_parameters),),
    )


def _find_strict_parameters(function: dict[str, Any], _: rows.Checked) -> Iterator[rows.Finding]:
    schema = function.get("parameters")
    if function.get("strict") is True and type(schema) is dict:
        yield from (("parameters", problem) for problem in islice(problems(schema, STRICT_MODE), MAX_SCHEMA_PROBLEMS))


def output_schema(rule: str, strict: str, *, is_schema_needed: bool) -> rows.Object:
    """A json_schema output format."""
    name = "must have 1 to 64 letters, digits, - and _"
    return rows.Object(
        rule=rule,
        fields={
            "name": rows.need(rows.String(accepts=is_name, name=name)),
            "schema": rows.need(rows.OBJECT) if is_schema_needed else rows.OBJECT,
        },
        unknown="",
        also=(rows.CrossRule(strict, _find_strict_output),),
    )


def _find_strict_output(output_format: dict[str, Any], _: rows.Checked) -> Iterator[rows.Finding]:
    schema = output_format.get("schema")
    if output_format.get("strict") is True and type(schema) is dict:
        if schema.get("type") is not None and not is_object_schema(schema):
            yield "schema", 'must be a schema of type "object"'
        yield from (("schema", problem) for problem in islice(problems(schema, STRICT_MODE), MAX_SCHEMA_PROBLEMS))


def refused_parameters(rule: str, table: ParameterTable, effort_path: tuple[str, ...]) -> rows.CrossRules:
    """What a model refuses: sampling parameters and an effort."""

    def find(body: dict[str, Any], found: rows.Checked) -> Iterator[tuple[str, rows.Finding]]:
        effort: Any = body
        for step in effort_path:
            effort = effort.get(step) if type(effort) is dict else None
        model, efforts = found.model, found.model.efforts
        refused = find_refused(model, rule, body.get("temperature"), body.get("top_p"), effort)
        if refused:
            yield from table.find_refused(body, refused)
        if effort is not None and efforts is not None and effort not in efforts:
            yield rule, (effort_path, rows.not_one_of(efforts, effort) if efforts else UNSUPPORTED)

    return rows.CrossRules((rule,), find)


def refused_switch(rule: str) -> rows.CrossRule:
    """The switch of parallel calls, which some models refuse; true is the default, and dropping it no loss."""

    def find(body: dict[str, Any], found: rows.Checked) -> Iterator[rows.Finding]:
        if body.get("parallel_tool_calls") is not None and not found.model.parallel_tool_switch:
            yield "parallel_tool_calls", UNSUPPORTED

    def fix(body: dict[str, Any], writing: rows.Writing) -> None:
        if not writing.model.parallel_tool_switch and body.pop("parallel_tool_calls", True) is not True:
            reason = f"{UNSUPPORTED}; dropped ({rule})"
            writing.losses.append(Loss("parallel_tool_calls", "parallel_tool_calls", reason))

    return rows.CrossRule(rule, find, fix=fix)
