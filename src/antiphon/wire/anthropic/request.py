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
from antiphon.wire.anthropic.block_writer import BlockWriter, plain
from antiphon.wire.anthropic.caching import settle_marks
from antiphon.wire.anthropic.content import read_block
from antiphon.wire.anthropic.messages import MessagesWriter
from antiphon.wire.anthropic.native import FORMAT, extras_of, mark_of_origin
from antiphon.wire.anthropic.parameters import EFFORTS, SAMPLING, is_neutral
from antiphon.wire.anthropic.reasoning import DEFAULT_MAX_TOKENS, may_think, read_thinking, write_reasoning
from antiphon.wire.anthropic.schema import answer_schema
from antiphon.wire.anthropic.target import VERSION, Target, target_of
from antiphon.wire.anthropic.tools import read_choice, read_tool, write_choice, write_tools
from antiphon.wire.format import DEFAULT_OPTIONS, WriteOptions
from antiphon.wire.loss import Loss, lose_native
from antiphon.wire.request import Message, ModelRequest, OutputFormat, Reasoning

LONGEST_USER = 512
LEAST_TOP_P = 0.95
"""Below this, `top_p` does not go with thinking."""

_ROLES = ("user", "assistant", "system")
_MESSAGE_FIELDS = frozenset({"role", "content"})
# No parameter of this API; and the value that says no more than to say nothing.
_UNSAYABLE = {
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
_TIERS = {"auto": "auto", "standard_only": "standard_only", "default": "standard_only"}


def read_request(body: dict[str, Any]) -> ModelRequest:
    """A body of the Messages API in neutral terms."""
    given = body.get("messages")
    if type(given) is not list:
        raise WireError(f"messages: a request of {FORMAT} has a list of messages, not {type(given).__name__}")
    return request_of(_read_messages(given), {name: value for name, value in body.items() if name != "messages"})


def request_of(messages: list[Message], rest: dict[str, Any]) -> ModelRequest:
    """The request of messages that are read, and of the rest of their body."""
    leading: tuple[Message, ...] = ()
    fields: dict[str, Any] = {}
    extras: dict[str, Any] = {}
    for name, value in rest.items():
        field, kinds = _PLAIN.get(name, ("", ()))
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


def _read_messages(given: list[Any]) -> list[Message]:
    messages: list[Message] = []
    names: dict[str, str] = {}  # of the tools called so far, by the id of the call
    for raw in given:
        content: Any = raw.get("content") if type(raw) is dict else None
        role: Any = raw.get("role") if type(raw) is dict else None
        if role not in _ROLES or type(content) not in (str, list):
            messages.append(Message("unknown", (Native(FORMAT, raw),)))
            continue
        parts = (Text(content),) if type(content) is str else tuple(_read_content(content, names))
        extras = extras_of(raw, _MESSAGE_FIELDS)
        messages.append(Message(role, parts, None, extras or (mark_of_origin() if role == "system" else None)))
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
        fields["output_format"] = OutputFormat("json_schema", schema, native=mark_of_origin())
    elif name in ("metadata", "output_config") and type(value) is dict:
        said = {key: inner for key, inner in value.items() if inner is not None}
        if name == "output_config":
            _read_output_config(said, fields)
        elif type(said.get("user_id")) is str:
            fields["user"] = said.pop("user_id")
        if said:
            extras[name] = said
    else:
        return False
    return True


def _read_output_config(said: dict[str, Any], fields: dict[str, Any]) -> None:
    """Take the effort and the format of the answer out of what is said."""
    if said.get("effort") in EFFORTS:
        known = fields.get("reasoning") or Reasoning(native=mark_of_origin())
        fields["reasoning"] = structs.replace(known, effort=said.pop("effort"))
    schema = _format_schema(said.get("format"))
    if schema is not None and "output_format" not in fields:
        del said["format"]
        fields["output_format"] = OutputFormat("json_schema", schema)


def _format_schema(form: Any) -> dict[str, Any] | None:
    match form:
        case {"type": "json_schema", "schema": dict(schema)} if len(form) == 2:
            return schema
    return None


_PLAIN: dict[str, tuple[str, tuple[type, ...]]] = {
    "model": ("model", (str,)),
    "max_tokens": ("max_output_tokens", (int,)),
    "stream": ("stream", (bool,)),
    "temperature": ("temperature", (int, float)),
    "top_p": ("top_p", (int, float)),
    "top_k": ("top_k", (int,)),
}


def write_request(request: ModelRequest, losses: list[Loss], options: WriteOptions = DEFAULT_OPTIONS) -> dict[str, Any]:
    """A body of the Messages API; `options.version` is the `anthropic-version` it will be sent with."""
    own = request.native.get(FORMAT, {}) if request.native else {}
    target = target_of(request.model, options.version or VERSION, own.get("anthropic_version"))
    body: dict[str, Any] = {"model": request.model} if request.model else {}
    limit = request.max_output_tokens
    body["max_tokens"] = DEFAULT_MAX_TOKENS if limit is None else max(0, limit)
    if limit is not None and limit < 0:
        losses.append(Loss("max_output_tokens", str(limit), "the least is 0 (AN-01)"))
    if request.stream is not None:
        body["stream"] = request.stream

    blocks = BlockWriter(target, losses)
    tools = write_tools(request, blocks.marks, losses) if request.tools else []
    turns = MessagesWriter(target, blocks, losses)
    turns.write(request.messages)
    turns.finish(own.get("fallback_credit_token") is not None)
    if turns.system:
        body["system"] = plain(turns.system)
    if tools:
        body["tools"] = tools
    body["messages"] = turns.messages

    choice = write_choice(request, tools, target, bool(tools or own.get("mcp_servers")), losses)
    if choice is not None:
        body["tool_choice"] = choice
    if request.reasoning is not None or request.output_format is not None:
        _write_thinking_and_format(request, body, target, blocks.cites, losses)
    _write_sampling(request, body, target, losses)
    _write_labels(request, body, losses)
    if blocks.marks:
        settle_marks(body, blocks.marks, losses)
    for name, least in _UNSAYABLE.items():
        if getattr(request, name) not in (None, least):
            losses.append(Loss(name, name, "the Messages API has no such parameter"))
    lose_native(losses, "native", request.native, FORMAT)
    for name, value in own.items():
        is_shared = name in ("metadata", "output_config") and type(value) is dict and type(body.get(name)) is dict
        body[name] = {**body[name], **value} if is_shared else value
    return body


def _write_thinking_and_format(
    request: ModelRequest, body: dict[str, Any], target: Target, cites: bool, losses: list[Loss]
) -> None:
    config: dict[str, Any] = {}
    if request.reasoning is not None:
        thinking, effort = write_reasoning(request.reasoning, target, losses)
        if thinking is not None and may_think(thinking, body, request.max_output_tokens is None, losses):
            body["thinking"] = thinking
        if effort is not None:
            config["effort"] = effort
    form = request.output_format
    if form is not None:
        written = _format(form, cites, losses)
        if written is not None and form.native is not None and FORMAT in form.native:
            body["output_format"] = written
        elif written is not None:
            config["format"] = written
    if config:
        body["output_config"] = config


def _format(form: OutputFormat, cites: bool, losses: list[Loss]) -> dict[str, Any] | None:
    lose_native(losses, "output_format", form.native, FORMAT)
    if form.kind == "text":
        return None
    why = "an output format is its schema and nothing more here"
    unsaid = [name for name in ("name", "description") if getattr(form, name) is not None]
    losses.extend(Loss(f"output_format.{name}", name, why) for name in unsaid)
    if form.strict is False:
        losses.append(Loss("output_format.strict", "strict", "the output format is always strict"))
    if form.kind == "json_object" or form.schema is None:
        losses.append(Loss("output_format", form.kind, "an output format needs a schema (AN-32)"))
    elif cites:
        losses.append(Loss("output_format", form.kind, "it does not go with citations (AN-32)"))
    else:
        return {"type": "json_schema", "schema": answer_schema(form.schema, "output_format.schema", losses)}
    return None


def _write_sampling(request: ModelRequest, body: dict[str, Any], target: Target, losses: list[Loss]) -> None:
    thinks = body.get("thinking", {}).get("type") in ("enabled", "adaptive")
    for name in SAMPLING:
        value = getattr(request, name)
        if value is None:
            continue
        is_unset = value == -1 and name != "temperature"
        says_nothing = is_unset or is_neutral(name, value)
        why = ""
        if target.is_new:
            why = "this version of the API has no such parameter (AN-28)"
        elif thinks and not (says_nothing or (name == "top_p" and value >= LEAST_TOP_P)):
            # Adaptive thinking is as strict as thinking within a budget, in the API's own words.
            why = "it does not go with thinking (AN-19)"
        elif not (target.takes_sampling or says_nothing):
            why = "this model no longer takes it (AN-21)"
        elif value != value or (name == "top_k" and value < 0 and not is_unset):
            why = "it is out of range (AN-21)"
        elif name != "top_k" and not is_unset and not 0 <= value <= 1:
            body[name] = 0 if value < 0 else 1
            losses.append(Loss(name, str(value), f"the range is 0 to 1 (AN-21): it was set to {body[name]}"))
        else:
            body[name] = value
        if why:
            losses.append(Loss(name, name, why))


def _write_labels(request: ModelRequest, body: dict[str, Any], losses: list[Loss]) -> None:
    if request.stop is not None:
        body["stop_sequences"] = [sequence for sequence in request.stop if sequence and not sequence.isspace()]
        for index, sequence in enumerate(request.stop):
            if not sequence or sequence.isspace():
                losses.append(Loss(f"stop[{index}]", repr(sequence), "a stop sequence must not be blank (AN-22)"))
    if request.user is not None:
        body["metadata"] = {"user_id": request.user[:LONGEST_USER]}
        if len(request.user) > LONGEST_USER:
            losses.append(Loss("user", "user", f"it was cut to {LONGEST_USER} characters (AN-23)"))
    if request.service_tier is not None:
        if request.service_tier in _TIERS:
            body["service_tier"] = _TIERS[request.service_tier]
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
