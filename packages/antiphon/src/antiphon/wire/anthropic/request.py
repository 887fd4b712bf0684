"""Requests of the Messages API, read and written.

A parameter that other formats have too becomes a field of the request; every other one, or a malformed one, is kept in
`native["anthropic"]` and written last. The system prompt is a leading `system` message. docs/architecture.md lists what is
normalised. Added without a loss: `max_tokens` (4096, more if the thinking budget needs it) and text in an empty failed result.

Reasoning that was read here has a source and is written in the same way: a budget is `enabled`, plain yes `adaptive`,
plain no `disabled`, and an effort alone stays alone. Reasoning of other formats is only an amount: it becomes adaptive thinking
with an effort on models known to accept that, and a budget on all others. Where a model rejects one (AN-19, AN-32), the other
is used.
"""

from __future__ import annotations

from typing import Any

from msgspec import structs

from antiphon.parts import Native, NativeExtras, Text
from antiphon.wire.anthropic import FORMAT, SPEC
from antiphon.wire.anthropic.cache_breakpoints import mark_body
from antiphon.wire.anthropic.content import collapse_text, read_value
from antiphon.wire.anthropic.dialects import fit_request, fit_temperature, get_dialect, ignored_loss
from antiphon.wire.anthropic.limits import (
    DEFAULT_MAX_TOKENS,
    EFFORTS,
    HOST_PARAMETERS,
    MAX_TOKENS,
    MIN_BUDGET,
    PARAMETER_TABLE,
    VERSION,
    refusals,
    target_for,
)
from antiphon.wire.anthropic.messages import MessageListWriter, read_messages
from antiphon.wire.anthropic.rules import RULES
from antiphon.wire.anthropic.shapes import SOURCE, MessageShape, PlainBody, PlainCall, PlainResult, fit_message
from antiphon.wire.anthropic.tools import read_tool, read_tool_choice, write_tool_choice, write_tools
from antiphon.wire.format import RequestReader, list_of_entries
from antiphon.wire.loss import Loss, lose_native
from antiphon.wire.parameters import lose_fields
from antiphon.wire.parameters.reasoning import ReasoningForms, plan_reasoning
from antiphon.wire.provenance import is_from
from antiphon.wire.request import Message, ModelRequest, OutputFormat, PromptCaching, Reasoning
from antiphon.wire.request_writer import RequestWriter
from antiphon.wire.rules.sequence import SequenceJudge
from antiphon.wire.shapes import decode_plain
from antiphon.wire.tools.schema import grammar_policy, rewrite

_DISPLAYS = {"omitted": "omitted", "summarized": "summarized"}
_REASONING = ReasoningForms(
    rule="AN-19",
    effort_rule="AN-32",
    modes=("off", "budget", "adaptive", "effort"),
    words={"minimal": "low"},
    shown=_DISPLAYS | dict.fromkeys(("auto", "concise", "detailed"), "summarized") | {"none": "omitted"},
    combines=True,
    min_budget=MIN_BUDGET,
)
_fit_max_tokens = MAX_TOKENS.limit.fit  # type: ignore[union-attr]


def _build_request(entries: list[Any], unread: dict[str, Any]) -> ModelRequest:
    """The request of messages and the other fields of the body."""
    messages = read_messages(entries)
    leading: tuple[Message, ...] = ()
    fields: dict[str, Any] = {}
    extras: dict[str, Any] = {}
    for name, value in PARAMETER_TABLE.read(unread, fields).items():
        if name == "system" and type(value) in (str, list):
            leading = _read_system(value)
        elif name == "tools" and type(value) is list:
            fields["tools"] = tuple([read_tool(tool) for tool in value])
        elif name == "tool_choice" and type(value) is dict and (choice := read_tool_choice(value)) is not None:
            fields["tool_choice"], fields["parallel_tool_calls"] = choice
        elif not _read_parameter(name, value, fields, extras):
            extras[name] = value
    native = {FORMAT: extras} if extras else None
    return ModelRequest(messages=(*leading, *messages), native=native, **fields)


READER = RequestReader("messages", MessageShape, HOST_PARAMETERS, fit_message, list_of_entries, _build_request)


