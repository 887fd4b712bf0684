"""Parameters: sampling, limits, output format, reasoning.

Parameters that `ModelRequest` has are read into its fields if their type is right; everything else (state such as
`previous_response_id`, `include`, unknown fields, values of another type) is kept in `native` and written back. What OpenAI would
refuse is made legal and reported.
"""

from __future__ import annotations

from typing import Any

from msgspec import structs

from antiphon.wire.loss import Loss, own_extras
from antiphon.wire.openai_responses import FORMAT
from antiphon.wire.openai_responses.tools import read_tool_choice, read_tools
from antiphon.wire.parameters import Parameter, ParameterTable
from antiphon.wire.parameters.reasoning import HIDDEN, ReasoningForms, plan_reasoning
from antiphon.wire.request import OutputFormat, Reasoning
from antiphon.wire.request_writer import RequestWriter
from antiphon.wire.rules.limits import Range
from antiphon.wire.shared_openai import (
    OPENAI,
    described_schema,
    find_refused,
    lose_schema_fields,
    shared_rows,
    unread_fields,
)

LOGPROBS = "message.output_text.logprobs"
_SUMMARIES = ("auto", "concise", "detailed")
_REASONING = ReasoningForms(
    rule="OR-15",
    modes=("effort",),
    default_effort="medium",
    shown={**dict.fromkeys(HIDDEN), **{word: word for word in _SUMMARIES}, "summarized": "auto", "full": "detailed"},
)

_SHARED = shared_rows("OR-15", "OR-15", "OR-15")
PARAMETER_TABLE = ParameterTable(
    "OpenAI Responses",
    (
        *(_SHARED[key] for key in ("model", "stream", "parallel_tool_calls", "store", "service_tier")),
        _SHARED["prompt_cache_key"],
        structs.replace(_SHARED["user"], is_written=False),
        Parameter(
            "max_output_tokens",
            "max_output_tokens",
            (int,),
            Range(rule="OR-14", minimum=16, is_whole=True, model_fact="max_output_tokens"),
        ),
        *(_SHARED[key] for key in ("temperature", "top_p", "top_logprobs", "metadata")),
        Parameter("verbosity", "verbosity", (str,), inside="text"),
        Parameter("", "max_tool_calls", limit=Range(rule="OR-15", minimum=1, is_whole=True), is_written=False),
    ),
    no_loss=("logprobs",),  # in `include`
)


def read_parameters(unread: dict[str, Any], fields: dict[str, Any]) -> None:
    """Read the structured parameters: what is read moves from `unread` to `fields`."""
    tools = unread.get("tools")
    if type(tools) is list:
        fields["tools"] = read_tools(tools)
        del unread["tools"]
    choice = read_tool_choice(unread.get("tool_choice"), fields.get("tools", ()))
    if choice is not None:
        fields["tool_choice"] = choice
        del unread["tool_choice"]
    if type(unread.get("reasoning")) is dict:
        fields["reasoning"] = _read_reasoning(unread.pop("reasoning"))
    text: Any = unread.get("text")
    output_format = text.get("format") if type(text) is dict else None
    if type(output_format) is dict and (read := _read_format(output_format)) is not None:
        fields["output_format"] = read
        del text["format"]
        if not text:
            del unread["text"]
    include = unread.get("include")
    if type(include) is list and LOGPROBS in include:
        fields["logprobs"] = True


def _read_reasoning(value: dict[str, Any]) -> Reasoning:
    known = {field: value[field] for field in ("effort", "summary") if type(value.get(field)) is str}
    if known.get("summary") not in _SUMMARIES:
        known.pop("summary", None)
    return Reasoning(known.get("effort"), shown=known.get("summary"), native=unread_fields(value, FORMAT, known))


def _read_format(output_format: dict[str, Any]) -> OutputFormat | None:
    kind = output_format.get("type")
    if kind == "text" or kind == "json_object":
        return OutputFormat(kind, native=unread_fields(output_format, FORMAT, ("type",)))
    types = {"schema": dict, "name": str, "description": str, "strict": bool}
    if kind != "json_schema" or any(
        type(output_format.get(field)) not in (kind, type(None)) for field, kind in types.items()
    ):
        return None
    if type(output_format.get("schema")) is not dict:
        return None
    fields = {field: output_format.get(field) for field in types}
    return OutputFormat("json_schema", **fields, native=unread_fields(output_format, FORMAT, ("type", *types)))


class ParameterWriter(RequestWriter):
    """Writes everything but the input, tools and the choice among them into a body."""

    def write_parameters(self, body: dict[str, Any]) -> None:
        request, model = self.request, self.model
        reasoning = None if request.reasoning is None else self._reasoning(request.reasoning)
        effort = reasoning.get("effort") if reasoning else None
        refused = find_refused(model, "OR-15", request.temperature, request.top_p, effort)
        for field in ("stream", "parallel_tool_calls"):
            value = getattr(request, field)
            if value is not None:
                body[field] = value
        if request.user is not None and body.get("safety_identifier") != request.user:
            body["user"] = request.user
        PARAMETER_TABLE.write(request, body, model, self.losses, refused=refused)
        include = body.get("include")
        if request.logprobs and not asks_for_logprobs(body):
            body["include"] = [*(include if isinstance(include, list) else ()), LOGPROBS]
        if reasoning is not None:
            body["reasoning"] = reasoning
        if request.output_format is not None:
            text = body.get("text")
            body["text"] = {**(text if type(text) is dict else {}), "format": self._format(request.output_format)}

    def _reasoning(self, reasoning: Reasoning) -> dict[str, Any] | None:
        """The value of `reasoning`; None if the model refuses it."""
        plan = plan_reasoning(reasoning, self.model, _REASONING, self.losses)
        extras = own_extras(reasoning.native, self.losses, "reasoning", OPENAI, FORMAT)
        if self.model.efforts == ():
            reason = "model does not reason; dropped (OR-15)"
            given = (name for name, value in extras.items() if value is not None)
            self.losses.extend(Loss(f"reasoning.{name}", name, reason) for name in given)
            return None
        stated = {"effort": plan.effort, "summary": plan.shown}
        return {**{name: value for name, value in stated.items() if value is not None}, **extras}

    def _format(self, output_format: OutputFormat) -> dict[str, Any]:
        kind = format_kind(output_format)
        body: dict[str, Any] = {"type": kind}
        if kind == "json_schema":
            body |= described_schema(output_format, self.losses, "OR-20")
        else:
            lose_schema_fields(output_format, kind, self.losses)
        return body | own_extras(output_format.native, self.losses, "output_format", OPENAI, FORMAT)


def asks_for_logprobs(body: dict[str, Any]) -> bool:
    """Whether a body asks for log probabilities."""
    include = body.get("include")
    return isinstance(include, list) and LOGPROBS in include


def format_kind(output_format: OutputFormat) -> str:
    """The kind of output to request: json_object if there is no schema."""
    return "json_object" if output_format.kind == "json_schema" and output_format.schema is None else output_format.kind
