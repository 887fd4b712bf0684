"""Accept or reject the arguments of a call; a rejection has an error message for the model.

Raw schemas are checked by `CompiledSchema`. Functions are checked by msgspec or pydantic, which also convert, and by the compiled
schema of their signature where msgspec differs: patterns (unbounded in msgspec), multiples (0.3 of 0.1) and whole numbers (5.0).
These stop at the first problem, so the compiled schema says everything that is wrong; their own message is used only where the
schema finds nothing.

Nothing is guessed: "5" is not an integer, unless the tool was declared `lax`.
"""

from __future__ import annotations

import functools
import logging
import re
from typing import Any

import msgspec

from antiphon.errors import InvalidArguments, InvalidTool
from antiphon.tools.compiled_schema import (
    LINE_CHARACTERS,
    MAX_PROBLEMS,
    CompiledSchema,
    InvalidSchema,
    cut,
    join_path,
    preview,
    preview_text,
    usage,
)
from antiphon.tools.function_schema import Signature, convert_path

logger = logging.getLogger("antiphon.tools")


class SignatureValidator:
    """Checks the arguments of a function, and converts them to the annotated types."""

    def __init__(self, tool_name: str, signature: Signature, *, lax: bool) -> None:
        self.tool_name = tool_name
        self.signature = signature
        self.lax = lax
        if signature.needs_schema:
            _ = self._compiled  # an invalid schema is an error of the declaration

    def __call__(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments, converted. Raises `InvalidArguments` with all that is wrong."""
        signature = self.signature
        if signature.needs_schema and not self._compiled.is_valid(arguments):
            arguments = self._drop_null_optionals(arguments)
            self._check_schema(arguments)
        try:
            converted = self._convert(arguments)
        except (msgspec.ValidationError, NotImplementedError):
            arguments = self._drop_null_optionals(arguments)
            try:
                converted = self._convert(_with_integers(arguments))
            except (msgspec.ValidationError, NotImplementedError) as error:
                self._check_schema(arguments)
                raise self._refusal([_validator_message(str(error), arguments)]) from None
        if signature.needs_schema and self.lax:  # texts that were read as numbers
            self._check_schema(msgspec.to_builtins(converted, enc_hook=str))
        if signature.adapters:
            self._apply_pydantic(converted)
        return converted

    @functools.cached_property
    def _compiled(self) -> CompiledSchema:
        return compile_schema(self.tool_name, self.signature.schema)

    def _check_schema(self, arguments: dict[str, Any]) -> None:
        if problems := self._compiled.problems(arguments, lax=self.lax):
            raise self._refusal(problems)

    def _refusal(self, problems: list[str]) -> InvalidArguments:
        return invalid_arguments(self.tool_name, self.signature.schema, problems)

    def _convert(self, arguments: dict[str, Any]) -> dict[str, Any]:
        signature = self.signature
        given = msgspec.convert(
            arguments, signature.arguments, strict=not self.lax, dec_hook=convert_path, str_keys=True
        )
        converted = {name: getattr(given, name) for name in arguments if name in signature.names}
        if len(converted) != len(arguments):  # of a function with `**kwargs`
            for name, value in arguments.items():
                if name == signature.context_name:
                    raise msgspec.ValidationError(f"{name}: there is no such argument")
                if name not in converted:
                    converted[name] = msgspec.convert(
                        value, signature.extra, strict=not self.lax, dec_hook=convert_path, str_keys=True
                    )
        return converted

    def _drop_null_optionals(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments without those that are null, are optional and must not be null: many models write that for "none"."""
        return {name: value for name, value in arguments.items() if value is not None or name not in self._never_null}

    @functools.cached_property
    def _never_null(self) -> frozenset[str]:
        schema = self.signature.schema
        return frozenset(
            name
            for name in schema["properties"].keys() - schema.get("required", ())
            if not CompiledSchema({"$defs": schema.get("$defs", {}), **schema["properties"][name]}).is_valid(None)
        )

    def _apply_pydantic(self, converted: dict[str, Any]) -> None:
        from pydantic import ValidationError

        problems: list[str] = []
        for name, adapter in self.signature.adapters.items():
            if name not in converted:
                continue
            try:
                # As JSON, because there strictness still takes a date for the text it is.
                text = msgspec.json.encode(converted[name])
                converted[name] = adapter.validate_json(text, strict=None if self.lax else True)
            except ValidationError as error:
                if converted[name] is None and name not in self.signature.schema.get("required", ()):
                    del converted[name]
                    continue
                for detail in error.errors(include_url=False, include_context=False):
                    path = join_path(name, detail["loc"])
                    problems.append(f"{path}: {detail['msg']}, got {preview(detail['input'])}")
        if len(problems) > MAX_PROBLEMS:
            problems[MAX_PROBLEMS:] = [f"… and {len(problems) - MAX_PROBLEMS} more problems of this kind"]
        if problems:
            raise self._refusal(problems)


def _with_integers(value: Any) -> Any:
    """A value with its whole numbers as integers: to JSON Schema 5.0 is one, to msgspec it is not."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _with_integers(item) for name, item in value.items()}
    return [_with_integers(item) for item in value] if isinstance(value, list) else value


def _validator_message(words: str, value: Any) -> str:
    """The message of msgspec about a value, with the path first, as everywhere here, and the value."""
    message, _, place = words.partition(" - at `$")
    path = place.rstrip("`").removeprefix(".")
    for step in re.findall(r"[^.\[\]]+", path):
        try:
            value = value[int(step) if isinstance(value, list) else step]
        except (LookupError, ValueError, TypeError):
            return f"{path}: {message}"
    return f"{path}: {message}, got {preview(value)}" if path else message


class SchemaValidator:
    """Checks arguments against a raw JSON Schema, and returns them as they are."""

    def __init__(self, tool_name: str, schema: dict[str, Any]) -> None:
        self.tool_name = tool_name
        self.schema = schema
        self._compiled = compile_schema(tool_name, schema)
        if unreadable := self._compiled.unreadable_patterns:
            logger.warning(
                "the schema of tool %s has %d patterns that cannot be read and are not checked, such as %s",
                tool_name,
                len(unreadable),
                cut(unreadable[0]),
            )

    def __call__(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if not self._compiled.is_valid(arguments):
            problems = self._compiled.problems(arguments) or ["the schema does not allow them"]
            raise invalid_arguments(self.tool_name, self.schema, problems)
        return arguments


def compile_schema(tool_name: str, schema: dict[str, Any]) -> CompiledSchema:
    """The schema of a tool. Raises `InvalidTool`."""
    try:
        return CompiledSchema(schema)
    except InvalidSchema as error:
        raise InvalidTool(f"tool {tool_name!r}: its JSON Schema is not valid: {cut(str(error), 200)}") from error


def invalid_arguments(tool_name: str, schema: dict[str, Any], problems: list[str]) -> InvalidArguments:
    """The error for the model: every problem on a line, and what the tool takes."""
    lines = [cut(line, LINE_CHARACTERS) for line in problems]
    text = "\n".join(f"- {line}" for line in lines)
    return InvalidArguments(
        f"Invalid arguments for {tool_name}; the tool was not run:\n{text}\n"
        f"It takes: {usage(tool_name, schema)}. Call it again with corrected arguments.",
        tuple(lines),
    )


def invalid_json_error(tool_name: str, arguments: str, why: str, schema: dict[str, Any]) -> InvalidArguments:
    """The error for arguments that are not a JSON object."""
    advice = (
        "The text ends too early; send it again whole, or shorter." if "truncated" in why else "Send one JSON object."
    )
    why = why.removeprefix(f"the arguments of {tool_name} ")
    problem = f"The arguments of {tool_name} {why}. It was not run."
    return InvalidArguments(
        # What was sent is on a line of its own: the first one also goes into measures and logs.
        f"{problem}\nYou sent: {preview_text(arguments)}\n{advice} It takes: {usage(tool_name, schema)}.",
        (problem,),
    )
