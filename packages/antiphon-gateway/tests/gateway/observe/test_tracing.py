"""Each request is a span and each call of a provider its child, as OpenTelemetry's own SDK exports them; without it, nothing."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from antiphon.parts import Text, TokenUsage
from antiphon.providers.call import Attempt
from antiphon.telemetry.spans import Telemetry
from antiphon.wire.output import ProviderError
from antiphon.wire.request import Message, ModelRequest
from antiphon_gateway.observe.record import Record
from antiphon_gateway.observe.tracing import RequestTracer
from gateway.rig import MODELS, Rig, rig
from support.otlp_receiver import OtlpReceiver


def passage(**changes: object) -> Record:
    now = time.monotonic()
    made = Record(
        request_id="01r", client_format="openai-chat", requested_model="claude-x", streams=True, started_at=now - 3
    )
    made.provider, made.model, made.upstream_format, made.status = "gemini", "gemini-3", "gemini", 200
    made.first_token_seconds, made.seconds = 0.5, 2.0
    made.usage = TokenUsage(100, 20, 60, 0, 7, 120)
    made.attempts = [
        Attempt(
            provider="anthropic", model="claude-4", status=529, seconds=0.5, error=ProviderError("SECRET", "overloaded")
        ),
        Attempt(provider="gemini", model="gemini-3", credential="sk-…wxyz", status=200, seconds=0.2),
    ]
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def recorded(made: Record, **headers: str) -> dict[str, ReadableSpan]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = RequestTracer(Telemetry(provider))
    tracer.start(made, headers)
    tracer.end(made)
    provider.shutdown()
    return {span.name: span for span in exporter.get_finished_spans()}


def test_a_request_and_its_attempts() -> None:
    spans = recorded(passage())
    request, refused, answered = spans["chat claude-x"], spans["chat claude-4"], spans["chat gemini-3"]
    assert request.kind is SpanKind.SERVER
    for child in (refused, answered):
        assert child.kind is SpanKind.CLIENT
        assert child.parent is not None
        assert child.parent.span_id == request.context.span_id
    fields = dict(request.attributes or {})
    for name, expected in [
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.provider.name", "gcp.gemini"),
        ("gen_ai.system", "gcp.gemini"),
        ("gen_ai.request.model", "claude-x"),
        ("gen_ai.response.model", "gemini-3"),
        ("gen_ai.usage.input_tokens", 100),
        ("gen_ai.usage.output_tokens", 20),
        ("gen_ai.usage.cache_read.input_tokens", 60),
        ("gen_ai.usage.reasoning.output_tokens", 7),
        ("antiphon.request_id", "01r"),
    ]:
        assert fields[name] == expected, name
    assert dict(refused.attributes or {})["error.type"] == "overloaded"
    assert refused.status.status_code is StatusCode.ERROR
    assert dict(answered.attributes or {})["gen_ai.usage.output_tokens"] == 20
    assert answered.status.status_code is request.status.status_code is StatusCode.UNSET
    assert "SECRET" not in "".join(span.to_json() for span in spans.values())


def test_times_are_those_of_the_request() -> None:
    before = time.time_ns()
    spans = recorded(passage())
    request, refused, answered = spans["chat claude-x"], spans["chat claude-4"], spans["chat gemini-3"]
    starts = [span.start_time or 0 for span in (request, refused, answered)]
    ends = [span.end_time or 0 for span in (request, refused, answered)]
    assert ends[0] - starts[0] == pytest.approx(2e9, rel=0.01)
    assert starts[0] == starts[1]
    assert ends[1] - starts[1] == pytest.approx(0.5e9, rel=0.01)
    assert ends[1] == starts[2]
    assert ends[2] == ends[0] < before


def test_the_trace_of_the_client_is_continued() -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    request = recorded(passage(), traceparent=parent)["chat claude-x"]
    assert request.parent is not None
    assert f"{request.context.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"
    assert f"{request.parent.span_id:016x}" == "b7ad6b7169203331"
    assert recorded(passage(), traceparent="nonsense\n")["chat claude-x"].parent is None


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"status": 502, "error": ProviderError("x", "server")}, "server"),
        ({"status": 200, "error": ProviderError("x", "stream_cut")}, "stream_cut"),
        ({"status": 404, "error": ProviderError("x", "not_found")}, None),
        ({"status": 499, "client_left": True}, "client_left"),
        ({}, None),
    ],
)
def test_error_type_and_status_of_a_span(changes: dict[str, object], error: str | None) -> None:
    request = recorded(passage(**changes))["chat claude-x"]
    assert dict(request.attributes or {}).get("error.type") == error
    assert (request.status.status_code is StatusCode.ERROR) is (error is not None)


def test_a_request_that_reached_no_provider() -> None:
    spans = recorded(Record(request_id="1", client_format="anthropic", status=400))
    assert list(spans) == ["chat"]


def test_without_opentelemetry_tracing_is_off() -> None:
    code = (
        "import logging, sys; logging.basicConfig(); sys.modules['opentelemetry'] = None\n"
        "from antiphon_gateway.observe.record import Record\n"
        "from antiphon_gateway.observe.tracing import RequestTracer, tracer_from_environment\n"
        "for spans in (RequestTracer(), tracer_from_environment()):\n"
        "    record = Record(request_id='1', client_format='x')\n"
        "    spans.start(record, {})\n"
        "    if record.span is not None: spans.end(record)\n"
        "    spans.close()\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "pip install 'antiphon[otel]'" in run.stderr


REQUEST = ModelRequest(messages=(Message("user", (Text("Hello."),)),))
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@contextmanager
def traced_gateway() -> Iterator[tuple[Rig, OtlpReceiver]]:
    """A gateway that exports to a receiver, which has everything after the block."""
    with OtlpReceiver() as receiver, pytest.MonkeyPatch.context() as environment:
        environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        with rig() as gateway:
            yield gateway, receiver


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("target", ["openai-chat", "anthropic"])
def test_a_request_is_exported_and_its_trace_reaches_the_upstream(target: str, streams: bool) -> None:
    with traced_gateway() as (gateway, receiver), gateway.client() as client:
        got = client.ask("openai-chat", f"to-{target}", REQUEST, streams=streams, headers={"traceparent": PARENT})
        assert got.status == 200
        sent = gateway.upstreams[target].received[-1].headers["traceparent"]
    request, attempt = receiver.named(f"chat to-{target}"), receiver.named(f"chat {MODELS[target]}")
    assert (request.trace_id, request.parent_id) == tuple(PARENT.split("-")[1:3])
    assert sent.split("-")[1:3] == [request.trace_id, request.span_id]
    assert attempt.parent_id == request.span_id
    assert attempt.attributes["server.address"] == "127.0.0.1"
    assert attempt.attributes["gen_ai.usage.output_tokens"] > 0
    if streams or target != "openai-chat":
        assert attempt.attributes["gen_ai.response.finish_reasons"] == ["stop"]
    (point,) = receiver.metrics["gen_ai.client.inference.duration"]
    assert point["gen_ai.request.model"] == MODELS[target]
    assert receiver.metrics["gen_ai.client.inference.usage.output_tokens"][0]["value"] > 0
    assert ("gen_ai.client.inference.time_to_first_chunk" in receiver.metrics) is streams


def test_a_trace_is_passed_on_while_nothing_is_traced() -> None:
    with rig() as gateway, gateway.client() as client:
        headers = {"traceparent": PARENT, "tracestate": "vendor=1"}
        assert client.ask("openai-chat", "to-openai-chat", REQUEST, streams=False, headers=headers).status == 200
        sent = gateway.upstreams["openai-chat"].received[-1].headers
        assert (sent["traceparent"], sent["tracestate"]) == (PARENT, "vendor=1")
        assert client.ask("openai-chat", "to-openai-chat", REQUEST, streams=False).status == 200
        assert "traceparent" not in gateway.upstreams["openai-chat"].received[-1].headers


def test_a_count_of_tokens_is_traced_to_the_provider_that_counts() -> None:
    with rig() as gateway, gateway.client() as client:
        body = {"model": "to-anthropic", "messages": [{"role": "user", "content": "hello"}]}
        got = client.post("/v1/messages/count_tokens", body, {"traceparent": PARENT})
        assert (got.status, "x-antiphon-estimate" in got.headers) == (200, False)
        assert gateway.upstreams["anthropic"].received[-1].headers["traceparent"] == PARENT
        (row,) = client.get("/status?format=json").json["requests"]
        assert (row["operation"], row["upstream_format"]) == ("count_tokens", "anthropic")
