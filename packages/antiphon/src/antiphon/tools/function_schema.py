"""The signature and docstring of a function as a JSON Schema, and the converter from JSON to its arguments.

Each parameter becomes a property: the annotation gives the type (by msgspec, or by pydantic if the annotation uses it),
`Annotated` or the docstring the description, a default makes it optional. A `ToolContext` parameter is hidden from the model.
`**kwargs` allows further properties; `*args` is rejected. Docstrings may be in Google, NumPy or reST style.

Everything that cannot be supported is rejected when the tool is made, with the name of the parameter.
"""

from __future__ import annotations

import datetime
import functools
import inspect
import operator
import pathlib
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Struct

from antiphon.errors import InvalidTool
from antiphon.tools.compiled_schema import CompiledSchema, keys_of
from antiphon.tools.context import ToolContext

_ARGUMENT_SECTIONS = {
    "args",
    "arguments",
    "parameters",
    "params",
    "keyword args",
    "keyword arguments",
    "other parameters",
}
_OTHER_SECTIONS = {
    *("returns", "return", "yields", "yield", "raises", "raise", "warns", "example", "examples", "note", "notes"),
    *("see also", "references", "attributes", "warning", "warnings", "todo"),
}
_GOOGLE_ARGUMENT = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_NUMPY_ARGUMENT = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?")
_REST_FIELD = re.compile(r":(\w+)(?:\s+([^:]*))?:\s*(.*)")
_REST_ARGUMENT_FIELDS = {"param", "parameter", "arg", "argument", "key", "keyword"}


class Docstring(Struct, frozen=True):
    """A docstring, taken apart."""

    description: str = ""
    arguments: dict[str, str] = {}


def read_docstring(text: str | None) -> Docstring:
    """The description and the arguments of a docstring, whichever way it is written."""
    if not text:
        return Docstring()
    lines = inspect.cleandoc(text).splitlines()
    reader = _Reader()
    for number, line in enumerate(lines):
        reader.read(line, lines[number + 1] if number + 1 < len(lines) else "")
    return Docstring(
        "\n".join(reader.description).strip(),
        {name: " ".join(words) for name, words in reader.arguments.items() if words},
    )


class _Reader:
    def __init__(self) -> None:
        self.description: list[str] = []
        self.arguments: dict[str, list[str]] = {}
        self._section = "description"
        self._current: list[str] = []
        self._indent = 0

    def read(self, line: str, next_line: str) -> None:
        stripped = line.strip()
        indent = len(line) - len(line.lstrip())
        if self._opens_section(stripped, indent, next_line):
            return
        if self._section == "description":
            self.description.append(line)
        elif not stripped:
            return
        elif self._section == "google":
            self._read_google(stripped, indent)
        elif self._section == "numpy":
            self._read_numpy(stripped, indent)
        elif self._section == "rest" and indent > 0:
            self._current.append(stripped)

    def _opens_section(self, stripped: str, indent: int, next_line: str) -> bool:
        title = stripped.rstrip(":").lower()
        is_known = title in _ARGUMENT_SECTIONS or title in _OTHER_SECTIONS
        if indent == 0 and is_known and _is_underline(next_line):
            self._open("numpy" if title in _ARGUMENT_SECTIONS else "other")
            return True
        if indent == 0 and is_known and stripped.endswith(":"):
            self._open("google" if title in _ARGUMENT_SECTIONS else "other")
            return True
        field = _REST_FIELD.fullmatch(stripped) if indent == 0 and stripped.startswith(":") else None
        if field is None:
            return False
        self._open("rest")
        if field[1] in _REST_ARGUMENT_FIELDS and field[2]:
            # ":param str city:" names the type before the argument.
            self._start(field[2].split()[-1], field[3])
        return True

    def _open(self, section: str) -> None:
        self._section = section
        self._current = []
        self._indent = -1

    def _start(self, name: str, words: str) -> None:
        self._current = self.arguments.setdefault(name.lstrip("*"), [])
        if words:
            self._current.append(words)

    def _read_google(self, stripped: str, indent: int) -> None:
        if indent == 0:
            self._open("description")
            self.description.append(stripped)
            return
        if self._indent < 0:
            self._indent = indent
        argument = _GOOGLE_ARGUMENT.fullmatch(stripped) if indent <= self._indent else None
        if argument is not None:
            self._start(argument[1], argument[2])
        else:
            self._current.append(stripped)

    def _read_numpy(self, stripped: str, indent: int) -> None:
        if _is_underline(stripped):
            return
        argument = _NUMPY_ARGUMENT.fullmatch(stripped) if indent == 0 else None
        if argument is None:
            self._current.append(stripped)
            return
        self._current = []
        for name in argument[1].split(","):
            self.arguments[name.strip().lstrip("*")] = self._current