def scan_request(data: bytes) -> ModelRequest | None:
    """A request without its content, if that is only text, calls and results in order."""
    body = decode_plain(data, PlainBody)
    if body is None:
        return None
    judge: SequenceJudge | None = None  # text alone, before the first call, is in order
    for index, message in enumerate(body.messages):
        is_model = message.role == "assistant"
        if judge is not None:
            judge.turn(is_model)
        blocks = message.content if type(message.content) is list and message.content else (None,)
        for block in blocks:
            if type(block) is PlainCall:
                if judge is None:
                    judge = SequenceJudge(SPEC.sequence_rule)
                    judge.turn(is_model)
                judge.call(block.id, index)
            elif judge is None:
                if type(block) is PlainResult:
                    return None
            elif type(block) is PlainResult:
                judge.result(block.tool_use_id, index)
            else:
                judge.other()
    reasoning = None if body.thinking is None else _read_thinking(body.thinking)
    if judge is not None and judge.end():
        return None
    return ModelRequest(model=body.model, stream=body.stream, reasoning=reasoning)


def _read_system(system: str | list[Any]) -> tuple[Message, ...]:
    if isinstance(system, str):
        return (Message("system", (Text(system),)),) if system else ()
    parts = tuple(part if type(part := read_value(block)) is Text else Native(FORMAT, block) for block in system)
    return (Message("system", parts),) if parts else ()


def _read_parameter(name: str, value: Any, fields: dict[str, Any], extras: dict[str, Any]) -> bool:
    """Read a parameter that other formats have too; False if it is unknown or malformed."""
    if name == "thinking" and (reasoning := _read_thinking(value)) is not None:
        effort = fields["reasoning"].effort if "reasoning" in fields else None
        fields["reasoning"] = structs.replace(reasoning, effort=effort)
    elif name == "output_format" and "output_format" not in fields and (schema := _format_schema(value)) is not None:
        # An older beta had the format here; its source records it.
        fields["output_format"] = OutputFormat("json_schema", schema, source=SOURCE)
    elif name == "output_config" and type(value) is dict:
        config = {key: inner for key, inner in value.items() if inner is not None}
        _read_output_config(config, fields)
        if config:
            extras[name] = config
    else:
        return False
    return True


def _read_output_config(config: dict[str, Any], fields: dict[str, Any]) -> None:
    """Move effort and format out of `config`."""
    if config.get("effort") in EFFORTS:
        reasoning = fields.get("reasoning") or Reasoning(source=SOURCE)
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


def _read_thinking(thinking: Any) -> Reasoning | None:
    """The reasoning settings in `thinking`; None if they are unknown."""
    match thinking:
        case {"type": "enabled", "budget_tokens": int(budget), **rest} if budget > 0 and type(budget) is int:
            return _read_display(Reasoning(budget_tokens=budget, enabled=True, source=SOURCE), rest)
        case {"type": "adaptive", **rest}:
            return _read_display(Reasoning(enabled=True, source=SOURCE), rest)
        case {"type": "disabled", **rest} if not rest:
            return Reasoning(enabled=False, source=SOURCE)
    return None


def _read_display(reasoning: Reasoning, other: dict[Any, Any]) -> Reasoning | None:
    display = other.get("display")
    if other.keys() - {"display"} or (display is not None and (type(display) is not str or display not in _DISPLAYS)):
        return None
    return Reasoning(reasoning.effort, reasoning.budget_tokens, True, display, source=SOURCE)


