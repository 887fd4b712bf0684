"""Chat Completions requests, read and written.

The messages go to `messages`, tools and the choice among them to `tools`; the parameters are here, by the table of `limits`. A
value of another type stays a native extra. The keys of a body are written in a fixed order, so that the same request always
gives the same bytes; the dialect decides where hosts differ.

Reasoning has four switches (OpenAI's `reasoning_effort`, `thinking` of DeepSeek and others, OpenRouter's `reasoning`, Alibaba's
`enable_thinking`); all are read into `Reasoning`, and all but the first are also kept unchanged.

Normalisations: null is absent; `max_tokens` and `max_completion_tokens` are the same; `stop` is a list; a streamed request asks
for its usage unless it declines.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from antiphon.wire import shared_openai
from antiphon.wire.format import RequestReader, list_of_entries
from antiphon.wire.loss import Loss, lose_native, other_fields, own_extras
from antiphon.wire.openai_chat import FORMAT, SPEC
from antiphon.wire.openai_chat.dialects import get_dialect
from antiphon.wire.openai_chat.limits import COMPATIBLE_TABLE, HOST_PARAMETERS, PARAMETER_TABLE, PARAMETERS
from antiphon.wire.openai_chat.message_writer import MessageListWriter
from antiphon.wire.openai_chat.messages import read_messages
from antiphon.wire.openai_chat.rules import RULES
from antiphon.wire.openai_chat.shapes import MESSAGES, MessageShape, PlainAssistant, PlainBody, PlainResult
from antiphon.wire.openai_chat.tools import (
    read_function_choice,
    read_functions,
    read_tool,
    read_tool_choice,
    write_choice,
    write_tools,
)
from antiphon.wire.parameters import Rejection
from antiphon.wire.parameters.reasoning import HIDDEN, ReasoningForms, is_off, plan_reasoning
from antiphon.wire.request import ModelRequest, OutputFormat, Reasoning, asks_for_json_object
from antiphon.wire.request_writer import RequestWriter
from antiphon.wire.rules.sequence import SequenceJudge
from antiphon.wire.shapes import decode_plain, plain_values
from antiphon.wire.shared_openai import OPENAI, SHARED_PARAMETERS, described_schema, find_refused, lose_schema_fields

_REASONING = ReasoningForms(rule="OC-26", modes=("effort",), default_effort="medium")
_REASONING_KEYS = ("reasoning_effort", "thinking", "reasoning", "enable_thinking")
_HOST_REFUSES = Rejection("host does not accept it; dropped (OC-26)", "OC-26")
_JSON_NOTE = {"role": "system", "content": "Answer with a JSON object."}


def _build_request(entries: list[Any], unread: dict[str, Any]) -> ModelRequest:
    """The request of messages and the rest of their body."""
    fields: dict[str, Any] = {"messages": tuple(read_messages(entries))}
    native = read_parameters(unread, fields)
    if native:
        _read_tools(fields, native)
        if native:
            shared = {key: native.pop(key) for key in SHARED_PARAMETERS if key in native}
            fields["native"] = {**({OPENAI: shared} if shared else {}), **({FORMAT: native} if native else {})}
    return ModelRequest(**fields)


def _read_tools(fields: dict[str, Any], native: dict[str, Any]) -> None:
    tools, functions = native.get("tools"), native.get("functions")
    declared: list[Any] = []
    if type(tools) is list:
        declared.extend(map(read_tool, native.pop("tools")))
    if type(functions) is list:
        read = read_functions(functions)
        if read is not None:
            del native["functions"]
            declared.extend(read)
            if not tools and "parallel_tool_calls" not in fields:
                fields["parallel_tool_calls"] = False  # an answer in this shape has one call
    fields["tools"] = tuple(declared)
    choice = read_tool_choice(native["tool_choice"]) if "tool_choice" in native else None
    if choice is not None:
        fields["tool_choice"] = choice
        del native["tool_choice"]
    elif "function_call" in native and "tool_choice" not in native and "functions" not in native:
        choice = read_function_choice(native["function_call"])
        if choice is not None:
            fields["tool_choice"] = choice
            del native["function_call"]


def read_parameters(body: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    """Read the keys of a body into fields of the request; returns the rest, including tools."""
    native = PARAMETER_TABLE.read(body, fields)
    if not native:
        return native
    if "max_tokens" in native or "max_completion_tokens" in native:
        _read_output_tokens(fields, native)
    if not native.keys().isdisjoint(_REASONING_KEYS):
        _read_reasoning(fields, native)
    if "response_format" in native and (output_format := _read_output_format(native["response_format"])) is not None:
        fields["output_format"] = output_format
        del native["response_format"]
    options = native.get("stream_options")
    if type(options) is dict and options.get("include_usage") is True and fields.get("stream"):
        native["stream_options"] = {key: value for key, value in options.items() if key != "include_usage"}
        if not native["stream_options"]:
            del native["stream_options"]
    return native


def _read_output_tokens(fields: dict[str, Any], native: dict[str, Any]) -> None:
    has_both = "max_completion_tokens" in native and "max_tokens" in native
    for key in ("max_completion_tokens", "max_tokens"):
        value = native.get(key)
        if type(value) is int and value > 0 and "max_output_tokens" not in fields:
            fields["max_output_tokens"] = value
            if not has_both:  # both (OC-23) are written back unchanged
                del native[key]


def _read_reasoning(fields: dict[str, Any], native: dict[str, Any]) -> None:
    effort = native.pop("reasoning_effort") if type(native.get("reasoning_effort")) is str else None
    has_effort, budget, enabled, shown = effort is not None, None, None, None
    kept: dict[str, Any] = {}
    thinking, reasoning, switch = native.get("thinking"), native.get("reasoning"), native.get("enable_thinking")
    if type(thinking) is dict and type(thinking.get("type")) is str:
        kept["thinking"] = native.pop("thinking")
        enabled, budget = thinking["type"] != "disabled", _count(thinking, "budget_tokens")
    if type(reasoning) is dict:
        kept["reasoning"] = native.pop("reasoning")
        inner_effort = reasoning.get("effort")
        effort = effort or (inner_effort if type(inner_effort) is str else None)
        budget = _count(reasoning, "max_tokens") or budget
        enabled = reasoning["enabled"] if type(reasoning.get("enabled")) is bool else enabled
        shown = "omitted" if reasoning.get("exclude") is True else None
    if type(switch) is bool:
        enabled = kept["enable_thinking"] = native.pop("enable_thinking")
    if has_effort or kept:
        fields["reasoning"] = Reasoning(effort, budget, enabled, shown, {FORMAT: kept} if kept else None)


def _count(value: dict[str, Any], key: str) -> int | None:
    count = value.get(key)
    return count if type(count) is int else None


def _read_output_format(output_format: Any) -> OutputFormat | None:
    if type(output_format) is not dict:
        return None
    kind = output_format.get("type")
    if kind in ("text", "json_object") and len(output_format) == 1:
        return OutputFormat("text" if kind == "text" else "json_object")
    described = output_format.get("json_schema")
    if kind != "json_schema" or len(output_format) != 2 or type(described) is not dict:
        return None
    name, description = described.get("name"), described.get("description")
    schema, strict = described.get("schema"), described.get("strict")
    unknown = other_fields(described, ("name", "description", "schema", "strict"))
    if type(name) is not str or type(description) not in (str, type(None)) or unknown:
        return None
    if type(schema) not in (dict, type(None)) or type(strict) not in (bool, type(None)):
        return None
    return OutputFormat("json_schema", schema, name, description, strict)


class Writer(RequestWriter):
    """Writes a body that the host accepts."""

    format = FORMAT
    fixes = RULES.fixes
    messages: MessageListWriter

    def begin(self) -> None:
        self.host = host = get_dialect(self.options.dialect or "openai")
        self.wraps_calls = host.enforces_schemas
        self._accepts_system = self.model.system_messages != "none"
        self._has_begun = False
        self._declared: dict[str, str] = {}
        self.messages = MessageListWriter(
            self.losses,
            host,
            self.model,
            accepts_system=self._accepts_system,
            thinking_enabled=thinking_requested(self.request.reasoning),
        )

    def settle(self) -> list[Any]:
        self._begin_list()
        return super().settle()

    def _begin_list(self) -> None:
        """Insert what depends on the first messages only (L9)."""
        entries = self.messages.entries
        if not self._has_begun and asks_for_json_object(self.request) and not _mentions_json_early(entries):
            entries.insert(0, _JSON_NOTE if self._accepts_system else {**_JSON_NOTE, "role": "user"})  # OC-24
        self._has_begun = True

    def end_messages(self) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.request.model} if self.request.model else {}
        self.messages.settle()
        body["messages"] = messages = self.messages.entries
        if not messages:
            messages.append({"role": "user", "content": ""})
            reason = "at least one message is required; added an empty one (OC-01)"
            self.losses.append(Loss("messages", "no messages", reason))
        self._begin_list()
        self._declared = write_tools(self.request, body, self.losses, self.host)
        return body

    def write_choice(self, body: dict[str, Any]) -> None:
        write_choice(self.request, body, self.losses, self.host, self._declared)

    def write_parameters(self, body: dict[str, Any]) -> None:
        request, host, model = self.request, self.host, self.model
        switches = {} if request.reasoning is None else self._reasoning_switches(request.reasoning)
        refused = find_refused(model, "OC-26", request.temperature, request.top_p, switches.get("reasoning_effort"))
        if not host.accepts_top_k:
            refused = {**refused, "top_k": _HOST_REFUSES}
        legacy = host.output_tokens_field if model.max_tokens else "max_completion_tokens"
        keys = {"max_output_tokens": legacy, "seed": host.seed_field}
        table = PARAMETER_TABLE if host.enforces_schemas else COMPATIBLE_TABLE
        table.write(request, body, model, self.losses, refused=refused, keys=keys)
        if request.output_format is not None:
            self._write_output_format(request.output_format, body)
        body.update(switches)
        if request.stream is not None:
            body["stream"] = request.stream
        body.update(own_extras(request.native, self.losses, "native", OPENAI, FORMAT))
        if body.get("stream") is True and host.has_stream_options:
            options = body.get("stream_options")
            if type(options) in (dict, type(None)):
                body["stream_options"] = {"include_usage": True, **(options or {})}

    def _write_output_format(self, output_format: OutputFormat, body: dict[str, Any]) -> None:
        extras = own_extras(output_format.native, self.losses, "output_format", OPENAI, FORMAT)
        if output_format.kind != "json_schema":
            body["response_format"] = {"type": output_format.kind, **extras}
            lose_schema_fields(output_format, output_format.kind, self.losses)
            return
        enforces = self.host.enforces_schemas
        described = described_schema(output_format, self.losses, "OC-17", enforces_schemas=enforces)
        body["response_format"] = {"type": "json_schema", "json_schema": described, **extras}

    def _reasoning_switches(self, reasoning: Reasoning) -> dict[str, Any]:
        """The parameters that set reasoning, as the host names them."""
        host, model, losses, native = self.host, self.model, self.losses, reasoning.native or {}
        lose_native(losses, "reasoning", native, FORMAT)
        extras, switch = native.get(FORMAT, {}), host.reasoning_switch
        if extras and (host.echoes_reasoning or switch in extras):
            written = dict(extras)
            openrouter = extras.get("reasoning")
            effort = openrouter.get("effort") if isinstance(openrouter, dict) else None
            if reasoning.effort is not None and effort != reasoning.effort:
                plan = plan_reasoning(Reasoning(reasoning.effort), model, _REASONING, losses)
                if plan.effort is not None:
                    written["reasoning_effort"] = plan.effort
            return written
        settings = (reasoning.effort, reasoning.budget_tokens, reasoning.enabled)
        if switch == "reasoning" and (settings != (None, None, None) or reasoning.shown is not None):
            return {"reasoning": _openrouter_reasoning(reasoning)}
        has_switch = switch != "reasoning_effort" and settings != (None, None, None)
        if has_switch and not (host.accepts_effort and reasoning.effort not in (None, "none")):
            plan_reasoning(Reasoning(shown=reasoning.shown), model, _REASONING, losses)
            if switch == "thinking":
                return {"thinking": {"type": "enabled" if thinking_requested(reasoning) else "disabled"}}
            budget = {"thinking_budget": reasoning.budget_tokens} if reasoning.budget_tokens else {}
            return {"enable_thinking": thinking_requested(reasoning), **budget}
        plan = plan_reasoning(reasoning, model, _REASONING, losses)
        return {} if plan.effort is None else {"reasoning_effort": plan.effort}


def thinking_requested(reasoning: Reasoning | None) -> bool:
    return reasoning is not None and not is_off(reasoning)


def _openrouter_reasoning(reasoning: Reasoning) -> dict[str, Any]:
    written: dict[str, Any] = {}
    if reasoning.effort is not None:
        written["effort"] = reasoning.effort
    elif reasoning.budget_tokens is not None:
        written["max_tokens"] = reasoning.budget_tokens
    if reasoning.enabled is not None:
        written["enabled"] = reasoning.enabled
    if reasoning.shown is not None:
        written["exclude"] = reasoning.shown in HIDDEN
    return written


def _mentions_json_early(messages: list[Any]) -> bool:
    """Whether a message up to the first user's mentions JSON: later messages may not change the beginning (L9)."""
    for message in messages:
        plain = plain_values(message)  # its parts may be structs too
        if any(map(shared_openai.mentions_json, shared_openai.texts_of([plain]))):
            return True
        if type(plain) is dict and plain.get("role") == "user":
            return False
    return False