def _is_underline(line: str) -> bool:
    stripped = line.strip()
    return len(stripped) >= 3 and set(stripped) == {"-"}


REFERENCES = "#/$defs/"

# What the compiled schema judges instead of msgspec, whose patterns run without bound and whose multiples are inexact.
_JUDGED_BY_SCHEMA = frozenset({"pattern", "multipleOf"})
_TIME_FORMATS: dict[type, str] = {datetime.datetime: "date-time", datetime.time: "time"}


class Signature(Struct, frozen=True, eq=False):
    """What a function takes.

    `arguments` is a struct of all the model may give, so that one conversion checks them all; what was not given is left to
    the function's own defaults. `adapters` are pydantic's, for the parameters that are its business.
    """

    schema: dict[str, Any]
    arguments: type[Struct]
    names: frozenset[str]
    adapters: dict[str, Any]
    extra: Any
    """The type of each of `**kwargs`, or None where there are none."""
    context_name: str | None
    needs_schema: bool
    """Whether the schema has keywords that msgspec does not check here: patterns and multiples."""


def signature_of(
    function: Callable[..., Any], tool_name: str, documented: Mapping[str, str], local_names: Mapping[str, Any]
) -> Signature:
    """Read the signature of `function`. Raises `InvalidTool` naming the parameter that cannot be offered to a model."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidTool(
            f"tool {tool_name!r} is a generator; a tool returns its whole result, and reports progress with ToolContext.progress"
        )
    reader = _SignatureReader(tool_name, documented)
    annotations = _annotations(function, tool_name, local_names)
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise InvalidTool(f"tool {tool_name!r}: {function!r} has no signature that can be read") from error
    for parameter in parameters:
        reader.read(parameter, annotations.get(parameter.name, Any))
    return reader.signature()


class _SignatureReader:
    def __init__(self, tool_name: str, documented: Mapping[str, str]) -> None:
        self.tool_name = tool_name
        self.documented = documented
        self.fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
        self.properties: dict[str, dict[str, Any]] = {}
        self.definitions: dict[str, Any] = {}
        self.required: list[str] = []
        self.adapters: dict[str, Any] = {}
        self.extra: Any = None
        self.open_schema: Any = False
        self.context_name: str | None = None

    def refuse(self, parameter: str, why: str) -> InvalidTool:
        return InvalidTool(f"tool {self.tool_name!r}: parameter {parameter!r} {why}")

    def read(self, parameter: inspect.Parameter, annotation: Any) -> None:
        name = parameter.name
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise self.refuse(f"*{name}", "cannot be given as JSON; take a list instead")
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise self.refuse(name, "is positional-only, and models give arguments by name; remove the '/'")
        if name in ("self", "cls") and not self.fields and parameter.annotation is parameter.empty:
            raise self.refuse(name, "means this is a method; make the tool of a bound one: tool(instance.method)")
        if _is_context(annotation):
            if self.context_name is not None:
                raise self.refuse(name, f"is a ToolContext, and so is {self.context_name!r}; one is enough")
            self.context_name = name
        elif parameter.kind is parameter.VAR_KEYWORD:
            self.extra = _without_judged(annotation)
            self.open_schema = self._schema(f"**{name}", annotation) or True
        else:
            self._add(parameter, annotation)

    def _add(self, parameter: inspect.Parameter, annotation: Any) -> None:
        name, default = parameter.name, parameter.default
        description = _description(annotation)
        if default is None and not _is_optional(annotation):
            annotation = annotation | None
        if _is_field_info(default):
            raise self.refuse(name, "has a pydantic Field as its default; write Annotated[…, Field(…)] = the default")
        schema = dict(self._schema(name, annotation))
        description = description or schema.get("description") or self.documented.get(name)
        if description:
            schema["description"] = description
        if default is parameter.empty:
            self.required.append(name)
        else:
            _add_default(schema, default)
        field = Any if name in self.adapters else _without_judged(annotation)
        self.fields.append((name, field) if default is parameter.empty else (name, field, None))
        self.properties[name] = schema

    def _schema(self, name: str, annotation: Any) -> dict[str, Any]:
        if _mentions_pydantic(annotation):
            return self._pydantic_schema(name, annotation)
        try:
            (schema,), definitions = msgspec.json.schema_components(
                [_with_formats(annotation)], schema_hook=_schema_of_path, ref_template=REFERENCES + "{name}"
            )
            msgspec.json.Decoder(annotation, dec_hook=convert_path)
        except (TypeError, NameError) as error:
            reason = str(error).splitlines()[-1].replace("__main__.", "")
            raise self.refuse(
                name,
                f"is annotated with {_display_name(annotation)}, which has no JSON Schema ({reason}); use plain types, Literal, "
                "enums, dataclasses, TypedDicts, msgspec Structs or pydantic models",
            ) from error
        return self._inline_definitions(_simplify(schema), definitions)

    def _pydantic_schema(self, name: str, annotation: Any) -> dict[str, Any]:
        from pydantic import TypeAdapter
        from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

        try:
            adapter: TypeAdapter[Any] = TypeAdapter(annotation)
            schema = adapter.json_schema()
        except (PydanticSchemaGenerationError, PydanticUserError, NameError) as error:
            reason = str(error).splitlines()[0]
            raise self.refuse(
                name, f"is annotated with {_display_name(annotation)}, which pydantic refuses: {reason}"
            ) from error
        self.adapters[name] = adapter
        definitions = schema.pop("$defs", {})
        # The title of a lone model is its class's name, whatever the parameter is called.
        return self._inline_definitions(_simplify(schema, schema.get("title", "")), definitions)

    def _inline_definitions(self, schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
        """Add the definitions to the others, renamed where a name is in use, and return the schema that uses them."""
        definitions = {key: _simplify(value, key) for key, value in definitions.items()}
        renamed: dict[str, str] = {}
        for key, value in definitions.items():
            number = 2
            while self.definitions.get(renamed.get(key, key), value) != value:
                renamed[key] = f"{key}{number}"
                number += 1
        references = {REFERENCES + old: REFERENCES + new for old, new in renamed.items()}
        for key, value in definitions.items():
            self.definitions[renamed.get(key, key)] = _replace_references(value, references)
        return dict(_replace_references(schema, references))

    def signature(self) -> Signature:
        schema: dict[str, Any] = {"type": "object", "properties": self.properties}
        if self.required:
            schema["required"] = self.required
        schema["additionalProperties"] = self.open_schema
        if self.definitions:
            schema["$defs"] = self.definitions
        arguments = msgspec.defstruct(
            "Arguments", self.fields, kw_only=True, forbid_unknown_fields=self.extra is None, eq=False
        )
        return Signature(
            schema,
            arguments,
            frozenset(self.properties),
            self.adapters,
            self.extra,
            self.context_name,
            needs_schema=not _JUDGED_BY_SCHEMA.isdisjoint(keys_of(schema)),
        )


def convert_path(kind: Any, value: Any) -> Any:
    """Convert what msgspec does not know by itself: paths."""
    if isinstance(kind, type) and issubclass(kind, pathlib.PurePath) and isinstance(value, str):
        return kind(value)
    raise NotImplementedError(f"{kind} cannot be read from JSON")


def _schema_of_path(kind: Any) -> dict[str, Any]:
    if isinstance(kind, type) and issubclass(kind, pathlib.PurePath):
        return {"type": "string", "format": "path"}
    raise NotImplementedError(f"{kind} has no JSON Schema")


def _with_formats(annotation: Any) -> Any:
    """The annotation with the formats of times added, which msgspec leaves open because they may lack a time zone."""
    if isinstance(annotation, type) and annotation in _TIME_FORMATS:
        return Annotated[annotation, msgspec.Meta(extra_json_schema={"format": _TIME_FORMATS[annotation]})]
    origin = typing.get_origin(annotation)
    arguments = tuple(_with_formats(argument) for argument in typing.get_args(annotation))
    if origin in (typing.Union, types.UnionType):
        return functools.reduce(operator.or_, arguments)
    return origin[arguments] if origin in (list, set, frozenset, tuple, dict) and arguments else annotation


def _without_judged(annotation: Any) -> Any:
    """The annotation without what the compiled schema judges. Fields of structs and dataclasses keep theirs."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        inner = _without_judged(arguments[0])
        return Annotated[(inner, *(_without_judged_meta(metadata) for metadata in arguments[1:]))]
    inners = tuple(_without_judged(argument) for argument in arguments)
    if inners == arguments:
        return annotation
    if origin in (typing.Union, types.UnionType):
        return functools.reduce(operator.or_, inners)
    return origin[inners] if origin in (list, set, frozenset, tuple, dict) else annotation