class Writer(RequestWriter):
    """Writes a body of the Messages API; `options.version` is the `anthropic-version` it will be sent with."""

    format = FORMAT
    fixes = RULES.fixes
    messages: MessageListWriter
    wraps_calls = False  # the tools say which of their calls change

    def begin(self) -> None:
        request, options = self.request, self.options
        self.own = request.native.get(FORMAT, {}) if request.native else {}
        self.host = host = get_dialect(options.dialect) if options.dialect else None
        if host is not None and not host.ignored.isdisjoint(self.own):
            self.losses += (ignored_loss(host, name) for name in self.own if name in host.ignored)
            self.own = {name: value for name, value in self.own.items() if name not in host.ignored}
        self.target = target_for(self.model, options.version or VERSION, self.own.get("anthropic_version"))
        self.messages = messages = MessageListWriter(self.target, self.losses)
        self.breakpoints = messages.breakpoints
        self._tools: list[Any] = []
        if request.tools:
            self._tools = write_tools(request, self.model, self.breakpoints, messages.argument_writers, self.losses)

    def needs_whole(self) -> bool:
        """Breakpoints of the client are limited from the last one back; thinking depends on the whole tool loop."""
        lacks = self.host is not None and self.host.missing_thinking
        return bool(self.breakpoints or lacks or self.request.reasoning is not None)

    def end_messages(self) -> dict[str, Any]:
        request = self.request
        body: dict[str, Any] = {"model": request.model} if request.model else {}
        limit = request.max_output_tokens
        body["max_tokens"] = (
            DEFAULT_MAX_TOKENS if limit is None else _fit_max_tokens(limit, MAX_TOKENS.field, self.losses, self.model)
        )
        if request.stream is not None:
            body["stream"] = request.stream
        self.messages.finish(self.own.get("fallback_credit_token") is not None)
        if self.messages.system:
            body["system"] = collapse_text(self.messages.system)
        if self._tools:
            body["tools"] = self._tools
        body["messages"] = self.messages.entries
        return body

    def write_choice(self, body: dict[str, Any]) -> None:
        choice = write_tool_choice(self.request, self.losses)
        if choice is not None:
            body["tool_choice"] = choice

    def mark_prompt(self, body: dict[str, Any], caching: PromptCaching) -> None:
        has_effect = self.host is None or self.host.caches_marked_prompts
        if has_effect and not self.breakpoints:
            mark_body(self.request, caching, body, self.model.cache_breakpoints)

    def write_parameters(self, body: dict[str, Any]) -> None:
        request = self.request
        if self.host is not None:
            self.request = request = fit_request(request, self.host, body, self.losses)
        if request.reasoning is not None or request.output_format is not None:
            self._write_thinking_and_format(request, body)
            self.fix("reasoning", body)
        refused = refusals(request.temperature, request.top_p, request.top_k, body.get("thinking"), self.target)
        PARAMETER_TABLE.write(request, body, self.model, self.losses, refused=refused)
        if self.host is not None:
            fit_temperature(self.host, body, self.losses)
        if request.native is not None:
            self._write_extras(request.native, body)
        if self.breakpoints:
            self.fix("breakpoints", body)

    def _write_thinking_and_format(self, request: ModelRequest, body: dict[str, Any]) -> None:
        config: dict[str, Any] = {}
        if request.reasoning is not None:
            self._write_thinking(request.reasoning, body, config)
        output_format = request.output_format
        if output_format is not None and (written := self._output_format(output_format)) is not None:
            if is_from(output_format, FORMAT):
                body["output_format"] = written
            else:
                config["format"] = written
        if config:
            body["output_config"] = config

    def _write_thinking(self, reasoning: Reasoning, body: dict[str, Any], config: dict[str, Any]) -> None:
        """Set `thinking` in the body, and the effort in its `output_config`."""
        lose_native(self.losses, "reasoning", reasoning.native, FORMAT)
        plan = plan_reasoning(reasoning, self.model, _REASONING, self.losses, is_own=is_from(reasoning, FORMAT))
        if plan.effort is not None:
            config["effort"] = plan.effort
        if plan.enabled is None:
            return
        thinking: dict[str, Any] = {"type": "adaptive" if plan.enabled else "disabled"}
        if plan.enabled and plan.budget is not None:
            thinking = {"type": "enabled", "budget_tokens": plan.budget}
        if plan.enabled and plan.shown is not None:
            thinking["display"] = plan.shown
        body["thinking"] = thinking

    def _output_format(self, output_format: OutputFormat) -> dict[str, Any] | None:
        losses = self.losses
        lose_native(losses, "output_format", output_format.native, FORMAT)
        if output_format.kind == "text":
            return None
        reason = "Anthropic accepts only the schema of an output format; dropped"
        lose_fields(output_format, "output_format", ("name", "description"), reason, losses)
        if output_format.strict is False:
            losses.append(Loss("output_format.strict", "strict", "output formats are always strict; sent as strict"))
        if output_format.kind == "json_object" or output_format.schema is None:
            reason = "Anthropic requires a schema for an output format; dropped (AN-32)"
            losses.append(Loss("output_format", output_format.kind, reason))
            return None
        policy = grammar_policy(self.model, "AN-32", "an output format")
        return {"type": "json_schema", "schema": rewrite(output_format.schema, policy, losses, "output_format.schema")}

    def _write_extras(self, native: NativeExtras, body: dict[str, Any]) -> None:
        lose_native(self.losses, "native", native, FORMAT)
        for name, value in self.own.items():
            if name in ("system", "thinking") and name in body:  # malformed (AN-03, AN-19), and something else was sent
                self.losses.append(Loss(f"native.{name}", name, "not as the API has it; dropped"))
                continue
            is_shared = name in ("metadata", "output_config") and type(value) is dict and type(body.get(name)) is dict
            body[name] = {**body[name], **value} if is_shared else value
