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
from antiphon.telemetry.instruments import Instruments, with_error
from antiphon.wire.delta import ModelOutputDelta, is_visible
from antiphon.wire.output import ModelOutput
from antiphon.wire.request import ModelRequest, ToolDefinition

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import Histogram, MeterProvider
    from opentelemetry.trace import Span, TracerProvider

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
        attributes = {
            **provider_attributes(provider, "chat"),
            "gen_ai.request.model": model[:LONGEST_NAME],
            "gen_ai.request.stream": True,
            **settings_attributes(settings),
            **conversation_attributes(conversation_id),
            **agent_attributes(agent),
        }
        call = ModelCallSpan(self, f"chat {model[:LONGEST_NAME]}", attributes, is_client=True)
        if self.content and call.span.is_recording():
            if instructions := messages.system_instructions(context):
                call.span.set_attribute("gen_ai.system_instructions", instructions)
            call.span.set_attribute("gen_ai.input.messages", messages.input_messages(context))
            if tools:
                call.span.set_attribute("gen_ai.tool.definitions", messages.tool_definitions(tools))
        return call

    @contextmanager
    def tool_call(self, call: ToolCallRequest, description: str, conversation_id: str) -> Iterator[ToolCallSpan]:
        """The span of one tool call, current while the tool runs."""
        measured: Attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.tool_name[:LONGEST_NAME],
        }
        attributes: Attributes = {
            **measured,
            "gen_ai.tool.call.id": call.tool_call_id,
            "gen_ai.tool.type": "function",
            **conversation_attributes(conversation_id),
        }
        if description:
            attributes["gen_ai.tool.description"] = description
        if self.content:
            attributes["gen_ai.tool.call.arguments"] = call.arguments
        span = ToolCallSpan(self, f"execute_tool {call.tool_name[:LONGEST_NAME]}", attributes)
        span.attach()
        try:
            yield span
        except BaseException as error:
            span.error = span.error or type(error).__name__
            raise
        finally:
            if span.is_cached:
                measured[CACHED] = True
                span.span.set_attribute(CACHED, True)
            span.close(span.error, self.instruments.tool_duration, measured)

    def start_turn(
        self, name: str, *, model: str, conversation_id: str, descriptions: Mapping[str, str] | None = None
    ) -> TurnSpan:
        """Start the span of a turn and make it current. `descriptions` has the agents of a team."""
        return TurnSpan(self, name, model, conversation_id, descriptions)

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


class TimedSpan:
    """A span, the current one from `attach` on, and how long it takes."""

    def __init__(self, telemetry: Telemetry, name: str, attributes: Attributes, *, is_client: bool = False) -> None:
        from opentelemetry.trace import SpanKind

        kind = SpanKind.CLIENT if is_client else SpanKind.INTERNAL
        self.span = telemetry.tracer.start_span(name.rstrip(), None, kind, attributes)
        self._telemetry = telemetry
        self._began = perf_counter()
        self._token: Token[Context] | None = None

    @property
    def seconds(self) -> float:
        """How long it has taken."""
        return perf_counter() - self._began

    def attach(self) -> None:
        """Make it the current span until it ends. Only for what starts and ends in one task."""
        from opentelemetry import context
        from opentelemetry.trace import set_span_in_context

        self._token = context.attach(set_span_in_context(self.span))

    def detach(self) -> None:
        """Make the span before it the current one again."""
        if self._token is not None:
            from opentelemetry import context

            context.detach(self._token)
            self._token = None

    def close(self, error: str, duration: Histogram, measured: Attributes) -> None:
        """End it, and record how long it took. `error` is the kind of the failure; empty if there was none."""
        seconds = self.seconds
        self.detach()
        end_span(self.span, error)
        duration.record(seconds, with_error(measured, error))


