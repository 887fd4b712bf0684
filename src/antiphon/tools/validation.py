"""Arguments checked, and what is wrong with them said so that a model can do better.

Who judges: msgspec (and pydantic) for functions, because it also converts; jsonschema for raw schemas. They stop at the first
problem or speak of their own internals, so once something is wrong, `find_problems` is asked for everything that is. A judge's
own words are used only for what it does not know.

Nothing is guessed: "5" is no integer, unless the tool was declared `lax`.
"""

from __future__ import annotations

import logging
import re
from typing import Any

import msgspec

from antiphon.errors import InvalidArguments, InvalidTool
from antiphon.tools.problems import WALKED_KEYWORDS, find_problems, joined, judged, shortened, shown, shown_text, usage
from antiphon.tools.schema import Signature, convert_path

logger = logging.getLogger("antiphon.tools")

MAX_PROBLEMS = 12


def check_signature(tool_name: str, signature: Signature, arguments: dict[str, Any], *, lax: bool) -> dict[str, Any]:
    """The arguments of a function, converted. Raises `InvalidArguments` with all that is wrong."""
    try:
        given = msgspec.convert(arguments, signature.arguments, strict=not lax, dec_hook=convert_path, str_keys=True)
        converted = {name: getattr(given, name) for name in arguments if name in signature.names}
        if len(converted) != len(arguments):
            _convert_extra(signature, arguments, converted, lax=lax)
    except (msgspec.ValidationError, NotImplementedError) as error:
        said = _without_idle_nulls(signature.schema, arguments)
        if len(said) < len(arguments):
            return check_signature(tool_name, signature, said, lax=lax)
        problems = find_problems(signature.schema, arguments, lax=lax)
        raise invalid_arguments(tool_name, signature.schema, problems, judged(str(error), arguments)) from None
    if signature.adapters:
        _adapt(tool_name, signature, converted, lax=lax)
    return converted


def _convert_extra(signature: Signature, arguments: dict[str, Any], converted: dict[str, Any], *, lax: bool) -> None:
    """Take in what has no parameter of its own, for functions that take anything."""
    for name, value in arguments.items():
        if name == signature.context_name:
            raise msgspec.ValidationError(f"{name}: there is no such argument")
        if name not in converted:
            converted[name] = msgspec.convert(
                value, signature.extra, strict=not lax, dec_hook=convert_path, str_keys=True
            )


def _without_idle_nulls(schema: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments without those that are null, need not be given and must not be null: many models write that for "none"."""
    optional = schema["properties"].keys() - schema.get("required", ())
    return {
        name: value
        for name, value in arguments.items()
        if value is not None or name not in optional or not find_problems(schema["properties"][name], None, root=schema)
    }


def _adapt(tool_name: str, signature: Signature, converted: dict[str, Any], *, lax: bool) -> None:
    from pydantic import ValidationError

    problems: list[str] = []
    for name, adapter in signature.adapters.items():
        if name not in converted:
            continue
        try:
            # As JSON, because there strictness still takes a date for the text it is.
            text = msgspec.json.encode(converted[name])
            converted[name] = adapter.validate_json(text, strict=None if lax else True)
        except ValidationError as error:
            if converted[name] is None and name not in signature.schema.get("required", ()):
                del converted[name]
                continue
            for detail in error.errors(include_url=False, include_context=False):
                path = joined(name, detail["loc"])
                problems.append(f"{path}: {detail['msg']}, got {shown(detail['input'])}")
    if problems:
        raise invalid_arguments(tool_name, signature.schema, problems, "")


class SchemaCheck:
    """Arguments against a raw JSON Schema, judged by jsonschema. References to other places are never followed."""

    def __init__(self, tool_name: str, schema: dict[str, Any]) -> None:
        try:
            from jsonschema import Draft202012Validator, FormatChecker
            from jsonschema.exceptions import SchemaError
            from jsonschema.validators import validator_for
            from referencing import Registry
        except ImportError as error:
            raise InvalidTool(
                f"tool {tool_name!r} has a raw JSON Schema, which is checked by jsonschema; "
                f"install it: pip install 'antiphon[mcp]'"
            ) from error
        self.tool_name = tool_name
        self.schema = schema
        kind = validator_for(schema, default=Draft202012Validator)
        try:
            # Without formats: patterns come in other dialects than Python's.
            kind.check_schema(schema, format_checker=FormatChecker(formats=()))
        except SchemaError as error:
            raise InvalidTool(
                f"tool {tool_name!r}: its JSON Schema is not valid at {error.json_path}: {shortened(error.message)}"
            ) from error
        # An empty registry: a schema from elsewhere must not make us fetch what it refers to.
        self._validator = kind(schema, registry=Registry())

    def __call__(self, arguments: dict[str, Any]) -> dict[str, Any]:
        from referencing.exceptions import Unresolvable

        try:
            errors = list(self._validator.iter_errors(arguments))
        except re.error as error:
            # A pattern in another dialect than Python's: whoever wrote it can judge the arguments.
            logger.warning(
                "a pattern in the schema of %s cannot be read (%s); its arguments go unchecked", self.tool_name, error
            )
            return arguments
        except Unresolvable as error:
            raise InvalidArguments(
                f"{self.tool_name} cannot be called: its schema refers to {shortened(str(error.ref))}, which is not in it."
            ) from error
        if errors:
            problems = find_problems(self.schema, arguments)
            problems += [
                f"{joined('', found.absolute_path) or 'the arguments'}: {shortened(found.message)}"
                for found in errors
                if found.validator not in WALKED_KEYWORDS
            ]
            raise invalid_arguments(self.tool_name, self.schema, problems, shortened(errors[0].message))
        return arguments


def invalid_arguments(tool_name: str, schema: dict[str, Any], problems: list[str], otherwise: str) -> InvalidArguments:
    """The error for the model: every problem on a line, and what the tool takes. `otherwise` is said if none was found."""
    lines = problems or [otherwise]
    left_out = len(lines) - MAX_PROBLEMS
    if left_out > 0:
        lines = [*lines[:MAX_PROBLEMS], f"… and {left_out} more problems of this kind"]
    text = "\n".join(f"- {line}" for line in lines)
    return InvalidArguments(
        f"The arguments of {tool_name} are not right, and it was not run:\n{text}\n"
        f"It takes: {usage(tool_name, schema)}. Call it again with corrected arguments.",
        tuple(lines),
    )


def not_json(tool_name: str, arguments: str, why: str, schema: dict[str, Any]) -> InvalidArguments:
    """The error for arguments that are no JSON object."""
    advice = (
        "The text ends too early; send it again whole, or shorter." if "truncated" in why else "Send one JSON object."
    )
    why = why.removeprefix(f"the arguments of {tool_name} ")
    problem = f"The arguments of {tool_name} {why}. It was not run."
    return InvalidArguments(
        # What was sent stands on a line of its own: the first one also goes into measures and logs.
        f"{problem}\nYou sent: {shown_text(arguments)}\n{advice} It takes: {usage(tool_name, schema)}.",
        (problem,),
    )