def _without_judged_meta(metadata: Any) -> Any:
    if not isinstance(metadata, msgspec.Meta) or (metadata.pattern is None and metadata.multiple_of is None):
        return metadata
    if metadata.pattern is not None and CompiledSchema({"pattern": metadata.pattern}).unreadable_patterns:
        return metadata  # written for Python's engine
    kept = ("gt", "ge", "lt", "le", "min_length", "max_length", "tz", "title", "description")
    return msgspec.Meta(**{name: getattr(metadata, name) for name in kept})


def _annotations(function: Callable[..., Any], tool_name: str, local_names: Mapping[str, Any]) -> dict[str, Any]:
    target: Any = function
    while hasattr(target, "func"):  # functools.partial
        target = target.func
    if not inspect.isroutine(target) and not isinstance(target, type):
        target = type(target).__call__
    try:
        return typing.get_type_hints(target, localns=dict(local_names), include_extras=True)
    except NameError as error:
        raise InvalidTool(
            f"tool {tool_name!r}: an annotation names {error.name!r}, which is not defined where the tool is made"
        ) from error
    except TypeError as error:
        raise InvalidTool(f"tool {tool_name!r}: its annotations cannot be read: {error}") from error


def _is_context(annotation: Any) -> bool:
    return ToolContext in (annotation, typing.get_origin(annotation)) or (
        typing.get_origin(annotation) in (typing.Union, types.UnionType, Annotated)
        and any(_is_context(argument) for argument in typing.get_args(annotation))
    )


