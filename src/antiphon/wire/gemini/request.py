"""Requests: a body of generateContent or streamGenerateContent, read and written.

The model and whether to stream are in the URL, not in the body: a `model` in a body is read, but never written. The system
prompt (`systemInstruction`) is a leading `system` message. A content is a message; a result is a part of a user's.

Writing the contents is the business of `turns`. What else Gemini cannot say is a loss.

Normalised, beside what `content` and `tools` list: a missing role is `user`; one object stands for a list of one; adjacent
contents of one role are merged, the results in them first; contents without parts are dropped; an empty `generationConfig`,
`toolConfig`, `thinkingConfig` or `functionCallingConfig` is absent; `model` is not written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from antiphon.parts import Native, NativeExtras, Part, Refusal, Text, Thinking
from antiphon.wire.format import DEFAULT_OPTIONS, WriteOptions
from antiphon.wire.gemini.calls import CallIds
from antiphon.wire.gemini.content import PartWriter, read_part
from antiphon.wire.gemini.generation import PREFIX, read_generation, write_generation
from antiphon.wire.gemini.model_name import traits_of
from antiphon.wire.gemini.rules import PARAMETERS
from antiphon.wire.gemini.spelling import FORMAT, array_of, extras_of, fields_of, forms, mark, marks_of, native_of
from antiphon.wire.gemini.tools import read_tool_choice, read_tools, write_tool_choice, write_tools
from antiphon.wire.gemini.turns import FUNCTION, lose_message_extras, write_turns
from antiphon.wire.loss import Loss, lose_native
from antiphon.wire.request import Message, ModelRequest

_BODY = forms(PARAMETERS)
_CONTENT = forms(("role", "parts"))
_TOOL_CONFIG = forms(("functionCallingConfig",))
_TOOL_PREFIX = "toolConfig."
_ROLES = {"user": "user", "model": "assistant", "function": "tool", None: "user", "": "user"}
_FUNCTION = mark(FUNCTION)
_SYSTEM_ROLE = "role:"
_UNSAYABLE = ("verbosity", "user", "metadata", "cache_key")
_TIERS = {"default": "standard", "standard_only": "standard"}
_NO_TIERS = frozenset({"auto", "scale"})


def read_request(body: dict[str, Any]) -> ModelRequest:
    """The request in neutral terms. Raises `WireError` if the contents are no list."""
    fields, native = fields_of(body, _BODY)
    contents = array_of(fields.pop("contents", None), "contents")
    return _request(_read_contents(contents), fields, native)


def request_of(messages: list[Message], rest: dict[str, Any]) -> ModelRequest:
    """The request of contents that are read, and of the rest of their body."""
    return _request(messages, *fields_of(rest, _BODY))


def _request(messages: list[Message], fields: dict[str, Any], native: dict[str, Any]) -> ModelRequest:
    values: dict[str, Any] = {}
    marks: NativeExtras = {}
    system = _read_system(fields.pop("systemInstruction", None), native)
    for name, value in fields.items():
        if name == "generationConfig" and type(value) is dict:
            read_generation(value, values, native, marks)
        elif name == "tools" and type(value) in (list, dict):
            values["tools"] = read_tools(value)
        elif name == "toolConfig" and type(value) is dict:
            _read_tool_config(value, values, native)
        elif name == "model" and type(value) is str:
            values["model"] = value
        elif name == "serviceTier" and type(value) is str and value not in _TIERS.keys() | _NO_TIERS:
            values["service_tier"] = value
        elif name == "store" and type(value) is bool:
            values["store"] = value
        else:  # it is only Gemini's, or not what it should be
            native[name] = value
    leading = () if system is None else (system,)
    return ModelRequest(messages=(*leading, *messages), native=native_of(native, marks), **values)


def _read_tool_config(config: dict[str, Any], values: dict[str, Any], native: dict[str, Any]) -> None:
    fields, extras = fields_of(config, _TOOL_CONFIG)
    calling = fields.get("functionCallingConfig")
    if calling is not None and calling != {}:
        choice = read_tool_choice(calling)
        if choice is None:
            extras["functionCallingConfig"] = calling
        else:
            values["tool_choice"] = choice
    native.update((_TOOL_PREFIX + name, value) for name, value in extras.items())


def _read_system(system: Any, native: dict[str, Any]) -> Message | None:
    """The system prompt; only its text is ours, for Gemini takes nothing else there (GM-15)."""
    if type(system) is str:
        return Message("system", (Text(system),))
    if type(system) is not dict:
        if system is not None:
            native["systemInstruction"] = system
        return None
    fields, extras = fields_of(system, _CONTENT)
    role, parts = fields.get("role"), fields.get("parts")
    marks = mark(_SYSTEM_ROLE + role) if type(role) is str and role else None
    if role is not None and type(role) is not str:
        extras["role"] = role
    calls = CallIds()
    said = parts if type(parts) is list else [] if parts is None else [parts]
    read = [(part, read_part(part, calls)) for part in said]
    told: list[Part] = [ours if type(ours) in (Text, Thinking) else Native(FORMAT, part) for part, ours in read]
    return Message("system", tuple(told), native=native_of(extras, marks))


def _read_contents(contents: list[Any]) -> list[Message]:
    messages: list[Message] = []
    calls = CallIds()
    before = ""
    for content in contents:
        named = content.get("role") if type(content) is dict else 0
        role = _ROLES.get(named) if named is None or type(named) is str else None
        if role is None:
            messages.append(Message("unknown", (Native(FORMAT, content),)))
            continue
        parts = content.get("parts")
        native = None
        if named is None or parts is None or len(content) != 2 or role == "tool":
            extras = fields_of(content, _CONTENT)[1]
            native = native_of(extras, _FUNCTION if role == "tool" else None)
        if type(parts) is not list:
            parts = [] if parts is None else [parts]
        if role == "assistant" and before != "assistant":
            calls.new_step()
        before = role
        messages.append(Message(role, tuple([read_part(part, calls) for part in parts]), None, native))
    return messages


def write_request(request: ModelRequest, losses: list[Loss], options: WriteOptions = DEFAULT_OPTIONS) -> dict[str, Any]:
    """A body that Gemini accepts. `options.model` is the one that will be named in the URL, if it is not the request's own."""
    traits = traits_of(options.model or request.model)
    native = extras_of(request.native)
    writer = PartWriter(
        losses, is_request=True, signs_calls=traits.needs_signatures, takes_media=traits.takes_media_in_results
    )
    body: dict[str, Any] = {}
    tools = write_tools(request.tools, writer)
    messages = request.messages
    leading = next(
        (index for index, message in enumerate(messages) if message.role not in ("system", "developer")), len(messages)
    )
    if leading:
        system = _write_system(messages[:leading], writer)
        if system is not None:
            body["systemInstruction"] = system
    body["contents"] = write_turns(messages, leading, writer, traits)
    if tools:
        body["tools"] = tools
    tool_config = _write_tool_config(request, native, writer, tools)
    if tool_config:
        body["toolConfig"] = tool_config
    config = write_generation(request, native, traits, losses)
    if config:
        body["generationConfig"] = config
    _write_rest(request, native, body, losses)
    return body


