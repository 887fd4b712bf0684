"""Ollama's `/api/chat`: messages with base64 images, tool calls without ids, and a stream of JSON lines.

Calls get ids by their position, so the same history always has the same ids; a result belongs to the call of its
`tool_call_id`, else to the first unanswered call of its `tool_name`, else to the first unanswered call. A streamed call is sent
whole, in one line. `options` that other hosts have too become fields of the request; the rest are reported as lost.

Normalisations: requests stream unless `stream` is false; `keep_alive` (how long a model stays loaded) has no effect;
`num_predict` below 1 means unlimited; the whole time counts as `eval_duration`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import structs

from antiphon.errors import WireError
from antiphon.parts import (
    Image,
    Native,
    NativeExtras,
    Part,
    Text,
    Thinking,
    TokenUsage,
    ToolCallRequest,
    ToolCallResult,
)
from antiphon.wire.delta import Finished, Started, deltas_from_output
from antiphon.wire.loss import Losses, lose_candidates, lose_native
from antiphon.wire.media import inline_base64, sniff_base64
from antiphon.wire.openai_chat.errors import read_error
from antiphon.wire.output import ModelOutput, ProviderError, lose_stop_sequence
from antiphon.wire.request import Message, ModelRequest, OutputFormat, Reasoning, ToolDefinition
from antiphon.wire.rules import json_type_name
from antiphon.wire.spec import FormatSpec, SequenceRule
from antiphon.wire.streams.writer import EventWriter, OpenPart, encode_line
from antiphon.wire.tools.call_ids import OpenCalls
from antiphon.wire.tools.definitions import arguments_object

__all__ = ["read_error"]

FORMAT = "ollama"
SPEC = FormatSpec(messages_key="messages", sequence_rule=SequenceRule())
_ROLES = frozenset({"system", "user", "assistant", "tool"})
_READ = frozenset({"model", "messages", "tools", "stream", "format", "think", "options", "keep_alive", "logprobs"})
_OPTIONS: dict[str, tuple[str, tuple[type, ...]]] = {
    "temperature": ("temperature", (int, float)),
    "top_p": ("top_p", (int, float)),
    "top_k": ("top_k", (int,)),
    "seed": ("seed", (int,)),
    "presence_penalty": ("presence_penalty", (int, float)),
    "frequency_penalty": ("frequency_penalty", (int, float)),
}
_ONE_ANSWER = "Ollama's clients read one answer"
_NO_TEXT = "Ollama's clients read text, reasoning and calls only; dropped"


def read_request(body: dict[str, Any]) -> ModelRequest:
    """A body of `/api/chat` in neutral terms."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise WireError(f"messages: expected an array, got {json_type_name(messages)}")
    reader = _MessageReader()
    read = tuple(reader.read(message, f"messages[{index}]") for index, message in enumerate(messages))
    tools = body.get("tools") or []
    if not isinstance(tools, list):
        raise WireError(f"tools: expected an array, got {json_type_name(tools)}")
    return build_request(body, read, tuple(map(_read_tool, tools)), _READ, FORMAT)


def build_request(
    body: dict[str, Any],
    messages: tuple[Message, ...],
    tools: tuple[ToolDefinition | Native, ...],
    known: frozenset[str],
    origin: str,
) -> ModelRequest:
    """The request of messages and the parameters that both of Ollama's endpoints have."""
    model, stream = body.get("model"), body.get("stream")
    if not isinstance(model, str):
        raise WireError(f"model: expected a string, got {json_type_name(model)}")
    extras = {name: value for name, value in body.items() if name not in known and value}
    fields: dict[str, Any] = {}
    options = body.get("options") or {}
    if not isinstance(options, dict):
        raise WireError(f"options: expected an object, got {json_type_name(options)}")
    unread = _read_options(options, fields)
    if unread:
        extras["options"] = unread
    if body.get("logprobs") is True:
        fields["logprobs"], fields["top_logprobs"] = True, extras.pop("top_logprobs", None)
    return ModelRequest(
        model=model,
        stream=stream is not False,
        messages=messages,
        tools=tools,
        output_format=_read_format(body.get("format")),
        reasoning=_read_think(body.get("think")),
        native={origin: extras} if extras else None,
        **fields,
    )


