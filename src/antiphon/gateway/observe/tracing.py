"""`RequestTracer`: each request as an OpenTelemetry span with its upstream attempts as children (GenAI conventions).

Spans are written when the request is over, from its `RequestTrace`, so cancelled requests are traced too. They continue the
client's trace if its headers name one. They contain numbers, names and kinds of errors, never prompts or responses.

An attempt records how long it took but not when it started: children follow each other from the start of the request, and the
last one ends with it. Without OpenTelemetry installed nothing is traced; `tracer_from_environment` sets up the exporter (extra
`otel`).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from antiphon.gateway.observe.request_trace import RequestTrace
from antiphon.providers.call import Attempt

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer, TracerProvider

logger = logging.getLogger("antiphon.gateway")

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_LONGEST = 200
_LOOK_SECONDS = 1.0
_SECOND = 1_000_000_000

_WELL_KNOWN = {
    "azure-openai": "azure.ai.openai",
    "gemini": "gcp.gemini",
    "gemini-interactions": "gcp.gemini",
    "gemini-openai": "gcp.gemini",
    "mistral": "mistral_ai",
    "openai-responses": "openai",
    "xai": "x_ai",
}
"""Providers that have another name in the conventions."""


class RequestTracer:
    """Writes spans to `provider`, or to the one the process has set up. Does nothing if OpenTelemetry is not installed."""

    def __init__(
        self, provider: TracerProvider | None = None, *, version: str = "", close: Callable[[], None] = lambda: None
    ) -> None:
        self._close = close
        self._tracer: Tracer | None = None
        self._is_global = provider is None
        self._nowhere_until = 0.0  # no exporter is set up; checked again at this time
        try:
            from opentelemetry import trace
        except ImportError:
            return
        self._tracer = trace.get_tracer("antiphon.gateway", version, provider)

    def record(self, trace: RequestTrace, headers: Mapping[str, str], operation: str = "") -> None:
        """Trace a finished request. `headers` are the client's, their names in lower case."""
        operation = operation or trace.operation
        if self._tracer is None or time.monotonic() < self._nowhere_until:
            return
        from opentelemetry import trace as otel

        if self._is_global and isinstance(otel.get_tracer_provider(), otel.ProxyTracerProvider):
            self._nowhere_until = time.monotonic() + _LOOK_SECONDS
            return
        from opentelemetry.propagate import extract
        from opentelemetry.trace import SpanKind, set_span_in_context

        began, ended = _wall_times(trace)
        parent = extract({name: headers[name] for name in ("traceparent", "tracestate") if name in headers})
        model = trace.requested_model[:_LONGEST]
        span = self._start_span(
            f"{operation} {model}".strip(), SpanKind.SERVER, began, parent, _request_fields(trace, operation)
        )
        if not span.is_recording():
            return
        inside = set_span_in_context(span, parent)
        at = began
        for place, attempt in enumerate(trace.attempts):
            is_answer = place == len(trace.attempts) - 1 and attempt.error is None
            until = ended if is_answer else min(ended, at + int(attempt.seconds * _SECOND))
            fields = _attempt_fields(attempt, operation)
            if is_answer:
                fields |= _usage_fields(trace)
            name = f"{operation} {attempt.model[:_LONGEST]}".strip()
            child = self._start_span(name, SpanKind.CLIENT, at, inside, fields)
            _end(child, until, attempt.error.kind if attempt.error is not None else "")
            at = until
        _end(span, ended, _error_type(trace))

    def close(self) -> None:
        """Send the remaining spans."""
        self._close()

    def _start_span(self, name: str, kind: Any, began: int, parent: Context, fields: dict[str, Any]) -> Span:
        assert self._tracer is not None
        return self._tracer.start_span(
            name, parent, kind, {key: value for key, value in fields.items() if value}, (), began
        )


