"""`Telemetry`: spans and metrics of model calls (`chat`), tool calls (`execute_tool`) and turns (`invoke_agent`).

A model call's span starts with the request and ends with the answer; it is not the current span where the answer is an async
generator, because its reader runs in between. Spans of tools and turns are current while they run, so what a tool does itself
(an HTTP request, another agent) is a child of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import Token
from importlib import import_module
from time import perf_counter
from typing import TYPE_CHECKING

from antiphon.errors import ExtraMissing
from antiphon.history.entries import ContextEntry
from antiphon.parts import TokenUsage, ToolCallRequest, ToolCallResult, ToolExecutionStatus
from antiphon.telemetry import messages
from antiphon.telemetry.attributes import (
    LONGEST_NAME,
    Attributes,
    agent_attributes,
    conversation_attributes,
    finish_attributes,
    provider_attributes,
    server_attributes,
    settings_attributes,
    usage_attributes,
)
from antiphon.telemetry.instruments import Instruments
from antiphon.wire.delta import ModelOutputDelta, is_visible
from antiphon.wire.output import ModelOutput
from antiphon.wire.request import ModelRequest, ToolDefinition

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, SpanKind, TracerProvider

CACHED = "antiphon.tool.cached"
"""The attribute of a tool call that was answered with the result of an equal one."""


class Telemetry:
    """Records to the given providers, or to those of the process. `content`: messages, arguments and results are recorded too."""

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        *,
        content: bool = False,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        try:
            from opentelemetry import metrics, trace
        except ImportError as error:
            raise ExtraMissing(
                f"telemetry needs OpenTelemetry ({error.name} is not installed); run pip install 'antiphon[otel]'"
            ) from None
        version = import_module("antiphon").__version__  # an import statement would make a cycle of all packages
        self.tracer = trace.get_tracer("antiphon", version, tracer_provider)
        self.instruments = Instruments(metrics.get_meter("antiphon", version, meter_provider))
        self.content = content
        self._on_close = on_close

    def start_model_call(
        self,
        model: str,
        provider: str,
        *,
        settings: ModelRequest,
        context: Sequence[ContextEntry] = (),
        tools: Sequence[ToolDefinition] = (),
        conversation_id: str = "",
        agent: str = "",
    ) -> ModelCallSpan:
        """Start the span of one model call. The call ends it with `ModelCallSpan.end`."""
        from opentelemetry.trace import SpanKind

        attributes = {
            **provider_attributes(provider, "chat"),
            "gen_ai.request.model": model[:LONGEST_NAME],
            "gen_ai.request.stream": True,
            **settings_attributes(settings),
            **conversation_attributes(conversation_id),
            **agent_attributes(agent),
        }
        span = self.start_span(f"chat {model[:LONGEST_NAME]}".rstrip(), SpanKind.CLIENT, attributes)
        if self.content and span.is_recording():
            if instructions := messages.system_instructions(context):
                span.set_attribute("gen_ai.system_instructions", instructions)
            span.set_attribute("gen_ai.input.messages", messages.input_messages(context))
            if tools:
                span.set_attribute("gen_ai.tool.definitions", messages.tool_definitions(tools))
        return ModelCallSpan(self, span)

    @contextmanager
    def tool_call(self, call: ToolCallRequest, description: str, conversation_id: str) -> Iterator[ToolCallSpan]:
        """The span of one tool call, current while the tool runs."""
        from opentelemetry.trace import SpanKind

        name = call.tool_name[:LONGEST_NAME]
        attributes: Attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.call.id": call.tool_call_id,
            "gen_ai.tool.type": "function",
            **conversation_attributes(conversation_id),
        }
        if description:
            attributes["gen_ai.tool.description"] = description
        if self.content:
            attributes["gen_ai.tool.call.arguments"] = call.arguments
        span = ToolCallSpan(self, self.start_span(f"execute_tool {name}", SpanKind.INTERNAL, attributes))
        token = attach(span.span)
        began = perf_counter()
        try:
            yield span
        except BaseException as error:
            span.error = span.error or type(error).__name__
            raise
        finally:
            detach(token)
            measured: Attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
            if span.is_cached:
                measured[CACHED] = True
                span.span.set_attribute(CACHED, True)
            end_span(span.span, span.error)
            self.instruments.tool_duration.record(perf_counter() - began, _with_error(measured, span.error))

    def start_turn(
        self, name: str, *, model: str, conversation_id: str, descriptions: Mapping[str, str] | None = None
    ) -> TurnSpan:
        """Start the span of a turn and make it current. `descriptions` has the agents of a team."""
        return TurnSpan(self, name, model, conversation_id, descriptions)

    def start_span(
        self,
        name: str,
        kind: SpanKind,
        attributes: Attributes,
        parent: Context | None = None,
        start_time: int | None = None,
    ) -> Span:
        """A span of any kind, with attributes for the sampler."""
        return self.tracer.start_span(name, parent, kind, attributes, start_time=start_time)

    def headers(self, span: Span | None = None) -> dict[str, str]:
        """The headers that continue the trace in another service: that of `span`, or the current one."""
        from opentelemetry.propagate import inject
        from opentelemetry.trace import set_span_in_context

        headers: dict[str, str] = {}
        inject(headers, None if span is None else set_span_in_context(span))
        return headers

    def close(self) -> None:
        """Send what is left, if this set up the exporter."""
        if self._on_close is not None:
            self._on_close()


class ModelCallSpan:
    """The span of one model call."""

    __slots__ = ("_began", "_first_chunk", "_telemetry", "_token", "span")

    def __init__(self, telemetry: Telemetry, span: Span) -> None:
        self.span = span
        self._telemetry = telemetry
        self._began = perf_counter()
        self._first_chunk: float | None = None
        self._token: Token[Context] | None = None

    def headers(self) -> dict[str, str]:
        """The headers for the provider."""
        return self._telemetry.headers(self.span)

    def attach(self) -> None:
        """Make it the current span until it ends. Only for a call that starts and ends in one task."""
        self._token = attach(self.span)

    def observe(self, delta: ModelOutputDelta) -> None:
        """Note the first visible delta."""
        if self._first_chunk is None and is_visible(delta):
            self._first_chunk = perf_counter() - self._began

    def end(
        self,
        output: ModelOutput,
        *,
        provider: str,
        model: str,
        base_url: str = "",
        error: str = "",
        failed_attempts: Sequence[Attributes] = (),
    ) -> None:
        """End it with what came back. `error` is the kind of the failure; empty if there was none."""
        if self._token is not None:
            detach(self._token)
        seconds, span = perf_counter() - self._began, self.span
        known: Attributes = {}
        if provider:
            known = {**provider_attributes(provider, "chat"), "gen_ai.request.model": model[:LONGEST_NAME]}
            span.update_name(f"chat {model[:LONGEST_NAME]}".rstrip())
        known |= server_attributes(base_url)
        answered = finish_attributes(output.stop_reason, output.id, output.model or model if not error else "")
        if span.is_recording():
            for attempt in failed_attempts:
                span.add_event("antiphon.attempt_failed", attempt)
            span.set_attributes({**known, **answered, **usage_attributes(output.usage)})
            if self._first_chunk is not None:
                span.set_attribute("gen_ai.response.time_to_first_chunk", self._first_chunk)
            if self._telemetry.content:
                span.set_attribute("gen_ai.output.messages", messages.output_messages(output.parts, output.stop_reason))
        end_span(span, error)
        measured = {name: value for name, value in (known | answered).items() if name in MEASURED}
        self._telemetry.instruments.record_call(_with_error(measured, error), seconds, self._first_chunk, output.usage)


class ToolCallSpan:
    """The span of one tool call. `error` is the kind of its failure."""

    __slots__ = ("_telemetry", "error", "is_cached", "span")

    def __init__(self, telemetry: Telemetry, span: Span) -> None:
        self.span = span
        self.error = ""
        self.is_cached = False
        self._telemetry = telemetry

    def finish(self, result: ToolCallResult, error: str, *, is_cached: bool) -> None:
        """Record the result; `error` is the kind of failure, if it is known, `is_cached` that an equal call gave it."""
        self.is_cached = is_cached
        if result.status is not ToolExecutionStatus.SUCCESS:
            self.error = error or "tool_error"
        if self._telemetry.content:
            self.span.set_attribute("gen_ai.tool.call.result", messages.result_content(result))


class TurnSpan:
    """The spans of a turn: `invoke_agent`; of a team `invoke_workflow`, with one `invoke_agent` for each agent in its turn."""

    __slots__ = (
        "_agent",
        "_agent_began",
        "_agent_span",
        "_agent_token",
        "_began",
        "_common",
        "_descriptions",
        "_name",
        "_telemetry",
        "_token",
        "span",
    )

    def __init__(
        self,
        telemetry: Telemetry,
        name: str,
        model: str,
        conversation_id: str,
        descriptions: Mapping[str, str] | None,
    ) -> None:
        from opentelemetry.trace import SpanKind

        self._telemetry = telemetry
        self._name = name
        self._descriptions = descriptions
        self._common = conversation_attributes(conversation_id)
        attributes: Attributes = {"gen_ai.operation.name": self._operation, **self._common}
        if descriptions is None:
            attributes |= agent_attributes(name)
            if model:
                attributes["gen_ai.request.model"] = model[:LONGEST_NAME]
        elif name:
            attributes["gen_ai.workflow.name"] = name
        self.span = telemetry.start_span(f"{self._operation} {name}".rstrip(), SpanKind.INTERNAL, attributes)
        self._token = attach(self.span)
        self._began = perf_counter()
        self._agent = ""
        self._agent_span: Span | None = None
        self._agent_token: Token[Context] | None = None
        self._agent_began = 0.0

    @property
    def _operation(self) -> str:
        return "invoke_agent" if self._descriptions is None else "invoke_workflow"

    def enter_agent(self, name: str) -> None:
        """The next round is that of agent `name`."""
        if self._descriptions is None or name == self._agent:
            return
        from opentelemetry.trace import SpanKind

        self._leave_agent("")
        attributes = {
            "gen_ai.operation.name": "invoke_agent",
            **agent_attributes(name, self._descriptions.get(name, "")),
            **self._common,
        }
        self._agent, self._agent_began = name, perf_counter()
        self._agent_span = self._telemetry.start_span(f"invoke_agent {name}", SpanKind.INTERNAL, attributes)
        self._agent_token = attach(self._agent_span)

    def end(self, reason: str, rounds: int, calls: int, usage: TokenUsage | None, error: str) -> None:
        """End the turn. `reason` is its end reason; `error` the kind of the failure, if it failed."""
        self._leave_agent(error)
        detach(self._token)
        self.span.set_attributes({"antiphon.turn.reason": reason, "antiphon.turn.rounds": rounds})
        self.span.set_attributes(usage_attributes(usage))
        end_span(self.span, error)
        instruments, seconds = self._telemetry.instruments, perf_counter() - self._began
        if self._descriptions is None:
            measured = {"gen_ai.operation.name": "invoke_agent", **agent_attributes(self._name)}
            instruments.agent_duration.record(seconds, _with_error(measured, error))
            instruments.inference_calls.record(rounds, measured)
            instruments.tool_calls.record(calls, measured)
        else:
            measured = {"gen_ai.operation.name": "invoke_workflow"}
            instruments.workflow_duration.record(seconds, _with_error(measured, error))

    def _leave_agent(self, error: str) -> None:
        if self._agent_span is None or self._agent_token is None:
            return
        detach(self._agent_token)
        end_span(self._agent_span, error)
        measured = {"gen_ai.operation.name": "invoke_agent", **agent_attributes(self._agent)}
        self._telemetry.instruments.agent_duration.record(
            perf_counter() - self._agent_began, _with_error(measured, error)
        )
        self._agent_span = self._agent_token = None


MEASURED = frozenset(
    {
        "gen_ai.operation.name",
        "gen_ai.provider.name",
        "gen_ai.request.model",
        "gen_ai.response.model",
        "server.address",
        "server.port",
    }
)
"""The attributes of metrics: few values each."""


def _with_error(attributes: Attributes, error: str) -> Attributes:
    return {**attributes, "error.type": error} if error else attributes


def attach(span: Span) -> Token[Context]:
    """Make `span` the current one."""
    from opentelemetry import context
    from opentelemetry.trace import set_span_in_context

    return context.attach(set_span_in_context(span))


def detach(token: Token[Context]) -> None:
    """Make the span before it the current one again."""
    from opentelemetry import context

    context.detach(token)


def end_span(span: Span, error: str, end_time: int | None = None) -> None:
    """End a span; `error` is its `error.type`, empty if there was none."""
    from opentelemetry.trace import StatusCode

    if error:
        span.set_attribute("error.type", error)
        span.set_status(StatusCode.ERROR)
    span.end(end_time)
