"""Typed output: an answer as a value of a Python type, checked, and requested again if it does not fit.

The type becomes a JSON Schema with the code that describes tools. A model with structured output gets it as the output format;
any other gets a tool, `final_answer`, whose accepted call ends the turn. Either way the value is read from the log: from the call
or from the text of the last answer. So a resumed turn has the same value.

An answer that does not fit is followed by a message with what is wrong, at most `retries` times. A wrong call of `final_answer`
gets a failed result instead, as with every tool, within the limits of the turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import structs

from antiphon.conversation.events import LoopEvent, PartialOutput
from antiphon.conversation.output.partial_json import PartialJson
from antiphon.conversation.turn import CORRECTION_CHANNEL, Turn
from antiphon.errors import ConversationError, InvalidArguments, InvalidOutput, InvalidTool
from antiphon.history import ModelInputEntry, ModelOutputEntry
from antiphon.json_text import NOT_JSON
from antiphon.parts import Text, ToolCallRequest
from antiphon.tools.executor import ToolExecutor
from antiphon.tools.registry import ToolRegistry
from antiphon.tools.tool import Tool, tool
from antiphon.wire.request import ModelRequest, OutputFormat, ToolChoice, ToolDefinition
from antiphon.wire.tools.schema import first_strict_problem, walk

T = TypeVar("T")

ANSWER_TOOL = "final_answer"

_FIELD = "answer"
_REFERENCE = "#/$defs/"


class OutputType(Generic[T]):
    """A type that answers must have. `schema` describes an object: the type itself, or one with the field `answer`."""

    def __init__(self, output: Any) -> None:
        async def final_answer(answer: Any) -> str:  # noqa: ARG001 - its type is set below
            return "Accepted."

        final_answer.__annotations__ = {_FIELD: output, "return": str}
        try:
            self.tool: Tool = tool(
                name=ANSWER_TOOL,
                description="Give your final answer. Call it once, when you are done.",
                effect="read",
            )(final_answer)
        except InvalidTool as error:
            reason = str(error).partition(f"parameter {_FIELD!r} ")[2] or str(error)
            raise ConversationError(f"output={output!r} {reason}") from error
        parameters = self.tool.parameters
        schema = _resolve(parameters["properties"][_FIELD], parameters.get("$defs", {}))
        self.is_wrapped = schema.get("type") != "object"
        self.schema = parameters if self.is_wrapped else schema
        self.name = getattr(output, "__name__", "") if isinstance(output, type) else ""

    @property
    def output_format(self) -> OutputFormat:
        """The format for a model with structured output."""
        schema = _close_objects(self.schema)
        name = self.name if self.name.isidentifier() and self.name.isascii() else ""
        return OutputFormat(
            "json_schema", schema, name or "answer", strict=True if first_strict_problem(schema) is None else None
        )

    def read(self, entry: ModelOutputEntry | None) -> T:
        """The value in an answer. Raises `InvalidOutput` with what is wrong, for the model."""
        if entry is None:
            raise InvalidOutput("there is no answer")
        for call in entry.tool_calls:
            if call.tool_name == ANSWER_TOOL:
                return self._value(_decode(call.arguments), is_wrapped=True)
        text = "".join(part.text for part in entry.content if type(part) is Text)
        return self._value(_decode(_without_fence(text)), self.is_wrapped)

    def _value(self, decoded: Any, is_wrapped: bool) -> T:
        try:
            value: T = self.tool.validate(decoded if is_wrapped and type(decoded) is dict else {_FIELD: decoded})[
                _FIELD
            ]
        except InvalidArguments as error:
            lines = [line if is_wrapped else line.replace(f"{_FIELD}.", "", 1) for line in error.problems]
            raise InvalidOutput("\n".join(lines) or str(error)) from error
        return value


class OutputRequest(Generic[T]):
    """One request for a typed answer. It may be repeated `retries` times in a turn."""

    def __init__(self, output: OutputType[T], retries: int, *, is_native: bool) -> None:
        self.type = output
        self.is_native = is_native
        self.retries = retries

    def settings(self, settings: ModelRequest) -> ModelRequest:
        """The settings of a model call, with the output format if the model has structured output."""
        return structs.replace(settings, output_format=self.type.output_format) if self.is_native else settings

    def tools(self, tools: tuple[ToolDefinition, ...]) -> tuple[ToolDefinition, ...]:
        """The tools of a model call, with `final_answer` unless the model has structured output."""
        return tools if self.is_native else (*tools, self.type.tool.definition)

    def executor(self, executor: ToolExecutor) -> ToolExecutor:
        """What runs the calls, with `final_answer` unless the model has structured output."""
        if self.is_native:
            return executor
        if ANSWER_TOOL in executor.registry:
            raise ConversationError(f"a tool is called {ANSWER_TOOL}, the name that typed output needs; rename it")
        return executor.with_registry(ToolRegistry([*executor.registry, self.type.tool]))

    def correction(self, turn: Turn) -> ModelInputEntry | None:
        """The message that requests the answer again, or None if the answer fits or was requested often enough."""
        try:
            self.type.read(turn.output)
        except InvalidOutput as error:
            if turn.corrections >= self.retries:
                return None
            how = "Answer again with JSON of that form and nothing else."
            if not self.is_native:
                how = f"Call {ANSWER_TOOL} with your answer."
            text = f"Your answer does not have the required form:\n{error}\n{how}"
            return ModelInputEntry.of(text, channel=CORRECTION_CHANNEL)
        return None

    def partial_outputs(self, emit: Callable[[LoopEvent], None]) -> PartialOutputs:
        """The events of an answer that is coming in."""
        return PartialOutputs(emit, self.type)

    @property
    def last_choice(self) -> ToolChoice:
        """The tool choice of the last call of a turn, in which no other tool may be called."""
        return ToolChoice("none") if self.is_native else ToolChoice("tool", (ANSWER_TOOL,))

    def is_accepted(self, entry: ModelOutputEntry | None) -> bool:
        """Whether `entry` calls `final_answer` with a value that fits."""
        if entry is None or not any(call.tool_name == ANSWER_TOOL for call in entry.tool_calls):
            return False
        try:
            self.type.read(entry)
        except InvalidOutput:
            return False
        return True


class PartialOutputs:
    """The events of a typed answer that is coming in: the deltas of one model call as `PartialOutput`."""

    def __init__(self, emit: Callable[[LoopEvent], None], output: OutputType[Any]) -> None:
        self._emit = emit
        self._is_wrapped = output.is_wrapped
        self._readers: dict[int, tuple[PartialJson, bool]] = {}

    def start(self, index: int, part: Any) -> None:
        """A part starts. Only text and calls of `final_answer` count."""
        if type(part) is Text:
            self._readers[index] = PartialJson(), self._is_wrapped
            self.feed(index, part.text)
        elif type(part) is ToolCallRequest and part.tool_name == ANSWER_TOOL:
            self._readers[index] = PartialJson(), True
            self.feed(index, part.arguments)

    def feed(self, index: int, text: str) -> None:
        """More of a part."""
        if index not in self._readers or not text:
            return
        reader, is_wrapped = self._readers[index]
        if reader.feed(text):
            value = reader.value
            if is_wrapped:
                value = value.get(_FIELD) if isinstance(value, dict) else None
            if value is not None:
                self._emit(PartialOutput(value))


def _resolve(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema without a reference at its top, with the definitions it needs."""
    reference = schema.get("$ref", "")
    if reference.startswith(_REFERENCE):
        schema = {**definitions[reference.removeprefix(_REFERENCE)], **{k: v for k, v in schema.items() if k != "$ref"}}
    used = msgspec.json.encode(schema)
    while True:
        kept = {name: value for name, value in definitions.items() if f'"{_REFERENCE}{name}"'.encode() in used}
        whole = msgspec.json.encode([schema, kept])
        if whole == used:
            break
        used = whole
    return {**schema, "$defs": kept} if kept else schema


def _close_objects(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with `additionalProperties: false` in every object that lists its properties, as strict formats require."""
    copied: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(schema))
    for _, node in walk(copied):
        if "properties" in node:
            node.setdefault("additionalProperties", False)
    return copied


def _decode(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except NOT_JSON as error:
        raise InvalidOutput(f"it is not valid JSON ({error})") from error


def _without_fence(text: str) -> str:
    """The content of a Markdown code block, if the text is one."""
    text = text.strip()
    if text.startswith("```") and text.endswith("```"):
        return text.removesuffix("```").partition("\n")[2]
    return text