def tracer_from_environment(version: str = "") -> RequestTracer:
    """A tracer that exports to `OTEL_EXPORTER_OTLP_ENDPOINT`, if that is set.

    Otherwise spans go to the provider that the process has set up, as under `opentelemetry-instrument`; if there is none,
    they are dropped.
    """
    if not any(os.environ.get(name) for name in _ENDPOINTS):
        return RequestTracer(version=version)
    try:
        sdk = import_module("opentelemetry.sdk.trace")
        export = import_module("opentelemetry.sdk.trace.export")
        resources = import_module("opentelemetry.sdk.resources")
        otlp = import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    except ImportError as error:
        logger.warning("tracing is off: %s is not installed; run pip install 'antiphon[otel]'", error.name)
        return RequestTracer(version=version)
    name = os.environ.get("OTEL_SERVICE_NAME", "antiphon")
    provider = sdk.TracerProvider(resource=resources.Resource.create({"service.name": name}))
    provider.add_span_processor(export.BatchSpanProcessor(otlp.OTLPSpanExporter()))
    return RequestTracer(provider, version=version, close=provider.shutdown)


def _wall_times(trace: RequestTrace) -> tuple[int, int]:
    """When a request began and ended, in nanoseconds of the wall clock."""
    now, monotonic = time.time_ns(), time.monotonic()
    ended = monotonic if trace.finished_at is None else trace.finished_at
    return now - int((monotonic - trace.started_at) * _SECOND), now - int((monotonic - ended) * _SECOND)


def _error_type(trace: RequestTrace) -> str:
    """The kind of error on this side. An invalid request of the client is not a server error."""
    if trace.client_disconnected:
        return "client_left"
    if 400 <= trace.status < 500:
        return ""
    return trace.error.kind if trace.error is not None else ""


def _request_fields(trace: RequestTrace, operation: str) -> dict[str, Any]:
    return {
        **_provider_fields(trace.provider, operation),
        **_usage_fields(trace),
        "gen_ai.request.model": trace.requested_model[:_LONGEST],
        "gen_ai.request.stream": trace.streams,
        "gen_ai.response.model": trace.model[:_LONGEST],
        "http.response.status_code": trace.status,
        "antiphon.request_id": trace.request_id,
        "antiphon.client_format": trace.client_format,
        "antiphon.upstream_format": trace.upstream_format,
        "antiphon.repairs": len(trace.repairs),
        "antiphon.losses": len(trace.losses),
        "antiphon.overhead_seconds": trace.overhead_seconds,
    }


def _attempt_fields(attempt: Attempt, operation: str) -> dict[str, Any]:
    return {
        **_provider_fields(attempt.provider, operation),
        "gen_ai.request.model": attempt.model[:_LONGEST],
        "gen_ai.response.model": "" if attempt.error is not None else attempt.model[:_LONGEST],
        "http.response.status_code": attempt.status,
        "antiphon.credential": attempt.credential,
    }


def _provider_fields(provider: str, operation: str) -> dict[str, Any]:
    name = _WELL_KNOWN.get(provider, provider)
    # The second is the name before version 1.37 of the conventions; many viewers still use it.
    return {"gen_ai.operation.name": operation, "gen_ai.provider.name": name, "gen_ai.system": name}


def _usage_fields(trace: RequestTrace) -> dict[str, Any]:
    usage = trace.usage
    fields: dict[str, Any] = {}
    if trace.first_token is not None:
        fields["gen_ai.response.time_to_first_chunk"] = trace.first_token - trace.started_at
    if usage is not None:
        fields |= {
            "gen_ai.usage.input_tokens": usage.prompt_tokens,
            "gen_ai.usage.output_tokens": usage.completion_tokens,
            "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
            "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
            "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
        }
    return fields


def _end(span: Span, at: int, error: str) -> None:
    from opentelemetry.trace import StatusCode

    if error:
        span.set_attribute("error.type", error)
        span.set_status(StatusCode.ERROR)
    span.end(at)