def _read_options(options: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    """Put the options that other hosts have into fields of a request; returns the rest."""
    unread: dict[str, Any] = {}
    for name, value in options.items():
        field, types = _OPTIONS.get(name, ("", ()))
        if type(value) in types:
            fields[field] = value
        elif name == "num_predict" and type(value) is int:
            fields["max_output_tokens"] = value if value > 0 else None
        elif name == "stop" and isinstance(value, str):
            fields["stop"] = (value,)
        elif name == "stop" and isinstance(value, list) and all(isinstance(word, str) for word in value):
            fields["stop"] = tuple(value)
        elif value is not None:
            unread[name] = value
    return unread


def _read_format(value: Any) -> OutputFormat | None:
    if not value:
        return None
    if value == "json":
        return OutputFormat("json_object")
    if isinstance(value, dict):
        return OutputFormat("json_schema", value, "response")
    raise WireError('format: expected "json" or a JSON Schema')


def _read_think(value: Any) -> Reasoning | None:
    if isinstance(value, bool):
        return Reasoning(enabled=value)
    if isinstance(value, str):
        return Reasoning(effort=value)
    if value is not None:
        raise WireError(f"think: expected true, false or an effort, got {json_type_name(value)}")
    return None


def _read_tool(tool: Any) -> ToolDefinition | Native:
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        return Native(FORMAT, tool)
    description, parameters = function.get("description"), function.get("parameters")
    return ToolDefinition(
        function["name"],
        description if isinstance(description, str) else None,
        parameters if isinstance(parameters, dict) else None,
    )


def read_image(data: Any, path: str) -> Image:
    """An image of a message: base64, with or without the head of a data URL."""
    if not isinstance(data, str):
        raise WireError(f"{path}: expected base64 text, got {json_type_name(data)}")
    inline = inline_base64(data)
    plain = inline.data if inline is not None else data
    return Image(media_type=sniff_base64(plain) or "image/png", data=plain)


class _MessageReader:
    """Reads messages in order: results are matched with the calls before them."""

    def __init__(self) -> None:
        self._count = 0
        self._unanswered = OpenCalls()

    def read(self, message: Any, path: str) -> Message:
        if not isinstance(message, dict):
            raise WireError(f"{path}: expected an object, got {json_type_name(message)}")
        role, content = message.get("role"), message.get("content")
        if role not in _ROLES:
            raise WireError(f"{path}.role: expected system, user, assistant or tool")
        if content is not None and not isinstance(content, str):
            raise WireError(f"{path}.content: expected a string, got {json_type_name(content)}")
        images = [read_image(data, f"{path}.images[{index}]") for index, data in enumerate(message.get("images") or ())]
        texts = [Text(content)] if content else []
        if role == "tool":
            return Message("tool", (self._result(message, (*texts, *images)),))
        parts: list[Part] = [*texts, *images]
        if role == "assistant":
            thinking = message.get("thinking")
            parts = [*([Thinking(thinking)] if isinstance(thinking, str) and thinking else []), *parts]
            calls = [self._call(call, f"{path}.tool_calls") for call in message.get("tool_calls") or ()]
            self._unanswered.start_step()
            for call in calls:
                self._unanswered.add(call.tool_call_id, call.tool_call_id, call.tool_name)
            parts += calls
        return Message(role, tuple(parts) or (Text(""),))

    def _call(self, call: Any, path: str) -> ToolCallRequest:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise WireError(f"{path}: a call needs a function with a name")
        arguments, call_id = function.get("arguments"), call.get("id")
        self._count += 1
        text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments or {}).decode()
        known = call_id if isinstance(call_id, str) and call_id else f"call_{self._count}"
        return ToolCallRequest(function["name"], known, text)

    def _result(self, message: dict[str, Any], content: tuple[Any, ...]) -> ToolCallResult:
        call_id, name = message.get("tool_call_id"), message.get("tool_name") or message.get("name")
        found = self._unanswered.take(_text_or_empty(name), _text_or_empty(call_id))
        if found is None:  # repair reports it
            return ToolCallResult(str(name or ""), str(call_id or "call_0"), content=content)
        return ToolCallResult(found.name, found.call_id, content=content)


def _text_or_empty(value: Any) -> str:
    return value if isinstance(value, str) else ""


def write_error(error: ProviderError) -> dict[str, Any]:
    """An error body as Ollama writes it."""
    return {"error": error.message}


