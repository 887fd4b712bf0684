"""The metrics of the GenAI conventions: durations, time to the first chunk, tokens, and the calls of an agent.

The names of inference metrics changed in 2026 (`gen_ai.client.inference.*`). Published dashboards use the old ones
(`gen_ai.client.operation.*`, `gen_ai.client.token.usage`), so both are recorded. Bucket boundaries are the conventions' own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.parts import TokenUsage
from antiphon.telemetry.attributes import TOKEN_FIELDS, Attributes

if TYPE_CHECKING:
    from opentelemetry.metrics import Counter, Histogram, Meter

_SECONDS = [0.01 * 2**step for step in range(14)]
_AGENT_SECONDS = [0.1 * 2**step for step in range(13)]
_TOKENS = [4**step for step in range(14)]
_CALLS = [1, 2, 4, 8, 16, 32, 64, 128]
_MEASURED = frozenset(
    {
        "gen_ai.operation.name",
        "gen_ai.provider.name",
        "gen_ai.request.model",
        "gen_ai.response.model",
        "server.address",
        "server.port",
    }
)
"""The attributes of calls that metrics have: few values each."""


class Instruments:
    """The instruments of one meter."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._durations = [
            self._histogram("gen_ai.client.inference.duration", "Duration of a model call.", _SECONDS),
            self._histogram("gen_ai.client.operation.duration", "Duration of a model call.", _SECONDS),
        ]
        self._first_chunks = [
            self._histogram("gen_ai.client.inference.time_to_first_chunk", "Time to the first output.", _SECONDS),
            self._histogram("gen_ai.client.operation.time_to_first_chunk", "Time to the first output.", _SECONDS),
        ]
        self._token_usage = self._histogram("gen_ai.client.token.usage", "Tokens of a call.", _TOKENS, "{token}")
        self._tokens: dict[str, Counter] = {
            field: meter.create_counter(f"gen_ai.client.inference.usage.{name}", "{token}", f"Total {name}.")
            for name, field in TOKEN_FIELDS.items()
        }
        self.tool_duration = self._histogram("gen_ai.execute_tool.duration", "Duration of a tool call.", _SECONDS)
        self.agent_duration = self._histogram("gen_ai.invoke_agent.duration", "Duration of a turn.", _AGENT_SECONDS)
        self.workflow_duration = self._histogram(
            "gen_ai.invoke_workflow.duration", "Duration of a turn of several agents.", _AGENT_SECONDS
        )
        self.inference_calls = self._histogram(
            "gen_ai.invoke_agent.inference_calls", "Model calls of a turn.", _CALLS, "{call}"
        )
        self.tool_calls = self._histogram("gen_ai.invoke_agent.tool_calls", "Tool calls of a turn.", _CALLS, "{call}")

    def record_call(
        self, known: Attributes, error: str, seconds: float, first_chunk: float | None, usage: TokenUsage | None
    ) -> None:
        """Record one model call, with the attributes of its span that metrics have."""
        attributes = with_error({name: value for name, value in known.items() if name in _MEASURED}, error)
        for duration in self._durations:
            duration.record(seconds, attributes)
        if first_chunk is not None:
            for histogram in self._first_chunks:
                histogram.record(first_chunk, attributes)
        if usage is None:
            return
        self._token_usage.record(usage.prompt_tokens, {**attributes, "gen_ai.token.type": "input"})
        self._token_usage.record(usage.completion_tokens, {**attributes, "gen_ai.token.type": "output"})
        for field, counter in self._tokens.items():
            if count := getattr(usage, field):
                counter.add(count, attributes)

    def _histogram(self, name: str, description: str, buckets: list[float] | list[int], unit: str = "s") -> Histogram:
        return self._meter.create_histogram(name, unit, description, explicit_bucket_boundaries_advisory=buckets)


def with_error(attributes: Attributes, error: str) -> Attributes:
    """The attributes with the kind of the failure, if there was one."""
    return {**attributes, "error.type": error} if error else attributes
