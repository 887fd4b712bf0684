"""Requests: a body of generateContent or streamGenerateContent, read and written.

Fields that several formats have become fields of the request. All others, also malformed ones, stay in `native["gemini"]` under
their full name (`generationConfig.responseModalities`), so that each is a separate loss elsewhere. Thinking is a budget in tokens
(0: none, -1: dynamic) or, from Gemini 3, a level; never both (GM-14). An unknown model counts as one that accepts both.

The model and whether to stream are in the URL: a `model` in a body is read but never written. The system prompt
(`systemInstruction`) is a leading `system` message. A content is a message; a result is a part of a user message.

Normalised, beside what `content` and `tools` list: a missing role is `user`; one object counts as a list of one; adjacent
contents of one role are merged, results first; contents without parts are dropped; an empty `generationConfig`, `toolConfig`,
`thinkingConfig` or `functionCallingConfig` is absent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from antiphon.parts import Native, Part, Source, Text, Thinking
from antiphon.wire.format import RequestReader
from antiphon.wire.gemini import FORMAT
from antiphon.wire.gemini.content import read_value
from antiphon.wire.gemini.limits import CONFIG, PARAMETER_TABLE, PARAMETERS
from antiphon.wire.gemini.messages import (
    CONTENT_FIELDS,
    SYSTEM_ROLE,
    ContentsWriter,
    read_contents,
)
from antiphon.wire.gemini.native import (
    field_spellings,
    gemini_extras,
    native_extras,
    require_list,
    split_fields,
)
from antiphon.wire.gemini.rules import RULES
from antiphon.wire.gemini.shapes import ContentShape, fit_content
from antiphon.wire.gemini.tools import as_json_schema, read_tool_choice, read_tools, write_tool_choice, write_tools
from antiphon.wire.loss import Loss, Losses, lose_native, own_extras
from antiphon.wire.parameters import refused_fields
from antiphon.wire.parameters.reasoning import DYNAMIC, HIDDEN, ReasoningForms, plan_reasoning
from antiphon.wire.provenance import is_spelled
from antiphon.wire.request import Message, ModelRequest, OutputFormat, Reasoning
from antiphon.wire.request_writer import RequestWriter
from antiphon.wire.shared_google import (
    LEVEL_FOR,
    THINKING_LEVELS,
    lose_format_details,
    lose_parallel_switch,
    with_prefix,
    without_prefix,
)
from antiphon.wire.tools.call_ids import CallIdTracker

GENERATION_PREFIX, TOOL_PREFIX = f"{CONFIG}.", "toolConfig."
JSON_TYPE = "application/json"
_REASONING = ReasoningForms(
    rule="GM-14",
    modes=("off", "level", "budget"),
    words=LEVEL_FOR,
    shown={None: True, **dict.fromkeys(HIDDEN, False)},
)
_THINKING_FIELDS = field_spellings(("thinkingBudget", "thinkingLevel", "includeThoughts"))
_LOWERCASE_LEVEL = Source(FORMAT, ("level:small",))
_OUTPUT_FIELDS = ("responseMimeType", "responseSchema", "responseJsonSchema")
_MODALITIES = "responseModalities"
_TEXT_ONLY = Source(FORMAT, ("text-only",))
"""Of `responseModalities: ["TEXT"]`, the default of every other format."""
_GENERATION_FIELDS = field_spellings((_MODALITIES, *PARAMETER_TABLE.keys(CONFIG), "thinkingConfig", *_OUTPUT_FIELDS))
_PARAMETER_SPELLINGS = field_spellings(PARAMETERS)
_TOOL_CONFIG_FIELDS = field_spellings(("functionCallingConfig",))


def _entries_of(contents: Any) -> list[Any]:
    return require_list(contents, "contents")


def _build(entries: list[Any], unread: dict[str, Any]) -> ModelRequest:
    return _build_request(read_contents(entries), *split_fields(unread, _PARAMETER_SPELLINGS))


READER = RequestReader("contents", ContentShape, PARAMETERS, fit_content, _entries_of, _build)


def _build_request(messages: Sequence[Message], fields: dict[str, Any], native: dict[str, Any]) -> ModelRequest:
    values: dict[str, Any] = {}
    system = _read_system(fields.pop("systemInstruction", None), native)
    config = fields.get("generationConfig")
    if type(config) is dict:
        _read_generation(fields.pop("generationConfig"), values, native)
    for name, value in PARAMETER_TABLE.read(fields, values).items():
        if name == "tools" and type(value) in (list, dict):
            values["tools"] = read_tools(value)
        elif name == "toolConfig" and type(value) is dict:
            _read_tool_config(value, values, native)
        else:  # specific to Gemini, or malformed
            native[name] = value
    leading = () if system is None else (system,)
    return ModelRequest(messages=(*leading, *messages), native=native_extras(native), **values)


def _read_generation(config: dict[str, Any], values: dict[str, Any], native: dict[str, Any]) -> None:
    """Sort a `generationConfig` into the request's fields (`values`) and its native extras."""
    fields, extras = split_fields(config, _GENERATION_FIELDS)
    if fields.get(_MODALITIES) == ["TEXT"]:
        values["source"] = _TEXT_ONLY
        del fields[_MODALITIES]
    _read_output_format(fields, values)
    rest = PARAMETER_TABLE.read(fields, values, CONFIG)
    if type(rest.get("thinkingConfig")) is dict:
        thinking = rest.pop("thinkingConfig")
        if thinking:
            values["reasoning"] = _read_thinking(thinking)
    native |= with_prefix(GENERATION_PREFIX, {**extras, **rest})