def _write_tool_config(
    request: ModelRequest, native: dict[str, Any], writer: PartWriter, tools: list[dict[str, Any]]
) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if request.tool_choice is not None:
        calling = write_tool_choice(request.tool_choice, writer, tools)
        if calling is not None:
            config["functionCallingConfig"] = calling
    config.update((name[len(_TOOL_PREFIX) :], value) for name, value in native.items() if name.startswith(_TOOL_PREFIX))
    return config


def _write_rest(request: ModelRequest, native: dict[str, Any], body: dict[str, Any], losses: list[Loss]) -> None:
    if request.parallel_tool_calls is False:
        why = f"{FORMAT} may always make several calls at once"
        losses.append(Loss("parallel_tool_calls", "parallel_tool_calls", why))
    losses.extend(
        Loss(field, field, f"{FORMAT} cannot say it") for field in _UNSAYABLE if getattr(request, field) is not None
    )
    tier = request.service_tier
    if tier in _NO_TIERS:
        losses.append(Loss("service_tier", "service_tier", f"{FORMAT} has no tier named {tier}"))
    elif tier is not None:
        body["serviceTier"] = _TIERS.get(tier, tier)
    if request.store is not None:
        body["store"] = request.store
    lose_native(losses, "native", request.native, FORMAT)
    for name, value in native.items():
        if name.startswith((PREFIX, _TOOL_PREFIX)):
            continue
        if name in body:
            losses.append(Loss(f"native.{name}", name, "the request says it in another way, too"))
        else:
            body[name] = value
    if body.get("cachedContent") and body.keys() & {"tools", "toolConfig", "systemInstruction"}:  # GM-19
        del body["cachedContent"]
        why = "it cannot be combined with tools or a system prompt"
        losses.append(Loss("native.cachedContent", "cachedContent", why))


def _write_system(messages: Sequence[Message], writer: PartWriter) -> dict[str, Any] | None:
    """The leading system messages as one instruction (GM-15: text only)."""
    parts: list[Any] = []
    system: dict[str, Any] = {}
    for index, message in enumerate(messages):
        writer.message = index
        lose_message_extras(message, index, writer.losses)
        for role in marks_of(message.native):
            if role.startswith(_SYSTEM_ROLE):
                system["role"] = role[len(_SYSTEM_ROLE) :]
        system.update(extras_of(message.native))
        for position, part in enumerate(message.parts):
            if isinstance(part, Text | Thinking | Refusal | Native):
                written = writer.write(part, position)
                if written is not None:
                    parts.append(written)
            else:
                why = "the system prompt is text only"
                writer.losses.append(Loss(writer.path(position), type(part).__name__.lower(), why))
    if not parts and not system:
        return None
    system["parts"] = parts
    return system


def decode_request(data: bytes) -> ModelRequest | None:
    """The same from bytes; None if the body must be read generically."""
    from antiphon.wire.gemini.plain import read_plain

    return read_plain(data)


def scan_request(_data: bytes) -> ModelRequest | None:
    """None: the body must be read whole."""
    return None


def needs_whole_request(request: ModelRequest, _new: Sequence[Message]) -> bool:
    """Whether the body depends on the whole conversation."""
    return request.output_format is not None and request.output_format.kind == "json_object"