def message_fields(text: str, thinking: str, calls: Sequence[Any]) -> dict[str, Any]:
    """The message of an answer, or of a line of a stream."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if thinking:
        message["thinking"] = thinking
    if calls:
        message["tool_calls"] = calls
    return {"message": message}


def write_call(call: ToolCallRequest, index: int, losses: Losses) -> dict[str, Any]:
    """A call. Its arguments must be an object."""
    arguments = arguments_object(call, losses, "")
    return {"id": call.tool_call_id, "function": {"index": index, "name": call.tool_name, "arguments": arguments}}


def _last_fields(reason: str, usage: TokenUsage | None, nanoseconds: int) -> dict[str, Any]:
    counted = usage or TokenUsage()
    return {
        "done": True,
        "done_reason": "length" if reason == "length" else "stop",
        "total_duration": nanoseconds,
        "load_duration": 0,
        "prompt_eval_count": counted.prompt_tokens,
        "prompt_eval_duration": 0,
        "eval_count": counted.completion_tokens,
        "eval_duration": nanoseconds,
    }


def _now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


class StreamWriter(EventWriter[OpenPart]):
    """Deltas of any format in, JSON lines out. `model` is the name the client asked for."""

    fields_of = staticmethod(message_fields)
    _part_type = OpenPart
    _single_candidate = _ONE_ANSWER

    def __init__(self, model: str = "") -> None:
        super().__init__(model)
        self._started_at = time.monotonic_ns()
        self._calls = 0

    @property
    def keep_alive(self) -> bytes:
        """A line without content: Ollama's clients parse every line, so there are no comments."""
        return self._line()

    def _on_start(self, started: Started) -> None:
        self._model = self._model or started.model
        lose_native(self.losses, "native", started.native)

    def _on_part(self, part: OpenPart) -> None:
        self.losses.report_extras(part.part.native)

    def _on_extension(self, part: OpenPart, native: NativeExtras) -> None:
        del part
        self.losses.report_extras(native)

    def _on_text(self, part: OpenPart, text: str) -> None:
        kind = type(part.part)
        if kind is ToolCallRequest:
            part.pieces.append(text)
        else:
            self._out.append(self._line(thinking=text) if kind is Thinking else self._line(text))

    def _on_part_end(self, part: OpenPart) -> None:
        if type(part.part) is ToolCallRequest:
            call = write_call(part.whole(), self._calls, self.losses)
            self._calls += 1
            self._out.append(self._line(calls=[call]))

    def _on_whole(self, part: OpenPart) -> None:
        if not isinstance(part.part, Native):
            self.losses.report_extras(part.part.native)
        self.losses.add(type(part.part).__name__.lower(), _NO_TEXT)

    def _on_finish(self, finished: Finished) -> None:
        """The last line, with usage."""
        lose_native(self.losses, "native", finished.native)
        lose_stop_sequence(finished.stop_sequence, self.losses, "Ollama")
        taken = time.monotonic_ns() - self._started_at
        self._out.append(self._line(**_last_fields(finished.stop_reason, self._usage, taken)))

    def _on_error(self, error: ProviderError) -> None:
        self._out.append(encode_line(write_error(error)) + b"\n")

    def _line(self, text: str = "", thinking: str = "", calls: Sequence[Any] = (), **last: Any) -> bytes:
        line = {"model": self._model, "created_at": _now(), **self.fields_of(text, thinking, calls)}
        return encode_line({**line, **last} if last else {**line, "done": False}) + b"\n"


class _AnswerWriter(StreamWriter):
    """Puts what would be the lines of a stream into one object; `fields_of` makes the fields of one endpoint."""

    def __init__(self, fields_of: Any) -> None:
        super().__init__()
        self.fields_of = fields_of
        self._given: list[tuple[str, str, Sequence[Any]]] = []
        self.answer: dict[str, Any] = {}

    def _line(self, text: str = "", thinking: str = "", calls: Sequence[Any] = (), **last: Any) -> bytes:
        self._given.append((text, thinking, calls))
        if last:
            texts, thoughts, given = zip(*self._given, strict=True)
            calls = [call for calls in given for call in calls]
            fields = self.fields_of("".join(texts), "".join(thoughts), calls)
            self.answer = {"model": self._model, "created_at": _now(), **fields, **last}
        return b""


def write_response(output: ModelOutput, losses: Losses, fields_of: Any = message_fields) -> dict[str, Any]:
    """A whole answer of `/api/chat`: what its stream would say."""
    writer = _AnswerWriter(fields_of)
    for delta in deltas_from_output(structs.replace(output, others=())):
        writer.write(delta)
    losses += writer.losses
    lose_candidates(losses, len(output.others), _ONE_ANSWER)
    return writer.answer
