"""Requests of the Messages API, read and written.

Reading goes through the body once: a parameter that other formats can say too becomes a field of the request; every other
parameter, and one of these with a value of a shape we do not know, is kept as it came in `native["anthropic"]`, and put back
last. The system prompt is a leading `system` message. Only `messages` must be there, and be a list.

Writing makes whatever it is given into a body that `rules` finds nothing against, as far as the order of messages allows:
`messages` writes the turns, `tools`, `reasoning` and `schema` their parameters, and here the rest is settled: limits, ranges,
and the parameters that exclude each other.

Normalisations: what `write_request(read_request(body))` may change in a body the API accepts.
- Null is absent; so are an empty `model`, `tools`, `system`, `metadata` and `output_config`, and an empty title of a document,
  list of citations, content of a result and text in one.
- One plain text block is a string: in messages, `system` and results.
- Neighbours of one role are one message; system messages that lead are the system prompt.
- Blank text is left out, and messages with nothing else in them; trailing blanks of a last answer too.
- Results lead their turn, and calls end theirs where text came behind them.
- `is_error: false` of a result, `type: "custom"` of a tool and `input` of a call without arguments may be left out.
- Input objects are compact JSON; `definitions` of a tool's schema are called `$defs`.
Added without being a loss: `max_tokens` (4096, more if the thinking budget needs it) and words in an empty failed result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import structs

from antiphon.errors import WireError
from antiphon.parts import Native, Part, Text, ToolCallRequest, ToolCallResult
from antiphon.wire.anthropic.block_writer import ContentWriter, collapse_text
from antiphon.wire.anthropic.caching import limit_cache_breakpoints
from antiphon.wire.anthropic.content import read_block
from antiphon.wire.anthropic.messages import MessageListWriter
from antiphon.wire.anthropic.native import FORMAT, origin_marker, unread_fields
from antiphon.wire.anthropic.parameters import EFFORTS, SAMPLING, is_default_value
from antiphon.wire.anthropic.reasoning import DEFAULT_MAX_TOKENS, allow_thinking, read_thinking, write_reasoning
from antiphon.wire.anthropic.schema import as_output_schema
from antiphon.wire.anthropic.target import VERSION, Capabilities, capabilities_for
from antiphon.wire.anthropic.tools import read_choice, read_tool, write_choice, write_tools
from antiphon.wire.format import DEFAULT_OPTIONS, WriteOptions
from antiphon.wire.loss import Loss, lose_native
from antiphon.wire.request import Message, ModelRequest, OutputFormat, Reasoning

MAX_USER_LENGTH = 512
MIN_TOP_P_WITH_THINKING = 0.95
"""Below this, `top_p` does not go with thinking."""

_ROLES = ("user", "assistant", "system")
_MESSAGE_FIELDS = frozenset({"role", "content"})
# No parameter of this API; and the value that says no more than to say nothing.
_UNSUPPORTED_FIELDS = {
    "seed": None,
    "verbosity": None,
    "metadata": None,
    "cache_key": None,
    "store": None,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "candidates": 1,
    "logprobs": False,
    "top_logprobs": 0,
}
SERVICE_TIERS = {"auto": "auto", "standard_only": "standard_only", "default": "standard_only"}


def read_request(body: dict[str, Any]) -> ModelRequest:
    """A body of the Messages API in neutral terms."""
    messages = body.get("messages")
    if type(messages) is not list:
        raise WireError(f"messages: a request of {FORMAT} has a list of messages, not {type(messages).__name__}")
    return build_model_request(_read_messages(messages), {name: value for name, value in body.items() if name != "messages"})


def build_model_request(messages: list[Message], unread: dict[str, Any]) -> ModelRequest:
    """The request of messages that are read, and of the rest of their body."""
    leading: tuple[Message, ...] = ()
    fields: dict[str, Any] = {}
    extras: dict[str, Any] = {}
    for name, value in unread.items():
        field, kinds = _PARAMETER_FIELDS.get(name, ("", ()))
        if type(value) in kinds:
            fields[field] = value
        elif name == "system" and type(value) in (str, list):
            leading = _read_system(value)
        elif value is not None and not _read_parameter(name, value, fields, extras):
            extras[name] = value
    native = {FORMAT: extras} if extras else None
    return ModelRequest(messages=(*leading, *messages), native=native, **fields)


def _read_system(system: str | list[Any]) -> tuple[Message, ...]:
    if isinstance(system, str):
        return (Message("system", (Text(system),)),) if system else ()
    parts = tuple(part if type(part := read_block(block)) is Text else Native(FORMAT, block) for block in system)
    return (Message("system", parts),) if parts else ()


def _read_messages(raw_messages: list[Any]) -> list[Message]:
    messages: list[Message] = []
    names: dict[str, str] = {}  # of the tools called so far, by the id of the call
    for raw in raw_messages:
        content: Any = raw.get("content") if type(raw) is dict else None
        role: Any = raw.get("role") if type(raw) is dict else None
        if role not in _ROLES or type(content) not in (str, list):
            messages.append(Message("unknown", (Native(FORMAT, raw),)))
            continue
        parts = (Text(content),) if type(content) is str else tuple(_read_content(content, names))
        extras = unread_fields(raw, _MESSAGE_FIELDS)
        messages.append(Message(role, parts, None, extras or (origin_marker() if role == "system" else None)))
    return messages


def _read_content(content: list[Any], names: dict[str, str]) -> list[Part]:
    parts: list[Part] = []
    for block in content:
        part = read_block(block)
        if type(part) is ToolCallRequest:
            names[part.tool_call_id] = part.tool_name
        elif type(part) is ToolCallResult and part.tool_call_id in names:
            part = structs.replace(part, tool_name=names[part.tool_call_id])
        parts.append(part)
    return parts


def _read_parameter(name: str, value: Any, fields: dict[str, Any], extras: dict[str, Any]) -> bool:
    """Read a parameter that other formats know, or what they know of it; False if its value is of a shape we do not."""
    if name == "stop_sequences" and type(value) is list and all(type(sequence) is str for sequence in value):
        fields["stop"] = tuple(value)
    elif name == "service_tier" and value in ("auto", "standard_only"):
        fields["service_tier"] = value
    elif name == "tools" and type(value) is list:
        fields["tools"] = tuple([read_tool(tool) for tool in value])
    elif name == "tool_choice" and type(value) is dict and (choice := read_choice(value)) is not None:
        fields["tool_choice"], fields["parallel_tool_calls"] = choice
    elif name == "thinking" and (reasoning := read_thinking(value)) is not None:
        effort = fields["reasoning"].effort if "reasoning" in fields else None
        fields["reasoning"] = structs.replace(reasoning, effort=effort)
    elif name == "output_format" and "output_format" not in fields and (schema := _format_schema(value)) is not None:
        # The place of the format in an older beta; the mark of origin says that it stood there.
        fields["output_format"] = OutputFormat("json_schema", schema, native=origin_marker())
    elif name in ("metadata", "output_config") and type(value) is dict:
        fields_set = {key: inner for key, inner in value.items() if inner is not None}
        if name == "output_config":
            _read_output_config(fields_set, fields)
        elif type(fields_set.get("user_id")) is str:
            fields["user"] = fields_set.pop("user_id")
        if fields_set:
            extras[name] = fields_set
    else:
        return False
    return True


def _read_output_config(config: dict[str, Any], fields: dict[str, Any]) -> None:
    """Take the effort and the format of the answer out of what is said."""
    if config.get("effort") in EFFORTS:
        reasoning = fields.get("reasoning") or Reasoning(native=origin_marker())
        fields["reasoning"] = structs.replace(reasoning, effort=config.pop("effort"))
    schema = _format_schema(config.get("format"))
    if schema is not None and "output_format" not in fields:
        del config["format"]
        fields["output_format"] = OutputFormat("json_schema", schema)


def _format_schema(output_format: Any) -> dict[str, Any] | None:
    match output_format:
        case {"type": "json_schema", "schema": dict(schema)} if len(output_format) == 2:
            return schema
    return None


_PARAMETER_FIELDS: dict[str, tuple[str, tuple[type, ...]]] = {
    "model": ("model", (str,)),
    "max_tokens": ("max_output_tokens", (int,)),
    "stream": ("stream", (bool,)),
    "temperature": ("temperature", (int, float)),
    "top_p": ("top_p", (int, float)),
    "top_k": ("top_k", (int,)),
}


def write_request(request: ModelRequest, losses: list[Loss], options: WriteOptions = DEFAULT_OPTIONS) -> dict[str, Any]:
    """A body of the Messages API; `options.version` is the `anthropic-version` it will be sent with."""
    extras = request.native.get(FORMAT, {}) if request.native else {}
    capabilities = capabilities_for(request.model, options.version or VERSION, extras.get("anthropic_version"))
    body: dict[str, Any] = {"model": request.model} if request.model else {}
    limit = request.max_output_tokens
    body["max_tokens"] = DEFAULT_MAX_TOKENS if limit is None else max(0, limit)
    if limit is not None and limit < 0:
        losses.append(Loss("max_output_tokens", str(limit), "the least is 0 (AN-01)"))
    if request.stream is not None:
        body["stream"] = request.stream

    blocks = ContentWriter(capabilities, losses)
    tools = write_tools(request, blocks.cache_breakpoints, losses) if request.tools else []
    messages = MessageListWriter(capabilities, blocks, losses)
    messages.write(request.messages)
    messages.finish(extras.get("fallback_credit_token") is not None)
    if messages.system:
        body["system"] = collapse_text(messages.system)
    if tools:
        body["tools"] = tools
    body["messages"] = messages.messages

    choice = write_choice(request, tools, capabilities, bool(tools or extras.get("mcp_servers")), losses)
    if choice is not None:
        body["tool_choice"] = choice
    if request.reasoning is not None or request.output_format is not None:
        _write_thinking_and_format(request, body, capabilities, blocks.citations_enabled, losses)
    _write_sampling(request, body, capabilities, losses)
    _write_stop_and_user(request, body, losses)
    if blocks.cache_breakpoints:
        limit_cache_breakpoints(body, blocks.cache_breakpoints, losses)
    for name, default in _UNSUPPORTED_FIELDS.items():
        if getattr(request, name) not in (None, default):
            losses.append(Loss(name, name, "the Messages API has no such parameter"))
    lose_native(losses, "native", request.native, FORMAT)
    for name, value in extras.items():
        is_shared = name in ("metadata", "output_config") and type(value) is dict and type(body.get(name)) is dict
        body[name] = {**body[name], **value} if is_shared else value
    return body


def _write_thinking_and_format(
    request: ModelRequest, body: dict[str, Any], capabilities: Capabilities, citations_enabled: bool, losses: list[Loss]
) -> None:
    config: dict[str, Any] = {}
    if request.reasoning is not None:
        thinking, effort = write_reasoning(request.reasoning, capabilities, losses)
        if thinking is not None and allow_thinking(thinking, body, request.max_output_tokens is None, losses):
            body["thinking"] = thinking
        if effort is not None:
            config["effort"] = effort
    output_format = request.output_format
    if output_format is not None:
        written = _write_output_format(output_format, citations_enabled, losses)
        if written is not None and output_format.native is not None and FORMAT in output_format.native:
            body["output_format"] = written
        elif written is not None:
            config["format"] = written
    if config:
        body["output_config"] = config


def _write_output_format(output_format: OutputFormat, citations_enabled: bool, losses: list[Loss]) -> dict[str, Any] | None:
    lose_native(losses, "output_format", output_format.native, FORMAT)
    if output_format.kind == "text":
        return None
    reason = "an output format is its schema and nothing more here"
    dropped = [name for name in ("name", "description") if getattr(output_format, name) is not None]
    losses.extend(Loss(f"output_format.{name}", name, reason) for name in dropped)
    if output_format.strict is False:
        losses.append(Loss("output_format.strict", "strict", "the output format is always strict"))
    if output_format.kind == "json_object" or output_format.schema is None:
        losses.append(Loss("output_format", output_format.kind, "an output format needs a schema (AN-32)"))
    elif citations_enabled:
        losses.append(Loss("output_format", output_format.kind, "it does not go with citations (AN-32)"))
    else:
        return {"type": "json_schema", "schema": as_output_schema(output_format.schema, "output_format.schema", losses)}
    return None


def _write_sampling(request: ModelRequest, body: dict[str, Any], capabilities: Capabilities, losses: list[Loss]) -> None:
    thinking_enabled = body.get("thinking", {}).get("type") in ("enabled", "adaptive")
    for name in SAMPLING:
        value = getattr(request, name)
        if value is None:
            continue
        is_unset = value == -1 and name != "temperature"
        is_default = is_unset or is_default_value(name, value)
        reason = ""
        if capabilities.is_version_2026_10:
            reason = "this version of the API has no such parameter (AN-28)"
        elif thinking_enabled and not (is_default or (name == "top_p" and value >= MIN_TOP_P_WITH_THINKING)):
            # Adaptive thinking is as strict as thinking within a budget, in the API's own words.
            reason = "it does not go with thinking (AN-19)"
        elif not (capabilities.accepts_sampling or is_default):
            reason = "this model no longer takes it (AN-21)"
        elif value != value or (name == "top_k" and value < 0 and not is_unset):
            reason = "it is out of range (AN-21)"
        elif name != "top_k" and not is_unset and not 0 <= value <= 1:
            body[name] = 0 if value < 0 else 1
            losses.append(Loss(name, str(value), f"the range is 0 to 1 (AN-21): it was set to {body[name]}"))
        else:
            body[name] = value
        if reason:
            losses.append(Loss(name, name, reason))


def _write_stop_and_user(request: ModelRequest, body: dict[str, Any], losses: list[Loss]) -> None:
    if request.stop is not None:
        body["stop_sequences"] = [sequence for sequence in request.stop if sequence and not sequence.isspace()]
        for index, sequence in enumerate(request.stop):
            if not sequence or sequence.isspace():
                losses.append(Loss(f"stop[{index}]", repr(sequence), "a stop sequence must not be blank (AN-22)"))
    if request.user is not None:
        body["metadata"] = {"user_id": request.user[:MAX_USER_LENGTH]}
        if len(request.user) > MAX_USER_LENGTH:
            losses.append(Loss("user", "user", f"it was cut to {MAX_USER_LENGTH} characters (AN-23)"))
    if request.service_tier is not None:
        if request.service_tier in SERVICE_TIERS:
            body["service_tier"] = SERVICE_TIERS[request.service_tier]
        else:
            losses.append(Loss("service_tier", "service_tier", f"{request.service_tier!r} is not a tier of this API"))


def decode_request(data: bytes) -> ModelRequest | None:
    """The same from bytes; None if the body must be read generically."""
    from antiphon.wire.anthropic.plain import read_plain

    return read_plain(data)


def scan_request(data: bytes) -> ModelRequest | None:
    """The order of calls and results; None if the body must be read whole."""
    from antiphon.wire.anthropic.outline import read_outline

    return read_outline(data)


def needs_whole_request(request: ModelRequest, new: Sequence[Message]) -> bool:
    """Whether the body depends on the whole conversation."""
    if request.reasoning is not None:
        return True
    if request.output_format is not None and request.output_format.kind == "json_object":
        return True
    natives = (getattr(part, "native", None) or {} for message in new for part in message.parts)
    return any("cache_control" in extras for native in natives for extras in native.values())
