"""Parameters of a request, and thinking as each model accepts it.

Reasoning that was read here has a source and is written in the same way: a budget is `enabled`, plain yes `adaptive`,
plain no `disabled`, and an effort alone stays alone. Reasoning of other formats is only an amount: it becomes adaptive thinking
with an effort on models known to accept that, and a budget on all others. One table converts efforts and budgets; where a model
rejects one (AN-19, AN-32), the other is used.

What a model accepts comes from `Capabilities`; `Target` adds the API version and the host.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from msgspec import Struct, structs

from antiphon.parts import NativeExtras
from antiphon.wire.anthropic import FORMAT
from antiphon.wire.anthropic.cache_breakpoints import Breakpoints
from antiphon.wire.anthropic.dialects import Dialect, fit_request, fit_temperature
from antiphon.wire.anthropic.limits import (
    EFFORTS,
    MIN_BUDGET,
    MIN_TOP_P_WITH_THINKING,
    SAMPLING,
    is_blank,
)
from antiphon.wire.anthropic.shapes import SOURCE
from antiphon.wire.capabilities import Capabilities
from antiphon.wire.loss import Loss, lose_native
from antiphon.wire.parameters import (
    NUMBER,
    Parameter,
    ParameterTable,
    Rejection,
    is_default,
    lose_fields,
    refused_fields,
)
from antiphon.wire.parameters.reasoning import ReasoningForms, plan_reasoning
from antiphon.wire.provenance import is_from
from antiphon.wire.request import ModelRequest, OutputFormat, Reasoning
from antiphon.wire.request_writer import RequestWriter
from antiphon.wire.rules import Checked, Path
from antiphon.wire.rules.limits import Choice, Length, Range, Texts
from antiphon.wire.schema import grammar_policy, rewrite

VERSION = "2023-06-01"
VERSION_2026_10 = "2026-10-21"


class Target(Struct, frozen=True):
    """What a request goes to: the model, the API version and the host."""

    model: Capabilities
    is_version_2026_10: bool = False
    is_on_bedrock: bool = False

    def accepts_system_role(self, is_native: bool) -> bool:
        """Whether system messages may be among the others (AN-03); if that is unknown or without effect, only where an
        Anthropic body had them."""
        where = self.model.system_messages
        return where == "anywhere" or (where in (None, "ignored") and is_native)


def target_for(model: Capabilities, version: str, host: Any) -> Target:
    """The target of a request; `host` is the `anthropic_version` in the body, which other hosts require."""
    return Target(
        model,
        version.startswith("20") and version >= VERSION_2026_10,
        isinstance(host, str) and host.startswith("bedrock-"),
    )


DEFAULT_MAX_TOKENS = 4096

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


def read_thinking(thinking: Any) -> Reasoning | None:
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


class _Sampling(Range, frozen=True):
    """A sampling parameter, which API version 2026-10-21 does not have (AN-28)."""

    sees_null: ClassVar[bool] = True

    def check(self, value: Any, at: Path, found: Checked) -> None:
        if found.target.is_version_2026_10:
            found.add("AN-28", at, "API version 2026-10-21 does not have it")
        else:
            Range.check(self, value, at, found)

    @property
    def rules(self) -> Iterable[str]:
        return (self.rule, "AN-28")


MAX_TOKENS = Parameter(
    "max_output_tokens",
    "max_tokens",
    (int,),
    Range(rule="AN-01", minimum=0, is_whole=True, model_fact="max_output_tokens"),
    is_written=False,
)
_TIERS = {"auto": "auto", "standard_only": "standard_only", "default": "standard_only"}
PARAMETER_TABLE = ParameterTable(
    "Anthropic",
    (
        Parameter("model", "model", (str,), is_written=False),
        MAX_TOKENS,
        Parameter("stream", "stream", (bool,), is_written=False),
        Parameter(
            "temperature", "temperature", NUMBER, _Sampling(rule="AN-21", minimum=0, maximum=1), sends_default=True
        ),
        Parameter(
            "top_p", "top_p", NUMBER, _Sampling(rule="AN-21", minimum=0, maximum=1, unset="send"), sends_default=True
        ),
        Parameter("top_k", "top_k", (int,), _Sampling(rule="AN-21", minimum=0, below="drop", unset="send")),
        Parameter("stop", "stop_sequences", limit=Texts(rule="AN-22", is_blank=is_blank)),
        Parameter("user", "user_id", (str,), Length(rule="AN-23", at_most=512), inside="metadata"),
        Parameter("service_tier", "service_tier", (str,), Choice(rule="AN-27", values=_TIERS)),
    ),
)


def read_parameter(name: str, value: Any, fields: dict[str, Any], extras: dict[str, Any]) -> bool:
    """Read a parameter that other formats have too; False if it is unknown or malformed."""
    if name == "thinking" and (reasoning := read_thinking(value)) is not None:
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


def refusals(temperature: Any, top_p: Any, top_k: Any, thinking: Any, target: Target) -> dict[str, Rejection]:
    """The sampling parameters that the model, the API version or thinking rule out."""
    if target.is_version_2026_10:
        reason = "API version 2026-10-21 does not support it; dropped (AN-28)"
        return dict.fromkeys(SAMPLING, Rejection(reason, "AN-28", is_pair=True))
    refused = refused_fields(target.model, "AN-21", "AN-31", temperature, top_p)
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    if kind not in ("enabled", "adaptive"):  # the API documents the same limits for adaptive thinking
        return refused
    refused = dict(refused)
    for name, value in (("temperature", temperature), ("top_p", top_p), ("top_k", top_k)):
        is_accepted = name == "top_p" and isinstance(value, int | float) and value >= MIN_TOP_P_WITH_THINKING
        if value is not None and not is_accepted and not is_default(name, value):
            refused.setdefault(name, Rejection("cannot be combined with thinking; dropped (AN-19)", "AN-19"))
    return refused


class ParameterWriter(RequestWriter):
    """Writes thinking, the output format, the other parameters, and what only this format has."""

    target: Target
    breakpoints: Breakpoints
    host: Dialect | None
    own: dict[str, Any]
    """What only this format has, as far as the host does not ignore it."""

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
