"""The SDK of OpenTelemetry as its environment variables configure it: spans and metrics to an OTLP endpoint over HTTP."""

from __future__ import annotations

import logging
import os
from importlib import import_module

from antiphon.telemetry import switch
from antiphon.telemetry.spans import Telemetry

logger = logging.getLogger("antiphon.telemetry")

_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_TRACES, _METRICS = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"


def telemetry_from_environment() -> Telemetry | None:
    """Telemetry that exports to `OTEL_EXPORTER_OTLP_ENDPOINT`, or to that of traces or metrics alone; None if none is set."""
    environ = os.environ
    has_traces = bool(environ.get(_ENDPOINT) or environ.get(_TRACES))
    has_metrics = bool(environ.get(_ENDPOINT) or environ.get(_METRICS))
    if not has_traces and not has_metrics:
        return None
    try:
        resources = import_module("opentelemetry.sdk.resources")
        trace = import_module("opentelemetry.sdk.trace")
        spans = import_module("opentelemetry.sdk.trace.export")
        metrics = import_module("opentelemetry.sdk.metrics")
        readings = import_module("opentelemetry.sdk.metrics.export")
        otlp = "opentelemetry.exporter.otlp.proto.http"
        span_exporter, metric_exporter = (import_module(f"{otlp}.{kind}_exporter") for kind in ("trace", "metric"))
    except ImportError as error:
        logger.warning("telemetry is off: %s is not installed; run pip install 'antiphon[otel]'", error.name)
        return None
    resource = resources.Resource.create({"service.name": environ.get("OTEL_SERVICE_NAME", "antiphon")})
    tracer_provider = trace.TracerProvider(resource=resource)
    if has_traces:
        tracer_provider.add_span_processor(spans.BatchSpanProcessor(span_exporter.OTLPSpanExporter()))
    readers = [readings.PeriodicExportingMetricReader(metric_exporter.OTLPMetricExporter())] if has_metrics else []
    meter_provider = metrics.MeterProvider(readers, resource=resource)

    def close() -> None:
        tracer_provider.shutdown()
        meter_provider.shutdown()

    return Telemetry(tracer_provider, meter_provider, content=switch.captures_content(environ), on_close=close)
