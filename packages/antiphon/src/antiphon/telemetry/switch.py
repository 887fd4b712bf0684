"""Turning telemetry on and off for the process. `active` is what every call looks at."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from antiphon.telemetry.spans import Telemetry

CONTENT_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_CONTENT_VALUES = frozenset({"true", "1", "span_only", "span_and_event"})

active: Telemetry | None = None
"""Where model calls, tool calls and turns are recorded; None: nowhere."""


def enable(
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    content: bool | None = None,
) -> Telemetry:
    """Record spans and metrics of this process from now on, by default to its global providers.

    With `content`, spans contain messages, arguments and results. By default they do if
    `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` is `true`, `span_only` or `span_and_event`. Raises `ExtraMissing` if
    OpenTelemetry is not installed.
    """
    global active
    from antiphon.telemetry.spans import Telemetry

    captures = captures_content(os.environ) if content is None else content
    active = Telemetry(tracer_provider, meter_provider, content=captures)
    return active


def enable_from_environment() -> Telemetry | None:
    """Export to `OTEL_EXPORTER_OTLP_ENDPOINT`, if that is set; None if it is not, or if the SDK is not installed."""
    global active
    from antiphon.telemetry.exporter import telemetry_from_environment

    exported = telemetry_from_environment()
    if exported is not None:
        active = exported
    return exported


def disable() -> None:
    """Record nothing any more. What was recorded is sent, if the exporter was set up by `enable_from_environment`."""
    global active
    recorder, active = active, None
    if recorder is not None:
        recorder.close()


def trace_headers() -> dict[str, str]:
    """The headers that continue the current trace in another service (`traceparent`); empty if telemetry is off."""
    return {} if active is None else active.headers()


def captures_content(environ: Mapping[str, str]) -> bool:
    """Whether the environment asks for messages in spans."""
    return environ.get(CONTENT_VARIABLE, "").strip().lower() in _CONTENT_VALUES