def _read_output_format(fields: dict[str, Any], values: dict[str, Any]) -> None:
    """The output format, removed from `fields` if other formats have it too."""
    media_type, gemini_schema, schema = (fields.get(name) for name in _OUTPUT_FIELDS)
    if media_type == "text/plain" and gemini_schema is None and schema is None:
        values["output_format"] = OutputFormat("text")
    elif media_type != JSON_TYPE or (gemini_schema is not None and schema is not None):
        return
    elif type(schema) is dict:
        values["output_format"] = OutputFormat("json_schema", schema)
    elif type(gemini_schema) is dict:
        try:
            converted = as_json_schema(gemini_schema)
        except RecursionError:
            converted = gemini_schema
        original = native_extras({"responseSchema": gemini_schema})
        values["output_format"] = OutputFormat("json_schema", converted, native=original)
    elif gemini_schema is None and schema is None:
        values["output_format"] = OutputFormat("json_object")
    else:
        return
    for name in _OUTPUT_FIELDS:
        fields.pop(name, None)


def _read_thinking(config: dict[str, Any]) -> Reasoning:
    fields, extras = split_fields(config, _THINKING_FIELDS)
    budget, level, include_thoughts = (
        fields.pop(name, None) for name in ("thinkingBudget", "thinkingLevel", "includeThoughts")
    )
    effort: str | None = None
    source = None
    # Level and budget together are rejected (GM-14); the level is then kept as an extra.
    if (
        type(level) is str
        and level.lower() in THINKING_LEVELS
        and level in (level.lower(), level.upper())
        and budget is None
    ):
        effort = level.lower()
        source = _LOWERCASE_LEVEL if level == effort else None
    elif level is not None:
        extras["thinkingLevel"] = level
    is_dynamic = type(budget) is int and budget == DYNAMIC
    if budget is not None and (type(budget) is not int or budget < DYNAMIC):
        extras["thinkingBudget"], budget = budget, None
    if include_thoughts is not None and type(include_thoughts) is not bool:
        extras["includeThoughts"], include_thoughts = include_thoughts, None
    return Reasoning(
        effort,
        None if is_dynamic else budget,
        True if is_dynamic else None,
        {True: "auto", False: "omitted", None: None}[include_thoughts],
        native_extras(extras),
        source,
    )


def _read_tool_config(config: dict[str, Any], values: dict[str, Any], native: dict[str, Any]) -> None:
    fields, extras = split_fields(config, _TOOL_CONFIG_FIELDS)
    calling = fields.get("functionCallingConfig")
    if calling is not None and calling != {}:
        choice = read_tool_choice(calling)
        if choice is None:
            extras["functionCallingConfig"] = calling
        else:
            values["tool_choice"] = choice
    native |= with_prefix(TOOL_PREFIX, extras)


