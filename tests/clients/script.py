"""`Script`: what a scripted model does with a program: it has a note read, and says the marker once it has seen what it holds.

Which tool reads is found out from the tools the program offers, and the arguments are filled in from the tool's own schema, so
the same script plays with every program. Requests without tools are side calls (a title, a check of the line): they get a short
answer in the shape they ask for.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from antiphon.parts import Text, ToolCallRequest, ToolCallResult, text_of
from antiphon.wire.output import ModelOutput
from antiphon.wire.request import ModelRequest, ToolDefinition
from clients.faults import Style
from gateway.strict_upstream import USAGE, text_answer

READERS = (
    re.compile(r"read|read_?files?|view|cat|.*read_(text_)?file|read_note|readFile|readNote", re.IGNORECASE),
    re.compile(r"bash|shell|run_shell_command|exec_command|execute_command|run_commands?|shell_command", re.IGNORECASE),
)
"""Names of tools that read a file, the plainest first; then of those that run a command."""
FINISHERS = ("attempt_completion", "submit_and_exit")


class Script:
    """One play. `note` is the file to be read, `secret` what it holds, `marker` the last word."""

    def __init__(
        self,
        note: Path,
        secret: str,
        marker: str,
        *,
        last_command: str = "",
        asks_in_words: bool = False,
        style: Style = "plain",
    ) -> None:
        self.calls = 0
        self.results: list[str] = []
        """The results that the program brought."""
        self.offered: list[str] = []
        self._note = note
        self._secret = secret
        self._marker = marker
        self._last_command = last_command
        self._asks_in_words = asks_in_words
        self._style = style

    @property
    def is_read(self) -> bool:
        """Whether what the note holds came back."""
        return any(self._secret in result for result in self.results)

    def __call__(self, request: ModelRequest) -> ModelOutput:
        """The answer to a request."""
        self.results += _results(request)
        if self._asks_in_words:
            return self._in_words(request)
        tools = [tool for tool in request.tools if isinstance(tool, ToolDefinition)]
        if not tools:
            return text_answer(_filled_answer(request), request.model)
        self.offered = [tool.name for tool in tools]
        if any(self._secret in result for result in _results(request)):
            return self._last(request, tools)
        if self.calls >= 3:
            return text_answer("I give up.", request.model)
        self.calls += 1
        tool = _reader(tools)
        if tool is None:
            return text_answer(f"None of these tools reads: {self.offered}", request.model)
        return self._first(tool, request.model)

    def _first(self, tool: ToolDefinition, model: str) -> ModelOutput:
        """The call that reads the note. Where the style is to err, the first one errs and the next is right."""
        output = _calls(tool, self._arguments(tool), model, self.calls)
        errs = {"no_arguments": "", "broken_arguments": '{"path": "no'}
        *words, call = output.parts
        assert isinstance(call, ToolCallRequest)
        if self._style in errs and self.calls == 1:
            return structs.replace(output, parts=(*words, structs.replace(call, arguments=errs[self._style])))
        if self._style == "parallel":
            return structs.replace(output, parts=(*words, call, structs.replace(call, tool_call_id="call_9999")))
        if self._style == "text_after":
            return structs.replace(output, parts=(*words, call, Text("And then I tell.")))
        return output

    def _in_words(self, request: ModelRequest) -> ModelOutput:
        """For programs without tools: a file is asked for by its name, and comes as a message."""
        prompt = "\n".join(text_of(message.parts) for message in request.messages)
        if self._secret in prompt:
            self.results.append(self._secret)
            return text_answer(f"The note was read: {self._marker}", request.model)
        self.calls += 1
        return text_answer(f"Please add {self._note.name} to the chat, I have to see it.", request.model)

    def _last(self, request: ModelRequest, tools: list[ToolDefinition]) -> ModelOutput:
        words = f"The note was read: {self._marker}"
        finisher = next((tool for tool in tools if tool.name in FINISHERS), None)
        if finisher is not None:
            return _calls(finisher, _filled(finisher.parameters or {}, {}, words), request.model, 9)
        if self._last_command:
            tool = _reader(tools)
            assert tool is not None
            command = self._last_command.format(marker=self._marker)
            return _calls(tool, _filled(tool.parameters or {}, {"command": command, "cmd": command}), request.model, 9)
        return text_answer(words, request.model)

    def _arguments(self, tool: ToolDefinition) -> Any:
        path, command = str(self._note), f"cat {self._note}"
        known = dict.fromkeys(
            ("file_path", "path", "absolute_path", "filePath", "filepath", "target_file", "paths"), path
        )
        known |= {"command": command, "cmd": command, "commands": command, "script": command, "code": command}
        if tool.freeform:
            return command
        return _filled(tool.parameters or {"type": "object"}, known)


def _results(request: ModelRequest) -> list[str]:
    return [
        text_of(part.content)
        for message in request.messages
        for part in message.parts
        if isinstance(part, ToolCallResult)
    ]


def _reader(tools: list[ToolDefinition]) -> ToolDefinition | None:
    for pattern in READERS:
        for tool in tools:
            if pattern.fullmatch(tool.name):
                return tool
    return None


def _calls(tool: ToolDefinition, arguments: Any, model: str, number: int) -> ModelOutput:
    text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
    call = ToolCallRequest(tool.name, f"call_{number:04}", text, freeform=tool.freeform)
    parts = (Text("I read the note."), call)
    return ModelOutput(parts=parts, stop_reason="tool_calls", id=f"answer-{number}", model=model, usage=USAGE)


def _filled(schema: dict[str, Any], known: dict[str, Any], words: str = "a note") -> Any:
    """A small value that fits a schema, with what is known put in by name."""
    for field in ("anyOf", "oneOf"):
        if schema.get(field):
            return _filled(schema[field][0], known, words)
    if "const" in schema or schema.get("enum"):
        return schema.get("const", (schema.get("enum") or [""])[0])
    kind = schema.get("type")
    kind = next((name for name in kind if name != "null"), "string") if isinstance(kind, list) else kind
    kind = str(kind or ("object" if "properties" in schema else "string")).lower()
    if kind == "object":
        return _filled_object(schema, known, words)
    if kind == "array":
        return [_filled(schema.get("items") or {}, known, words)]
    return {"integer": 1, "number": 1, "boolean": False, "null": None}.get(kind, words)


def _filled_object(schema: dict[str, Any], known: dict[str, Any], words: str) -> dict[str, Any]:
    required = schema.get("required") or []
    filled: dict[str, Any] = {}
    for name, field in (schema.get("properties") or {}).items():
        kinds = str(field.get("type", "")) + str(field.get("anyOf", ""))
        if name in known and "array" in kinds and "object" not in str(field):
            filled[name] = known[name].split(" ") if name in ("command", "cmd") else [known[name]]
        elif name in known and "object" not in str(field):
            filled[name] = known[name]
        elif name in required:
            filled[name] = _filled(field, known, words)
    return filled


def _filled_answer(request: ModelRequest) -> str:
    asked = request.output_format
    if asked is None or asked.kind == "text":
        return "Reading a note"
    return msgspec.json.encode(_filled(asked.schema or {"type": "object"}, {})).decode()
