"""OpenTelemetry spans and metrics of model calls, tool calls and agents, with the names of the GenAI conventions.

    from antiphon import telemetry
    telemetry.enable()      # to the providers of the process; or: telemetry.enable(tracer_provider=…, meter_provider=…)

Library and gateway use the same code: `attributes` and `messages` turn our values into attributes, `instruments` has the metrics,
`spans` the spans, `exporter` the SDK as the environment configures it. Only the API of OpenTelemetry is needed (extra `otel`).

Off by default: `switch.active` is None, and each call checks that and nothing else.
"""

from antiphon.telemetry.switch import disable, enable, enable_from_environment, trace_headers

__all__ = ["disable", "enable", "enable_from_environment", "trace_headers"]