class ModelCallSpan(TimedSpan):
    """The span of one model call."""

    _first_chunk: float | None = None

    def headers(self) -> dict[str, str]:
        """The headers for the provider."""
        return self._telemetry.headers(self.span)

    def observe(self, delta: ModelOutputDelta) -> None:
        """Note the first visible delta."""
        if self._first_chunk is None and is_visible(delta):
            self._first_chunk = self.seconds

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
        seconds, span = self.seconds, self.span
        self.detach()
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
        self._telemetry.instruments.record_call(known | answered, error, seconds, self._first_chunk, output.usage)


class ToolCallSpan(TimedSpan):
    """The span of one tool call. `error` is the kind of its failure."""

    error = ""
    is_cached = False

    def finish(self, result: ToolCallResult, error: str, *, is_cached: bool) -> None:
        """Record the result; `error` is the kind of failure, if it is known, `is_cached` that an equal call gave it."""
        self.is_cached = is_cached
        if result.status is not ToolExecutionStatus.SUCCESS:
            self.error = error or "tool_error"
        if self._telemetry.content:
            self.span.set_attribute("gen_ai.tool.call.result", messages.result_content(result))


class TurnSpan(TimedSpan):
    """The spans of a turn: `invoke_agent`; of a team `invoke_workflow`, with one `invoke_agent` for each agent in its turn."""

    def __init__(
        self,
        telemetry: Telemetry,
        name: str,
        model: str,
        conversation_id: str,
        descriptions: Mapping[str, str] | None,
    ) -> None:
        operation = "invoke_agent" if descriptions is None else "invoke_workflow"
        self._measured: Attributes = {"gen_ai.operation.name": operation}
        self._descriptions = descriptions
        self._common = conversation_attributes(conversation_id)
        attributes: Attributes = {}
        if descriptions is None:
            self._measured |= agent_attributes(name)
            if model:
                attributes["gen_ai.request.model"] = model[:LONGEST_NAME]
        elif name:
            attributes["gen_ai.workflow.name"] = name
        super().__init__(telemetry, f"{operation} {name}", {**self._measured, **self._common, **attributes})
        self.attach()
        self._agent = ""
        self._agent_span: TimedSpan | None = None

    def enter_agent(self, name: str) -> None:
        """The next round is that of agent `name`."""
        if self._descriptions is None or name == self._agent:
            return
        self._leave_agent("")
        attributes = {**_of_agent(name), **agent_attributes(name, self._descriptions.get(name, "")), **self._common}
        self._agent, self._agent_span = name, TimedSpan(self._telemetry, f"invoke_agent {name}", attributes)
        self._agent_span.attach()

    def end(self, reason: str, rounds: int, calls: int, usage: TokenUsage | None, error: str) -> None:
        """End the turn. `reason` is its end reason; `error` the kind of the failure, if it failed."""
        self._leave_agent(error)
        self.span.set_attributes({"antiphon.turn.reason": reason, "antiphon.turn.rounds": rounds})
        self.span.set_attributes(usage_attributes(usage))
        instruments, is_agent = self._telemetry.instruments, self._descriptions is None
        self.close(error, instruments.agent_duration if is_agent else instruments.workflow_duration, self._measured)
        if is_agent:
            instruments.inference_calls.record(rounds, self._measured)
            instruments.tool_calls.record(calls, self._measured)

    def _leave_agent(self, error: str) -> None:
        span, self._agent_span = self._agent_span, None
        if span is not None:
            span.close(error, self._telemetry.instruments.agent_duration, _of_agent(self._agent))


def _of_agent(name: str) -> Attributes:
    return {"gen_ai.operation.name": "invoke_agent", **agent_attributes(name)}


def end_span(span: Span, error: str, end_time: int | None = None) -> None:
    """End a span; `error` is its `error.type`, empty if there was none."""
    from opentelemetry.trace import StatusCode

    if error:
        span.set_attribute("error.type", error)
        span.set_status(StatusCode.ERROR)
    span.end(end_time)
