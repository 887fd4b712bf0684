"""The rows that Chat Completions and Responses share: functions, output schemas, image URLs, and what a model refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from antiphon.wire import rules as rows
from antiphon.wire.capabilities import format_capabilities, tool_name_matcher
from antiphon.wire.loss import Loss
from antiphon.wire.media import is_web_url, looks_like_base64, parse_data_url
from antiphon.wire.parameters import ParameterTable
from antiphon.wire.rules.book import CrossRule, Finding, Writing
from antiphon.wire.schema import STRICT_MODE, is_object_schema, problems
from antiphon.wire.vendors.openai import is_name
from antiphon.wire.vendors.openai_parameters import find_refused

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
    """The name of a tool."""
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