def scan_request(data: bytes) -> ModelRequest | None:
    """A request without its content, if that is only text, calls and results in order."""
    body = decode_plain(data, PlainBody)
    if body is None:
        return None
    judge: SequenceJudge | None = None  # text alone, before the first call, is in order
    messages: list[Any] = body.messages
    for index, message in enumerate(messages):
        kind = type(message)
        if kind is PlainResult:
            if judge is None or not judge.answer(message.tool_call_id, index):
                return None
        elif kind is PlainAssistant:
            if judge is None and message.tool_calls:
                judge = SequenceJudge(SPEC.sequence_rule)
            if judge is not None:
                judge.turn(is_model=True)
                for call in message.tool_calls or ():
                    judge.call(call.id, index)
        elif judge is not None:
            judge.turn(is_model=False)
            judge.other()
    effort = body.reasoning_effort
    reasoning = None if effort is None else Reasoning(effort)
    options = body.stream_options
    native = None if options is UNSET else {FORMAT: {"stream_options": options}}
    if judge is not None and judge.end():
        return None
    return ModelRequest(model=body.model, stream=body.stream, reasoning=reasoning, native=native)


READER = RequestReader(
    "messages", MessageShape, {*PARAMETERS, *HOST_PARAMETERS}, MESSAGES.fit, list_of_entries, _build_request
)
