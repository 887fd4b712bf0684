"""Telemetry: a turn with a tool as OpenTelemetry spans, printed as a tree with the tokens of each.

The spans stay in memory here. With `OTEL_EXPORTER_OTLP_ENDPOINT` set, `telemetry.enable_from_environment()` sends them out.
"""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import antiphon as ap
from antiphon import telemetry


@ap.tool(effect="read")
def weather(city: str) -> str:
    "Current weather in a city."
    return f"Rain in {city}"


def print_tree(spans: Sequence[ReadableSpan], parent: int | None = None, indent: str = "") -> None:
    for span in spans:
        if (span.parent.span_id if span.parent else None) == parent:
            attributes = span.attributes or {}
            tokens = attributes.get("gen_ai.usage.input_tokens")
            print(f"{indent}{span.name}" + (f" ({tokens} tokens in)" if tokens is not None else ""))
            print_tree(spans, span.context.span_id, indent + "  ")


def main() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry.enable(tracer_provider=provider)
    model = ap.ScriptedModel(ap.call("weather", city="Oslo"), "It is raining.")
    ap.ToolLoop(ap.Conversation(model, tools=[weather]), name="forecaster").run_sync("Is it raining in Oslo?")
    print_tree(exporter.get_finished_spans())


if __name__ == "__main__":
    main()
