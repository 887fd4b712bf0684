"""Accept or reject the arguments of a call; a rejection has an error message for the model.

Raw schemas are checked by `CompiledSchema`. Functions are checked by msgspec or pydantic, which also convert, and by the compiled
schema of their signature where msgspec differs: patterns (unbounded in msgspec), multiples (0.3 of 0.1) and whole numbers (5.0).
These stop at the first problem, so `describe_errors` words everything that is wrong; their own message is used only where it
finds nothing.

Nothing is guessed: "5" is not an integer, unless the tool was declared `lax`.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from antiphon.errors import InvalidArguments, InvalidTool
from antiphon.tools.argument_errors import (
    LINE_CHARACTERS,
    MAX_COUNTED_PROBLEMS,
    MAX_PROBLEMS,
    SHOWN_CHARACTERS,
    UNDECIDED,
    allows,
    cut,
    describe_errors,
    join_path,
    preview,
    preview_text,
    usage,
    validator_message,
)
from antiphon.tools.compiled_schema import CompiledSchema, InvalidSchema, SchemaError
from antiphon.tools.function_schema import Signature, convert_path

logger = logging.getLogger("antiphon.tools")


class SignatureValidator:
    """Checks the arguments of a function, and converts them to the annotated types."""

    def __init__(self, tool_name: str, signature: Signature, *, lax: bool) -> None:
        self.tool_name = tool_name
        self.signature = signature
        self.lax = lax
        self._compiled = _compiled(tool_name, signature.schema) if signature.needs_schema else None

    def __call__(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments, converted. Raises `InvalidArguments` with all that is wrong."""
        if self._compiled is not None and not self._compiled.is_valid(arguments):
            arguments = self._drop_null_optionals(arguments)
            self._check_schema(arguments)
        try:
            converted = self._convert(arguments)
        except (msgspec.ValidationError, NotImplementedError):
            arguments = self._drop_null_optionals(arguments)
            try:
                converted = self._convert(_with_integers(arguments))
            except (msgspec.ValidationError, NotImplementedError) as error:
                raise self._refusal(arguments, validator_message(str(error), arguments)) from None
        if self._compiled is not None and self.lax:  # texts that were read as numbers
            self._check_schema(msgspec.to_builtins(converted, enc_hook=str))
        if self.signature.adapters:
            self._apply_pydantic(converted)
        return converted

    def _check_schema(self, arguments: dict[str, Any]) -> None:
        assert self._compiled is not None
        error = self._compiled.first_error(arguments)
        if error is None:
            return
        refusal = self._refusal(arguments, _words(error))
        # Texts that a lax tool reads as numbers are refused by the schema, and have no words.
        if not self.lax or refusal.problems != (_words(error),):
            raise refusal

    def _refusal(self, arguments: dict[str, Any], fallback: str) -> InvalidArguments:
        schema = self.signature.schema
        return invalid_arguments(self.tool_name, schema, describe_errors(schema, arguments, lax=self.lax), fallback)

    def _convert(self, arguments: dict[str, Any]) -> dict[str, Any]:
        signature = self.signature
        given = msgspec.convert(
            arguments, signature.arguments, strict=not self.lax, dec_hook=convert_path, str_keys=True
        )
        converted = {name: getattr(given, name) for name in arguments if name in signature.names}
        if len(converted) != len(arguments):
            self._convert_extra(arguments, converted)
        return converted

    def _convert_extra(self, arguments: dict[str, Any], converted: dict[str, Any]) -> None:
        """Add what has no parameter of its own, for functions with `**kwargs`."""
        for name, value in arguments.items():
            if name == self.signature.context_name:
                raise msgspec.ValidationError(f"{name}: there is no such argument")
            if name not in converted:
                converted[name] = msgspec.convert(
                    value, self.signature.extra, strict=not self.lax, dec_hook=convert_path, str_keys=True
                )

    def _drop_null_optionals(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments without those that are null, are optional and must not be null: many models write that for "none"."""
        schema = self.signature.schema
        optional = schema["properties"].keys() - schema.get("required", ())
        return {
            name: value
            for name, value in arguments.items()
            if value is not None or name not in optional or allows(schema["properties"][name], None, root=schema)
        }

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
                for detail in error.errors(include_url=False, include_context=False)[:MAX_COUNTED_PROBLEMS]:
                    path = join_path(name, detail["loc"])
                    problems.append(f"{path}: {detail['msg']}, got {preview(detail['input'])}")
        if problems:
            raise invalid_arguments(self.tool_name, self.signature.schema, problems, "")


def _with_integers(value: Any) -> Any:
    """A value with its whole numbers as integers: to JSON Schema 5.0 is one, to msgspec it is not."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _with_integers(item) for name, item in value.items()}
    return [_with_integers(item) for item in value] if isinstance(value, list) else value


class SchemaValidator:
    """Checks arguments against a raw JSON Schema, and returns them as they are."""

    def __init__(self, tool_name: str, schema: dict[str, Any]) -> None:
        self.tool_name = tool_name
        self.schema = schema
        self._compiled = _compiled(tool_name, schema)
        if self._compiled.unreadable_patterns:
            logger.warning(
                "the schema of tool %s has %d patterns that cannot be read and are not checked, such as %s",
                tool_name,
                len(self._compiled.unreadable_patterns),
                cut(self._compiled.unreadable_patterns[0]),
            )

    def __call__(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if not self._compiled.is_valid(arguments):
            problems = describe_errors(self.schema, arguments, draft=self._compiled.draft)
            error = None if problems else self._compiled.first_error(arguments)
            raise invalid_arguments(self.tool_name, self.schema, problems, _words(error))
        return arguments


def _compiled(tool_name: str, schema: dict[str, Any]) -> CompiledSchema:
    try:
        return CompiledSchema(schema)
    except InvalidSchema as error:
        raise InvalidTool(f"tool {tool_name!r}: its JSON Schema is not valid: {cut(str(error), 200)}") from error


def _words(error: SchemaError | None) -> str:
    if error is None:
        return "the schema does not allow them"
    place = join_path("", error.path) or "the arguments"
    return cut(
        f"{place}: {UNDECIDED if error.is_undecided else cut(error.message, 2 * SHOWN_CHARACTERS)}", LINE_CHARACTERS
    )


def invalid_arguments(tool_name: str, schema: dict[str, Any], problems: list[str], fallback: str) -> InvalidArguments:
    """The error for the model: every problem on a line, and what the tool takes. `fallback` is used if there are none."""
    lines = [cut(line, LINE_CHARACTERS) for line in problems[: MAX_PROBLEMS + 1] or [fallback]]
    if len(problems) > MAX_PROBLEMS + 1:  # those that `describe_errors` did not count itself
        lines[-1] = f"… and {len(problems) - MAX_PROBLEMS} more problems of this kind"
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
