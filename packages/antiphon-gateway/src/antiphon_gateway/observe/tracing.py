"""`RequestTracer`: each request as an OpenTelemetry span with its upstream attempts as children (GenAI conventions), and metrics.

The span of a request starts before the first upstream is called, so that upstreams continue the trace, and continues the client's
own if its headers name one. Attributes and attempts are written when the request is over, from its `Record`, so cancelled
requests are traced too. Spans contain numbers, names and kinds of errors, never prompts or responses.

An attempt records how long it took but not when it started: children follow each other from the start of the request, and the
last one ends with it. While nothing is traced, the client's trace headers are passed on as they came.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from antiphon import telemetry
from antiphon.errors import ExtraMissing
from antiphon.providers.call import Attempt
from antiphon.telemetry import switch
from antiphon.telemetry.attributes import (
    LONGEST_NAME,
    finish_attributes,
    nonzero,
    provider_attributes,
    server_attributes,
    usage_attributes,
)
from antiphon.telemetry.spans import Telemetry, end_span
from antiphon_gateway.observe.record import Record

_LOOK_SECONDS = 1.0
_SECOND = 1_000_000_000
_TRACE_HEADERS = ("traceparent", "tracestate")


class RequestTracer:
    """Records to `recorder`, or to the providers the process has set up. Does nothing if OpenTelemetry is not installed."""

    is_on = False
    """Whether the last look found a backend for spans."""

    def __init__(self, recorder: Telemetry | None = None) -> None:
        self.base_urls: Mapping[str, str] = {}
        """The addresses of the providers by name."""
        self._is_global = recorder is None
        self.nowhere_until = 0.0
        """No exporter is set up; looked for again at this time."""
        try:
            self._recorder = recorder or Telemetry()
        except ExtraMissing:
            self.nowhere_until = float("inf")

    def start(self, record: Record, headers: Mapping[str, str]) -> None:
        """Start the span of a request whose model is known. `headers` are the client's, their names in lower case."""
        self.is_on = time.monotonic() >= self.nowhere_until and self._is_traced()
        if self.is_on:
            self._start_span(record, headers)
        elif "traceparent" in headers:
            record.trace_headers = _given(headers)

    def end(self, record: Record) -> None:
        """End the span of a finished request. One that was refused by a limit, or of an unknown client, has none."""
        from opentelemetry.trace import SpanKind, set_span_in_context

        span, began = record.span, record.span_began
        ended = began + int(record.seconds * _SECOND)
        inside = set_span_in_context(span)
        at = began
        for place, attempt in enumerate(record.attempts):
            is_answer = place == len(record.attempts) - 1 and attempt.error is None
            until = ended if is_answer else min(ended, at + int(attempt.seconds * _SECOND))
            attributes = _attempt_attributes(attempt, record.operation, self.base_urls.get(attempt.provider, ""))
            if is_answer:
                attributes |= _answer_attributes(record)
            name = f"{record.operation} {attempt.model[:LONGEST_NAME]}".strip()
            child = self._recorder.tracer.start_span(name, inside, SpanKind.CLIENT, attributes, start_time=at)
            error = attempt.error.kind if attempt.error is not None else ""
            end_span(child, error, until)
            answered = (record.first_token_seconds, record.usage) if is_answer else (None, None)
            self._recorder.instruments.record_call(attributes, error, (until - at) / _SECOND, *answered)
            at = until
        span.set_attributes(_request_attributes(record))
        end_span(span, _error_type(record), ended)
        record.span = None  # the record is kept for a while

    def close(self) -> None:
        """Send the remaining spans and metrics."""
        if self._is_global:
            return
        if switch.active is self._recorder:
            telemetry.disable()
        else:
            self._recorder.close()

    def _start_span(self, record: Record, headers: Mapping[str, str]) -> None:
        from opentelemetry.propagate import extract
        from opentelemetry.trace import SpanKind

        model = record.requested_model[:LONGEST_NAME]
        attributes = nonzero({"gen_ai.operation.name": record.operation, "gen_ai.request.model": model})
        record.span_began = time.time_ns() - int((time.monotonic() - record.started_at) * _SECOND)
        record.span = self._recorder.tracer.start_span(
            f"{record.operation} {model}".strip(),
            extract(_given(headers)),
            SpanKind.SERVER,
            attributes,
            start_time=record.span_began,
        )
        record.trace_headers = self._recorder.headers(record.span)

    def _is_traced(self) -> bool:
        if not self._is_global:
            return True
        from opentelemetry import trace as otel

        if isinstance(otel.get_tracer_provider(), otel.ProxyTracerProvider):
            self.nowhere_until = time.monotonic() + _LOOK_SECONDS
            return False
        return True


def tracer_from_environment() -> RequestTracer:
    """A tracer that exports to `OTEL_EXPORTER_OTLP_ENDPOINT`, if that is set; conversations of this process are traced too.

    Otherwise spans go to the provider that the process has set up, as under `opentelemetry-instrument`; if there is none,
    they are dropped.
    """
    return RequestTracer(telemetry.enable_from_environment())


def _given(headers: Mapping[str, str]) -> dict[str, str]:
    """The trace headers of a client."""
    return {name: headers[name] for name in _TRACE_HEADERS if name in headers}


def _error_type(record: Record) -> str:
    """The kind of error on this side. An invalid request of the client is not a server error."""
    if record.client_left:
        return "client_left"
    if 400 <= record.status < 500:
        return ""
    return record.error.kind if record.error is not None else ""


def _request_attributes(record: Record) -> dict[str, Any]:
    return {
        **provider_attributes(record.provider, record.operation),
        **_answer_attributes(record),
        **nonzero(
            {
                "gen_ai.request.stream": record.streams,
                "http.response.status_code": record.status,
                "user.id": record.key,
                "antiphon.request_id": record.request_id,
                "antiphon.client_format": record.client_format,
                "antiphon.upstream_format": record.upstream_format,
                "antiphon.repairs": len(record.repairs),
                "antiphon.losses": len(record.losses),
                "antiphon.overhead_seconds": record.overhead_seconds,
            }
        ),
    }


def _attempt_attributes(attempt: Attempt, operation: str, base_url: str) -> dict[str, Any]:
    return {
        **provider_attributes(attempt.provider, operation),
        **server_attributes(base_url),
        **nonzero(
            {
                "gen_ai.request.model": attempt.model[:LONGEST_NAME],
                "http.response.status_code": attempt.status,
                "antiphon.credential": attempt.credential,
            }
        ),
    }


def _answer_attributes(record: Record) -> dict[str, Any]:
    attributes = {
        **finish_attributes(record.stop_reason, record.response_id, record.response_model or record.model),
        **usage_attributes(record.usage),
    }
    if record.first_token_seconds is not None:
        attributes["gen_ai.response.time_to_first_chunk"] = record.first_token_seconds
    return attributes
