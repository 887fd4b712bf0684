"""An OTLP/HTTP endpoint in this process: it decodes what exporters send, with the protocol's own message classes."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from support.local_server import LocalServer


class ReceivedSpan(Struct, frozen=True):
    """One exported span."""

    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    attributes: dict[str, Any]
    failed: bool
    events: tuple[str, ...]


class OtlpReceiver(LocalServer):
    """`spans` and `metrics` hold what has arrived."""

    def __init__(self) -> None:
        super().__init__()
        self.spans: list[ReceivedSpan] = []
        self.metrics: dict[str, list[dict[str, Any]]] = {}
        """By name: the attributes of each data point."""
        self.resource: dict[str, Any] = {}
        self.answer(200, "application/x-protobuf", b"")

    def named(self, name: str) -> ReceivedSpan:
        """The only span of that name."""
        (found,) = [span for span in self.spans if span.name == name]
        return found

    def receive(self, path: str, headers: Mapping[str, str], body: bytes) -> None:
        """Decode one export."""
        if {name.lower(): value for name, value in headers.items()}.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        if path == "/v1/traces":
            for exported in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.resource = _attributes(exported.resource.attributes)
                self.spans += [_span(span) for scope in exported.scope_spans for span in scope.spans]
            return
        assert path == "/v1/metrics", path
        for measured in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            for scope in measured.scope_metrics:
                for metric in scope.metrics:
                    points = metric.histogram.data_points or metric.sum.data_points
                    self.metrics.setdefault(metric.name, []).extend(_point(point) for point in points)


def _span(span: Any) -> ReceivedSpan:
    return ReceivedSpan(
        span.name,
        span.kind,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        _attributes(span.attributes),
        span.status.code == 2,
        tuple(event.name for event in span.events),
    )


def _point(point: Any) -> dict[str, Any]:
    value = point.sum if hasattr(point, "bucket_counts") else point.as_int or point.as_double
    return {**_attributes(point.attributes), "value": value}


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, kind)