def _read_system(system: Any, native: dict[str, Any]) -> Message | None:
    """The system prompt; other parts than text stay native, since Gemini rejects them there (GM-15)."""
    if type(system) is str:
        return Message("system", (Text(system),))
    if type(system) is not dict:
        if system is not None:
            native["systemInstruction"] = system
        return None
    fields, extras = split_fields(system, CONTENT_FIELDS)
    role, parts = fields.get("role"), fields.get("parts")
    source = Source(FORMAT, (SYSTEM_ROLE + role,)) if type(role) is str and role else None
    if role is not None and type(role) is not str:
        extras["role"] = role
    calls = CallIdTracker()
    raw_parts = parts if type(parts) is list else [] if parts is None else [parts]
    read = [(part, read_value(part, calls)) for part in raw_parts]
    kept: list[Part] = [
        own_part if type(own_part) in (Text, Thinking) else Native(FORMAT, part) for part, own_part in read
    ]
    return Message("system", tuple(kept), native=native_extras(extras), source=source)


class Writer(RequestWriter):
    """Writes a body that Gemini accepts. `options.model` is the name in the URL, if it is not `request.model`."""

    format = FORMAT
    fixes = RULES.fixes
    messages: ContentsWriter

    def begin(self) -> None:
        self.own = gemini_extras(self.request.native)
        self._tools = write_tools(self.request.tools, self.losses)
        self.messages = ContentsWriter(self.losses, self.model)

    def end_messages(self) -> dict[str, Any]:
        self.messages.finish()
        system = self.messages.system
        body: dict[str, Any] = {} if system is None else {"systemInstruction": system}
        body["contents"] = self.messages.entries
        if self._tools:
            body["tools"] = self._tools
        tool_config = _write_tool_config(self.request, self.own, self.losses)
        if tool_config:
            body["toolConfig"] = tool_config
        return body

    def write_parameters(self, body: dict[str, Any]) -> None:
        request, model, losses = self.request, self.model, self.losses
        refused = refused_fields(model, "GM-14", "GM-14", request.temperature, request.top_p)
        PARAMETER_TABLE.write(request, body, model, losses, refused=refused)
        config: dict[str, Any] = body.setdefault(CONFIG, {})
        if request.output_format is not None:
            self._write_output_format(request.output_format, config)
        if request.reasoning is not None and (thinking := self._thinking(request.reasoning)):
            config["thinkingConfig"] = thinking
        if is_spelled(request, "text-only"):
            config[_MODALITIES] = ["TEXT"]
        config |= without_prefix(GENERATION_PREFIX, self.own)
        if not config:
            del body[CONFIG]
        lose_parallel_switch(request, "Gemini", losses)
        lose_native(losses, "native", request.native, FORMAT)
        for name, value in self.own.items():
            if name.startswith((GENERATION_PREFIX, TOOL_PREFIX)):
                continue
            if name in body:
                losses.append(Loss(f"native.{name}", name, "overridden by another field of the request; dropped"))
            else:
                body[name] = value

    def _thinking(self, reasoning: Reasoning) -> dict[str, Any]:
        model, losses = self.model, self.losses
        extras = own_extras(reasoning.native, losses, "reasoning", FORMAT)
        plan = plan_reasoning(reasoning, model, _REASONING, losses)
        if model.thinking == ():
            reason = "model does not support thinking; dropped (GM-14)"
            losses.extend(Loss(f"reasoning.{name}", name, reason) for name in extras)
            return {}
        config: dict[str, Any] = {}
        if plan.effort is not None:
            is_lowercase = is_spelled(reasoning, "level:small")
            config["thinkingLevel"] = plan.effort if is_lowercase else plan.effort.upper()
        elif plan.enabled is False or plan.budget is not None:
            config["thinkingBudget"] = plan.budget or 0
        elif plan.enabled and model.accepts_thinking("budget"):  # levels alone: thinking is the default
            config["thinkingBudget"] = DYNAMIC
        if plan.shown is not None:
            config["includeThoughts"] = plan.shown
        return {**config, **extras}

    def _write_output_format(self, output_format: OutputFormat, config: dict[str, Any]) -> None:
        lose_native(self.losses, "output_format", output_format.native, FORMAT)
        lose_format_details(output_format, self.losses, "Gemini")
        config["responseMimeType"] = "text/plain" if output_format.kind == "text" else JSON_TYPE
        if output_format.kind != "json_schema" or output_format.schema is None:
            return
        original = gemini_extras(output_format.native).get("responseSchema")
        if original is not None:
            config["responseSchema"] = original
        else:
            config["responseJsonSchema"] = output_format.schema


def _write_tool_config(request: ModelRequest, native: dict[str, Any], losses: Losses) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if request.tool_choice is not None:
        config["functionCallingConfig"] = write_tool_choice(request.tool_choice, losses)
    return config | without_prefix(TOOL_PREFIX, native)
