"""`Spans`: each request as an OpenTelemetry span, each call of a provider as its child, in the words of the GenAI conventions.

A span is written when its request is over, from the same `Passage` that metrics and the log are written from: nothing has to be
carried through the code that answers, and a request that was cancelled is traced like any other. The client's trace goes on in
ours where its headers name one. Numbers, names and kinds of errors are told; what was said never is.

An attempt tells how long it took but not when it began: the children stand one behind the other from the beginning, and the one
that answered lasts as long as the request. Pauses between them show as the end of the last.

Without OpenTelemetry installed, nothing happens and nothing is missing. `started_spans` sets up sending where the environment
asks for it (the extra `otel`).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from antiphon.gateway.observe.request_trace import Passage
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
    "gemini-openai": "gcp.gemini",
    "mistral": "mistral_ai",
    "openai-responses": "openai",
    "xai": "x_ai",
}
"""Providers that the conventions call by another name than we do."""


class Spans:
    """Writes spans, to `provider` or to whichever the process has. Does nothing where OpenTelemetry is not installed."""

    def __init__(
        self, provider: TracerProvider | None = None, *, version: str = "", close: Callable[[], None] = lambda: None
    ) -> None:
        self._close = close
        self._tracer: Tracer | None = None
        self._is_global = provider is None
        self._nowhere_until = 0.0  # there is nowhere to send them to; looked at again then
        try:
            from opentelemetry import trace
        except ImportError:
            return
        self._tracer = trace.get_tracer("antiphon.gateway", version, provider)

    def record(self, passage: Passage, headers: Mapping[str, str], operation: str = "") -> None:
        """A request is over. `headers` are the client's, their names in lower case."""
        operation = operation or passage.operation
        if self._tracer is None or time.monotonic() < self._nowhere_until:
            return
        from opentelemetry import trace

        if self._is_global and isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            self._nowhere_until = time.monotonic() + _LOOK_SECONDS
            return
        from opentelemetry.propagate import extract
        from opentelemetry.trace import SpanKind, set_span_in_context

        began, ended = _wall_times(passage)
        parent = extract({name: headers[name] for name in ("traceparent", "tracestate") if name in headers})
        asked = passage.asked[:_LONGEST]
        span = self._begun(
            f"{operation} {asked}".strip(), SpanKind.SERVER, began, parent, _request_fields(passage, operation)
        )
        if not span.is_recording():
            return
        inside = set_span_in_context(span, parent)
        at = began
        for place, attempt in enumerate(passage.attempts):
            is_answer = place == len(passage.attempts) - 1 and attempt.error is None
            until = ended if is_answer else min(ended, at + int(attempt.seconds * _SECOND))
            fields = _attempt_fields(attempt, operation)
            if is_answer:
                fields |= _usage_fields(passage)
            name = f"{operation} {attempt.model[:_LONGEST]}".strip()
            child = self._begun(name, SpanKind.CLIENT, at, inside, fields)
            _end(child, until, attempt.error.kind if attempt.error is not None else "")
            at = until
        _end(span, ended, _fault(passage))

    def close(self) -> None:
        """Send what is not sent yet."""
        self._close()

    def _begun(self, name: str, kind: Any, began: int, parent: Context, fields: dict[str, Any]) -> Span:
        assert self._tracer is not None
        return self._tracer.start_span(
            name, parent, kind, {key: value for key, value in fields.items() if value}, (), began
        )


def started_spans(version: str = "") -> Spans:
    """Spans that are sent to where the environment says (`OTEL_EXPORTER_OTLP_ENDPOINT`), if it says so.

    Otherwise they go to the provider that the process has set up, as under `opentelemetry-instrument`; where there is none,
    nowhere.
    """
    if not any(os.environ.get(name) for name in _ENDPOINTS):
        return Spans(version=version)
    try:
        sdk = import_module("opentelemetry.sdk.trace")
        export = import_module("opentelemetry.sdk.trace.export")
        resources = import_module("opentelemetry.sdk.resources")
        otlp = import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    except ImportError as error:
        logger.warning("no spans are sent: %s is not installed; install antiphon[otel]", error.name)
        return Spans(version=version)
    name = os.environ.get("OTEL_SERVICE_NAME", "antiphon")
    provider = sdk.TracerProvider(resource=resources.Resource.create({"service.name": name}))
    provider.add_span_processor(export.BatchSpanProcessor(otlp.OTLPSpanExporter()))
    return Spans(provider, version=version, close=provider.shutdown)


def _wall_times(passage: Passage) -> tuple[int, int]:
    """When a passage began and ended, in nanoseconds of the clock on the wall."""
    now, monotonic = time.time_ns(), time.monotonic()
    ended = monotonic if passage.ended is None else passage.ended
    return now - int((monotonic - passage.began) * _SECOND), now - int((monotonic - ended) * _SECOND)


def _fault(passage: Passage) -> str:
    """What went wrong on this side. A request that the client got wrong is no error of a server."""
    if passage.is_left:
        return "client_left"
    if 400 <= passage.status < 500:
        return ""
    return passage.error.kind if passage.error is not None else ""


def _request_fields(passage: Passage, operation: str) -> dict[str, Any]:
    return {
        **_provider_fields(passage.provider, operation),
        **_usage_fields(passage),
        "gen_ai.request.model": passage.asked[:_LONGEST],
        "gen_ai.request.stream": passage.streams,
        "gen_ai.response.model": passage.model[:_LONGEST],
        "http.response.status_code": passage.status,
        "antiphon.request_id": passage.request_id,
        "antiphon.client_format": passage.client_format,
        "antiphon.upstream_format": passage.upstream_format,
        "antiphon.repairs": len(passage.repairs),
        "antiphon.losses": len(passage.losses),
        "antiphon.overhead_seconds": passage.overhead,
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
    # The second is what the conventions called it before version 1.37; many viewers still look there.
    return {"gen_ai.operation.name": operation, "gen_ai.provider.name": name, "gen_ai.system": name}


def _usage_fields(passage: Passage) -> dict[str, Any]:
    usage = passage.usage
    fields: dict[str, Any] = {}
    if passage.first_token is not None:
        fields["gen_ai.response.time_to_first_chunk"] = passage.first_token - passage.began
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
