"""ATIF, the Agent Trajectory Interchange Format of Harbor (RFC 0001): one JSON object with numbered steps.

An output of a model and the results of its calls are one `agent` step; questions are `user` steps, system texts and messages of
an operator `system` steps. Tokens, cost, time and model are in the step; what a person decided about a call is in its `extra`.
Version 1.7 is written, which Harbor and other readers accept; 1.8 only where audio needs it. Copied turns have
`is_copied_context`, which excludes them from training.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from antiphon import __version__
from antiphon.history import HistoryEntry, ModelInputEntry, ModelOutputEntry, Origin, ToolCallResultsEntry
from antiphon.parts import (
    Audio,
    Document,
    Image,
    Native,
    Part,
    Refusal,
    Text,
    Thinking,
    TokenUsage,
    ToolCallRequest,
    ToolCallResult,
    ToolExecutionStatus,
)
from antiphon.prices.cost import cost_of
from antiphon.wire.loss import Loss
from antiphon.wire.media import same_media_types
from antiphon.wire.openai_chat.dialects import get_dialect
from antiphon.wire.openai_chat.tools import write_tools
from antiphon.wire.request import ModelRequest, ToolDefinition
from antiphon_devtools.trajectories.media_files import MediaFolder
from antiphon_devtools.trajectories.selection import Trajectory, TrajectoryTurn
from antiphon_devtools.trajectories.tool_definitions import definitions_for

VERSION = "ATIF-v1.7"
AUDIO_VERSION = "ATIF-v1.8"

_IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_AUDIO_TYPES = frozenset(f"audio/{name}" for name in ["wav", "mpeg", "mp4", "aac", "ogg", "flac", "webm", "aiff"])
_OPERATORS = ("system", "developer")


class _StepWriter:
    """Collects the steps of one trajectory."""

    def __init__(self, media: MediaFolder) -> None:
        self.steps: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self.usage = TokenUsage()
        self.cost: float | None = None
        self.has_audio = False
        self._media = media
        self._where = ""

    def add_turn(self, turn: TrajectoryTurn, system: str) -> str:
        """Add the steps of a turn; returns the system text that was in force at its end."""
        self._where = f"turn {turn.number}"
        self.notes += (f"{self._where}: {note}" for note in turn.notes)
        first = len(self.steps)
        steps: dict[str, dict[str, Any]] = {}
        for position, step in enumerate(turn.steps):
            entry = step.entry
            if step.system != system and (position == 0 or isinstance(entry, ModelOutputEntry)):
                system = step.system
                self._append("system", entry, system)
            if isinstance(entry, ModelOutputEntry):
                agent = self._add_output(entry, turn)
                steps |= {call.tool_call_id: agent for call in entry.tool_calls}
            elif isinstance(entry, ToolCallResultsEntry):
                self._add_results(entry, steps)
            else:
                self._append(
                    "system" if entry.channel in _OPERATORS else "user",
                    entry,
                    self._content(entry.content),
                    _input_extra(entry),
                )
        for written in self.steps[first:] if turn.is_copied else ():
            written["is_copied_context"] = True
        return system

    def _append(
        self, source: str, entry: HistoryEntry, message: str | list[dict[str, Any]], extra: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        step: dict[str, Any] = {"step_id": len(self.steps) + 1}
        if entry.timestamp is not None:
            step["timestamp"] = entry.timestamp.isoformat()
        step |= {"source": source, "message": message}
        if extra:
            step["extra"] = extra
        self.steps.append(step)
        return step

    def _add_output(self, entry: ModelOutputEntry, turn: TrajectoryTurn) -> dict[str, Any]:
        words = [part for part in entry.content if not isinstance(part, Thinking | ToolCallRequest)]
        extra = {"stop_reason": entry.stop_reason} if entry.stop_reason else {}
        if entry.metadata is not None and entry.metadata.source:
            extra["source"] = entry.metadata.source
        step = self._append("agent", entry, self._content(words), extra)
        origin = entry.origin or Origin()
        if origin.model:
            step["model_name"] = origin.name
        if plan := entry.plan:
            step["reasoning_content"] = plan
        signed = [part for part in entry.content if not isinstance(part, Native) and part.native]
        if signed:
            self.notes.append(
                f"{self._where}: lost {', '.join(_extra_names(signed))}: fields of {origin.format or 'the provider'} only"
            )
        if entry.tool_calls:
            step["tool_calls"] = [self._call(call, turn) for call in entry.tool_calls]
        step["llm_call_count"] = 1
        usage = entry.metadata.usage if entry.metadata is not None else None
        if usage is not None:
            step["metrics"] = self._metrics(usage, entry, origin)
        return step

    def _call(self, call: ToolCallRequest, turn: TrajectoryTurn) -> dict[str, Any]:
        try:
            arguments = call.arguments_object()
        except ValueError as error:
            self.notes.append(f"{self._where}: changed call {call.tool_call_id}: {error}; exported under _raw")
            arguments = {"_raw": call.arguments}
        written: dict[str, Any] = {
            "tool_call_id": call.tool_call_id,
            "function_name": call.tool_name,
            "arguments": arguments,
        }
        if decision := turn.decisions.get(call.tool_call_id):
            written["extra"] = {"decision": decision.decision}
            if decision.reason:
                written["extra"]["reason"] = decision.reason
            if decision.arguments is not None:
                written["extra"]["edited_arguments"] = decision.arguments
        return written

    def _add_results(self, entry: ToolCallResultsEntry, steps: dict[str, dict[str, Any]]) -> None:
        """Add results to the steps of their calls. Without its call, a result is an observation of the system."""
        step: dict[str, Any] | None = None
        for result in entry.results:
            written = self._result(result)
            step = steps.get(result.tool_call_id) or step or self._append("system", entry, "")
            if result.tool_call_id not in steps:
                self.notes.append(f"{self._where}: the call of result {result.tool_call_id} is not in the turn")
                del written["source_call_id"]
            _observe(step, written)
        if entry.overall_result:
            _observe(step or self._append("system", entry, ""), {"content": entry.overall_result})

    def _result(self, result: ToolCallResult) -> dict[str, Any]:
        written: dict[str, Any] = {"source_call_id": result.tool_call_id, "content": self._content(result.content)}
        if result.status is not ToolExecutionStatus.SUCCESS:
            written["extra"] = {"status": result.status.value}
        return written

    def _metrics(self, usage: TokenUsage, entry: ModelOutputEntry, origin: Origin) -> dict[str, Any]:
        self.usage += usage
        metrics: dict[str, Any] = {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "cached_tokens": usage.cached_tokens,
        }
        cost = cost_of(usage, origin.model, origin.provider, at=entry.timestamp) if origin.model else None
        if cost is not None:
            metrics["cost_usd"] = float(cost.total)
            self.cost = (self.cost or 0.0) + float(cost.total)
        more = {"reasoning_tokens": usage.reasoning_tokens, "cache_write_tokens": usage.cache_write_tokens}
        if extra := {name: count for name, count in more.items() if count}:
            metrics["extra"] = extra
        return metrics

    def _content(self, parts: Sequence[Part]) -> str | list[dict[str, Any]]:
        """Text alone is a string; with media it is a list of parts."""
        written = [content for part in parts if (content := self._part(part)) is not None]
        if all(part["type"] == "text" for part in written):
            return "\n".join(part["text"] for part in written)
        return written

    def _part(self, part: Part) -> dict[str, Any] | None:
        if isinstance(part, Text | Refusal):
            return {"type": "text", "text": part.text}
        if isinstance(part, Document) and part.text:
            return {"type": "text", "text": part.text}
        if isinstance(part, Image | Audio):
            return self._medium(part)
        what = f"{part.origin} block" if isinstance(part, Native) else type(part).__name__.lower()
        self.notes.append(f"{self._where}: lost {what}: a message has text, images and audio only")
        return None

    def _medium(self, part: Image | Audio) -> dict[str, Any] | None:
        kind = type(part).__name__.lower()
        stored = self._media.store(part)
        if isinstance(stored, str):
            self.notes.append(f"{self._where}: lost {kind}: {stored}")
            return None
        allowed = _IMAGE_TYPES if isinstance(part, Image) else _AUDIO_TYPES
        names = same_media_types(stored.media_type) or (stored.media_type,)
        media_type = next((name for name in names if name in allowed), "")
        if not media_type:
            self.notes.append(
                f"{self._where}: lost {kind}: {stored.media_type or 'an unknown type'} is not one of ATIF"
            )
            return None
        self.has_audio = self.has_audio or isinstance(part, Audio)
        return {"type": kind, "source": {"media_type": media_type, "path": stored.path}}


def write_atif(
    trajectory: Trajectory, definitions: Sequence[ToolDefinition], media: MediaFolder
) -> tuple[dict[str, Any] | None, list[str]]:
    """The ATIF document of a trajectory, or None if it has no steps; and what could not be carried."""
    writer = _StepWriter(media)
    system = ""
    for turn in trajectory.turns:
        system = writer.add_turn(turn, system)
    if not writer.steps:
        return None, writer.notes
    agent: dict[str, Any] = {"name": "antiphon", "version": __version__}
    if trajectory.model:
        agent["model_name"] = trajectory.model
    tools, inferred = definitions_for(trajectory, definitions)
    losses: list[Loss] = []
    if tools:
        body: dict[str, Any] = {}
        write_tools(ModelRequest(tools=tools), body, losses, get_dialect("openai"))
        agent["tool_definitions"] = body["tools"]
    document: dict[str, Any] = {
        "schema_version": AUDIO_VERSION if writer.has_audio else VERSION,
    }
    if trajectory.id:
        document |= {"session_id": trajectory.conversation, "trajectory_id": trajectory.id}
    document |= {"agent": agent, "steps": writer.steps, "final_metrics": _final_metrics(writer)}
    facts = {"title": trajectory.title, "forked_from": trajectory.parent}
    extra: dict[str, Any] = {name: value for name, value in facts.items() if value}
    document["extra"] = {**extra, "branch": "current" if trajectory.is_current else "abandoned"}
    return document, [*writer.notes, *inferred, *(f"lost {loss}" for loss in losses)]


def _final_metrics(writer: _StepWriter) -> dict[str, Any]:
    usage = writer.usage
    metrics: dict[str, Any] = {
        "total_prompt_tokens": usage.prompt_tokens,
        "total_completion_tokens": usage.completion_tokens,
        "total_cached_tokens": usage.cached_tokens,
        "total_steps": len(writer.steps),
    }
    if writer.cost is not None:
        metrics["total_cost_usd"] = writer.cost
    return metrics


def _observe(step: dict[str, Any], result: dict[str, Any]) -> None:
    step.setdefault("observation", {"results": []})["results"].append(result)


def _input_extra(entry: ModelInputEntry) -> dict[str, Any]:
    return {"channel": entry.channel} if entry.channel not in ("user", "system") else {}


def _extra_names(parts: Sequence[Part]) -> list[str]:
    names = (name for part in parts for extras in (getattr(part, "native", None) or {}).values() for name in extras)
    return list(dict.fromkeys(names))