def _is_optional(annotation: Any) -> bool:
    if _mentions_pydantic(annotation):
        return True  # pydantic's own rules decide
    try:
        msgspec.convert(None, annotation)
    except (msgspec.ValidationError, TypeError, NotImplementedError):
        return False
    return True


def _description(annotation: Any) -> str | None:
    """A description in `Annotated[…, "…"]` or `Annotated[…, Doc("…")]`; the outermost counts."""
    if typing.get_origin(annotation) is not Annotated:
        return None
    for metadata in typing.get_args(annotation)[:0:-1]:
        words = metadata if isinstance(metadata, str) else getattr(metadata, "documentation", None)
        if isinstance(words, str):
            return words
    return None


def _mentions_pydantic(annotation: Any) -> bool:
    # Nothing can be pydantic's before pydantic was imported.
    if "pydantic" not in sys.modules:
        return False
    if isinstance(annotation, type) and hasattr(annotation, "__pydantic_core_schema__"):
        return True
    parts: Iterable[Any] = typing.get_args(annotation)
    if typing.get_origin(annotation) is Annotated and any(
        type(part).__module__.split(".")[0] in ("pydantic", "annotated_types") for part in parts
    ):
        return True
    return any(_mentions_pydantic(part) for part in parts)


def _is_field_info(value: Any) -> bool:
    return type(value).__module__.startswith("pydantic.") and type(value).__name__ == "FieldInfo"


def _add_default(schema: dict[str, Any], default: Any) -> None:
    try:
        # Decoded again, it shares nothing with the function's own default.
        schema["default"] = msgspec.json.decode(msgspec.json.encode(default))
    except (TypeError, msgspec.EncodeError):
        # The function has it, whether it can be written down or not.
        schema.pop("default", None)


def _replace_references(schema: Any, references: dict[str, str]) -> Any:
    if not references:
        return schema
    if isinstance(schema, dict):
        return {key: _replace_references(value, references) for key, value in schema.items()}
    if isinstance(schema, list):
        return [_replace_references(item, references) for item in schema]
    return references.get(schema, schema) if isinstance(schema, str) else schema


def _simplify(schema: Any, name: str = "") -> Any:
    """The schema without titles that only repeat a name (they cost tokens and add nothing), and with the type of enums added."""
    if isinstance(schema, list):
        return [_simplify(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "title" and value in _titles(name):
            continue
        if key in ("properties", "patternProperties", "$defs"):
            result[key] = {key: _simplify(item, key) for key, item in value.items()}
        elif key in ("default", "enum", "const", "examples", "required", "discriminator"):
            result[key] = value
        else:
            result[key] = _simplify(value)
    if "enum" in result and "type" not in result and all(isinstance(value, str) for value in result["enum"]):
        result["type"] = "string"  # Gemini takes no enum without it
    return result


def _titles(name: str) -> tuple[str, str]:
    return name, name.replace("_", " ").title()


def _display_name(annotation: Any) -> str:
    return (
        annotation.__qualname__ if isinstance(annotation, type) and not typing.get_args(annotation) else str(annotation)
    )
